"""Holds the links that their owners have not acknowledged, and the pages that wait for them. No I/O.

A page is done only when the owner of each of its out-links has acknowledged it
(design invariant I3). A link that was acknowledged before is dropped here; a link
that is under way for another page is waited for, not sent twice.

    page ──add──▶ links ──take──▶ owner ──acked──▶ pages whose last link this was

Acknowledged links are remembered in two generations of bounded size; a link that
was forgotten is sent again, and its owner answers "known".
"""

from __future__ import annotations

from collections.abc import Iterable

from dhtcrawl.loop_state import loop_state
from dhtcrawl.storage.store.tasks import Link

ACKED_MAX = 200_000


class AckedFilter:
    """Keys that an owner has acknowledged, with the depth they were sent with.

    Bounded: once full, it holds between `size_max / 2` and `size_max` of the latest keys.
    """

    def __init__(self, size_max: int = ACKED_MAX) -> None:
        self._half = max(1, size_max // 2)
        self._new: dict[bytes, int] = {}
        self._old: dict[bytes, int] = {}

    def add(self, key: bytes, depth: int) -> None:
        """Note that the owner of `key` knows it at `depth` or less."""
        before = self._new.get(key)
        if before is None or depth < before:
            self._new[key] = depth
        if len(self._new) >= self._half:
            self._old, self._new = self._new, {}

    def add_all(self, keys: Iterable[bytes]) -> None:
        """Note that the owners of these know them at depth 0."""
        self._new.update(dict.fromkeys(keys, 0))
        if len(self._new) >= self._half:
            self._old, self._new = self._new, {}

    def discard(self, key: bytes) -> None:
        """Forget a key that its owner no longer knows."""
        self._new.pop(key, None)
        self._old.pop(key, None)

    def covers(self, key: bytes, depth: int | None) -> bool:
        """Whether sending `key` would tell its owner nothing new.

        With a depth: whether it was sent with that depth or a smaller one.
        """
        known = self._new.get(key)
        if known is None:
            known = self._old.get(key)
        return known is not None and (depth is None or known <= depth)

    def not_covered(self, keys: Iterable[bytes], depth: int | None) -> list[bytes]:
        """Those of `keys` that it does not cover, in their order; all keys of a page are looked up at once."""
        if depth is None:
            new, old = self._new, self._old
            return [key for key in keys if key not in new and key not in old]
        return [key for key in keys if not self.covers(key, depth)]


@loop_state
class Outbox:
    """Keeps the links of a crawl that their owner has not acknowledged yet.

    Its size is bounded by its user, who stops fetching while `len` is large.
    """

    def __init__(self, *, depth_matters: bool, acked_max: int = ACKED_MAX) -> None:
        self._depth_matters = depth_matters
        self._acked = AckedFilter(acked_max)
        self._queue: list[Link] = []
        self._waiters: dict[bytes, tuple[int, list[bytes]]] = {}  # link → (depth sent, pages)
        self._unacked: dict[bytes, int] = {}  # page → links under way

    def __len__(self) -> int:
        """How many links are not acknowledged."""
        return len(self._waiters)

    def add(self, page: bytes, links: Iterable[Link], under_way: Iterable[bytes] = ()) -> bool:
        """Add a page's links; return whether the page waits for none, all being known.

        Of links that `not_acked` said it would wait for only the keys may be given, as `under_way`: what is not under
        way any more was acknowledged meanwhile.
        """
        waiting = 0
        for key in under_way:
            waiter = self._waiters.get(key)
            if waiter is not None:
                waiter[1].append(page)
                waiting += 1
        for link in links:
            if self.knows(link.key, link.depth):
                continue
            waiter = self._waiters.get(link.key)
            if waiter is None:
                self._waiters[link.key] = (link.depth, [page])
                self._queue.append(link)
            else:
                depth, pages = waiter
                pages.append(page)
                if link.depth < depth:
                    self._waiters[link.key] = (link.depth, pages)
                    self._queue.append(link)
            waiting += 1
        if waiting:
            self._unacked[page] = self._unacked.get(page, 0) + waiting
        return page not in self._unacked

    def knows(self, key: bytes, depth: int) -> bool:
        """Whether `add` would drop this link, because its owner has acknowledged it."""
        return self._acked.covers(key, depth if self._depth_matters else None)

    def not_acked(self, keys: Iterable[bytes], depth: int) -> tuple[list[bytes], list[bytes]]:
        """Those of `keys` for which `add` would wait only, and those that it would send at this depth."""
        waits: list[bytes] = []
        sends: list[bytes] = []
        for key in self._acked.not_covered(keys, depth if self._depth_matters else None):
            waiter = self._waiters.get(key)
            (sends if waiter is None or depth < waiter[0] else waits).append(key)
        return waits, sends

    def learn(self, keys: Iterable[bytes]) -> None:
        """Note that the owners of links know them, by their own word; only if depth does not matter."""
        assert not self._depth_matters, "how deep the owner knows it is not said"
        self._acked.add_all(keys)

    def forget(self, key: bytes) -> None:
        """Send this link again when it is found, because all nodes that had its record have lost it."""
        self._acked.discard(key)

    def waits(self, page: bytes) -> bool:
        """Whether a link of `page` is under way."""
        return page in self._unacked

    def take(self, limit: int) -> list[Link]:
        """The next links to send, at most `limit`; the caller answers with `acked`."""
        taken, self._queue = self._queue[:limit], self._queue[limit:]
        return taken

    def put_back(self, links: Iterable[Link]) -> None:
        """Queue links again that were taken, but did not reach their owner."""
        self._queue.extend(link for link in links if link.key in self._waiters)

    def acked(self, links: Iterable[Link]) -> list[bytes]:
        """The owner has these links; return the pages that have no link under way any more."""
        done: list[bytes] = []
        for link in links:
            self._acked.add(link.key, link.depth)
            under_way = self._waiters.get(link.key)
            if under_way is None or under_way[0] < link.depth:
                continue  # the same link is still under way with a smaller depth
            for page in self._waiters.pop(link.key)[1]:
                self._unacked[page] -= 1
                if not self._unacked[page]:
                    del self._unacked[page]
                    done.append(page)
        return done
