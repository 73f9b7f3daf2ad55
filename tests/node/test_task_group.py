"""What a node has under way ends with it."""

from __future__ import annotations

import asyncio

from swarm.fake_peers import play

from dhtcrawl.node.task_group import OrderedTaskGroup


def test_a_group_that_is_told_to_end_ends_in_the_order_of_its_tasks() -> None:
    ended: list[int] = []

    async def wait(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    async def story(_: asyncio.TaskGroup) -> None:
        async with asyncio.timeout(10.0), OrderedTaskGroup() as group:
            for number in range(20):
                group.create_task(wait(number))
            await asyncio.sleep(1.0)
            group.cancel_all()

    play(story)
    assert ended == list(range(20))


def test_tasks_that_are_over_are_forgotten() -> None:
    async def story(_: asyncio.TaskGroup) -> int:
        async with OrderedTaskGroup() as group:
            for _number in range(5):
                group.create_task(asyncio.sleep(0.1))
            await asyncio.sleep(1.0)
            return len(group._begun)

    assert play(story) == 0


def test_what_begins_while_the_group_ends_is_cancelled_at_once() -> None:
    class Lost(Exception):
        pass

    async def story(_: asyncio.TaskGroup) -> list[str]:
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
        return said

    assert play(story) == ["cancelled", "lost"]
