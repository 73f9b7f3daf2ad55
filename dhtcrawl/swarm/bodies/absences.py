"""The participants of a crawl that are absent, since when, and how many pages lie with them. No I/O."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple


class Awaited(NamedTuple):
    """A node that is gone, how many pages of ours lie only there, since when, and when they are fetched again."""

    node: str
    pages: int
    gone_s: float
    left_s: float


SEEK_EVERY_S = 5.0  # for a copy that a node may have which does not answer


class Absences:
    """A crawl's absent participants at one node, which counts the pages that it owns; nodes are named in hex."""

    def __init__(
        self,
        absent: Callable[[], list[str]],
        grace_s: float,
        earlier: Iterable[str] = (),
        started_anew: Callable[[], list[str]] = list,
    ) -> None:
        """`absent()` names the participants whose bodies cannot be had at this moment.

        Each may come back for `grace_s`; then it is given up. Those of `earlier` may have been absent before this
        node ran, as it was itself; `started_anew()` names those that were for a moment since it was asked last.
        """
        self.absent = absent
        self.given_up: frozenset[str] = frozenset()
        self.missing: dict[str, int] = {}  # pages whose body lies at a node that is absent
        self.back: dict[str, None] = {}  # nodes that were absent, and may have missed what their pages' owners learned
        self.more_at: dict[str, None] = {}  # nodes with pages that a scan under way may not have seen
        self._grace_s = grace_s
        self._started_anew = started_anew
        self._gone_at: dict[str, float] = {}
        self._gone: list[str] = []  # by the last view
        self._been_gone: dict[str, None] = {}
        self._earlier = dict.fromkeys(earlier)
        self._seek_at: dict[str, float] = {}

    @property
    def pages(self) -> int:
        """How many pages lie at absent nodes; at least 1 while that is not known."""
        unknown = any(node not in self.missing for node in self.absent())
        return sum(self.missing.values()) + unknown

    def awaited(self) -> list[str]:
        """The absent nodes that may yet come back, with bodies that no other node has."""
        return [node for node in self.absent() if node not in self.given_up]

    def holders(self, now: float) -> list[Awaited]:
        """The absent nodes with pages of ours that may yet come back, the one that is given up next first."""
        found = []
        for node in sorted(self.awaited(), key=lambda node: self._gone_at.get(node, now)):
            pages, gone_at = self.missing.get(node, 0), self._gone_at.get(node, now)
            if pages:
                found.append(Awaited(node, pages, now - gone_at, max(0.0, gone_at + self._grace_s - now)))
        return found

    def lie_at(self, nodes: Iterable[str]) -> None:
        """Note that these nodes have pages which were not known of: the next scan counts them, too."""
        for node in nodes:
            self.more_at[node] = None
            self.missing.pop(node, None)

    def view_changed(self, *, ours: bool) -> None:
        """Drop the counts of nodes that are back; with `ours` all of them, as others' keys may be ours now.

        The node that owned these keys may have stopped before it told those that were back.
        """
        gone, self._gone = dict.fromkeys(self._gone), self.absent()
        gone |= dict.fromkeys(self._started_anew())
        self._been_gone |= gone
        self.back |= gone
        if ours:
            self.back |= self._been_gone | self._earlier
            self._earlier = {}
        for node in self._gone:
            self.back.pop(node, None)
        absent = () if ours else self._gone
        self.missing = {node: self.missing[node] for node in absent if node in self.missing}

    def review(self, absent: Iterable[str], now: float) -> bool:
        """Note who is absent at this moment; whether other nodes are given up than before."""
        self._gone_at = {node: self._gone_at.get(node, now) for node in absent}
        given_up = frozenset(node for node, gone_at in self._gone_at.items() if now - gone_at >= self._grace_s)
        if given_up == self.given_up:
            return False
        self.given_up = given_up
        self._seek_at.clear()
        return True

    def is_due(self, node: str, now: float) -> bool:
        """Whether a node's pages are to be counted, or copies of them to be sought once more."""
        if node not in self.missing:
            return True
        return node in self.given_up and self.missing[node] > 0 and now >= self._seek_at.get(node, -math.inf)

    def looked(self, node: str, now: float) -> None:
        """Note that a node's pages were counted, and copies of them sought if it is given up."""
        self._seek_at[node] = now + (SEEK_EVERY_S if node in self.given_up else 0.0)
