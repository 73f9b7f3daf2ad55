"""The shell of membership: a node joins, stays known to all others, and leaves.

    Gossip(server, me, …)     once the routing plane listens
    run                       asks, tells and is asked, in the caller's TaskGroup, until `stop`
    join                      through any nodes of a swarm; after it all members are known
    set_state                 we are ACTIVE from now on
    leave                     LEFT, said to several

SWIM (Das et al. 2002) with Lifeguard's local health (Dadgar et al. 2018): what
is decided stands in `members`, what is sent in `probe` and `exchange`. Here is
when. `docs/protocol-members.md` has the datagrams to the field.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from random import Random
from typing import Any

from dhtcrawl.clock import Clock
from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.contact import Address, Contact
from dhtcrawl.rpc.discovery.server import RoutingServer, together
from dhtcrawl.rpc.membership.gossip_settings import GossipSettings
from dhtcrawl.rpc.membership.health import PauseDetector
from dhtcrawl.rpc.membership.hello import MemberRecord, NodeState
from dhtcrawl.rpc.membership.member_exchange import MemberExchange, TaskPlane
from dhtcrawl.rpc.membership.member_rows import ExchangeMembers, MemberRows
from dhtcrawl.rpc.membership.members import Learned, Members
from dhtcrawl.rpc.membership.probe import GossipCounters, Probes, ignore
from dhtcrawl.rpc.membership.row_proofs import OwnNode
from dhtcrawl.rpc.membership.rumours import tellings
from dhtcrawl.rpc.membership.view import MemberState, View
from dhtcrawl.units import format_address

log = logging.getLogger(__name__)

STATE_TOLD = 3  # who hears of a change of our state at once; the others by gossip
LEAVE_TOLD_MIN = 5
JOIN_HELLOS_MAX = 64
JOIN_EXCHANGES_MAX = 3
# Before a newcomer believes that no node there is a member, and begins a swarm of its own. Each waits twice as long.
JOIN_ROUNDS = 3
STRANGERS_A_TICK = 8
NEWCOMERS_A_TICK = 8
# In a swarm of this size and below every member exchanges all records every `exchange_s` (memberlist's pushPullScale).
EXCHANGE_MEMBERS = 32


@loop_state
class Gossip:
    """One node's membership. Callbacks run on the loop, after what they tell of has happened."""

    def __init__(
        self,
        server: RoutingServer,
        me: OwnNode,
        *,
        clock: Clock,
        rng: Random,
        tasks: TaskPlane,
        settings: GossipSettings | None = None,
        boottime: Callable[[], float] | None = None,
    ) -> None:
        """`boottime` is a clock that also counts while the machine sleeps; without one a suspend goes unnoticed."""
        self.settings = settings or GossipSettings()
        self.members = Members(me, rng, self.settings)
        self._server = server
        self._clock = clock
        self._spread = partial(_spread, rng)
        self._was_paused = self._pause_check(boottime or clock.monotonic)
        self._probes = Probes(server.plane, self.members, clock, self.settings, self._heard, tasks.heard_s)
        self._exchange = MemberExchange(self.members, tasks.ask_members, clock, self.counters, self._heard)
        self._rounds = _ExchangeRounds(self._exchange, self.members, self.settings, self._spread)
        self._unseen = _Unseen(self._probes, self.members, self.settings, self._spread)
        self._listeners = _Listeners(self.members)
        self._stopping = asyncio.Event()

    # What is known

    @property
    def view(self) -> View:
        return self.members.view()

    @property
    def on_change(self) -> list[Callable[[View], None]]:
        """The functions that are told each new view."""
        return self._listeners.on_change

    @property
    def on_declared_dead(self) -> list[Callable[[], None]]:
        """The functions that are called when the others have taken this node for dead, or may have."""
        return self._listeners.on_declared_dead

    @property
    def on_reunited(self) -> list[Callable[[], None]]:
        """The functions that are called when one has been found to own that was taken for dead; the view has it."""
        return self._listeners.on_reunited

    @property
    def counters(self) -> GossipCounters:
        return self._probes.counters

    def fingerprint(self) -> bytes:
        return self.members.fingerprint()

    # What we do

    def set_state(self, state: NodeState) -> None:
        """JOINING, ACTIVE or LEFT. A few members hear it at once, the others by gossip."""
        if self.members.set_state(state):
            self._listeners.publish()
            self._probes.tell(STATE_TOLD)

    def move(self, address: Address) -> bool:
        """We are at another address. A few members hear it at once, the others by gossip; False when it is the same."""
        if not self.members.move(address):
            return False
        self._listeners.publish()
        self._probes.tell(STATE_TOLD)
        return True

    def mark_active(self, node_id: bytes, incarnation: int) -> bool:
        """A newcomer called `activate`: it owns from now on. False when no such newcomer is known here."""
        known = self.members.mark_active(node_id, incarnation, self._clock.monotonic())
        self._listeners.publish()
        return known

    def answer_members(self, asker: bytes, asked: ExchangeMembers) -> MemberRows:
        return self._exchange.answer(asker, asked)

    def check_paused(self) -> bool:
        """Whether this node stood still since it was last looked at, which `on_declared_dead` then hears too.

        Cheap: to be called before what only an owner may do.
        """
        if not self._was_paused() or self.members.me.state is NodeState.LEFT:
            return False
        self.counters.pauses += 1
        self.members.rejoin()
        self._declared_dead()
        return True

    async def join(self, addresses: Sequence[Address]) -> None:
        """Find the swarm through these nodes; then its members are known, as far as these could tell us.

        Raises:
            BootstrapUnreachable: none of them answered.
        """
        closest = await self._server.bootstrap(addresses)
        contacts = list(dict.fromkeys([*closest, *self._server.plane.table]))[:JOIN_HELLOS_MAX]
        found: list[MemberRecord] = []
        for doublings in range(JOIN_ROUNDS):
            timeout_s = self.settings.probe_timeout_s * 2**doublings
            answers = await together(
                self._probes.greet(contact.address, contact.id, timeout_s=timeout_s) for contact in contacts
            )
            found = [record for _, record in answers if record is not None and record.id != self.members.me.id]
            if found:
                break
        for record in found[:JOIN_EXCHANGES_MAX]:
            if await self._exchange.with_(record.address, record.id, news=False):
                return
        if found:
            log.warning("join: no member gave us its list; learning of the others takes longer")

    async def exchange(self, node_id: bytes) -> bool:
        """All records, both ways, with one member; whether it answered."""
        record = self.members.get(node_id)
        return record is not None and await self._exchange.with_(record.address, record.id)

    def greet(self, address: Address, node_id: bytes) -> None:
        """Say hello to a node that another takes for a member; its answer is learned."""
        self._probes.begin(address, node_id, ignore, timeout_s=self.settings.stranger_timeout_s)

    async def meet(self, address: Address) -> None:
        """Look which nodes answer there, and say hello to those that are not known as members."""
        for contact in await self._server.nodes_at(address):
            if contact.id not in self.members:
                self.greet(contact.address, contact.id)

    async def leave(self) -> None:
        """Say LEFT to several members, which tell the others; over within `leave_s`."""
        if not self.members.set_state(NodeState.LEFT):
            return
        self._listeners.publish()
        told = self.members.some(max(LEAVE_TOLD_MIN, tellings(len(self.members))))
        try:
            async with asyncio.timeout(self.settings.leave_s):
                await together(self._probes.greet(member.address, member.id) for member in told)
        except TimeoutError:
            log.info("leave: not all members have confirmed it")

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._probing(group))
            group.create_task(self._rounds.run())

    def stop(self) -> None:
        """`run` ends soon. May be called twice."""
        self._stopping.set()
        self._rounds.stop()
        self._probes.stop()

    # When

    async def _probing(self, group: asyncio.TaskGroup) -> None:
        self._unseen.begin(self._clock.monotonic())
        while True:
            pause_s = self._spread(self.settings.period_s)
            planned_at = self._clock.monotonic() + pause_s
            if await _within(pause_s, self._stopping):
                return
            self.members.health.timer_fired(self._clock.monotonic() - planned_at)
            self._tick(group)

    def _tick(self, group: asyncio.TaskGroup) -> None:
        now = self._clock.monotonic()
        self.check_paused()
        dead = self.members.tick(now)
        self.counters.deaths += len(dead)
        self._listeners.publish()
        if self.members.me.state is NodeState.LEFT:
            return
        target = self.members.next_target(self._probes.busy)
        if target is not None:
            group.create_task(self._probes.probe(target))
        for _ in range(NEWCOMERS_A_TICK):
            newcomer = self.members.next_target(self._probes.busy, new=True)
            if newcomer is None:
                break
            group.create_task(self._probes.probe(newcomer))
        if self.members.rumours:
            self._probes.tell(self.settings.fanout)
        self._unseen.ask(self._server.plane.table, now)

    def _pause_check(self, boottime: Callable[[], float]) -> Callable[[], bool]:
        # Between two ticks a pause could not be told from waiting.
        pauses = PauseDetector(max(self.settings.suspicion_s, self.settings.tick_s_max))
        return lambda: pauses.was_paused(boottime())

    # What it comes to

    def _heard(self, learned: Learned, sender: MemberRecord | None) -> None:
        self._note_forged(sender)
        self._note_double()
        self.counters.refutations += learned.refuted
        if learned.declared_dead:
            self.counters.declared_dead += 1
            # What we believed of the others was wrong: the sender, which knew better, shall tell all it knows.
            self._rounds.now_with(sender)
            self._declared_dead()
        elif learned.changed:
            self._listeners.publish()
        if learned.reunited:
            self._listeners.tell(self._listeners.on_reunited)

    def _note_forged(self, sender: MemberRecord | None) -> None:
        """Say it once when rows were not signed by the nodes that they are about; there may be thousands a second."""
        rows = self.members.rows
        if rows.forged is not None and self.counters.unsigned == 0:
            node = rows.forged.id.hex()
            log.warning(
                "what %s says of node %s is not signed by it; such rows are dropped, and from now on only counted",
                "another" if sender is None else f"node {sender.id.hex()[:12]}",
                node[:12],
                extra={"peer": node},
            )
        self.counters.unsigned = rows.unsigned

    def _note_double(self) -> None:
        """Say it once when another process has our key: both would own the same keys, and fetch the same pages."""
        double = self.members.rows.double
        if double is not None and self.counters.doubles == 0:
            self.counters.doubles = 1
            log.warning(
                "this node is also at %s, or was before its data directory was restored: two processes must not have "
                "copies of one; if both run, stop one of them, and start it with an empty --data-dir",
                format_address(double.address),
            )

    def _declared_dead(self) -> None:
        self._listeners.tell(self._listeners.on_declared_dead)
        self._listeners.publish()
        self._probes.tell(STATE_TOLD)


