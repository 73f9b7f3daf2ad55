"""The participants of a crawl that are absent, and how many pages lie with them. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable


class Absences:
    """A crawl's absent participants at one node, which counts the pages that it owns; nodes are named in hex."""

    def __init__(self, absent: Callable[[], list[str]]) -> None:
        """`absent()` names the participants whose bodies cannot be had at this moment."""
        self.absent = absent
        self.given_up: frozenset[str] = frozenset()  # those that have been gone for longer than the grace
        self.missing: dict[str, int] = {}  # pages whose body lies at a node that is absent
        self.more_at: dict[str, None] = {}  # nodes with pages that a scan under way may not have seen

    def awaited(self) -> list[str]:
        """The absent nodes that may yet come back, with bodies that no other node has."""
        return [node for node in self.absent() if node not in self.given_up]

    def lie_at(self, nodes: Iterable[str]) -> None:
        """Note that these nodes have pages which were not known of: the next scan counts them, too."""
        for node in nodes:
            self.more_at[node] = None
            self.missing.pop(node, None)
