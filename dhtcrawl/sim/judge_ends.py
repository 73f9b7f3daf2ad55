"""Judges how nodes come and go, and how a crawl ends: tombstones are where they are asked for, and "complete" is true
(I4, I5, I10, I13).

Who is to have a tombstone is said by the view of the node that became active,
or that ended the crawl, as far as it is right; and that it could have had it,
by another one of its side that keeps the record and has had the tombstone for
`ON_ITS_WAY_S`.
"""

from __future__ import annotations

from math import inf

from dhtcrawl.keyspace import placement
from dhtcrawl.rpc.membership.view import View
from dhtcrawl.sim.ledger import NOTHING, CrawlBook, Rank
from dhtcrawl.sim.scene import QUIET_S, Scene, is_active, is_owner, view_from, view_of
from dhtcrawl.sim.swarm import SimHost

# A tombstone that is younger may still be on its way to those who keep copies; to slow nodes it takes longer.
ON_ITS_WAY_S = 3.0
# Longer without anything getting further, beyond what is waited for on purpose: it will never end.
STUCK_S = 120.0
# Each partition, and each node that comes back, may bring work after the end once; more often it is not ending.
REOPENINGS_MAX = 30
# The waves after the last task.
ENDING_S = 30.0
# Who meets a side again compares records with each of its neighbours, and each look into a slow store waits for others.
ENDING_WRITES = 60


