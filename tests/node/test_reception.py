"""A node's reception refuses while it is closed, and says at any time who the node is."""

from __future__ import annotations

from dhtcrawl.node.reception import Reception
from dhtcrawl.rpc.tasks.connection import Handler
from dhtcrawl.rpc.tasks.messages import (
    Call,
    DeleteBackup,
    RefreshTask,
    Refused,
    Reply,
    Request,
    Result,
    StoreBackup,
    StoreTask,
)
from dhtcrawl.rpc.tasks.rows import LinkRow, PlaceRow, RecordRow, TombstoneRow
from dhtcrawl.rpc.tasks.signals import Hello
from dhtcrawl.swarm.calls import BY_NAME

US, OTHER = b"u" * 20, b"o" * 20
HELLO = Hello(OTHER, 1, "active", ("xor",))
ASKED = Call("have", {})


def knows(node: bytes) -> bool:
    return node == OTHER


def answer(hello: Hello, message: Request) -> Reply:
    assert (hello, message) == (HELLO, ASKED)
    return Result({"by": "the inbox"})


def test_requests_are_answered_from_its_opening_to_its_closing_and_refused_before_and_after() -> None:
    reception = Reception(US, 1)
    handle = reception.handle  # as the transport got it, before there was anything to open it for
    assert handle(HELLO, ASKED) == Refused("closing")
    reception.open(answer, lambda: True, knows)
    assert handle(HELLO, ASKED) == Result({"by": "the inbox"})
    reception.close()
    assert handle(HELLO, ASKED) == Refused("closing")


def test_it_is_joining_until_it_is_active_and_again_when_it_joins_again() -> None:
    active = False
    reception = Reception(US, 3)
    assert reception.hello() == Hello(US, 3, "joining", ("xor",))
    reception.open(answer, lambda: active, knows)
    assert reception.hello().state == "joining"
    active = True
    assert reception.hello() == Hello(US, 3, "active", ("xor",))
    reception.close()
    assert reception.hello().state == "active", "it says goodbye as what it was"
    active = False
    assert reception.hello().state == "joining"


def everything() -> list[Request]:
    """A request of each kind: every call that there is, and the frames of their own."""
    key, crawl = b"k" * 20, b"c" * 16
    link, record = LinkRow(key, "http://a.example/", 0, "", 0, True, b""), record_row(key)
    tombstone = TombstoneRow(key, 4, 0, 0, "", "", PlaceRow("ab" * 20, "a.warc.gz", 0, 9), b"")
    frames = (
        StoreTask(crawl, (link,)),
        StoreBackup(crawl, (record,)),
        DeleteBackup(crawl, (tombstone,)),
        RefreshTask(crawl, bytes(20), b"\xff" * 20),
    )
    return [*frames, *(Call(name, {}) for name in BY_NAME)]


def record_row(key: bytes) -> RecordRow:
    return RecordRow(key, "http://a.example/", 0, "", 0, True, 0, 0, 0, 0, "", "", None, b"")


def test_who_is_no_member_is_answered_only_how_to_become_one() -> None:
    reception = Reception(US, 1)
    asked: list[Request] = []

    def take(hello: Hello, message: Request) -> Reply:
        asked.append(message)
        return Result({})

    reception.open(take, lambda: True, knows)
    for message in everything():
        reply = reception.handle(Hello(b"s" * 20, 1, "active"), message)
        open_to_all = isinstance(message, Call) and message.name == "members"
        assert open_to_all or (isinstance(reply, Refused) and reply.reason == "not-a-member"), message
    assert [message.name for message in asked if isinstance(message, Call)] == ["members"]
    assert len(asked) == 1
    for hello in (HELLO, reception.hello()):  # a member, and the node itself
        asked.clear()
        for message in everything():
            assert reception.handle(hello, message) == Result({})
        assert len(asked) == len(everything())


def test_what_requests_go_through_sees_each_of_them_and_its_answer() -> None:
    seen: list[tuple[Hello, Request, object]] = []

    def watched(handler: Handler) -> Handler:
        def handle(hello: Hello, message: Request) -> object:
            reply = handler(hello, message)
            seen.append((hello, message, reply))
            return reply

        return handle  # type: ignore[return-value]

    reception = Reception(US, 1, watched)
    reception.handle(HELLO, ASKED)
    reception.open(answer, lambda: True, knows)
    reception.handle(HELLO, ASKED)
    assert [reply for _, _, reply in seen] == [Refused("closing"), Result({"by": "the inbox"})]
