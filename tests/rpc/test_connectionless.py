"""Links in a datagram: carried out once however often it comes, and nothing that a stranger sends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from swarm.fake_peers import node

from dhtcrawl.rpc.contact import Address
from dhtcrawl.rpc.discovery.datagram import DATAGRAM_BYTES_MAX, encode_reply, encode_request
from dhtcrawl.rpc.discovery.protocol import RoutingProtocol
from dhtcrawl.rpc.membership.hello import MemberRecord, NodeState
from dhtcrawl.rpc.peers.connectionless import FRAME_BYTES_MAX, OPEN_MAX, RPC, SHUNNED_S, Connectionless
from dhtcrawl.rpc.tasks.events import Failure, FailureKind
from dhtcrawl.rpc.tasks.frame import Kind
from dhtcrawl.rpc.tasks.messages import Ack, Call, Code, Refused, Reply, StoreTask, encode
from dhtcrawl.rpc.tasks.signals import Hello
from rpc.wire import CRAWL, LINK

US, THEM = node(1), node(2)
OURS, THEIRS = ("10.0.0.1", 1), ("10.0.0.2", 2)
MEMBER = MemberRecord.newcomer(THEM, THEIRS, 7)
LINKS = StoreTask(CRAWL, (LINK,))
TAKEN = Ack.all(Code.ACCEPTED, 1)


class Plane:
    """The routing plane of both: requests reach the other one as often as `copies` says."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.other: Plane
        self.copies = 1
        self.handlers: dict[str, Callable[..., None]] = {}
        self.sent: list[tuple[object, ...]] = []

    def register(self, name: str, handler: Callable[..., None], arguments: int, *, later: bool) -> None:
        assert arguments == 3
        self.handlers[name] = handler

    async def call(self, address: Address, name: str, *args: object, **how: Any) -> tuple[bool, Any]:
        assert address == self.other.address
        assert how["timed"] is False
        self.sent.append(args)
        assert len(encode_request(bytes(20), name, args)) <= DATAGRAM_BYTES_MAX
        replies: asyncio.Queue[Any] = asyncio.Queue()
        for _ in range(self.copies):
            self.other.handlers[name](replies.put_nowait, self.address, *args)
        try:
            async with asyncio.timeout(5):
                value = await replies.get()
        except TimeoutError:
            return False, None
        return True, msgpack.unpackb(encode_reply(bytes(20), value)[21:])


class Two:
    """Us, who ask, and them, who take links as `handle` says."""

    def __init__(self, handle: Callable[[Hello, Any], Reply | asyncio.Future[Reply]]) -> None:
        self.records = {US: MemberRecord.newcomer(US, OURS, 3), THEM: MEMBER}
        self.plane, self.theirs = Plane(OURS), Plane(THEIRS)
        self.plane.other, self.theirs.other = self.theirs, self.plane
        self.heard: list[tuple[Hello, Any]] = []

        def hear(hello: Hello, message: Any) -> Reply | asyncio.Future[Reply]:
            self.heard.append((hello, message))
            return handle(hello, message)

        self.us = Connectionless(US, cast(RoutingProtocol, self.plane), hear, self.records.get)
        Connectionless(THEM, cast(RoutingProtocol, self.theirs), hear, self.records.get)

    def send(self, *args: object, address: Address = OURS) -> list[Any]:
        """What they answer, at once, to a datagram that says whatever it says."""
        answers: list[Any] = []
        self.theirs.handlers[RPC](answers.append, address, *args)
        return answers


def frame(number: int, message: Any = LINKS) -> bytes:
    return encode(number, message)[4:]


def later(group: asyncio.TaskGroup, reply: Reply, seconds: float = 1.0) -> Callable[..., asyncio.Future[Reply]]:
    async def answer() -> Reply:
        await asyncio.sleep(seconds)
        return reply

    return lambda hello, message: group.create_task(answer())


async def test_links_go_in_a_datagram_and_so_does_the_answer() -> None:
    async with asyncio.TaskGroup() as group:
        for handle in (lambda hello, message: TAKEN, later(group, TAKEN)):
            two = Two(handle)
            assert await two.us.ask(MEMBER, LINKS) == TAKEN
            assert two.heard == [(Hello(US, 3, "active"), LINKS)]
            assert (two.us.asked, two.us.answered) == (1, 1)


async def test_a_request_that_comes_again_meanwhile_is_carried_out_once() -> None:
    async with asyncio.TaskGroup() as group:
        two = Two(later(group, TAKEN))
        two.plane.copies = 3
        assert await two.us.ask(MEMBER, LINKS) == TAKEN
        assert len(two.heard) == 1
        assert await two.us.ask(MEMBER, LINKS) == TAKEN
        assert len(two.heard) == 2, "another request is another one"