class Ends:
    """Judges how nodes join and leave, and how a crawl ends."""

    def __init__(self, scene: Scene) -> None:
        self.ended_at: float | None = None  # when it was last said that the crawl is over, and it still is
        self.reopenings = 0
        self._scene = scene
        self._version = 0
        self._was_active: dict[SimHost, bool] = {}
        self._joins_since: dict[tuple[SimHost, int], float] = {}  # by host and life
        # When a newcomer began to tell that it owns, and whom it saw.
        self._began: dict[SimHost, tuple[float, View]] = {}
        self._crashed_at = -QUIET_S

    # Nodes

    def look(self, host: SimHost) -> None:
        """A host does something: has it become active?"""
        active = is_active(host)
        if not is_owner(host):
            self._began.pop(host, None)
        elif host not in self._began:
            self._began[host] = self._scene.time(), view_of(host)
        if not active:
            self._joins_since.setdefault((host, host.starts), self._scene.time())
        elif not self._was_active.get(host):
            self._scene.befell()
            self._joined(host, self._joins_since.pop((host, host.starts), self._scene.time()))
        self._was_active[host] = active

    def _joined(self, host: SimHost, since: float) -> None:
        """A newcomer has what it is to have by its own view, and is not only to have since another leaves (I4).

        A node that vanishes while it tells the others that it owns is repaired as after any that vanishes. Those that
        it has asked may then hear of something from another that joins, as one that was cut off does; that
        comes to all when the owner has it.
        """
        leaving = [each for each in self._scene.up if _leaves(each)]
        others = view_from([*filter(is_owner, self._scene.side_of(host)), *leaving])
        views = [self._began[host][1], view_of(host), others]
        self._have_tombstones(host, views, f"after {host.name} has joined", [host], joins_since=since)

    def crashes(self) -> None:
        self._crashed_at = self._scene.time()

    def left(self, host: SimHost, handed_over: bool) -> None:
        """A node has left in order: nothing went with it (I4, I5)."""
        scene = self._scene
        there = [each for each in scene.side_of(host) if each is not host and is_owner(each)]
        if handed_over:
            # Sides that have just met still tell each other what the others missed, the leaver or not.
            now = scene.time()
            # A slow disk takes its time for each page of records.
            telling_s = QUIET_S + ENDING_WRITES * scene.swarm.slow_write_s
            calm = not scene.troubled and now - max(self._crashed_at, scene.cuts.over_since(now)) > telling_s
            for each in there if calm else ():
                when = f"after {host.name} has left"
                self._have_tombstones(each, [_own(view_of(each), there)], when, [each], first=1, of=host)
            return
        # It may, where those who are to have it cannot be reached, or none takes it since all are joining.
        owned_since = min((self._began[each][0] for each in there if each in self._began), default=scene.time())
        calm_since = max(self._crashed_at, scene.cuts.over_since(scene.time()), owned_since)
        if scene.time() - calm_since > QUIET_S and not scene.troubled:
            scene.broken("I5", f"{host.name} left with work not handed over")

    # The crawl

    def wrote(self, host: SimHost, crawl: CrawlBook) -> None:
        scene = self._scene
        if not crawl.ended:
            if self.ended_at is not None and crawl.version > self._version:
                self.ended_at = None
                self.reopenings += 1
            return
        side = scene.side_of(host)
        # Once a partition has healed it may hear of it, though not all know one another again.
        cut = scene.swarm.wires.cut
        heard = (each for each in scene.numbers if each is not host and not cut(each.address, host.address))
        told = (scene.disk(each).crawl for each in heard)
        if any(book is not None and book.ended and book.version >= crawl.version for book in told):
            return
        self._declared(host, side, crawl)
        if crawl.version > self._version or self.ended_at is None:
            self._version, self.ended_at = crawl.version, scene.time()

    def _declared(self, host: SimHost, side: list[SimHost], crawl: CrawlBook) -> None:
        """Nothing that this side can know of is left (I10), and all who keep a record know that it is over (I4)."""
        scene = self._scene
        if crawl.ended not in self._right_ends():
            scene.broken("I10", f"{host.name} says that the crawl has ended as {crawl.ended}")
        disks = [scene.disk(each).tasks for each in side]
        for key in scene.ledger.best:
            best = max((tasks.get(key, NOTHING) for tasks in disks), default=NOTHING)
            if best is not NOTHING and not best.over:
                scene.broken("I10", f"{host.name} says complete, but {scene.ledger.name(key)} is {best.words}")
        owners = [each for each in side if is_owner(each)]
        # A node that vanished a moment ago still counts among those that keep a record, for the node that declares it.
        views = [_own(view_of(host), owners), view_of(host)]
        self._have_tombstones(host, views, "at the end", owners)

    def _right_ends(self) -> tuple[str, ...]:
        """What may be said of a crawl that is over: it has failed if the web brings nothing, unless a node is gone."""
        scene = self._scene
        if scene.swarm.web.brings_content():
            return ("complete",)
        return ("failed",) if len(scene.up) == len(scene.numbers) else ("failed", "complete")

    def _have_tombstones(
        self,
        by: SimHost,
        views: list[View],
        when: str,
        keepers: list[SimHost],
        *,
        first: int = 0,
        of: SimHost | None = None,
        joins_since: float = inf,
    ) -> None:
        """Whether those who keep a record, by all these views, know that it is over: all, or the `first`.

        With `of` only what that one ever had is looked at; and only what the owner has, or any had at `joins_since`.
        """
        scene, now = self._scene, self._scene.time()
        had_by = None if of is None else scene.numbers[of]
        # It waits for what is under way to the same node, and a whole record may have to follow.
        on_its_way_s = ON_ITS_WAY_S + 4 * scene.swarm.slow_write_s
        disks = {each.id: scene.disk(each) for each in scene.side_of(by)}
        wanted = {each.id: each.name for each in keepers}
        for key, over_at in scene.ledger.over_at.items():
            if now - over_at < on_its_way_s or (had_by is not None and had_by not in scene.ledger.ever[key]):
                continue
            sets = [[each.id for each in view.closest(placement(key), scene.replicas + 1)] for view in views]
            all_ = [node for node in sets[0] if node in disks]
            owner = next((node for node in all_ if node != by.id), None)
            known = [
                (disks[node].tasks.get(key, NOTHING), disks[node].since.get(key, now), node == owner) for node in all_
            ]
            sure = max(
                (rank for rank, since, owns in known if now - since >= on_its_way_s and (owns or since <= joins_since)),
                default=NOTHING,
            )
            asked = [each[:first] if first else each for each in sets]
            for node in asked[0]:
                rank = disks[node].tasks.get(key, NOTHING) if node in disks else sure
                if node in wanted and all(node in each for each in asked) and sure.over and _behind(rank, sure):
                    text = f"{wanted[node]} has {scene.ledger.name(key)} as {rank.words} {when}; it is {sure.words}"
                    scene.broken("I4", text)

    def stuck(self, waits_s: float) -> bool:
        """Whether nothing has moved for so long that nothing will; `waits_s` may be waited on purpose (I13)."""
        scene = self._scene
        if scene.troubled:
            scene.befell()
        if self.reopenings > REOPENINGS_MAX:
            scene.broken("I13", f"the crawl has ended and gone on again {self.reopenings} times")
            return True
        since = max(scene.ledger.moved_at, scene.befell_at)
        if self.ended_at is None and scene.time() - since > STUCK_S + waits_s:
            states = ", ".join(f"{host.name} {host.swarm.state}" for host in scene.up if host.swarm is not None)
            scene.broken("I13", f"nothing has got further since {since:.1f} s ({states})")
            return True
        return False

    def in_time(self, waits_s: float) -> None:
        """Whether the end came soon after there was nothing left to do (I10)."""
        since = max(self._scene.ledger.moved_at, self._scene.befell_at)
        bound_s = ENDING_S + ENDING_WRITES * self._scene.swarm.slow_write_s + waits_s
        if self.ended_at is not None and self.ended_at - since > bound_s:
            self._scene.broken("I10", f"ended at {self.ended_at:.1f} s, though nothing was left since {since:.1f} s")


def _behind(rank: Rank, sure: Rank) -> bool:
    return not rank.over or rank.gen < sure.gen


def _leaves(host: SimHost) -> bool:
    """Whether it is on its way out, and was active."""
    return host.swarm is not None and host.swarm.ready.is_set() and host.swarm.state == "leaving"


def _own(view: View, hosts: list[SimHost]) -> View:
    """The part of a view that owns in truth."""
    there = {host.id for host in hosts}
    return View(member for member in view.members if member.id in there)
