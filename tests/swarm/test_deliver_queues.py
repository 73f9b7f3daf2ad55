"""What the delivery core decides: order, bounds and credit hold, and nothing is lost, whatever nodes answer."""

from __future__ import annotations

import random
from collections import Counter
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.swarm.deliver.queues import (
    Batch,
    DeliveryLimits,
    DeliveryQueues,
    GivenBack,
    Rest,
    Room,
    Slot,
    SlotOpened,
    SlotState,
    WaitFor,
    in_messages,
)

A, B, C = b"a", b"b", b"c"
LIMITS = DeliveryLimits(
    batch_bytes_max=100, held_bytes_max=1_000, batch_items_max=10, under_way_max=2, linger_s=0.1, pause_s=0.5
)


class Item(NamedTuple):
    number: int
    size: int = 10


def size_of(item: Item) -> int:
    return item.size


def items(first: int, count: int, size: int = 10) -> list[Item]:
    return [Item(number, size) for number in range(first, first + count)]


class Queues:
    """A core, the slots that it opened, and what it gave back."""

    def __init__(self, limits: DeliveryLimits = LIMITS, there: bool = True) -> None:
        self.there = there
        self.core: DeliveryQueues[Item] = DeliveryQueues(limits, size_of, lambda node: self.there)
        self.slots: list[Slot[Item]] = []
        self.back: list[Item] = []
        self.room: list[bytes] = []

    def offer(self, node: bytes, offered: list[Item], kind: str | None = None) -> int:
        taken = self.core.offer(node, offered, kind)
        self._act()
        return taken

    def step(self, slot: Slot[Item]) -> WaitFor | Batch[Item] | None:
        step = self.core.step(slot)
        self._act()
        if step is None:
            self.slots.remove(slot)
        return step

    def over(self, slot: Slot[Item], refused: list[Item] | None = None, unsent: list[Item] | None = None) -> None:
        self.core.over(slot, Rest(refused or [], unsent or []))
        self._act()

    def is_slow(self, slot: Slot[Item]) -> None:
        self.core.is_slow(slot)
        self._act()

    def abandon(self, slot: Slot[Item]) -> None:
        self.core.abandon(slot)
        self.slots.remove(slot)
        assert self.core.take_effects() == []

    def batch(self, slot: Slot[Item]) -> Batch[Item]:
        """The slot's next batch, whatever it waits for before."""
        while isinstance(step := self.step(slot), WaitFor):
            pass
        assert step is not None
        return step

    def _act(self) -> None:
        for effect in self.core.take_effects():
            if isinstance(effect, SlotOpened):
                self.slots.append(effect.slot)
            elif isinstance(effect, GivenBack):
                self.back += effect.items
            else:
                assert isinstance(effect, Room)
                self.room.append(effect.node)


def test_the_first_item_waits_for_others_and_a_full_batch_does_not() -> None:
    queues = Queues()
    assert queues.offer(A, items(0, 1)) == 1
    [slot] = queues.slots
    assert queues.step(slot) == WaitFor(0.1)
    queues.offer(A, items(1, 9))
    full = queues.slots[1]
    assert queues.step(full) == Batch(A, None, items(0, 10))
    assert queues.step(slot) is None
    queues.over(full)
    assert queues.step(full) is None
    assert not queues.core.busy


def test_bytes_make_a_batch_full_as_well_as_items() -> None:
    queues = Queues()
    queues.offer(A, items(0, 3, size=45))
    [slot] = queues.slots
    assert queues.step(slot) == Batch(A, None, items(0, 2, size=45))


def test_an_item_bigger_than_a_batch_goes_alone() -> None:
    queues = Queues()
    queues.offer(A, [Item(0, 500), Item(1)])
    [slot] = queues.slots
    assert queues.batch(slot).items == [Item(0, 500)]


def test_kinds_take_turns_and_do_not_mix() -> None:
    queues = Queues()
    queues.offer(A, items(0, 2), "x")
    queues.offer(A, items(2, 2), "y")
    queues.offer(A, items(4, 1), "x")
    [slot] = queues.slots
    assert queues.batch(slot) == Batch(A, "x", [Item(0), Item(1), Item(4)])
    queues.over(slot)
    assert queues.batch(slot) == Batch(A, "y", [Item(2), Item(3)])


def test_what_is_left_of_a_kind_comes_after_the_other_kinds() -> None:
    queues = Queues()
    queues.offer(A, items(0, 15), "x")
    queues.offer(A, items(15, 1), "y")
    [slot] = queues.slots[:1]
    seen = []
    for _ in range(3):
        batch = queues.batch(slot)
        seen.append((batch.kind, len(batch.items)))
        queues.over(slot)
    assert seen == [("x", 10), ("y", 1), ("x", 5)]


