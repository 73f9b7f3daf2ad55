"""Remembers which owners did not take which links, so that the next node is told which were tried (I7). No I/O."""

from __future__ import annotations

from collections.abc import Iterable

# A node takes a link into custody if the owner that it sees is among the tried ones.
TRIED_MAX = 5
# When more links than this have failed, all are forgotten, at the cost of trying some owners once more.
LINKS_MAX = 100_000


class TriedOwners:
    """Which owners were tried for each link of a crawl."""

    def __init__(self) -> None:
        self._tried: dict[bytes, tuple[bytes, ...]] = {}  # by the link's task key, the first tried first

    def failed(self, owner: bytes, links: Iterable[bytes]) -> None:
        """Note that an owner did not answer when it was sent these links."""
        for link in links:
            tried = self._tried.get(link, ())
            if owner not in tried and len(tried) < TRIED_MAX:
                self._tried[link] = (*tried, owner)
            if len(self._tried) > LINKS_MAX:
                self._tried.clear()

    def taken(self, links: Iterable[bytes]) -> None:
        """Forget links that a node has taken."""
        if self._tried:
            for link in links:
                self._tried.pop(link, None)

    def besides(self, owner: bytes, links: Iterable[bytes]) -> tuple[bytes, ...]:
        """The owners besides this one that were tried for any of these links, at most `TRIED_MAX`."""
        if not self._tried:
            return ()
        found: dict[bytes, None] = {}
        for link in links:
            found.update(dict.fromkeys(self._tried.get(link, ())))
        found.pop(owner, None)
        return tuple(found)[:TRIED_MAX]
