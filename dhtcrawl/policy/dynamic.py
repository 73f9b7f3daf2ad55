"""`dynamic`: the node that does best at a site gets its tasks, and others are tried now and then (Yu et al. 2014).

The paper keeps two tables, completion (pages fetched of those asked for) and
efficiency (seconds a page), and gives tasks to nodes high in both. It names no
formula, and a node that was once bad at a site is never tried again. Here, for
each (node, site):

    a, b ← 0.9 (a, b) + (good, bad)          the results of its attempts, the latest count most
    e    ← 0.7 e + 0.3 seconds               an attempt's
    score = min(1, (a + 1.5) / (a + b + 2) + 0.5 √(ln T / (a + b + 1))) / max(e, (l + 1) g)

an upper confidence bound on completion (Auer et al. 2002), divided by the time
until a task would be done; T counts the site's attempts. Where a pair has no e
yet, the node's and the site's effects say what to expect. A node that has l tasks
of hosts without a delay is its own bottleneck, or becomes it: g is how long it
takes from one task to the next while it has some, so that a task goes where it
is done first (the shortest expected delay: Winston 1977). Such a node has no more
of them than it does in `HORIZON_S` or, where attempts take longer, than have to be
under way for its pace (Little's law), nor than wait there for a moment behind those of
other owners (`dhtcrawl.policy.window`); the rest waits for whichever has room first.

The paper's nodes are of types, and a task goes to nodes of its type only: with
the option `type=NAME` the crawl's tasks go to nodes that were started with
`--label type=NAME`. The coordinator tells the owners which those are.

A batch is 5 tasks at first, and twice as many each time when 85 % are done, as a
window of TCP begins (Jacobson 1988); once that was not so, 5 more. It halves when
fewer than 50 % are done, or it is recalled (Chiu & Jain 1989). Its time is 2.5
times what so many attempts take, of 20 s to 10 min. A node that brings no page of a
site for ten times as long as a page takes, of 20 to 60 s, has its tasks of that site
recalled; after each recall until the next page for twice as long. What is recalled at
once counts as a batch of 5 that failed, and says nothing of how long an attempt takes.
A task that came back five times after a minute without a page is left to a person.

With `mode=paper` it is as published, where the paper says it: completion / e, no
pair that is bad is tried again while another is better; 20 tasks, 5 more, or half;
recall after 60 s, each task of a batch that is recalled a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, log, sqrt
from typing import Any, ClassVar, TypeVar

from dhtcrawl.keyspace import distance, placement
from dhtcrawl.policy.node_types import Types, types_in
from dhtcrawl.policy.seam import (
    TASKS_A_NODE_MAX,
    AssignmentTerms,
    Candidate,
    Outcome,
    Policy,
    PolicyTask,
    Settings,
    TaskResult,
    failed_last,
)
from dhtcrawl.policy.window import Windows

FADES, E_KEEPS = 0.9, 0.7
EXPLORES = 0.5
BATCH_FIRST, BATCH_MIN, BATCH_MAX, BATCH_OF_PAPER = 5, 5, 100, 20
BATCH_MORE, DONE_WELL, DONE_BADLY = 5, 0.85, 0.5
BUDGET_TIMES, BUDGET_MIN_S, BUDGET_MAX_S = 2.5, 20.0, 600.0
IDLE_TIMES, IDLE_MIN_S, IDLE_MAX_S = 10.0, 20.0, 60.0
AT_WORK_FIRST, HORIZON_S, LATENCIES = 2, 5.0, 1.25
SECONDS_UNKNOWN = 1.0
PAIRS_MAX = 100_000

K = TypeVar("K")
V = TypeVar("V")


@dataclass(slots=True)
class _Pair:
    """One node at one site."""

    batch: float = BATCH_FIRST
    doubles: bool = True  # until a batch is not done well
    good: float = field(default=0.0, init=False)
    bad: float = field(default=0.0, init=False)
    seconds: float | None = field(default=None, init=False)  # an attempt's
    page_s: float | None = field(default=None, init=False)  # one's that brought a page
    recalled_at: float | None = field(default=None, init=False)
    patience: int = field(default=1, init=False)  # doubles with each recall until a page comes
    in_batch: int = field(default=0, init=False)  # outcomes since the batch was last looked at
    good_in_batch: int = field(default=0, init=False)


@dataclass(slots=True)
class _Site:
    """A site, over all nodes that ask it."""

    attempts: int = 0
    effect: float | None = None  # the logarithm of what an attempt takes


@dataclass(slots=True)
class _Pace:
    """A node, over all sites."""

    effect: float = 0.0  # by how much the logarithm of an attempt's seconds is more or less than the site's
    done: float = 0.0  # tasks, and the seconds in which it had some: the latest count most
    busy_s: float = 0.0
    at: float | None = None  # when it was last heard of, or had nothing
    seconds: float | None = None  # an attempt's, at any site

    def heard(self, done: bool, now: float) -> None:
        """Note that a task is over, or was recalled; of what is recalled at once the first tells all."""
        if not done and self.at == now:
            return
        self.busy_s = FADES * self.busy_s + (0.0 if self.at is None else max(now - self.at, 0.0))
        self.done = FADES * self.done + done
        self.at = now

    @property
    def pace_s(self) -> float | None:
        """How long it takes from one task to the next; None: not known yet."""
        return self.busy_s / self.done if self.done and self.busy_s else None

    @property
    def at_work_max(self) -> int:
        """How many tasks it has at a time: what it does in a moment, or what has to be under way for its pace."""
        pace_s = self.pace_s
        if pace_s is None:
            return AT_WORK_FIRST
        return min(max(round(max(HORIZON_S, LATENCIES * (self.seconds or 0.0)) / pace_s), 1), TASKS_A_NODE_MAX)


class Dynamic(Policy):
    """Learns from the outcomes of its owner's loans."""

    name = "dynamic"
    about = "the node that does best at a site fetches: pages brought of those tried, and seconds a page"
    options: ClassVar = {"mode": ("mended", "paper"), "type": ()}
    recalls_max = 5  # the paper's

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._paper = settings.options.get("mode") == "paper"
        self._new = _Pair(batch=BATCH_OF_PAPER, doubles=False) if self._paper else _Pair()  # never changed
        self._type = settings.options.get("type") or None
        self.planner = None if self._type is None else Types
        self._types: Mapping[bytes, object] = {}
        self._pairs: dict[tuple[bytes, str], _Pair] = {}  # the least recently used first
        self._sites: dict[str, _Site] = {}
        self._paces: dict[bytes, _Pace] = {}
        self._usual_pace_s: float | None = None
        self._windows = Windows()
        self._now = 0.0  # of the last rank

    def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
        self._now = now
        self._windows.look(candidates, now)
        able = [each for each in candidates if self._type is None or self._types.get(each.node) == self._type]
        for each in able:
            if not each.lent:
                _recent(self._paces, each.node, _Pace).at = now
        place = placement(task.key)
        scored = [
            (-self.score(each.node, task.host, each.at_work), distance(each.node, place), each.node) for each in able
        ]
        return failed_last([node for *_, node in sorted(scored)], task.failed)

    def adopt(self, table: Mapping[str, Any]) -> None:
        self._types = types_in(table)

    def score(self, node: bytes, host: str, at_work: int = 0) -> float:
        """How well a node does at a site, or may do, with so many tasks before: pages a second, at most."""
        pair = self._pairs.get((node, host), self._new)
        tried = pair.good + pair.bad
        if self._paper:
            return (pair.good / tried if tried else 1.0) / self.seconds(node, host)
        hope = EXPLORES * sqrt(log(max(self._sites.get(host, _NEW_SITE).attempts, 1)) / (tried + 1))
        takes_s = self.seconds(node, host)
        if at_work:
            takes_s = max(takes_s, (at_work + 1) * self.pace_s(node))
        return min(1.0, (pair.good + 1.5) / (tried + 2) + hope) / takes_s

    def pace_s(self, node: bytes) -> float:
        """How long a node takes from one task to the next, or is to be expected to."""
        pace_s = self._paces.get(node, _NEW_PACE).pace_s or self._usual_pace_s
        return SECONDS_UNKNOWN if pace_s is None else pace_s

    def seconds(self, node: bytes, host: str) -> float:
        """What an attempt takes, or is to be expected to."""
        pair = self._pairs.get((node, host), self._new)
        if pair.seconds is not None:
            return pair.seconds
        effect = self._sites.get(host, _NEW_SITE).effect
        return exp((log(SECONDS_UNKNOWN) if effect is None else effect) + self._paces.get(node, _NEW_PACE).effect)

    def terms(self, node: bytes, host: str) -> AssignmentTerms:
        pair = self._pairs.get((node, host), self._new)
        batch = int(pair.batch)
        budget_s = min(max(BUDGET_TIMES * batch * self.seconds(node, host), BUDGET_MIN_S), BUDGET_MAX_S)
        if self._paper:
            return AssignmentTerms(batch, budget_s, idle_s=IDLE_MAX_S)
        idle_s = IDLE_MAX_S
        if pair.page_s is not None:
            idle_s = min(pair.patience * max(IDLE_TIMES * pair.page_s, IDLE_MIN_S), IDLE_MAX_S)
        at_work_max = min(self._paces.get(node, _NEW_PACE).at_work_max, self._windows.room(node, self._now))
        return AssignmentTerms(batch, budget_s, idle_s=idle_s, at_work_max=at_work_max)

    def heard(self, outcome: Outcome, now: float) -> None:
        self._windows.heard(outcome, now)
        pair = _recent(self._pairs, (outcome.node, outcome.host), self._pair)
        good, recalled = outcome.result is TaskResult.PAGE, outcome.result is TaskResult.RECALLED
        pace = _recent(self._paces, outcome.node, _Pace)
        pace.heard(not recalled, now)
        if pace.pace_s is not None:
            self._usual_pace_s = _blend(self._usual_pace_s, pace.pace_s)
        if recalled and not self._paper:
            self._recalled(pair, now)
            return
        pair.good = FADES * pair.good + good
        pair.bad = FADES * pair.bad + (not good)
        site = _recent(self._sites, outcome.host, _Site)
        site.attempts += 1
        if not recalled:
            self._time(pair, site, outcome)
        pair.in_batch += 1
        pair.good_in_batch += good
        if pair.in_batch >= pair.batch:
            self._next_batch(pair)

    def _time(self, pair: _Pair, site: _Site, outcome: Outcome) -> None:
        seconds = max(outcome.seconds, 1e-3)
        pair.seconds = _blend(pair.seconds, seconds)
        if outcome.result is TaskResult.PAGE:
            pair.page_s, pair.patience = _blend(pair.page_s, seconds), 1
        pace = self._paces[outcome.node]
        pace.seconds = _blend(pace.seconds, seconds)
        if site.effect is not None:
            pace.effect = _blend(pace.effect, log(seconds) - site.effect)
        site.effect = _blend(site.effect, log(seconds))

    def _next_batch(self, pair: _Pair) -> None:
        done = pair.good_in_batch / pair.in_batch
        if done >= DONE_WELL:
            pair.batch = min(pair.batch * 2 if pair.doubles else pair.batch + BATCH_MORE, BATCH_MAX)
        else:
            pair.doubles = False
            if done < DONE_BADLY:
                pair.batch = max(pair.batch / 2, BATCH_MIN)
        pair.in_batch = pair.good_in_batch = 0

    def _pair(self) -> _Pair:
        return _Pair(batch=self._new.batch, doubles=self._new.doubles)

    @staticmethod
    def _recalled(pair: _Pair, now: float) -> None:
        """A batch came back: so many failures as the smallest batch has tasks, however many it had."""
        if pair.recalled_at == now:
            return
        pair.recalled_at, pair.patience = now, 2 * pair.patience
        for _ in range(BATCH_MIN):
            pair.good, pair.bad = FADES * pair.good, FADES * pair.bad + 1
        pair.batch, pair.doubles = max(pair.batch / 2, BATCH_MIN), False
        pair.in_batch = pair.good_in_batch = 0


_NEW_SITE, _NEW_PACE = _Site(), _Pace()


def _blend(before: float | None, now: float) -> float:
    return now if before is None else E_KEEPS * before + (1 - E_KEEPS) * now


def _recent(known: dict[K, V], key: K, make: Callable[[], V]) -> V:
    """The entry of a key, the most recently used now; the least recently used one goes where there are too many."""
    value = known.pop(key, None)
    known[key] = value = make() if value is None else value
    if len(known) > PAIRS_MAX:
        del known[next(iter(known))]
    return value
