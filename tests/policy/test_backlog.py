"""How many tasks a node has at a time: enough to be busy, and no more than it does in a moment."""

from __future__ import annotations

import heapq

from harness.memory import entries
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.policy.backlog import FIRST, HORIZON_S, LATENCIES, LEAST, Backlog
from dhtcrawl.policy.seam import BATCH, Outcome, TaskResult

NODE, HOST = b"n" * 20, "site.test"
REPORT_S = 0.5  # what came of a task is told so much later, and so much later there is another
RUN_S = 300.0


def outcome(seconds: float = 0.1, result: TaskResult = TaskResult.PAGE, host: str = HOST) -> Outcome:
    return Outcome(NODE, host, result, seconds)


class Worker:
    """A node that has `at_once` tasks under way, each for so long, and an owner with more of them than it can do."""

    def __init__(self, seconds: float, at_once: int) -> None:
        self.seconds = seconds
        self.backlog = Backlog()
        self.done: list[float] = []  # when
        self.most_s = 0.0  # what it had, in seconds of its work, once it was known
        self._at_once = at_once

    def work(self, run_s: float = RUN_S) -> float:
        """Tasks a second in the last half of the run."""
        under_way: list[float] = []
        told: list[float] = []  # when the owner hears of each that is done
        waiting = has = 0
        now = 0.0
        while now < run_s:
            while told and told[0] <= now:
                heapq.heappop(told)
                has -= 1
                self.backlog.heard(outcome(self.seconds), now)
            more = max(0, self.backlog.size(NODE, HOST) - has)
            has, waiting = has + more, waiting + more
            while waiting and len(under_way) < self._at_once:
                waiting -= 1
                heapq.heappush(under_way, now + self.seconds)
            if now > run_s / 2:
                self.most_s = max(self.most_s, waiting * self.seconds / self._at_once)
            now = min(at for at in (*under_way[:1], *told[:1]))
            while under_way and under_way[0] <= now:
                self.done.append(heapq.heappop(under_way))
                heapq.heappush(told, now + REPORT_S)
        return sum(at > run_s / 2 for at in self.done) / (run_s / 2)


@given(seconds=st.floats(0.1, 20.0), at_once=st.integers(1, 16))
def test_a_node_is_busy_and_has_no_more_than_it_does_in_a_moment(seconds: float, at_once: int) -> None:
    worker, able = Worker(seconds, at_once), at_once / seconds
    reached = worker.work()
    assert reached >= 0.85 * min(able, BATCH / (seconds + REPORT_S)), "it waits for tasks"
    assert worker.most_s <= max(2 * max(HORIZON_S, LATENCIES * seconds), LEAST * seconds)


def test_who_is_not_known_gets_a_few_and_a_fast_one_soon_as_many_as_there_may_be() -> None:
    backlog = Backlog()
    assert backlog.size(NODE, HOST) == FIRST
    for number in range(100):
        backlog.heard(outcome(), 0.05 * number)
    assert backlog.size(NODE, HOST) == BATCH
    assert backlog.size(NODE, "other.test") == FIRST, "another host is another matter"


def test_who_brings_nothing_in_time_gets_half_as_many() -> None:
    backlog, sizes = Backlog(), []
    for number in range(100):
        backlog.heard(outcome(), 0.05 * number)
    for number in range(6):
        backlog.heard(outcome(60.0, TaskResult.RECALLED), 65.0 + number)
        sizes.append(backlog.size(NODE, HOST))
    assert sizes == [25, 12, 6, 3, 2, LEAST]


def test_what_is_known_of_many_hosts_has_a_bound() -> None:
    backlog = Backlog()
    for number in range(100_002):
        backlog.heard(outcome(host=f"h{number}.test"), 0.0)
    assert entries(backlog) == 100_000


def test_a_slow_node_has_few_soon() -> None:
    backlog = Backlog()
    for number in range(3):
        backlog.heard(outcome(0.5), 5.0 * number)
    assert backlog.size(NODE, HOST) == LEAST, "though it never brought as many as it might have had"


def test_it_grows_by_no_more_than_twice_at_a_time() -> None:
    backlog, sizes = Backlog(), []
    for _ in range(30):
        backlog.heard(outcome(), 1.0)
        sizes.append(backlog.size(NODE, HOST))
    assert sorted(set(sizes)) == [FIRST, 2 * FIRST, 4 * FIRST, 8 * FIRST]
