"""Decides when a node asks for hosts, renews their leases and gives them back; without I/O.

`LeaseHolder` is a `HostBook` whose clocks keep the terms of a lease as well as
the delay. The frontier asks a clock as before; without a lease the answer is
"not for now", and the host is *wished* for. `wishes`, `renewals` and `returns`
say what to send to gatekeepers; `granted`, `waiting` and `not_renewed` take their answers:

    ───ready_at──▶ WISHED ──granted──▶ IN HAND ──▶ RETURNED
                    ▲  │ waiting,       ▲   │
                    └──┘ offered        └───┘ begin … end, renewals

A lease is returned, when nothing is under way, as soon as
    - its requests are used up, or the next could only begin too near its end, and
      it was not renewed, as other nodes wait or its gatekeeper does not answer;
    - no crawl wants the host (`quiet`): after half of the delay, in which links
      of the last page may come, and which the host rests anyway;
    - no request has begun for a second though one might.

Its deadline counts from when it was ASKED for, less a margin for the clocks:
see `dhtcrawl.swarm.hosts.leases`. No request begins after it, and one under way that
could not be renewed is `overdue` then: to be aborted.

Where the gatekeeper is this node, a `LocalGatekeeper` answers at once. The book
is bounded as a `HostBook` is; wishes are bounded by the hosts of the frontiers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice
from typing import Protocol

from dhtcrawl.fetch.politeness import WAITS_FOR_ROBOTS, HoldReason, HostBook, HostClock
from dhtcrawl.loop_state import loop_state
from dhtcrawl.swarm.calls.hosts import LEASE_ID_BYTES
from dhtcrawl.swarm.hosts.agenda import Agenda
from dhtcrawl.swarm.hosts.leased_clock import (
    LAST_START,
    RENEW_AGAIN,
    RENEW_FROM,
    RENEW_LOW,
    Away,
    Lease,
    LeasedClock,
    Renewal,
    Wish,
)
from dhtcrawl.swarm.hosts.leases import CLOCK_MARGIN, NO_LEASE, GiveBack, Granted, LeaseAsk, Wait

RETRY_S = 0.5
CHANGES_MAX = 16  # of gatekeepers, of which it is remembered for people which hosts they took to another one
RETURN_TRIES_MAX = 3  # a lease that is not given back runs out
HOLD_TRIES_MAX = 16  # a new gatekeeper may take a while to see that it is one, and leaves hosts alone meanwhile
HOLDS_TOLD_MAX = 4_096  # to new gatekeepers, by one change of the view
NO_SUCH_LEASE = bytes(LEASE_ID_BYTES)


class LocalGatekeeper(Protocol):
    """Answers for the hosts whose gatekeeper this node is."""

    def ask_here(self, ask: LeaseAsk) -> Granted | Wait | None:
        """Answer an ask; None where another node is the host's gatekeeper."""
        ...

    def is_ours(self, host: str) -> bool:
        """Whether this node is the host's gatekeeper."""
        ...

    def give_back_here(self, back: GiveBack) -> bool:
        """Take a lease back; False where another node is the host's gatekeeper."""
        ...


class _Due:
    """Hosts that need action: `advance` fills these, and the method for each kind of action empties its own."""

    def __init__(self) -> None:
        self.asks: dict[str, None] = {}
        self.renewals: dict[str, None] = {}
        self.overdue: dict[str, None] = {}
        self.free: dict[str, None] = {}
        self.returns: list[GiveBack] = []
        self.returns_later: list[tuple[float, GiveBack]] = []  # with the time from which on, in order

    @property
    def any(self) -> bool:
        return bool(self.asks or self.renewals or self.overdue or self.free or self.returns)


class _Former:
    """What was leased before."""

    def __init__(self) -> None:
        self.moved: list[tuple[float, Callable[[str], bool]]] = []  # the last changes of gatekeepers
        self.ended_at = -math.inf  # since when all is leased anew


