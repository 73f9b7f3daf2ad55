"""Tasks of ours that another node has in flight, because it owned them when it began. No I/O.

A newcomer leaves them alone until it hears what came of them: a result, that
nothing came of them, or that whoever held them is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

# A page of 600 s is rare; after this long its holder has most likely forgotten it.
HELD_S = 120.0
HELD_MAX = 100_000


class Held:
    """Of one crawl; times are seconds on the caller's monotonic clock."""

    def __init__(self) -> None:
        self._held: dict[bytes, tuple[bytes, float]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._held)

    def __contains__(self, key: object) -> bool:
        return key in self._held

    def hold(self, node: bytes, keys: Iterable[bytes], now: float) -> None:
        """`node` has these in flight."""
        for key in keys:
            if len(self._held) < HELD_MAX:
                self._held[key] = (node, now + HELD_S)

    def let_go(self, keys: Iterable[bytes]) -> list[bytes]:
        """What became of these is known; those of them that were held."""
        return [key for key in keys if self._held.pop(key, None) is not None]

    def given_up(self, is_there: Callable[[bytes], bool], now: float) -> list[bytes]:
        """Those whose holder is gone, or has had them for too long; they are held no longer."""
        gone = [key for key, (node, until) in self._held.items() if until <= now or not is_there(node)]
        for key in gone:
            del self._held[key]
        return gone