def test_what_was_not_taken_is_tried_again_after_a_pause_behind_what_waits() -> None:
    queues = Queues()
    queues.offer(A, items(0, 3))
    [slot] = queues.slots
    batch = queues.batch(slot)
    queues.offer(A, items(3, 2))
    queues.over(slot, refused=batch.items[1:])
    assert queues.step(slot) == WaitFor(0.5)
    assert queues.batch(slot).items == [Item(3), Item(4), Item(1), Item(2)]
    assert queues.back == []


def test_what_a_node_that_is_gone_did_not_take_is_given_back() -> None:
    queues = Queues(there=False)
    queues.offer(A, items(0, 3))
    [slot] = queues.slots
    queues.over(slot, refused=queues.batch(slot).items[:2])
    assert queues.step(slot) == WaitFor(0.5)
    assert queues.core.busy
    assert queues.step(slot) is None
    assert queues.back == items(0, 2)
    assert not queues.core.busy


def test_what_did_not_fit_goes_first_in_the_next_batch() -> None:
    queues = Queues()
    queues.offer(A, items(0, 4))
    [slot] = queues.slots
    batch = queues.batch(slot)
    queues.offer(A, items(4, 1))
    queues.over(slot, unsent=batch.items[2:])
    assert queues.batch(slot).items == [Item(2), Item(3), Item(4)]


def test_no_more_is_held_for_a_node_than_its_bound_and_the_user_hears_when_there_is_room() -> None:
    queues = Queues(DeliveryLimits(batch_bytes_max=60, held_bytes_max=100))
    assert queues.offer(A, items(0, 12)) == 10
    assert queues.offer(A, items(12, 1)) == 0
    assert queues.offer(B, items(13, 1)) == 1, "another node has a bound of its own"
    [slot, _] = queues.slots
    queues.batch(slot)
    assert queues.offer(A, items(12, 1)) == 0, "what is under way is held, too"
    assert queues.room == []
    queues.over(slot)
    assert queues.room == [A]
    assert queues.offer(A, items(12, 1)) == 1


def test_what_is_bigger_than_the_bound_is_taken_when_nothing_else_is_held() -> None:
    queues = Queues()
    assert queues.offer(A, [Item(0, 5_000), Item(1)]) == 1


def test_nodes_take_turns_where_their_number_is_bounded() -> None:
    queues = Queues(DeliveryLimits(batch_bytes_max=100, held_bytes_max=1_000, batch_items_max=1, all_under_way_max=1))
    for node in (A, B, C):
        queues.offer(node, items(0, 2))
    seen = []
    while queues.slots:
        [slot] = queues.slots
        step = queues.step(slot)
        if isinstance(step, Batch):
            seen.append(step.node)
            queues.over(slot)
    assert seen == [A, B, C, A, B, C]
    assert not queues.core.busy


def test_a_batch_that_is_slow_gives_its_place_to_the_next_node_and_waits_for_one_itself() -> None:
    limits = DeliveryLimits(
        batch_bytes_max=100, held_bytes_max=1_000, batch_items_max=1, all_under_way_max=1, place_s=1.0,
        slow_under_way_max=1,
    )  # fmt: skip
    queues = Queues(limits)
    for node in (A, B, C):
        queues.offer(node, items(0, 2))
    [slow] = queues.slots
    queues.batch(slow)
    queues.is_slow(slow)
    queues.is_slow(slow)
    _, other = queues.slots
    assert queues.batch(other).node == B
    queues.is_slow(other)
    assert len(queues.slots) == 2, "so many are slow, and no more"
    queues.over(slow)
    assert queues.step(slow) is None, "what is left for the slow node waits behind the others"
    queues.over(other)
    assert queues.step(other) is None
    seen = []
    while queues.slots:
        [slot] = queues.slots
        step = queues.step(slot)
        if isinstance(step, Batch):
            seen.append(step.node)
            queues.over(slot)
    assert seen == [C, A, B, C]
    assert not queues.core.busy


def test_an_abandoned_batch_goes_out_with_the_next_offer() -> None:
    queues = Queues()
    queues.offer(A, items(0, 2))
    [slot] = queues.slots
    queues.batch(slot)
    queues.abandon(slot)
    assert queues.core.busy
    queues.offer(A, items(2, 1))
    [slot] = queues.slots
    assert queues.batch(slot).items == items(0, 3)


@pytest.mark.parametrize(("count", "expected"), [(0, []), (3, [3]), (10, [10]), (21, [10, 10, 1])])
def test_messages_hold_as_many_items_as_fit(count: int, expected: list[int]) -> None:
    found = list(in_messages(items(0, count), size_of, 100, 300))
    assert [len(each) for each in found] == expected
    assert [item for each in found for item in each] == items(0, count)


