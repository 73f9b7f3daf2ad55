"""What a node has under way ends with it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from harness.memory import entries

from dhtcrawl.node.task_group import OrderedTaskGroup


async def test_a_group_that_is_told_to_end_ends_in_the_order_of_its_tasks() -> None:
    ended: list[int] = []

    async def wait(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    async with asyncio.timeout(10.0), OrderedTaskGroup() as group:
        for number in range(20):
            group.create_task(wait(number))
        await asyncio.sleep(1.0)
        group.cancel_all()
    assert ended == list(range(20))


async def test_tasks_that_are_over_are_forgotten() -> None:
    async with asyncio.TaskGroup(), OrderedTaskGroup() as group:
        for _number in range(5):
            group.create_task(asyncio.sleep(0.1))
        await asyncio.sleep(1.0)
        held = entries(group)
    assert held == 0


@pytest.mark.parametrize("closes", [False, True], ids=["python-3.11", "python-3.13"])
async def test_what_begins_while_the_group_ends_is_cancelled_at_once(
    closes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group of Python 3.13 closes what it does not take; a task of that ended with an error which nobody saw to."""
    plain = asyncio.TaskGroup.create_task

    def refuses_and_closes(self: asyncio.TaskGroup, coro: Any, **named: Any) -> asyncio.Task[Any]:
        try:
            return plain(self, coro, **named)
        except RuntimeError:
            coro.close()
            raise

    if closes:
        monkeypatch.setattr(asyncio.TaskGroup, "create_task", refuses_and_closes)

    class Lost(Exception):
        pass

    async with asyncio.TaskGroup():
        said: list[str] = []

        async def late() -> None:
            said.append("began")

        async def lives_on(group: OrderedTaskGroup) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                task = group.create_task(late())
                await asyncio.wait([task])
                said.append("cancelled" if task.cancelled() else "ended")

        async def fails() -> None:
            raise Lost

        try:
            async with asyncio.timeout(10.0), OrderedTaskGroup() as group:
                group.create_task(lives_on(group))
                await asyncio.sleep(0.1)
                group.create_task(fails())
        except* Lost:
            said.append("lost")
    assert said == ["cancelled", "lost"]
