"""What a node that goes on keeps open of crawls that are over: nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial

import pytest

from dhtcrawl.config import load
from dhtcrawl.sim.pages import WebShape
from dhtcrawl.sim.swarm import SimHost, SimSwarm
from dhtcrawl.sim.trace import Trace
from dhtcrawl.sim.web import SimWeb
from dhtcrawl.spec import make_spec
from dhtcrawl.storage.store.files import MemoryDirectory, MemoryFile

from .test_forged_numbers import all_active, until


class Watched(MemoryDirectory):
    """Knows which of its files are open."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = Counter[str]()

    def open(self, name: str, committed: int | None) -> MemoryFile:
        super().open(name, committed)
        self.opened[name] += 1
        return WatchedFile(self, name)

    @property
    def still_open(self) -> list[str]:
        return [name for name, count in self.opened.items() if count]


class WatchedFile(MemoryFile):
    def __init__(self, directory: Watched, name: str) -> None:
        super().__init__(name, directory.files[name])
        self._directory = directory

    def close(self) -> None:
        self._directory.opened[self.name] -= 1


def over(hosts: list[SimHost], crawl: bytes) -> bool:
    """Whether a crawl has run at all of them, and runs no more."""
    runs = [host.swarm.runs for host in hosts if host.swarm is not None]
    return all(each.records.get(crawl) is not None and each.of(crawl) is None for each in runs)


@pytest.mark.parametrize("copies", [1, 2])
async def test_no_archive_file_stays_open_of_crawls_that_are_over(copies: int) -> None:
    config = load(flags={"crawl.delay_s": "0", "crawl.copies": copies})
    web = SimWeb(1, WebShape(hosts=2, pages=20, flaky=0.0))
    async with asyncio.TaskGroup() as group:
        swarm = SimSwarm(group, 1, config, web, Trace(asyncio.get_running_loop().time))
        hosts = [swarm.add() for _ in range(2)]
        archives = [Watched() for _ in hosts]
        for number, (host, archive) in enumerate(zip(hosts, archives, strict=True)):
            host.disk.outputs = host.disk.outputs._replace(archive=archive)
            await host.start(hosts[:number])
        await until(lambda: all_active(hosts))
        for salt in range(2):
            record = await hosts[0].submit(make_spec(web.seeds(), config.crawl), bytes([salt]) * 16)
            await until(partial(over, hosts, record.crawl_id), 900.0)
        assert [len(archive.files) for archive in archives] == [2 * copies] * 2, "of each crawl each node has some"
        assert [archive.still_open for archive in archives] == [[], []]
        for host in hosts:
            await host.stop()
