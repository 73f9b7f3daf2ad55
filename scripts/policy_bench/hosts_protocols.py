"""Who gets which host: from a control unit (Wu et al. 2011), or by a ranking that every node knows. Pure.

    control unit    a node that finds a link to a host of its own, or to one that failed it, says nothing. Else it asks
                    the control unit, which alone knows whose the host is, and passes the link on to that node. The
                    first time it begins with the host while it asks, and stops when it hears that another has it.
                    A host that a node cannot connect to goes back to the control unit, which offers it to all
                    others; who connects first has it, and the others are told to stop.
    handed on       no master: a node sends the link to the node that `DSpider` ranks first, as far as it knows what
                    failed; a node that cannot connect passes the host on to the next, and with it who failed it
    by owners       no master, as the product does it with keys by host: the link goes to the owner of the host's key,
                    which gives the host to the node that `DSpider` ranks first, itself for most; a node that cannot
                    connect gives the host back. Links to one that nobody reaches still come to its owner, and no
                    further

The paper does not say where its duplicates come from. That a node begins before it
has heard, and that an offer goes to several, is our reading: without it a control
unit makes no duplicates either. An offer, an answer, a link that is passed on and a word to stop are a
message each.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from dhtcrawl.keyspace import distance, host_key
from dhtcrawl.policy.dspider import DSpider
from dhtcrawl.policy.seam import BATCH, Candidate, Outcome, PolicyTask, Settings, TaskResult
from policy_bench.hosts_world import Crawl, World

OFFERED = -1  # to all who have not failed it, in place of a node
SECONDS_A_T = 2.0  # the middle timeout, 5T, is the product's 10 s


class ControlUnit(Crawl):
    """The paper's."""

    def __init__(self, world: World, timeout_t: float) -> None:
        super().__init__(world, timeout_t)
        self._node_of: dict[int, int] = {}  # the control unit's: nodes_host_map
        self._asked = [dict[int, None]() for _ in self.nodes]  # each node's: hosts that it asked about before
        self._failed = [dict[int, None]() for _ in self.nodes]  # each node's: failed_host
        self._offers = [dict[int, None]() for _ in self.nodes]  # each node's: hosts that it was offered

    def found(self, node: int, host: int) -> None:
        if host in self._failed[node] or self.visits(node, host):
            return
        self.send(host, partial(self._heard_of, node, host))
        if host not in self._asked[node]:
            self._asked[node][host] = None
            self.visit(node, host)

    def _heard_of(self, node: int, host: int) -> None:
        """At the control unit: a node found a link to a host."""
        has = self._node_of.setdefault(host, node)
        self.send(host, _nothing)  # the link to the node that has it, or its permission to the one that asked
        if has not in (node, OFFERED) and self.visits(node, host):
            self.send(host, partial(self.stop, node, host))

    def failed(self, node: int, host: int) -> None:
        self._failed[node][host] = None
        self.send(host, partial(self._given_up, node, host))

    def _given_up(self, node: int, host: int) -> None:
        """At the control unit: a node cannot connect. Where the host is on offer, or another's, that is no news."""
        if self._node_of.get(host) != node:
            return
        self._node_of[host] = OFFERED
        for other in range(len(self.nodes)):
            if other != node and host not in self._failed[other]:
                self.send(host, partial(self._offered, other, host))

    def _offered(self, node: int, host: int) -> None:
        self._asked[node][host] = self._offers[node][host] = None
        if host in self._failed[node]:
            return
        resumes = host in self.nodes[node].visits and self.nodes[node].visits[host].connected
        self.visit(node, host)
        if resumes:
            self.connected(node, host)

    def connected(self, node: int, host: int) -> None:
        if host in self._offers[node]:
            self.send(host, partial(self._accepted, node, host))

    def _accepted(self, node: int, host: int) -> None:
        """At the control unit: the first to connect has it."""
        if self._node_of[host] == OFFERED:
            self._node_of[host] = node
        elif self._node_of[host] != node:
            self.send(host, partial(self.stop, node, host))


