"""Copies of task records converge whatever the order of their meeting, and the queues follow (I2, I4, I5, I6)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from storage.stores import CRAWL, NODE, PLACE, SPEC, Store, link, page

from dhtcrawl.keyspace import host_key
from dhtcrawl.storage.store import keys, replicas
from dhtcrawl.storage.store.records import Additions, Place, State, Task, essence, merge, unpack_task
from dhtcrawl.storage.store.replicas import End, Merged, Swept, TaskReplica
from dhtcrawl.storage.store.tasks import first_missing
from dhtcrawl.url import host_of

A, B, C = "http://a.example/1", "http://a.example/2", "http://b.example:8080/1"
URLS = [A, B, C]
OTHER = "cd" * 20
THERE = Place(OTHER, "b.warc.gz", 0, 10)

SMALL = st.integers(0, 2)


@st.composite
def tasks_of(draw: st.DrawFn, url: str) -> Task:
    """A record as a node may have it: what belongs to a state goes with it."""
    state = draw(st.sampled_from(State))
    place = Place(draw(st.sampled_from([NODE, OTHER])), draw(st.sampled_from("fg")), 0, 10)
    return Task(
        url,
        depth=draw(SMALL),
        order=draw(st.integers(0, 99)),
        referrer=draw(st.sampled_from(["", "http://b.example/"])),
        state=state,
        gen=draw(st.integers(0, 1)),
        attempt=draw(SMALL),
        hops=draw(st.integers(0, 1)),
        seed=draw(st.booleans()),
        reason=draw(st.sampled_from(["failed", "robots"])) if state == State.DEAD else "",
        detail=draw(st.sampled_from(["", "timeout"])) if state == State.DEAD else "",
        place=place if state in (State.FETCHED, State.DONE) else None,
        added=Additions(
            draw(st.sampled_from([(), (), (OTHER,), (NODE, OTHER)])), draw(st.sampled_from([b"", b"a", b"b"]))
        ),
    )


COPY = st.sampled_from(URLS).flatmap(lambda url: tasks_of(url).map(lambda task: TaskReplica(SPEC.key_of(url), task)))
SOME = st.lists(COPY, max_size=8)
CHOICE = st.frozensets(st.sampled_from(URLS))


class Holder(Store):
    """A store with the keys that it owns and those that it leased away, and a queue as the reports tell of it."""

    def __init__(self, owned: Iterable[str] = URLS, leased: Iterable[str] = ()) -> None:
        super().__init__()
        self.owned = set(map(SPEC.key_of, owned))
        self.leased = set(map(SPEC.key_of, leased))
        self.told: dict[bytes, tuple[int, int]] = {}

    def mine(self, key: bytes) -> bool:
        return key in self.owned

    def held(self, key: bytes) -> bool:
        return key in self.leased

    def merge(self, some: Sequence[TaskReplica], *, depth_matters: bool = True) -> Merged:
        return self._heard(
            self.run(
                lambda txn: replicas.merge_in(
                    txn, CRAWL, some, self.orders, mine=self.mine, held=self.held, depth_matters=depth_matters
                )
            )
        )

    def bury(self, *ends: End) -> tuple[list[bool], Merged]:
        known, merged = self.run(lambda txn: replicas.bury(txn, CRAWL, ends, mine=self.mine, held=self.held))
        return known, self._heard(merged)

    def requeue(self, *urls: str) -> Merged:
        wanted = list(map(SPEC.key_of, urls))
        return self._heard(self.run(lambda t: replicas.requeue(t, CRAWL, wanted, mine=self.mine, held=self.held)))

    def borrow(self, *urls: str) -> tuple[list[bytes], Merged]:
        wanted = list(map(SPEC.key_of, urls))
        lacking, merged = self.run(lambda t: replicas.borrow(t, CRAWL, wanted, mine=self.mine, held=self.held))
        return lacking, self._heard(merged)

    def sweep(self, cursor: bytes = b"", limit: int = 99, keep: Callable[[bytes], bool] = lambda key: True) -> Swept:
        swept = self.run(
            lambda txn: replicas.sweep(txn, CRAWL, cursor, limit, mine=self.mine, held=self.held, keep=keep)
        )
        self._heard(Merged([], swept.queued, swept.unqueued, [], 0))
        return swept

    def drop(self, *some: TaskReplica, keep: Callable[[bytes], bool] = lambda key: False) -> Swept:
        swept = self.run(lambda txn: replicas.drop(txn, CRAWL, some, keep=keep))
        self._heard(Merged([], swept.queued, swept.unqueued, [], 0))
        return swept

    def reopen(self, *urls: str, node: str = OTHER) -> tuple[list[TaskReplica], Merged]:
        wanted = list(map(SPEC.key_of, urls))
        opened, merged = self.run(
            lambda txn: replicas.reopen(
                txn, CRAWL, wanted, when=lambda task: replicas.lies_at(task, node), mine=self.mine, held=self.held
            )
        )
        return opened, self._heard(merged)

    def _heard(self, merged: Merged) -> Merged:
        for key in (key for _, key in merged.unqueued):
            self.told.pop(key, None)
        for queued in merged.queued:
            self.told[queued.key] = (queued.depth, queued.order)
        return merged

    def records(self) -> dict[bytes, Task]:
        start, stop = keys.bounds(keys.TASK, CRAWL)
        return {keys.suffix(key): unpack_task(value) for key, value in self.engine.scan(start, stop)}

    def found(self) -> dict[bytes, Task]:
        """The records without what is this node's own."""
        return {key: task._replace(order=0) for key, task in self.records().items()}

    def check_queue(self) -> None:
        """Queued is what is open, ours and not leased; and who listened knows exactly that."""
        start, stop = keys.bounds(keys.QUEUE, CRAWL)
        stored = [key for key, _ in self.engine.scan(start, stop)]
        open_ = {key: task for key, task in self.records().items() if task.state == State.PENDING}
        wanted = {key: task for key, task in open_.items() if self.mine(key) and not self.held(key)}
        assert self.told == {key: (task.depth, task.order) for key, task in wanted.items()}
        assert sorted(stored) == sorted(_entry(key, task) for key, task in wanted.items())


