"""Which nodes are to have a record, and when it is safe, decided without a network."""

from __future__ import annotations

import random

from hypothesis import example, given
from hypothesis import strategies as st
from storage.stores import CRAWL

from dhtcrawl.keyspace import placement
from dhtcrawl.rpc.membership.view import View
from dhtcrawl.storage.store.records import Place, State
from dhtcrawl.storage.store.replicas import TaskReplica
from dhtcrawl.swarm.records.replica_tracker import (
    SLOW_S,
    AwaitRoom,
    CompareWith,
    ReplicaKind,
    ReplicaTargets,
    ReplicaTicket,
    ReplicaTracker,
    ToSend,
)

from .fake_peers import node, view_of
from .sync_swarm import copy

OWN, REPLICAS, ACKS = node(0), 3, 2
WHOLE = ReplicaKind(CRAWL, whole=True)
FOUR = view_of([0, 1, 2, 3])
SIX = view_of(range(6))
# Records to which the nodes 0, 1, 2 … are the closest, in this order.
NEAR = [number for number in range(200) if placement(copy(number).key)[0] < 16]


class Tracked:
    """A tracker, what it has sent and whom it has told."""

    def __init__(self, view: View = FOUR) -> None:
        self.view = view
        self.tracker = ReplicaTracker(view, OWN, replicas=REPLICAS, acks=ACKS, heir_of=lambda crawl, node: node)
        self.under_way: list[tuple[bytes, ReplicaKind, ReplicaTicket]] = []
        self.awaited: list[bytes] = []
        self.safe: list[int] = []

    def keep(self, *numbers: int, over: bool = False) -> None:
        self.keep_these([copy(number) for number in numbers], numbers[0], over=over)

    def keep_these(self, copies: list[TaskReplica], name: int, over: bool = False) -> None:
        self.tracker.keep(self.view, CRAWL, copies, lambda: self.safe.append(name), over=over)
        self.act()

    def refuse(self, number: int, now: float) -> None:
        """The queue for a node is full: it takes nothing of what is under way."""
        for each in [each for each in self.under_way if each[0] == node(number)]:
            self.under_way.remove(each)
            self.tracker.refused(self.view, node(number), each[1], [each[2]], now)
        self.act()

    def no_room(self, number: int, now: float) -> None:
        self.tracker.no_room(self.view, node(number), now)
        self.act()

    def act(self) -> None:
        for effect in self.tracker.take_effects():
            if isinstance(effect, ToSend):
                self.under_way += [(effect.node, effect.kind, ticket) for ticket in effect.tickets]
            elif isinstance(effect, AwaitRoom):
                self.awaited.append(effect.node)
            elif isinstance(effect, CompareWith):
                self.tracker.compared(effect.node, self.tracker.lacking(effect.node))
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
    tracked.tracker.refused(tracked.view, to, kind, [ticket], 0.0)
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
    tracked.tracker.refused(tracked.view, to, kind, [ticket], 0.0)
    tracked.acked(1, 2)
    tracked.tracker.room(to)
    tracked.tracker.refused(tracked.view, to, kind, [ticket], 0.0)
    tracked.tracker.placed(tracked.view, [ticket])
    tracked.act()
    assert tracked.safe == []


def test_a_backup_without_room_is_passed_over_after_a_while_and_at_once_while_it_counts_as_slow() -> None:
    tracked = Tracked(SIX)
    tracked.keep(NEAR[0])
    tracked.refuse(3, 0.0)
    assert tracked.awaited == [node(3)]
    tracked.acked(1, 2)
    assert tracked.safe == []
    tracked.no_room(3, 2.0)
    assert tracked.safe == NEAR[:1], "the fourth is on its way"
    assert tracked.sent_to() == [node(4)]
    tracked.acked(4)
    assert tracked.tracker.busy_with(CRAWL), "the third lacks it"
    lacked = tracked.tracker.lacking(node(3))
    tracked.keep(NEAR[1])
    tracked.refuse(3, 2.0 + SLOW_S - 1.0)
    assert tracked.awaited == [node(3)]
    assert tracked.sent_to() == [node(1), node(2), node(4)]
    tracked.acked(1, 4)
    assert tracked.safe == NEAR[:1], "both backups that are left have to have it"
    tracked.acked(2)
    assert tracked.safe == NEAR[:2]
    tracked.tracker.compared(node(3), lacked)
    assert tracked.tracker.busy_with(CRAWL), "it was passed over once more meanwhile"
    assert tracked.tracker.room(node(3)) == {}
    assert tracked.tracker.take_effects() == [CompareWith(node(3))]
    tracked.tracker.compared(node(3), tracked.tracker.lacking(node(3)))
    assert not tracked.tracker.busy_with(CRAWL)
    assert tracked.tracker.room(node(3)) == {}
    assert tracked.tracker.take_effects() == []
    tracked.keep(NEAR[2])
    tracked.refuse(3, 2.0 + SLOW_S)
    assert tracked.awaited == [node(3), node(3)], "it is given time again"


