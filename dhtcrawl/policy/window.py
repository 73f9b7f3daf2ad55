"""How many tasks a node has at a time of one owner, over all hosts without a delay: as many as it soon does. Pure.

How many an owner gave to a node of one host (`dhtcrawl.policy.backlog`) says little where a crawl has many owners and
hosts: each of them gives little, and all together give a slow node more than it does in minutes. None of them sees what
the others gave. But it sees how long the node has kept its tasks, and what of that the attempts took: the rest is what
they have waited behind the tasks of others (as TCP Vegas finds a queue: Brakmo & Peterson 1995).

    size ← 2 · size, or up to 16 · size if they would not wait either     tasks waited for half of `WAIT_S` at most
    size ← size                                                           at most twice as long as at the median node
    size ← size · (WAIT_S + an attempt's least seconds) / kept seconds    otherwise; in the mean over a round

Where tasks wait everywhere alike there is nowhere to go for them: among nodes of one speed no window closes.

A round is over with as many tasks as the size says, or after (WAIT_S + least seconds); only tasks that were given since
the last change count, and a size that was not used does not grow. It may be below 1: then the node has a task of this
owner now and then, once in (WAIT_S + least seconds) / size, or in `AGAIN_S`; once that one has not waited
it has one at a time again. Owners need not agree: where all find that tasks wait for too long, each gives less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from dhtcrawl.policy.seam import TASKS_A_NODE_MAX, Candidate, Outcome, TaskResult

FIRST, LEAST = 1.0, 0.02
AGAIN_S = 60.0  # after so long a node has a task in any case: it may be the only one that reaches a host
WAIT_S = 5.0
GROWS, GROWS_MOST = 2.0, 16.0
BUSY = 2.0  # so many times as long as at the median of nodes, and a node is busier than they are
NODES_ASKED = 64  # of how many nodes, those heard of last, the median is taken
FORGETS = 1.02  # how much more the least seconds are taken to be with each attempt that took longer
PAIRS_MAX = 100_000


@dataclass(slots=True)
class _Size:
    """What one node may have, since a moment."""

    since: float
    tasks: float = FIRST
    usual_s: float = WAIT_S  # what a task that waits no longer than it should is kept
    count: int = 0
    kept_s: float = 0.0
    least_s: float = 0.0
    waited_s: float | None = None  # a task, in the last round


class Windows:
    """Sets how many tasks an owner gives to each node. Times are seconds on the caller's monotonic clock."""

    def __init__(self) -> None:
        self._all_pause = False
        self._sizes: dict[bytes, _Size] = {}  # the least recently heard of first
        self._least_s: dict[tuple[bytes, str], float] = {}  # of attempts at a host that brought a page

    def look(self, candidates: Sequence[Candidate], now: float) -> None:
        """Note that a node is to be chosen of these, now.

        Where they all pause, and have nothing of this owner, what made them slow is over, such as a pause of the crawl.
        """
        self._all_pause = False
        if not any(each.at_work for each in candidates):
            self._all_pause = not any(self.room(each.node, now) for each in candidates)

    def room(self, node: bytes, now: float) -> int:
        """How many tasks a node may have now; 0: none yet."""
        size = self._sizes.get(node)
        if size is None:
            return int(FIRST)
        if size.tasks >= 1:
            return min(int(size.tasks), TASKS_A_NODE_MAX)
        return int(self._all_pause or now - size.since >= min(size.usual_s / size.tasks, AGAIN_S))

    def waited_s(self, node: bytes) -> float:
        """How long a task waited there in the last round; 0: not known."""
        size = self._sizes.get(node)
        return 0.0 if size is None or size.waited_s is None else size.waited_s

    def heard(self, outcome: Outcome, now: float) -> None:
        """Learn from a result: only pages tell how long a task waited."""
        if outcome.held_s is None or outcome.result is not TaskResult.PAGE:
            return
        pair = outcome.node, outcome.host
        least_s = min(self._least_s.pop(pair, outcome.seconds) * FORGETS, outcome.seconds)
        self._least_s[pair] = least_s
        if len(self._least_s) > PAIRS_MAX:
            del self._least_s[next(iter(self._least_s))]
        size = self._sizes.pop(outcome.node, None) or _Size(now - outcome.held_s)
        self._sizes[outcome.node] = size
        if len(self._sizes) > PAIRS_MAX:
            del self._sizes[next(iter(self._sizes))]
        if now - outcome.held_s < size.since:
            return
        size.count += 1
        size.kept_s += outcome.held_s
        size.least_s += least_s
        used = size.count >= size.tasks
        if not used and now - size.since < size.usual_s:
            return
        kept_s, least_s = size.kept_s / size.count, size.least_s / size.count
        size.usual_s, size.waited_s = WAIT_S + least_s, kept_s - least_s
        change = self._change(size, kept_s)
        size.tasks = min(max(size.tasks * (change if used else min(change, 1.0)), LEAST), float(TASKS_A_NODE_MAX))
        size.since, size.count, size.kept_s, size.least_s = now, 0, 0.0, 0.0

    def _change(self, size: _Size, kept_s: float) -> float:
        """By what a size changes after a round in which tasks were kept so long."""
        waited_s = size.waited_s or 0.0
        if waited_s <= WAIT_S / 2:
            # Who is asked now and then, and has brought it at once, is free.
            return max(GROWS, 1 / size.tasks, min(WAIT_S / 4 / max(kept_s, 1e-3), GROWS_MOST))
        known = (each.waited_s for each in islice(reversed(self._sizes.values()), NODES_ASKED))
        others_s = sorted(each for each in known if each is not None)
        if waited_s <= BUSY * others_s[(len(others_s) - 1) // 2]:
            return 1.0
        return size.usual_s / kept_s