def _entry(key: bytes, task: Task) -> bytes:
    return keys.queue_key(CRAWL, host_key(host_of(task.url)), task.depth, task.order, key)


def copy(url: str, **fields: object) -> TaskReplica:
    task = Task(url, 1, 7, "http://a.example/")
    return TaskReplica(SPEC.key_of(url), task._replace(**fields))  # type: ignore[arg-type]


def end(url: str, state: State = State.DONE, *, gen: int = 0, attempt: int = 0) -> End:
    place = THERE if state == State.DONE else None
    return End(SPEC.key_of(url), state, gen, attempt, "" if place else "failed", "", place)


def end_of(some: TaskReplica) -> End:
    key, task = some
    return End(key, task.state, task.gen, task.attempt, task.reason, task.detail, task.place, task.added)


# -- the lattice in stores --


@given(some=SOME, data=st.data())
def test_stores_that_got_the_same_copies_in_any_order_and_number_hold_the_same(
    some: list[TaskReplica], data: st.DataObject
) -> None:
    holders = [Holder(data.draw(CHOICE), data.draw(CHOICE)) for _ in range(3)]
    for holder in holders:
        arriving = data.draw(
            st.permutations(some + data.draw(st.lists(st.sampled_from(some), max_size=4)) if some else [])
        )
        while arriving:
            count = data.draw(st.integers(1, 3))
            holder.merge(arriving[:count])
            arriving = arriving[count:]
            holder.check_queue()
    assert holders[0].found() == holders[1].found() == holders[2].found()


@given(some=SOME)
def test_a_record_is_what_the_lattice_makes_of_its_copies(some: list[TaskReplica]) -> None:
    holder = Holder()
    merged = holder.merge(some)
    expected: dict[bytes, Task] = {}
    for key, task in some:
        came = task._replace(order=0)
        expected[key] = merge(expected[key], came) if key in expected else came
    assert holder.found() == expected
    assert merged.new == len(expected)
    assert [task.order for task in holder.records().values()] == [
        1 + list(dict.fromkeys(key for key, _ in some)).index(key) for key in holder.records()
    ]


