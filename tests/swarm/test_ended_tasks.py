"""An assignment ends when the record here says that its task is over, however that came to be written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from dhtcrawl.storage.store.records import Place, State
from dhtcrawl.storage.store.replicas import TaskReplica
from dhtcrawl.swarm.assignment import ended_tasks
from dhtcrawl.swarm.assignment.ended_tasks import GATHER_S, LOOK_EVERY_S, EndedTasks
from dhtcrawl.swarm.assignment.ownership import SwarmOwnership
from swarm.fake_peers import node
from swarm.sync_swarm import copy

OTHER = node(1)
KEYS = [copy(number).key for number in range(7)]
LENT, BORROWED, OURS = KEYS[:3]


class Side:
    """One node's assignments, and what its store says of the tasks."""

    def __init__(self) -> None:
        claim: Any = SimpleNamespace(owns=lambda key: True, mine=lambda key: True)
        self.ownership = SwarmOwnership(claim)
        self.settled: set[bytes] = set()
        self.looked_at: list[list[bytes]] = []
        self.ended: list[bytes] = []
        queues: Any = SimpleNamespace(settled=self._settled)
        self.tasks = EndedTasks(queues, self.ownership, self._over)

    async def _settled(self, keys: Sequence[bytes]) -> list[bytes]:
        self.looked_at.append(list(keys))
        return [key for key in keys if key in self.settled]

    def _over(self, keys: Sequence[bytes]) -> None:
        self.ended += keys
        self.ownership.lent.let_go(keys)

    def lend(self, *keys: bytes) -> None:
        self.ownership.lent.lend(OTHER, 1, "h", keys, 0.0, 60.0)

    def borrow(self, *keys: bytes) -> None:
        self.ownership.borrowed.borrow(OTHER, 1, keys, 0.0)


@asynccontextmanager
async def a_side() -> AsyncIterator[Side]:
    side = Side()
    running = asyncio.create_task(side.tasks.run())
    await asyncio.sleep(0)
    yield side
    running.cancel()


def record(key: bytes, state: State) -> TaskReplica:
    place = Place("ab" * 20, "a.warc.gz", 0, 9) if state is State.FETCHED else None
    return TaskReplica(key, copy(1, state=state, place=place).task)


@pytest.mark.parametrize("state", [State.FETCHED, State.DEAD])
@pytest.mark.parametrize(("lent", "borrowed"), [(True, False), (False, True), (True, True)])
async def test_a_record_that_says_so_ends_an_assignment_soon(state: State, lent: bool, borrowed: bool) -> None:
    async with a_side() as side:
        side.lend(*[LENT] * lent)
        side.borrow(*[BORROWED] * borrowed)
        side.settled = set(KEYS)
        side.tasks.heard([record(key, state) for key in (LENT, BORROWED, OURS)])
        await asyncio.sleep(2 * GATHER_S)
        assert side.ended == [LENT] * lent + [BORROWED] * borrowed, "the other is no assignment"
        assert not len(side.ownership.lent)
        assert not len(side.ownership.borrowed)


async def test_a_record_of_an_open_task_is_not_looked_up() -> None:
    async with a_side() as side:
        side.lend(LENT)
        side.tasks.heard([record(LENT, State.PENDING)])
        await asyncio.sleep(2 * GATHER_S)
        assert side.looked_at == []


async def test_a_tombstone_of_an_earlier_generation_ends_nothing() -> None:
    async with a_side() as side:
        side.lend(LENT)
        side.borrow(BORROWED)
        side.tasks.over([LENT, BORROWED])
        await asyncio.sleep(2 * GATHER_S)
        assert side.looked_at == [[LENT, BORROWED]]
        assert side.ended == []
        assert (LENT in side.ownership.lent, BORROWED in side.ownership.borrowed) == (True, True)


async def test_what_comes_at_about_the_same_time_is_looked_up_at_once() -> None:
    async with a_side() as side:
        side.lend(*KEYS)
        for key in KEYS:
            side.tasks.over([key])
        await asyncio.sleep(2 * GATHER_S)
        assert side.looked_at == [KEYS]


async def test_what_a_sync_has_written_is_found_by_a_walk_over_all_assignments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ended_tasks, "LOOK_AT", 2)
    async with a_side() as side:
        side.lend(*KEYS[:5])
        side.borrow(*KEYS[5:])
        await asyncio.sleep(4 * LOOK_EVERY_S + GATHER_S)
        assert {key for keys in side.looked_at for key in keys} == set(KEYS)
        assert max(map(len, side.looked_at)) <= 4
        side.settled = {KEYS[4], KEYS[6]}
        await asyncio.sleep(4 * LOOK_EVERY_S)
        assert sorted(side.ended) == sorted(side.settled)
