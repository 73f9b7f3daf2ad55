"""Questions in flight: each ends exactly once, with a reply, a timeout or the plane's stop.

A call is a callback, not a task, so ten thousand pings are ten thousand timers
and a look-up leaves nothing behind when it is cancelled. A datagram that gets
no reply within the round trip's timeout is sent once more, under the same id,
and then waited for twice as long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from dhtcrawl.rpc.contact import Address
from dhtcrawl.rpc.discovery.datagram import MESSAGE_ID_BYTES, encode_request
from dhtcrawl.rpc.discovery.rtt import RttBook

TRIES = 2
IN_FLIGHT_MAX = 4096
ELSEWHERE_MAX = 64

Done = Callable[[bool, Any], None]


@dataclass(slots=True)
class RoutingCounters:
    """What the plane has seen since it began."""

    received: int = 0
    sent: int = 0
    calls: int = 0
    lookups: int = 0
    lookup_calls: int = 0  # of `calls`, those made by look-ups
    garbage: int = 0  # datagrams that were none
    stray_replies: int = 0  # to no question of ours, or from elsewhere than it was sent to
    unknown_rpcs: int = 0
    refused: int = 0  # requests whose arguments make no sense, values too large
    handler_errors: int = 0
    bad_contacts: int = 0
    retries: int = 0
    timeouts: int = 0
    overloaded: int = 0  # calls that were not sent: too many in flight
    address_conflicts: int = 0  # another node used the id of a contact that answers elsewhere
    network_errors: int = 0
    unsealed: int = 0  # in a closed swarm: not from it, not for us, or a recording
    unproven: int = 0  # of a session that has not answered us yet; it is asked, and the sender asks again


class Question(NamedTuple):
    """A datagram that is sent until it is answered: under which id, where to, and how often at most."""

    message_id: bytes
    name: str
    address: Address
    datagram: bytes
    tries: int
    timed: bool  # its answer comes at once, so it tells the round trip


class PendingRpc:
    """One question. `cancel` forgets it: its callback is not called."""

    __slots__ = ("_registry", "address", "done", "question", "repeated", "sent_at", "timeout_s", "timer", "tries_left")

    def __init__(self, registry: dict[bytes, PendingRpc], question: Question, done: Done, timeout_s: float) -> None:
        self._registry = registry
        self.question = question
        self.address = question.address
        self.done: Done | None = done
        self.timeout_s = timeout_s
        self.tries_left = question.tries
        self.sent_at: float | None = None
        self.repeated = False
        self.timer: asyncio.Handle | None = None

    def cancel(self) -> None:
        self.finish()

    def ask_again(self) -> None:
        """Send it once more if no answer comes, though no try is left: once only, as each waits twice as long."""
        if not self.tries_left and not self.repeated:
            self.repeated = True
            self.tries_left = 1

    def finish(self) -> Done | None:
        done, self.done = self.done, None
        self._registry.pop(self.question.message_id, None)
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        return done


class PendingRpcs:
    """All questions of one node. `send` writes a datagram and never raises."""

    def __init__(
        self,
        send: Callable[[bytes, Address], None],
        rng: Random,
        counters: RoutingCounters,
        now: Callable[[], float],
    ) -> None:
        """`now` tells round trips: uvloop's own clock counts milliseconds, and a near node answers within one."""
        self.rtt = RttBook()
        self.elsewhere: dict[Address, Address] = {}  # asked there, and an answer came from another; the first of these
        self._send = send
        self._rng = rng
        self._counters = counters
        self._now = now
        self._by_id: dict[bytes, PendingRpc] = {}
        self.closed = False

    def __len__(self) -> int:
        return len(self._by_id)

    def begin(
        self,
        address: Address,
        name: str,
        args: tuple[object, ...],
        done: Done,
        *,
        tries: int = TRIES,
        timeout_s: float | None = None,
        timed: bool = True,
    ) -> PendingRpc:
        """Ask; `done(True, reply)` or `done(False, None)` follows, never from within this call.

        What is not `timed` is not answered at once, and says nothing about the round trip.

        Raises:
            ValueError: the arguments cannot be written, or do not fit into a datagram.
        """
        loop = asyncio.get_running_loop()
        message_id = self._rng.randbytes(MESSAGE_ID_BYTES)
        question = Question(message_id, name, address, encode_request(message_id, name, args), tries, timed)
        timeout_s = timeout_s or self.rtt.timeout_s(address)
        call = PendingRpc(self._by_id, question, done, timeout_s)
        self._counters.calls += 1
        if self.closed or len(self._by_id) >= IN_FLIGHT_MAX:
            self._counters.overloaded += not self.closed
            call.timer = loop.call_soon(_give_up, call)
            return call
        self._by_id[message_id] = call
        self._try(loop, call)
        return call

    def repeat(self, address: Address) -> None:
        """Send again, once, what is asked there: it came before the node there knew who we are, and was dropped."""
        for call in list(self._by_id.values()):
            if call.address == address and not call.repeated and call.question.name != "ping":
                call.repeated = True
                call.sent_at = None  # its reply is no sample
                self._send(call.question.datagram, address)

    def expects(self, message_id: bytes, address: Address) -> bool:
        call = self._by_id.get(message_id)
        if call is None or call.address == address:
            return call is not None
        if len(self.elsewhere) < ELSEWHERE_MAX:
            self.elsewhere.setdefault(call.address, address)
        return False

    def reply(self, message_id: bytes, value: object) -> None:
        call = self._by_id[message_id]
        if call.sent_at is not None:
            self.rtt.sample(call.address, self._now() - call.sent_at)
        if done := call.finish():
            done(True, value)

    def close(self) -> None:
        """No more questions; those in flight end without a reply."""
        self.closed = True
        for call in list(self._by_id.values()):
            _give_up(call)

    def _try(self, loop: asyncio.AbstractEventLoop, call: PendingRpc) -> None:
        # None after a retry: such a reply is no sample.
        call.sent_at = self._now() if call.question.timed and call.sent_at is None and call.timer is None else None
        call.tries_left -= 1
        call.timer = loop.call_later(call.timeout_s, self._timeout, loop, call)
        call.timeout_s *= 2
        self._send(call.question.datagram, call.address)

    def _timeout(self, loop: asyncio.AbstractEventLoop, call: PendingRpc) -> None:
        if call.tries_left > 0:
            self._counters.retries += 1
            self._try(loop, call)
            return
        self._counters.timeouts += 1
        _give_up(call)


def _give_up(call: PendingRpc) -> None:
    if done := call.finish():
        done(False, None)
