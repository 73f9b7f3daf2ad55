"""How much of all tasks each node owns, how much it is to fetch, and so what owners give away. Pure.

Ids do not lie evenly: of eight nodes one may own twice the mean. Where each owner
fetches what it owns but for what it has too much of, and nodes that own too
little fetch that, the work is even and most tasks stay where their records are.

    owned   s   of the keys, the part that is closest to a node by XOR
    target  t   the node's weight over the sum of all
    s > t: the owner keeps t / s of its tasks        s < t: the node lacks t - s

The part of the keys: ids are a binary tree, and at each fork half of the keys go
either way. Where all ids of a subtree have the same next bit, there is no fork: a
key with the other bit is as close to them, by the bits that follow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dhtcrawl.keyspace import KEY_BYTES
from dhtcrawl.policy.seam import number_in

# An owner keeps so much more than its target: what is moved costs more than a load that is as uneven as this.
SPARE = 1.02
# Shares are computed for at most so many nodes, those nearest to the key.
NEAREST = 256
SETS_MAX = 64  # sets of nodes whose shares are remembered
_TOP = 8 * KEY_BYTES - 1


@dataclass(frozen=True, slots=True)
class Shares:
    """Who keeps how much of what it owns, and what other nodes lack."""

    ids: Sequence[tuple[int, bytes]]  # the nodes, each as a number, too
    keeps: Mapping[bytes, float]  # node → the part of its own tasks that it fetches, at most 1
    lacks: Mapping[bytes, float]  # nodes that own less than they are to fetch → how much, of all tasks

    def closest(self, place: int) -> bytes:
        """The node that owns what is placed there."""
        return min([(number ^ place, node) for number, node in self.ids])[1]


def owned(nodes: Sequence[bytes]) -> dict[bytes, float]:
    """The part of all keys that each of these nodes, which differ, is closest to."""
    found: dict[bytes, float] = {}
    forks = [(sorted(int.from_bytes(node, "big") for node in nodes), _TOP, 1.0)]
    while forks:
        ids, bit, part = forks.pop()
        if not ids:
            continue
        if len(ids) == 1:
            found[ids[0].to_bytes(KEY_BYTES, "big")] = part
            continue
        zeros = [each for each in ids if not each >> bit & 1]
        ones = ids[len(zeros) :]
        half = part / 2 if zeros and ones else part
        forks += [(zeros, bit - 1, half), (ones, bit - 1, half)]
    return found


def shares(nodes: Sequence[bytes], weights: Mapping[bytes, float]) -> Shares:
    """What these nodes keep and lack; their weights are positive."""
    parts, total = owned(nodes), sum(weights[node] for node in nodes)
    targets = {node: weights[node] / total for node in nodes}
    keeps = {node: min(1.0, SPARE * targets[node] / part) for node, part in parts.items()}
    lacks = {node: targets[node] - part for node, part in sorted(parts.items()) if part < targets[node]}
    return Shares([(int.from_bytes(node, "big"), node) for node in nodes], keeps, lacks)


class ShareBook:
    """The shares of the nodes near a key, by the weights of a plan; what was computed is remembered until the next."""

    def __init__(self) -> None:
        self._table: Mapping[str, Any] = {}
        self._known: dict[tuple[bytes, ...], Shares] = {}  # by the nodes that they are of

    def adopt(self, table: Mapping[str, Any]) -> None:
        """Take a plan, as it came over the wire; a node without a weight in it has 1."""
        self._table = table
        self._known.clear()

    def near(self, place: int, nodes: Sequence[bytes]) -> Shares:
        """The shares of these nodes, or of a subtree of those that are the nearest of more."""
        whole = _whole_part(place, list(nodes))
        known = self._known.get(whole)
        if known is None:
            if len(self._known) >= SETS_MAX:
                self._known.clear()
            weights = {node: number_in(self._table, "weights", node, 1.0) for node in whole}
            known = self._known[whole] = shares(whole, weights)
        return known


def _whole_part(place: int, nodes: list[bytes]) -> tuple[bytes, ...]:
    """The nodes, sorted, among which a task is shared: all of them, or a subtree of those that are the nearest of more.

    Of the subtree that is farthest from the key they may be a part. All owners in the others have the same in sight.
    """
    if len(nodes) >= NEAREST:
        bits = {node: (place ^ int.from_bytes(node, "big")).bit_length() for node in nodes}
        farthest = max(bits.values())
        nodes = [node for node in nodes if bits[node] < farthest] or nodes
    return tuple(sorted(nodes))