@given(first=SOME, second=SOME)
def test_what_is_further_on_here_goes_back_and_then_both_agree(
    first: list[TaskReplica], second: list[TaskReplica]
) -> None:
    ours, theirs = Holder(), Holder([])
    ours.merge(first)
    theirs.merge(second)
    sent = [TaskReplica(key, task) for key, task in theirs.records().items()]
    answer = ours.merge(sent)
    assert not theirs.merge(answer.further).further
    agreed = {key: essence(task) for key, task in ours.found().items() if key in theirs.found()}
    assert agreed == {key: essence(task) for key, task in theirs.found().items()}
    # And nothing that was as far on there.
    behind = {key for key, task in theirs.records().items() if essence(task) != essence(dict(sent)[key])}
    assert {key for key, _ in answer.further} == behind


@given(first=SOME, other=COPY)
def test_a_tombstone_does_what_its_whole_record_would(first: list[TaskReplica], other: TaskReplica) -> None:
    buried, merged = Holder(), Holder()
    buried.merge(first)
    merged.merge(first)
    known, report = buried.bury(end_of(other))
    before = merged.records().get(other.key)
    assert known == [before is not None]
    if before is None:
        assert buried.found() == merged.found()
        return
    came = before._replace(**{name: getattr(other.task, name) for name in End._fields[1:]})
    expected = merged.merge([TaskReplica(other.key, came)])
    assert buried.found() == merged.found()
    assert (report.queued, report.unqueued) == (expected.queued, expected.unqueued)
    assert [further.task for further in report.further] == [further.task for further in expected.further]
    buried.check_queue()


@given(first=SOME, ended=COPY, came=COPY)
def test_burying_and_merging_commute_where_the_record_is_known(
    first: list[TaskReplica], ended: TaskReplica, came: TaskReplica
) -> None:
    one, other = Holder(), Holder()
    for holder in (one, other):
        holder.merge([*first, copy(ended.task.url, depth=2)])
    one.bury(end_of(ended))
    one.merge([came])
    other.merge([came])
    other.bury(end_of(ended))
    assert one.found() == other.found()
    one.check_queue()


@given(some=SOME)
def test_a_copy_that_says_nothing_new_changes_nothing(some: list[TaskReplica]) -> None:
    holder = Holder()
    holder.merge(some)
    before = dict(holder.engine.scan(b"", b"\xff"))
    merged = holder.merge([TaskReplica(key, task._replace(order=5)) for key, task in holder.records().items()])
    assert merged == Merged([], [], [], merged.resend, 0, holders=merged.holders)
    assert dict(holder.engine.scan(b"", b"\xff")) == before


def test_a_tombstone_without_its_record_must_be_sent_whole() -> None:
    holder = Holder()
    holder.merge([copy(A)])
    known, merged = holder.bury(end(A), end(B))
    assert known == [True, False]
    assert merged == Merged([], [], [("a.example", SPEC.key_of(A))], [], 0, holders=merged.holders)
    assert set(holder.records()) == {SPEC.key_of(A)}


def test_what_tombstones_change_is_told_on_where_that_is_asked_for() -> None:
    holder = Holder()
    holder.merge([copy(A, gen=1), copy(B)])
    wanted = frozenset(map(SPEC.key_of, (A, B, "http://c.example/")))
    ends = [end(A, State.DEAD), end(B)]
    _, merged = holder.run(lambda t: replicas.bury(t, CRAWL, ends, mine=holder.mine, held=holder.held, told_on=wanted))
    assert [(key, task.state) for key, task in merged.changed] == [(SPEC.key_of(B), State.DONE)]
    _, again = holder.run(lambda t: replicas.bury(t, CRAWL, ends, mine=holder.mine, held=holder.held, told_on=wanted))
    assert again.changed == ()


def test_queue_entries_of_what_is_over_are_not_read_among_many(monkeypatch: pytest.MonkeyPatch) -> None:
    holder, read = Holder(), list[bytes]()
    holder.merge([copy(A), copy(B)])
    get_many = holder.engine.get_many

    def note(wanted: Iterable[bytes]) -> list[bytes | None]:
        read.extend(wanted := list(wanted))
        return get_many(wanted)

    monkeypatch.setattr(holder.engine, "get_many", note)
    holder.bury(end(A), end(B))
    assert {key[:1] for key in read} == {keys.TASK}
    assert not list(holder.engine.scan(*keys.bounds(keys.QUEUE, CRAWL)))


