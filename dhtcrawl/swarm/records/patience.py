"""How long a sender has kept saying what is not believed of it. Pure.

Who sends what is refused sends it again, after a fraction of a second where it is honest: it
has no other place for it. A sender that was silent about a task for `GAP_S` begins anew, so to
say a thing twice, a minute apart, is to say it once. What one sender says never
counts for another.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

PATIENCE_S: Final = 60.0
GAP_S: Final = 15.0
# What is beyond these is refused and not noted, so it is not believed either until there is room again.
TASKS_A_SENDER_MAX: Final = 1_000
TASKS_MAX: Final = 10_000

Claim = tuple[bytes, bytes]  # crawl, task key


class Patience:
    """The claims of all senders that are refused, each with when it was made first and last, in seconds."""

    def __init__(self, tasks_a_sender_max: int = TASKS_A_SENDER_MAX) -> None:
        self._tasks_a_sender_max = tasks_a_sender_max
        self._claims: OrderedDict[bytes, OrderedDict[Claim, tuple[float, float]]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def refused(self, sender: bytes, crawl: bytes, task_keys: Iterable[bytes], now: float) -> frozenset[bytes]:
        """Note that a sender says this of these tasks; those of which it has not said it for `PATIENCE_S`."""
        self._forget(now)
        claims = self._claims.setdefault(sender, OrderedDict())
        self._claims.move_to_end(sender)
        found = frozenset(key for key in task_keys if not self._outlasts(claims, (crawl, key), now))
        if not claims:
            del self._claims[sender]
        return found

    def _outlasts(self, claims: OrderedDict[Claim, tuple[float, float]], claim: Claim, now: float) -> bool:
        known = claims.pop(claim, None)
        if known is None:
            if len(claims) >= self._tasks_a_sender_max:
                return False
            self._make_room()
            self._count += 1
        first = now if known is None or now - known[1] >= GAP_S else known[0]
        claims[claim] = first, now
        return now - first >= PATIENCE_S

    def _make_room(self) -> None:
        """Forget a claim of the sender that has most, where there is room for no other."""
        if self._count >= TASKS_MAX:
            max(self._claims.values(), key=len).popitem(last=False)
            self._count -= 1

    def _forget(self, now: float) -> None:
        """Forget the claims that were not repeated in time, of the senders that were silent longest."""
        for sender, claims in list(self._claims.items()):
            while claims and now - next(iter(claims.values()))[1] >= GAP_S:
                claims.popitem(last=False)
                self._count -= 1
            if claims:
                break
            del self._claims[sender]
