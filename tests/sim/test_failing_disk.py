"""A simulated disk that fails ends its node, also one that is on its way back and has no life to end yet."""

from __future__ import annotations

import asyncio

from dhtcrawl.config import load
from dhtcrawl.sim.pages import WebShape
from dhtcrawl.sim.swarm import START_AGAIN_S, SimSwarm
from dhtcrawl.sim.trace import Trace
from dhtcrawl.sim.web import SimWeb


async def test_a_node_that_reaches_no_other_is_started_again_on_the_disk_that_has_failed() -> None:
    web = SimWeb(1, WebShape(hosts=1, pages=5, flaky=0.0))
    async with asyncio.TaskGroup() as group:
        swarm = SimSwarm(group, 1, load(), web, Trace(asyncio.get_running_loop().time))
        first, other = swarm.add(), swarm.add()
        other.begin([first])
        for between_lives in (False, True):
            while (other.swarm is None) is not between_lives:  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(START_AGAIN_S / 10)
        failed = group.create_task(other.fail_disk())
        await asyncio.sleep(START_AGAIN_S)
        await first.start([])
        async with asyncio.timeout(600):
            assert await failed, "nothing else ended it"
        assert other.disk_full
        other.begin_again()
        await other.joined()
        for host in (first, other):
            await host.stop()
        assert not other.disk_full
