"""Which records became safe that a backup has: it is told with the next records for it. No I/O.

    record ──▶ backups ──acked──▶ safe ──▶ with the next message to each of these backups ──▶ its links to it are known

A backup has a record as early as the owner, and does not know whether a link to it could be acknowledged (I1, I3). Once
it does, it need not send one. News has no message of its own, and what is lost of it costs a link that is sent in vain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dhtcrawl.rpc.tasks.rows import ITEMS_MAX

# Of a node that is told nothing else: what is beyond is not told.
KEYS_MAX: Final = 4 * ITEMS_MAX
PAIRS_MAX: Final = 256


class SafeNews:
    """Keeps task keys by the node and the crawl that they are for."""

    def __init__(self) -> None:
        self._keys: dict[tuple[bytes, bytes], list[bytes]] = {}

    def add(self, node: bytes, crawl: bytes, task_keys: Sequence[bytes]) -> None:
        """Note that a node is to be told that the records of these tasks are safe."""
        if not task_keys:
            return
        keys = self._keys.get((node, crawl))
        if keys is None:
            if len(self._keys) >= PAIRS_MAX:
                self._keys.clear()  # most are of crawls that are over and of nodes that are gone
            keys = self._keys[node, crawl] = []
        keys += task_keys[: KEYS_MAX - len(keys)]

    def take(self, node: bytes, crawl: bytes) -> bytes:
        """The keys in a row that go with a message to a node; they are not told again."""
        keys = self._keys.pop((node, crawl), None)
        if keys is None:
            return b""
        if len(keys) > ITEMS_MAX:
            self._keys[node, crawl] = keys[ITEMS_MAX:]
        return b"".join(keys[:ITEMS_MAX])