async def test_what_does_not_fit_into_a_datagram_is_for_a_connection() -> None:
    two = Two(lambda hello, message: TAKEN)
    room = FRAME_BYTES_MAX - len(frame(1))
    fits = StoreTask(CRAWL, (LINK._replace(url=LINK.url + "x" * (room - 2)),))  # a longer string's own length
    assert len(frame(1, fits)) == FRAME_BYTES_MAX
    assert await two.us.ask(MEMBER, fits) == TAKEN
    longer = StoreTask(CRAWL, (LINK._replace(url=LINK.url + "x" * (room - 1)),))
    assert await two.us.ask(MEMBER, longer) is None
    assert len(two.plane.sent) == 1


async def test_a_refusal_says_what_it_would_say_over_a_connection() -> None:
    two = Two(lambda hello, message: Refused("unknown-crawl", "00"))
    assert await two.us.ask(MEMBER, LINKS) == Failure(FailureKind.REFUSED, "unknown-crawl: 00")


@pytest.mark.parametrize(
    "reply", [Ack.all(Code.ACCEPTED, 2), None, b"", b"\x10", bytes(40), 7, frame(1, Call("x", {}, 10)), frame(9, TAKEN)]
)
async def test_an_answer_that_makes_no_sense_is_none(reply: Any) -> None:
    two = Two(lambda hello, message: TAKEN)
    value = frame(1, reply) if isinstance(reply, Ack) else reply
    two.theirs.handlers[RPC] = lambda answer, *_: answer(value)
    assert await two.us.ask(MEMBER, LINKS) is None
    await asyncio.sleep(SHUNNED_S)
    two.theirs.handlers[RPC] = lambda answer, *_: None
    assert await two.us.ask(MEMBER, LINKS) is None, "nor is silence"


async def test_who_does_not_answer_so_is_not_asked_so_for_a_while() -> None:
    two = Two(lambda hello, message: TAKEN)
    del two.records[US]  # as where they see us at another address
    assert await two.us.ask(MEMBER, LINKS) is None
    two.records[US] = MemberRecord.newcomer(US, OURS, 3)
    await asyncio.sleep(SHUNNED_S - 1)
    assert await two.us.ask(MEMBER, LINKS) is None
    assert len(two.plane.sent) == 1
    await asyncio.sleep(1)
    assert await two.us.ask(MEMBER, LINKS) == TAKEN


async def test_a_handler_that_fails_is_asked_again_over_a_connection() -> None:
    failed: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
    failed.set_exception(OSError("disk"))
    assert await Two(lambda hello, message: failed).us.ask(MEMBER, LINKS) is None


def test_strangers_and_those_who_mean_another_are_answered_with_nil_and_not_heard() -> None:
    two = Two(lambda hello, message: TAKEN)
    assert two.send(US, THEM, frame(1)) == [frame(1, TAKEN)]
    two.heard.clear()
    assert two.send(US, THEM, frame(1), address=("10.0.0.9", 1)) == [None]
    assert two.send(node(9), THEM, frame(1)) == [None]
    assert two.send(US, node(9), frame(1)) == [None]
    assert two.send(US, THEM, frame(1, Call("leave", {}, 10))) == [None]
    for state in (NodeState.LEFT, NodeState.DEAD):
        two.records[US] = replace(two.records[US], state=state)
        assert two.send(US, THEM, frame(1)) == [None]
    assert two.heard == []


@given(
    st.one_of(
        st.binary(max_size=60),
        st.binary(max_size=60).map(lambda tail: bytes([Kind.STORE_TASK]) + tail),
        st.none(),
        st.integers(),
        st.lists(st.binary(max_size=3)),
    ),
    st.one_of(st.just(US), st.binary(max_size=30), st.lists(st.integers(), max_size=2), st.none()),
)
def test_garbage_is_answered_with_nil(garbage: Any, asker: Any) -> None:
    two = Two(lambda hello, message: TAKEN)
    assert two.send(asker, THEM, garbage) == [None]
    assert two.heard == []


async def test_who_has_too_much_to_answer_says_so_at_once() -> None:
    async with asyncio.TaskGroup() as group:
        two = Two(later(group, TAKEN))
        open_requests = [two.send(US, THEM, frame(number)) for number in range(OPEN_MAX)]
        assert two.send(US, THEM, frame(OPEN_MAX)) == [None]
        await asyncio.sleep(2)
        assert all(len(answers) == 1 for answers in open_requests)
        assert two.send(US, THEM, frame(OPEN_MAX)) == [], "there is room again"
