"""Batches: what waits goes together, and nothing is lost or sent twice."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.sim.loop import run
from dhtcrawl.swarm.records.mailbox import BATCH_MAX, UNDER_WAY_MAX, Mailbox

A, B = b"a", b"b"


class Post:
    """Where a mailbox sends to."""

    def __init__(self, takes_s: float = 1.0) -> None:
        self.batches: list[tuple[bytes, list[int]]] = []
        self.takes_s = takes_s
        self.under_way = self.most = 0

    async def send(self, peer: bytes, batch: list[int]) -> None:
        self.batches.append((peer, batch))
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(self.takes_s)
        self.under_way -= 1


async def test_the_first_to_come_waits_a_moment_for_others() -> None:
    post = Post()

    async with asyncio.TaskGroup() as group:
        box: Mailbox[int] = Mailbox(group, post.send, linger_s=0.1)
        box.put(A, [1])
        await asyncio.sleep(0.05)
        box.put(A, [2])
    assert post.batches == [(A, [1, 2])]


async def test_while_a_batch_is_under_way_the_next_one_grows() -> None:
    post = Post(takes_s=1.0)

    async with asyncio.TaskGroup() as group:
        box: Mailbox[int] = Mailbox(group, post.send, linger_s=0.1)
        box.put(A, [1])
        for number in range(2, 6):
            await asyncio.sleep(0.2)
            box.put(A, [number])
    assert post.batches == [(A, [1]), (A, [2, 3, 4, 5])]


async def test_a_full_batch_does_not_wait_for_the_one_before() -> None:
    post = Post(takes_s=10.0)

    async with asyncio.TaskGroup() as group:
        box: Mailbox[int] = Mailbox(group, post.send, linger_s=0.1)
        box.put(A, [0])
        await asyncio.sleep(0.2)
        box.put(A, range(BATCH_MAX))
        await asyncio.sleep(0.2)
        assert len(post.batches) == 2


async def test_no_more_than_so_many_batches_are_under_way_to_one_peer() -> None:
    post = Post(takes_s=10.0)

    async with asyncio.TaskGroup() as group:
        box: Mailbox[int] = Mailbox(group, post.send, linger_s=0.1)
        for _ in range(3 * UNDER_WAY_MAX):
            box.put(A, range(BATCH_MAX))
    assert post.most == UNDER_WAY_MAX
    assert len(post.batches) == 3 * UNDER_WAY_MAX


async def test_a_peer_that_is_slow_does_not_hold_up_another() -> None:
    post = Post(takes_s=10.0)

    async with asyncio.TaskGroup() as group:
        box: Mailbox[int] = Mailbox(group, post.send, linger_s=0.1)
        box.put(A, [1])
        await asyncio.sleep(1.0)
        box.put(B, [2])
        await asyncio.sleep(0.2)
        assert post.batches == [(A, [1]), (B, [2])]


async def test_it_is_busy_until_the_last_batch_is_over() -> None:
    post = Post(takes_s=1.0)

    async with asyncio.TaskGroup() as group:
        box: Mailbox[int] = Mailbox(group, post.send, linger_s=0.1)
        seen = [box.busy]
        box.put(A, [])
        seen.append(box.busy)
        box.put(A, [1])
        for _ in range(3):
            seen.append(box.busy)
            await asyncio.sleep(0.5)
        await asyncio.sleep(0.5)
        result = [*seen, box.busy]
    assert result == [False, False, True, True, True, False]


@given(st.lists(st.tuples(st.sampled_from([A, B]), st.integers(0, 2 * BATCH_MAX), st.floats(0, 0.5)), max_size=12))
def test_everything_arrives_once(puts: list[tuple[bytes, int, float]]) -> None:
    post = Post(takes_s=0.2)
    given_: dict[bytes, list[int]] = {A: [], B: []}

    async def story() -> None:
        async with asyncio.TaskGroup() as group:
            box: Mailbox[int] = Mailbox(group, post.send, linger_s=0.05)
            last = 0
            for peer, count, pause_s in puts:
                items = list(range(last, last + count))
                last += count
                given_[peer] += items
                box.put(peer, items)
                await asyncio.sleep(pause_s)

    run(story())
    for peer, items in given_.items():
        assert [item for to, batch in post.batches if to == peer for item in batch] == items
    assert all(0 < len(batch) <= BATCH_MAX for _, batch in post.batches)
