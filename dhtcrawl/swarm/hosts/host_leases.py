"""Asks gatekeepers for hosts, offers hosts as a gatekeeper, and keeps requests within leases: the shell of both sides.

Calls to one node are batched: while one is under way the next one gathers. If
this node is the gatekeeper, nothing crosses the network and nothing waits for
a turn of the loop. `run` sleeps until something is due, or until a wish, an
offer or a change of the view wakes it.

Nothing is decided here. `dhtcrawl.swarm.hosts.gatekeeper` decides who is granted
a host, `dhtcrawl.swarm.hosts.lease_holder` when this node asks for one;
`dhtcrawl.swarm.hosts.gatekeeper_service` answers other nodes.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dhtcrawl.clock import Clock
from dhtcrawl.fetch.deadline import Deadline
from dhtcrawl.fetch.host_access import LeaseLost, RobotsAnswer
from dhtcrawl.fetch.robots import RobotsVerdict
from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.membership.view import View
from dhtcrawl.rpc.peers.port import CallRegistry, Peers
from dhtcrawl.rpc.tasks.events import Failure
from dhtcrawl.swarm.calls import hosts as calls
from dhtcrawl.swarm.deliver.deliverer import Deliverer
from dhtcrawl.swarm.deliver.queues import Batch, DeliveryLimits, Rest
from dhtcrawl.swarm.hosts import wire
from dhtcrawl.swarm.hosts.gatekeeper import REASK_MAX_S, REASK_MIN_S, Gatekeeper
from dhtcrawl.swarm.hosts.gatekeeper_service import GatekeeperService, gatekeeper_in, log_answer
from dhtcrawl.swarm.hosts.lease_holder import LeaseHolder
from dhtcrawl.swarm.hosts.leases import GiveBack, Granted, LeaseAsk, LeaseTerms, RestLimits, Wait
from dhtcrawl.swarm.hosts.shared_robots import SharedRobots

log = logging.getLogger(__name__)
T = TypeVar("T")

RETRY_S = 0.5  # after a failed call, or where another node is the gatekeeper
TIMER_S = 1e-6
_ITEM_BYTES = 256  # about the size of an ask, a give-back or an offer
# One call at a time is under way to a node, while the next one gathers.
LIMITS = DeliveryLimits(
    batch_items_max=calls.HOST_ROWS_MAX,
    batch_bytes_max=calls.HOST_ROWS_MAX * _ITEM_BYTES,
    held_bytes_max=16_384 * _ITEM_BYTES,  # more is refused, and asked, given back or offered again later
    under_way_max=1,
)


@dataclass(frozen=True, slots=True)
class HostLeaseSettings:
    """How a node leases hosts, and since when."""

    started_at: float  # on the node's monotonic clock
    fresh: bool  # it has never run before, so it owes no host a delay
    terms: LeaseTerms = field(default_factory=LeaseTerms)
    robots_ttl_s: float = 86_400.0
    rests: RestLimits = field(default_factory=RestLimits)
    clocks_max: int = 200_000  # hosts, once as their gatekeeper and once as a node that asks


@loop_state
class HostLeases:
    """Leases hosts and shares robots.txt for one node; `book` is the `HostBook` of frontiers and fetchers."""

    def __init__(
        self,
        peers: Peers,
        registry: CallRegistry,
        clock: Clock,
        on_free: Callable[[str], None],
        *,
        rng: random.Random,
        settings: HostLeaseSettings,
        fit: Callable[[], bool] = lambda: True,
    ) -> None:
        """`on_free(host)` offers a host to all crawls; those that want it look at its clock.

        `fit()` says whether this node may act as a gatekeeper, or begin a request, now:
        False from when it learns that it did not run for a while until it is active again.
        """
        self._clock = clock
        self._peers = peers
        self._on_free = on_free
        self._awake = asyncio.Event()
        self._fit = fit
        self._released = False
        self._guards: dict[str, Deadline] = {}
        self._ttl_s = settings.terms.ttl_s
        wake = self._awake.set
        keeper = Gatekeeper(settings.terms, rng, hosts_max=settings.clocks_max, rests=settings.rests)
        self.office = GatekeeperService(peers, registry, clock, keeper, fit=fit, wake=wake)
        self.shared_robots = SharedRobots(peers, registry, clock, self.office, settings.robots_ttl_s)
        self.book = LeaseHolder(
            now=clock.monotonic,
            started_at=settings.started_at,
            fresh=settings.fresh,
            clocks_max=settings.clocks_max,
            wake=wake,
            shortcut=self.office,
        )
        self._calls: dict[str, Deliverer[Any]] = {}  # by name, while `run` runs; without it all items are refused
        registry.serve(calls.OfferHosts, self._on_offer)

    # -- for the node --

    async def run(self) -> None:
        """Do what is due, until cancelled."""
        async with asyncio.TaskGroup() as group:
            senders: dict[str, Callable[[Batch[Any]], Awaitable[Rest[Any]]]] = {
                "host_ask": self._send_asks,
                "host_give_back": self._send_give_backs,
                "host_offer": self._send_offers,
            }
            for call, send in senders.items():
                self._calls[call] = Deliverer(group, send, LIMITS, size_of=lambda item: _ITEM_BYTES)
            try:
                while True:
                    self._awake.clear()
                    self._turn(self._clock.monotonic())
                    await self._sleep()
            finally:
                self._calls.clear()

    def view_changed(self, view: View, crawling: bool, *, dead: int = 0) -> None:
        """Note that members came, went or changed their state.

        `dead`: how many are taken for dead that may own. They may be the other side of a cut,
        which has gatekeepers too, so each side takes only its share of the pace.

        While crawls run, hosts whose gatekeeper this node has become are left alone until
        the last lease of the former gatekeeper must have ended.
        """
        moved = self.office.view_changed(view, crawling)
        self.office.keeper.delay_factor = 1 + dead / max(1, len(view.eligible))
        self.shared_robots.desk.keep_claims(set(view.ids))
        former_until = self._clock.monotonic() + self._ttl_s if crawling else -math.inf
        self.book.forget_gatekeeper(moved, former_until)
        self.book.tell_holds(self.office.handed_on(former_until))
        self._awake.set()

    def void(self) -> None:
        """Drop all leases and the state of all hosts, after the node was taken for dead or did not run."""
        log.info("all leases of hosts end, and what was known of hosts is forgotten")
        self.book.void()
        self.office.keeper.forget_all()
        self._awake.set()

    def reunited(self) -> None:
        """End all leases, and let hosts rest as after a takeover: others, who have leases too, were taken for dead.

        The swarm was cut in two, and each side had a gatekeeper for each host. What one of them leased, no gatekeeper
        of now knows, and who holds it may not have heard yet.
        """
        log.info("the swarm was cut in two: all leases of hosts end, and hosts rest until those of others have ended")
        self.office.reunited()
        self.book.void()
        self._awake.set()

    async def release(self, timeout_s: float = 1.0) -> None:
        """Ask for no more hosts and give back those without a request under way; call it before cancelling `run`."""
        self._released = True
        self.book.release()
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    self._turn(self._clock.monotonic())
                    for deliverer in list(self._calls.values()):
                        await deliverer.flushed()
                    # A lease that is not taken runs out; what a host has asked for is known to nobody then.
                    again_at = self.book.holds_told_at()
                    if again_at == -math.inf or not self._peers.view.owning:
                        break
                    await asyncio.sleep(max(TIMER_S, again_at - self._clock.monotonic()))
        except TimeoutError:
            log.info("not all host leases were given back in time; they run out by themselves")

    @property
    def exceptions(self) -> int:
        """As `HostAccess`."""
        return self.office.keeper.exceptions

    def explain(self, host: str) -> dict[str, Any]:
        """What this node knows of a host, for people."""
        now, desk = self._clock.monotonic(), self.shared_robots.desk
        gatekeeper = gatekeeper_in(self._peers.view, host)
        return {
            "gatekeeper": gatekeeper.hex() if gatekeeper is not None else None,
            "lease_here_s": round(max(0.0, self.book.deadline(host) - now), 3),
            "as_gatekeeper": self.office.keeper.explain(host, now),
            "robots": {origin: desk.explain(origin, now) for origin in (f"http://{host}", f"https://{host}")},
        }

    # -- for fetchers --

    async def within_lease(self, host: str, start: Callable[[], Awaitable[T]]) -> T | LeaseLost:
        """Await `start()`, a request to `host`, and return its result.

        The request is not started, or is cancelled, when the lease ends and could not
        be renewed. Nor is it started if the node was suspended in the meantime. The
        caller has told the host's clock that the request begins, and tells it in any
        case that it has ended. What `start` raises is raised here; it must not raise a
        TimeoutError of its own.
        """
        now, loop = self._clock.monotonic(), asyncio.get_running_loop()
        if not self._fit():
            return LeaseLost(now)
        # With a delay there is one request at a time: beside one under a lease only a crawl without a delay begins any.
        if not self.book.clock(host).leased or host in self._guards:
            return await start()
        left_s = self.book.deadline(host) - now
        if left_s <= 0:
            return LeaseLost(now)
        try:
            with Deadline(loop, loop.time() + left_s) as guard:
                self._guards[host] = guard
                return await start()
        except TimeoutError:
            return LeaseLost(self._clock.monotonic(), begun=True)
        finally:
            self._guards.pop(host, None)

    async def robots(self, origin: str, agent: str) -> RobotsAnswer:
        """What to do about the robots.txt of `scheme://host[:port]`, for a product token."""
        return await self.shared_robots.ask(origin, agent)

    def robots_read_by(self, origin: str, agent: str) -> bytes | None:
        """The node that has fetched a robots.txt, where this one is the host's gatekeeper and it is known."""
        return self.shared_robots.desk.reader(origin, agent)

    async def robots_tell(self, origin: str, agent: str, verdict: RobotsVerdict | None, body: bytes = b"") -> None:
        """Tell the gatekeeper the verdict of a fetch that `robots` asked for; None: it failed, others may try."""
        await self.shared_robots.tell(origin, agent, verdict, body)

    # -- one turn --

    def _turn(self, now: float) -> None:
        """Do what is due. Most turns find nothing: whatever may have changed wakes us, and so does a timer."""
        if self.office.next_due_at(now) <= now:
            self._offer(now)
        if self.book.next_due_at() > now:
            return
        for host in self.book.overdue(now):
            if host in self._guards:
                self._guards[host].move(asyncio.get_running_loop().time())
        for back in self.book.returns(now):
            log.debug("%s goes back to its gatekeeper", back.host)
            if not self.office.give_back_here(back) and not self._send(back.host, "host_give_back", back):
                self.book.return_later(back, now)
        wishes = self.book.wishes(now)
        for ask in [*self.book.renewals(now), *([] if self._released else wishes)]:
            answer = self.office.ask_here(ask)
            if answer is not None or not self._send(ask.host, "host_ask", ask):
                self._answered(ask, answer, now, now)
        for host in self.book.free(now):
            self._on_free(host)
            self.book.offered_around(host)

    def _offer(self, now: float) -> None:
        """Offer hosts, as their gatekeeper, to the nodes that are next; this node may be one of them."""
        for node, host in self.office.offers(now):
            if node == self._peers.node_id:
                if not self.book.offered(host):
                    self.office.keeper.withdraw(host, node)
            elif not self._say(node, "host_offer", host):
                self.office.keeper.missed(host, node)

    def _send(self, host: str, call: str, item: Any) -> bool:
        """Send an item to the host's gatekeeper; False where there is none, or too much waits for it."""
        node = self.office.of(host)
        return node is not None and self._say(node, call, item)

    def _say(self, node: bytes, call: str, item: Any) -> bool:
        """Send an item to a node soon; False where too much waits, or `run` does not run."""
        deliverer = self._calls.get(call)
        return deliverer is not None and bool(deliverer.put(node, (item,)))

    async def _sleep(self) -> None:
        now, timer = self._clock.monotonic(), None
        due_at = min(self.book.next_due_at(), self.office.next_due_at(now))
        if due_at < math.inf:
            # A timer that rounding puts just before `due_at` would find nothing due and be set again,
            # without time passing while other nodes are busy on the same loop.
            delay_s = max(TIMER_S, due_at - now)
            timer = asyncio.get_running_loop().call_later(delay_s, self._awake.set)
        try:
            await self._awake.wait()
        finally:
            if timer is not None:
                timer.cancel()

    # -- calls --

    async def _send_asks(self, batch: Batch[LeaseAsk]) -> Rest[LeaseAsk]:
        # Taken before the call is sent: any delay from here on shortens the lease.
        asked_at = self._clock.monotonic()
        asks = [self.book.as_of(ask, asked_at) for ask in batch.items]
        reply = await self._peers.call(batch.node, calls.AskHosts(wire.ask_rows(asks)))
        rows = [calls.MovedRow()] * len(batch.items) if isinstance(reply, Failure) else reply.answers
        now = self._clock.monotonic()
        debug = log.isEnabledFor(logging.DEBUG)
        for ask, row in zip(batch.items, rows, strict=True):
            answer = wire.answer_of(row)
            if debug:
                log_answer(log, ask, answer, "us")
            self._answered(ask, answer, asked_at, now, unanswered=isinstance(reply, Failure))
        return Rest()

    def _answered(
        self, ask: LeaseAsk, answer: Granted | Wait | None, asked_at: float, now: float, *, unanswered: bool = False
    ) -> None:
        if isinstance(answer, Granted):
            self.book.granted(ask, answer, asked_at, now)
            if ask.host in self._guards:
                loop = asyncio.get_running_loop()
                self._guards[ask.host].move(loop.time() + self.book.deadline(ask.host) - now)
        elif ask.lease_id:
            self.book.not_renewed(ask, now, refused=answer is not None)
        else:
            # A gatekeeper has no reason to name a longer wait than ours would, nor a shorter one.
            wait_s = RETRY_S if answer is None else min(max(answer.after_s, REASK_MIN_S), REASK_MAX_S)
            again_at = now + wait_s
            self.book.waiting(ask.host, again_at, unanswered=unanswered)

    async def _send_give_backs(self, batch: Batch[GiveBack]) -> Rest[GiveBack]:
        backs = batch.items
        args = calls.GiveHostsBack(wire.back_rows(backs, self._clock.monotonic()))
        reply = await self._peers.call(batch.node, args)
        taken = bytes(len(backs)) if isinstance(reply, Failure) else reply.taken
        for back, done in zip(backs, taken, strict=True):
            if not done:
                self.book.return_later(back, self._clock.monotonic())
        self._awake.set()
        return Rest()

    async def _send_offers(self, batch: Batch[str]) -> Rest[str]:
        node, hosts = batch.node, batch.items
        reply = await self._peers.call(node, calls.OfferHosts(tuple(hosts)))
        if isinstance(reply, Failure):
            for host in hosts:
                self.office.keeper.missed(host, node)
        else:
            for host in reply.unwanted:
                self.office.keeper.withdraw(host, node)
        self._awake.set()
        return Rest()

    def _on_offer(self, node: bytes, args: calls.OfferHosts) -> calls.HostsUnwanted:
        self._awake.set()
        return calls.HostsUnwanted(tuple(host for host in args.hosts if not self.book.offered(host)))
