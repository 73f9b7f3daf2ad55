"""Gates of several nodes on a virtual loop: calls cross a network of coroutines, as the bytes that they would be."""

from __future__ import annotations

import asyncio
import itertools
import math
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

from dhtcrawl.fetch.host_access import LeaseLost
from dhtcrawl.keyspace import host_key
from dhtcrawl.rpc.membership.view import Member, MemberState, View
from dhtcrawl.rpc.peers.port import CallRegistry, call_of, refused, reply_to
from dhtcrawl.rpc.tasks.events import Failure, FailureKind
from dhtcrawl.rpc.tasks.messages import Answer, Refused, Request, Result, decode, encode
from dhtcrawl.rpc.tasks.schema import CallArgs, WireMap
from dhtcrawl.sim.loop import VirtualClock
from dhtcrawl.swarm.hosts.host_leases import HostLeases
from dhtcrawl.swarm.hosts.leases import LeaseTerms

_FRAME_HEAD_BYTES = 5


def wired(message: Any) -> Any:
    """What the other side reads."""
    frame = encode(1, message)
    return decode(frame[4], memoryview(frame)[_FRAME_HEAD_BYTES:])[1]


R = TypeVar("R", bound=WireMap)


class Swarm:
    """The network, and what everybody knows of it."""

    def __init__(self, *, rtt_s: float = 0.001) -> None:
        self.rtt_s = rtt_s
        self.nodes: dict[bytes, Node] = {}
        self.down: set[bytes] = set()  # from whom and to whom nothing comes
        self.closed: set[bytes] = set()  # to whom no connection comes about
        self.lost: Callable[[str], bool] = lambda name: False
        self.calls: Counter[str] = Counter()
        self.view = View([])
        self.failures = 0

    def join(self, *ids: bytes, state: MemberState = MemberState.ACTIVE) -> None:
        self.view = View([*self.view.members, *(Member(id_, ("10.0.0.1", 1), state) for id_ in ids)])

    def becomes(self, id_: bytes, state: MemberState) -> None:
        self.view = View([replace(m, state=state) if m.id == id_ else m for m in self.view.members])

    def leave(self, id_: bytes) -> None:
        self.view = View([member for member in self.view.members if member.id != id_])

    def tell(self, *, crawling: bool = True, handed_over: bool = False, dead: int = 0) -> None:
        """Everybody sees the view as it is now."""
        for id_, node in self.nodes.items():
            if id_ not in self.down:
                node.view = self.view
                node.gate.view_changed(self.view, crawling, handed_over=handed_over, dead=dead)

    def owner(self, host: str) -> bytes:
        member = self.view.owner(host_key(host))
        assert member is not None
        return member.id

    def host_of(self, id_: bytes, but: frozenset[str] = frozenset()) -> str:
        """A host whose gatekeeper is this node."""
        return next(h for n in itertools.count() if self.owner(h := f"h{n}.example") == id_ and h not in but)


class Node:
    """`Peers` of one node, its gate, and fetchers that go through it."""

    def __init__(self, swarm: Swarm, id_: bytes, *, terms: LeaseTerms | None = None, **kwargs: Any) -> None:
        self.node_id = id_
        self.view = swarm.view
        self.swarm = swarm
        self.registry = CallRegistry()
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.freed: dict[str, asyncio.Event] = {}
        self.looks: dict[str, float] = {}  # hosts that a crawl wants, and the delay
        seed = int.from_bytes(id_[:4], "big")
        self.gate = HostLeases(
            self, self.registry, self.clock, self._free, rng=random.Random(seed), started_at=0.0, fresh=True,
            terms=terms, **kwargs,
        )  # fmt: skip
        swarm.nodes[id_] = self

    def _free(self, host: str) -> None:
        if host in self.looks:
            self.gate.book.clock(host).ready_at(self.looks[host])
            self.freed[host].set()

    # -- Peers --

    async def ask(self, node: bytes, message: Request, timeout_s: float | None = None) -> Answer | Failure:
        raise NotImplementedError

    async def call(
        self, node: bytes, args: CallArgs[R], *, timeout_s: float | None = None, reply_bytes_max: int | None = None
    ) -> R | Failure:
        swarm, name = self.swarm, args.terms.name
        swarm.calls[name] += 1
        call = wired(call_of(args, reply_bytes_max))
        timeout_s = timeout_s or args.terms.timeout_s or 30.0
        await asyncio.sleep(swarm.rtt_s / 2)
        if node in swarm.closed:
            return Failure(FailureKind.CONNECT, "connection refused", sent=False)
        if {node, self.node_id} & swarm.down or swarm.lost(name):
            await asyncio.sleep(timeout_s - swarm.rtt_s / 2)
            swarm.failures += 1
            return Failure(FailureKind.TIMEOUT, "nothing came back")
        async with asyncio.TaskGroup() as group:
            reply = swarm.nodes[node].registry.answer(self.node_id, call, group)
        assert isinstance(reply, Result | Refused)
        if isinstance(reply, Refused):
            return refused(reply)
        assert len(encode(1, reply)) <= call.reply_bytes_max
        await asyncio.sleep(swarm.rtt_s / 2)
        return reply_to(args, wired(reply))

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
