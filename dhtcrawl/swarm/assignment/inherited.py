"""Tasks of ours that another node has in flight, because it owned them when it began. No I/O.

A newcomer leaves them alone until it hears what came of them: a result, that
nothing came of them, or that whoever held them is gone. One that has started
anew is gone, too: it has forgotten what it had in flight, and the others need
not have missed it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from dhtcrawl.loop_state import loop_state

# A page of 600 s is rare; after this long its holder has most likely forgotten it.
HELD_S = 120.0
HELD_MAX = 100_000
# More than a node has in flight and on loan of another's share: one that says more of itself is not believed.
HELD_A_NODE_MAX = 10_000


@loop_state
class InheritedInFlight:
    """Of one crawl; times are seconds on the caller's monotonic clock."""

    def __init__(self) -> None:
        self.version = 0  # grows with every change
        self._held: dict[bytes, tuple[bytes, int | None, float]] = {}
        self._of: Counter[bytes] = Counter()  # of which node how many

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._held)

    def __contains__(self, key: object) -> bool:
        return key in self._held

    def holders(self) -> dict[bytes, bytes]:
        """Who has which."""
        return {key: node for key, (node, _, _) in self._held.items()}

    def hold(self, node: bytes, incarnation: int | None, keys: Iterable[bytes], now: float) -> None:
        """`node` has these in flight, in this incarnation."""
        self.version += 1
        for key in keys:
            # Who names too many takes from others nothing that they hold.
            if self._of[node] < HELD_A_NODE_MAX and (key in self._held or len(self._held) < HELD_MAX):
                self._drop(key)
                self._held[key] = (node, incarnation, now + HELD_S)
                self._of[node] += 1

    def let_go(self, keys: Iterable[bytes]) -> list[bytes]:
        """What became of these is known; those of them that were held."""
        return [key for key in keys if self._drop(key)]

    def given_up(self, incarnation_of: Callable[[bytes], int | None], now: float) -> list[bytes]:
        """Those whose holder is gone, or has had them for too long; they are held no longer."""
        gone = []
        for key, (node, held_in, until) in self._held.items():
            runs_in = incarnation_of(node)
            if until <= now or runs_in is None or runs_in != held_in:
                gone.append(key)
        return self.let_go(gone)

    def _drop(self, key: bytes) -> bool:
        node, _, _ = self._held.pop(key, (None, None, 0.0))
        if node is None:
            return False
        self.version += 1
        self._of[node] -= 1
        if not self._of[node]:
            del self._of[node]
        return True
