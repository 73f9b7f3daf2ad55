"""Nodes, gatekeepers and one host on a list of events: leases among clocks that drift, stops, crashes and losses.

Everything that can go wrong between a holder and a gatekeeper goes wrong here,
from one seed. Each actor has a clock of its own, up to 1 % fast or slow; true
time is known to the world only, which writes down when requests began and ended
at the host.

A stopped actor gets nothing done until it goes on; what came meanwhile, and its
timers, then come in any order. What it did by being stopped is not held against
it: a request under way that ought to have been aborted is taken as ended then.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from dhtcrawl.swarm.hosts.gatekeeper import Gatekeeper
from dhtcrawl.swarm.hosts.lease_holder import LeaseHolder
from dhtcrawl.swarm.hosts.leases import GiveBack, Granted, LeaseAsk, LeaseTerms, Wait

HOST = "h.example"
DRIFT = 0.01
SUSPICION_S = 5.0  # who does not run for longer is no gatekeeper any more
ASK_TIMEOUT_S = 2.0
RETRY_S = 0.5


@dataclass(frozen=True, slots=True)
class Troubles:
    """What may happen; times in seconds, chances per message or per second."""

    latency_s: tuple[float, float] = (0.0005, 0.0005)
    slow_message: float = 0.0  # chance of up to 5 s
    loss: float = 0.0
    drift: float = 0.0
    slow_answer: float = 0.0  # chance of an answer that takes up to 40 s
    pauses: float = 0.0  # of a node, each up to 30 s
    crashes: float = 0.0
    takeovers: float = 0.0  # crash, stop, or handing over of the gatekeeper
    quiet: float = 0.0  # chance after a request that nothing is to be fetched for a while


@dataclass(slots=True)
class Served:
    """A request as the host saw it, in true time; `ended_at` is what its sender could help."""

    node: int
    began_at: float
    ended_at: float = math.inf


class TrueTime:
    """True time, and what is to happen."""

    def __init__(self, seed: int, troubles: Troubles) -> None:
        self.rng = random.Random(seed)
        self.troubles = troubles
        self.now = 0.0
        self.served: list[Served] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._turn = 0

    def at(self, when: float, act: Callable[[], None]) -> None:
        self._turn += 1
        heapq.heappush(self._events, (when, self._turn, act))

    def run(self, until: float) -> None:
        while self._events and self._events[0][0] <= until:
            when, _, act = heapq.heappop(self._events)
            self.now = max(self.now, when)
            act()

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def send(self, to: Actor, act: Callable[[], None]) -> None:
        """A message; `act` is what the receiver does with it."""
        if self.chance(self.troubles.loss):
            return
        late_s = self.rng.uniform(0.0, 5.0) if self.chance(self.troubles.slow_message) else 0.0
        to.at(self.now + late_s + self.rng.uniform(*self.troubles.latency_s), act)


class Actor:
    """A process with a clock of its own."""

    def __init__(self, world: TrueTime) -> None:
        self.world = world
        drift = world.troubles.drift
        self._rate = 1.0 + world.rng.uniform(-drift, drift)
        self._first = world.rng.uniform(0.0, 1000.0)
        self.life = 0  # what was set going in an earlier life does not happen
        self.alive = True
        self.stopped_until = -math.inf

    def clock(self) -> float:
        return self._first + self.world.now * self._rate

    def true_time(self, at: float) -> float:
        """When our clock shows `at`."""
        return (at - self._first) / self._rate

    def at(self, when: float, act: Callable[[], None]) -> None:
        """Do something at a true time, or when we go on after it."""
        life = self.life

        def fire() -> None:
            if life != self.life or not self.alive:
                return
            if self.world.now < self.stopped_until:
                self.world.at(self.stopped_until + self.world.rng.uniform(0.0, 0.001), fire)
            else:
                act()

        self.world.at(when, fire)

    def stop(self, for_s: float) -> None:
        self.stopped_until = self.world.now + for_s


class Keeper(Actor):
    """A gatekeeper, one of a succession."""

    def __init__(self, world: TrueTime, core: Gatekeeper, members: list[Member]) -> None:
        super().__init__(world)
        self.core = core
        self.active = False
        self._members = members

    def answer(self, asks: list[LeaseAsk], member: Member) -> list[Granted | Wait | None]:
        now = self.clock()
        answers = [self.core.ask(ask, member.id, now) if self.active else None for ask in asks]
        self.look()
        return answers

    def take_back(self, back: GiveBack, since_end_s: float | None, hold_s: float, member: Member) -> bool:
        if self.active:
            self.core.give_back(back.host, member.id, back.lease_id, since_end_s, hold_s, self.clock())
            self.look()
        return self.active

    def look(self) -> None:
        if not self.active:
            return
        for node, host in self.core.offers(self.clock()):
            self._offer(self._members[node[0]], host)
        due_at = self.core.next_due_at()
        if due_at < math.inf:
            self.at(max(self.world.now, self.true_time(due_at)) + 1e-9, self.look)

    def _offer(self, member: Member, host: str) -> None:
        def unwanted() -> None:
            self.core.withdraw(host, member.id)
            self.look()

        def offered() -> None:
            if not member.book.offered(host):
                self.world.send(self, unwanted)
            member.step()

        self.world.send(member, offered)


class Member(Actor):
    """A node that has pages of the host to fetch, again and again."""

    def __init__(self, world: TrueTime, number: int, delay_s: float, book: type[LeaseHolder]) -> None:
        super().__init__(world)
        self.id = bytes([number])
        self.keeper: Keeper | None = None
        self.delay_s = delay_s
        self.has_work = True
        self.violations = 0
        self._number = number
        self._make = book
        self._request: Served | None = None
        self._wake_at = math.inf
        self.book = self._new_book(fresh=True)

    def _new_book(self, *, fresh: bool) -> LeaseHolder:
        return self._make(now=self.clock, started_at=self.clock(), fresh=fresh)

    def step(self) -> None:
        """What the shell does in one turn."""
        now, book = self.clock(), self.book
        if book.overdue(now) and self._request is not None:
            self._ended(aborted=True)
        for back in book.returns(now):
            self._give_back(back)
        for host in book.free(now):
            self._fetch()
            book.offered_around(host)
        self._fetch()
        asks = [*book.renewals(now), *book.wishes(now)]
        if asks:
            self._ask(asks)
        wake_at = self.world.now if book.next_due_at() == -math.inf else self.true_time(book.next_due_at())
        if self._request is None and self.has_work:
            ready_at = book.clock(HOST).ready_at(self.delay_s)
            wake_at = min(wake_at, self.true_time(ready_at) if ready_at < math.inf else math.inf)
        wake_at = max(wake_at, self.world.now) + 1e-9
        if wake_at < self._wake_at or self._wake_at <= self.world.now:
            self._wake_at = wake_at
            if wake_at < math.inf:
                self.at(wake_at, self.step)

    def _fetch(self) -> None:
        clock = self.book.clock(HOST)
        if self._request is not None:
            return
        if not self.has_work:
            self.book.quiet(HOST)
            return
        if clock.ready_at(self.delay_s) > self.clock():
            return
        clock.begin(self.clock(), self.delay_s)
        troubles, rng = self.world.troubles, self.world.rng
        self._request = Served(self._number, self.world.now)
        self.world.served.append(self._request)
        seconds = rng.uniform(1.0, 40.0) if self.world.chance(troubles.slow_answer) else rng.uniform(0.01, 0.03)
        request = self._request
        # The host answers whether we run or not; we see it when we do.
        self.world.at(self.world.now + seconds, lambda: self._answered_by(request))
        self.at(self.world.now + seconds, lambda: self._ended() if self._request is request else None)

    def _answered_by(self, request: Served) -> None:
        request.ended_at = min(request.ended_at, self.world.now)

    def _ended(self, *, aborted: bool = False) -> None:
        request, self._request = self._request, None
        assert request is not None
        deadline = self.true_time(self.book.deadline(HOST))
        assert aborted or deadline >= self.world.now - 0.01 or self.stopped_until > deadline, "it outlived its lease"
        request.ended_at = min(request.ended_at, self.world.now, max(request.began_at, deadline))
        self.book.clock(HOST).end(self.clock())
        if self.world.chance(self.world.troubles.quiet):
            self.has_work = False
            self.at(self.world.now + self.world.rng.uniform(0.0, 8.0), self._work_again)
        self.step()

    def finish(self) -> None:
        """The story ends: what is under way ends with its lease."""
        if self._request is not None:
            deadline = max(self._request.began_at, self.true_time(self.book.deadline(HOST)))
            self._request.ended_at = min(self._request.ended_at, deadline)

    def _work_again(self) -> None:
        self.has_work = True
        self.step()

    def crash(self, back_in_s: float) -> None:
        """Lose everything, and begin anew."""
        if self._request is not None:
            self._request.ended_at = min(self._request.ended_at, self.world.now)
            self._request = None
        self.violations += self.book.violations
        self.life += 1
        self.alive = False
        self.stopped_until = -math.inf

        def again() -> None:
            self.alive = True
            self.book = self._new_book(fresh=False)
            self._wake_at, self.has_work = math.inf, True
            self.step()

        self.at(self.world.now + back_in_s, again)

    # -- calls --

    def _ask(self, asks: list[LeaseAsk]) -> None:
        keeper, asked_at, open_ = self.keeper, self.clock(), [True]

        def answered(answers: list[Granted | Wait | None]) -> None:
            if not open_:
                return
            open_.clear()
            now = self.clock()
            for ask, answer in zip(asks, answers, strict=True):
                if isinstance(answer, Granted):
                    self.book.granted(ask, answer, asked_at, now)
                elif ask.lease_id:
                    self.book.not_renewed(ask, now, refused=answer is not None)
                else:
                    self.book.waiting(ask.host, now + (RETRY_S if answer is None else answer.after_s))
            self.step()

        def received() -> None:
            assert keeper is not None
            answers = keeper.answer(asks, self)
            self.world.send(self, lambda: answered(answers))

        self.at(self.world.now + ASK_TIMEOUT_S, lambda: answered([None] * len(asks)))
        if keeper is not None:
            self.world.send(keeper, received)

    def _give_back(self, back: GiveBack) -> None:
        keeper, open_ = self.keeper, [True]
        since_end_s, hold_s = back.since_end_s(self.clock()), back.hold_s(self.clock())

        def told(done: bool) -> None:
            if open_ and not done:
                self.book.return_later(back, self.clock())
                self.step()
            open_.clear()

        def received() -> None:
            assert keeper is not None
            done = keeper.take_back(back, since_end_s, hold_s, self)
            self.world.send(self, lambda: told(done))

        self.at(self.world.now + ASK_TIMEOUT_S, lambda: told(False))
        if keeper is not None:
            self.world.send(keeper, received)

    def sees(self, keeper: Keeper) -> None:
        """The view has changed."""
        self.keeper = keeper
        if self.alive:
            self.book.forget_gatekeeper(lambda _: True)
            self.step()


@dataclass
class Story:
    """One run: the nodes, the succession of gatekeepers, and what the host saw."""

    seed: int
    troubles: Troubles
    members: int = 4
    delay_s: float = 0.5
    seconds: float = 150.0
    terms: LeaseTerms = field(default_factory=lambda: LeaseTerms(ttl_s=4.0))
    book: type[LeaseHolder] = LeaseHolder
    keeper: Callable[[LeaseTerms, random.Random], Gatekeeper] = Gatekeeper

    def run(self) -> list[Served]:
        self.world = TrueTime(self.seed, self.troubles)
        self.nodes = [Member(self.world, number, self.delay_s, self.book) for number in range(self.members)]
        first = self._new_keeper()
        first.active = True
        for node in self.nodes:
            node.keeper = first
            node.at(0.0, node.step)
        self._current = first
        self._successor_due = 0.0
        self.world.at(1.0, self._mishaps)
        self.world.run(self.seconds)
        for node in self.nodes:
            node.finish()
        return self.world.served

    def _new_keeper(self) -> Keeper:
        core = self.keeper(self.terms, random.Random(self.world.rng.getrandbits(64)))
        return Keeper(self.world, core, self.nodes)

    def _mishaps(self) -> None:
        """Once a second: does something go wrong?"""
        world, rng, troubles = self.world, self.world.rng, self.troubles
        node = rng.choice(self.nodes)
        if node.alive and world.now >= node.stopped_until:
            if world.chance(troubles.pauses):
                node.stop(rng.uniform(0.1, 30.0))
            elif world.chance(troubles.crashes):
                node.crash(rng.uniform(0.1, 10.0))
        if world.now >= self._successor_due and world.chance(troubles.takeovers):
            rng.choice([self._keeper_crashes, self._keeper_stops, self._keeper_hands_over])()
        world.at(world.now + 1.0, self._mishaps)

    def _keeper_crashes(self) -> None:
        self._current.alive = self._current.active = False
        self._successor(rng_s=(0.1, 6.0))

    def _keeper_stops(self) -> None:
        old, for_s = self._current, self.world.rng.uniform(0.5, 30.0)
        old.stop(for_s)
        if for_s <= SUSPICION_S:
            return
        # It looks at how long it did not run before it does anything else.
        self.world.at(old.stopped_until, lambda: setattr(old, "active", False))
        self._successor(rng_s=(SUSPICION_S, SUSPICION_S + 2.0))

    def _successor(self, *, rng_s: tuple[float, float]) -> None:
        """Another learns that it is gatekeeper, without state; the nodes learn it before or after."""
        new, rng, now = self._new_keeper(), self.world.rng, self.world.now

        def takes_over() -> None:
            new.active = True
            new.core.took_over(new.clock(), lambda _: False)

        new.at(now + rng.uniform(*rng_s), takes_over)
        self._announce(new, (rng_s[0], rng_s[1] + 2.0))

    def _keeper_hands_over(self) -> None:
        old, new, rng = self._current, self._new_keeper(), self.world.rng
        if self.world.now < old.stopped_until:
            return
        old.active = False
        rows = old.core.export(lambda _: True, old.clock())

        def adopts() -> None:
            new.core.adopt(rows, new.clock())
            new.active = True

        new.at(self.world.now + rng.uniform(0.0, 1.0), adopts)
        self._announce(new, (0.0, 1.0))

    def _announce(self, new: Keeper, rng_s: tuple[float, float]) -> None:
        self._current, self._successor_due = new, self.world.now + rng_s[1] + 1.0
        for node in self.nodes:
            self.world.at(self.world.now + self.world.rng.uniform(*rng_s), partial(self._tell, node, new))

    def _tell(self, node: Member, new: Keeper) -> None:
        # A view outlives the crash of a node here: it is learned anew before anything is asked.
        if self.world.now < node.stopped_until:
            self.world.at(node.stopped_until, lambda: self._tell(node, new))
        else:
            node.sees(new)

    # -- the judge --

    def too_soon(self) -> list[tuple[Served, Served]]:
        """Pairs of requests of which the second began before the delay after the first was over."""
        shortest = self.delay_s / (1 + self.troubles.drift) - 0.001
        found, last = [], None
        for request in sorted(self.world.served, key=lambda request: request.began_at):
            if last is not None and request.began_at < last.ended_at + shortest:
                found.append((last, request))
            if last is None or request.ended_at > last.ended_at:
                last = request
        return found

    @property
    def violations(self) -> int:
        """What the nodes themselves counted."""
        return sum(node.violations + node.book.violations for node in self.nodes)
