"""What came of a task may be known to everybody but its owner: it asks before it has the task fetched again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from dhtcrawl.swarm.assignment.orphan_check import PAUSE_S, WITHIN_S, OrphanCheck
from dhtcrawl.swarm.assignment.ownership import KeySet

A, B = b"a" * 20, b"b" * 20


class Others:
    """Others who answer after a second, or do not."""

    def __init__(self, takes_s: float = 1.0) -> None:
        self.takes_s = takes_s
        self.silent = 0  # times that somebody does not answer
        self.compared: list[list[bytes]] = []
        self.ours_again: list[bytes] = []

    async def compare(self, keys: Sequence[bytes]) -> bool:
        await asyncio.sleep(self.takes_s)
        self.compared.append(list(keys))
        return len(self.compared) > self.silent

    async def answered(self, keys: list[bytes]) -> None:
        self.ours_again += keys


@asynccontextmanager
async def checking(world: Others) -> AsyncIterator[tuple[OrphanCheck, KeySet]]:
    """A check, and the keys that it has asked about and not heard of."""
    async with asyncio.TaskGroup() as group:
        asked = KeySet()
        yield OrphanCheck(group, asked, world.compare, world.answered), asked


async def test_a_task_is_nobodys_until_all_have_answered() -> None:
    world = Others()
    world.silent = 2

    async with checking(world) as (check, asked):
        check.ask([A, B])
        await asyncio.sleep(2 * (1 + PAUSE_S))
        assert (A in asked, B in asked, len(asked)) == (True, True, 2)
        assert world.ours_again == []
        await asyncio.sleep(1.1)
        assert (A in asked, len(asked)) == (False, 0)
    assert world.compared == [[A, B]] * 3
    assert world.ours_again == [A, B]


async def test_a_task_is_asked_about_once_at_a_time() -> None:
    world = Others()

    async with checking(world) as (check, _):
        check.ask([A])
        check.ask([A, B])
        check.ask([])
    assert world.compared == [[A], [B]]
    assert world.ours_again == [A, B]


@pytest.mark.parametrize("takes_s", [1.0, 30.0, 1e6])
async def test_who_answers_nonsense_or_nothing_does_not_keep_a_task_for_ever(takes_s: float) -> None:
    world = Others(takes_s)
    world.silent = 1_000_000

    async with checking(world) as (check, asked):
        check.ask([A])
        await asyncio.sleep(WITHIN_S - 1)
        assert A in asked
        await asyncio.sleep(2)
        assert A not in asked
    assert world.ours_again == [A]