def test_where_two_backups_have_no_room_the_last_one_and_a_stand_in_have_to_have_the_record() -> None:
    tracked = Tracked(SIX)
    tracked.keep(NEAR[0])
    for number in (1, 2):
        tracked.refuse(number, 0.0)
        tracked.no_room(number, 2.0)
    assert tracked.sent_to() == [node(3), node(4), node(5)]
    tracked.acked(4, 5)
    assert tracked.safe == []
    tracked.acked(3)
    assert tracked.safe == NEAR[:1]


def test_a_stand_in_without_room_is_passed_over_too_and_where_no_node_is_left_the_record_waits() -> None:
    tracked = Tracked(SIX)
    tracked.keep(NEAR[0])
    tracked.acked(1, 2)
    for number, instead in ((3, 4), (4, 5)):
        tracked.refuse(number, 0.0)
        tracked.no_room(number, 2.0)
        assert tracked.sent_to() == [node(instead)]
    tracked.refuse(5, 0.0)
    tracked.no_room(5, 2.0)
    assert tracked.sent_to() == []
    assert tracked.tracker.busy_with(CRAWL)
    for kind, tickets in tracked.tracker.room(node(5)).items():
        tracked.under_way += [(node(5), kind, ticket) for ticket in tickets]
    tracked.acked(5)
    assert tracked.tracker.busy_with(CRAWL), "the backup lacks it, not the stand-in"
    tracked.tracker.room(node(3))
    tracked.act()
    assert not tracked.tracker.busy_with(CRAWL)


def test_a_node_that_joins_or_has_the_page_is_not_passed_over() -> None:
    tracked = Tracked(view_of([0, 1, 2, 4, 5], joining=[3]))
    tracked.keep(NEAR[0])
    place = Place(node(2).hex(), "a.warc.gz", 0, 9)
    tracked.keep_these([copy(NEAR[1], state=State.DONE, place=place)], NEAR[1])
    for number in (2, 3):
        tracked.refuse(number, 0.0)
        tracked.no_room(number, 2.0)
    tracked.under_way = [each for each in tracked.under_way if each[0] != node(1)]
    waiting = [tickets for number in (2, 3) for tickets in tracked.tracker.room(node(number)).values()]
    assert [ticket.copy.key for tickets in waiting for ticket in tickets] == [
        copy(n).key for n in (NEAR[1], NEAR[0], NEAR[1])
    ]
    assert tracked.safe == []


def test_a_stand_in_that_is_gone_is_replaced_and_one_that_becomes_a_backup_is_none_any_more() -> None:
    tracked = Tracked(SIX)
    tracked.keep(NEAR[0])
    tracked.refuse(3, 0.0)
    tracked.no_room(3, 2.0)
    assert tracked.sent_to() == [node(1), node(2), node(4)]
    tracked.become(view_of([0, 1, 2, 3, 5]))
    tracked.gone(4)
    assert tracked.sent_to() == [node(1), node(2), node(5)]
    tracked.become(view_of([0, 1, 2, 5]))
    assert tracked.sent_to() == [node(1), node(2), node(5)]
    tracked.acked(1, 5)
    assert tracked.safe == NEAR[:1]


def test_all_nodes_that_join_have_to_have_a_record_however_many_backups_have_it() -> None:
    tracked = Tracked(view_of([0, 1, 2], joining=[3, 4]))
    tracked.keep(1)
    tracked.acked(1, 2, 3)
    assert tracked.safe == [], "one of two that join"
    tracked.acked(4)
    assert tracked.safe == [1]


def test_a_crawl_does_not_wait_for_what_a_node_lacks_that_is_gone() -> None:
    tracked = Tracked(SIX)
    tracked.keep(NEAR[0])
    tracked.refuse(3, 0.0)
    tracked.no_room(3, 2.0)
    tracked.acked(1, 2, 4)
    assert tracked.tracker.busy_with(CRAWL)
    tracked.become(view_of([0, 1, 2, 3, 4]))
    assert tracked.tracker.busy_with(CRAWL), "it is there"
    tracked.become(view_of([0, 1, 2, 4]))
    assert not tracked.tracker.busy_with(CRAWL)


def test_a_queue_that_is_full_is_waited_for_once_and_again_once_it_had_room() -> None:
    tracked = Tracked()
    tracked.keep(1)
    tracked.keep(2)
    tracked.refuse(3, 0.0)
    assert tracked.awaited == [node(3)]
    tracked.tracker.room(node(3))
    tracked.keep(4)
    tracked.refuse(3, 1.0)
    assert tracked.awaited == [node(3)] * 2
    tracked.no_room(3, 3.0)
    tracked.keep(5)
    tracked.refuse(3, 3.0 + SLOW_S)
    assert tracked.awaited == [node(3)] * 3