class _Listeners:
    """Calls functions when the membership changes, on the loop, one after the other."""

    def __init__(self, members: Members) -> None:
        self.on_change: list[Callable[[View], None]] = []
        self.on_declared_dead: list[Callable[[], None]] = []
        self.on_reunited: list[Callable[[], None]] = []
        self._members = members
        self._published = members.view()
        self._publishing = False

    def publish(self) -> None:
        """Tell the callbacks of a new view; one that a callback itself brought about comes after it."""
        if self._publishing:
            return
        self._publishing = True
        try:
            while (view := self._members.view()) is not self._published:
                _log_changes(self._published, view, self._members)
                self._published = view
                for callback in list(self.on_change):
                    _guarded(callback, view)
        finally:
            self._publishing = False

    def tell(self, callbacks: Iterable[Callable[[], None]]) -> None:
        """Call each of them."""
        for callback in list(callbacks):
            _guarded(callback)


class _ExchangeRounds:
    """When all records are exchanged with one member: now and then with any, and at once with one who knew better."""

    def __init__(
        self, exchange: MemberExchange, members: Members, settings: GossipSettings, spread: Callable[[float], float]
    ) -> None:
        self._exchange = exchange
        self._members = members
        self._settings = settings
        self._spread = spread
        self._now = asyncio.Event()
        self._with: MemberRecord | None = None
        self._stopping = False

    def now_with(self, member: MemberRecord | None) -> None:
        """The next exchange is with this member, or any, and begins soon."""
        self._with = None if member is None or member.is_outbound else member
        self._now.set()

    def stop(self) -> None:
        self._stopping = True
        self._now.set()

    async def run(self) -> None:
        wait_s = self._settings.exchange_retry_s
        while not self._stopping:
            await _within(self._spread(wait_s), self._now)
            self._now.clear()
            asked, self._with = self._with or next(iter(self._members.some(1)), None), None
            if asked is None or self._stopping or self._members.me.state is NodeState.LEFT:
                continue
            if await self._exchange.with_(asked.address, asked.id) or self._exchange.counters.exchanges:
                scale = 1 + max(0, math.ceil(math.log2(max(len(self._members), 1) / EXCHANGE_MEMBERS)))
                wait_s = self._settings.exchange_s * scale


