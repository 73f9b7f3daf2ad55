"""A node's reception refuses while it is closed, and says at any time who the node is."""

from __future__ import annotations

from dhtcrawl.node.reception import Reception
from dhtcrawl.rpc.tasks.connection import Handler
from dhtcrawl.rpc.tasks.messages import Call, Refused, Reply, Request, Result
from dhtcrawl.rpc.tasks.signals import Hello

US, OTHER = b"u" * 20, b"o" * 20
HELLO = Hello(OTHER, 1, "active", ("xor",))
ASKED = Call("have", {})


def answer(hello: Hello, message: Request) -> Reply:
    assert (hello, message) == (HELLO, ASKED)
    return Result({"by": "the inbox"})


def test_requests_are_answered_from_its_opening_to_its_closing_and_refused_before_and_after() -> None:
    reception = Reception(US, 1)
    handle = reception.handle  # as the transport got it, before there was anything to open it for
    assert handle(HELLO, ASKED) == Refused("closing")
    reception.open(answer, lambda: True)
    assert handle(HELLO, ASKED) == Result({"by": "the inbox"})
    reception.close()
    assert handle(HELLO, ASKED) == Refused("closing")


def test_it_is_joining_until_it_is_active_and_again_when_it_joins_again() -> None:
    active = False
    reception = Reception(US, 3)
    assert reception.hello() == Hello(US, 3, "joining", ("xor",))
    reception.open(answer, lambda: active)
    assert reception.hello().state == "joining"
    active = True
    assert reception.hello() == Hello(US, 3, "active", ("xor",))
    reception.close()
    assert reception.hello().state == "active", "it says goodbye as what it was"
    active = False
    assert reception.hello().state == "joining"


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
    reception.open(answer, lambda: True)
    reception.handle(HELLO, ASKED)
    assert [reply for _, _, reply in seen] == [Refused("closing"), Result({"by": "the inbox"})]
