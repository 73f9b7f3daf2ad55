"""What came of a task may be known to everybody but its owner: it asks before it has the task fetched again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from crawl.fake_peers import play

from dhtcrawl.swarm import inquiry
from dhtcrawl.swarm.inquiry import PAUSE_S, Inquiry

A, B = b"a" * 20, b"b" * 20
Story = Callable[[Inquiry], Awaitable[None]]


class World:
    """Others who answer after a second, or do not."""

    def __init__(self) -> None:
        self.silent = 0  # times that somebody does not answer
        self.compared: list[list[bytes]] = []
        self.ours_again: list[bytes] = []

    async def compare(self, keys: Sequence[bytes]) -> bool:
        await asyncio.sleep(1)
        self.compared.append(list(keys))
        return len(self.compared) > self.silent

    async def answered(self, keys: list[bytes]) -> None:
        self.ours_again += keys


def tell(world: World, story: Story) -> None:
    async def main(group: asyncio.TaskGroup) -> None:
        await story(Inquiry(group, world.compare, world.answered))

    play(main)


def test_a_task_is_nobodys_until_all_have_answered() -> None:
    world = World()
    world.silent = 2

    async def story(asked: Inquiry) -> None:
        asked.ask([A, B])
        await asyncio.sleep(2 * (1 + PAUSE_S))
        assert (A in asked, B in asked, len(asked)) == (True, True, 2)
        assert world.ours_again == []
        await asyncio.sleep(1.1)
        assert (A in asked, len(asked)) == (False, 0)

    tell(world, story)
    assert world.compared == [[A, B]] * 3
    assert world.ours_again == [A, B]


def test_a_task_is_asked_about_once_at_a_time() -> None:
    world = World()

    async def story(asked: Inquiry) -> None:
        asked.ask([A])
        asked.ask([A, B])
        asked.ask([])

    tell(world, story)
    assert world.compared == [[A], [B]]
    assert world.ours_again == [A, B]


def test_who_answers_nonsense_for_ever_does_not_keep_a_task_for_ever() -> None:
    world = World()
    world.silent = 1_000_000

    async def story(asked: Inquiry) -> None:
        asked.ask([A])

    tell(world, story)
    assert len(world.compared) == inquiry.TIMES_MAX
    assert world.ours_again == [A]
