"""Who owns a key, computed from the members this node knows, without asking anybody and without I/O.

A `View` is a snapshot: take a new one when a member comes, goes or changes its
state. Ownership ranks *members* (who said HELLO), not the routing table, in
which stock nodes sit too. States, after I12 and SWIM (Das et al. 2002):

    JOINING     owns nothing yet; views skip it
    ACTIVE      owns what it is closest to
    SUSPECTED   did not answer lately; still owns, or keys would move with every lost datagram

All ids under one prefix are closer to a key of this prefix than any other id.
So members are grouped by their first bits, two bits more than it takes to
number them, and for each prefix that is asked for the groups are ordered once;
a key costs a dictionary access and, where a group has several members, a sort
of these few.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from dhtcrawl.rpc.contact import KEY_BITS, Address


class MemberState(Enum):
    """What a member may own."""

    JOINING = "joining"
    ACTIVE = "active"
    SUSPECTED = "suspected"


@dataclass(frozen=True, slots=True)
class Member:
    """A node that takes tasks, and where its task plane listens."""

    id: bytes
    address: Address
    state: MemberState = MemberState.ACTIVE

    @property
    def number(self) -> int:
        return int.from_bytes(self.id, "big")


_PREFIXES_KEPT_MAX = 65_536


class View:
    """The owners of all keys, as one node sees them at one moment."""

    def __init__(self, members: Iterable[Member]) -> None:
        self.members = tuple(sorted(members, key=lambda member: member.id))
        owners = [member for member in self.members if member.state is not MemberState.JOINING]
        self.active = sum(member.state is MemberState.ACTIVE for member in owners)
        self._size = len(owners)
        bits = max(self._size - 1, 1).bit_length() + 2
        self._shift = KEY_BITS - bits
        self._groups: dict[int, list[tuple[int, Member]]] = {}
        for member in owners:
            self._groups.setdefault(member.number >> self._shift, []).append((member.number, member))
        self._owners: dict[int, Member] = {}
        self._ranked: dict[tuple[int, int], list[tuple[int, Member]]] = {}

    def __len__(self) -> int:
        """How many members can own: active and suspected ones."""
        return self._size

    def owner(self, key: bytes) -> Member | None:
        """The member closest to `key`; None when nobody is active."""
        number = int.from_bytes(key, "big")
        owner = self._owners.get(number >> self._shift)
        if owner is not None:
            return owner
        ranked = self._candidates(number >> self._shift, 1)
        if len(ranked) > 1:
            return min(ranked, key=lambda candidate: candidate[0] ^ number)[1]
        if not ranked:
            return None
        if len(self._owners) < _PREFIXES_KEPT_MAX:
            self._owners[number >> self._shift] = ranked[0][1]
        return ranked[0][1]

    def closest(self, key: bytes, n: int) -> list[Member]:
        """The owner and the next: the `n` members closest to `key`, fewer where there are fewer."""
        number = int.from_bytes(key, "big")
        ranked = self._candidates(number >> self._shift, n)
        return [member for _, member in sorted(ranked, key=lambda candidate: candidate[0] ^ number)[:n]]

    def closest_active(self, key: bytes, n: int) -> list[Member]:
        """The same among members heard from lately: whom MOVED may name."""
        suspected = self._size - self.active
        return [m for m in self.closest(key, n + suspected) if m.state is MemberState.ACTIVE][:n]

    def _candidates(self, prefix: int, n: int) -> list[tuple[int, Member]]:
        """The members of the groups closest to `prefix`, as many groups as it takes for `n`."""
        known = self._ranked.get((prefix, n))
        if known is not None:
            return known
        ranked: list[tuple[int, Member]] = []
        for group in sorted(self._groups, key=lambda group: group ^ prefix):
            ranked += self._groups[group]
            if len(ranked) >= n:
                break
        if len(self._ranked) < _PREFIXES_KEPT_MAX:
            self._ranked[prefix, n] = ranked
        return ranked
