"""Tasks of ours that another node has in flight, because it owned them when it began. No I/O.

The new owner leaves them alone until it hears of their outcome, or that they were not fetched, or that the node that
held them is gone. A node that was restarted is gone, too: it has forgotten what it had in flight, and the others need
not have missed it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from dhtcrawl.loop_state import loop_state

# A page that takes 600 s is rare; after this long its holder has most likely forgotten it.
HELD_S = 120.0
HELD_MAX = 100_000
# More than a node has, in flight and assigned, of another's share: a node that names more is not believed.
HELD_A_NODE_MAX = 10_000


@loop_state
class InheritedInFlight:
    """The inherited tasks of a crawl; times are seconds on the caller's monotonic clock."""

    def __init__(self) -> None:
        self.version = 0  # grows with every change
        self._held: dict[bytes, tuple[bytes, int | None, float]] = {}
        self._of: Counter[bytes] = Counter()  # how many each node has

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._held)

    def __contains__(self, key: object) -> bool:
        return key in self._held

    def holders(self) -> dict[bytes, bytes]:
        """Which node has which task."""
        return {key: node for key, (node, _, _) in self._held.items()}

    def hold(self, node: bytes, incarnation: int | None, keys: Iterable[bytes], now: float) -> None:
        """Note that `node` has these in flight, in this incarnation."""
        self.version += 1
        for key in keys:
            # A node that names too many takes no task from the others that hold some.
            if self._of[node] < HELD_A_NODE_MAX and (key in self._held or len(self._held) < HELD_MAX):
                self._drop(key)
                self._held[key] = (node, incarnation, now + HELD_S)
                self._of[node] += 1

    def let_go(self, keys: Iterable[bytes]) -> list[bytes]:
        """Hold these no longer; return those that were held."""
        return [key for key in keys if self._drop(key)]

    def given_up(self, incarnation_of: Callable[[bytes], int | None], now: float) -> list[bytes]:
        """Let go of the tasks whose holder is gone, or has had them for `HELD_S`; return them."""
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
