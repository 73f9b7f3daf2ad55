"""What an owner has heard of its tasks since it last asked the policy, which learns from it. Pure.

Times are seconds on the caller's monotonic clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from dhtcrawl.crawl.ports import TaskOutcome
from dhtcrawl.loop_state import loop_state
from dhtcrawl.policy.seam import Outcome

HEARD_MAX = STARTED_MAX = 10_000


@loop_state
class HeardOutcomes:
    """Keeps the outcomes of tasks, with how long their node had them; the oldest are forgotten."""

    def __init__(self, delay_s: Callable[[str], float]) -> None:
        """`delay_s(host)` is the delay of a host."""
        self._delay_s = delay_s
        self._heard: deque[tuple[Outcome, float]] = deque(maxlen=HEARD_MAX)
        self._started: dict[bytes, float] = {}  # tasks that their owner fetches itself, and since when

    def started(self, keys: Iterable[bytes], now: float) -> None:
        """Note that the owner itself has these tasks from now on."""
        self._started |= dict.fromkeys(keys, now)
        while len(self._started) > STARTED_MAX:
            del self._started[next(iter(self._started))]

    def hear(self, node: bytes, given: TaskOutcome, now: float, since: float | None = None) -> None:
        """Take the outcome of a task that `node` had; where `since` is not said it may be the owner's own."""
        since = self._started.pop(given.key, None) if since is None else since
        held_s = None if since is None or self._delay_s(given.host) > 0 else now - since
        outcome = Outcome(node, given.host, given.result, given.seconds, given.connect_s, given.bytes, held_s)
        self._heard.append((outcome, now))

    def take(self) -> deque[tuple[Outcome, float]]:
        """All that was heard since the last call, and when."""
        heard, self._heard = self._heard, deque(maxlen=HEARD_MAX)
        return heard