def test_tasks_that_others_assign_are_not_read_among_many_for_their_records_may_have_been_swept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    holder = Holder()
    holder.merge([copy(A)])
    monkeypatch.setattr(holder.engine, "get_many", None)
    assert holder.borrow(A, B)[0] == [SPEC.key_of(B)]


def test_a_tombstone_of_an_older_generation_gets_ours_in_answer() -> None:
    holder = Holder()
    holder.merge([copy(A, gen=1)])
    known, merged = holder.bury(end(A))
    assert known == [True]
    assert [(key, task.gen, task.state) for key, task in merged.further] == [(SPEC.key_of(A), 1, State.PENDING)]
    holder.check_queue()


# -- what is doubted --


def doubting(holder: Holder, *some: TaskReplica, doubted: Iterable[str]) -> Merged:
    keys_ = frozenset(map(SPEC.key_of, doubted))
    return holder.run(
        lambda txn: replicas.merge_in(
            txn, CRAWL, some, holder.orders, mine=holder.mine, held=holder.held, depth_matters=True, doubtful=keys_
        )
    )


def test_a_doubted_record_ends_no_task_makes_none_and_moves_no_page() -> None:
    holder = Holder()
    holder.merge([copy(A), copy(B, state=State.DONE, place=THERE)])
    before = holder.found()
    moved = copy(B, state=State.DONE, place=THERE._replace(node="00" * 20))
    told = [copy(A, state=State.DONE, place=THERE), moved, copy(C, state=State.DEAD, reason="failed")]
    merged = doubting(holder, *told, doubted=URLS)
    assert merged.doubted == tuple(map(SPEC.key_of, URLS))
    assert (merged.fresh, merged.changed, merged.unqueued, merged.new) == ((), (), [], 0)
    assert holder.found() == before
    holder.check_queue()


def test_a_doubted_record_counts_as_far_as_it_ends_nothing_and_so_do_those_beside_it() -> None:
    holder = Holder(owned=[])
    holder.merge([copy(A, depth=2), copy(B)])
    merged = doubting(holder, copy(A), copy(B, state=State.DONE, place=THERE), doubted=[A])
    assert merged.doubted == ()
    assert (holder.task(A).depth, holder.task(B).state) == (1, State.DONE)


def test_a_doubted_record_of_a_page_that_lies_here_may_say_so() -> None:
    holder = Holder()
    fetched_here(holder, A)
    page_here = holder.task(A)
    holder.merge([TaskReplica(SPEC.key_of(A), page_here._replace(state=State.PENDING, gen=1, place=None))])
    said = TaskReplica(SPEC.key_of(A), page_here._replace(gen=1))
    assert doubting(holder, said, doubted=[A]).doubted == ()
    assert holder.task(A).state == State.FETCHED


def test_a_doubted_tombstone_is_left_out_and_asked_for_whole() -> None:
    holder = Holder()
    holder.merge([copy(A), copy(B), copy(C, state=State.DONE, place=THERE)])
    ends, doubtful = [end(A), end(B), end(C)], frozenset(map(SPEC.key_of, (A, C)))
    known, merged = holder.run(
        lambda txn: replicas.bury(txn, CRAWL, ends, mine=holder.mine, held=holder.held, doubtful=doubtful)
    )
    assert known == [False, True, True], "the last is no news"
    assert merged.doubted == (SPEC.key_of(A),)
    assert [holder.task(url).state for url in URLS] == [State.PENDING, State.DONE, State.DONE]
    unknown = frozenset([SPEC.key_of("http://c.example/")])
    known, merged = holder.run(
        lambda txn: replicas.bury(
            txn, CRAWL, [end("http://c.example/")], mine=holder.mine, held=holder.held, doubtful=unknown
        )
    )
    assert (known, merged.doubted) == ([False], ())


# -- what a merge tells --


def test_who_has_the_bodies_of_pages_that_are_learned_of_is_told() -> None:
    holder = Holder()
    assert holder.merge([copy(A), copy(B)]).holders == ()
    assert holder.merge([copy(C, state=State.DONE, place=THERE)]).holders == (OTHER,)
    assert holder.merge([copy(A, state=State.DONE, place=THERE)]).holders == (OTHER,)
    assert holder.bury(end(B))[1].holders == (OTHER,)


