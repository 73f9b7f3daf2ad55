"""Who owns a key, asked of a thousand nodes of the routing plane, before and after a fifth of them dies at once.

All nodes run in this process, on a virtual clock and datagrams in memory; the
nodes are the real ones (`dhtcrawl.rpc.discovery.server`), without membership, which
would know the owner without asking. They join in waves, each as large as the
swarm is by then, each through three random nodes. Then look-ups for the owner of random
keys begin at random nodes, spread over ten seconds: before the kill, in the
ten seconds after it, and in the ten after those. One is right when it names
the closest of the nodes that live, within ten seconds.

With --made-up there is no kill: somebody makes so many contacts up, all in one network (scripts/made_up_contacts.py),
first silent ones that a node of the swarm names to whoever asks it (--liars says how many do), then such as
answer. The keys are those whose closest of all that answer is a node of the swarm.

    python scripts/bench_lookups.py [--nodes N ...] [--made-up N [--liars N]] [--seed S] [--quick] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import sys
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import benchmark
import ended
from made_up_contacts import MadeUpContacts

from dhtcrawl.rpc.discovery.server import RoutingServer
from dhtcrawl.sim.loop import VirtualClock, VirtualLoop, on_host, run
from dhtcrawl.sim.net import DatagramNetwork, Weather

NODES, QUICK_NODES = (100, 250, 1000), (100, 250)
# One way 10 to 80 ms, drawn for each pair of nodes, and one datagram of a hundred lost.
WEATHER = Weather(loss=0.01)
KILLED = 0.2
WITHIN_S = 10.0
LOOK_UPS = 2000
RIGHT_MIN, MEDIAN_S_MAX, RPCS_MAX = 0.995, 0.5, 6.0
MADE_UP_RIGHT_MIN = 0.99
# A newcomer is told of so many; a single one may seem not to be there, by loss alone.
THROUGH = 3
# After a wave, until its pings are answered.
PAUSE_S = 1.0
_PORT = 8468


@dataclass(frozen=True, slots=True)
class Phase:
    """Ten seconds of look-ups; times are virtual, but for the CPU's."""

    name: str
    right: float  # the share of all
    median_s: float
    p99_s: float
    rpcs: float  # a look-up
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Joining:
    """How the swarm came together."""

    nodes: int
    virtual_s: float
    datagrams: float  # a node
    cpu_s: float


