"""Which nodes time which sites, so that a policy knows where they lie. Pure.

    owner         its tasks of a host without a place ──how many──▶ gatekeeper of the host
    gatekeeper    enough of them ──origin──▶ a few nodes that lie well apart
                  the host has a place, and no delay ──origin──▶ those nearest to it that have not timed it
                  it has a delay, and none near to it has ──origin──▶ the nearest
    these nodes   time it in their turn (`dhtcrawl.crawl.site_timer`) ──report──▶ coordinator, whose plan places it

A time costs the host a request, so a host of a few pages gets none. While a host is about to get its place, its owners
hold its tasks: what was given to a node far away would stay there. Times are seconds on the caller's monotonic clock.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import dist, inf
from typing import Any, NamedTuple

from dhtcrawl.keyspace import host_key
from dhtcrawl.loop_state import loop_state
from dhtcrawl.policy.gnp.planner import SIGHTS_MIN, TOP, Place, places_in
from dhtcrawl.policy.rendezvous import rendezvous
from dhtcrawl.storage.store.tasks import Queued
from dhtcrawl.url import host_of, origin_of

WORTH = 5  # tasks of a host that together make up for the requests which place it
FIRST = SIGHTS_MIN + 1  # one of them may be out of reach; a host with a delay has `SIGHTS_MIN`
# Who has read the robots.txt of a new host, and so has timed it, is known by then, and where the nodes lie.
READ_WITHIN_S = 3.0
PLACED_WITHIN_S = 5.0  # a host that has no place so long after its first task may never get one
AGAIN_S, AGAIN = 6.0, 2  # a host that has no place so long after it was timed is timed by so many nodes more
FAR_TIMES = 2.0  # where nobody nearer has timed a host with a delay, its nearest node does
PROBES_MAX = 12
HOSTS_MAX = 10_000


@loop_state
class PlaceWishes:
    """What an owner tells gatekeepers of the hosts of its tasks that have no place; the oldest hosts are forgotten."""

    def __init__(self, follows_links: bool, delay_s: Callable[[str], float]) -> None:
        """`follows_links`: whether a seed promises further pages; `delay_s(host)` is the delay of a host."""
        self._follows_links = follows_links
        self._delay_s = delay_s
        self._first_at: OrderedDict[str, float] = OrderedDict()  # host → when a task of it was first seen
        self.lacking = False  # whether a task of a host without a place was seen since this was last set to False
        self._placed: Container[str] = ()
        self._known: OrderedDict[str, set[bytes]] = OrderedDict()  # by origin, some of its tasks
        self._due: dict[str, None] = {}

    def adopt(self, table: Mapping[str, Any]) -> None:
        """Take a new plan."""
        self._placed = places_in(table)[1]

    def seen(self, tasks: Iterable[Queued]) -> None:
        """Note tasks that wait for a node."""
        for task in tasks:
            if host_of(task.url) in self._placed:
                continue
            self.lacking, origin = True, origin_of(task.url)
            known = self._known.setdefault(origin, set())
            if len(known) < WORTH and task.key not in known:
                known.add(task.key)
                if task.depth == 0 and self._follows_links:
                    known |= {task.key + bytes([number]) for number in range(WORTH - 1)}
                self._due[origin] = None
        while len(self._known) > HOSTS_MAX:
            self._due.pop(self._known.popitem(last=False)[0], None)

    def held(
        self, tasks: Iterable[Queued], nodes: int, out: Callable[[str], int], now: float
    ) -> frozenset[bytes]:  # fmt: skip
        """Those of these tasks that wait for the place of their host; `nodes` there are, and `out(host)` are fetched.

        Of a host without a delay one at a time goes out meanwhile; of one with a delay only a seed, since its turns
        are needed to time it: each time costs a delay, and nodes that have tasks would stand in line before them.
        """
        if nodes < SIGHTS_MIN:
            return frozenset()
        held, gone = set[bytes](), set[str]()
        for task in tasks:
            host = host_of(task.url)
            if host in self._placed:
                continue
            first_at = self._first_at.setdefault(host, now)
            if now - first_at >= PLACED_WITHIN_S + SIGHTS_MIN * self._delay_s(host):
                continue
            if host in gone or out(host) or (task.depth and self._delay_s(host) > 0):
                held.add(task.key)
            gone.add(host)
        while len(self._first_at) > HOSTS_MAX:
            self._first_at.popitem(last=False)
        return frozenset(held)

    def take_due(self) -> dict[str, int]:
        """The origins of which there is news, and how many tasks each has here, up to `WORTH`."""
        due, self._due = self._due, {}
        return {origin: min(len(self._known[origin]), WORTH) for origin in due}


class Seen(NamedTuple):
    """What a gatekeeper sees: the members, where they and the sites lie by its plan, and who has read a robots.txt."""

    members: Sequence[bytes]
    points: Mapping[bytes, Place]
    placed: Mapping[str, Place]
    landmarks: Sequence[bytes] = ()  # they time each site, where there are any
    reader: Callable[[str], bytes | None] = lambda origin: None


@dataclass(slots=True)
class _TimedSite:
    """What a gatekeeper knows of an origin."""

    wanted: dict[bytes, int] = field(default_factory=dict)  # owner → tasks
    first_at: float | None = None  # when it was first to be timed
    asked: dict[bytes, None] = field(default_factory=dict)  # nodes that were told to time it
    asked_at: float = -inf
    near_asked: bool = False


@loop_state
class SiteProbes:
    """Chooses, as gatekeeper, the nodes that time a host."""

    def __init__(self) -> None:
        self._sites: OrderedDict[str, _TimedSite] = OrderedDict()  # by origin; the last that were wanted at the end
        self._open: dict[str, None] = {}  # those that are worth it, and are not done

    def want(self, owner: bytes, origin: str, count: int) -> None:
        """Note that an owner has so many tasks of an origin whose host has no place."""
        site = self._sites.setdefault(origin, _TimedSite())
        site.wanted[owner] = count
        self._sites.move_to_end(origin)
        if not site.near_asked and sum(site.wanted.values()) >= WORTH:
            self._open[origin] = None
        if len(self._sites) > HOSTS_MAX:
            self._open.pop(self._sites.popitem(last=False)[0], None)

    def due(self, seen: Seen, delay_s: Callable[[str], float], now: float) -> dict[bytes, list[str]]:
        """Nodes to ask, each with the origins to time; `delay_s(host)` is the delay of a host.

        None in a swarm of so few nodes that no site gets a place.
        """
        found: dict[bytes, list[str]] = {}
        if len(seen.members) < SIGHTS_MIN:
            return found
        for origin in list(self._open):
            site = self._sites[origin]
            for node in _who(origin, site, seen, delay_s, now):
                site.asked[node] = None
                found.setdefault(node, []).append(origin)
            if site.near_asked or len(site.asked) >= PROBES_MAX:
                del self._open[origin]
        return found


def _who(origin: str, site: _TimedSite, seen: Seen, delay_s: Callable[[str], float], now: float) -> Sequence[bytes]:
    """The nodes that are to time a site now."""
    host = host_of(f"{origin}/")
    place, polite = seen.placed.get(host), delay_s(host) > 0
    if place is not None:
        site.near_asked = True
        near = sorted(seen.points.keys() & set(seen.members), key=lambda node: (dist(seen.points[node], place), node))
        if not polite:
            return [node for node in near[:TOP] if node not in site.asked]
        # Each time costs it a turn. But where it lies among nodes near to it, nodes far away can only guess.
        timed_at = min((dist(seen.points[node], place) for node in site.asked if node in seen.points), default=inf)
        return near[:1] if near and timed_at > FAR_TIMES * dist(seen.points[near[0]], place) else []
    if site.first_at is None:
        site.first_at = now
    reader = seen.reader(origin)
    waits = reader is None or 2 * len(seen.points) < len(seen.members)
    if now < site.asked_at + AGAIN_S or (waits and now < site.first_at + READ_WITHIN_S):
        return ()
    count, site.asked_at = AGAIN if site.asked else SIGHTS_MIN if polite else FIRST, now
    if seen.landmarks and not site.asked:
        return [node for node in seen.landmarks if node in seen.members]
    # Whoever has read its robots.txt has timed it with that.
    first = [node for node in seen.members if node == reader and node not in site.asked]
    order = [node for node in rendezvous(host_key(host), seen.members, {}) if node not in site.asked]
    others = [node for node in order if node not in first]
    return [*first, *well_apart(others, seen.points, [*site.asked, *first], count - len(first))]


def well_apart(
    order: Sequence[bytes], points: Mapping[bytes, Place], chosen: Sequence[bytes], count: int
) -> list[bytes]:
    """`count` nodes that lie far from each other and from those `chosen`; of equal ones the first of the order.

    Nodes without a point come behind the others.
    """
    marks, found = [points[node] for node in chosen if node in points], list[bytes]()
    left = [node for node in order if node in points]
    while left and len(found) < count:
        node = max(left, key=lambda each: min((dist(points[each], mark) for mark in marks), default=inf))
        found.append(node)
        left.remove(node)
        marks.append(points[node])
    return [*found, *(node for node in order if node not in points)][:count]
