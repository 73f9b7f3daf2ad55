"""Which keys a node may fetch: those it owns, and owned when it last synced with its neighbours. Pure arithmetic.

A node owns a key that agrees with its id in certain bits (`owned_bits`). A key
that it owns since a moment ago another node may have fetched. So a node fetches
only keys that it owns by its view and by the last view that it has synced about.
"""

from __future__ import annotations

from collections.abc import Iterable

from dhtcrawl.keyspace import KEY_BYTES
from dhtcrawl.rpc.membership.view import View
from dhtcrawl.swarm.replica_sets import owned_bits


class KeyClaim:
    """The keys that one node owns and may fetch."""

    __slots__ = ("_node", "_owned", "bits")

    def __init__(self, node: bytes, view: View, settled: View | None) -> None:
        """`settled` is the last view that the node has synced about; None: there is none yet."""
        self._node = int.from_bytes(node, "big")
        self._owned = owned_bits(view, node)
        before = self._owned if settled is None or settled is view else owned_bits(settled, node)
        # In which bits a key that we may fetch agrees with our id; None: we may fetch none. Equal bits, equal claims.
        self.bits = None if settled is None or self._owned is None or before is None else self._owned | before

    def owns(self, key: bytes) -> bool:
        """Whether the node is the owner of a task key by its view."""
        # This and `mine` are asked for each link and record: no call to find out where the key differs.
        owned = self._owned
        return owned is not None and not (int.from_bytes(key[:KEY_BYTES], "big") ^ self._node) & owned

    def owned(self, keys: Iterable[bytes]) -> list[bytes]:
        """Those of these keys of which `owns` is true, for one call."""
        owned, node, number_of = self._owned, self._node, int.from_bytes
        return [] if owned is None else [key for key in keys if not (number_of(key[:KEY_BYTES], "big") ^ node) & owned]

    def mine(self, key: bytes) -> bool:
        """Whether the node may fetch the task with this key."""
        return self.bits is not None and not (int.from_bytes(key[:KEY_BYTES], "big") ^ self._node) & self.bits
