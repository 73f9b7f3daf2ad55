"""Judges what a swarm says it has: acks, copies, ends of pages, and what disks are left with (I1, I3, I5, I6, I7, I12).

An ack needs the record on the disks of W nodes besides the acker's, fewer only
where the acker's side of the swarm is smaller; or where it sees fewer, and
those that it misses stood still or began again a moment ago. What was acked with fewer than
W + 1 disks for such a reason is *thin* until so many have it: it may go with a
disk, and is counted then (`thin_lost`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf

from dhtcrawl.keyspace import placement
from dhtcrawl.rpc.membership.view import View
from dhtcrawl.rpc.tasks.messages import Ack, Code, DeleteBackup, Reply, Request, StoreBackup, StoreTask
from dhtcrawl.sim.ledger import NOTHING, Deleted, Finished, Rank, rank_of
from dhtcrawl.sim.scene import Scene, is_active, is_owner, view_of
from dhtcrawl.sim.swarm import SimHost

# More than W disks lost within so much time in which no node was out of sight, and an acked record may be gone.
REPAIR_S = 60.0
# A page's last link became safe no longer ago than this when the page becomes done.
UNDER_WAY_S = 10.0
# For how long the views that a host had are kept, as seen whenever it did something. Who asks waits 30 s for an answer,
# which goes by a view that the host had since it was asked.
VIEWS_KEPT_S = 60.0
BESIDE_KEPT = 16


class Acks:
    """Judges the acks of a crawl."""

    def __init__(self, scene: Scene) -> None:
        self.thin_lost = 0  # keys that were acked by fewer disks than usual, and are gone
        self.keys_lost = 0  # keys that are gone since more disks were lost at a time than there are backups
        self._scene = scene
        self._acked: dict[bytes, None] = {}
        self._thin: dict[bytes, None] = {}
        self._lost: set[bytes] = set()  # of `keys_lost`: their senders hold them for safe until the audit
        self._losses: list[float] = []  # in seconds of peace
        self._views: dict[SimHost, list[tuple[float, View]]] = {}
        self._beside: dict[SimHost, list[tuple[View, View]]] = {}  # its views lately, and each without itself
        self._dropped: dict[tuple[SimHost, bytes], tuple[float, Rank]] = {}  # who dropped a record, when

    def look(self, host: SimHost) -> None:
        view, views = view_of(host), self._views.setdefault(host, [])
        if not views or views[-1][1] is not view:
            now = self._scene.time()
            views.append((now, view))
            while views[1:] and views[1][0] <= now - VIEWS_KEPT_S:
                del views[0]

    # Messages

    def asked(self, host: SimHost, message: Request) -> Callable[[Reply], None]:
        self.look(host)
        if isinstance(message, StoreTask):
            joining = host.swarm is not None and not is_owner(host)
            return partial(self._answered, host, message, self._scene.time(), joining)
        if isinstance(message, StoreBackup | DeleteBackup):
            return self._copied(host, message)
        return _ignore

    def _answered(self, host: SimHost, message: StoreTask, asked_at: float, joining: bool, reply: Reply) -> None:
        if not isinstance(reply, Ack) or host.swarm is None:
            return
        self.look(host)
        broken, moved, views = self._scene.broken, reply.moved_to(), self._views_since(host, asked_at)
        for index, (link, code) in enumerate(zip(message.links, reply.codes, strict=True)):
            place = placement(link.key)
            if code in (Code.ACCEPTED, Code.KNOWN):
                if joining:
                    broken("I12", f"{host.name} acked {link.url} while joining")
                if not self._is_safe(link.key, host, views):
                    broken("I1", f"{host.name} acked {link.url}, and {self._who_has(link.key)}")
                owners = [view.owner(place) for view in views]
                if not any(owner is None or owner.id in (host.id, *message.tried) for owner in owners):
                    broken("I7", f"{host.name} took {link.url}, though it knew another owner")
            elif code == Code.MOVED:
                number, peer = int.from_bytes(place, "big"), moved[index].node_id
                if int.from_bytes(peer, "big") ^ number >= int.from_bytes(host.id, "big") ^ number:
                    broken("I7", f"{host.name} named one for {link.url} who is not closer")

    def _copied(self, host: SimHost, message: StoreBackup | DeleteBackup) -> Callable[[Reply], None]:
        """A backup answers a write with what it knew better before (I6)."""
        rows = message.records if isinstance(message, StoreBackup) else message.tombstones
        tasks = self._scene.disk(host).tasks
        came: dict[bytes, Rank] = {}
        for row in rows:
            # A record that got further before it was sent goes twice.
            came[row.key] = max(came.get(row.key, NOTHING), rank_of(row.state, row.gen, row.attempt))
        better = {key: rank for key, rank in came.items() if tasks.get(key, NOTHING).beyond(rank)}
        if not better:
            return _ignore
        return partial(self._wrote_back, host, [row.key for row in rows], better, self._scene.time())

    def _wrote_back(
        self, host: SimHost, keys: Sequence[bytes], better: Mapping[bytes, Rank], asked_at: float, reply: Reply
    ) -> None:
        if not isinstance(reply, Ack) or host.swarm is None:
            return
        tasks, told = self._scene.disk(host).tasks, {record.key for record in reply.records}
        # What is refused, as a doubtful place may be, is sent again, and answered then.
        told |= {key for key, code in zip(keys, reply.codes, strict=True) if code == Code.FAILED}
        for key, came in better.items():
            # It may have let go of the record meanwhile, and have got it again from whoever asked.
            dropped_at, _ = self._dropped.get((host, key), (-inf, NOTHING))
            if key not in told and dropped_at < asked_at and tasks.get(key, NOTHING).beyond(came):
                self._scene.broken("I6", f"{host.name} knew {self._name(key)} better, and did not say so")

    # Disks

    def finished(self, host: SimHost, page: Finished) -> None:
        """A page has become done: its links are acked, or are this node's and as safe as if they were (I3)."""
        self.look(host)
        views = self._views_since(host, self._scene.time() - UNDER_WAY_S)
        for link in page.links:
            if link in self._acked or link in self._lost:
                continue
            if not self._is_safe(link, host, views):
                text = f"{self._name(page.key)} is done at {host.name}, its link {self._name(link)} not safe: "
                self._scene.broken("I3", text + self._who_has(link))

    def deleted(self, host: SimHost, gone: Deleted) -> None:
        """A record was dropped: those who are to have it have it at least as far (I5)."""
        self.look(host)
        views = [self._without(view, host) for view in self._views_since(host, self._scene.time() - UNDER_WAY_S)]
        name = f"{self._name(gone.key)} ({gone.rank.words})"
        copies = self._scene.ledger.copies(gone.key, gone.rank, besides=self._scene.numbers[host])
        wanted = self._wanted(host, views, besides=True)
        if copies < wanted:
            self._scene.broken("I5", f"{host.name} dropped {name}, which {copies} others have, not {wanted}")
        # Which view it went by, we cannot know.
        side = self._scene.side_of(host)[1:]
        lacking = min((self._lacking(side, gone, view) for view in views), key=len, default=[])
        self._dropped[host, gone.key] = (self._scene.time(), gone.rank)
        if lacking:
            self._scene.broken("I5", f"{host.name} dropped {name}, which {', '.join(lacking)} had to have first")

    def _lacking(self, side: list[SimHost], gone: Deleted, view: View) -> list[str]:
        """The names of the nodes that are to keep a record, are there, and have less of it."""
        scene, lacking = self._scene, []
        keepers = {member.id for member in view.closest(placement(gone.key), scene.replicas + 1)}
        for keeper in side:
            rank = scene.disk(keeper).tasks.get(gone.key, NOTHING)
            if keeper.id in keepers and rank < gone.rank and not rank.over and not self._had(keeper, gone):
                lacking.append(keeper.name)
        return lacking

    def _had(self, keeper: SimHost, gone: Deleted) -> bool:
        """Whether it has dropped the same a moment ago: it heard earlier of a node that is closer."""
        at, rank = self._dropped.get((keeper, gone.key), (-inf, NOTHING))
        return not gone.rank.beyond(rank) and self._scene.time() - at <= UNDER_WAY_S

    def disk_lost(self, host: SimHost) -> None:
        """A disk is gone: what was acked is on another one (I1, I5)."""
        scene = self._scene
        now = scene.peace_s
        self._losses = [at for at in self._losses if now - at < REPAIR_S] + [now]
        too_many = len(self._losses) > scene.acks
        for key in [key for key in self._acked if not scene.ledger.remains(key)]:
            del self._acked[key]  # to be told once
            if key in self._thin and len(scene.ledger.ever[key]) <= scene.acks:
                self.thin_lost += 1
            elif too_many:
                self.keys_lost += 1
                self._lost.add(key)
            else:
                text = f"{self._name(key)} was acked, and no disk has it since that of {host.name} is gone"
                scene.broken("I5", text)

    # Judging

    def _is_safe(self, key: bytes, host: SimHost, views: Sequence[View]) -> bool:
        """Whether as many disks have had a record as an ack of this host needs, its own among them."""
        ever = self._scene.ledger.ever.get(key, {})
        self._acked[key] = None
        if len(ever) <= self._scene.acks:
            self._thin[key] = None
        return self._scene.numbers[host] in ever and len(ever) >= self._wanted(host, views)

    def _wanted(self, host: SimHost, views: Sequence[View], *, besides: bool = False) -> int:
        """W + 1 disks; fewer where its side is smaller, or it sees fewer, by no fault of another node."""
        scene = self._scene
        side = [each for each in scene.side_of(host) if is_active(each) and not (besides and each is host)]
        wanted = min(scene.acks + 1, len(side))
        for view in views:
            seen = {member.id for member in view.members}
            if len(view) >= wanted:
                continue
            there = [host, *(each for each in scene.numbers if each is not host and each.id in seen)]
            if all(self._was_away(each, there) for each in side if each.id not in seen):
                wanted = len(view)
        return wanted

    def _was_away(self, host: SimHost, seen_from: Sequence[SimHost]) -> bool:
        """Whether one of these may have had to do without a host lately.

        Who comes from the other side of a partition says that those of this side are dead, and is believed until they
        object. And where all who owned went at once, those that come back may find each other in two groups, each of
        which begins anew before it hears of the other.
        """
        scene = self._scene
        if scene.is_back(host) or scene.time() - host.started_at < UNDER_WAY_S:
            return True
        return any(scene.cuts.were_apart(host.name, each.name, scene.time(), UNDER_WAY_S) for each in seen_from)

    def _views_since(self, host: SimHost, at: float) -> list[View]:
        """What it saw from then on, the view that it had then included."""
        views = self._views.get(host, [])
        before = [view for seen_at, view in views if seen_at <= at]
        return [*before[-1:], *(view for seen_at, view in views if seen_at > at)]

    def _without(self, view: View, host: SimHost) -> View:
        known = self._beside.setdefault(host, [])
        for seen, others in known:
            if seen is view:
                return others
        others = View(member for member in view.members if member.id != host.id)
        known.append((view, others))
        del known[:-BESIDE_KEPT]
        return others

    def _who_has(self, key: bytes) -> str:
        names = [self._scene.ledger.disks[number].name for number in self._scene.ledger.ever.get(key, ())]
        return f"only {len(names)} had it on disk: {', '.join(names) or 'no node'}"

    def _name(self, key: bytes) -> str:
        return self._scene.ledger.name(key)


def _ignore(_: Reply) -> None:
    return
