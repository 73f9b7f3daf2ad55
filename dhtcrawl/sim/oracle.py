"""Judges a simulated swarm from outside, while it runs: the design's invariants, at every step.

It sees every write to every disk (`Ledger`), every message as it is answered,
and every request to the web. It shares no code with those who keep the
promises, and asks the nodes' own books only for what they believe (their view,
whether they take themselves for active), where a promise is about just that.

    a record is written     I2 never back, I3 done after its links, I5 never the last copy
    a message is answered   I1 acked when safe, I7 only an owner, I12 not while joining
    a request is made       I12 not while joining, I8 not again
    a fault                 I5 what was acked is left; I8 what may be fetched again
    a node is active        I4 it has the tombstones
    the crawl is complete   I10 nothing is left, I4 tombstones are with all who keep them
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

from dhtcrawl.keyspace import placement
from dhtcrawl.rpc.hello import NodeState
from dhtcrawl.rpc.messages import Ack, Code, Reply, Request, StoreTask
from dhtcrawl.rpc.view import Member, View
from dhtcrawl.sim.ledger import Ledger, Rank, WatchedEngine
from dhtcrawl.sim.swarm import SimHost, SimSwarm
from dhtcrawl.sim.web import Visit
from dhtcrawl.spec import CrawlSpec

# A tombstone that is younger may still be on its way to those who keep copies.
ON_ITS_WAY_S = 3.0
# More disks than this lost within the time that repair takes, and an acked record may be gone.
REPAIR_S = 60.0
# Longer without anything getting further, beyond what is waited for on purpose: it will never end.
STUCK_S = 120.0
# The waves after the last task.
ENDING_S = 30.0
# So long after a crash everybody knows of it.
QUIET_S = 30.0
VIOLATIONS_MAX = 200


class Oracle:
    """Of one crawl in one swarm. `violations` grows."""

    def __init__(self, swarm: SimSwarm, spec: CrawlSpec, key_bytes: int, *, replicas: int, acks: int) -> None:
        self.violations: list[str] = []
        self.ended_at: float | None = None
        self.messages = 0  # of the task plane, between different nodes
        self._swarm = swarm
        self._spec = spec
        self._time = asyncio.get_running_loop().time
        self.ledger = Ledger(self._time, key_bytes)
        self._replicas = replicas
        self._acks = acks
        self._numbers: dict[SimHost, int] = {}  # of its disk
        self._acked: dict[bytes, None] = {}
        self._losses: list[float] = []
        self._faulted_at = 0.0
        self._crashed_at = -QUIET_S
        self._was_active: dict[SimHost, bool] = {}
        self._fetched: dict[SimHost, dict[bytes, str]] = {}  # what each asked the web for: task → URL
        self._allowed: dict[str, int] = {}  # how often a URL may be fetched again

    # What is seen

    def engine(self, host: SimHost) -> WatchedEngine:
        """A disk for a host."""
        number = self._numbers[host] = self.ledger.open(host.name, host.id)
        engine = WatchedEngine(lambda batch: self._wrote(host, number, engine, batch))
        return engine

    def _wrote(self, host: SimHost, number: int, engine: WatchedEngine, batch: Mapping[bytes, bytes | None]) -> None:
        changes = self.ledger.wrote(number, batch, engine.get)
        for key, before, rank in changes.backwards:
            self._broken("I2", f"{self._name(key)} at {host.name} went back from {_words(before)} to {_words(rank)}")
        for key, rank in changes.deleted:
            copies, wanted = self.ledger.copies(key, rank, besides=number), self._safe_copies()
            if copies < wanted:
                text = (
                    f"{host.name} dropped {self._name(key)} ({_words(rank)}), which {copies} others have, not {wanted}"
                )
                self._broken("I5", text)
        for key, links in changes.finished:
            for link in links:
                self._acked[link] = None
                if not self._is_safe(link):
                    text = f"{self._name(key)} is done at {host.name}, its link {self._name(link)} not safe: "
                    self._broken("I3", text + self._who_has(link))
        if changes.ended and self.ended_at is None:
            self._ended(host, changes.ended)

    def asked(self, host: SimHost, asker: bytes, message: Request) -> Callable[[Reply], None]:
        """A message has come to a node; what to call with its answer."""
        self.messages += asker != host.id
        if not isinstance(message, StoreTask):
            return _ignore
        return partial(self._answered, host, message, self._view(host), self._joining(host))

    def _answered(self, host: SimHost, message: StoreTask, view: View, joining: bool, reply: Reply) -> None:
        if not isinstance(reply, Ack) or host.swarm is None:
            return
        moved = reply.moved_to()
        for index, (link, code) in enumerate(zip(message.links, reply.codes, strict=True)):
            if code in (Code.ACCEPTED, Code.KNOWN):
                self._acked[link.key] = None
                if joining:
                    self._broken("I12", f"{host.name} acked {link.url} while joining")
                if self._numbers[host] not in self.ledger.ever.get(link.key, {}) or not self._is_safe(link.key):
                    self._broken("I1", f"{host.name} acked {link.url}, and {self._who_has(link.key)}")
                owners = {v.owner(placement(link.key)) for v in (view, self._view(host))}
                if not any(owner is None or owner.id in (host.id, *message.tried) for owner in owners):
                    self._broken("I7", f"{host.name} took {link.url}, though it knew another owner")
            elif code == Code.MOVED:
                place, peer = int.from_bytes(placement(link.key), "big"), moved[index].node_id
                if int.from_bytes(peer, "big") ^ place >= int.from_bytes(host.id, "big") ^ place:
                    self._broken("I7", f"{host.name} named one for {link.url} who is not closer")

    def fetches(self, host: SimHost, url: str) -> None:
        """A node asks the web."""
        if host.swarm is not None and not host.swarm.entrance.active:
            self._broken("I12", f"{host.name} asked for {url} while {host.swarm.state}")
        self._fetched.setdefault(host, {})[self._spec.key_of(url)] = url

    # What happens

    def crashes(self, host: SimHost, *, bodies_gone: bool) -> None:
        """A host is about to crash; with `bodies_gone` its disk goes too, or it stays away for too long."""
        self._faulted_at = self._crashed_at = self._time()
        self._allow(host, bodies_gone=bodies_gone)

    def _allow(self, host: SimHost, *, bodies_gone: bool) -> None:
        """What this host had may have to be fetched again."""
        others = [self.ledger.disks[self._numbers[up]] for up in self._swarm.up if up is not host]
        for key, url in self._fetched.get(host, {}).items():
            # What it had begun and nobody else knows the outcome of is fetched again, once.
            lost = bodies_gone and self.ledger.place.get(key) == host.id.hex()
            if lost or not any(key in disk.tasks and disk.tasks[key].arrived for disk in others):
                self._allowed[url] = self._allowed.get(url, 0) + 1

    def disk_lost(self, host: SimHost) -> None:
        """Its disk is gone."""
        self.ledger.lose(self._numbers[host])
        now = self._time()
        self._losses = [at for at in self._losses if now - at < REPAIR_S] + [now]
        if len(self._losses) > self._acks:
            return
        for key in self._acked:
            if not self.ledger.remains(key):
                self._broken("I5", f"{self._name(key)} was acked, and no disk has it since that of {host.name} is gone")

    def left(self, host: SimHost, handed_over: bool) -> None:
        """A node has left in order."""
        self._faulted_at = self._time()
        if not handed_over:
            # It may, where those who are to have it cannot be reached.
            if self._time() - self._crashed_at > QUIET_S:
                self._broken("I5", f"{host.name} left with work not handed over")
            self._allow(host, bodies_gone=True)
            return
        view = self._present()
        for key in self.ledger.disks[self._numbers[host]].tasks:
            self._has_tombstone(view, key, f"after {host.name} has left", everybody=False)

    def step(self) -> None:
        """Look around, now and then."""
        for host in self._swarm.hosts:
            active = host.swarm is not None and host.swarm.ready.is_set() and host.swarm.entrance.active
            if active and not self._was_active.get(host):
                self._faulted_at = self._time()
                view = self._present()
                for key in self.ledger.over_at:
                    self._has_tombstone(view, key, f"after {host.name} has joined", everybody=True, only=host)
            self._was_active[host] = active

    def stuck(self, waits_s: float) -> bool:
        """Whether nothing has moved for so long that nothing will; `waits_s` may be waited on purpose."""
        since = max(self.ledger.moved_at, self._faulted_at)
        if self.ended_at is None and self._time() - since > STUCK_S + waits_s:
            states = ", ".join(f"{host.name} {host.swarm.state}" for host in self._swarm.up if host.swarm is not None)
            self._broken("I13", f"nothing has got further since {since:.1f} s ({states})")
            return True
        return False

    def refetches(self, visits: list[Visit], brought: Callable[[str, int], bool]) -> int:
        """How many requests brought what an earlier one had; a violation where no fault accounts for it."""
        asked: dict[str, int] = {}
        times: dict[str, int] = {}
        for visit in visits:
            asked[visit.url] = asked.get(visit.url, 0) + 1
            times[visit.url] = times.get(visit.url, 0) + brought(visit.url, asked[visit.url])
        for url, count in times.items():
            if count - 1 > self._allowed.get(url, 0):
                who = ", ".join(f"{v.client} at {v.start:.2f}" for v in visits if v.url == url)
                text = f"{url} was fetched {count} times ({who}), faults account for {1 + self._allowed.get(url, 0)}"
                self._broken("I8", text)
        return sum(count - 1 for count in times.values() if count)

    # Judging

    def _ended(self, host: SimHost, how: str) -> None:
        if how != "complete":
            self._broken("I10", f"{host.name} says that the crawl has ended as {how}")
        self.ended_at = self._time()
        view = self._present()
        for key, rank in self.ledger.best.items():
            if not rank.over and self._within_reach(key):
                self._broken("I10", f"{host.name} says {how}, but {self._name(key)} is {_words(rank)}")
            elif rank.over:
                self._has_tombstone(view, key, "at the end", everybody=True)

    def ended_in_time(self, waits_s: float) -> None:
        """Whether the end came soon after there was nothing left to do."""
        since = max(self.ledger.moved_at, self._faulted_at)
        if self.ended_at is not None and self.ended_at - since > ENDING_S + waits_s:
            self._broken("I10", f"ended at {self.ended_at:.1f} s, though nothing was left since {since:.1f} s")

    def broken(self, invariant: str, text: str) -> None:
        """Something else that does not hold."""
        self._broken(invariant, text)

    def _has_tombstone(
        self, view: View, key: bytes, when: str, *, everybody: bool, only: SimHost | None = None
    ) -> None:
        """Whether those who keep a record that is over know that it is."""
        over_at, best = self.ledger.over_at.get(key), self.ledger.best[key]
        if over_at is None or self._time() - over_at < ON_ITS_WAY_S:
            return
        for member in view.closest(placement(key), self._replicas + 1 if everybody else 1):
            keeper = next(host for host in self._swarm.up if host.id == member.id)
            if only is not None and keeper is not only:
                continue
            rank = self.ledger.disks[self._numbers[keeper]].tasks.get(key)
            if (rank is None or not rank.over or rank.gen < best.gen) and self._is_known(key, best):
                text = f"{keeper.name} has {self._name(key)} as {_words(rank)} {when}; it is {_words(best)}"
                self._broken("I4", text)

    def _safe_copies(self) -> int:
        return min(self._acks + 1, sum(1 for host in self._swarm.up if _is_active(host)))

    def _is_safe(self, key: bytes) -> bool:
        """Whether a record was written by as many as an ack needs."""
        return len(self.ledger.ever.get(key, ())) >= self._safe_copies()

    def _is_known(self, key: bytes, rank: Rank) -> bool:
        """Whether one of those who are there could have told."""
        disks = [self.ledger.disks[self._numbers[host]] for host in self._swarm.up if _is_owner(host)]
        return any(disk.tasks.get(key) == rank for disk in disks)

    def _within_reach(self, key: bytes) -> bool:
        """Whether a node that is there has a record which is not over."""
        disks = [self.ledger.disks[self._numbers[host]] for host in self._swarm.up]
        return any(key in disk.tasks for disk in disks)

    def _present(self) -> View:
        """The owners, as nobody but us can know them."""
        present = [host for host in self._swarm.up if _is_owner(host)]
        return View(Member(host.id, (host.address, 0)) for host in present)

    def _view(self, host: SimHost) -> View:
        return host.swarm.gossip.view if host.swarm is not None and hasattr(host.swarm, "gossip") else View(())

    def _joining(self, host: SimHost) -> bool:
        return host.swarm is not None and not _is_owner(host)

    def _who_has(self, key: bytes) -> str:
        names = [self.ledger.disks[number].name for number in self.ledger.ever.get(key, ())]
        return f"only {len(names)} of {self._safe_copies()} had it on disk: {', '.join(names) or 'nobody'}"

    def _name(self, key: bytes) -> str:
        return self.ledger.url.get(key, key.hex())

    def _broken(self, invariant: str, text: str) -> None:
        if len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(f"{invariant}: {text} (at {self._time():.3f} s)")


def _is_active(host: SimHost) -> bool:
    """Whether it takes itself for one that owns, and all who have to know it do."""
    return host.swarm is not None and host.swarm.ready.is_set() and host.swarm.entrance.active


def _is_owner(host: SimHost) -> bool:
    """Whether it has told the others that it owns, though it may not fetch yet."""
    swarm = host.swarm
    return swarm is not None and hasattr(swarm, "gossip") and swarm.gossip.members.me.state is NodeState.ACTIVE


def _words(rank: object) -> str:
    return "nothing" if rank is None else f"{rank!r}"[5:-1]


def _ignore(_: Reply) -> None:
    return
