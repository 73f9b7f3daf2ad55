"""What befalls a simulated swarm, and when: drawn from the seed before anything runs."""

from __future__ import annotations

import asyncio
from random import Random

from dhtcrawl.sim.oracle import Oracle
from dhtcrawl.sim.scenario import Scenario
from dhtcrawl.sim.swarm import SimHost, SimSwarm

BOOTSTRAP_MAX = 8
# A node that stays away nearly as long as others wait for it counts as gone for good.
NEARLY_S = 10.0


class Faults:
    """Of one run; they end with the crawl."""

    def __init__(self, swarm: SimSwarm, oracle: Oracle, scenario: Scenario, seed: int) -> None:
        self.crashes = 0
        self.bodies_gone = False  # for longer than others wait for them
        self._swarm = swarm
        self._oracle = oracle
        self._scenario = scenario
        self._rng = Random(f"{seed} faults")
        self.leaving: list[SimHost] = []
        self._away = 0  # crashed, and to come back

    @property
    def busy(self) -> bool:
        """Whether somebody is on its way out, or back."""
        return bool(self._away or self.leaving)

    async def run(self) -> None:
        """Let them happen, one after another."""
        scenario = self._scenario
        kinds = ["crash"] * scenario.crashes + ["lose disk"] * scenario.disk_losses
        kinds += ["join"] * scenario.joins + ["leave"] * scenario.leaves
        self._rng.shuffle(kinds)
        for kind in kinds:
            await asyncio.sleep(self._rng.expovariate(1 / scenario.crash_every_s))
            if self._oracle.ended_at is not None:
                return
            self._oracle.step()
            if kind == "join":
                self._join()
            elif kind == "leave":
                self._leave()
            else:
                await self._crash(lose_disk=kind == "lose disk")

    def _join(self) -> None:
        up = self._swarm.up
        through = self._rng.sample(up, min(len(up), BOOTSTRAP_MAX))
        if through:
            self._swarm.add().begin(through)

    async def _crash(self, *, lose_disk: bool) -> None:
        scenario = self._scenario
        there = [host for host in self._swarm.up if host not in self.leaving]
        for_good = scenario.away_s < 0
        count = min(1 if lose_disk else scenario.crash_at_once, len(there) - for_good)
        away_long = for_good or scenario.away_s > scenario.holder_grace_s - NEARLY_S
        victims = self._rng.sample(there, max(0, count))
        self.bodies_gone = self.bodies_gone or lose_disk or away_long
        for host in victims:
            self._oracle.crashes(host, bodies_gone=lose_disk or away_long)
        for host in victims:
            self.crashes += 1
            await (host.lose_disk() if lose_disk else host.crash())
            if lose_disk:
                self._oracle.disk_lost(host)
            if not for_good:
                self._away += 1
                self._swarm.group.create_task(self._back(host))

    async def _back(self, host: SimHost) -> None:
        await asyncio.sleep(self._scenario.away_s)
        host.begin_again()
        self._away -= 1

    def _leave(self) -> None:
        there = [h for h in self._swarm.up if h not in self.leaving and h.swarm is not None and h.swarm.ready.is_set()]
        if len(there) > 1:
            host = self._rng.choice(there)
            self.leaving.append(host)
            self._swarm.group.create_task(self._leave_now(host))

    async def _leave_now(self, host: SimHost) -> None:
        handed_over = await host.leave()
        self._oracle.left(host, handed_over)
        self.leaving.remove(host)
