"""Judges what a swarm asks the web for: no page twice but for what no node could know (I8, I11, I12).

Each page may be brought once, and once more for every *ignorance* that a fault
brings about: a side of the swarm on which no node knows that a page was
fetched. Knowing is a record on a disk there, or the page being in flight
there, until its disk lets go of the record. A crash, a pause, a partition, a
leave without a hand-over or one to no node makes a side ignorant of what only
nodes out of its sight know; and while sides are apart, all that one of
them begins is something that the other ignores.

A request that was cut off before its last byte brought nothing.

A page is opened again (a new generation) only when its body is out of the
opener's reach, for as long as others wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple

from dhtcrawl.rpc.membership.gossip_settings import GossipSettings
from dhtcrawl.sim.ledger import NOTHING, Reopened
from dhtcrawl.sim.outcome import brings
from dhtcrawl.sim.scene import Scene
from dhtcrawl.sim.swarm import SimHost
from dhtcrawl.sim.web import SimWeb, Visit

# What has stood on a node's own disk for no longer may not have reached its frontier.
JUST_WRITTEN_S = 0.1
# Members are told of a death up to so much sooner than a body has been gone for the whole grace; who leaves is a
# member no more when it says so, and takes its time to end.
EARLY_S = 1.0 + GossipSettings().leave_s


class _Request(NamedTuple):
    """One that brings a page, unless it is cut off."""

    host: SimHost
    life: int  # of that host
    number: int  # of its visit, in the web's book


class Fetches:
    """Judges the requests of a crawl."""

    def __init__(
        self, scene: Scene, web: SimWeb, key_of: Callable[[str], bytes], *, suspicion_s: float, grace_s: float
    ) -> None:
        self._scene = scene
        self._web = web
        self._key_of = key_of
        self._suspicion_s = suspicion_s
        self._grace_s = grace_s
        self._asked: dict[str, int] = {}
        self._requests: dict[bytes, list[_Request]] = {}
        self._allowed: dict[bytes, int] = {}  # how often a page may be brought again
        self._flying: dict[SimHost, dict[bytes, None]] = {}  # what each has begun since it started
        self._lives: dict[SimHost, int] = {}  # those of which it is known that they began
        self._stood_still: dict[SimHost, None] = {}  # for so long that they have to join again

    @property
    def refetches(self) -> int:
        """Requests that brought what an earlier one had brought."""
        return sum(max(0, len(self._brought(key)) - 1) for key in self._requests)

    # What is asked for

    def asks(self, host: SimHost, url: str) -> None:
        number = self._asked[url] = self._asked.get(url, 0) + 1
        key = self._key_of(url)
        self._is_fit(host, url)
        self._knows_better(host, key)
        if not brings(self._web, url, number):
            return
        before = self._brought(key)
        self._requests.setdefault(key, []).append(_Request(host, host.starts, len(self._web.visits)))
        self._flying.setdefault(host, {})[key] = None
        # A node that is out of our sight does not hear of it.
        self._allow(key, self._ignorant(key))
        allowed = self._allowed.get(key, 0)
        if len(before) > allowed:
            who = ", ".join(f"{visit.client} at {visit.start:.2f}" for visit in before)
            text = f"{url} is fetched by {host.name}, and was before ({who}); faults account for {allowed} times"
            self._scene.broken("I8", text)
            self._allowed[key] = len(before)  # to be told once

    def _brought(self, key: bytes, without: Sequence[SimHost] = ()) -> list[Visit]:
        """Requests that brought a page, or will unless these hosts are what they wait for."""
        found = []
        for host, life, number in self._requests.get(key, ()):
            visit = self._web.visits[number]
            going = host in without and host.starts == life
            if visit.status or (visit.end == inf and not going):
                found.append(visit)
        return found

    def _is_fit(self, host: SimHost, url: str) -> None:
        """Whether it may ask for anything (I12)."""
        if host.swarm is None:
            return
        if not host.swarm.join.state.active:
            self._scene.broken("I12", f"{host.name} asked for {url} while {host.swarm.state}")
        elif host in self._stood_still:
            self._scene.broken("I12", f"{host.name} asked for {url}, though it stood still and has not joined again")

    def _knows_better(self, host: SimHost, key: bytes) -> None:
        """Whether its own disk says that there is nothing to fetch."""
        disk = self._scene.disk(host)
        rank = disk.tasks.get(key)
        if rank is not None and rank.arrived and self._scene.time() - disk.since[key] > JUST_WRITTEN_S:
            what = f"{self._scene.ledger.name(key)}, though its own disk has it as {rank.words}"
            self._scene.broken("I8", f"{host.name} asked for {what}")

    # What happens

    def dropped(self, host: SimHost, key: bytes) -> None:
        """A disk lets go of a record that says how a page ended: its node does not know it any more.

        Whether it may is judged elsewhere (I5). That others have it is no help to a side from which they are cut off.
        """
        self._flying.get(host, {}).pop(key, None)
        if self._brought(key) and not self._is_known(key, self._scene.side_of(host)):
            self._allow(key, 1)

    def befalls(self, happens: Callable[[], object], *hosts: SimHost) -> None:
        """Something happens to the swarm: what may be fetched again for it. It takes these hosts away.

        They count as there before, whether they are or not.
        """
        before = {key: self._ignorant(key, hosts) for key in self._requests if self._brought(key, hosts)}
        happens()
        for key, ignorant in before.items():
            self._allow(key, self._ignorant(key) - ignorant)

    def ends(self, host: SimHost) -> None:
        self._flying.pop(host, None)
        self._stood_still.pop(host, None)

    def went_on(self, host: SimHost, paused_s: float) -> None:
        if paused_s > self._suspicion_s + 1.0 and host.swarm is not None and host.swarm.join.state.active:
            self._stood_still[host] = None
        self._arrives(host)

    def look(self, host: SimHost) -> None:
        """A host does something: has it joined again?"""
        if host in self._stood_still and (host.swarm is None or not host.swarm.join.state.active):
            del self._stood_still[host]
        if self._lives.get(host) != host.starts:
            self._lives[host] = host.starts
            self._arrives(host)

    def _arrives(self, host: SimHost) -> None:
        """Note a host that was not there: if no other of its side is, the side knows no more than it does."""
        if self._scene.side_of(host) == [host]:
            for key in self._requests:
                if self._brought(key) and not self._is_known(key, [host]):
                    self._allow(key, 1)

    def reopened(self, host: SimHost, page: Reopened) -> None:
        """A record says that a page is to be fetched again: told by a node, or concluded here (I11)."""
        scene, number = self._scene, self._scene.numbers[host]
        for other in scene.numbers:
            # The node that told it may have crashed since.
            has_it = scene.disk(other).tasks.get(page.key, NOTHING).gen >= page.gen
            # After a partition, until their views have met, it has not been told.
            if has_it and other is not host and not scene.cuts.were_apart(other.name, host.name, scene.time()):
                return
        self._allow(page.key, 1)
        for flying in self._flying.values():
            flying.pop(page.key, None)
        if page.place is None:
            return
        name = scene.ledger.name(page.key)
        for each, disk in scene.ledger.with_body(page.key, page.place):
            since = None if each == number else scene.away_since(host, each)
            if since is None:
                scene.broken("I11", f"{host.name} opened {name} again, though {disk.name} has it")
            elif scene.time() - since < self._grace_s - EARLY_S:
                away_s = scene.time() - since
                scene.broken("I11", f"{host.name} opened {name} again when {disk.name} was gone for {away_s:.1f} s")

    def haste(self, delay_of: Callable[[str], float], excused: Callable[[str], bool] = lambda _: False) -> int:
        """No request began sooner than its host's delay after the last byte before, whichever nodes made them (I9).

        Hosts that are `excused` aside.

        Sides that are apart cannot agree on a host: that is counted. So is what comes within the delay after all of
        them know one another, since a node does not know of the last request of the other side. No lease that one side
        gave is good after that.
        """
        exceptions = 0
        scene = self._scene
        last: dict[str, Visit] = {}  # of each host, the one whose last byte came last
        for visit in sorted(self._web.visits, key=lambda visit: visit.start):
            before, delay_s = last.get(visit.host), delay_of(visit.host)
            gap_s = inf if before is None else visit.start - before.end
            # A microsecond is rounding, not haste: of a clock that began long ago, a nanosecond is lost.
            if delay_s and before is not None and gap_s < delay_s - 1e-6:
                apart = scene.cuts.were_apart(before.client, visit.client, visit.start, delay_s)
                if apart or scene.cuts.met_between(before.start, visit.start, delay_s) or excused(visit.host):
                    exceptions += 1
                else:
                    who = f"{visit.client} asked for {visit.url} at {visit.start:.3f} s"
                    scene.broken("I9", f"{who}, {gap_s:.6f} s after the response to {before.client}")
            if before is None or visit.end >= before.end:
                last[visit.host] = visit
        return exceptions

    # Who knows

    def _allow(self, key: bytes, more: int) -> None:
        if more > 0:
            self._allowed[key] = self._allowed.get(key, 0) + more

    def _ignorant(self, key: bytes, plus: tuple[SimHost, ...] = ()) -> int:
        """How many sides do not know how a page ended, if these count as there."""
        return sum(not self._is_known(key, side) for side in self._scene.sides(plus))

    def _is_known(self, key: bytes, side: list[SimHost]) -> bool:
        if any(key in self._flying.get(host, ()) for host in side):
            return True
        best = max((self._scene.disk(host).tasks.get(key, NOTHING) for host in side), default=NOTHING)
        return best.arrived
