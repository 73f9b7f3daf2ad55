"""A member says of all queued pages that they are over; their owners go on, and every page is fetched."""

from __future__ import annotations

import asyncio

import pytest

from dhtcrawl.closed.secret import SECRET_BYTES, Ring
from dhtcrawl.config import load
from dhtcrawl.rpc.tasks.messages import DeleteBackup, Request, StoreBackup
from dhtcrawl.rpc.tasks.rows import PlaceRow, RecordRow, TombstoneRow
from dhtcrawl.sim.net import Weather
from dhtcrawl.sim.pages import WebShape
from dhtcrawl.sim.swarm import SimConditions, SimHost, SimSwarm
from dhtcrawl.sim.trace import Trace
from dhtcrawl.sim.web import SimWeb
from dhtcrawl.spec import CrawlSpec, make_spec
from dhtcrawl.storage.store.crawl_record import COMPLETE
from dhtcrawl.storage.store.records import State
from dhtcrawl.swarm.records.end_trust import SETTLED_S

from .test_forged_numbers import all_active, until


def claims(spec: CrawlSpec, crawl: bytes, urls: list[str], node: bytes) -> list[Request]:
    """That these pages lie at the node, and that they are dead, each as a record and as a tombstone."""
    place = PlaceRow(node.hex(), "forged.warc.gz", 0, 9)
    found: list[Request] = []
    for state, reason, lies_at in ((State.DONE, "", place), (State.DEAD, "failed", None)):
        end = (int(state), 0, 1, reason, "", lies_at)
        rows = [RecordRow(spec.key_of(url), url, 1, urls[0], 0, False, 0, *end) for url in urls]
        found.append(StoreBackup(crawl, tuple(rows)))
        found.append(DeleteBackup(crawl, tuple(TombstoneRow(spec.key_of(url), *end) for url in urls)))
    return found


@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
async def test_a_member_that_says_of_all_queued_pages_that_they_are_over_loses_none_of_another_owners(
    closed: bool,
) -> None:
    config = load(flags={"crawl.delay_s": "1", "fetch.concurrency": 4})
    web = SimWeb(1, WebShape(hosts=3, pages=90, flaky=0.0))
    ring = Ring.of((bytes(SECRET_BYTES),)) if closed else None
    async with asyncio.TaskGroup() as group:
        trace = Trace(asyncio.get_running_loop().time)
        swarm = SimSwarm(group, 1, config, web, trace, SimConditions(weather=Weather(), ring=ring))
        hosts = [swarm.add() for _ in range(3)]
        for number, host in enumerate(hosts):
            await host.start(hosts[:number])
        await until(lambda: all_active(hosts))
        await asyncio.sleep(SETTLED_S)  # a swarm that has just come together is not the usual one
        *honest, liar = hosts
        record = await honest[0].submit(make_spec(web.seeds(), config.crawl), bytes(16))
        crawl, spec = record.crawl_id, record.spec
        assert liar.swarm is not None

        def queued(host: SimHost) -> int:
            run = None if host.swarm is None else host.swarm.runs.of(crawl)
            return 0 if run is None else len(run.parts.frontier)

        await until(lambda: all(queued(host) > 5 for host in honest))
        before = sum(map(queued, honest))
        urls = list(web.truth())
        view = liar.swarm.gossip.view
        own = {url for url in urls if (owner := view.owner(spec.key_of(url))) is not None and owner.id == liar.id}
        for host in honest:
            for claim in claims(spec, crawl, [url for url in urls if url not in own], liar.id):
                await liar.swarm.peers.ask(host.id, claim)
        assert sum(map(queued, honest)) >= before - 5, "but for what was fetched meanwhile"

        def ended() -> bool:
            crawls = [host.swarm.crawls.get(crawl) for host in honest if host.swarm is not None]
            return all(each is not None and each.ended == COMPLETE for each in crawls)

        await until(ended, 900.0)
        visited = {visit.url for visit in web.visits}
        assert [url for url in urls if url not in own | visited] == []
        for host in hosts:
            await host.stop()
