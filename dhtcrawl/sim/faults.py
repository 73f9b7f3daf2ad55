"""What befalls a simulated swarm, and when: drawn from the seed before anything runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random

from dhtcrawl.sim.oracle import Oracle
from dhtcrawl.sim.scenario import Scenario
from dhtcrawl.sim.swarm import BOOTSTRAP_MAX, SimHost, SimSwarm

# A node that stays away nearly as long as others wait for it counts as gone for good.
NEARLY_S = 10.0
# With three copies of a record, so many disks and no more may be lost while copies are made again.
LOSSES_MAX = 2
REPAIR_S = 60.0
# Partitions and pauses last up to so many times their average.
LONGEST = 4.0


@dataclass(slots=True)
class FaultCounters:
    """What the faults of one run have done."""

    crashes: int = 0
    bodies_lost: int = 0  # pages that lay only on disks which were lost
    happened: dict[str, int] = field(default_factory=dict)  # of each kind, how many
    bodies_gone: bool = False  # for longer than others wait for them


@dataclass(slots=True)
class _Lasting:
    """Faults that began and are not over."""

    away: int = 0  # crashed, and to come back
    paused: int = 0
    cut: bool = False


class Faults:
    """The faults of one run; they end with the crawl."""

    def __init__(self, swarm: SimSwarm, oracle: Oracle, scenario: Scenario, seed: int) -> None:
        self.toll = FaultCounters()
        self.at = 0.0  # when the last fault happened, or ended
        self.leaving: list[SimHost] = []
        self.over = False  # no node is started any more
        self._swarm = swarm
        self._oracle = oracle
        self._scenario = scenario
        self._rng = Random(f"{seed} faults")
        self._lasting = _Lasting()
        self._losses: list[float] = []

    @property
    def busy(self) -> bool:
        """Whether a node is on its way out, or back, or out of reach."""
        return bool(self._lasting.away or self.leaving or self._lasting.paused or self._lasting.cut)

    def prepare(self) -> None:
        for host in self._rng.sample(self._swarm.hosts, min(self._scenario.slow_nodes, len(self._swarm.hosts))):
            host.slow_down()

    async def run(self) -> None:
        scenario = self._scenario
        kinds: list[tuple[str, int, Callable[[], Awaitable[bool]]]] = [
            ("crash", scenario.crashes, self._crash),
            ("lose disk", scenario.disk_losses, self._lose_disk),
            ("join", scenario.joins, self._join),
            ("leave", scenario.leaves, self._leave),
            ("partition", scenario.partitions, partial(self._divide, one_way=False)),
            ("one way", scenario.one_way, partial(self._divide, one_way=True)),
            ("pause", scenario.pauses, self._pause),
            ("disk error", scenario.disk_errors, self._fail_disk),
        ]
        todo = [(name, befall) for name, count, befall in kinds for _ in range(count)]
        self._rng.shuffle(todo)
        if scenario.faults_from_s:
            await asyncio.sleep(scenario.faults_from_s)
        for name, befall in todo:
            await asyncio.sleep(self._rng.expovariate(1 / scenario.crash_every_s))
            if self._oracle.ended_at is not None:
                return
            self._oracle.step()
            if scenario.skew_s and self._swarm.up:
                self._rng.choice(self._swarm.up).jump(self._rng.uniform(-scenario.skew_s, scenario.skew_s))
            self._now()
            if await befall():
                self.toll.happened[name] = self.toll.happened.get(name, 0) + 1
        await self._churn()

    async def _churn(self) -> None:
        """One crashes and one joins, again and again, while there is work."""
        while self._scenario.churn_every_s > 0:
            await asyncio.sleep(self._scenario.churn_every_s)
            if self._oracle.ended_at is not None or not self._oracle.work_left:
                return
            self._oracle.step()
            self._now()
            happened = await self._crash() and await self._join()
            self.toll.happened["churn"] = self.toll.happened.get("churn", 0) + happened

    async def _join(self) -> bool:
        up = [host for host in self._awake() if not host.hidden]
        through = self._rng.sample(up, min(len(up), BOOTSTRAP_MAX))
        if through:
            self._swarm.add().begin(through)
        return bool(through)

    async def _crash(self) -> bool:
        scenario = self._scenario
        there = [host for host in self._swarm.up if host not in self.leaving]
        for_good = scenario.away_s < 0
        away_long = for_good or scenario.away_s > scenario.holder_grace_s - NEARLY_S
        victims = self._rng.sample(there, max(0, min(scenario.crash_at_once, len(there) - for_good)))
        self.toll.bodies_gone = self.toll.bodies_gone or (away_long and bool(victims))
        for host in victims:
            self._oracle.crashes(host, bodies_gone=away_long)
        for host in victims:
            await host.crash()
            self._gone(host, scenario.away_s)
        return bool(victims)

    async def _lose_disk(self) -> bool:
        now = asyncio.get_running_loop().time()
        self._losses = [at for at in self._losses if now - at < REPAIR_S]
        there = [host for host in self._swarm.up if host not in self.leaving]
        at_once = self._scenario.disk_losses_at_once
        if (at_once == 1 and len(self._losses) >= LOSSES_MAX) or len(there) <= at_once:
            return False
        victims = self._rng.sample(there, at_once)
        self._losses += [now] * at_once
        left: set[bytes] = set().union(*(host.bodies() for host in self._swarm.hosts if host not in victims))
        self.toll.bodies_lost += len(set().union(*(host.bodies() for host in victims)) - left)
        self.toll.bodies_gone = True
        for host in victims:
            self._oracle.crashes(host, bodies_gone=True)
        for host in victims:
            await host.lose_disk()
            self._oracle.disk_lost(host)
            self._gone(host, self._scenario.away_s)
        return True

    def _gone(self, host: SimHost, away_s: float) -> None:
        self.toll.crashes += 1
        if away_s >= 0:
            self._lasting.away += 1
            self._swarm.group.create_task(self._back(host, away_s))

    async def _back(self, host: SimHost, away_s: float) -> None:
        await asyncio.sleep(away_s)
        if not self.over:
            host.begin_again()
        self._lasting.away -= 1
        self._now()

    async def _leave(self) -> bool:
        there = [host for host in self._awake() if host.swarm is not None and host.swarm.ready.is_set()]
        if len(there) < 2:
            return False
        host = self._rng.choice(there)
        self.leaving.append(host)
        self._swarm.group.create_task(self._leave_now(host))
        return True

    async def _leave_now(self, host: SimHost) -> None:
        cut_off = self._lasting.cut
        handed_over = await host.leave()
        # A node that is out of reach may find no heir for its pages: the others wait for them in vain.
        self.toll.bodies_gone = self.toll.bodies_gone or cut_off or self._lasting.cut
        if not host.disk_full:  # it has handed over, and lost its last page: that is told where the disk failed
            self._oracle.left(host, handed_over)
        self._now()
        self.leaving.remove(host)

    async def _divide(self, *, one_way: bool) -> bool:
        hosts = self._swarm.hosts
        if self._lasting.cut or len(hosts) < 2:
            return False
        few = self._rng.sample(hosts, self._rng.randint(1, len(hosts) // 2))
        many = [host for host in hosts if host not in few]
        self._lasting.cut = True
        self._swarm.trace.event("partition", few=[host.id for host in few], one_way=one_way)
        self._swarm.wires.partition(
            [host.address for host in few], one_way=self._rng.choice(("out", "in")) if one_way else ""
        )
        self._oracle.partitions([few, many], one_way)
        self._swarm.group.create_task(self._heal(self._duration(self._scenario.partition_s)))
        return True

    async def _heal(self, after_s: float) -> None:
        await asyncio.sleep(after_s)
        self._swarm.streams.heal()
        self._swarm.trace.event("heal")
        self._lasting.cut = False
        self._oracle.healed()
        self._now()

    async def _pause(self) -> bool:
        there = self._awake()
        if not there:
            return False
        host = self._rng.choice(there)
        self._oracle.pauses(host)
        host.pause()
        self._lasting.paused += 1
        self._swarm.group.create_task(self._resume(host, self._duration(self._scenario.pause_s)))
        return True

    async def _resume(self, host: SimHost, after_s: float) -> None:
        starts = host.starts
        await asyncio.sleep(after_s)
        self._lasting.paused -= 1
        self._now()
        if host.paused and host.starts == starts:
            host.resume()
            self._oracle.resumes(host)

    async def _fail_disk(self) -> bool:
        there = self._awake()
        if len(there) < 2:
            return False
        host = self._rng.choice(there)
        self._lasting.away += 1
        self._swarm.group.create_task(self._fail_disk_now(host))
        return True

    async def _fail_disk_now(self, host: SimHost) -> None:
        starts = host.starts
        if await host.fail_disk():
            self.toll.crashes += 1
            self._oracle.disk_failed(host)
            await asyncio.sleep(max(0.0, self._scenario.away_s))
            if host.starts == starts and not self.over:
                host.begin_again()
        self._lasting.away -= 1
        self._now()

    def _duration(self, average_s: float) -> float:
        return min(LONGEST * average_s, self._rng.expovariate(1 / average_s))

    def _now(self) -> None:
        self.at = asyncio.get_running_loop().time()

    def _awake(self) -> list[SimHost]:
        return [host for host in self._swarm.up if host not in self.leaving and not host.paused]