def test_a_node_that_has_a_page_gets_its_record_once_and_only_while_it_is_there() -> None:
    def sent_to(holder: int, view: View) -> list[bytes]:
        tracked = Tracked(view)
        place = Place(node(holder).hex(), "a.warc.gz", 0, 9)
        tracked.keep_these([copy(NEAR[0], state=State.DONE, place=place)], NEAR[0])
        return tracked.sent_to()

    backups = [node(1), node(2), node(3)]
    assert sent_to(5, SIX) == [*backups, node(5)]
    assert sent_to(2, SIX) == backups
    assert sent_to(0, SIX) == backups
    assert sent_to(5, view_of(range(5))) == backups, "it is gone"


def test_the_heir_of_a_node_gets_the_records_of_its_pages() -> None:
    tracked = Tracked(SIX)
    tracked.tracker = ReplicaTracker(SIX, OWN, replicas=REPLICAS, acks=ACKS, heir_of=lambda *_: node(5).hex())
    place = Place(node(9).hex(), "a.warc.gz", 0, 9)
    tracked.keep_these([copy(NEAR[0], state=State.DONE, place=place)], NEAR[0])
    assert tracked.sent_to() == [node(1), node(2), node(3), node(5)]
    nobody = ReplicaTracker(SIX, OWN, replicas=REPLICAS, acks=ACKS, heir_of=lambda *_: None)
    known = copy(NEAR[0], state=State.DONE, place=place)
    assert nobody.held_afar(SIX, CRAWL, [known, copy(NEAR[1])]) == {(place.node, node(9)): [known]}


def test_a_record_that_is_sent_to_a_node_that_is_lost_goes_to_it_again_while_it_is_a_member() -> None:
    tracked = Tracked()
    tracked.keep(1)
    tracked.acked(1)
    tracked.gone(2)
    assert tracked.sent_to() == [node(2), node(3)]
    tracked.acked(2)
    assert tracked.safe == [1]
    tracked.gone(3)
    assert tracked.sent_to() == [], "it is safe: a sync sees to it"
    assert not tracked.tracker.busy_with(CRAWL)


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
@example(3224)  # a backup was passed over, and then nobody was left to stand in for it
def test_everything_becomes_safe_in_the_end_and_not_before_enough_have_it(seed: int) -> None:
    rng = random.Random(seed)
    tracked = Tracked(view_of(range(5)))
    on_disk: dict[bytes, set[bytes]] = {copy(number).key: set() for number in range(8)}
    tickets: dict[bytes, ReplicaTicket] = {}
    full: set[bytes] = set()  # nodes for which something waits for room
    told: list[int] = []
    now = 0.0

    def act() -> None:
        tracked.act()
        for number in tracked.safe:
            key = copy(number).key
            backups = [m.id for m in tracked.view.closest(placement(key), REPLICAS + 1) if m.id != OWN]
            detour = tickets[key].detour if key in tickets else None
            left = backups if detour is None else detour.left(backups)
            assert len(on_disk[key].intersection(left)) >= min(ACKS, len(left))
            others = 0 if detour is None else len(detour.stand_ins)
            assert len(on_disk[key]) >= min(ACKS, len(left) + others)
        told.extend(tracked.safe)
        tracked.safe.clear()

    def deliver(calm: bool) -> None:
        each = to, kind, ticket = tracked.under_way.pop(rng.randrange(len(tracked.under_way)))
        tickets[ticket.copy.key] = ticket
        if to not in tracked.view:
            tracked.tracker.gone(tracked.view, to, [ticket])
        elif calm or rng.random() < 0.6:
            on_disk[ticket.copy.key].add(to)
            tracked.tracker.acked(tracked.view, to, [ticket])
        elif rng.random() < 0.5:
            tracked.under_way.append(each)
        else:
            tracked.tracker.refused(tracked.view, to, kind, [ticket], now)
            full.add(to)

    def make_room() -> None:
        to = rng.choice(sorted(full))
        full.remove(to)
        placed = tracked.tracker.room(to)
        for kind, theirs in placed.items():
            tracked.under_way += [(to, kind, ticket) for ticket in theirs]
            tracked.tracker.placed(tracked.view, theirs)

    for number in range(8):
        now += 20.0
        tracked.keep(number, over=rng.random() < 0.5)
        act()
        for _ in range(rng.randint(0, 6)):
            if tracked.under_way:
                deliver(calm=False)
            act()
            if full and rng.random() < 0.3:
                make_room()
                act()
            if full and rng.random() < 0.3:
                tracked.tracker.no_room(tracked.view, rng.choice(sorted(full)), now)
                act()
        if rng.random() < 0.3:
            active = [0, *rng.sample(range(1, 8), rng.randint(0, 5))]
            tracked.become(view_of(active, joining=[n for n in (8, 9) if rng.random() < 0.3]))
            act()
    while tracked.under_way or full:
        if full:
            make_room()
        else:
            deliver(calm=True)
        act()
    assert sorted(told) == list(range(8))
    assert not tracked.tracker.busy
    assert not tracked.tracker.busy_with(CRAWL)
