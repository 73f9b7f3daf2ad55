"""How much of a crawl may be under way on one node. Pure.

    request ──response──▶ unwritten ──round on disk──▶ open ──the backups have its tombstone──▶ over
    └────── `requests`, at most `requests_max` ─────┘
    └───────────────── `requests` and `waiting`, at most `pages_max` ────────────────────┘

A page that is on this node's disk holds no request's place: a slow line to the
backups, or a dead backup, must not keep the node from fetching. It still counts
towards a bound of its own, in pages and in bytes of bodies, since a crash of this
node may make the swarm fetch it again (`docs/decisions/0047-*`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dhtcrawl.loop_state import loop_state

# Bodies of pages that are not over: what a crash makes the swarm ask the web for again.
OPEN_BYTES_MAX = 64 << 20


@loop_state
class OpenPages:
    """The task keys of pages that have arrived and are not over, in the order in which they came."""

    def __init__(self) -> None:
        self.body_bytes = 0
        self._sizes: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._sizes)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._sizes)

    def __contains__(self, key: object) -> bool:
        return key in self._sizes

    def add(self, key: bytes, size: int) -> None:
        """Add a page whose body has `size` bytes; one that is there already counts with the larger body."""
        before = self._sizes.get(key, 0)
        self._sizes[key] = max(size, before)
        self.body_bytes += self._sizes[key] - before

    def close(self, key: bytes) -> None:
        """A page is over; nothing if it was not open."""
        self.body_bytes -= self._sizes.pop(key, 0)


class PlaceLimits(NamedTuple):
    """The bounds of one node and crawl."""

    requests_max: int  # requests under way, and pages that are not on disk here
    pages_max: int  # those, and pages that are on disk here and not over
    bytes_max: int = OPEN_BYTES_MAX  # bodies of pages that are not over; the last one may exceed it

    def free(self, requests: int, unwritten: int, open_pages: OpenPages) -> bool:
        """Whether one more request may begin; the `unwritten` pages are among the open ones."""
        return (
            requests + unwritten < self.requests_max
            and requests + len(open_pages) < self.pages_max
            and open_pages.body_bytes < self.bytes_max
        )
