"""What a node has under way ends with it."""

from __future__ import annotations

import asyncio

from crawl.fake_peers import play

from dhtcrawl.swarm.tasks import Tasks


def test_a_group_that_is_told_to_end_ends_in_the_order_of_its_tasks() -> None:
    ended: list[int] = []

    async def wait(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    async def story(_: asyncio.TaskGroup) -> None:
        async with asyncio.timeout(10.0), Tasks() as group:
            for number in range(20):
                group.create_task(wait(number))
            await asyncio.sleep(1.0)
            group.cancel_all()

    play(story)
    assert ended == list(range(20))


def test_tasks_that_are_over_are_forgotten() -> None:
    async def story(_: asyncio.TaskGroup) -> int:
        async with Tasks() as group:
            for _number in range(5):
                group.create_task(asyncio.sleep(0.1))
            await asyncio.sleep(1.0)
            return len(group._begun)

    assert play(story) == 0
