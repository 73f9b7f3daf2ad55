"""Which keys are a node's to fetch: its own, since before it last had to ask the others. Pure arithmetic.

A node owns a key that agrees with its id in certain bits (`owned_bits`). What
became its own a moment ago somebody else may have fetched: until it has asked,
it may only fetch what was its own by the view that it has asked about, too.
"""

from __future__ import annotations

from dhtcrawl.keyspace import KEY_BYTES
from dhtcrawl.rpc.membership.view import View
from dhtcrawl.swarm.replica_sets import owned_bits


class KeyClaim:
    """Of one node, by its view and by the one that is settled, if one is."""

    __slots__ = ("_node", "_owned", "bits")

    def __init__(self, node: bytes, view: View, settled: View | None) -> None:
        self._node = int.from_bytes(node, "big")
        self._owned = owned_bits(view, node)
        before = self._owned if settled is None or settled is view else owned_bits(settled, node)
        # In which bits a key of ours agrees with us; None: none is. Claims with equal bits say the same.
        self.bits = None if settled is None or self._owned is None or before is None else self._owned | before

    def owns(self, key: bytes) -> bool:
        """Whether the node is the owner of a task key by its view."""
        return self._owned is not None and not self._differs(key) & self._owned

    def mine(self, key: bytes) -> bool:
        """Whether it may fetch it."""
        return self.bits is not None and not self._differs(key) & self.bits

    def _differs(self, key: bytes) -> int:
        return int.from_bytes(key[:KEY_BYTES], "big") ^ self._node