@loop_state
class LeaseHolder(HostBook):
    """The clocks of all hosts at one node of a swarm, with their leases and wishes."""

    def __init__(
        self,
        *,
        now: Callable[[], float],
        started_at: float,
        fresh: bool,
        clocks_max: int = 200_000,
        wake: Callable[[], None] = lambda: None,
        shortcut: LocalGatekeeper | None = None,
    ) -> None:
        """`now()` is the clock that all instants are on; `wake()` is called when `next_due_at` has come nearer."""
        super().__init__(started_at=started_at, fresh=fresh, clocks_max=clocks_max)
        self.now = now
        self._wake = wake
        self._shortcut = shortcut
        # When each clock is due, or a time before. That a due time has moved later is noticed only when
        # the old one comes, so most requests cost nothing here.
        self._agenda = Agenda()
        self._in_hand: dict[str, LeasedClock] = {}
        self._wished: dict[str, LeasedClock] = {}
        self._due = _Due()
        self._former = _Former()

    def clock(self, host: str) -> LeasedClock:
        """The clock of `hostname[:port]`."""
        clock = super().clock(host)
        assert isinstance(clock, LeasedClock)
        return clock

    def _new_clock(self, host: str) -> HostClock:
        return LeasedClock(self, host, self._first_end_at, self._tally)

    # -- what crawls say --

    def quiet(self, host: str) -> None:
        """Note that a crawl has nothing to start there now: the host goes back, unless another crawl wants it."""
        clock = self._in_hand.get(host)
        if clock is not None and clock.lease is not None and not clock.leased and not clock.lease.quiet:
            clock.lease.quiet, clock.lease.wanted = True, False
            self._due.free.pop(host, None)  # it is offered once more before it goes back
            self._arm(clock)

    def expect(self, host: str, until: float) -> None:
        """Keep the host, once it is leased, up to `until` though no frontier wants it."""
        self.clock(host).expected_until = until

    def step_back(self, host: str, now: float, until: float, why: HoldReason = WAITS_FOR_ROBOTS) -> None:
        """Leave the host to other nodes up to `until`: give it back, and do not ask for it before."""
        clock = self.clock(host)
        clock.away = Away(until, why)
        if clock.lease is not None and not clock.leased:
            self._return(clock)

    # -- what the shell has to do --

    def next_due_at(self) -> float:
        """When one of the following methods has something to return, if nothing happens before."""
        if self._due.any:
            return -math.inf
        later = self._due.returns_later[0][0] if self._due.returns_later else math.inf
        return min(self._agenda.next_due_at(), later)

    def wishes(self, now: float) -> list[LeaseAsk]:
        """Hosts to ask for; each is answered with `granted` or `waiting`."""
        self.advance(now)
        asks = []
        for host in self._due.asks:
            clock = self._wished.get(host)
            if clock is not None and clock.wish is not None and clock.wish.ask_at <= now:
                clock.wish.ask_at = math.inf
                asks.append(_ask(clock, clock.wish, now))
        self._due.asks.clear()
        return asks

    def as_of(self, ask: LeaseAsk, now: float) -> LeaseAsk:
        """What an ask says now, as it is sent: it may have waited for the answer to the one before."""
        clock = self._wished.get(ask.host)
        if ask.lease_id != NO_LEASE or clock is None or clock.wish is None:
            return ask
        return _ask(clock, clock.wish, now)

    def renewals(self, now: float) -> list[LeaseAsk]:
        """Leases to renew; each is answered with `granted` or `not_renewed`."""
        self.advance(now)
        clocks = [self._in_hand[host] for host in self._due.renewals if host in self._in_hand]
        self._due.renewals.clear()
        return [LeaseAsk(clock.host, clock.lease.delay_s, 0.0, clock.lease.id) for clock in clocks if clock.lease]

    def returns(self, now: float) -> list[GiveBack]:
        """Leases to give back; one that could not be sent goes to `return_later`."""
        self.advance(now)
        backs, self._due.returns = self._due.returns, []
        return backs

    def overdue(self, now: float) -> list[str]:
        """Hosts whose request under way has outlived the lease, each returned once: abort the request."""
        self.advance(now)
        hosts = list(self._due.overdue)
        self._due.overdue.clear()
        return hosts

    def free(self, now: float) -> list[str]:
        """Hosts to offer to all crawls of this node, each followed by `offered_around`."""
        self.advance(now)
        hosts = list(self._due.free)
        self._due.free.clear()
        return hosts

    def offered_around(self, host: str) -> None:
        """Give the host back if none of the crawls, which were all offered it, has looked at its clock."""
        clock = self._in_hand.get(host)
        if clock is None or clock.lease is None or clock.leased or clock.lease.wanted:
            return
        if self.now() >= clock.expected_until:
            self._return(clock)

    # -- what gatekeepers say --

    def granted(self, ask: LeaseAsk, granted: Granted, asked_at: float, now: float) -> None:
        """Take a grant: the host is ours, or ours for longer. `asked_at` is from before the ask was sent."""
        clock = self.clock(ask.host)
        if asked_at < self._former.ended_at:
            self._late(clock, ask, granted)
            return
        if ask.lease_id != NO_LEASE:
            self._renewed(clock, ask, granted, asked_at)
            return
        wish = clock.wish
        if wish is None or wish.ask_at != math.inf:
            return
        clock.wish = None
        del self._wished[ask.host]
        clock.lease = lease = _lease_of(granted, asked_at, now)
        self._in_hand[ask.host] = clock
        if max(now, lease.not_before) < lease.last_start_at:
            self._due.free[ask.host] = None
            self._arm(clock)
            self._wake()
        else:
            # The answer took too long to be of use, or never was: nobody is asked as fast as they answer.
            self._return(clock)
            self._wish(clock, wish.delay_s, now + RETRY_S)

    def not_renewed(self, ask: LeaseAsk, now: float, *, refused: bool) -> None:
        """Note that a lease stays as it is: `refused` by its gatekeeper, or there was no answer."""
        clock = self.clock(ask.host)
        lease = clock.lease
        if lease is None or lease.id != ask.lease_id:
            return
        lease.renewal.asked = False
        lease.renewal.resting_from_at = math.inf if refused else now + RETRY_S
        if lease.renewal.awaited_s is not None and not clock.leased:
            self._return(clock)
        else:
            self._arm(clock)

    def _late(self, clock: LeasedClock, ask: LeaseAsk, granted: Granted) -> None:
        """Take no grant that was asked for before all leases ended: who gave it may be gatekeeper no more."""
        if ask.lease_id != NO_LEASE:
            self.not_renewed(ask, self.now(), refused=True)
            return
        self._due.returns.append(GiveBack(clock.host, granted.lease_id, None, clock.hold_until))
        self.waiting(clock.host, self.now())
        self._wake()

    def waiting(self, host: str, until: float, *, unanswered: bool = False) -> None:
        """Wait for an offer of the host; without one, ask for it again at `until`.

        `unanswered` says that its gatekeeper did not answer.
        """
        clock = self._wished.get(host)
        if clock is not None and clock.wish is not None and clock.wish.ask_at == math.inf:
            clock.wish.ask_at = -math.inf if clock.wish.again else until
            clock.wish.again, clock.wish.unanswered = False, unanswered
            self._arm(clock)

    def offered(self, host: str) -> bool:
        """Ask for the host now, as it is our turn; False where no crawl wants it."""
        clock = self._wished.get(host)
        if clock is None or clock.wish is None:
            return False
        if clock.wish.ask_at == math.inf:
            # The answer under way may be from before the offer.
            clock.wish.again = True
        else:
            clock.wish.ask_at = -math.inf
            self._arm(clock)
        return True

    def return_later(self, back: GiveBack, now: float) -> None:
        """Try again later, a few times, to give a lease back."""
        if back.tries + 1 < (HOLD_TRIES_MAX if back.lease_id == NO_SUCH_LEASE else RETURN_TRIES_MAX):
            self._due.returns_later.append((now + RETRY_S, replace(back, tries=back.tries + 1)))

    def forget_gatekeeper(self, moved: Callable[[str], bool], former_until: float = -math.inf) -> None:
        """Ask the new gatekeepers of the hosts that `moved` names; leases in hand run on.

        A lease that a former gatekeeper gave may last up to `former_until`. Who wants to be left alone for longer, the
        new ones are told, though no crawl here may want the host: others would ask it sooner.
        """
        self._former.moved.append((former_until, moved))
        del self._former.moved[:-CHANGES_MAX]
        until = max(former_until, self.now())
        held = ((host, clock.hold_until) for host, clock in self._clocks.items() if clock.hold_until > until)
        self.tell_holds(islice(((host, held_until) for host, held_until in held if moved(host)), HOLDS_TOLD_MAX))
        for host in list(self._wished):
            if moved(host):
                self.offered(host)

    def tell_holds(self, holds: Iterable[tuple[str, float]]) -> None:
        """Have gatekeepers told until when hosts want to be left alone: as with leases that are over."""
        self._due.returns += [GiveBack(host, NO_SUCH_LEASE, None, until) for host, until in holds]

    def void(self) -> None:
        """End all leases, and those that are asked for: the node was taken for dead, did not run, or was cut off."""
        self._former.ended_at = self.now()
        for clock in list(self._in_hand.values()):
            lease = clock.lease
            if lease is not None and clock.leased:
                lease.deadline, lease.requests = min(lease.deadline, self.now()), 0
                self._arm(clock)
            else:
                self._wish_again(clock, self._take(clock), soon=True)

    def release(self) -> None:
        """Give back every host without a request under way."""
        for clock in list(self._in_hand.values()):
            # To give one back may end all: this node's gatekeeper notes then that it stood still.
            if clock.lease is not None and not clock.leased:
                self._return(clock)

    def holds_told_at(self) -> float:
        """When the last hold is told once more that no gatekeeper has taken; minus infinity: none is left to tell."""
        left = [due_at for due_at, back in self._due.returns_later if back.hold_until > self.now()]
        return max(left, default=-math.inf)

    def deadline(self, host: str) -> float:
        """When the lease in hand ends; minus infinity without one."""
        clock = self._in_hand.get(host)
        return -math.inf if clock is None or clock.lease is None else clock.lease.deadline

    # -- what clocks say --

    def lease_for(self, clock: LeasedClock, delay_s: float) -> Lease | None:
        """A lease under which another request may begin; without one the host is wished for."""
        lease, ask_at = clock.lease, -math.inf
        if lease is not None:
            lease.wanted, lease.quiet = True, False
            start_at = max(self.now(), clock.start_at(lease, delay_s))
            if lease.requests and start_at < lease.last_start_at:
                return lease
            if self._is_kept_for(clock, lease, start_at):
                lease.renewal.awaited_s = max(lease.renewal.awaited_s or 0.0, delay_s)
                return None
            self._return(clock)
            if lease.ended_at is None:
                ask_at = self.now() + RETRY_S  # it was of no use, and the next one may be no better
        if clock.lease is not None:
            return clock.lease
        if clock.wish is None:
            self._wish(clock, delay_s, ask_at)
        else:
            clock.wish.delay_s = max(clock.wish.delay_s, delay_s)
        return clock.lease

    def former_until(self, host: str) -> float:
        """Until when a lease that a former gatekeeper of a host gave may last; minus infinity: there was none."""
        return max((until for until, moved in self._former.moved if moved(host)), default=-math.inf)

    def began(self, clock: LeasedClock) -> None:
        """Note that a request is under way."""
        self._arm(clock)

    def rested(self, clock: LeasedClock) -> None:
        """Note that no request is under way any more."""
        lease = clock.lease
        assert lease is not None
        if lease.overdue or self.now() >= lease.last_start_at:
            lease.requests = 0
        if lease.renewal.offers:
            self._offer_renewed(clock, lease)
        # Not given back at once: the caller that ended the request may yet tell the clock of a hold.
        self._arm(clock)

    def came_free(self, clock: LeasedClock) -> None:
        """Offer the host to all crawls: one has waited for requests of another without a lease, which are over."""
        if clock.lease is not None and not clock.lease.requests:
            self._return(clock)  # it would go back before the crawls are told, and with it what they are to be told
        self._due.free[clock.host] = None
        self._wake()

    # -- within --

    def _arm(self, clock: LeasedClock) -> None:
        due_at = clock.due_at()
        if due_at < self._agenda.due_at(clock.host):
            nearest = self._agenda.next_due_at()
            self._agenda.put(clock.host, due_at)
            if due_at < nearest:
                self._wake()

    def advance(self, now: float) -> None:
        """Note in `_due` what each clock that is due needs."""
        while self._due.returns_later and self._due.returns_later[0][0] <= now:
            self._due.returns.append(self._due.returns_later.pop(0)[1])
        while (host := self._agenda.pop_due(now)) is not None:
            clock = self._in_hand.get(host) or self._wished.get(host)
            if clock is None:
                continue
            if clock.due_at() > now:
                self._arm(clock)
            elif clock.lease is None:
                self._due.asks[host] = None
            else:
                self._review(clock, clock.lease, now)

    def _review(self, clock: LeasedClock, lease: Lease, now: float) -> None:
        if clock.leased and now >= lease.deadline:
            lease.overdue = True
            self._due.overdue[clock.host] = None
        elif clock.leased or now < clock.unused_at(lease):
            self._renew(clock, lease, now)
        elif lease.quiet and now < lease.deadline:
            # Another crawl may want it.
            lease.quiet = False
            self._due.free[clock.host] = None
        else:
            self._return(clock)
            return
        self._arm(clock)

    def _renew(self, clock: LeasedClock, lease: Lease, now: float) -> None:
        """Have the shell ask for more time."""
        renewal = lease.renewal
        renewal.asked, renewal.from_at = True, now + RENEW_AGAIN * renewal.ttl_s
        self._due.renewals[clock.host] = None

    def _is_kept_for(self, clock: LeasedClock, lease: Lease, start_at: float) -> bool:
        """Whether a request that begins too late for a lease is to wait for its renewal, which is asked for.

        Given back and asked for anew, the host would rest for longer than its delay: by a way to the gatekeeper and
        one back. Where this node is gatekeeper there is none.
        """
        now, renewal = self.now(), lease.renewal
        lasts_until = now + (1 - CLOCK_MARGIN - LAST_START) * renewal.ttl_s
        if renewal.refused or not lease.requests or now >= lease.deadline or start_at >= lasts_until:
            return False
        if self._shortcut is not None and self._shortcut.is_ours(clock.host):
            return False
        if not renewal.asked:
            self._renew(clock, lease, now)
            self._wake()
        return True

    def _renewed(self, clock: LeasedClock, ask: LeaseAsk, granted: Granted, asked_at: float) -> None:
        lease = clock.lease
        # A lease that was given back meanwhile is not ours again, whatever the answer says.
        if lease is None or not lease.id == ask.lease_id == granted.lease_id or lease.overdue:
            return
        new = _lease_of(granted, asked_at, lease.not_before)
        lease.renewal.asked = False
        lease.delay_s = max(lease.delay_s, new.delay_s)
        if not granted.requests:
            # Others wait: what is under way may end, and the lease is over when it would have been.
            lease.deadline = max(lease.deadline, new.deadline)
            lease.renewal.from_at = max(lease.renewal.from_at, new.renewal.from_at)
            self.not_renewed(ask, asked_at, refused=True)
        elif new.deadline > lease.deadline:
            lease.deadline, lease.last_start_at, lease.requests = new.deadline, new.last_start_at, new.requests
            new.renewal.began_at, lease.renewal = lease.renewal.began_at, new.renewal
            if clock.leased or lease.quiet:
                lease.renewal.offers = True
            else:
                self._offer_renewed(clock, lease)
            self._arm(clock)

    def _offer_renewed(self, clock: LeasedClock, lease: Lease) -> None:
        """Have all crawls look at the clock, once a lease: else one of them could have the host for ever."""
        lease.renewal.offers = False
        self._due.free[clock.host] = None
        self._wake()

    def _wish(self, clock: LeasedClock, delay_s: float, ask_at: float = -math.inf) -> None:
        wish = clock.wish = Wish(delay_s, ask_at)
        self._wished[clock.host] = clock
        if self._shortcut is not None:
            now, wish.ask_at = self.now(), math.inf
            ask = _ask(clock, wish, now)
            answer = self._shortcut.ask_here(ask)
            if isinstance(answer, Granted):
                self.granted(ask, answer, now, now)
                return
            wish.ask_at = ask_at if answer is None else now + answer.after_s
        self._arm(clock)

    def _take(self, clock: LeasedClock) -> Lease:
        lease = clock.lease
        assert lease is not None
        clock.lease = None
        del self._in_hand[clock.host]
        self._due.free.pop(clock.host, None)
        return lease

    def _return(self, clock: LeasedClock) -> None:
        lease = self._take(clock)
        back = GiveBack(clock.host, lease.id, lease.ended_at, clock.hold_until)
        if self._shortcut is None or not self._shortcut.give_back_here(back):
            self._due.returns.append(back)
            self._wake()
        self._wish_again(clock, lease)

    def _wish_again(self, clock: LeasedClock, lease: Lease, *, soon: bool = False) -> None:
        """Wish for the host of a lease that is over, if a crawl has waited for its renewal.

        With `soon` nobody is asked before the next turn, not this node either.
        """
        if lease.renewal.awaited_s is None or clock.wish is not None:
            return
        if not soon:
            self._wish(clock, lease.renewal.awaited_s)
            return
        clock.wish = Wish(lease.renewal.awaited_s)
        self._wished[clock.host] = clock
        self._arm(clock)


def _ask(clock: LeasedClock, wish: Wish, now: float) -> LeaseAsk:
    return LeaseAsk(clock.host, wish.delay_s, max(0.0, clock.own_at(wish.delay_s) - now))


def _lease_of(granted: Granted, asked_at: float, read_at: float) -> Lease:
    """A lease on our clock; `asked_at` is from before the ask was sent."""
    deadline = asked_at + granted.ttl_s * (1 - CLOCK_MARGIN)
    return Lease(
        granted.lease_id,
        deadline,
        deadline - LAST_START * granted.ttl_s,
        granted.requests,
        read_at + granted.not_before_s,
        granted.delay_s,
        Renewal(granted.ttl_s, int(granted.requests * RENEW_LOW), asked_at + granted.ttl_s * RENEW_FROM),
    )
