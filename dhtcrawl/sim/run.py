"""One simulation: a scenario and a seed in, a result out, the same every time.

A swarm is run by `dhtcrawl.sim.swarm_run`; here is one node by itself. It is
judged from outside its own books: the web knows what a right crawl finds and
remembers every request, and the archive is read record by record.
"""

from __future__ import annotations

import asyncio
from math import inf
from random import Random

from dhtcrawl.config import load
from dhtcrawl.errors import Exit
from dhtcrawl.sim import loop
from dhtcrawl.sim.outcome import brings, check_haste, check_outputs
from dhtcrawl.sim.scenario import Scenario, ScenarioResult
from dhtcrawl.sim.swarm_run import simulate_swarm
from dhtcrawl.sim.trace import TAIL_EVENTS, Trace
from dhtcrawl.sim.web import SimWeb
from dhtcrawl.sim.world import SimDisk, SimNode
from dhtcrawl.spec import CrawlSpec, make_spec
from dhtcrawl.storage.outputs.summary import Summary
from dhtcrawl.storage.store import catalog, fsck
from dhtcrawl.storage.store.txn import Txn


def simulate(scenario: Scenario, seed: int) -> ScenarioResult:
    """Run `scenario` with `seed` on a virtual clock."""
    return loop.run(_simulate(scenario, seed)) if scenario.nodes == 1 else simulate_swarm(scenario, seed)


async def _simulate(scenario: Scenario, seed: int) -> ScenarioResult:
    time = asyncio.get_running_loop().time
    web = SimWeb(seed, scenario.web())
    trace = Trace(time, tail=TAIL_EVENTS)
    config = load(flags={"fetch.concurrency": scenario.concurrency, "fetch.open_pages_max": scenario.open_pages})
    spec = make_spec(web.seeds(), scenario.settings(config.crawl))
    node = SimNode("node 0", seed, config, web, trace, commit_s=scenario.commit_s)
    rng = Random(f"{seed} crashes")
    violations: list[str] = []
    crashed = 0
    while True:
        crash_in_s = rng.expovariate(1 / scenario.crash_every_s) if crashed < scenario.crashes else inf
        left_s = scenario.duration_s - time() if scenario.duration_s else inf
        ended = await node.crawl_until(spec, min(crash_in_s, left_s))
        violations += _check_disk(node.disk, spec)
        if ended is not None or left_s <= crash_in_s:
            break
        crashed += 1
    in_flight = crashed * config.fetch.concurrency
    refetches = _refetches(web)
    if ended is not None:
        violations += _check_outcome(scenario, web, node.disk, *ended)
    if refetches > in_flight:
        violations.append(f"I8: {refetches} pages were fetched twice, but at most {in_flight} were in flight")
    return ScenarioResult(
        nodes=scenario.nodes,
        seed=seed,
        pages=ended[0].pages if ended is not None else 0,
        lost=ended[0].lost if ended is not None else 0,
        refetches=refetches,
        violations=violations,
        rpcs_per_page=0.0,
        virtual_seconds=round(time(), 6),
        trace_hash=trace.hash,
        crashes=crashed,
        faults={"crash": crashed} if crashed else {},
        stopped=ended is None,
        tail=trace.lines() if violations else [],
    )


def _check_disk(disk: SimDisk, spec: CrawlSpec) -> list[str]:
    """The store against itself and the archive, after a crash or at the end (I1–I3, I8)."""
    txn = Txn(disk.engine, {})
    problems = []
    for record in catalog.crawls(txn):
        findings = fsck.check(txn, record.crawl_id, spec, disk.outputs.archive)
        problems += [f"I3: {problem}" for problem in findings.problems]
    return problems


def _check_outcome(scenario: Scenario, web: SimWeb, disk: SimDisk, summary: Summary, exit_code: Exit) -> list[str]:
    """The outputs against the web, and the summary."""
    problems = check_outputs(web, disk.outputs, scenario.depth) + check_haste(web, scenario.delay_s)
    right = Exit.COMPLETE if web.brings_content() else Exit.NOTHING_FETCHED
    if exit_code is not right or not summary.complete:
        problems.append(f"I10: ended with {exit_code.name}, complete {summary.complete}")
    if summary.lost or summary.pages_missing or summary.politeness_violations:
        problems.append(f"I11: summary says lost {summary.lost}, pages_missing {summary.pages_missing}")
    return problems


def _refetches(web: SimWeb) -> int:
    """Requests that brought a page which an earlier one had brought."""
    asked: dict[str, int] = {}
    brought: dict[str, int] = {}
    for visit in web.visits:
        asked[visit.url] = asked.get(visit.url, 0) + 1
        brought[visit.url] = brought.get(visit.url, 0) + brings(web, visit.url, asked[visit.url])
    return sum(count - 1 for count in brought.values() if count)
