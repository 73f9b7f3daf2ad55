"""Keeps a page from being done until its body is on enough nodes (`--copies`, design invariant I11). No I/O.

    hold ──▶ waiting ──copied──▶ ready, with the nodes that have copies ──take──▶ done

With `--copies 1` the body is in place when the page is written, so no page waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dhtcrawl.loop_state import loop_state

Holders = tuple[bytes, ...]


@loop_state
class CopyBarrier:
    """Tracks which pages of a crawl still wait for copies; `further` nodes besides this one are to have a body."""

    def __init__(self, further: int) -> None:
        self.further = further
        self._waiting: dict[bytes, int] = {}  # task key → how many times it is being copied
        self._ready: dict[bytes, Holders] = {}

    def __len__(self) -> int:
        """How many pages are being copied."""
        return len(self._waiting)

    def hold(self, pages: Iterable[bytes]) -> None:
        """Make these pages wait until `copied` was called once for each `hold`."""
        if self.further:
            for page in pages:
                self._waiting[page] = self._waiting.get(page, 0) + 1

    def copied(self, page: bytes, holders: Sequence[bytes]) -> None:
        """A copy job of a page ended: `holders` have its body, and no more nodes will get it."""
        self._ready[page] = tuple(holders)
        self._waiting[page] -= 1
        if not self._waiting[page]:
            del self._waiting[page]

    def pass_through(self, pages: Iterable[bytes]) -> tuple[list[bytes], dict[bytes, None]]:
        """Split pages whose links are all acknowledged into those that are done and those that wait for copies."""
        done: list[bytes] = []
        later: dict[bytes, None] = {}
        for page in pages:
            if page in self._waiting:
                later[page] = None
            else:
                done.append(page)
        return done, later

    def take(self, done: Iterable[bytes]) -> dict[bytes, Holders]:
        """The nodes that have copies of these pages, to be stored when they become done."""
        return {page: self._ready.pop(page) for page in done if page in self._ready} if self._ready else {}
