"""Has sites timed by nodes near and far, for a policy that places them: the shell around `site_probes`.

As an owner it tells gatekeepers of hosts that have no place, as a gatekeeper it has nodes time them, and as such a node
it times them. What comes of it goes to the coordinator with this node's next report, which is sent at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from dhtcrawl.clock import Clock
from dhtcrawl.keyspace import host_key
from dhtcrawl.loop_state import loop_state
from dhtcrawl.policy.gnp.planner import landmarks_in, places_in
from dhtcrawl.policy.seam import Planner
from dhtcrawl.rpc.peers.port import Peers
from dhtcrawl.swarm.assignment.facts import PlannerFacts
from dhtcrawl.swarm.assignment.queues import AssignmentQueues
from dhtcrawl.swarm.assignment.site_probes import PlaceWishes, Seen, SiteProbes
from dhtcrawl.swarm.calls import assignment as calls
from dhtcrawl.swarm.calls.words import KEYS_MAX, Done
from dhtcrawl.url import host_of

LOOK_EVERY_S = 0.25
# The robots.txt of a new host is fetched by one node; until it is known nothing else is asked of the host.
TRIES, TRY_AGAIN_S = 20, 0.5
TIMED_AT_ONCE = 16
ORIGINS_MAX = 1_000  # to be timed here; more are forgotten, and others are asked later


class SiteTimes(Protocol):
    """Times sites: `dhtcrawl.crawl.site_timer`."""

    async def times(self, origin: str) -> list[float] | None:
        """Seconds to the first byte of small requests; none where the origin cannot be timed now; None: it fails."""
        ...

    def may_time(self, origin: str) -> bool:
        """Whether the crawl has a reason to ask an origin."""
        ...


class PlanHurry(Protocol):
    """What the plans of a crawl are told: `dhtcrawl.swarm.assignment.plans`."""

    def tell(self) -> None:
        """Report at once: there is something that a plan is waited for."""
        ...

    def hurry(self) -> None:
        """Ask for the plan more often for a while."""
        ...


@dataclass(frozen=True, slots=True)
class Measures:
    """What a node measures for planners, and with what."""

    facts: PlannerFacts
    timer: SiteTimes
    follows_links: bool  # whether a site may have more pages than the seeds
    reader: Callable[[str], bytes | None] = lambda origin: None  # who has fetched an origin's robots.txt

    def wishes(self, planner: Planner | None, delay_s: Callable[[str], float]) -> PlaceWishes | None:
        """What an owner does about hosts without a place; None where the planner wants none."""
        wants = planner is not None and "probes" in planner.wants
        return PlaceWishes(self.follows_links, delay_s) if wants else None


@loop_state
class SitePlaces:
    """The places of sites in one crawl, at one node."""

    def __init__(
        self,
        queues: AssignmentQueues,
        peers: Peers,
        clock: Clock,
        plans: PlanHurry,
        wishes: PlaceWishes,
        measures: Measures,
    ) -> None:
        self._queues = queues
        self._peers = peers
        self._clock = clock
        self._timer = measures.timer
        self._plans = plans
        self._timed = measures.facts.timed
        self._wishes = wishes
        self._probes = SiteProbes()
        self._seen = Seen((), {}, {}, (), measures.reader)
        self._to_time: dict[str, None] = {}

    def adopt(self, table: Mapping[str, Any]) -> None:
        """Take a new plan."""
        self._wishes.adopt(table)
        points, placed = places_in(table)
        self._seen = self._seen._replace(points=points, placed=placed, landmarks=landmarks_in(table))

    def on_want(self, asker: bytes, args: calls.WantPlaces) -> Done:
        """Take what an owner wants to know, as the gatekeeper of these hosts."""
        for row in args.rows:
            if self._gatekeeper(row.origin) == self._peers.node_id:
                self._probes.want(asker, row.origin, row.tasks)
                self._plans.hurry()
        return Done()

    def on_time(self, asker: bytes, args: calls.TimeSites) -> Done:
        """Time hosts for their gatekeeper, those that this crawl may ask."""
        for origin in args.origins:
            if self._gatekeeper(origin) == asker and self._timer.may_time(origin):
                self._to_time[origin] = None
        while len(self._to_time) > ORIGINS_MAX:
            del self._to_time[next(iter(self._to_time))]
        return Done()

    async def run(self) -> None:
        """Send wishes and orders, and time sites, until cancelled."""
        places = asyncio.Semaphore(TIMED_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            while True:
                await asyncio.sleep(LOOK_EVERY_S)
                self._send_wishes(group)
                self._send_orders(group)
                while self._to_time and self._queues.takes and self._queues.lends and not places.locked():
                    origin = next(iter(self._to_time))
                    del self._to_time[origin]
                    await places.acquire()
                    group.create_task(self._time(origin)).add_done_callback(lambda _: places.release())

    def _send_wishes(self, group: asyncio.TaskGroup) -> None:
        if self._wishes.lacking:
            self._wishes.lacking = False
            self._plans.hurry()
        rows: dict[bytes, list[calls.UnplacedRow]] = {}
        for origin, count in self._wishes.take_due().items():
            node = self._gatekeeper(origin)
            if node is not None:
                rows.setdefault(node, []).append(calls.UnplacedRow(origin, count))
        for node, theirs in rows.items():
            for first in range(0, len(theirs), KEYS_MAX):
                asked = calls.WantPlaces(self._queues.crawl_id, tuple(theirs[first : first + KEYS_MAX]))
                if node == self._peers.node_id:
                    self.on_want(node, asked)
                else:
                    # If it is lost, the next task of the host brings another.
                    group.create_task(self._peers.call(node, asked))

    def _send_orders(self, group: asyncio.TaskGroup) -> None:
        seen = self._seen._replace(members=[member.id for member in self._peers.view.members])
        delay_s = self._queues.frontier.delay_s
        for node, origins in self._probes.due(seen, delay_s, self._clock.monotonic()).items():
            for first in range(0, len(origins), KEYS_MAX):
                asked = calls.TimeSites(self._queues.crawl_id, tuple(origins[first : first + KEYS_MAX]))
                if node == self._peers.node_id:
                    self.on_time(node, asked)
                else:
                    group.create_task(self._peers.call(node, asked))

    async def _time(self, origin: str) -> None:
        for _ in range(TRIES):
            if not self._queues.takes or not self._queues.lends:
                return
            seconds = await self._timer.times(origin)
            if seconds is None:
                return  # from here the site may be out of reach: the gatekeeper asks others
            if seconds:
                self._timed(host_of(f"{origin}/"), seconds)
                self._plans.tell()
                return
            await asyncio.sleep(TRY_AGAIN_S)

    def _gatekeeper(self, origin: str) -> bytes | None:
        owner = self._peers.view.owner(host_key(host_of(f"{origin}/")))
        return None if owner is None else owner.id