class Swarm:
    """Nodes of the routing plane, and nothing else."""

    def __init__(self, group: asyncio.TaskGroup, seed: int, weather: Weather) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.net = DatagramNetwork(loop, seed, weather)
        loop.network = self.net
        self.nodes: list[RoutingServer] = []  # those that live
        self.liars: list[RoutingServer] = []  # the first of them, which are not asked to look up
        self._loop = loop
        self._group = group
        self._seed = seed
        self._rng = Random(f"{seed} swarm")

    async def join(self, count: int) -> Joining:
        """That many nodes, in waves that double the swarm."""
        began_s = time.process_time()
        while len(self.nodes) < count:
            there = list(self.nodes)
            wave = [await self._start(number) for number in range(len(there), min(count, 2 * len(there) or 1))]
            async with asyncio.TaskGroup() as group:
                for node in wave if there else []:
                    through = self._rng.sample(there, min(len(there), THROUGH))
                    group.create_task(node.bootstrap([other.address for other in through]))
            self.nodes += wave
            await asyncio.sleep(PAUSE_S)
        return Joining(count, self._loop.time(), self.net.sent / count, time.process_time() - began_s)

    def kill(self, share: float) -> None:
        """A share of them is gone, from one moment to the next."""
        for node in self._rng.sample(self.nodes, round(share * len(self.nodes))):
            self.nodes.remove(node)
            self.net.crash(node.address[0])
            node.stop()

    async def look_up(self, name: str, count: int, besides: Sequence[int] = ()) -> Phase:
        """So many look-ups, begun within `WITHIN_S`; for keys that none of `besides` is closer to than our nodes."""
        began_s, asked, began = time.process_time(), self._asked(), self._loop.time()
        live = [int.from_bytes(node.node.id, "big") for node in self.nodes]
        askers = self.nodes[len(self.liars) :]

        def draw() -> bytes:
            while True:
                key = self._rng.randbytes(20)
                distance = int.from_bytes(key, "big").__xor__
                if not besides or min(map(distance, live)) < min(map(distance, besides)):
                    return key

        times: list[float] = []
        right = 0

        async def one(node: RoutingServer, key: bytes, after_s: float) -> None:
            nonlocal right
            await asyncio.sleep(after_s)
            at = self._loop.time()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WITHIN_S):
                    owner = await node.find_owner(key)
                    right += owner.number == min(live, key=int.from_bytes(key, "big").__xor__)
            times.append(self._loop.time() - at)

        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                key = draw()
                group.create_task(one(self._rng.choice(askers), key, self._rng.uniform(0, WITHIN_S)))
        # So that what follows begins as long after the kill with any latency.
        await asyncio.sleep(max(0.0, began + WITHIN_S - self._loop.time()))
        times.sort()
        rpcs = (self._asked() - asked) / count
        cpu_s = time.process_time() - began_s
        return Phase(name, right / count, times[count // 2], times[count * 99 // 100], rpcs, cpu_s)

    def stop(self) -> None:
        """All of them."""
        for node in self.nodes:
            node.stop()

    def _asked(self) -> int:
        return sum(node.plane.counters.lookup_calls for node in self.nodes)

    async def _start(self, number: int) -> RoutingServer:
        host = f"10.0.{number // 250}.{number % 250 + 1}"
        with on_host(host):
            node = RoutingServer(
                Random(f"{self._seed} id {number}").randbytes(20),
                clock=VirtualClock(self._loop),
                rng=Random(f"{self._seed} node {number}"),
            )
            await node.listen(_PORT)
            self._group.create_task(node.run())
        return node


async def measure(nodes: int, seed: int, weather: Weather, look_ups: int) -> tuple[Joining, list[Phase]]:
    """Join, look up, kill, look up twice."""
    async with asyncio.TaskGroup() as group:
        swarm = Swarm(group, seed, weather)
        try:
            joining = await swarm.join(nodes)
            phases = [await swarm.look_up("before", look_ups)]
            swarm.kill(KILLED)
            phases += [await swarm.look_up(name, look_ups) for name in ("0-10 s after", "10-20 s after")]
        finally:
            swarm.stop()
    return joining, phases


async def measure_made_up(
    nodes: int, made_up: int, seed: int, look_ups: int, *, answering: bool, liars: int
) -> tuple[Joining, list[Phase]]:
    """Join, look up, and look up again while contacts that somebody made up say that they are there."""
    async with asyncio.TaskGroup() as group:
        swarm = Swarm(group, seed, WEATHER)
        introducing: asyncio.Task[None] | None = None
        try:
            joining = await swarm.join(nodes)
            phases = [await swarm.look_up("before", look_ups)]
            contacts = MadeUpContacts(seed, made_up, answering=answering)
            await contacts.listen()
            swarm.liars = swarm.nodes[:liars]
            for liar in swarm.liars:
                contacts.tell(liar)
            introducing = group.create_task(contacts.introduce(swarm.nodes))
            besides = [contact.number for contact in contacts.contacts] if answering else []
            what = "made up, answering" if answering else "made up, silent"
            phases += [await swarm.look_up(f"{what}, {10 * number} s", look_ups, besides) for number in (1, 2)]
        finally:
            if introducing is not None:
                introducing.cancel()
            swarm.stop()
    return joining, phases


def experiment(
    nodes: int, seed: int, weather: Weather = WEATHER, look_ups: int = LOOK_UPS
) -> tuple[Joining, list[Phase]]:
    """The same, on a virtual loop of its own; the same seed is the same run."""
    return _on_a_loop_of_its_own(measure(nodes, seed, weather, look_ups))


def made_up_experiment(
    nodes: int, made_up: int, seed: int, look_ups: int = LOOK_UPS, *, answering: bool, liars: int = 0
) -> tuple[Joining, list[Phase]]:
    """With contacts that are made up in place of a kill; so many `liars` name no others."""
    return _on_a_loop_of_its_own(measure_made_up(nodes, made_up, seed, look_ups, answering=answering, liars=liars))


def _on_a_loop_of_its_own(
    measuring: Coroutine[Any, Any, tuple[Joining, list[Phase]]],
) -> tuple[Joining, list[Phase]]:
    thresholds = gc.get_threshold()
    # A million objects live, few of them in cycles: collecting as often as Python does takes a third of the time.
    gc.set_threshold(100_000, *thresholds[1:])
    try:
        return run(measuring)
    finally:
        gc.set_threshold(*thresholds)


def rows_of(
    joining: Joining, phases: Sequence[Phase], look_ups: int, right_min: float = RIGHT_MIN
) -> list[benchmark.Row]:
    """Rows of the report; the targets are the issue's, for the ten seconds after the kill and hence for the others."""
    rows = []
    for phase in phases:
        name = f"{joining.nodes} nodes, {phase.name}"
        for what, value, target, unit, ok in (
            ("right", 100 * phase.right, 100 * right_min, "%", phase.right >= right_min),
            ("p50", phase.median_s, MEDIAN_S_MAX, "s", phase.median_s < MEDIAN_S_MAX),
            ("p99", phase.p99_s, None, "s", True),
            ("RPCs a look-up", phase.rpcs, RPCS_MAX, "", phase.rpcs <= RPCS_MAX),
        ):
            rows.append(row(f"{name}: {what}", target, value, unit, look_ups, ok))
    rows.append(row(f"{joining.nodes} nodes: datagrams a join", None, joining.datagrams, "", joining.nodes, True))
    cpu_ms = 1000 * joining.cpu_s / joining.nodes
    rows.append(row(f"{joining.nodes} nodes: CPU a join", None, cpu_ms, "ms", joining.nodes, True))
    return rows


def row(name: str, target: float | None, measured: float, unit: str, samples: int, ok: bool) -> benchmark.Row:
    """One row of the report."""
    claim = "" if target is None else f"{target:g}"
    return benchmark.row(
        name, float(f"{measured:.4g}"), unit, samples, by=benchmark.SIMULATED, claim=claim, target=target, ok=ok,
        digits=9,
    )  # fmt: skip


def show(joining: Joining, phases: Sequence[Phase]) -> None:
    """A table, for people."""
    joined = f"joined in {joining.virtual_s:.0f} virtual s, {joining.datagrams:.0f} datagrams"
    print(
        f"{joining.nodes} nodes: {joined} and {1000 * joining.cpu_s / joining.nodes:.0f} ms of CPU each",
        file=sys.stderr,
    )
    print(f"  {'':26}{'right %':>9}{'p50 s':>9}{'p99 s':>9}{'RPCs a look-up':>16}{'CPU s':>8}", file=sys.stderr)
    for phase in phases:
        print(
            f"  {phase.name:26}{100 * phase.right:9.2f}{phase.median_s:9.3f}{phase.p99_s:9.3f}"
            f"{phase.rpcs:16.2f}{phase.cpu_s:8.1f}",
            file=sys.stderr,
        )


def main() -> int:
    """Measure, print, write; 0 only when every row with a target is ok."""
    parser = argparse.ArgumentParser(description="Right answers, times and RPCs of look-ups before and after a kill.")
    parser.add_argument("--nodes", type=benchmark.count, nargs="+", metavar="N", help="sizes of the swarm")
    parser.add_argument("--made-up", type=int, default=0, metavar="N", help="contacts that somebody makes up; no kill")
    parser.add_argument("--liars", type=int, default=1, metavar="N", help="nodes that name silent ones and no others")
    parser.add_argument("--seed", type=int, default=1)
    benchmark.add_options(parser, "the small swarms only; under a minute")
    args = parser.parse_args()
    ended.at_once()
    rows: list[benchmark.Row] = []
    for nodes in args.nodes or (QUICK_NODES if args.quick else NODES):
        for answering in (False, True) if args.made_up else ():
            liars = 0 if answering else args.liars
            joining, phases = made_up_experiment(nodes, args.made_up, args.seed, answering=answering, liars=liars)
            show(joining, phases)
            rows += rows_of(joining, phases, LOOK_UPS, MADE_UP_RIGHT_MIN)
        if not args.made_up:
            joining, phases = experiment(nodes, args.seed)
            show(joining, phases)
            rows += rows_of(joining, phases, LOOK_UPS)
    return benchmark.finish(rows, args.json)


if __name__ == "__main__":
    sys.exit(ended.in_order(main))
