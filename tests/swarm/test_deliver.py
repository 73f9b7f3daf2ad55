"""A deliverer sends what waits together, in tasks of its group; nothing is lost or sent twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.sim.loop import run
from dhtcrawl.swarm.deliver.deliverer import Deliverer
from dhtcrawl.swarm.deliver.queues import BATCH_ITEMS_MAX, UNDER_WAY_MAX, Batch, DeliveryLimits, Rest

A, B = b"a", b"b"


class Post:
    """Where a deliverer sends to."""

    def __init__(self, takes_s: float = 1.0) -> None:
        self.batches: list[tuple[bytes, list[int]]] = []
        self.takes_s = takes_s
        self.under_way = self.most = 0

    async def send(self, batch: Batch[int]) -> Rest[int]:
        self.batches.append((batch.node, batch.items))
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(self.takes_s)
        self.under_way -= 1
        return Rest()

    def deliverer(self, group: asyncio.TaskGroup, linger_s: float = 0.1, **kwargs: Any) -> Deliverer[int]:
        limits = DeliveryLimits(batch_bytes_max=1 << 20, held_bytes_max=1 << 20, linger_s=linger_s, pause_s=0.2)
        return Deliverer(group, self.send, limits, size_of=lambda item: 1, **kwargs)


async def test_the_first_to_come_waits_a_moment_for_others() -> None:
    post = Post()

    async with asyncio.TaskGroup() as group:
        box = post.deliverer(group)
        box.put(A, [1])
        await asyncio.sleep(0.05)
        box.put(A, [2])
    assert post.batches == [(A, [1, 2])]


async def test_while_a_batch_is_under_way_the_next_one_grows() -> None:
    post = Post(takes_s=1.0)

    async with asyncio.TaskGroup() as group:
        box = post.deliverer(group)
        box.put(A, [1])
        for number in range(2, 6):
            await asyncio.sleep(0.2)
            box.put(A, [number])
    assert post.batches == [(A, [1]), (A, [2, 3, 4, 5])]


async def test_a_full_batch_does_not_wait_for_the_one_before() -> None:
    post = Post(takes_s=10.0)

    async with asyncio.TaskGroup() as group:
        box = post.deliverer(group)
        box.put(A, [0])
        await asyncio.sleep(0.2)
        box.put(A, range(BATCH_ITEMS_MAX))
        await asyncio.sleep(0.2)
        assert len(post.batches) == 2


async def test_no_more_than_so_many_batches_are_under_way_to_one_peer() -> None:
    post = Post(takes_s=10.0)

    async with asyncio.TaskGroup() as group:
        box = post.deliverer(group)
        for _ in range(3 * UNDER_WAY_MAX):
            box.put(A, range(BATCH_ITEMS_MAX))
    assert post.most == UNDER_WAY_MAX
    assert len(post.batches) == 3 * UNDER_WAY_MAX


async def test_a_peer_that_is_slow_does_not_hold_up_another() -> None:
    post = Post(takes_s=10.0)

    async with asyncio.TaskGroup() as group:
        box = post.deliverer(group)
        box.put(A, [1])
        await asyncio.sleep(1.0)
        box.put(B, [2])
        await asyncio.sleep(0.2)
        assert post.batches == [(A, [1]), (B, [2])]


async def test_it_is_busy_until_the_last_batch_is_over() -> None:
    post = Post(takes_s=1.0)

    async with asyncio.TaskGroup() as group:
        box = post.deliverer(group)
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


@given(
    st.lists(st.tuples(st.sampled_from([A, B]), st.integers(0, 2 * BATCH_ITEMS_MAX), st.floats(0, 0.5)), max_size=12)
)
def test_everything_arrives_once(puts: list[tuple[bytes, int, float]]) -> None:
    post = Post(takes_s=0.2)
    given_: dict[bytes, list[int]] = {A: [], B: []}

    async def story() -> None:
        async with asyncio.TaskGroup() as group:
            box = post.deliverer(group, 0.05)
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
    assert all(0 < len(batch) <= BATCH_ITEMS_MAX for _, batch in post.batches)


async def test_what_is_not_taken_is_tried_again_while_the_node_is_there_and_then_given_back() -> None:
    members = {A}
    back: list[tuple[bytes, list[int]]] = []
    tried: list[list[int]] = []

    async def send(batch: Batch[int]) -> Rest[int]:
        tried.append(batch.items)
        return Rest(refused=batch.items[1:] or batch.items)

    async with asyncio.TaskGroup() as group:
        box: Deliverer[int] = Deliverer(
            group,
            send,
            DeliveryLimits(batch_bytes_max=99, held_bytes_max=99, pause_s=0.2),
            size_of=lambda item: 1,
            is_there=members.__contains__,
            give_back=lambda node, items: back.append((node, items)),
        )
        box.put(A, [1, 2])
        await asyncio.sleep(0.5)
        assert tried == [[1, 2], [2], [2]]
        members.clear()
        await box.flushed()
        assert not box.busy
    assert back == [(A, [2])]


async def test_items_put_in_the_same_turn_go_together_even_without_a_linger() -> None:
    post = Post()
    async with asyncio.TaskGroup() as group:
        box = post.deliverer(group, 0.0)
        box.put(A, [1])
        box.put(A, [2])
    assert post.batches == [(A, [1, 2])]


async def test_it_refuses_what_is_too_much_and_says_when_there_is_room() -> None:
    post, room = Post(), list[bytes]()
    limits = DeliveryLimits(batch_bytes_max=9, held_bytes_max=3)
    async with asyncio.TaskGroup() as group:
        box = Deliverer(group, post.send, limits, size_of=lambda item: 1, room=room.append)
        assert box.put(A, [1, 2, 3, 4]) == 3
        await asyncio.sleep(0.5)
        assert (box.put(A, [4]), room) == (0, [])
        await asyncio.sleep(1.0)
        assert room == [A]
        assert box.put(A, [4]) == 1


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.5, 1.05])
async def test_cancelling_its_group_ends_it_whatever_it_does(after_s: float) -> None:
    post, boxes = Post(), list[Deliverer[int]]()

    async def live() -> None:
        async with asyncio.TaskGroup() as group:
            boxes.append(post.deliverer(group))
            for node in (A, B):
                boxes[0].put(node, range(2 * BATCH_ITEMS_MAX + 1))

    task = asyncio.create_task(live())
    await asyncio.sleep(after_s)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    sent = len(post.batches)
    await asyncio.sleep(5.0)
    assert len(post.batches) == sent
    assert after_s == 0.0 or boxes[0].busy, "it never says that all was delivered"
