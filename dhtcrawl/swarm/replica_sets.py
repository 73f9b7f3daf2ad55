"""Computes which keys a node keeps, and which two nodes both keep, from ids, without asking a view key by key.

With b_j the number of members that share exactly their first j bits with a
node (its bucket j), the members closer to a key than the node are those of all
buckets j in which key and node differ: they agree with the key where the node
does not. So the node is among the n closest to a key exactly if

    sum of b_j over the bits j in which key and node differ  <  n

Buckets of n or more members must not differ at all; they are most of the first
bits, and give the one range in which all of a node's keys lie. The sums over
the others are a few counts of bits.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias, TypeVar

from dhtcrawl.keyspace import KEY_BYTES, placement
from dhtcrawl.rpc.contact import KEY_BITS
from dhtcrawl.rpc.membership.view import MemberState, View

Span: TypeAlias = tuple[bytes, bytes]  # a range of placements: the first and the last
NO_OWNER = b""  # stands for the owner while no member is active, as when a whole swarm starts
T = TypeVar("T")
EVERYTHING: Span = (bytes(KEY_BYTES), b"\xff" * KEY_BYTES)


class Reach:
    """The keys to which a node is among the `n` closest members; `buckets` are the sizes of its buckets."""

    __slots__ = ("_heavy", "_light", "_n", "_node", "first", "last")

    def __init__(self, buckets: Mapping[int, int], node: bytes, n: int) -> None:
        self._node = int.from_bytes(node, "big")
        self._n = n
        self._heavy = 0
        masks: dict[int, int] = {}
        for length, size in buckets.items():
            bit = 1 << length - 1
            if size >= n:
                self._heavy |= bit
            else:
                masks[size] = masks.get(size, 0) | bit
        self._light = sorted(masks.items())
        # Where all the light ones together are fewer than n members, only heavy buckets count.
        if sum(size * mask.bit_count() for size, mask in self._light) < n:
            self._light = []
        # All keys of the node begin with the bits that lie in heavy buckets, up to the first that does not.
        free = KEY_BITS - _leading_ones(self._heavy)
        low = self._node >> free << free
        self.first = low.to_bytes(KEY_BYTES, "big")
        self.last = (low | (1 << free) - 1).to_bytes(KEY_BYTES, "big")

    def covers(self, key: bytes) -> bool:
        """Whether a task key is one of them."""
        return self.has(int.from_bytes(key[:KEY_BYTES], "big"))

    def has(self, place: int) -> bool:
        """The same for a placement as a number."""
        differs = place ^ self._node
        if differs & self._heavy:
            return False
        closer = 0
        for size, mask in self._light:
            closer += size * (differs & mask).bit_count()
        return closer < self._n


class Sharing:
    """The keys that two nodes both keep, in a view in which both count as active (design invariant I12)."""

    __slots__ = ("_a", "_b", "first", "last")

    def __init__(self, view: View, a: bytes, b: bytes, replicas: int) -> None:
        self._a, self._b = (Reach(_buckets_with(view, *pair), pair[0], replicas + 1) for pair in ((a, b), (b, a)))
        # Ranges of prefixes are nested or disjoint.
        self.first = max(self._a.first, self._b.first)
        self.last = min(self._a.last, self._b.last)

    def within(self, spans: Sequence[Span]) -> list[Span]:
        """The parts of disjoint ranges that may hold such keys."""
        cut = ((max(first, self.first), min(last, self.last)) for first, last in spans)
        return [(first, last) for first, last in cut if first <= last]

    def covers(self, key: bytes) -> bool:
        """Whether both keep the record with this task key."""
        place = int.from_bytes(key[:KEY_BYTES], "big")
        return self._a.has(place) and self._b.has(place)


def kept_by(view: View, nodes: Iterable[bytes], replicas: int) -> list[Span]:
    """Disjoint ranges, in order, that hold every key that one of these members keeps in a view."""
    reaches = (Reach(bucket_sizes(view, node), node, replicas + 1) for node in nodes)
    return apart((reach.first, reach.last) for reach in reaches)


def owned_by(view: View, nodes: Iterable[bytes]) -> list[Span]:
    """The same for every key that one of them owns."""
    return kept_by(view, nodes, 0)


def apart(spans: Iterable[Span]) -> list[Span]:
    """Ranges of prefixes, in order, without those that lie within another one."""
    found: list[Span] = []
    # They are nested or disjoint: of those with the same beginning the longest comes first.
    for first, last in sorted(spans, key=_by_beginning_and_length):
        if not found or first > found[-1][1]:
            found.append((first, last))
    return found


class Keeping:
    """The keys that a node keeps in a view: none where it is no active member of it."""

    __slots__ = ("_reach",)

    def __init__(self, view: View, node: bytes, replicas: int) -> None:
        self._reach = Reach(bucket_sizes(view, node), node, replicas + 1) if node in view.owning else None

    def covers(self, key: bytes) -> bool:
        """Whether the node is in the replica set of a task key."""
        return self._reach is not None and self._reach.covers(key)

    def strays(self, key: bytes) -> bool:
        """Whether the node is not in the replica set of a task key."""
        return not self.covers(key)


def owned_bits(view: View, node: bytes) -> int | None:
    """The bits, as a mask, in which a placement must agree with `node` for the node to own it; None: it owns nothing.

    Those are the bits of its buckets that are not empty: two views with equal masks give it the same keys.
    """
    if node not in view.owning:
        return None
    mask = 0
    for length, _, _ in _buckets(view.owner_ids, node):
        mask |= 1 << length - 1
    return mask


def by_owner(view: View, items: Iterable[T], key_of: Callable[[T], bytes]) -> dict[bytes, list[T]]:
    """The items, each with a task key, by the node that owns it; by `NO_OWNER` while no member owns anything."""
    found: dict[bytes, list[T]] = {}
    items = list(items)
    owners = view.owners([key[:KEY_BYTES] for key in map(key_of, items)])  # their placements
    for item, owner in zip(items, owners, strict=True):
        found.setdefault(NO_OWNER if owner is None else owner.id, []).append(item)
    return found


def in_parts(keys: Sequence[bytes], most: int) -> Iterator[tuple[bytes, ...]]:
    """Keys for calls that carry up to `most` of them."""
    for first in range(0, len(keys), most):
        yield tuple(keys[first : first + most])


def replica_set(view: View, key: bytes, replicas: int) -> list[bytes]:
    """The ids of the nodes that keep a task's record, its owner first."""
    return [member.id for member in view.closest(placement(key), replicas + 1)]


