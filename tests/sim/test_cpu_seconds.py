"""The CPU time that a node tells of a crawl is what its process used while that ran."""

from __future__ import annotations

import asyncio
import resource
from functools import partial
from types import SimpleNamespace

import pytest

from dhtcrawl.config import load
from dhtcrawl.crawl.rounds import CrawlCounters
from dhtcrawl.sim.pages import WebShape
from dhtcrawl.sim.swarm import SimHost, SimSwarm
from dhtcrawl.sim.trace import Trace
from dhtcrawl.sim.web import SimWeb
from dhtcrawl.spec import make_spec
from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.crawl_record import RUNNING, changed

from .test_forged_numbers import until
from .test_open_files import over


def cpu_s(host: SimHost, crawl: bytes) -> float:
    return CrawlCounters.unpack(host.disk.engine.get(keys.key(keys.COUNTERS, crawl))).cpu_seconds


async def test_a_second_crawl_and_a_second_run_of_one_count_what_the_process_uses_from_then_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process of this test uses a second of CPU a second."""
    now = asyncio.get_running_loop().time
    monkeypatch.setattr(resource, "getrusage", lambda _: SimpleNamespace(ru_utime=now(), ru_stime=0.0, ru_maxrss=1))
    config = load(flags={"crawl.delay_s": "1"})
    web = SimWeb(1, WebShape(hosts=2, pages=10, flaky=0.0))
    async with asyncio.TaskGroup() as group:
        swarm = SimSwarm(group, 1, config, web, Trace(now))
        host = swarm.add()
        node = await host.start([])
        crawls = []
        for salt in range(2):
            began = now()
            record = await host.submit(make_spec(web.seeds(), config.crawl), bytes([salt]) * 16)
            crawls.append(record.crawl_id)
            await until(partial(over, [host], record.crawl_id), 900.0)
            # The first has what the process used before, too.
            assert cpu_s(host, record.crawl_id) <= now() - began * bool(salt)
            await asyncio.sleep(60.0)
        first, before = crawls[0], cpu_s(host, crawls[0])
        began, known = now(), node.crawls.get(first)
        assert known is not None
        await node.crawls.publish(changed(known, RUNNING))
        await until(partial(over, [host], first), 900.0)
        assert before < cpu_s(host, first) <= before + now() - began
        await host.stop()
