"""Two sides of a swarm that was cut meet again: what one of them leased is good for no request from then on."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import pytest

from dhtcrawl.rpc.membership.members import Members
from dhtcrawl.sim.loop import run
from dhtcrawl.swarm.hosts.lease_holder import LeaseHolder
from dhtcrawl.swarm.hosts.leases import GiveBack, Granted, LeaseTerms

from .cut_swarm import DELAY_S, cut_and_healed
from .gate_swarm import GateNode, Gates, Server
from .lease_world import DRIFT, HOST, Keeper, Member, Served, Story, Troubles

# -- the cores: halves with a gatekeeper each, again and again --

CUT_S, WHOLE_S, HEARD_S = 25.0, 20.0, 2.0
TROUBLES = Troubles(latency_s=(0.005, 0.1), slow_message=0.02, loss=0.02, drift=DRIFT, slow_answer=0.05, crashes=0.01)


class KeepsItsLeases(LeaseHolder):
    """Breaks it: a node goes on with what the gatekeeper of its side has leased it."""

    def void(self) -> None:
        pass


@dataclass
class Halves(Story):
    """Every other node is cut off, has another gatekeeper, and comes back to one of the two."""

    seconds: float = 300.0
    known_at: list[float] = field(default_factory=list)  # from when on all knew that they are together again

    def _mishaps(self) -> None:
        # Called once, when the story has begun; crashes go on beside the cuts.
        self._crashes()
        self.world.at(self.world.now + WHOLE_S, self._cut)

    def _crashes(self) -> None:
        node = self.world.rng.choice(self.nodes)
        if node.alive and self.world.chance(self.troubles.crashes):
            node.crash(self.world.rng.uniform(0.1, 10.0))
        self.world.at(self.world.now + 1.0, self._crashes)

    def _cut(self) -> None:
        other = self._new_keeper()
        other.active = True
        other.core.took_over(other.clock(), lambda _: False)
        for node in self.nodes[::2]:
            self._later(partial(node.sees, other))
        self.world.at(self.world.now + CUT_S, partial(self._heal, other))

    def _heal(self, other: Keeper) -> None:
        """Each hears of it at a time of its own, in any order."""
        keepers = [self._current, other]
        self.world.rng.shuffle(keepers)
        stays, ends = keepers
        self._current = stays
        times = [self._later(lambda: stays.core.took_over(stays.clock(), lambda _: False))]
        times.append(self._later(partial(setattr, ends, "active", False)))
        times += [self._later(partial(self._hears, node, stays)) for node in self.nodes]
        self.known_at.append(max(times))
        self.world.at(self.world.now + WHOLE_S, self._cut)

    def _hears(self, node: Member, keeper: Keeper) -> None:
        if node.alive:
            node.book.void()
        node.sees(keeper)

    def _later(self, act: Callable[[], object]) -> float:
        when = self.world.now + self.world.rng.uniform(0.0, HEARD_S)
        self.world.at(when, lambda: (act(), None)[1])
        return when

    def together(self) -> list[tuple[Served, Served]]:
        """Pairs that came too soon when all had known for longer than the delay that they are together."""
        since = [known_at + self.delay_s * (1 + DRIFT) for known_at in self.known_at]
        return [pair for pair in self.too_soon() if any(at < pair[1].began_at < at - HEARD_S + WHOLE_S for at in since)]


def halves(seed: int, book: type[LeaseHolder] = LeaseHolder) -> Halves:
    story = Halves(seed, TROUBLES, members=6, terms=LeaseTerms(ttl_s=10.0), book=book)
    story.run()
    return story


@pytest.mark.parametrize("seed", range(30))
def test_once_all_know_that_they_are_together_no_request_begins_too_soon(seed: int) -> None:
    story = halves(seed)
    assert len(story.known_at) >= 5
    assert len(story.world.served) > 200
    assert story.together() == []


def test_the_judge_sees_it_where_leases_of_one_side_go_on() -> None:
    assert sum(len(halves(seed, KeepsItsLeases).together()) for seed in range(8)) > 8


def test_a_grant_that_was_asked_for_before_all_leases_ended_is_none() -> None:
    now = 100.0
    book = LeaseHolder(now=lambda: now, started_at=now, fresh=True)
    granted = Granted(b"12345678", 10.0, 64, 0.0, 1.0)
    assert book.clock(HOST).ready_at(1.0) == math.inf
    (ask,) = book.wishes(now)
    now += 0.1
    book.void()
    book.granted(ask, granted, now - 0.1, now + 0.1)
    assert book.returns(now) == [GiveBack(HOST, granted.lease_id, None, -math.inf)]
    assert book.free(now) == []
    assert book.clock(HOST).ready_at(1.0) == math.inf
    (ask,) = book.wishes(now)
    book.granted(ask, granted, now, now)
    assert book.clock(HOST).ready_at(1.0) <= now, "asked for since then it is one"

    book.clock(HOST).begin(now, 1.0)
    now += 6.0
    (renewal,) = book.renewals(now)
    asked_at, now = now, now + 0.1
    book.void()
    book.granted(renewal, granted, asked_at, now)
    assert book.overdue(now) == [HOST], "nor does such a one prolong what has ended"


# -- the shell --


async def test_who_hears_of_the_other_side_gives_up_what_is_under_way_and_hosts_rest_for_a_lease() -> None:
    swarm = Gates()
    swarm.join(bytes([10]) + bytes(19), bytes([50]) + bytes(19))
    one, other = (GateNode(swarm, id_) for id_ in swarm.view.ids)
    host, server, given_up = swarm.host_of(one.node_id), Server(5.0), list[float]()
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(1000.0), asyncio.TaskGroup() as group:
        runs = [group.create_task(node.gate.run()) for node in (one, other)]
        fetch = group.create_task(other.fetch(host, DELAY_S, 1, server, given_up=given_up))
        await asyncio.sleep(2.0)
        met_at = loop.time()
        for node in (one, other):
            node.gate.reunited()
        await fetch
        for task in runs:
            task.cancel()
    assert given_up == [pytest.approx(met_at)]
    (first, second) = server.served
    assert first[1] == pytest.approx(met_at)
    assert second[0] == pytest.approx(met_at + 10.0 + DELAY_S, abs=0.1)


async def test_a_node_that_is_gatekeeper_for_nobody_lets_no_host_rest_for_it() -> None:
    swarm = Gates()
    swarm.join(bytes([10]) + bytes(19))
    (node,) = (GateNode(swarm, id_) for id_ in swarm.view.ids)
    node.fit = False
    node.gate.reunited()
    node.fit = True
    server = Server()
    async with asyncio.timeout(1000.0), asyncio.TaskGroup() as group:
        running = group.create_task(node.gate.run())
        await node.fetch("h.example", DELAY_S, 1, server)
        running.cancel()
    assert server.served[0][0] == 0.0


# -- whole swarms, with the gossip that finds it out --


SEEDS = range(4)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("nodes", "few"), [(12, 6), (10, 3), (5, 2)])
def test_after_a_cut_all_know_soon_and_no_lease_of_one_side_is_used_from_then_on(
    nodes: int, few: int, seed: int
) -> None:
    healed = run(cut_and_healed(seed, nodes, few))
    assert healed.known_s < 2.0
    assert [at for at in healed.too_soon if at > healed.known_s + DELAY_S] == []


def test_where_only_one_of_the_dead_is_asked_every_half_minute_it_takes_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    dead = Members.dead
    monkeypatch.setattr(Members, "dead", lambda self, *, lost=False: [] if lost else dead(self))
    assert max(run(cut_and_healed(seed, 5, 2)).known_s for seed in SEEDS) > 4.0
