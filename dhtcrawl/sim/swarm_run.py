"""One simulated swarm: nodes join, one submits a crawl, faults happen, until it is complete; then it is judged.

While it runs the judge is `dhtcrawl.sim.oracle`. At the end the disks of those
who are there are gathered into one collection, which is held against the web.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from dhtcrawl.closed.secret import SECRET_BYTES, Ring
from dhtcrawl.config import Config, load
from dhtcrawl.sim import loop
from dhtcrawl.sim.bad_member import REST_MAX_S, BadMember
from dhtcrawl.sim.collection import collect
from dhtcrawl.sim.faults import LONGEST, Faults
from dhtcrawl.sim.ledger import Ledger
from dhtcrawl.sim.machines import machine, way_s
from dhtcrawl.sim.net import Weather
from dhtcrawl.sim.oracle import Oracle
from dhtcrawl.sim.outcome import check_lacking, check_outputs
from dhtcrawl.sim.scenario import Manner, Scenario, ScenarioResult, type_name
from dhtcrawl.sim.swarm import RATE_OFF, SimConditions, SimHost, SimSwarm, first_id
from dhtcrawl.sim.trace import TAIL_EVENTS, Trace
from dhtcrawl.sim.web import SimWeb
from dhtcrawl.sim.wires import Wires, read_matrix
from dhtcrawl.spec import CrawlSpec
from dhtcrawl.storage.collect.foreign import BadRow
from dhtcrawl.storage.outputs.outputs import OutputDirs
from dhtcrawl.storage.store.crawl_signatures import nonce_of
from dhtcrawl.swarm.membership.neighbourhood import SILENT_S

STEP_S = 0.5
SALT = bytes(16)
# How long after the end a node that is there may not know of it.
TOLD_S = 30.0
SECOND_LOOK_S = 2.0
STOPPED_IN_S = 120.0
# The drain and the hand-over, and a crashed node's way back.
OUT_IN_S = 300.0
# What may be waited for on purpose: suspicion, sync, robots and retry backoff.
PATIENCE_S = 30.0
# A bad member can hold up what it owns, and so the end: when nothing has moved for so long, the rest is there. A
# newcomer that it does not answer goes on without it sooner.
HELD_UP_S = SILENT_S + PATIENCE_S


def simulate_swarm(scenario: Scenario, seed: int) -> ScenarioResult:
    """Run `scenario` with `seed` on a virtual clock."""
    flags: dict[str, object] = {
        "fetch.concurrency": scenario.concurrency,
        "fetch.open_pages_max": scenario.open_pages,
        "swarm.holder_grace_s": f"{scenario.holder_grace_s}s",
    }
    if scenario.bad_member == Manner.INVENTS:
        flags |= dict.fromkeys(("politeness.retry_after_max_s", "politeness.backoff_max_s"), f"{REST_MAX_S}s")
    config = load(flags=flags)
    web = SimWeb(seed, scenario.web())
    run = SwarmRun(scenario, seed, config, web, scenario.spec(web.seeds(), config.crawl))
    try:
        loop.run(run.run())
    except loop.Deadlock as deadlock:
        run.result.violations.append(f"I13: {deadlock}")
    return run.result


class SwarmRun:
    """One swarm and what befalls it; to be made and run on a virtual loop."""

    def __init__(self, scenario: Scenario, seed: int, config: Config, web: SimWeb, spec: CrawlSpec) -> None:
        self._scenario = scenario
        self._seed = seed
        self._config = config
        self._web = web
        self._spec = spec
        submitter = first_id(seed, min(1, scenario.nodes - 1))
        self._crawl = spec.crawl_id(nonce_of(submitter, SALT))
        self._told_at: float | None = None  # since when all know of the end
        self.result = ScenarioResult(scenario.nodes, seed, 0, 0, 0, [], 0.0, 0.0, "")

    async def run(self) -> None:
        """From the first node's start to the judgement; `result` has what was found.

        Raises:
            CancelledError: it was interrupted.
        """
        time = asyncio.get_running_loop().time
        trace = Trace(time, tail=TAIL_EVENTS)
        try:
            async with asyncio.TaskGroup() as group:
                await self._live(group, trace)
        except BaseExceptionGroup as errors:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise asyncio.CancelledError from None  # Ctrl-C; what nodes said to it is no news
            failed, worse = errors.split(Exception)
            if worse is not None:
                raise worse from None
            # A node that fails is what a simulation is for.
            if failed is not None:
                self.result.violations.extend(f"failed: {each!r}" for each in _leaves(failed))
        tail = trace.lines() if self.result.violations else []
        self._found(virtual_seconds=round(time(), 6), trace_hash=trace.hash, tail=tail)

    def _found(self, **fields: Any) -> None:
        self.result = dataclasses.replace(self.result, **fields)

    async def _live(self, group: asyncio.TaskGroup, trace: Trace) -> None:
        scenario, bad = self._scenario, self._bad_member()
        low, high = min(0.01, scenario.latency_s), scenario.latency_s
        weather = Weather(loss=scenario.loss, duplication=scenario.duplication, late_s=scenario.late_s)
        matrix = read_matrix(Path(scenario.latency_matrix)) if scenario.latency_matrix else None
        far = scenario.uneven and scenario.spread_s > 0
        way_of = partial(way_s, self._seed, spread_s=scenario.spread_s) if far else None
        swarm = SimSwarm(
            group,
            self._seed,
            self._config,
            self._web,
            trace,
            SimConditions(
                weather=weather,
                wires=Wires(self._seed, (low, high), matrix, way_of),
                bytes_per_s=scenario.bytes_per_s,
                commit_s=scenario.commit_s,
                skew_s=scenario.skew_s,
                machine_of=partial(
                    machine,
                    self._seed,
                    machines=scenario.nodes,
                    hosts=self._web.hosts,
                    unevenness=scenario.unevenness(),
                )
                if scenario.uneven
                else None,
                ring=Ring.of((Random(f"{self._seed} secret").randbytes(SECRET_BYTES),)) if scenario.closed else None,
                type_of=partial(type_name, types=scenario.node_types) if scenario.node_types else None,
                handler_of=None if bad is None else bad.handler_of,
            ),
        )
        oracle = Oracle(swarm, self._spec, self._crawl, bad)
        swarm.witness = oracle
        self._found(violations=oracle.violations)
        faults = Faults(swarm, oracle, scenario, self._seed)
        submitter = await self._gather_nodes(swarm, faults)
        if bad is not None:
            bad.begin()
        await submitter.submit(self._spec, SALT)
        submitted_at = asyncio.get_running_loop().time()
        befalling = group.create_task(faults.run())
        inventing = None if bad is None else group.create_task(bad.run(swarm.hosts))
        while not (self._over(swarm, oracle, faults) or oracle.ends.stuck(self._waits_s) or self._is_late()):
            await asyncio.sleep(STEP_S)
            oracle.step()
        befalling.cancel()
        if inventing is not None:
            inventing.cancel()
        self._found(faults=faults.toll.happened)
        await self._calm(oracle, faults)
        faults.over = True
        if oracle.ended_at is not None:
            self._found(crawl_seconds=round(oracle.ended_at - submitted_at, 6))
        there = [host for host in swarm.up if host not in faults.leaving]
        for host in list(swarm.up):
            await (self._stop(host, oracle) if host in there else host.crash())
        self._judge(swarm, oracle, faults, there)

    def _bad_member(self) -> BadMember | None:
        """The last of the nodes that are there from the beginning, if one of them is to be bad."""
        manner = self._scenario.bad_member
        if not manner:
            return None
        return BadMember(f"node {self._scenario.nodes - 1}", Manner(manner), self._seed, self._crawl, self._spec)

    async def _calm(self, oracle: Oracle, faults: Faults) -> None:
        """Wait for those who are on their way back, or out."""
        try:
            async with asyncio.timeout(OUT_IN_S):
                while faults.busy:  # noqa: ASYNC110 - virtual time
                    await asyncio.sleep(STEP_S)
        except TimeoutError:
            names = ", ".join(host.name for host in faults.leaving)
            oracle.broken("I13", f"{OUT_IN_S:.0f} s after the end these still leave: {names}")

    async def _stop(self, host: SimHost, oracle: Oracle) -> None:
        try:
            async with asyncio.timeout(STOPPED_IN_S):
                await host.stop()
        except TimeoutError:
            oracle.broken("I13", f"{host.name} was told to stop, and has not")

    async def _gather_nodes(self, swarm: SimSwarm, faults: Faults) -> SimHost:
        """All nodes are there; one that may submit."""
        nodes, hidden = self._scenario.nodes, self._scenario.hidden
        first, *others = [swarm.add(hidden=number >= max(1, nodes - hidden)) for number in range(nodes)]
        faults.prepare()
        await first.start([])
        for host in others:
            host.begin([first])
        for host in others:
            await host.joined()
        return others[0] if others else first

    @property
    def _waits_s(self) -> float:
        """How long nothing may get further, and all be well."""
        scenario = self._scenario
        longest = scenario.crash_every_s * 5 + max(0.0, scenario.away_s) + PATIENCE_S
        if scenario.partitions or scenario.one_way:
            longest += LONGEST * scenario.partition_s
        if scenario.pauses:
            longest += LONGEST * scenario.pause_s
        gone = scenario.crashes + scenario.disk_losses + scenario.churn_every_s
        return longest + (scenario.holder_grace_s if gone else 0.0)

    def _is_late(self) -> bool:
        duration_s = self._scenario.duration_s
        self._found(stopped=0 < duration_s <= asyncio.get_running_loop().time())
        return self.result.stopped

    def _over(self, swarm: SimSwarm, oracle: Oracle, faults: Faults) -> bool:
        now = asyncio.get_running_loop().time()
        if oracle.bad is not None and not faults.busy and now - max(oracle.ledger.moved_at, faults.at) > HELD_UP_S:
            return True
        if oracle.ended_at is None:
            return False
        ignorant = [host.name for host in swarm.up if not (oracle.is_bad(host) or self._knows_the_end(host))]
        late = not faults.busy and asyncio.get_running_loop().time() - self._quiet_since(oracle, faults) > TOLD_S
        if late and ignorant:
            oracle.broken("I10", f"{TOLD_S:.0f} s after the end these do not know of it: {', '.join(ignorant)}")
        if ignorant:
            self._told_at = None
            return late
        # A node that has just heard of it may find that it has work after all.
        self._told_at = now if self._told_at is None else self._told_at
        return now - self._told_at >= SECOND_LOOK_S

    @staticmethod
    def _quiet_since(oracle: Oracle, faults: Faults) -> float:
        assert oracle.ended_at is not None, "it has ended, at least once"
        return max(oracle.ended_at, faults.at, oracle.ledger.moved_at)

    def _knows_the_end(self, host: SimHost) -> bool:
        if host.swarm is None or not host.swarm.ready.is_set() or host.swarm.join.state.busy:
            return False
        record = host.swarm.crawls.get(self._crawl)
        return record is not None and record.ended != "" and host.swarm.runs.of(self._crawl) is None

    # Judging

    def _judge(self, swarm: SimSwarm, oracle: Oracle, faults: Faults, there: list[SimHost]) -> None:
        """Judge the end, once no node runs any more; what those that were there left is what a user gets."""
        scenario, toll = self._scenario, faults.toll
        self._found(crashes=toll.crashes, bodies_lost=toll.bodies_lost, refetched=self._web.refetched())
        if self.result.stopped and oracle.bad is None:
            return
        self._found(refetches=oracle.fetched.refetches)
        there = [host for host in there if not oracle.is_bad(host)]
        oracle.copies.at_the_end(there)
        oracle.ends.in_time(PATIENCE_S + (scenario.holder_grace_s if faults.toll.bodies_gone else 0.0))
        try:
            dirs, totals, _ = collect([(host.id, host.disk) for host in there], self._crawl, self._spec)
        except BadRow as error:
            oracle.broken("I8", f"the disks cannot be gathered: {error}")
            return
        self._found(pages=totals.pages, lost=totals.lost, pages_missing=totals.pages_missing)
        if totals.pages:
            self._found(
                rpcs_per_page=round((oracle.messages + swarm.datagrams.sent) / totals.pages, 2),
                records_per_page=round(swarm.tally.records_moved / totals.pages, 2),
                frames_per_page=round(swarm.tally.record_frames / totals.pages, 2),
            )
        # A clock that is off may also run fast: what is the delay for its node is less for the host.
        rate = 1 - RATE_OFF if scenario.skew_s else 1

        def delay_of(host: str) -> float:
            return rate * scenario.delay_of(self._spec, host)

        if oracle.bad is not None:
            self._found(politeness_exceptions=oracle.fetched.haste(delay_of, oracle.bad.keeps_gate))
            self.judge_lacking(dirs, oracle.ledger, oracle.bad)
            return
        self._found(politeness_exceptions=oracle.fetched.haste(delay_of))
        found = check_outputs(self._web, dirs, scenario.depth)
        if totals.lost or totals.pages_missing or totals.pending or totals.unsettled:
            found.append(f"I11: the collection lacks something: {totals}")
        self.result.violations.extend(found)

    def judge_lacking(self, dirs: OutputDirs, ledger: Ledger, bad: BadMember) -> None:
        """What is held up is there, and would go on: pages that wait, and what only these lead to."""
        web, depth = self._web, self._scenario.depth
        held_up = ledger.waiting | ledger.unsent
        lacking = check_lacking(web, dirs, depth, bad.may_be_lost)
        lost = check_lacking(web, dirs, depth, lambda url: url in held_up or bad.may_be_lost(url))
        self._found(lost=len(lost), held_up=len(lacking) - len(lost))
        self.result.violations.extend(f"I3: {url} was not fetched" for url in lost)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error
