"""Judges a simulated swarm from outside, while it runs: the design's invariants, at every step.

It sees every write to every disk (`Ledger`), every message as it is answered,
every request to the web, and what befalls whom (`Scene`). It shares no code
with those who keep the promises, and asks the nodes' own books only for what
they believe (their view, whether they take themselves for active), where a
promise is about just that. A *side* is all who can hear one another.

    I1   a link is acked: its record is, or was, on the disks of as many nodes as an ack needs    judge_acks
    I2   a record is written: not less far than what it replaces on its disk                      here
    I3   a page becomes done: its links are acked                                                 judge_acks
    I4   a node becomes active, leaves, ends the crawl: those who keep a record that is over      judge_ends
         know it, as far as another keeper on their side does
    I5   a record is dropped: others have it as far; a disk is lost, a node leaves: nothing       judge_acks,
         that was acked goes with it                                                              judge_ends
    I6   a backup is written to: it answers with what it knew better before                       judge_acks
    I7   a link is acked or moved: the node owns it by its view, or the owner was tried; who is   judge_acks
         named is closer
    I8   a page is asked for: only once, but for what a fault made a side ignorant of; and not    judge_fetches
         by a node whose own disk knows better. The collection at the end has it once             outcome
    I9   at the end: no request came sooner than the delay after the last byte before, but        judge_fetches
         for what sides that were apart did, which is counted
    I10  a node says complete: no task is left on its side; soon after nothing was left;          judge_ends,
         all know it soon                                                                         swarm_run
    I11  a page is opened again: its body was out of reach for as long as others wait for it;     judge_fetches,
         a node has nothing under way: it knows how many pages have too few copies. At the end    judge_copies
         every page's body is in the collection                                                   swarm_run
    I12  a link is acked, the web is asked: the node is active, and has joined again if it        judge_acks,
         stood still                                                                              judge_fetches
    I13  something gets further all the time, partitions and pauses aside; who was apart meets;   judge_ends, scene,
         who is told to stop, stops                                                               swarm_run
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from dhtcrawl.rpc.tasks.messages import Reply, Request
from dhtcrawl.sim.bad_member import BadMember
from dhtcrawl.sim.judge_acks import Acks
from dhtcrawl.sim.judge_copies import CopyCounts
from dhtcrawl.sim.judge_ends import Ends
from dhtcrawl.sim.judge_fetches import Fetches
from dhtcrawl.sim.ledger import Ledger, WatchedEngine
from dhtcrawl.sim.scene import Scene, is_owner
from dhtcrawl.sim.swarm import SimHost, SimSwarm
from dhtcrawl.spec import CrawlSpec
from dhtcrawl.url import host_of

# A bad member cannot have the web asked too soon, by nodes of other types or by one that is not active. That it tells
# false records and makes nodes wait, for an end too, is known.
HOLDS_BESIDE_A_BAD_MEMBER = ("I9", "I12", "types")


class Oracle:
    """Judges one crawl of a swarm."""

    def __init__(self, swarm: SimSwarm, spec: CrawlSpec, crawl: bytes, bad: BadMember | None = None) -> None:
        """With a `bad` member only what must hold in spite of it is judged, and nothing that this member does."""
        self.messages = 0  # of the task plane, between different nodes
        time, settings = asyncio.get_running_loop().time, swarm.config.swarm
        self.ledger = Ledger(time, spec.keys.width)
        self.scene = Scene(swarm, self.ledger, time, replicas=settings.replicas, acks=settings.acks)
        self.acks = Acks(self.scene)
        self.fetched = Fetches(
            self.scene,
            swarm.web,
            spec.key_of,
            suspicion_s=settings.suspicion_s,
            grace_s=settings.holder_grace_s,
        )
        self.ends = Ends(self.scene)
        self._types = spec.types
        self.bad = bad
        if bad is not None:
            self.scene.judged = HOLDS_BESIDE_A_BAD_MEMBER
        self.copies = CopyCounts(self.scene, crawl, spec.settings.copies)

    @property
    def violations(self) -> list[str]:
        """What does not hold; grows."""
        return self.scene.violations

    @property
    def ended_at(self) -> float | None:
        """When the crawl ended; None while it goes on, or goes on again."""
        return self.ends.ended_at

    @property
    def work_left(self) -> bool:
        """Whether a task is known that is not over; a crawl whose bodies are out of reach has ended only later."""
        best = self.ledger.best
        return not best or any(not rank.over for rank in best.values())

    def is_bad(self, host: SimHost) -> bool:
        """Whether it is the bad member, of which nothing is judged."""
        return self.bad is not None and host.name == self.bad.name

    def broken(self, invariant: str, text: str) -> None:
        """Note a violation that another part found."""
        self.scene.broken(invariant, text)

    # What is seen

    def engine(self, host: SimHost) -> WatchedEngine:
        if host in self.scene.numbers:
            self.ledger.lose(self.scene.numbers[host])
        number = self.scene.numbers[host] = self.ledger.open(host.name, host.id)
        if self.is_bad(host):
            return WatchedEngine(lambda _: None)
        engine = WatchedEngine(lambda batch: self._wrote(host, number, engine, batch))
        return engine

    def _wrote(self, host: SimHost, number: int, engine: WatchedEngine, batch: Mapping[bytes, bytes | None]) -> None:
        self._look(host)
        changes = self.ledger.wrote(number, batch, engine.get)
        for key, before, rank in changes.backwards:
            name = self.ledger.name(key)
            self.broken("I2", f"{name} at {host.name} went back from {before.words} to {rank.words}")
        for gone in changes.deleted:
            self.acks.deleted(host, gone)
            if gone.rank.arrived:
                self.fetched.dropped(host, gone.key)
        for page in changes.reopened:
            self.fetched.reopened(host, page)
        for done in changes.finished:
            self.acks.finished(host, done)
        if changes.crawl is not None:
            self.ends.wrote(host, changes.crawl)

    def asked(self, host: SimHost, asker: bytes, message: Request) -> Callable[[Reply], None]:
        self.messages += asker != host.id
        if self.is_bad(host):
            return lambda _: None
        self._look(host)
        return self.acks.asked(host, message)

    def fetches(self, host: SimHost, url: str) -> None:
        if self.bad is not None and self.is_bad(host):
            self.bad.fetches(url)
            return
        self._look(host)
        wanted = self._types.get(host_of(url))
        if wanted is not None and self.scene.swarm.type_of(host) != wanted:
            self.broken("types", f"{host.name} asked for {url}, which is for nodes of {wanted}")
        self.fetched.asks(host, url)

    # What happens

    def crashes(self, host: SimHost, *, bodies_gone: bool) -> None:
        """A host is about to crash; with `bodies_gone` its disk goes too, or it stays away for too long."""
        self.ends.crashes()
        self._goes(host)

    def disk_lost(self, host: SimHost) -> None:
        self.acks.disk_lost(host)

    def disk_failed(self, host: SimHost) -> None:
        self.ends.crashes()
        self._goes(host)

    def left(self, host: SimHost, handed_over: bool) -> None:
        self.ends.left(host, handed_over)
        if handed_over and any(is_owner(each) for each in self.scene.side_of(host)[1:]):
            self.fetched.ends(host)
            self.scene.leaves_sight(host)
        else:
            self._goes(host)

    def partitions(self, sides: Sequence[Sequence[SimHost]], one_way: bool) -> None:
        self.fetched.befalls(lambda: self.scene.is_cut(sides))

    def healed(self) -> None:
        self.scene.heals()

    def pauses(self, host: SimHost) -> None:
        self.fetched.befalls(lambda: self.scene.pauses(host))

    def resumes(self, host: SimHost) -> None:
        self.fetched.went_on(host, self.scene.resumes(host))

    def step(self) -> None:
        self.scene.look()
        if self.bad is not None:
            self.bad.look(self.scene.swarm.hosts)
        for host in self.scene.up:
            self._look(host)
        self.copies.look()

    def _goes(self, host: SimHost) -> None:
        def goes() -> None:
            self.scene.leaves_sight(host)
            self.fetched.ends(host)

        self.fetched.befalls(goes, host)

    def _look(self, host: SimHost) -> None:
        self.ends.look(host)
        self.fetched.look(host)
