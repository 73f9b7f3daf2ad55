"""The routing table: verified contacts by distance, without I/O (Kademlia 2002, sections 2.2, 2.4, 4.1).

Bucket i holds contacts that share exactly i leading bits with our id, at most
k, least recently heard first. Only a contact that answered a ping *with its
id* gets in, and only its own silence gets it out:

                  hear: WANTED          confirm
    (a stranger) ───────────────▶ ping ─────────▶ active ──failed──▶ suspected
          │ hear: FULL                              ▲                   │  │
          ▼                                         └─ confirm,answered ┘  │
        spare ◀──── the bucket is full              dropped ◀──────────────┘
                                        a verified newcomer needs the place, or
                                        FAILURES_MAX probes in a row failed

A suspected contact is not named to others nor asked by look-ups, but probed with
growing pauses: one lost datagram, or a broken line of ours, costs nothing.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from dhtcrawl.chance import Chance
from dhtcrawl.rpc.contact import KEY_BITS, Address, Contact
from dhtcrawl.rpc.discovery.lookup import K

PROBE_FIRST_S = 1.0
PROBE_MAX_S = 60.0
FAILURES_MAX = 10  # with these pauses: after some five minutes
# A contact that was silent for this long is pinged, so that the table is right when it is needed.
STALE_S = 300.0
REFRESH_S = 3600.0  # Kademlia 2002, section 2.3
# A contact outside the table that did not answer is not asked again for this long.
SHUN_S = 30.0
SHUNNED_MAX = 1024


class ContactVerdict(Enum):
    """What hearing from a contact means for the table."""

    KNOWN = auto()  # it is in the table, at this address
    SUSPECT = auto()  # it is in the table, but did not answer lately: ping it
    MOVED = auto()  # its id is in the table at another address: ping that one first
    WANTED = auto()  # there is a place for it: ping it
    FULL = auto()  # its bucket is full of good contacts; it is kept as a spare
    SELF = auto()  # it has our id


@dataclass(slots=True)
class _Entry:
    contact: Contact
    number: int
    bucket: _Bucket
    heard_at: float
    failures: int = 0
    probe_at: float = 0.0


@dataclass(slots=True)
class _Bucket:
    entries: OrderedDict[bytes, _Entry] = field(default_factory=OrderedDict)
    spares: OrderedDict[bytes, Contact] = field(default_factory=OrderedDict)  # the replacement cache, unverified
    looked_at: float = 0.0


class RoutingTable:
    """Contacts around `own_id`; `now` is seconds on the caller's monotonic clock."""

    def __init__(self, own_id: bytes, k: int = K) -> None:
        self.own_id = own_id
        self.k = k
        self._own = int.from_bytes(own_id, "big")
        self._buckets: dict[int, _Bucket] = {}  # those in use: about log2 of the swarm's size
        self._used: list[int] = []  # their indices, deepest first
        self._by_id: dict[bytes, _Entry] = {}  # every datagram asks for some
        self._by_address: dict[Address, bytes] = {}
        self._shunned: OrderedDict[Contact, float] = OrderedDict()  # until when
        self._due_at = 0.0  # before then no contact has to be pinged

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Contact]:
        for index in reversed(self._used):
            for entry in self._buckets[index].entries.values():
                yield entry.contact

    def get(self, node_id: bytes) -> Contact | None:
        entry = self._by_id.get(node_id)
        return None if entry is None else entry.contact

    def suspected(self, node_id: bytes) -> bool:
        """Whether it is in the table and left our last question unanswered."""
        entry = self._by_id.get(node_id)
        return entry is not None and entry.failures > 0

    def wants(self, node_id: bytes) -> bool:
        """Whether it is not in the table, and there is a place for it."""
        if node_id in self._by_id or node_id == self.own_id:
            return False
        bucket = self._buckets.get(self._index(node_id))
        return bucket is None or self._has_place(bucket)

    def hear(self, contact: Contact, now: float) -> ContactVerdict:
        """A datagram claims to come from `contact`. Nothing unverified enters."""
        if contact.id == self.own_id:
            return ContactVerdict.SELF
        entry = self._by_id.get(contact.id)
        if entry is not None:
            if entry.contact != contact:
                return ContactVerdict.MOVED
            if entry.failures:
                return ContactVerdict.SUSPECT
            entry.heard_at = now
            entry.bucket.entries.move_to_end(contact.id)
            return ContactVerdict.KNOWN
        if self.wants(contact.id):
            return ContactVerdict.WANTED
        self._keep_spare(self._bucket(contact.id), contact)
        return ContactVerdict.FULL

    def confirm(self, contact: Contact, now: float) -> bool:
        """`contact` answered a ping with its id; True when it is new in the table."""
        if contact.id == self.own_id:
            return False
        self._shunned.pop(contact, None)
        holder = self._by_address.get(contact.address)
        if holder is not None and holder != contact.id:
            self.drop(holder)  # there is one node an address, and it just said which
        bucket = self._bucket(contact.id)
        bucket.spares.pop(contact.id, None)
        known = bucket.entries.pop(contact.id, None)
        if known is not None:
            del self._by_address[known.contact.address]
        elif not self._make_place(bucket):
            self._keep_spare(bucket, contact)
            return False
        entry = _Entry(contact, contact.number, bucket, now)
        bucket.entries[contact.id] = self._by_id[contact.id] = entry
        self._due_at = min(self._due_at, now + STALE_S)
        self._by_address[contact.address] = contact.id
        return known is None

    def answered(self, contact: Contact, now: float) -> bool:
        """`contact` replied to a question of ours; False when it is not in the table at this address."""
        self._shunned.pop(contact, None)
        entry = self._by_id.get(contact.id)
        if entry is None or entry.contact != contact:
            return False
        entry.failures, entry.heard_at = 0, now
        entry.bucket.entries.move_to_end(contact.id)
        return True

    def failed(self, contact: Contact, now: float, *, retried: bool = True) -> bool:
        """`contact` did not answer; True when that makes it suspected.

        Without a retry it may have been the loss of one datagram: that keeps a
        suspicion alive, but begins none, and look-ups still ask the contact.
        """
        entry = self._by_id.get(contact.id)
        if not retried and (entry is None or not entry.failures):
            return False
        if entry is None or entry.contact != contact:
            # A bogus address says nothing about the node that has the id.
            bucket = self._buckets.get(self._index(contact.id))
            if bucket is not None:
                bucket.spares.pop(contact.id, None)
            self._shun(contact, now)
            return False
        entry.failures += 1
        entry.probe_at = now + min(PROBE_FIRST_S * 2 ** (entry.failures - 1), PROBE_MAX_S)
        # At once where there are spares: there is a place for one now.
        self._due_at = now if entry.bucket.spares else min(self._due_at, entry.probe_at)
        if entry.failures >= FAILURES_MAX:
            self.drop(contact.id)
            self._shun(contact, now)
        return entry.failures == 1

    def drop(self, node_id: bytes) -> None:
        entry = self._by_id.pop(node_id, None)
        if entry is not None:
            del entry.bucket.entries[node_id]
            del self._by_address[entry.contact.address]
            self._due_at = 0.0

    def shunned(self, contact: Contact, now: float) -> bool:
        """Whether it did not answer lately, so that a look-up need not ask it."""
        entry = self._by_id.get(contact.id)
        if entry is not None and entry.contact == contact:
            return entry.failures > 0
        return self._shunned.get(contact, now) > now

    def closest(
        self, key: bytes, n: int | None = None, *, exclude: bytes | None = None, suspected: bool = False
    ) -> list[Contact]:
        """The `n` (or k) contacts closest to `key`, closest first; suspected ones only on request."""
        n = self.k if n is None else n
        target = int.from_bytes(key, "big")
        found: list[_Entry] = []
        for group in self._by_distance(target):
            chosen = [e for e in group if (suspected or not e.failures) and e.contact.id != exclude]
            chosen.sort(key=lambda entry: entry.number ^ target)
            found += chosen
            if len(found) >= n:
                break
        return [entry.contact for entry in found[:n]]

    def due(self, now: float, n: int) -> list[Contact]:
        """At most `n` to ping now: suspected ones, silent ones, spares for which there is a place."""
        if now < self._due_at:
            return []
        contacts: list[Contact] = []
        self._due_at = math.inf
        for index in reversed(self._used):
            bucket = self._buckets[index]
            for entry in bucket.entries.values():
                due_at = entry.probe_at if entry.failures else entry.heard_at + STALE_S
                self._due_at = min(self._due_at, due_at)
                if due_at <= now:
                    contacts.append(entry.contact)
            if bucket.spares and self._has_place(bucket):
                self._due_at = now
                if len(contacts) < n:  # else it would be forgotten without a ping
                    contacts.append(bucket.spares.popitem()[1])
        return contacts[:n]

    def looked_up(self, key: bytes, now: float) -> None:
        """A look-up for `key` begins: its bucket is fresh."""
        if key != self.own_id:
            self._bucket(key).looked_at = now

    def stale_keys(self, now: float, rng: Chance) -> list[bytes]:
        """A random key for every bucket without a look-up for an hour, as far as buckets are in use."""
        looked_at = {index: bucket.looked_at for index, bucket in self._buckets.items()}
        stale = [index for index in range(self._depth()) if now - looked_at.get(index, 0.0) >= REFRESH_S]
        return [self._key_in(index, rng) for index in stale]

    def far_keys(self, rng: Chance, closest: Sequence[Contact] = ()) -> list[bytes]:
        """A random key for every bucket further away than our closest neighbour: the third step of joining.

        `closest` is what a look-up of our own id found. With all k of them,
        the buckets beyond the furthest one hold no node that it did not find,
        and all nodes in there have just heard of us: they need no look-up.
        """
        depth = self._depth()
        if len(closest) >= self.k:
            depth = min(depth, self._index(closest[-1].id) + 1)
        return [self._key_in(i, rng) for i in range(depth)]

    def _depth(self) -> int:
        return next((index for index in self._used if self._buckets[index].entries), 0)

    def _key_in(self, index: int, rng: Chance) -> bytes:
        """Shares `index` bits with our id, differs in the next, and is random from there."""
        rest = KEY_BITS - 1 - index
        number = ((self._own >> rest) ^ 1) << rest | rng.getrandbits(rest)
        return number.to_bytes(KEY_BITS // 8, "big")

    def _by_distance(self, target: int) -> Iterator[list[_Entry]]:
        """Groups of entries; all of one are closer to `target` than all of the next.

        With d = our own distance to the target, of b bits: the target's bucket
        is closer than 2^(b-1), all deeper ones lie below 2^b, and each
        shallower one has a bit above.
        """
        index = self._shared_bits(target)
        if index in self._buckets:
            yield list(self._buckets[index].entries.values())
        yield [entry for i in self._used if i > index for entry in self._buckets[i].entries.values()]
        for i in self._used:
            if i < index:
                yield list(self._buckets[i].entries.values())

    def _shared_bits(self, number: int) -> int:
        # 160 for our own id, which hear and confirm refuse.
        return KEY_BITS - (self._own ^ number).bit_length()

    def _index(self, node_id: bytes) -> int:
        return self._shared_bits(int.from_bytes(node_id, "big"))

    def _bucket(self, node_id: bytes) -> _Bucket:
        """The bucket of this id, from now on in use."""
        index = self._index(node_id)
        bucket = self._buckets.get(index)
        if bucket is None:
            bucket = self._buckets[index] = _Bucket()
            self._used = sorted(self._buckets, reverse=True)
        return bucket

    def _has_place(self, bucket: _Bucket) -> bool:
        return len(bucket.entries) < self.k or any(entry.failures for entry in bucket.entries.values())

    def _make_place(self, bucket: _Bucket) -> bool:
        if len(bucket.entries) < self.k:
            return True
        worst = max(bucket.entries.values(), key=lambda entry: entry.failures)
        if worst.failures == 0:
            return False
        self.drop(worst.contact.id)
        return True

    def _keep_spare(self, bucket: _Bucket, contact: Contact) -> None:
        bucket.spares.pop(contact.id, None)
        bucket.spares[contact.id] = contact
        if len(bucket.spares) > self.k:
            bucket.spares.popitem(last=False)

    def _shun(self, contact: Contact, now: float) -> None:
        self._shunned[contact] = now + SHUN_S
        self._shunned.move_to_end(contact)
        if len(self._shunned) > SHUNNED_MAX:
            self._shunned.popitem(last=False)
