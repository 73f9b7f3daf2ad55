"""Which counters of a session have come. Pure.

    ……… seen ………│◀──── 1,024, a bit each ────▶│ top      not yet
                                                 ▲ the highest that came

A counter above the window is new, one below it is taken for seen (RFC 6479).
"""

from __future__ import annotations

from typing import Final

WINDOW: Final = 1024
_ALL: Final = (1 << WINDOW) - 1


class ReplayWindow:
    """Begins with all counters up to `top` as seen: what came before a session was proven may be a recording."""

    __slots__ = ("_bits", "_top")

    def __init__(self, top: int) -> None:
        self._top = top
        self._bits = _ALL  # the lowest bit is that of the top

    def is_new(self, counter: int) -> bool:
        """Whether it has not come, as far as the window tells."""
        behind = self._top - counter
        return behind < 0 or (behind < WINDOW and not self._bits >> behind & 1)

    def note(self, counter: int) -> None:
        """It has come, and what it came with was authentic."""
        ahead = counter - self._top
        if ahead > 0:
            self._bits = (self._bits << ahead | 1) & _ALL if ahead < WINDOW else 1
            self._top = counter
        elif -ahead < WINDOW:
            self._bits |= 1 << -ahead