def test_records_that_are_new_or_queued_and_those_that_changed_are_told_apart() -> None:
    holder = Holder(owned=[A])
    merged = holder.merge([copy(A, depth=3), copy(B, depth=3)])
    assert [key for key, _ in merged.fresh] == [SPEC.key_of(A), SPEC.key_of(B)]
    assert merged.changed == ()
    merged = holder.merge([copy(A, depth=2), copy(B, depth=2), copy(B, depth=2)])
    assert [(key, task.depth) for key, task in merged.fresh] == [(SPEC.key_of(A), 2)], "at another place in its queue"
    assert [(key, task.depth) for key, task in merged.changed] == [(SPEC.key_of(B), 2)]
    merged = holder.merge([copy(A, depth=2, referrer="http://x.example/"), copy(B, depth=3)])
    assert (merged.fresh, merged.changed) == ((), ()), "nothing on which a decision depends"


def test_a_record_that_comes_again_as_it_is_goes_into_the_queue_that_it_belongs_to_now() -> None:
    holder = Holder(owned=[])
    holder.merge([copy(A)])
    holder.owned.add(SPEC.key_of(A))
    merged = holder.merge([copy(A)])
    assert ([queued.url for queued in merged.queued], len(merged.fresh)) == ([A], 1)
    holder.check_queue()


def test_only_what_is_open_can_be_lent_and_it_leaves_its_queue() -> None:
    holder = Holder()
    holder.merge([copy(A), copy(B, state=State.DONE, place=THERE)])
    holder.leased.update(map(SPEC.key_of, URLS))
    wanted = list(map(SPEC.key_of, URLS))
    found, merged = holder.run(lambda txn: replicas.lend(txn, CRAWL, wanted, mine=holder.mine, held=holder.held))
    assert [(key, task.url) for key, task in found] == [(SPEC.key_of(A), A)]
    assert merged.unqueued == [("a.example", SPEC.key_of(A))]


def test_a_task_is_over_once_its_page_is_fetched() -> None:
    holder = Holder()
    states = {A: State.FETCHED, B: State.DEAD, C: State.PENDING}
    holder.merge([copy(url, state=state, place=THERE if url == A else None) for url, state in states.items()])
    wanted = [SPEC.key_of(url) for url in (*URLS, "http://c.example/")]
    assert holder.run(lambda txn: replicas.settled(txn, CRAWL, wanted)) == [SPEC.key_of(A), SPEC.key_of(B)]


def test_a_way_that_is_not_shorter_than_the_one_whose_links_were_sent_sends_nothing_again() -> None:
    holder = Holder()
    fetched_here(holder, A, depth=1)
    holder.settle(A)
    dropped = holder.task(A)
    holder.drop(TaskReplica(SPEC.key_of(A), dropped))
    assert holder.merge([TaskReplica(SPEC.key_of(A), dropped)]).resend == []
    assert keys.key(keys.FETCHED, CRAWL, SPEC.key_of(A)) not in holder.stored_keys()


def test_a_page_that_comes_back_as_fetched_at_another_node_is_that_nodes_to_go_on_with() -> None:
    holder = Holder()
    fetched_here(holder, A)
    holder.settle(A)
    holder.drop(TaskReplica(SPEC.key_of(A), holder.task(A)))
    assert holder.merge([copy(A, state=State.FETCHED, place=THERE)]).resend == []


# -- queues --


def test_a_shorter_way_moves_the_queue_entry_and_keeps_our_order() -> None:
    holder = Holder()
    holder.merge([copy(B), copy(A, depth=3)])
    merged = holder.merge([copy(A, depth=1, referrer="http://x.example/")])
    assert [(q.depth, q.order, q.url, q.referrer) for q in merged.queued] == [(1, 2, A, "http://x.example/")]
    assert merged.unqueued == []
    holder.check_queue()


def test_what_is_queued_and_over_within_one_batch_is_not_reported_as_queued() -> None:
    holder = Holder()
    merged = holder.merge([copy(A), copy(A, state=State.DONE, place=THERE)])
    assert (merged.queued, merged.unqueued) == ([], [("a.example", SPEC.key_of(A))])
    # And the reverse: over, then open again.
    merged = holder.merge([copy(A, gen=1), copy(A, gen=2, state=State.DONE, place=THERE), copy(A, gen=3)])
    assert ([queued.url for queued in merged.queued], len(merged.unqueued)) == ([A], 1)
    holder.check_queue()


