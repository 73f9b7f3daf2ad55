"""Says hello and answers it: the datagrams of membership, on the routing plane.

    hello       [our row, sees, [row, …]]  → [its row, sees, row, …]
    hello_for   [id]                       → true: I ask it for you; false: I do not
    hello_from  [row]                      → nil; it answered me

`sees` is how many others answer, as far as the sender knows.

A member that others cannot reach says hello and is not asked: that a connection
which it has made is alive counts as its answer, here or at those who are asked.

A member that does not answer us is asked through others (SWIM, Das et al. 2002,
section 4.1), at the address that they know, so no node can be made to send
datagrams to another address. What a stranger says counts once its address has answered
a ping (`Verifier`), as with everything on this plane.

Asking is a callback; only a probe, which may take seconds, is a task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from dhtcrawl.clock import Clock
from dhtcrawl.rpc.contact import Address, parse_id
from dhtcrawl.rpc.discovery.datagram import DATAGRAM_BYTES_MAX, HEAD_BYTES, packed_bytes
from dhtcrawl.rpc.discovery.pending import TRIES, PendingRpc
from dhtcrawl.rpc.discovery.protocol import RoutingProtocol
from dhtcrawl.rpc.membership.gossip_settings import GossipSettings
from dhtcrawl.rpc.membership.hello import (
    ROWS_A_DATAGRAM_MAX,
    MemberRecord,
    NodeState,
    Row,
    parse_record,
    parse_records,
    parse_sees,
)
from dhtcrawl.rpc.membership.members import Learned, Members

RELAYED_MAX = 64
# A round that ended late says nothing of the other node; after so many of them it is the best we have.
ROUNDS_WHEN_LATE = 3
# Name, id and the heads of the arrays, rounded up.
_FRAME_BYTES = 48


@dataclass(slots=True)
class GossipCounters:
    """What membership has seen since the node began."""

    hellos: int = 0  # asked of others
    bad_rows: int = 0  # rows of others that make no sense, or are too many
    suspicions: int = 0  # ours: no node got an answer
    deaths: int = 0  # declared by us
    refutations: int = 0
    declared_dead: int = 0  # we, by others
    pauses: int = 0
    unsigned: int = 0  # rows that the nodes which they are about have not signed
    doubles: int = 0  # 1 once another process was heard of that has our key
    exchanges: int = 0
    exchanges_failed: int = 0


@dataclass(slots=True)
class _Indirect:
    """Others ask a member for us."""

    asked: tuple[Address, ...]
    heard: asyncio.Future[bool]
    relays_answered: int = 0


class Probes:
    """One node's questions about who is there. `heard` is told what was learned, and from whom."""

    def __init__(
        self,
        plane: RoutingProtocol,
        members: Members,
        clock: Clock,
        settings: GossipSettings,
        heard: Callable[[Learned, MemberRecord | None], None],
        heard_s: Callable[[bytes], float | None],
    ) -> None:
        """`heard_s`: see `TaskPlane`."""
        self.busy: set[bytes] = set()  # who is being probed; never iterated
        self.counters = GossipCounters()
        self._plane = plane
        self._members = members
        self._clock = clock
        self._settings = settings
        self._heard = heard
        self._heard_s = heard_s
        self._indirect: dict[bytes, _Indirect] = {}
        self._waiting: dict[asyncio.Future[tuple[bool, MemberRecord | None]], None] = {}
        self._relayed = 0
        self._stopped = False
        plane.register("hello", self.rpc_hello, 3)
        plane.register("hello_for", self.rpc_hello_for, 1)
        plane.register("hello_from", self.rpc_hello_from, 1)

    # Questions of ours

    def begin(
        self,
        address: Address,
        node_id: bytes | None,
        then: Callable[[bool, MemberRecord | None], None],
        *,
        tries: int = TRIES,
        timeout_s: float | None = None,
    ) -> PendingRpc:
        """Say hello; `then(whether an answer came, the record of who answered)` follows, after learning from it."""

        def done(happened: bool, value: Any) -> None:
            record = self._learn_reply(address, value) if happened else None
            if record is not None and record.id == node_id and record.id in self._members:
                self._members.met(record.id)
            then(happened, record)

        self.counters.hellos += 1
        timeout_s = timeout_s or self._settings.probe_timeout_s
        return self._plane.calls.begin(address, "hello", self._hello(node_id), done, tries=tries, timeout_s=timeout_s)

    async def greet(
        self, address: Address, node_id: bytes | None = None, *, tries: int = TRIES, timeout_s: float | None = None
    ) -> tuple[bool, MemberRecord | None]:
        """The same, waited for."""
        future: asyncio.Future[tuple[bool, MemberRecord | None]] = asyncio.get_running_loop().create_future()
        self._waiting[future] = None
        call = self.begin(address, node_id, partial(_settle, future), tries=tries, timeout_s=timeout_s)
        try:
            return await future
        finally:
            call.cancel()
            del self._waiting[future]

    def tell(self, n: int) -> None:
        """Say hello to a few, for the sake of what we have to tell."""
        for member in self._members.some(n):
            self.begin(member.address, member.id, ignore, tries=1)

    async def probe(self, target: MemberRecord) -> None:
        """Ask a member, if need be through others; it is suspected if no node gets an answer."""
        self.busy.add(target.id)
        try:
            answered = await self._answers(target)
        finally:
            self.busy.discard(target.id)
        if answered:
            self._members.met(target.id)
            self._members.health.was_answered()
        elif not self._stopped and self._members.suspect(target, self._clock.monotonic()):
            self.counters.suspicions += 1
            self._heard(Learned(1), None)

    def stop(self) -> None:
        """All probes end, and no member is suspected for it."""
        self._stopped = True
        for waiting in self._waiting:
            _settle(waiting, False, None)
        for indirect in self._indirect.values():
            _resolve(indirect.heard)

    async def _answers(self, target: MemberRecord) -> bool:
        if target.is_outbound:
            within_s = self._settings.indirect_s * self._members.health.factor
            return self._stopped or self._is_connected(target) or await self._through_others(target, within_s)
        for _ in range(ROUNDS_WHEN_LATE):
            factor, began_at = self._members.health.factor, self._clock.monotonic()
            timeout_s = self._settings.probe_timeout_s * factor
            happened, record = await self.greet(target.address, target.id, tries=1, timeout_s=timeout_s)
            if self._stopped or (record is not None and record.id == target.id):
                return True
            if not happened and self._clock.monotonic() - began_at < timeout_s / 2:
                return True  # it was not sent: the plane is overloaded
            if await self._through_others(target, self._settings.indirect_s * factor):
                return True
            # When we were late its answer may lie in the socket, unread.
            late_s = self._clock.monotonic() - began_at - timeout_s - self._settings.indirect_s * factor
            if not self._members.health.timer_fired(late_s):
                return False
        return False

    async def _through_others(self, target: MemberRecord, within_s: float) -> bool:
        """Ask once more ourselves, and a few others to ask."""
        heard: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        relays = [relay.address for relay in self._members.some(self._settings.relays, exclude=target.id)]
        indirect = self._indirect[target.id] = _Indirect(tuple(relays), heard)

        def answered(_happened: bool, record: MemberRecord | None) -> None:
            if record is not None and record.id == target.id:
                _resolve(heard, True)

        def noted(happened: bool, _value: Any) -> None:
            indirect.relays_answered += happened

        begin = self._plane.calls.begin
        calls = [begin(address, "hello_for", (target.id,), noted, timeout_s=within_s / 3) for address in relays]
        if not target.is_outbound:
            calls.append(self.begin(target.address, target.id, answered, tries=1, timeout_s=within_s))
        try:
            async with asyncio.timeout(within_s):
                return await heard
        except TimeoutError:
            if relays and indirect.relays_answered == 0:
                self._members.health.was_alone()
            return False
        finally:
            del self._indirect[target.id]
            for call in calls:
                call.cancel()

    def _is_connected(self, member: MemberRecord) -> bool:
        """Whether a member that cannot be asked is heard over a connection that it has made."""
        silent_s = self._heard_s(member.id)
        return silent_s is not None and silent_s <= self._settings.connection_s

    def _hello(self, node_id: bytes | None, *, news: bool = True) -> tuple[Row, int, list[Row]]:
        own = self._members.me.row()
        return own, self._members.sees(), self._rows(node_id, packed_bytes(own), news=news)

    def _rows(self, node_id: bytes | None, taken_bytes: int, *, news: bool) -> list[Row]:
        """What the receiver should know: first what is said of itself, so that it can refute, then news."""
        room_bytes = DATAGRAM_BYTES_MAX - HEAD_BYTES - _FRAME_BYTES - taken_bytes
        known = None if node_id is None else self._members.get(node_id)
        rows = []
        if known is not None and known.state >= NodeState.SUSPECTED and node_id != self._members.me.id:
            rows.append(known.row())
            room_bytes -= packed_bytes(rows[0])
        if news:
            rows += self._members.rumours.take(room_bytes, len(self._members), ROWS_A_DATAGRAM_MAX - len(rows))
        return rows

    def _learn_reply(self, address: Address, value: Any) -> MemberRecord | None:
        if not isinstance(value, list) or not value:
            return None  # nil: it has never heard of hello
        record = parse_record(value[0], address[0], first_hand=True)
        if record is None:
            self.counters.bad_rows += 1
            return None
        # An answer to an address that is not verified yet may be cut short.
        self._learn(address, record, value[1] if len(value) > 1 else 0, value[2:])
        return record

    def _learn(self, address: Address, record: MemberRecord, sees: Any, rows: Any) -> None:
        records, bad = parse_records(rows, address[0], ROWS_A_DATAGRAM_MAX)
        self.counters.bad_rows += bad
        learn = partial(
            self._members.learn, now=self._clock.monotonic(), sender=record.id, sees=parse_sees(sees), at=address
        )
        learned = learn([record])
        if self._members.knows(record.id):  # who is no member is told who is, and is not listened to
            learned = learned.plus(learn(records))

        self._heard(learned, record)

    # Questions of others

    def rpc_hello(self, address: Address, row: Any, sees: Any, rows: Any) -> list[Any] | None:
        """Answer a sender that says which node it is."""
        record = parse_record(row, address[0], first_hand=True)
        if record is None or self._stopped:
            self.counters.bad_rows += record is None
            return None
        learn = partial(self._learn, address, record, sees, rows)
        if self._plane.verifier.is_verified(address):
            learn()
        else:
            self._plane.verifier.when_verified(address, learn)
        own, seen, told = self._hello(record.id, news=self._is_at(record.id, address))
        return [own, seen, *told]

    def _is_at(self, node_id: bytes, address: Address) -> bool:
        """Whether a node is known at an address; one that others do not reach may ask from any.

        Each change is told so many times: whoever asks often enough would be told all of it, and the members none.
        """
        known = self._members.get(node_id)
        return known is not None and (known.is_outbound or known.address == address)

    def rpc_hello_for(self, address: Address, node_id: Any) -> bool:
        """Ask a member from which the sender got no answer; False if we do not."""
        target = self._members.get(node_id) if parse_id(node_id) else None
        if target is None or target.id not in self._members or self._relayed >= RELAYED_MAX:
            return False
        if not self._plane.verifier.is_verified(address):
            return False
        if target.is_outbound:
            if self._is_connected(target):
                self._plane.calls.begin(address, "hello_from", (target.row(),), ignore)
            return True

        def answered(_happened: bool, record: MemberRecord | None) -> None:
            self._relayed -= 1
            if record is not None and record.id == node_id and not self._stopped:
                self._plane.calls.begin(address, "hello_from", (record.row(),), ignore)

        self._relayed += 1
        self.begin(target.address, target.id, answered)
        return True

    def rpc_hello_from(self, address: Address, row: Any) -> None:
        """A member that did not answer us answered a node that we asked to try."""
        record = parse_record(row, address[0])
        indirect = self._indirect.get(record.id) if record is not None else None
        if record is None or indirect is None or address not in indirect.asked:
            self.counters.bad_rows += record is None
            return
        _resolve(indirect.heard, True)
        self._heard(self._members.learn([record], self._clock.monotonic(), sees=0), None)


def _settle(
    future: asyncio.Future[tuple[bool, MemberRecord | None]], happened: bool, record: MemberRecord | None
) -> None:
    if not future.done():
        future.set_result((happened, record))


def _resolve(future: asyncio.Future[bool], value: bool = False) -> None:
    if not future.done():
        future.set_result(value)


def ignore(_happened: bool, _value: object) -> None:
    """For what is said for the sake of the receiver, or whose answer is learned from, and no more."""
