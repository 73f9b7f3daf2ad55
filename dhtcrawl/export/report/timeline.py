"""How many pages came when, in a bounded number of bars, whatever the time. Pure."""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

BARS_MAX: Final = 120
# Each divides the next, so that bars are joined and never split.
_WIDTHS_S: Final = (1, 5, 15, 60, 300, 900, 3600, 10_800, 21_600, 86_400, 604_800, 2_419_200)
_AND_THEN: Final = 4


class Bar(NamedTuple):
    """The pages that were fetched from `since`, in seconds since 1970, for the width of a bar."""

    since: int
    pages: int


class Timeline:
    """Counts pages by when they were fetched, in whatever order they come."""

    def __init__(self) -> None:
        self.width_s = _WIDTHS_S[0]
        self._pages: Counter[int] = Counter()
        self._first = self._last = 0  # bars, numbered from 1970 on

    def add(self, at: float) -> None:
        """Count a page of this moment, in seconds since 1970."""
        bar = int(at // self.width_s)
        if not self._pages:
            self._first = self._last = bar
        while max(bar, self._last) - min(bar, self._first) >= BARS_MAX:
            self._widen()
            bar = int(at // self.width_s)
        self._first, self._last = min(bar, self._first), max(bar, self._last)
        self._pages[bar] += 1

    def bars(self) -> list[Bar]:
        """A bar for each width of time from the first page to the last, those without pages too."""
        if not self._pages:
            return []
        return [Bar(bar * self.width_s, self._pages[bar]) for bar in range(self._first, self._last + 1)]

    def _widen(self) -> None:
        wider = next((width for width in _WIDTHS_S if width > self.width_s), self.width_s * _AND_THEN)
        times = wider // self.width_s
        joined: Counter[int] = Counter()
        for bar, pages in self._pages.items():
            joined[bar // times] += pages
        self.width_s, self._pages = wider, joined
        self._first, self._last = self._first // times, self._last // times