def test_what_another_node_owns_or_has_leased_is_kept_and_not_queued() -> None:
    holder = Holder(owned=[A, B], leased=[B])
    merged = holder.merge([copy(A), copy(B), copy(C)])
    assert [queued.url for queued in merged.queued] == [A]
    assert merged.new == len(holder.records()) == 3
    holder.check_queue()


def test_a_lease_that_ended_puts_its_task_back() -> None:
    holder = Holder(leased=[A])
    holder.merge([copy(A), copy(B)])
    assert [queued.url for queued in holder.requeue(A, B, C).queued] == [B], "told again, though it never left"
    holder.leased.clear()
    assert [queued.url for queued in holder.requeue(A, B, C).queued] == [A, B]
    holder.check_queue()


def test_what_is_borrowed_is_queued_and_what_has_been_handed_over_meanwhile_is_named() -> None:
    holder = Holder(owned=[])
    holder.merge([copy(A), copy(B)])
    holder.drop(copy(B))
    holder.owned = {SPEC.key_of(A), SPEC.key_of(B)}
    lacking, merged = holder.borrow(A, B)
    assert lacking == [SPEC.key_of(B)]
    assert [queued.url for queued in merged.queued] == [A]
    holder.check_queue()


@given(some=SOME, before=CHOICE, after=CHOICE, leased=CHOICE, limit=st.integers(1, 3))
def test_a_sweep_brings_every_queue_in_line_with_the_new_owners(
    some: list[TaskReplica], before: frozenset[str], after: frozenset[str], leased: frozenset[str], limit: int
) -> None:
    holder = Holder(before)
    holder.merge(some)
    holder.owned, holder.leased = set(map(SPEC.key_of, after)), set(map(SPEC.key_of, leased))
    cursor: bytes | None = b""
    calls = 0
    while cursor is not None:
        cursor = holder.sweep(cursor, limit).cursor
        calls += 1
    assert calls == max(1, -(-len(holder.records()) // limit))
    holder.check_queue()


# -- letting go --


def fetched_here(holder: Holder, url: str, depth: int = 1) -> None:
    holder.accept(link(url, depth))
    holder.fetched(page(url, depth))


def test_a_sweep_drops_what_is_not_kept_but_no_page_that_still_sends_its_links() -> None:
    holder = Holder()
    holder.merge([copy(A), copy(C, state=State.DONE, place=THERE)])
    fetched_here(holder, B)
    swept = holder.sweep(keep=lambda key: False)
    assert (swept.dropped, swept.unqueued) == (2, [("a.example", SPEC.key_of(A))])
    assert set(holder.records()) == {SPEC.key_of(B)}
    holder.settle(B)
    assert holder.sweep(keep=lambda key: False).dropped == 1
    assert holder.records() == {}


def test_what_changed_after_it_was_acknowledged_is_not_dropped() -> None:
    holder = Holder()
    holder.merge([copy(A), copy(B), copy(C)])
    acked = [TaskReplica(key, task) for key, task in holder.records().items()]
    holder.merge([copy(A, depth=0)])
    swept = holder.drop(*acked, keep=lambda key: key == SPEC.key_of(B))
    assert swept.dropped == 1
    assert set(holder.records()) == {SPEC.key_of(A), SPEC.key_of(B)}
    holder.check_queue()


def test_a_page_that_still_sends_its_links_is_not_dropped() -> None:
    holder = Holder()
    fetched_here(holder, A)
    assert holder.drop(TaskReplica(SPEC.key_of(A), holder.task(A))).dropped == 0
    assert holder.drop(copy(B)).dropped == 0


# -- pages that we fetched --


def test_a_shorter_way_to_a_page_of_ours_sends_its_links_again() -> None:
    holder = Holder()
    fetched_here(holder, A, depth=2)
    holder.settle(A)
    done = holder.task(A)
    assert holder.merge([TaskReplica(SPEC.key_of(A), done._replace(depth=1))]).resend == [SPEC.key_of(A)]
    assert holder.task(A).state == State.DONE
    assert keys.key(keys.FETCHED, CRAWL, SPEC.key_of(A)) in holder.stored_keys()
    assert holder.fsck().problems == []


def test_without_a_depth_limit_a_shorter_way_sends_nothing() -> None:
    holder = Holder()
    fetched_here(holder, A, depth=2)
    assert holder.merge([copy(A, depth=1)], depth_matters=False).resend == []
    assert holder.task(A).depth == 1


def test_a_page_of_another_node_is_its_own_to_send() -> None:
    holder = Holder()
    holder.merge([copy(A, depth=2, state=State.DONE, place=THERE)])
    assert holder.merge([copy(A, depth=1, state=State.DONE, place=THERE)]).resend == []


def test_a_page_of_ours_whose_record_comes_back_as_fetched_is_gone_on_with() -> None:
    holder = Holder()
    fetched_here(holder, A)
    stale = TaskReplica(SPEC.key_of(A), holder.task(A))
    holder.settle(A)
    holder.drop(TaskReplica(SPEC.key_of(A), holder.task(A)))
    assert holder.merge([stale]).resend == [SPEC.key_of(A)]
    assert holder.merge([stale]).resend == []
    assert holder.fsck().problems == []


def test_a_record_that_comes_back_with_a_shorter_way_sends_links_again() -> None:
    holder = Holder()
    fetched_here(holder, A, depth=2)
    holder.settle(A)
    dropped = holder.task(A)
    holder.drop(TaskReplica(SPEC.key_of(A), dropped))
    assert holder.merge([TaskReplica(SPEC.key_of(A), dropped._replace(depth=1))]).resend == [SPEC.key_of(A)]


def test_a_page_that_another_copy_wins_keeps_its_page_record() -> None:
    holder = Holder()
    fetched_here(holder, A)
    holder.settle(A)
    lower = PLACE._replace(node="00" * 20)
    holder.merge([copy(A, state=State.DONE, place=lower)])
    assert holder.task(A).place == lower
    assert keys.key(keys.PAGE, CRAWL, SPEC.key_of(A)) in holder.stored_keys()


# -- bodies that are gone --


def test_pages_whose_body_lies_at_a_node_that_is_gone_are_found_and_opened_again() -> None:
    holder = Holder(owned=[A, B])
    holder.merge([copy(url, state=State.DONE, place=THERE, attempt=2) for url in (A, C)])
    fetched_here(holder, B)
    found, cursor = holder.run(lambda txn: replicas.bodies_at(txn, CRAWL, b"", 99, {OTHER}, holder.mine))
    assert (found, cursor) == ([SPEC.key_of(A)], None)
    opened, merged = holder.reopen(A, B, "http://a.example/unknown")
    assert [(key, task.state, task.gen, task.attempt, task.place) for key, task in opened] == [
        (SPEC.key_of(A), State.PENDING, 1, 0, None)
    ]
    assert [queued.url for queued in merged.queued] == [A]
    # What came back meanwhile is not opened twice.
    assert holder.reopen(A)[0] == []
    holder.check_queue()
    # A copy from before does not close it again.
    assert holder.merge([copy(A, state=State.DONE, place=THERE, attempt=2)]).unqueued == []


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_bodies_are_looked_for_piece_by_piece(limit: int) -> None:
    holder = Holder()
    urls = [f"http://a.example/{n}" for n in range(5)]
    holder.owned = set(map(SPEC.key_of, urls))
    holder.merge([copy(url, state=State.DONE, place=THERE) for url in urls])
    found: list[bytes] = []
    cursor: bytes | None = b""
    while cursor is not None:
        start = cursor
        some, cursor = holder.run(lambda txn: replicas.bodies_at(txn, CRAWL, start, limit, {OTHER}, holder.mine))  # noqa: B023
        assert len(some) <= limit
        found += some
    assert found == sorted(map(SPEC.key_of, urls))


def test_links_without_a_record_are_named_once() -> None:
    holder = Holder()
    holder.merge([copy(A)])
    asked = [SPEC.key_of(url) for url in (A, B, C, B)]
    assert holder.run(lambda txn: first_missing(txn, CRAWL, asked)) == [SPEC.key_of(B), SPEC.key_of(C)]
