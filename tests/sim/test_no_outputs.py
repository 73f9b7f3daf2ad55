"""A node that cannot make the directories of a crawl ends, and leaves its pages to the others."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from dhtcrawl.config import load
from dhtcrawl.errors import StorageFull
from dhtcrawl.sim.pages import WebShape
from dhtcrawl.sim.swarm import SimSwarm
from dhtcrawl.sim.trace import Trace
from dhtcrawl.sim.web import SimWeb
from dhtcrawl.spec import make_spec
from dhtcrawl.storage.store.crawl_record import COMPLETE
from dhtcrawl.storage.store.memory import MemoryEngine

from .test_forged_numbers import all_active, until


@dataclass(slots=True)
class NoInode:
    """A disk that takes what is written to its files, and no further directory."""

    engine: MemoryEngine

    @property
    def outputs(self) -> Any:
        raise StorageFull(
            "cannot create crawls/00: no space left on the disk; free some and run the same command again"
        )


async def test_a_node_that_cannot_make_the_directories_of_a_crawl_ends_and_the_others_crawl() -> None:
    config = load(flags={"crawl.delay_s": "0"})
    web = SimWeb(1, WebShape(hosts=3, pages=30, flaky=0.0))
    async with asyncio.TaskGroup() as group:
        swarm = SimSwarm(group, 1, config, web, Trace(asyncio.get_running_loop().time))
        hosts = [swarm.add() for _ in range(3)]
        for number, host in enumerate(hosts):
            await host.start(hosts[:number])
        await until(lambda: all_active(hosts))
        *sound, full = hosts
        disk: Any = NoInode(full.disk.engine)
        full.disk = disk
        record = await sound[0].submit(make_spec(web.seeds(), config.crawl), bytes(16))

        def ended() -> bool:
            known = [host.swarm.crawls.get(record.crawl_id) for host in sound if host.swarm is not None]
            return all(each is not None and each.ended == COMPLETE for each in known)

        await until(ended, 900.0)
        assert full.disk_full
        assert {visit.url for visit in web.visits} >= set(web.truth())
        for host in sound:
            await host.stop()