class _Unseen:
    """Asks those that may be members and are not seen as such: strangers in the routing table, the dead."""

    def __init__(
        self, probes: Probes, members: Members, settings: GossipSettings, spread: Callable[[float], float]
    ) -> None:
        self._probes = probes
        self._members = members
        self._settings = settings
        self._spread = spread
        self._strangers: OrderedDict[Contact, float] = OrderedDict()  # asked; not again until then
        self._dead_probe_at = 0.0
        self._lost_asked_at = float("-inf")
        self._dead_asked = members.me.id[0]  # not all begin with the same one

    def begin(self, now: float) -> None:
        """The first of the dead is asked some time after this."""
        self._dead_probe_at = now + self._spread(self._settings.dead_probe_s)

    def ask(self, table: Iterable[Contact], now: float) -> None:
        """Ask a few strangers, now and then one that is taken for dead, and more often if many are."""
        self._ask_strangers(table, now)
        self._ask_lost(now)
        if now >= self._dead_probe_at:
            self.begin(now)
            dead = self._members.dead()
            if dead:
                asked = self._next_of(dead)
                self._probes.begin(asked.address, asked.id, ignore)

    def _ask_lost(self, now: float) -> None:
        lost = self._members.dead(lost=True)
        if lost and now - self._lost_asked_at >= self._settings.lost_every_s(len(self._members), len(lost)):
            self._lost_asked_at = now
            # It is not told that it is taken for dead: it tells us, if we are.
            self._probes.begin(self._next_of(lost).address, None, ignore)

    def _next_of(self, dead: Sequence[MemberRecord]) -> MemberRecord:
        self._dead_asked += 1
        return dead[self._dead_asked % len(dead)]

    def _ask_strangers(self, table: Iterable[Contact], now: float) -> None:
        asked = 0
        for contact in table:
            if contact.id in self._members or self._strangers.get(contact, now) > now:
                continue
            if asked == STRANGERS_A_TICK:
                return
            asked += 1
            self._strangers[contact] = now + self._settings.stranger_s
            self._strangers.move_to_end(contact)
            if len(self._strangers) > self._settings.strangers_max:
                self._strangers.popitem(last=False)
            self._probes.begin(contact.address, contact.id, ignore, timeout_s=self._settings.stranger_timeout_s)


