"""What a node waits for before it takes part, when it is told to stop."""

from __future__ import annotations

import asyncio

import pytest

from dhtcrawl.node.stopping import Stopping


async def for_ever() -> None:
    await asyncio.Event().wait()


async def test_a_wait_is_broken_off_once_the_node_is_to_stop() -> None:
    stopping = Stopping()
    asyncio.get_running_loop().call_soon(stopping.ask)
    async with stopping.breaks_off():
        await for_ever()
        raise AssertionError("it waited in vain")
    await stopping.wait()
    assert stopping.asked


async def test_asked_before_it_is_broken_off_at_the_first_wait() -> None:
    stopping = Stopping()
    stopping.ask()
    async with stopping.breaks_off():
        await for_ever()
        raise AssertionError("it waited in vain")


async def test_what_is_over_before_is_not_touched_and_asking_again_is_the_same() -> None:
    stopping = Stopping()
    async with stopping.breaks_off():
        await asyncio.sleep(0)
    stopping.ask()
    stopping.ask()
    await asyncio.sleep(0)


async def test_asked_again_while_what_waits_comes_to_its_end_it_is_the_same() -> None:
    stopping = Stopping()
    asyncio.get_running_loop().call_soon(stopping.ask)
    async with stopping.breaks_off():
        try:
            await for_ever()
        finally:
            await asyncio.sleep(0)  # it closes a connection
            stopping.ask()
        raise AssertionError("it waited in vain")


async def test_what_fails_by_itself_fails() -> None:
    stopping = Stopping()
    with pytest.raises(TimeoutError, match="a peer"):
        async with stopping.breaks_off():
            raise TimeoutError("a peer was too slow")
