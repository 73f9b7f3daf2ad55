"""What is kept of known tasks is what the store has, whatever is written, dropped or meets in a slot."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.keyspace import url_key
from dhtcrawl.storage.store import keys, known_depths
from dhtcrawl.storage.store.committer import GroupRunner
from dhtcrawl.storage.store.known_depths import NOT_KEPT, SLOTS_MIN, DepthTable, KnownDepths
from dhtcrawl.storage.store.memory import MemoryEngine
from dhtcrawl.storage.store.records import Task
from dhtcrawl.storage.store.txn import Txn

ONE, OTHER = b"c" * 16, b"d" * 16
TASKS = [url_key(f"http://a.example/{number}") for number in range(40)]
BY_HOST = [url_key("http://a.example") + key for key in TASKS]

Group = tuple[bytes, list[tuple[str, list[int], int]]]

some = st.lists(st.sampled_from(range(len(TASKS))), max_size=12)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), some, st.sampled_from((0, 3, 254, 255, 300))),
        st.tuples(st.just("drop"), some, st.just(0)),
        st.tuples(st.just("look"), some, st.just(0)),
        st.tuples(st.just("fail"), some, st.just(0)),
    )
)


def record(depth: int) -> bytes:
    return Task("http://a.example/a-page-with-a-name-that-is-not-short", depth, 1, "").pack()


def row(crawl: bytes, key: bytes) -> bytes:
    return keys.TASK + crawl + key


class Bug(Exception):
    pass


@given(st.lists(st.tuples(st.sampled_from((ONE, OTHER)), steps), max_size=4), st.sampled_from((TASKS, BY_HOST)))
def test_depths_are_those_of_the_records(groups: list[Group], all_: list[bytes]) -> None:
    runner = GroupRunner(MemoryEngine(), sync=False)
    runner.known = KnownDepths(slots_max=16)
    model: dict[bytes, int] = {}

    async def run() -> None:
        loop = asyncio.get_running_loop()
        for crawl, jobs in groups:

            def job(txn: Txn, step: tuple[str, list[int], int], crawl: bytes = crawl) -> None:
                what, numbers, depth = step
                for number in numbers:
                    full = row(crawl, all_[number])
                    if what == "write":
                        txn.put(full, record(depth))
                        model[full] = depth
                    elif what == "drop":
                        txn.delete(full)
                        model.pop(full, None)
                    elif what == "fail":
                        txn.put(full, record(1))
                asked = [all_[number] for number in numbers]
                if what == "fail":
                    txn.task_depths(crawl, asked)
                    raise Bug
                assert txn.task_depths(crawl, asked) == [model.get(row(crawl, key)) for key in asked]

            done = runner.run([(partial(job, step=step), loop.create_future()) for step in jobs])
            assert all(error is None or isinstance(error, Bug) for _, _, error in done)
            assert runner.failed is None

    asyncio.run(run())


def test_a_task_that_is_kept_is_not_read_again() -> None:
    class Counting(MemoryEngine):
        reads = 0

        def get_many(self, keys):  # type: ignore[no-untyped-def]
            found = list(keys)
            self.reads += len(found)
            return super().get_many(found)

    engine, known = Counting(), KnownDepths()
    engine.write({row(ONE, TASKS[0]): record(2)}, sync=False)
    assert Txn(engine, {}, known).task_depths(ONE, TASKS[:2]) == [2, None]
    assert engine.reads == 2
    assert Txn(engine, {}, known).task_depths(ONE, TASKS[:2]) == [2, None]
    assert engine.reads == 3  # one that is not there may have been written since


def test_what_is_written_is_kept_and_what_is_dropped_is_not() -> None:
    known = KnownDepths()
    known.written({row(ONE, TASKS[0]): record(4), row(OTHER, TASKS[0]): record(5), b"n" + ONE: b""})
    assert known.find(ONE, [row(ONE, TASKS[0])]) == [4]
    assert known.find(OTHER, [row(OTHER, TASKS[0])]) == [5]
    known.written({row(ONE, TASKS[0]): None})
    assert known.find(ONE, [row(ONE, TASKS[0])]) == [NOT_KEPT]


def test_keys_of_two_widths_may_come_in_one_group() -> None:
    known = KnownDepths()
    known.written({row(ONE, TASKS[0]): record(4), row(ONE, BY_HOST[1]): record(5), row(OTHER, TASKS[1]): record(6)})
    assert known.find(ONE, [row(ONE, TASKS[0])]) == [4]
    assert known.find(ONE, [row(ONE, BY_HOST[1])]) == [5]
    assert known.find(OTHER, [row(OTHER, TASKS[1])]) == [6]


def test_memory_grows_once_has_a_bound_and_what_is_known_stays() -> None:
    table, told = DepthTable(slots_max=4 * SLOTS_MIN), list[bytes]()
    for first in range(0, 20 * SLOTS_MIN, SLOTS_MIN // 8):
        some_keys = [url_key(str(number)) for number in range(first, first + SLOTS_MIN // 8)]
        table.keep(some_keys, [1] * len(some_keys))
        told += some_keys
        assert len(told) > SLOTS_MIN // 2 or len(table) == SLOTS_MIN, "half of it is not in use yet"
        if len(told) < 2 * SLOTS_MIN:
            assert table.find(told).count(1) > 0.9 * len(told)
    assert len(table) == 4 * SLOTS_MIN


changes = st.lists(st.tuples(st.sampled_from((0, 7 << 40, 1 << 63)), some, st.sampled_from((0, 3, 254, 255, NOT_KEPT))))
sizes = st.sampled_from(((2, 1), (16, 4), (64, 1), (64, 64)))


@given(changes, st.sampled_from((TASKS, BY_HOST)), sizes, st.integers(1, 5))
def test_a_table_says_what_it_was_told_last_or_nothing(
    told: list[tuple[int, list[int], int]], all_: list[bytes], size: tuple[int, int], moved: int
) -> None:
    slots, groups = size
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(known_depths, "SLOTS_MIN", min(4, slots))
        patch.setattr(known_depths, "MOVED_AT_ONCE", moved)
        table, model = DepthTable(slots, min(groups, 4)), dict[tuple[int, bytes], int]()
        for salt, numbers, depth in told:
            some_keys = [all_[number] for number in numbers]
            table.keep(some_keys, [depth] * len(some_keys), salt)
            model |= {(salt, key): depth for key in some_keys}
            for each in (0, 7 << 40, 1 << 63):
                for key, found in zip(all_, table.find(all_, each), strict=True):
                    assert found in (model.get((each, key)), NOT_KEPT)
            if depth < 255 and some_keys:
                assert table.find(some_keys[-1:], salt) == [depth], "the last one stays"
        assert len(table) <= slots


def test_a_table_that_is_half_full_has_nearly_all() -> None:
    slots = 1 << 12
    table, many = DepthTable(slots, 64), [url_key(str(number)) for number in range(slots // 2)]
    for first in range(0, len(many), 64):
        table.keep(many[first : first + 64], [2] * 64)
    assert table.find(many).count(2) > 0.97 * len(many)
    table.keep(many, [NOT_KEPT] * len(many))
    assert set(table.find(many)) == {NOT_KEPT}
    table.keep(many, [3] * len(many))
    assert table.find(many).count(3) > 0.97 * len(many), "what was forgotten has given its place back"
