"""Who owns a key, computed from the members this node knows, without asking others and without I/O.

A `View` is a snapshot: take a new one when a member comes, goes or changes its
state. Ownership ranks *members* (who said HELLO), not the routing table, in
which stock nodes sit too. States, after I12 and SWIM (Das et al. 2002):

    JOINING     owns nothing yet; views skip it
    ACTIVE      owns what it is closest to
    SUSPECTED   did not answer lately; still owns, or keys would move with every lost datagram
    OUTBOUND    never owns anything: no other node can reach it. It fetches what owners lend to it

All ids under one prefix are closer to a key of this prefix than any other id.
So members are grouped by their first bits, two bits more than it takes to
number them, and for each prefix that is asked for the closest groups are found
once, by halving the sorted ids bit by bit; a key costs a dictionary access
and, where a group has several members, a sort of these few.

A swarm of a thousand has thousands of views, each of which few keys are asked
of: what takes more than a pass over the members is made when it is needed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from hashlib import sha256
from operator import attrgetter

from dhtcrawl.rpc.contact import KEY_BITS, Address


class MemberState(Enum):
    """What a member may own."""

    JOINING = "joining"
    ACTIVE = "active"
    SUSPECTED = "suspected"
    OUTBOUND = "outbound"


_OWNING = frozenset({MemberState.ACTIVE, MemberState.SUSPECTED})


@dataclass(frozen=True, slots=True)
class Member:
    """A node that takes tasks, and where its task plane listens."""

    id: bytes
    address: Address
    state: MemberState = MemberState.ACTIVE

    @property
    def number(self) -> int:
        return int.from_bytes(self.id, "big")

    @property
    def owns(self) -> bool:
        """Whether it owns the keys that it is closest to."""
        return self.state in _OWNING


_PREFIXES_KEPT_MAX = 65_536
_ID_BYTES = KEY_BITS // 8
_id_of = attrgetter("id")


class View:
    """The owners of all keys, as one node sees them at one moment."""

    def __init__(self, members: Iterable[Member]) -> None:
        self.members = tuple(sorted(members, key=_id_of))
        self._owning = [member for member in self.members if member.owns]
        self.active = [member.state for member in self._owning].count(MemberState.ACTIVE)
        bits = max(len(self._owning) - 1, 1).bit_length() + 2
        self.shift = KEY_BITS - bits  # how many bits of a key, at its end, are not in its prefix
        self._owners: dict[int, Member] = {}
        self._ranked: dict[tuple[int, int], list[tuple[int, Member]]] = {}
        self._same: dict[tuple[int, int], bool] = {}

    def __len__(self) -> int:
        """How many members can own: active and suspected ones."""
        return len(self._owning)

    def alike(self, other: View) -> bool:
        """Whether the same members are there and the same of them own: the rest is who answered lately."""
        return self.ids == other.ids and self.owner_ids == other.owner_ids

    def missing_in(self, other: View) -> list[bytes]:
        """The ids of those who are there in this view and not in the other, in order."""
        missing = set() if self.ids == other.ids else set(self.ids).difference(other.ids)
        return [node_id for node_id in self.ids if node_id in missing] if missing else []

    @cached_property
    def ids(self) -> tuple[bytes, ...]:
        return tuple(map(_id_of, self.members))

    @cached_property
    def owner_ids(self) -> tuple[bytes, ...]:
        return tuple(map(_id_of, self._owning))

    @cached_property
    def answering(self) -> tuple[bytes, ...]:
        """Ids of the active members, which may be given something to do."""
        return tuple(member.id for member in self.members if member.state is MemberState.ACTIVE)

    @cached_property
    def outbound(self) -> tuple[bytes, ...]:
        """Ids of the members that no other can reach."""
        return tuple(member.id for member in self.members if member.state is MemberState.OUTBOUND)

    @cached_property
    def eligible(self) -> tuple[bytes, ...]:
        """Ids of the members that own, or will once they have joined."""
        return tuple(member.id for member in self.members if member.state is not MemberState.OUTBOUND)

    @cached_property
    def owning(self) -> frozenset[bytes]:
        """The same as a set; not to be iterated."""
        return frozenset(self.owner_ids)

    @cached_property
    def fingerprint(self) -> bytes:
        told = b"".join(m.id + (b"o" if m.owns else b"j") for m in self.members)
        return sha256(told).digest()

    def __contains__(self, node_id: object) -> bool:
        if not isinstance(node_id, bytes):
            return False
        place = bisect_left(self.ids, node_id)
        return self.ids[place : place + 1] == (node_id,)

    def owner(self, key: bytes) -> Member | None:
        """The member closest to `key`; None when no member is active."""
        number = int.from_bytes(key, "big")
        owner = self._owners.get(number >> self.shift)
        if owner is not None:
            return owner
        ranked = self._candidates(number >> self.shift, 1)
        if len(ranked) > 1:
            return min(ranked, key=lambda candidate: candidate[0] ^ number)[1]
        if not ranked:
            return None
        if len(self._owners) < _PREFIXES_KEPT_MAX:
            self._owners[number >> self.shift] = ranked[0][1]
        return ranked[0][1]

    def owners(self, keys: Iterable[bytes]) -> list[Member | None]:
        """The `owner` of each of these keys, in their order."""
        shift, known, number_of, owner = self.shift, self._owners.get, int.from_bytes, self.owner
        return [known(number_of(key, "big") >> shift) or owner(key) for key in keys]

    def closest(self, key: bytes, n: int) -> list[Member]:
        """The owner and the next: the `n` members closest to `key`, fewer where there are fewer."""
        number = int.from_bytes(key, "big")
        ranked = self._candidates(number >> self.shift, n)
        return [member for _, member in sorted(ranked, key=lambda candidate: candidate[0] ^ number)[:n]]

    def prefix_of(self, key: bytes, n: int) -> int | None:
        """The first bits of `key` where all keys with these have the same `n` closest; None where they may differ."""
        prefix = int.from_bytes(key, "big") >> self.shift
        same = self._same.get((prefix, n))
        if same is None:
            ranked = self._candidates(prefix, n)
            # Members that differ in these bits are ranked by them alone.
            same = len({number >> self.shift for number, _ in ranked}) == len(ranked)
            if len(self._same) < _PREFIXES_KEPT_MAX:
                self._same[prefix, n] = same
        return prefix if same else None

    def closest_active(self, key: bytes, n: int) -> list[Member]:
        """The same among members heard from lately: whom MOVED may name."""
        suspected = len(self._owning) - self.active
        return [m for m in self.closest(key, n + suspected) if m.state is MemberState.ACTIVE][:n]

    def _candidates(self, prefix: int, n: int) -> list[tuple[int, Member]]:
        """The members of the groups closest to `prefix`, as many groups as it takes for `n`."""
        known = self._ranked.get((prefix, n))
        if known is not None:
            return known
        ranked = self._closest_groups(prefix << self.shift, n)
        if len(self._ranked) < _PREFIXES_KEPT_MAX:
            self._ranked[prefix, n] = ranked
        return ranked

    def _closest_groups(self, number: int, n: int) -> list[tuple[int, Member]]:
        ids, ranked = self.owner_ids, list[tuple[int, Member]]()
        # Ranges of owners that agree above a bit, the closest on top.
        todo = [(0, len(ids), KEY_BITS - 1)] if ids else []
        while todo and len(ranked) < n:
            low, high, bit = todo.pop()
            if bit < self.shift or high - low == 1:
                ranked += [(member.number, member) for member in self._owning[low:high]]
                continue
            half = (int.from_bytes(ids[low], "big") >> bit | 1) << bit
            middle = bisect_left(ids, half.to_bytes(_ID_BYTES, "big"), low, high)
            halves = ((low, middle, bit - 1), (middle, high, bit - 1))
            todo += [each for each in (halves if number >> bit & 1 else reversed(halves)) if each[0] < each[1]]
        return ranked