class Ranked(Crawl):
    """What both ways without a master have in common: each node has a `DSpider` of its own, and all rank alike."""

    def __init__(self, world: World, timeout_t: float) -> None:
        super().__init__(world, timeout_t)
        self._ids = [host_key(f"node-{node}") for node in range(world.nodes)]  # spread as ids are
        self._numbers = {id_: node for node, id_ in enumerate(self._ids)}
        self._policies = [DSpider(Settings(id_)) for id_ in self._ids]
        self._candidates = [Candidate(id_) for id_ in self._ids]
        self._names = [f"host-{host}.test" for host in range(len(world.sizes))]

    def first(self, node: int, host: int, failed: tuple[bytes, ...]) -> int | None:
        """Whose a host is, as far as `node` knows; None: it is dead, all failed."""
        if len(failed) == len(self._ids):
            return None
        task = PolicyTask(host_key(self._names[host]), self._names[host], failed)
        return self._numbers[self._policies[node].rank(task, self._candidates, self.now * SECONDS_A_T)[0]]

    def unreachable(self, hears: int, node: int, host: int) -> None:
        """A node's policy hears that somebody could not connect."""
        outcome = Outcome(self._ids[node], self._names[host], TaskResult.UNREACHABLE, 0.0)
        self._policies[hears].heard(outcome, self.now * SECONDS_A_T)


class HandedOn(Ranked):
    """A link goes to the node that is first, as far as its finder knows; and from there on, where that one failed."""

    def __init__(self, world: World, timeout_t: float) -> None:
        super().__init__(world, timeout_t)
        # What came with a host: who failed. Each node knows what it was told.
        self._known: list[dict[int, tuple[bytes, ...]]] = [{} for _ in self.nodes]

    def found(self, node: int, host: int) -> None:
        known = self._known[node].get(host, ())
        first = self.first(node, host, known)
        if first == node:
            self.visit(node, host)
        elif first is not None:
            self.send(host, partial(self._told, first, host, known))

    def _told(self, node: int, host: int, failed: tuple[bytes, ...]) -> None:
        self._learn(node, host, failed)
        self.found(node, host)

    def failed(self, node: int, host: int) -> None:
        self.unreachable(node, node, host)
        self._learn(node, host, (self._ids[node],))
        self.found(node, host)

    def _learn(self, node: int, host: int, failed: tuple[bytes, ...]) -> None:
        self._known[node][host] = tuple(dict.fromkeys((*self._known[node].get(host, ()), *failed)))


class ByOwners(Ranked):
    """A link goes to the owner of its host's key, which lends it to the first of its ranking, and hears of failures."""

    def __init__(self, world: World, timeout_t: float) -> None:
        super().__init__(world, timeout_t)
        keys = [host_key(name) for name in self._names]
        self._owner = [min(range(world.nodes), key=lambda node: distance(self._ids[node], key)) for key in keys]
        self._failed: list[tuple[bytes, ...]] = [() for _ in keys]  # at each host's owner
        self._given: dict[int, None] = {}  # hosts that were given to a node, at their owners

    def found(self, node: int, host: int) -> None:
        self._tell(node, self._owner[host], host, partial(self._linked, host))

    def _linked(self, host: int) -> None:
        """At the owner of a host: a link to it came. Only the first says something new of the host."""
        if host not in self._given:
            self._given[host] = None
            self._lend(host)

    def failed(self, node: int, host: int) -> None:
        self._tell(node, self._owner[host], host, partial(self._given_back, node, host))

    def connected(self, node: int, host: int) -> None:
        # The pages of a host are lent in batches, each with a report of what came of it.
        batches = -(-len(self.world.sizes[host]) // BATCH)
        self.run.loans += 2 * batches * (self._owner[host] != node)

    def _lend(self, host: int) -> None:
        owner = self._owner[host]
        first = self.first(owner, host, self._failed[host])
        if first is not None:
            self._tell(owner, first, host, partial(self.visit, first, host))

    def _given_back(self, node: int, host: int) -> None:
        self.unreachable(self._owner[host], node, host)
        self._failed[host] = (*self._failed[host], self._ids[node])
        self._lend(host)

    def _tell(self, node: int, other: int, host: int, happens: Callable[[], None]) -> None:
        if node == other:
            happens()
        else:
            self.send(host, happens)


def _nothing() -> None:
    """A message that changes nothing at its receiver: it has all files of the host anyway."""


CONTROL_UNIT = "control unit"
MASTERLESS: dict[str, type[Crawl]] = {"handed on": HandedOn, "by owners": ByOwners}
PROTOCOLS: dict[str, type[Crawl]] = {CONTROL_UNIT: ControlUnit, **MASTERLESS}
