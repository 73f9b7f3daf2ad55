"""Which of several ids a node takes that has none yet: one that splits the largest section. Pure.

A section is the part of the keys that a node is closest to. Ids are digests of keys, so where one falls is chance, and
of eight nodes one would own twice the mean. A node that comes splits the section that its id falls into; of several
ids it takes one that splits the largest (the two choices of Mitzenmacher 2001, for ids).

    nodes           a 00…    b 10…    c 11…        sections ½, ¼, ¼
    candidates      01…      splits a at the second bit: all four have ¼
                    001…     splits a at the third: as well, but what begins with 01 is then split by nobody that
                             splits only one of the two
                    101…     splits b: a keeps ½, twice the mean of four

Who owns what is decided by the distance alone, as before.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from math import log2
from typing import Final, NamedTuple, TypeVar

from dhtcrawl.keyspace import KEY_BYTES
from dhtcrawl.policy.shares import owned

# With 16, the largest of 32 sections is still twice the mean; with 64 it is the mean in most swarms of up to 64 nodes.
TRIES_MAX: Final = 64
_BITS: Final = 8 * KEY_BYTES

T = TypeVar("T")


class SectionSplit(NamedTuple):
    """What a further node would do; the greater the better."""

    section: float  # the largest that it takes half of, as a part of all keys
    height: int  # bits of the ids below the fork that it makes


class Sections:
    """How the keys are shared among nodes."""

    def __init__(self, nodes: Iterable[bytes]) -> None:
        """Their ids, at least one; some may come twice."""
        parts = owned(list(set(nodes)))
        self._ids = sorted(int.from_bytes(node, "big") for node in parts)
        self._parts = {int.from_bytes(node, "big"): part for node, part in parts.items()}
        self.largest = max(parts.values())

    def split(self, node: bytes) -> SectionSplit:
        """What a node with this id would do; where it is one of the nodes, nothing."""
        number = int.from_bytes(node, "big")
        at = bisect_left(self._ids, number)
        height = min((near ^ number).bit_length() for near in self._ids[max(at - 1, 0) : at + 1])
        if not height:
            return SectionSplit(0.0, 0)
        # All whose ids agree with it down to the fork: a key there goes to them by the bits that follow.
        first = number >> height << height
        split = self._ids[bisect_left(self._ids, first) : bisect_left(self._ids, first + (1 << height))]
        return SectionSplit(max(self._parts[each] for each in split), height)

    def is_best(self, split: SectionSplit) -> bool:
        """Whether hardly any other is better: the largest section, at a fork as high as those of even sections."""
        return split.section == self.largest and _BITS - split.height <= -log2(self.largest)


def tries_of(nodes: Sequence[bytes]) -> int:
    """Of how many ids one chooses that comes by itself and sees these nodes: four for each but the first.

    The largest of m sections is a part of 1/m at least, so of 4 (m - 1) ids hardly ever none finds it. Who sees one
    node may be one of many that come at this moment, and takes its first: of more ids all of them would take one in
    the half of the keys that the one they see does not need, and leave it the other half.
    """
    return min(max(1, 4 * (len(nodes) - 1)), TRIES_MAX)


def best_of(candidates: Iterable[T], id_of: Callable[[T], bytes], nodes: Sequence[bytes], tries: int) -> T:
    """Of the first `tries` candidates the one that splits the largest section among these nodes.

    No more are drawn than that takes, and without nodes only the first.
    """
    drawn = islice(candidates, tries)
    best = next(drawn)
    if not nodes:
        return best
    sections = Sections(nodes)
    best_split = sections.split(id_of(best))
    while not sections.is_best(best_split):
        candidate = next(drawn, None)
        if candidate is None:
            break
        split = sections.split(id_of(candidate))
        if split > best_split:
            best, best_split = candidate, split
    return best


def together(count: int, candidates: Iterator[T], id_of: Callable[[T], bytes], nodes: Sequence[bytes]) -> list[T]:
    """The same for several that come at once, of `TRIES_MAX` each: each knows of those before it."""
    chosen: list[T] = []
    known = list(nodes)
    for _ in range(count):
        chosen.append(best_of(candidates, id_of, known, TRIES_MAX))
        known.append(id_of(chosen[-1]))
    return chosen
