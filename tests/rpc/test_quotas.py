"""A peer that floods is told FULL and costs the others nothing; one that does not never meets its quotas."""

from __future__ import annotations

import asyncio

import pytest

from dhtcrawl.rpc.peers import quotas
from dhtcrawl.rpc.peers.bounded import Bounded
from dhtcrawl.rpc.peers.quotas import PeerQuotas
from dhtcrawl.rpc.tasks.messages import Ack, Call, Code, Refused, Reply, Request, Result
from dhtcrawl.rpc.tasks.signals import Hello
from rpc.wire import answer_to, hello, task

BAD, GOOD, OWN = b"b" * 20, b"g" * 20, b"o" * 20


def test_links_beyond_the_rate_are_refused_until_there_is_room_again_and_others_are_not() -> None:
    kept = PeerQuotas()
    frames = int(quotas.LINKS_PER_S * quotas.BURST_S) // 200
    assert all(kept.take(BAD, task(200), 0.0) for _ in range(frames))
    assert not kept.take(BAD, task(200), 0.0)
    assert kept.take(GOOD, task(200), 0.0)
    for _ in range(frames):
        kept.end(BAD)
    assert sum(kept.take(BAD, task(200), 1.0) for _ in range(frames)) == quotas.LINKS_PER_S // 200
    assert kept.refused[BAD] >= 1
    assert kept.refused[GOOD] == 0


def test_so_many_requests_wait_for_an_answer_and_calls_are_counted_by_that_alone() -> None:
    kept = PeerQuotas()
    assert all(kept.take(BAD, Call("members", {}), 0.0) for _ in range(quotas.OPEN_MAX))
    assert not kept.take(BAD, Call("members", {}), 0.0)
    assert kept.take(GOOD, Call("members", {}), 0.0)
    kept.end(BAD)
    assert kept.take(BAD, Call("members", {}), 0.0)


def test_the_buckets_of_so_many_peers_are_kept() -> None:
    kept = PeerQuotas()
    for number in range(quotas.PEERS_MAX + 10):
        peer = number.to_bytes(20, "big")
        assert kept.take(peer, task(1), 0.0)
        kept.end(peer)


class Later:
    """A handler that answers when the test says so."""

    def __init__(self) -> None:
        self.open: list[tuple[Request, asyncio.Future[Reply]]] = []

    def __call__(self, peer: Hello, message: Request) -> asyncio.Future[Reply]:
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.open.append((message, future))
        return future

    def answer_all(self) -> None:
        for message, future in self.open:
            future.set_result(answer_to(message))
        self.open.clear()


@pytest.mark.loops("virtual")
async def test_a_peer_that_floods_is_told_full_and_the_node_itself_and_others_are_answered() -> None:
    later, bad, good = Later(), hello(1), hello(2)
    own = hello(3)
    bounded = Bounded(own.node_id, later, asyncio.get_running_loop().time)
    for _ in range(quotas.OPEN_MAX):
        assert isinstance(bounded.handle(bad, Call("x", {})), asyncio.Future)
    assert bounded.handle(bad, task(3)) == Ack.all(Code.FULL, 3, "beyond what one peer may send")
    refused = bounded.handle(bad, Call("x", {}))
    assert isinstance(refused, Refused)
    assert refused.reason == "full"
    assert isinstance(bounded.handle(good, task(3)), asyncio.Future)
    for _ in range(quotas.OPEN_MAX + 1):
        assert isinstance(bounded.handle(own, Call("x", {})), asyncio.Future)
    later.answer_all()
    await asyncio.sleep(0)
    assert isinstance(bounded.handle(bad, task(3)), asyncio.Future)
    assert bounded.quotas.refused == {bad.node_id: 2}


@pytest.mark.loops("virtual")
async def test_a_handler_that_answers_at_once_or_fails_leaves_nothing_open() -> None:
    peer = hello(1)

    def answer(_peer: Hello, message: Request) -> Reply:
        if isinstance(message, Call) and message.name == "fails":
            raise ValueError("nonsense")
        return Result({})

    bounded = Bounded(OWN, answer, asyncio.get_running_loop().time)
    for _ in range(quotas.OPEN_MAX + 5):
        assert bounded.handle(peer, Call("x", {})) == Result({})
        with pytest.raises(ValueError, match="nonsense"):
            bounded.handle(peer, Call("fails", {}))
