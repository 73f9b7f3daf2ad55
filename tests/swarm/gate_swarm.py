"""Gates of several nodes, and hosts that they fetch from."""

from __future__ import annotations

import asyncio
import itertools
import math
import random
from collections.abc import Awaitable, Callable
from typing import Any

from harness.world import Node, World

from dhtcrawl.fetch.host_access import LeaseLost
from dhtcrawl.keyspace import host_key
from dhtcrawl.swarm.hosts.host_leases import HostLeases, HostLeaseSettings
from dhtcrawl.swarm.hosts.leases import LeaseTerms


class Gates(World["GateNode"]):
    """The network, and what everybody knows of it."""

    def __init__(self, *, rtt_s: float = 0.001) -> None:
        super().__init__(latency_s=rtt_s / 2)

    def tell(self, *, crawling: bool = True, dead: int = 0) -> None:
        """Everybody sees the view as it is now."""
        for id_, node in self.nodes.items():
            if id_ not in self.down:
                node.own_view = self.view
                node.gate.view_changed(self.view, crawling, dead=dead)

    def owner(self, host: str) -> bytes:
        member = self.view.owner(host_key(host))
        assert member is not None
        return member.id

    def host_of(self, id_: bytes, but: frozenset[str] = frozenset()) -> str:
        """A host whose gatekeeper is this node."""
        return next(h for n in itertools.count() if self.owner(h := f"h{n}.example") == id_ and h not in but)


class GateNode(Node):
    """A node's gate, and fetchers that go through it."""

    def __init__(self, world: Gates, node: bytes, *, terms: LeaseTerms | None = None, **kwargs: Any) -> None:
        self.fit = True
        super().__init__(world, node)
        self.own_view = world.view  # as it was when the node was last told
        self.freed: dict[str, asyncio.Event] = {}
        self.looks: dict[str, float] = {}  # hosts that a crawl wants, and the delay
        self.on_free: Callable[[str], None] = self._free
        self.turns, self.turns_max = 0, math.inf  # of the gate
        seed = int.from_bytes(node[:4], "big")
        self.gate = HostLeases(
            self, self.registry, self.clock, lambda host: self.on_free(host), rng=random.Random(seed),
            settings=HostLeaseSettings(started_at=0.0, fresh=True, terms=terms or LeaseTerms()),
            **({"fit": lambda: self.fit} | kwargs),
        )  # fmt: skip
        free = self.gate.book.free

        def counted(now: float) -> list[str]:
            self.turns += 1  # each turn ends with this
            assert self.turns < self.turns_max, "it spins"
            return free(now)

        self.gate.book.free = counted  # type: ignore[method-assign]

    def _free(self, host: str) -> None:
        if host in self.looks:
            self.gate.book.clock(host).ready_at(self.looks[host])
            self.freed[host].set()

    # -- a crawl in one loop --

    async def fetch(
        self,
        host: str,
        delay_s: float,
        pages: int,
        serve: Callable[[], Awaitable[None]],
        *,
        given_up: list[float] | None = None,
    ) -> None:
        """Fetch so many pages, one after the other; what was given up is fetched again."""
        self.freed.setdefault(host, asyncio.Event())
        self.looks[host] = delay_s
        clock = self.gate.book.clock(host)
        while pages:
            ready_at, now = clock.ready_at(delay_s), self.clock.monotonic()
            if ready_at == math.inf:
                self.freed[host].clear()
                await self.freed[host].wait()
            elif ready_at > now:
                await asyncio.sleep(ready_at - now)
            else:
                clock.begin(now, delay_s)
                outcome = await self.gate.within_lease(host, serve)
                clock.end(self.clock.monotonic())
                if not isinstance(outcome, LeaseLost):
                    pages -= 1
                elif given_up is not None:
                    assert outcome.begun, "it was under way"
                    given_up.append(outcome.ended_at)
        del self.looks[host]
        self.gate.book.quiet(host)


class Server:
    """A host: when requests began and ended."""

    def __init__(self, seconds: float = 0.02) -> None:
        self.seconds = seconds
        self.served: list[tuple[float, float]] = []

    async def __call__(self) -> None:
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.served.append((began_at, loop.time()))

    def shortest_gap_s(self) -> float:
        ordered = sorted(self.served)
        return min((b[0] - a[1] for a, b in itertools.pairwise(ordered)), default=math.inf)
