"""Which nodes are to have a record, and when it is safe, decided without a network."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st
from storage.stores import CRAWL

from dhtcrawl.keyspace import placement
from dhtcrawl.rpc.membership.view import View
from dhtcrawl.swarm.records.replica_tracker import ReplicaKind, ReplicaTargets, ReplicaTicket, ReplicaTracker, ToSend

from .fake_peers import node, view_of
from .sync_swarm import copy

OWN, REPLICAS, ACKS = node(0), 3, 2
WHOLE = ReplicaKind(CRAWL, whole=True)
FOUR = view_of([0, 1, 2, 3])


class Tracked:
    """A tracker, what it has sent and whom it has told."""

    def __init__(self, view: View = FOUR) -> None:
        self.view = view
        self.tracker = ReplicaTracker(view, OWN, replicas=REPLICAS, acks=ACKS, heir_of=lambda crawl, node: node)
        self.under_way: list[tuple[bytes, ReplicaKind, ReplicaTicket]] = []
        self.safe: list[int] = []

    def keep(self, *numbers: int, over: bool = False) -> None:
        copies, name = [copy(number) for number in numbers], numbers[0]
        self.tracker.keep(self.view, CRAWL, copies, lambda: self.safe.append(name), over=over)
        self.act()

    def act(self) -> None:
        for effect in self.tracker.take_effects():
            if isinstance(effect, ToSend):
                self.under_way += [(effect.node, effect.kind, ticket) for ticket in effect.tickets]
            else:
                effect.then()

    def sent_to(self) -> list[bytes]:
        return sorted(node for node, _, _ in self.under_way)

    def acked(self, *numbers: int) -> None:
        for number in numbers:
            [mine] = [each for each in self.under_way if each[0] == node(number)]
            self.under_way.remove(mine)
            self.tracker.acked(self.view, node(number), [mine[2]])
        self.act()

    def become(self, view: View) -> None:
        self.view = view
        self.tracker.view_changed(view)
        self.act()

    def gone(self, number: int) -> None:
        mine = [each for each in self.under_way if each[0] == node(number)]
        self.under_way = [each for each in self.under_way if each not in mine]
        self.tracker.gone(self.view, node(number), [ticket for _, _, ticket in mine])
        self.act()


def test_a_record_is_safe_at_the_second_ack_of_three() -> None:
    tracked = Tracked()
    tracked.keep(1)
    assert tracked.sent_to() == [node(1), node(2), node(3)]
    tracked.acked(1)
    assert tracked.safe == []
    tracked.acked(3)
    assert tracked.safe == [1]
    assert tracked.tracker.busy_with(CRAWL), "the third replica is under way"
    tracked.acked(2)
    assert not tracked.tracker.busy_with(CRAWL)


def test_a_record_of_the_only_member_is_safe_at_once() -> None:
    tracked = Tracked()
    tracked.become(view_of([0]))
    tracked.keep(1)
    assert tracked.safe == [1]
    assert not tracked.tracker.busy_with(CRAWL)
    tracked.become(view_of([0, 1]))
    assert tracked.sent_to() == [], "a sync tells it of all records"


def test_a_record_that_finds_no_room_in_a_queue_is_not_safe_before_it_does() -> None:
    tracked = Tracked()
    tracked.keep(1)
    [(to, kind, ticket)] = [each for each in tracked.under_way if each[0] == node(3)]
    tracked.tracker.refused(to, kind, [ticket])
    tracked.acked(1, 2)
    assert tracked.safe == []
    assert tracked.tracker.room(to) == {WHOLE: [ticket]}
    tracked.tracker.placed(tracked.view, [ticket])
    tracked.act()
    assert tracked.safe == [1]
    assert tracked.tracker.room(to) == {}
    tracked.acked(3)
    assert not tracked.tracker.busy_with(CRAWL)


def test_what_is_refused_once_more_waits_once_more() -> None:
    tracked = Tracked()
    tracked.keep(1)
    [(to, kind, ticket)] = [each for each in tracked.under_way if each[0] == node(3)]
    tracked.tracker.refused(to, kind, [ticket])
    tracked.acked(1, 2)
    tracked.tracker.room(to)
    tracked.tracker.refused(to, kind, [ticket])
    tracked.tracker.placed(tracked.view, [ticket])
    tracked.act()
    assert tracked.safe == []


def test_tombstones_and_records_are_of_different_kinds() -> None:
    tracked = Tracked(view_of([0, 1]))
    tracked.keep(1, over=True)
    tracked.keep(2)
    assert [kind for _, kind, _ in tracked.under_way] == [ReplicaKind(CRAWL, whole=False), WHOLE]


def test_a_target_that_is_gone_and_back_gets_the_record_again() -> None:
    tracked = Tracked(view_of([0, 1, 2]))
    tracked.keep(1)
    tracked.become(view_of([0, 2]))
    tracked.gone(1)
    assert tracked.sent_to() == [node(2)]
    tracked.become(view_of([0, 1, 2]))
    assert tracked.sent_to() == [node(1), node(2)]


def test_each_node_that_joins_is_a_target_if_it_would_be_a_backup_by_itself() -> None:
    view = view_of([0, 1, 2, 3, 4, 5], joining=[6, 7, 8, 9])
    targets = ReplicaTargets(view, OWN, REPLICAS)
    assert targets.joins
    for number in range(50):
        key = copy(number).key
        backups, joining = targets.of(key)
        assert backups == [m.id for m in view.closest(placement(key), REPLICAS + 1) if m.id != OWN]
        for newcomer in (6, 7, 8, 9):
            closest = view_of([0, 1, 2, 3, 4, 5, newcomer]).closest(placement(key), REPLICAS + 1)
            assert (node(newcomer) in joining) == (node(newcomer) in [member.id for member in closest])


@given(st.integers(0, 2**32))
def test_everything_becomes_safe_in_the_end_and_not_before_enough_have_it(seed: int) -> None:
    rng = random.Random(seed)
    tracked = Tracked(view_of(range(5)))
    on_disk: dict[bytes, set[bytes]] = {copy(number).key: set() for number in range(8)}
    waiting: dict[bytes, list[tuple[bytes, ReplicaKind, ReplicaTicket]]] = {}
    told: list[int] = []

    def act() -> None:
        tracked.act()
        for number in tracked.safe:
            backups = [m.id for m in tracked.view.closest(placement(copy(number).key), REPLICAS + 1) if m.id != OWN]
            assert len(on_disk[copy(number).key].intersection(backups)) >= min(ACKS, len(backups))
        told.extend(tracked.safe)
        tracked.safe.clear()

    def deliver(calm: bool) -> None:
        each = to, kind, ticket = tracked.under_way.pop(rng.randrange(len(tracked.under_way)))
        if to not in tracked.view:
            tracked.tracker.gone(tracked.view, to, [ticket])
        elif calm or rng.random() < 0.6:
            on_disk[ticket.copy.key].add(to)
            tracked.tracker.acked(tracked.view, to, [ticket])
        elif rng.random() < 0.5:
            tracked.under_way.append(each)
        else:
            tracked.tracker.refused(to, kind, [ticket])
            waiting.setdefault(to, []).append(each)

    def make_room() -> None:
        to = rng.choice(list(waiting))
        placed = waiting.pop(to)
        tracked.tracker.room(to)
        tracked.under_way += placed
        tracked.tracker.placed(tracked.view, [ticket for _, _, ticket in placed])

    for number in range(8):
        tracked.keep(number, over=rng.random() < 0.5)
        act()
        for _ in range(rng.randint(0, 6)):
            if tracked.under_way:
                deliver(calm=False)
            act()
            if waiting and rng.random() < 0.3:
                make_room()
                act()
        if rng.random() < 0.3:
            active = [0, *rng.sample(range(1, 8), rng.randint(0, 5))]
            tracked.become(view_of(active, joining=[n for n in (8, 9) if rng.random() < 0.3]))
            act()
    while tracked.under_way or waiting:
        if waiting:
            make_room()
        else:
            deliver(calm=True)
        act()
    assert sorted(told) == list(range(8))
    assert not tracked.tracker.busy
    assert not tracked.tracker.busy_with(CRAWL)
