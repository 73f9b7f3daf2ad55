"""Tasks of ours that another node has in flight, because it owned them when it began. No I/O.

The new owner leaves them alone until it hears of their outcome, or that they were not fetched, or that the node that
held them is gone. A node that was restarted is gone, too: it has forgotten what it had in flight, and the others need
not have missed it.

Several nodes may be named for one task: a former owner tells whom it had assigned the task to, and need not know that
another owner came after it and assigned the task anew. So each of them has to let go of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from dhtcrawl.loop_state import loop_state

# A page that takes 600 s is rare; after this long its holder has most likely forgotten it.
HELD_S = 120.0
HELD_MAX = 100_000
# More than a node has, in flight and assigned, of another's share: a node that names more is not believed.
HELD_A_NODE_MAX = 10_000


class _Hold(NamedTuple):
    incarnation: int | None
    until: float


@loop_state
class InheritedInFlight:
    """The inherited tasks of a crawl; times are seconds on the caller's monotonic clock."""

    def __init__(self) -> None:
        self.version = 0  # grows with every change
        self._held: dict[bytes, dict[bytes, _Hold]] = {}  # key → node, the one that was named last at the end
        self._of: Counter[bytes] = Counter()  # how many each node has

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._held)

    def __contains__(self, key: object) -> bool:
        return key in self._held

    def holders(self) -> dict[bytes, bytes]:
        """Which node has which task; of several, the one that was named last."""
        return {key: next(reversed(nodes)) for key, nodes in self._held.items()}

    def hold(self, node: bytes, incarnation: int | None, keys: Iterable[bytes], now: float) -> None:
        """Note that `node` has these in flight, in this incarnation."""
        self.version += 1
        for key in keys:
            # A node that names too many leaves room for others.
            if self._of[node] < HELD_A_NODE_MAX and (key in self._held or len(self._held) < HELD_MAX):
                self._drop(key, node)
                self._held.setdefault(key, {})[node] = _Hold(incarnation, now + HELD_S)
                self._of[node] += 1

    def let_go(self, keys: Iterable[bytes]) -> list[bytes]:
        """Hold these no longer, whoever has them: their outcome is known. Returns those that were held."""
        over = [key for key in dict.fromkeys(keys) if key in self._held]
        for key in over:
            for node in list(self._held[key]):
                self._drop(key, node)
        return over

    def let_go_from(self, node: bytes, keys: Iterable[bytes]) -> list[bytes]:
        """`node` does not have these any more; return those that were held, and that no node has now."""
        return [key for key in keys if self._drop(key, node) and key not in self._held]

    def given_up(self, incarnation_of: Callable[[bytes], int | None], now: float) -> list[bytes]:
        """Let go of the tasks whose holders are gone, or have had them for `HELD_S`; return them."""
        gone: dict[bytes, list[bytes]] = {}
        for key, nodes in self._held.items():
            for node, hold in nodes.items():
                runs_in = incarnation_of(node)
                if hold.until <= now or runs_in is None or runs_in != hold.incarnation:
                    gone.setdefault(node, []).append(key)
        return [key for node, keys in gone.items() for key in self.let_go_from(node, keys)]

    def _drop(self, key: bytes, node: bytes) -> bool:
        nodes = self._held.get(key)
        if nodes is None or nodes.pop(node, None) is None:
            return False
        if not nodes:
            del self._held[key]
        self.version += 1
        self._of[node] -= 1
        if not self._of[node]:
            del self._of[node]
        return True
