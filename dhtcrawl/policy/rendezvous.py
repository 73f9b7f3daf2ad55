"""Weighted rendezvous hashing: each task goes to the node that draws the best lot for it.

Thaler & Ravishankar 1998; with weights after Schindelhauer & Schomaker 2005:
a node's score is −w / ln u, with u uniform in (0, 1) by hash of node and key,
so that it wins a share of w / Σw. A node that leaves gives its tasks to the
others by their weights, and no other task moves; a changed weight moves tasks
to or from that node only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log

from dhtcrawl.keyspace import placement

_MASK = (1 << 64) - 1
_ODD = 0x9E3779B97F4A7C15  # 2^64 / golden ratio: Knuth 1998, section 6.4
_MIX_1, _MIX_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # Steele et al. 2014, SplitMix64


def rendezvous(key: bytes, nodes: Sequence[bytes], weights: Mapping[bytes, float]) -> list[bytes]:
    """The nodes, best first, for a task key; a node without a weight has 1, one with 0 or less comes last."""
    place = int.from_bytes(placement(key)[:8], "big")
    scored = [(-_score(place, node, weights.get(node, 1.0)), node) for node in nodes]
    return [node for _, node in sorted(scored)]


def _score(place: int, node: bytes, weight: float) -> float:
    if weight <= 0:
        return weight - 1.0
    mixed = (place ^ int.from_bytes(node[:8], "big")) + _ODD & _MASK
    mixed = (mixed ^ mixed >> 30) * _MIX_1 & _MASK
    mixed = (mixed ^ mixed >> 27) * _MIX_2 & _MASK
    mixed ^= mixed >> 31
    # 53 bits, and never 0 or 1.
    return -weight / log(((mixed >> 11) + 0.5) / (1 << 53))
