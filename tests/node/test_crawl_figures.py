"""How often a node asks for the figures of a crawl, and what it tells of them later."""

from __future__ import annotations

import asyncio
from typing import Any

from storage.stores import SPEC
from swarm.fake_peers import FakePeers, node, view_of

from dhtcrawl.node.crawl_figures import CrawlFiguresAsked
from dhtcrawl.rpc.tasks.events import Failure, FailureKind
from dhtcrawl.sim.loop import VirtualClock
from dhtcrawl.storage.store.crawl_record import CrawlRecord, changed

RECORD = CrawlRecord(SPEC.crawl_id(bytes(16)), SPEC, bytes(16))


def figures(pages: int, rows: bool) -> dict[str, Any]:
    row: tuple[Any, ...] = (node(0), 0, True, {"pages": pages}, {}, None)
    return {"counters": {"pages": pages}, "waiting": {}, "nodes": (row,) if rows else (), "nodes_total": 1}


def asked_by(peers: FakePeers) -> CrawlFiguresAsked:
    peers.calls["crawl_progress"] = lambda args: figures(len(peers.called), bool(args.get("nodes")))
    return CrawlFiguresAsked(lambda: peers, VirtualClock(asyncio.get_running_loop()))


async def test_the_list_of_crawls_and_a_crawl_that_is_watched_share_one_question_a_second() -> None:
    peers = FakePeers(view_of(range(3)))
    asked = asked_by(peers)
    counts = []
    for _ in range(5):  # as the dashboard does
        async with asyncio.TaskGroup() as group:
            listed = group.create_task(asked.of(RECORD, nodes=False))
            watched = group.create_task(asked.of(RECORD, nodes=True))
        again = await asked.of(RECORD, nodes=False)
        assert watched.result()["per_node"][0]["counters"]["pages"] == again["counters"]["pages"]
        assert listed.result()["counters"]["queued"] == 0, "what is 0 is told to people"
        counts.append(len(peers.called))
        await asyncio.sleep(1.0)
    assert counts == [2, 3, 4, 5, 6], "the first does not know yet that rows are wanted, too"
    await asyncio.sleep(3.0)
    await asked.of(RECORD, nodes=False)
    assert not peers.called[-1][2].get("nodes"), "nobody watches it any more"


async def test_members_are_asked_once_about_a_crawl_that_has_ended_and_the_row_of_one_that_goes_stays() -> None:
    peers = FakePeers(view_of(range(3)))
    asked = asked_by(peers)
    ended = changed(RECORD, RECORD.state, ended="complete", totals={"pages": 9})
    for _ in range(5):
        rows = (await asked.of(ended, nodes=True))["per_node"]
        assert [(row["counters"]["pages"], row["state"]) for row in rows] == 3 * [(3, "active")]
        await asyncio.sleep(1.0)
    assert len(peers.called) == 3
    peers.view = view_of(range(2))
    await asyncio.sleep(30.0)
    told = await asked.of(ended, nodes=True)
    assert [row["state"] for row in told["per_node"]] == ["active", "active", "gone"]
    assert told["per_node"][2]["counters"]["pages"] == 3
    assert told["per_node"][2]["heard_s"] >= 30.0
    assert told["counters"]["pages"] == 9


async def test_figures_stay_with_their_age_while_the_coordinator_does_not_answer() -> None:
    peers = FakePeers(view_of(range(3)))
    asked = asked_by(peers)
    first = await asked.of(RECORD, nodes=True)
    peers.calls["crawl_progress"] = lambda _: Failure(FailureKind.TIMEOUT, "no answer", sent=True)
    await asyncio.sleep(5.0)
    later = await asked.of(RECORD, nodes=True)
    assert later["counters"] == first["counters"]
    assert later["as_of_s"] >= 5.0
    assert later["standing"]["reason"] == "silent"
    assert later["per_node"][0]["state"] == "silent"
