"""Which keys a node keeps, and which two nodes keep both: arithmetic on ids, without asking a view key by key.

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

from collections import Counter
from collections.abc import Iterable
from itertools import accumulate

from dhtcrawl.keyspace import KEY_BYTES, placement
from dhtcrawl.rpc.contact import KEY_BITS
from dhtcrawl.rpc.view import MemberState, View


class Reach:
    """The keys to which a node is among the `n` closest of `ids`, itself included."""

    __slots__ = ("_heavy", "_light", "_n", "_node", "first", "last")

    def __init__(self, ids: Iterable[bytes], node: bytes, n: int) -> None:
        self._node = int.from_bytes(node, "big")
        self._n = n
        self._heavy = 0
        masks: dict[int, int] = {}
        for length, size in _buckets(ids, self._node).items():
            bit = 1 << length - 1
            if size >= n:
                self._heavy |= bit
            else:
                masks[size] = masks.get(size, 0) | bit
        self._light = sorted(masks.items())
        # All keys of the node begin with the bits that lie in heavy buckets, up to the first that does not.
        free = KEY_BITS - _leading_ones(self._heavy)
        low = self._node >> free << free
        self.first = low.to_bytes(KEY_BYTES, "big")
        self.last = (low | (1 << free) - 1).to_bytes(KEY_BYTES, "big")

    def covers(self, key: bytes) -> bool:
        """Whether a task key lies within."""
        differs = int.from_bytes(key[:KEY_BYTES], "big") ^ self._node
        if differs & self._heavy:
            return False
        closer = 0
        for size, mask in self._light:
            closer += size * (differs & mask).bit_count()
        return closer < self._n


class Sharing:
    """The keys that two nodes keep both, in a view in which both count as active (design invariant I12)."""

    __slots__ = ("_a", "_b", "first", "last")

    def __init__(self, view: View, a: bytes, b: bytes, replicas: int) -> None:
        ids = list(dict.fromkeys([*owners(view), a, b]))
        self._a, self._b = (Reach(ids, node, replicas + 1) for node in (a, b))
        # Ranges of prefixes lie within one another or apart.
        self.first = max(self._a.first, self._b.first)
        self.last = min(self._a.last, self._b.last)

    @property
    def empty(self) -> bool:
        """Whether there is surely no such key."""
        return self.first > self.last

    def covers(self, key: bytes) -> bool:
        """Whether both keep the record with this task key."""
        return self._a.covers(key) and self._b.covers(key)


class Keeping:
    """The keys that a node keeps in a view: none where it is no active member of it."""

    __slots__ = ("_reach",)

    def __init__(self, view: View, node: bytes, replicas: int) -> None:
        ids = owners(view)
        self._reach = Reach(ids, node, replicas + 1) if node in ids else None

    def covers(self, key: bytes) -> bool:
        """Whether the node is in the replica set of a task key."""
        return self._reach is not None and self._reach.covers(key)

    def strays(self, key: bytes) -> bool:
        """Whether it is not."""
        return not self.covers(key)


def owners(view: View) -> list[bytes]:
    """The ids of the members that may own: active and suspected ones."""
    return [member.id for member in view.members if member.state is not MemberState.JOINING]


def replica_set(view: View, key: bytes, replicas: int) -> list[bytes]:
    """The ids of those who keep a task's record, its owner first."""
    return [member.id for member in view.closest(placement(key), replicas + 1)]


def neighbours(view: View, node: bytes, replicas: int) -> list[bytes]:
    """The other members, joining ones included, that may share a key with `node`: none is left out, few are too many.

    Let m be in bucket j of the node. Whoever of the two has the other bit j
    than the key has everybody before it who agrees there with the key: all on
    the node's side, or all on the side of m. So one of these two groups has at
    most `replicas` members.
    """
    number = int.from_bytes(node, "big")
    sizes = _buckets((id_ for id_ in owners(view) if id_ != node), number)
    # Members, the node included, that share more bits with it: those of the smaller lengths.
    ours = list(accumulate((sizes[length] for length in range(1, KEY_BITS)), initial=1))
    found: list[bytes] = []
    for member in view.members:
        length = (int.from_bytes(member.id, "big") ^ number).bit_length()
        if not length:
            continue
        theirs = sizes[length] + (member.state is MemberState.JOINING)
        if theirs <= replicas or ours[length - 1] <= replicas:
            found.append(member.id)
    return found


def _buckets(ids: Iterable[bytes], node: int) -> Counter[int]:
    """How many ids differ from `node` first in the bit of this place, counted from the end and 1."""
    lengths = Counter((int.from_bytes(id_, "big") ^ node).bit_length() for id_ in ids)
    del lengths[0]
    return lengths


def _leading_ones(mask: int) -> int:
    return KEY_BITS - (~mask & (1 << KEY_BITS) - 1).bit_length()
