"""Which contacts may enter the table: one that answers a ping of ours with the id it claims.

    heard ──WANTED, SUSPECT──▶ ping ──▶ its id ──▶ confirm
       └──MOVED──▶ ping the known address ──answers──▶ the known contact stays
                                          └─silent───▶ ping the new address

Calls are callbacks (`dhtcrawl.rpc.discovery.pending`), so nothing here waits. One ping at
a time goes to an address, and one datagram is all that a stranger's claim can
make us send there; a newcomer claims twice or more, so that the loss of one
costs nothing.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from functools import partial
from typing import Any

from dhtcrawl.clock import Clock
from dhtcrawl.keyspace import KEY_BYTES
from dhtcrawl.rpc.contact import Address, Contact, network_of, parse_id
from dhtcrawl.rpc.discovery.pending import TRIES, Done, PendingRpc, PendingRpcs, RoutingCounters
from dhtcrawl.rpc.discovery.table import ContactVerdict, RoutingTable

VERIFYING_MAX = 256
# Of those, to addresses that never answered: in all, in one network, and at one IP address. Others have the rest.
VERIFYING_STRANGERS_MAX = 192
VERIFYING_NETWORK_MAX = 128
VERIFYING_HOST_MAX = 64
VERIFIED_MAX = 4096
NEWCOMERS_MAX = 256
WAITING_MAX = 256

_ANYWHERE = ""
_STRANGERS_MAX = VERIFYING_STRANGERS_MAX, VERIFYING_HOST_MAX, VERIFYING_NETWORK_MAX

# In place of an id where an address alone is verified.
UNKNOWN_ID = bytes(KEY_BYTES)


class Verifier:
    """Pings the contacts that are heard of, and lets those that answer into the table."""

    def __init__(
        self, own_id: bytes, table: RoutingTable, calls: PendingRpcs, counters: RoutingCounters, clock: Clock
    ) -> None:
        # Contacts that entered the table, to which `Upkeep` hands values over. The oldest
        # give way: they get the values that they miss when these are republished.
        self.newcomers: deque[Contact] = deque(maxlen=NEWCOMERS_MAX)
        self._own_id = own_id
        self._table = table
        self._calls = calls
        self._counters = counters
        self._clock = clock
        self._pings: dict[Address, PendingRpc] = {}
        self._strangers: Counter[str] = Counter()  # of those pings, in all, by host and by network
        self._verified: OrderedDict[Address, None] = OrderedDict()
        self._waiting: dict[Address, Callable[[], None]] = {}

    def heard(self, contact: Contact) -> None:
        match self._table.hear(contact, self._clock.monotonic()):
            case ContactVerdict.WANTED | ContactVerdict.SUSPECT:
                # One try: a forged sender must not make us flood another node.
                self.verify(contact, tries=TRIES if self.is_verified(contact.address) else 1)
            case ContactVerdict.MOVED:
                self._challenge(contact)

    def note(self, contact: Contact, happened: bool) -> None:
        if self._calls.closed:
            return
        now = self._clock.monotonic()
        if not happened:
            self._table.failed(contact, now)
        elif not self._table.answered(contact, now):
            # An answer to FIND_NODE does not say which node it comes from; that it has this id is hearsay.
            self.heard(contact)

    def verify(self, contact: Contact, tries: int = TRIES) -> None:
        """Ping a contact; it enters the table, or stays there, if it answers with its id."""
        self._ping(contact.address, partial(self._pinged, contact, tries > 1), tries)

    def entered(self, contact: Contact) -> None:
        """`contact` just answered a ping with its id."""
        known = self._table.get(contact.id)
        if known is not None and known != contact and not self._table.suspected(known.id):
            self._challenge(contact)
        elif self._table.confirm(contact, self._clock.monotonic()):
            self.newcomers.append(contact)

    def answered_from(self, address: Address) -> None:
        """A reply to a question of ours came from there, so the node there is no victim of a forger."""
        self._verified[address] = None
        self._verified.move_to_end(address)
        if len(self._verified) > VERIFIED_MAX:
            self._verified.popitem(last=False)

    def is_verified(self, address: Address) -> bool:
        return address in self._verified

    def is_pinged(self, address: Address) -> bool:
        return address in self._pings

    def when_verified(self, address: Address, then: Callable[[], None]) -> None:
        """Ping an address and call `then` when it answers; it is forgotten if it does not."""
        if len(self._waiting) < WAITING_MAX:
            self._waiting[address] = then
            self.verify(Contact(UNKNOWN_ID, *address), tries=1)
            if address not in self._pings:
                del self._waiting[address]

    def close(self) -> None:
        self._waiting.clear()

    def _ping(self, address: Address, done: Done, tries: int) -> None:
        ping = self._pings.get(address)
        if ping is not None:
            # Another claim, another datagram, should the first one be lost. With one for each further claim, who goes
            # on forging would keep the ping open for as long again as it has been, and the node there out of the table.
            ping.ask_again()
        elif len(self._pings) < VERIFYING_MAX:
            if not self.is_verified(address):
                places = _ANYWHERE, address[0], network_of(address[0])
                if any(self._strangers[place] >= most for place, most in zip(places, _STRANGERS_MAX, strict=True)):
                    return
                self._strangers.update(places)
                done = partial(self._stranger_pinged, places, done)
            self._pings[address] = self._calls.begin(address, "ping", (self._own_id,), done, tries=tries)

    def _stranger_pinged(self, places: tuple[str, ...], done: Done, happened: bool, value: Any) -> None:
        for place in places:
            self._strangers[place] -= 1
            if not self._strangers[place]:
                del self._strangers[place]
        done(happened, value)

    def _pinged(self, contact: Contact, retried: bool, happened: bool, value: Any) -> None:
        self._pings.pop(contact.address, None)
        waiting = self._waiting.pop(contact.address, None)
        if self._calls.closed:
            return
        node_id = parse_id(value) if happened else None
        if node_id is None:
            self._table.failed(contact, self._clock.monotonic(), retried=retried)
        else:
            self.entered(Contact(node_id, *contact.address))
        if happened and waiting is not None:
            waiting()

    def _challenge(self, claimed: Contact) -> None:
        """The id of a verified contact is used elsewhere. The contact is asked first, and wins if it answers."""
        known = self._table.get(claimed.id)
        if known is None:
            return

        def done(happened: bool, value: Any) -> None:
            self._pinged(known, True, happened, value)
            if self._calls.closed:
                return
            if happened and parse_id(value) == known.id:
                self._counters.address_conflicts += 1
            else:
                self.verify(claimed)

        self._ping(known.address, done, TRIES)
