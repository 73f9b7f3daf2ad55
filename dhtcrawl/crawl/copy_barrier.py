"""No page is done before its body lies where the crawl wants it (`--copies`, design invariant I11). No I/O.

    hold ──▶ waiting ──copied──▶ ready, with the nodes that have copies ──take──▶ done

A crawl that wants one copy has it when the page is written: nothing waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dhtcrawl.loop_state import loop_state

Holders = tuple[bytes, ...]


@loop_state
class CopyBarrier:
    """Of one crawl on one node; `further` is how many nodes besides this one are to have a body."""

    def __init__(self, further: int) -> None:
        self.further = further
        self._waiting: dict[bytes, int] = {}  # task key → how many times it is being copied
        self._ready: dict[bytes, Holders] = {}

    def __len__(self) -> int:
        """Pages that are being copied."""
        return len(self._waiting)

    def hold(self, pages: Iterable[bytes]) -> None:
        """These are to be copied, as they are from now on; `copied` follows as often for each."""
        if self.further:
            for page in pages:
                self._waiting[page] = self._waiting.get(page, 0) + 1

    def copied(self, page: bytes, holders: Sequence[bytes]) -> None:
        """So many nodes have it, and no more will."""
        self._ready[page] = tuple(holders)
        self._waiting[page] -= 1
        if not self._waiting[page]:
            del self._waiting[page]

    def pass_through(self, pages: Iterable[bytes]) -> tuple[list[bytes], dict[bytes, None]]:
        """Of pages that are done but for their copies: those that are done, and those that wait."""
        done: list[bytes] = []
        later: dict[bytes, None] = {}
        for page in pages:
            if page in self._waiting:
                later[page] = None
            else:
                done.append(page)
        return done, later

    def take(self, done: Iterable[bytes]) -> dict[bytes, Holders]:
        """Who has copies of these, to be noted with their end."""
        return {page: self._ready.pop(page) for page in done if page in self._ready} if self._ready else {}
