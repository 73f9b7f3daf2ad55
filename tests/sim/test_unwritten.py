"""A node that ends between the end of a crawl and its own outputs writes them when it is back."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from dhtcrawl.config import load
from dhtcrawl.errors import StorageFull
from dhtcrawl.sim.pages import WebShape
from dhtcrawl.sim.swarm import SimHost, SimSwarm
from dhtcrawl.sim.trace import Trace
from dhtcrawl.sim.web import SimWeb
from dhtcrawl.spec import make_spec
from dhtcrawl.storage.outputs.outputs import PAGES_FILE, SKIPPED_FILE, OutputCounters, OutputDirs, write_outputs
from dhtcrawl.storage.store import catalog
from dhtcrawl.storage.store.crawl_record import COMPLETE
from dhtcrawl.storage.store.txn import Txn

from .test_forged_numbers import all_active, until


def lines(host: SimHost, directory: str, name: str) -> set[bytes]:
    files = getattr(host.disk.outputs, directory)
    return set(files.read(name, 0, 1 << 24).splitlines()) if name in files.names() else set()


def unwritten(host: SimHost) -> list[bytes]:
    return catalog.unwritten(Txn(host.disk.engine, {}))


async def test_what_a_node_did_not_come_to_write_of_an_ended_crawl_it_writes_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = load(flags={"crawl.delay_s": "0", "crawl.depth": 3})
    web = SimWeb(1, WebShape(hosts=3, pages=30, flaky=0.0))
    real, written = write_outputs, list[OutputDirs]()

    def write(txn: Txn, crawl: bytes, dirs: OutputDirs, **kwargs: Any) -> OutputCounters:
        written.append(dirs)
        if dirs is hosts[0].disk.outputs and written.count(dirs) == 1:
            raise StorageFull("cannot write pages.jsonl: no space left on the disk")
        return real(txn, crawl, dirs, **kwargs)

    monkeypatch.setattr("dhtcrawl.node.single.write_outputs", write)
    async with asyncio.TaskGroup() as group:
        swarm = SimSwarm(group, 1, config, web, Trace(asyncio.get_running_loop().time))
        hosts = [swarm.add() for _ in range(3)]
        for number, host in enumerate(hosts):
            await host.start(hosts[:number])
        await until(lambda: all_active(hosts))
        full, *others = hosts
        record = await full.submit(make_spec(web.seeds(), config.crawl), bytes(16))
        await until(lambda: full.disk_full)
        await until(lambda: not any(map(unwritten, others)))
        stored = catalog.get_crawl(Txn(full.disk.engine, {}), record.crawl_id)
        assert stored is not None
        assert stored.ended == COMPLETE
        assert unwritten(full) == [record.crawl_id]
        fetched = len(web.visits)
        full.begin(others)
        await until(lambda: not unwritten(full))
        assert len(web.visits) == fetched
        pages = [lines(host, "pages", PAGES_FILE) for host in hosts]
        assert all(pages)
        urls = [json.loads(line)["url"] for part in pages for line in part]
        assert len(urls) == len(set(urls)) == len({visit.url for visit in web.visits} & set(urls))
        assert set(urls) >= set(web.truth())
        assert b'"reason":"robots"' in b"".join(lines(full, "reports", SKIPPED_FILE)), "of tasks that are its own"
        assert written.count(full.disk.outputs) > 1
        for host in hosts:
            await host.stop()
