"""Nodes that sync hold the same of what they share, at the cost of what differs; nothing is dropped too early."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any, TypeVar

import pytest
from harness.world import Said
from hypothesis import given, settings
from hypothesis import strategies as st
from storage.stores import CRAWL

from dhtcrawl.keyspace import TaskKeys
from dhtcrawl.rpc.membership.view import MemberState
from dhtcrawl.rpc.tasks.events import Failure, FailureKind
from dhtcrawl.rpc.tasks.messages import Ack, Answer, Records, RefreshTask, Refused
from dhtcrawl.sim.loop import run
from dhtcrawl.storage.store import ranges
from dhtcrawl.storage.store.committer import Group, GroupRunner
from dhtcrawl.storage.store.ranges import FIRST, LAST
from dhtcrawl.storage.store.records import Place, State
from dhtcrawl.storage.store.replicas import TaskReplica
from dhtcrawl.swarm.records import range_sync
from dhtcrawl.swarm.records import sync as syncing
from dhtcrawl.swarm.records.range_sync import BITS, SyncResult
from dhtcrawl.swarm.records.wire import RECORDS_BYTES_MAX, in_frames, record_of
from dhtcrawl.swarm.replica_sets import Sharing
from swarm.sync_swarm import REPLICAS, SyncNode, SyncWorld, copy

T = TypeVar("T")
THERE = Place("cd" * 20, "b.warc.gz", 0, 10)
X, Y = b"\x20" * 20, b"\xa0" * 20
ACTIVE, JOINING, SUSPECTED = MemberState.ACTIVE, MemberState.JOINING, MemberState.SUSPECTED


def two(*, keys: TaskKeys | None = None) -> tuple[SyncWorld, SyncNode, SyncNode]:
    """A joining node, and the one that has everything."""
    swarm = SyncWorld({X: JOINING, Y: ACTIVE}, keys=keys)
    return swarm, swarm.nodes[X], swarm.nodes[Y]


async def synced(node: SyncNode, peer: SyncNode) -> SyncResult:
    result = await node.syncer.sync(peer.node_id, as_owner_set=node.view)
    assert isinstance(result, SyncResult), result
    return result


# -- sync --

STATES = st.sampled_from([(State.PENDING, 0), (State.PENDING, 1), (State.PENDING, 2), (State.DONE, 0), (State.DEAD, 1)])


@st.composite
def records(draw: st.DrawFn, numbers: range) -> list[TaskReplica]:
    found = []
    for number in draw(st.lists(st.sampled_from(numbers), max_size=25, unique=True)):
        state, gen = draw(STATES)
        found.append(
            copy(
                number,
                state=state,
                gen=gen,
                depth=draw(st.integers(0, 2)),
                seed=draw(st.booleans()),
                reason="failed" if state == State.DEAD else "",
                place=THERE if state == State.DONE else None,
            )
        )
    return found


@settings(max_examples=60)
@given(
    ours=records(range(60)),
    theirs=records(range(60)),
    states=st.lists(st.sampled_from([ACTIVE, JOINING, SUSPECTED]), min_size=2, max_size=8),
    seed=st.integers(0, 2**32),
)
def test_after_one_sync_both_hold_the_same_of_what_they_share_and_the_next_moves_nothing(
    ours: list[TaskReplica], theirs: list[TaskReplica], states: list[MemberState], seed: int
) -> None:
    async def main() -> None:
        rng = Random(seed)
        swarm = SyncWorld({rng.randbytes(20): state for state in states})
        a, b, *_ = swarm.nodes.values()
        a.put(ours)
        b.put(theirs)
        before, expected = (a.found(), b.found()), swarm.expected()
        await synced(a, b)
        shared = Sharing(swarm.view, a.node_id, b.node_id, REPLICAS)
        for key, task in expected.items():
            if shared.covers(key):
                assert a.found()[key] == b.found()[key] == task
            else:
                assert (a.found().get(key), b.found().get(key)) == (before[0].get(key), before[1].get(key))
        for node in (a, b):
            wanted = {k for k, task in node.found().items() if task.state == State.PENDING and node.mine(k)}
            assert set(node.queue) == node.queued() == wanted
        swarm.records_moved = 0
        again = await synced(a, b)
        assert (again.pages, again.pushed, swarm.records_moved) == (0, 0, 0)

    run(main())


@pytest.mark.parametrize("host_mode", [False, True])
async def test_stores_that_are_equal_exchange_digests_and_nothing_else(host_mode: bool) -> None:
    swarm, a, b = two(keys=TaskKeys("host" if host_mode else "url"))
    for node in (a, b):
        node.put(copy(n, host_mode=host_mode) for n in range(3_000))
    result = await synced(a, b)
    assert swarm.records_moved == 0
    assert result == SyncResult(digests=1)


@pytest.mark.parametrize(("host_mode", "digests_max"), [(False, 10), (True, 2)])
async def test_what_differs_moves_and_little_more(host_mode: bool, digests_max: int) -> None:
    count, differing = 3_000, 6

    swarm, a, b = two(keys=TaskKeys("host" if host_mode else "url"))
    all_ = [copy(n, host_mode=host_mode) for n in range(count)]
    a.put(all_[:-3] + [copy(n, host_mode=host_mode, state=State.DONE, place=THERE) for n in range(3)])
    b.put(all_)
    result = await synced(a, b)
    assert a.essences() == b.essences()
    assert len(a.found()) == count
    # Each difference costs the records of its part, some twelve here, and not the store.
    assert swarm.records_moved < differing * 40
    assert a.transactions < differing * 6
    assert (result.new, result.pushed) == (3, 3)
    assert result.digests <= digests_max


async def test_many_records_are_compared_in_parts_of_parts() -> None:
    swarm, a, b = two()
    all_ = [copy(n) for n in range(20_000)]
    a.put(all_)
    b.put(all_[1:])
    result = await synced(a, b)
    assert a.found() == b.found()
    assert result.digests == 2
    assert swarm.records_moved <= 20


async def test_a_newcomer_pulls_everything_page_by_page_with_one_request_in_flight() -> None:
    _, a, b = two()
    b.put(copy(n) for n in range(1_000))
    result = await synced(a, b)
    assert result == SyncResult(digests=1, pages=4, pulled=1_000, new=1_000)
    assert a.found() == b.found()
    assert a.new == 1_000
    assert a.queue == {}  # it joins, and owns nothing


async def test_a_peer_that_lost_everything_gets_everything_without_being_asked_for_pages() -> None:
    _, a, b = two()
    # So many that no part has few.
    a.put(copy(n) for n in range(256 * 90))
    result = await synced(a, b)
    assert (result.pages, result.pushed) == (0, 256 * 90)
    assert a.found() == b.found()


VARIANTS = (copy, partial(copy, depth=0), partial(copy, state=State.DONE, place=THERE))


@settings(max_examples=25)
@given(lost=st.lists(st.integers(1, 12), max_size=4), answers=st.booleans(), seed=st.integers(0, 99))
def test_whatever_is_lost_on_the_way_the_next_time_makes_up_for_it(lost: list[int], answers: bool, seed: int) -> None:
    async def main() -> None:
        rng = Random(seed)
        swarm, a, b = two()
        for node in (a, b):
            some = rng.sample(range(600), 400)
            node.put(rng.choice(VARIANTS)(n) for n in some)
        expected = swarm.expected()

        def loses(said: Said) -> bool:
            return said.number in lost

        if answers:
            swarm.loses_answer = loses
        else:
            swarm.loses_request = loses
        failures = 0
        while isinstance(await a.syncer.sync(Y, as_owner_set=swarm.view), Failure):
            failures += 1
        assert failures <= len(lost)
        assert a.found() == b.found() == expected
        assert a.new == len(expected) - 400

    run(main())


def test_a_sync_that_is_cancelled_has_told_of_all_that_it_wrote() -> None:
    async def main(after_s: float) -> bool:
        swarm, a, b = two()
        swarm.become(X, ACTIVE)
        a.put(copy(n, depth=2) for n in range(0, 60, 3))
        b.put(copy(n) for n in range(60))
        before = len(a.found())
        with suppress(TimeoutError):
            await asyncio.wait_for(synced(a, b), after_s)
        await asyncio.sleep(1)
        assert len(a.found()) == before + a.new
        assert set(a.queue) == a.queued()
        cancelled = a.essences() != b.essences()
        await synced(a, b)
        assert a.essences() == b.essences()
        return cancelled

    # A commit takes 4 ms, so each of them is broken into at least once.
    cancelled = [run(main(0.003 * step)) for step in range(1, 60)]
    assert cancelled[0]
    assert not cancelled[-1]


async def test_a_full_peer_is_reported_and_keeps_nothing_from_us() -> None:
    _, a, b = two()
    a.put(copy(n) for n in range(10))
    b.put(copy(n) for n in range(5, 15))
    b.full = True
    result = await synced(a, b)
    assert len(a.found()) == 15
    assert result.refused == 5


async def test_records_with_long_urls_go_in_messages_that_fit() -> None:
    long = [copy(n, referrer="http://a.example/" + "x" * 8_000) for n in range(300)]
    sizes = [sum(len(task.referrer) for _, task in batch) for batch in in_frames(long)]
    assert sum(map(len, in_frames(long))) == 300
    assert len(sizes) > 1
    assert max(sizes) <= RECORDS_BYTES_MAX
    assert [len(batch) for batch in in_frames([copy(n) for n in range(301)])] == [300, 1]
    assert list(in_frames([])) == []

    _, a, b = two()
    a.put(long[:150])
    b.put(long[100:])
    await synced(a, b)
    assert a.found() == b.found()
    assert len(a.found()) == 300


async def test_syncs_do_not_keep_the_store_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "RECORDS_A_CALL", 100)

    _, a, b = two()
    b.put(copy(n) for n in range(2_000))
    a.put(copy(n) for n in range(1_990))
    groups: list[Group] = []
    original = Group.__init__

    def noted(group: Group, runner: GroupRunner) -> None:
        original(group, runner)
        if runner is b.runner:
            groups.append(group)

    monkeypatch.setattr(Group, "__init__", noted)
    await synced(a, b)
    assert a.found() == b.found()
    # A job for each hundred records, and never two in one group.
    assert len(groups) >= 20
    assert {len(group) for group in groups} == {1}


# -- what a peer may say --


def hostile(node: SyncNode, answer: Answer | Refused) -> None:
    async def lie(asker: bytes, message: Any) -> Answer | Refused:
        if not isinstance(message, RefreshTask):
            return await honest(asker, message)
        return Records(digests=bytes([1]) * (8 << BITS)) if message.digest_bits else answer

    honest = node.answer
    node.answer = lie  # type: ignore[method-assign]


ROWS = sorted((record_of(copy(n)) for n in range(5)), key=lambda row: row.key)


@pytest.mark.parametrize(
    "answer",
    [
        Records((ROWS[1], ROWS[0])),
        Records((ROWS[0], ROWS[0])),
        Records((ROWS[1],), cursor=ROWS[0].key),
        Records((), cursor=b"\x01" * 20),
        Ack(b"\0"),
        Refused("no"),
    ],
    ids=str,
)
async def test_an_answer_without_sense_is_a_failure_and_no_error(answer: Answer | Refused) -> None:
    swarm, a, b = two()
    a.put([copy(1)])
    hostile(b, answer)
    result = await a.syncer.sync(Y, as_owner_set=swarm.view)
    assert isinstance(result, Failure)
    assert result.kind is (FailureKind.REFUSED if isinstance(answer, Refused) else FailureKind.PROTOCOL)
    assert set(a.found()) == {copy(1).key}


async def test_a_page_beyond_what_was_asked_for_is_refused() -> None:
    swarm, a, b = two()
    a.put(copy(n) for n in range(20_000))
    hostile(b, Records((ROWS[4],)))
    result = await a.syncer.sync(Y, as_owner_set=swarm.view)
    assert isinstance(result, Failure)
    assert result.kind is FailureKind.PROTOCOL


async def test_a_peer_that_answers_nothing_for_ever_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    swarm, a, b = two()
    cursors = iter(range(10**6))

    async def lie(asker: bytes, message: Any) -> Answer | Refused:
        if message.digest_bits:
            return Records(digests=bytes([1]) * (8 << BITS))
        return Records(cursor=next(cursors).to_bytes(20, "big"))

    b.answer = lie  # type: ignore[method-assign]
    assert isinstance(await a.syncer.sync(Y, as_owner_set=swarm.view), Failure)
    assert len(swarm.said) <= range_sync.EMPTY_PAGES_MAX + 2


async def test_records_that_cannot_be_true_are_left_out_of_a_page() -> None:
    _, a, b = two()
    hostile(b, Records((ROWS[0], ROWS[1]._replace(url="http://a.example/other"), ROWS[2])))
    result = await synced(a, b)
    assert (result.pulled, set(a.found())) == (2, {ROWS[0].key, ROWS[2].key})


def refresh(**fields: Any) -> RefreshTask:
    return RefreshTask(CRAWL, **{"first": FIRST, "last": LAST, **fields})


async def test_a_stranger_gets_nothing() -> None:
    _, _, b = two()
    b.put([copy(1)])
    result = await b.syncer.on_refresh(b"\x77" * 20, refresh())
    assert isinstance(result, Refused)


async def test_an_asker_gets_only_what_it_is_to_keep() -> None:
    rng = Random(3)
    swarm = SyncWorld({rng.randbytes(20): rng.choice([ACTIVE, JOINING]) for _ in range(30)})
    asker, node = list(swarm.nodes.values())[:2]
    node.put(copy(n) for n in range(500))
    answer = await node.syncer.on_refresh(asker.node_id, refresh())
    assert isinstance(answer, Records)
    shared = Sharing(swarm.view, asker.node_id, node.node_id, REPLICAS)
    assert [row.key for row in answer.records] == sorted(filter(shared.covers, node.found()))


@pytest.mark.parametrize("bytes_max", [1, 300, 2_000, 50_000])
async def test_an_answer_keeps_to_the_length_that_was_asked_for(bytes_max: int) -> None:
    _, a, b = two()
    b.put(copy(n) for n in range(100))
    for bits in (0, 1, 8):
        answer = await a.ask(Y, refresh(reply_bytes_max=bytes_max, digest_bits=bits))
        if bytes_max <= 300:  # no room for a record in its envelope: no answer rather than "that was all"
            assert isinstance(answer, Failure) or bits == 1


async def test_a_page_of_what_is_mostly_not_the_askers_looks_on_for_something(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "RECORDS_A_CALL", 10)
    monkeypatch.setattr(syncing, "SCANS_A_PAGE_MAX", 5)

    rng = Random(5)
    swarm = SyncWorld({rng.randbytes(20): ACTIVE for _ in range(200)})
    asker, node, *_ = swarm.nodes.values()
    node.put(copy(n) for n in range(200))
    answer = await node.syncer.on_refresh(asker.node_id, refresh())
    assert isinstance(answer, Records)
    assert answer.cursor == sorted(node.found())[49]


# -- some records --


async def test_what_others_know_of_some_records_comes_and_what_they_lack_goes() -> None:
    rng = Random(4)
    swarm = SyncWorld({rng.randbytes(20): ACTIVE for _ in range(4)})
    ours, one, other, _ = swarm.nodes.values()
    ours.put(copy(n) for n in range(9))
    one.put([copy(0, state=State.DONE, place=THERE), copy(1)])
    other.put([*(copy(n) for n in range(2, 9)), copy(1, state=State.DEAD, reason="failed")])
    asked = [copy(n).key for n in (0, 1, 2, 99)]
    assert await ours.syncer.compare(CRAWL, asked, lambda key: [one.node_id, other.node_id])
    assert [ours.found()[key].state for key in asked[:3]] == [State.DONE, State.DEAD, State.PENDING]
    assert set(asked[:3]) <= one.task_keys() & other.task_keys()
    # To each what it has otherwise, or not at all; back what it knows better; and nothing else.
    assert swarm.records_moved == 2 + 1 + 2 + 1
    assert not ours.queue.keys() & asked[:2]


async def test_who_keeps_a_record_and_does_not_answer_is_told_of() -> None:
    swarm, a, b = two()
    a.put([copy(1)])
    swarm.loses_request = lambda said: said.number == 1
    assert not await a.syncer.compare(CRAWL, [copy(1).key], lambda key: [b.node_id])
    swarm.loses_request = lambda said: said.number == 3
    assert not await a.syncer.compare(CRAWL, [copy(1).key], lambda key: [b.node_id])
    assert await a.syncer.compare(CRAWL, [copy(1).key], lambda key: [b.node_id])
    assert copy(1).key in b.found()
    assert await a.syncer.compare(CRAWL, [copy(1).key], lambda key: [])