def neighbours(view: View, node: bytes, replicas: int) -> list[bytes]:
    """The other members, joining ones included, that may share a key with `node`; a few that share none, too.

    Members that never own anything share none.

    Let m be in bucket j of the node, and divide the members that agree with both
    above bit j into two sides by bit j. To a key all members of the side that
    agrees with it in bit j are closer than the other of the two. So they share a
    key only if one side has at most `replicas` members.
    """
    sizes = bucket_sizes(view, node)
    ranges: list[tuple[int, int, bool]] = []
    for length, low, high in _buckets(view.ids, node):
        theirs = sizes.get(length, 0)
        # Members that share more bits with the node, itself included: those of the smaller lengths.
        ours = 1 + sum(size for shorter, size in sizes.items() if shorter < length)
        if theirs < replicas or ours <= replicas:
            ranges.append((low, high, True))
        elif theirs == replicas:
            # A member that joins there would be one more of them.
            ranges.append((low, high, False))
    return [
        member.id
        for low, high, joining_too in sorted(ranges)
        for member in view.members[low:high]
        if member.owns or (joining_too and member.state is MemberState.JOINING)
    ]


def bucket_sizes(view: View, node: bytes) -> dict[int, int]:
    """How many owners first differ from `node` in each bit, by its place, counted from 1 at the end."""
    return {length: high - low for length, low, high in _buckets(view.owner_ids, node)}


def _by_beginning_and_length(span: Span) -> tuple[bytes, int]:
    return span[0], -int.from_bytes(span[1], "big")


def _buckets_with(view: View, node: bytes, other: bytes) -> dict[int, int]:
    """The bucket sizes where `other` counts as an owner, too."""
    sizes = bucket_sizes(view, node)
    if other != node and other not in view.owning:
        length = (int.from_bytes(node, "big") ^ int.from_bytes(other, "big")).bit_length()
        sizes[length] = sizes.get(length, 0) + 1
    return sizes


def _buckets(ids: Sequence[bytes], node: bytes) -> Iterator[tuple[int, int, int]]:
    """A node's buckets that are not empty: the place of the bit, and where its ids lie among sorted ones."""
    number = int.from_bytes(node, "big")
    low, high, bit = 0, len(ids), KEY_BITS - 1
    while high - low > 1:
        # The remaining ids agree with the node above this bit.
        half = ((number >> bit | 1) << bit).to_bytes(KEY_BYTES, "big")
        middle = bisect_left(ids, half, low, high)
        if number >> bit & 1:
            if low < middle:
                yield bit + 1, low, middle
            low = middle
        else:
            if middle < high:
                yield bit + 1, middle, high
            high = middle
        bit -= 1
    if low < high and ids[low] != node:
        yield (int.from_bytes(ids[low], "big") ^ number).bit_length(), low, high


def _leading_ones(mask: int) -> int:
    return KEY_BITS - (~mask & (1 << KEY_BITS) - 1).bit_length()