LIMITS_OF_ANY_KIND = st.builds(
    DeliveryLimits,
    batch_bytes_max=st.integers(1, 60),
    held_bytes_max=st.integers(1, 300),
    batch_items_max=st.integers(1, 8),
    under_way_max=st.integers(1, 3),
    all_under_way_max=st.none() | st.integers(1, 4),
    slow_under_way_max=st.integers(0, 2),
    linger_s=st.sampled_from([0.0, 0.1]),
    pause_s=st.just(0.2),
)
OFFERS = st.lists(
    st.tuples(st.sampled_from([A, B, C]), st.sampled_from("xy"), st.lists(st.integers(1, 40), max_size=12)), max_size=25
)


@given(LIMITS_OF_ANY_KIND, OFFERS, st.integers(0, 2**32), st.booleans())
def test_whatever_happens_nothing_is_lost_and_bounds_credit_and_order_hold(
    limits: DeliveryLimits, offers: list[tuple[bytes, str, list[int]]], seed: int, cancels: bool
) -> None:
    rng = random.Random(seed)
    queues = Queues(limits)
    accepted: dict[tuple[bytes, str], list[Item]] = {}
    set_out: dict[tuple[bytes, str], dict[Item, None]] = {}  # in this order, for the first time
    delivered: list[Item] = []
    sending: dict[Slot[Item], Batch[Item]] = {}
    number = 0

    def sent(slot: Slot[Item], batch: Batch[Item]) -> None:
        assert batch.items
        assert len(batch.items) <= limits.batch_items_max
        assert len(batch.items) == 1 or sum(map(size_of, batch.items)) <= limits.batch_bytes_max
        set_out.setdefault((batch.node, str(batch.kind)), {}).update(dict.fromkeys(batch.items))
        sending[slot] = batch

    def end(slot: Slot[Item], calm: bool) -> None:
        batch = sending.pop(slot)
        cut = len(batch.items) if calm else rng.randint(1, len(batch.items))
        refused = [item for item in batch.items[:cut] if not calm and rng.random() < 0.4]
        delivered.extend(item for item in batch.items[:cut] if item not in refused)
        queues.over(slot, refused, batch.items[cut:])

    def check() -> None:
        under_way = Counter(slot.node for slot in queues.slots)
        assert all(count <= limits.under_way_max for count in under_way.values())
        if limits.all_under_way_max is not None:
            placed = [slot for slot in queues.slots if slot.has_place]
            assert len(placed) <= limits.all_under_way_max
            assert len(queues.slots) - len(placed) <= limits.slow_under_way_max
        for node in (A, B, C):
            assert queues.core.held_bytes(node) <= max(limits.held_bytes_max, 40)

    def turn(calm: bool) -> None:
        slot = rng.choice(queues.slots)
        if slot in sending:
            if limits.all_under_way_max is not None and not calm and rng.random() < 0.3:
                queues.is_slow(slot)
            elif cancels and not calm and rng.random() < 0.1:
                del sending[slot]
                queues.abandon(slot)
            else:
                end(slot, calm)
            return
        step = queues.step(slot)
        if isinstance(step, Batch):
            sent(slot, step)

    for node, kind, sizes in offers:
        offered = [Item(number + index, size) for index, size in enumerate(sizes)]
        number += len(sizes)
        taken = queues.offer(node, offered, kind)
        accepted.setdefault((node, kind), []).extend(offered[:taken])
        assert taken or not offered or queues.core.held_bytes(node) + offered[0].size > limits.held_bytes_max
        check()
        for _ in range(rng.randint(0, 6)):
            if queues.slots:
                queues.there = rng.random() < 0.8
                turn(calm=False)
                check()
    for node in (A, B, C):  # after a cancelled slot its items wait for an offer
        number += 1
        accepted.setdefault((node, "x"), []).extend([Item(-number, 1)][: queues.offer(node, [Item(-number, 1)], "x")])
    while queues.slots:
        turn(calm=True)
        check()
    everything = sorted(item for each in accepted.values() for item in each)
    assert sorted([*delivered, *queues.back]) == everything, "each once, and nothing else"
    assert not queues.core.busy
    for key, expected in accepted.items():
        assert list(set_out.get(key, {})) == expected, "in the order of the offers"


def test_a_slot_ends_closed() -> None:
    queues = Queues()
    queues.offer(A, items(0, 1))
    [slot] = queues.slots
    queues.batch(slot)
    queues.over(slot)
    assert queues.step(slot) is None
    assert slot.state is SlotState.CLOSED
    queues.core.abandon(slot)
    assert queues.core.take_effects() == []