def _log_changes(before: View, view: View, members: Members) -> None:
    """Log which members came, went or changed their state between two views."""
    if not log.isEnabledFor(logging.INFO):
        return
    known = {member.id: member for member in before.members}
    for member in view.members:
        old = known.pop(member.id, None)
        if member.id == members.me.id or (old is not None and old.state is member.state):
            continue
        state, node, fields = member.state, member.id.hex()[:12], {"peer": member.id.hex()}
        where = format_address(member.address)
        if old is None:
            log.info("node %s at %s is a member now (%s)", node, where, state.value, extra=fields)
        elif MemberState.SUSPECTED in (state, old.state):
            # One lost datagram is enough for it.
            log.debug("node %s at %s is %s, and was %s", node, where, state.value, old.state.value, extra=fields)
        else:
            log.info("node %s at %s is %s now", node, where, state.value, extra=fields)
    for member in known.values():
        record = members.get(member.id)
        how = "has left" if record is not None and record.state is NodeState.LEFT else "does not answer any more"
        fields = {"peer": member.id.hex()}
        log.info("node %s at %s %s", member.id.hex()[:12], format_address(member.address), how, extra=fields)


def _spread(rng: Random, seconds: float) -> float:
    return seconds * rng.uniform(0.9, 1.1)


def _guarded(callback: Callable[..., None], *args: Any) -> None:
    # It may run within the handler of a datagram, which has to be answered.
    try:
        callback(*args)
    except Exception:
        log.exception("a listener of the membership failed")


async def _within(seconds: float, event: asyncio.Event) -> bool:
    """Whether it was set, or is by then."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
