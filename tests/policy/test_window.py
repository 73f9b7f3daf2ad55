"""How many tasks of all hosts an owner gives to a node, by how long the node keeps them: many owners agree unasked."""

from __future__ import annotations

import heapq
from collections import deque

import pytest
from harness.memory import entries

from dhtcrawl.policy.seam import TASKS_A_NODE_MAX, Candidate, Outcome, TaskResult
from dhtcrawl.policy.window import AGAIN_S, FIRST, WAIT_S, Windows

NODE, HOST = b"n" * 20, "site.test"
REPORT_S = 0.5  # what came of a task is told so much later
RUN_S = 400.0


def page(held_s: float | None, seconds: float = 1.0, host: str = HOST) -> Outcome:
    return Outcome(NODE, host, TaskResult.PAGE, seconds, held_s=held_s)


class Node:
    """A node with one processor, a page after the other, and owners that have more for it than it can do."""

    def __init__(self, page_s: float, owners: int) -> None:
        self.windows = [Windows() for _ in range(owners)]
        for own in self.windows:
            others_are_free(own)
        self.waits: list[float] = []  # of the tasks that were done in the last half of the run
        self._page_s = page_s

    def work(self) -> float:
        """Which part of the last half of the run it was busy."""
        waiting: deque[tuple[float, int]] = deque()
        told: list[tuple[float, float, int]] = []
        has = [0] * len(self.windows)
        now, free_at, busy_s = 0.0, 0.0, 0.0
        while now < RUN_S:
            while told and told[0][0] <= now:
                _, since, owner = heapq.heappop(told)
                has[owner] -= 1
                self.windows[owner].heard(page(now - since, self._page_s), now)
            for owner, own in enumerate(self.windows):
                more = max(0, own.room(NODE, now) - has[owner])
                waiting.extend([(now, owner)] * more)
                has[owner] += more
            while waiting and free_at <= now:
                since, owner = waiting.popleft()
                free_at = max(free_at, now - 0.1) + self._page_s
                heapq.heappush(told, (free_at + REPORT_S, since, owner))
                if now > RUN_S / 2:
                    busy_s += self._page_s
                    self.waits.append(free_at - since)
            now += 0.1
        return busy_s / (RUN_S / 2)


@pytest.mark.parametrize("owners", [1, 12])
@pytest.mark.parametrize("page_s", [0.2, 1.0, 4.0])
def test_a_node_is_busy_and_keeps_a_task_only_for_a_moment_however_many_owners_there_are(
    page_s: float, owners: int
) -> None:
    node = Node(page_s, owners)
    assert node.work() >= 0.85
    waits = sorted(node.waits)
    assert waits[len(waits) // 2] <= 2 * (WAIT_S + page_s + REPORT_S)


def test_a_node_that_is_not_known_has_one_task_and_a_fast_one_soon_as_many_as_there_may_be() -> None:
    windows = Windows()
    assert windows.room(NODE, 0.0) == int(FIRST) == 1
    now, sizes = 0.0, []
    for _ in range(14):
        now += 1.0
        for _ in range(windows.room(NODE, now)):
            windows.heard(page(1.0), now)
        sizes.append(windows.room(NODE, now))
    assert sizes[:5] == [2, 4, 8, 16, 32]
    assert sizes[-1] == TASKS_A_NODE_MAX


def others_are_free(windows: Windows, now: float = 0.0) -> None:
    """Two other nodes bring a task at once."""
    for node in (b"o", b"p"):
        windows.heard(page(1.0)._replace(node=node * 20), now)


def test_a_node_that_keeps_tasks_for_long_has_one_only_now_and_then() -> None:
    windows = Windows()
    others_are_free(windows)
    windows.heard(page(49.0), 50.0)
    size = (WAIT_S + 1) / 49
    again_s = (WAIT_S + 1) / size
    assert [windows.room(NODE, 50.0 + s) for s in (0.0, again_s - 1, again_s + 1)] == [0, 0, 1]
    windows.heard(page(48.0), 51.0)
    assert windows.room(NODE, 50.0 + again_s + 1) == 1, "what was given before says nothing of the new size"
    for number in range(9):
        windows.heard(page(1000.0), 2000.0 * (number + 1))
    assert [windows.room(NODE, 18_000.0 + s) for s in (AGAIN_S - 1, AGAIN_S)] == [0, 1], "however slow it is"


def test_after_a_pause_of_the_crawl_nodes_have_their_tasks_again_at_once() -> None:
    """The tasks waited for the crawl, as if all nodes were slow."""
    windows, other = Windows(), b"o" * 20
    for number in range(3):  # which are no candidates any more
        windows.heard(page(1.0)._replace(node=bytes([number]) * 20), 1.0)
    for node in (NODE, other):
        windows.heard(page(900.0)._replace(node=node), 1000.0)
    windows.look([Candidate(NODE), Candidate(other, 1, 1)], 1001.0)
    assert windows.room(NODE, 1001.0) == 0, "the other will tell"
    windows.look([Candidate(NODE), Candidate(other)], 1001.0)
    assert windows.room(NODE, 1001.0) == windows.room(other, 1001.0) == 1
    windows.look([Candidate(NODE), Candidate(other, 1, 1)], 1001.0)
    assert windows.room(NODE, 1001.0) == 0, "the other has one now, and will tell"
    windows.look([Candidate(NODE), Candidate(other)], 1001.0)
    windows.heard(page(1.0), 1002.0)
    assert windows.room(NODE, 1002.0) == 1
    windows.look([Candidate(NODE), Candidate(other)], 1002.0)
    assert windows.room(other, 1002.0) == 0, "one of them is free"


def test_where_tasks_wait_everywhere_alike_no_window_closes_and_a_node_where_they_wait_for_longer_is_found() -> None:
    windows, nodes = Windows(), [bytes([number]) * 20 for number in range(5)]
    for turn in range(1, 20):
        for number, node in enumerate(nodes):
            windows.heard(page(7.0 + number)._replace(node=node), 20.0 * turn)
    assert [windows.room(node, 400.0) for node in nodes] == [1] * 5, "6 to 10 s, and 8 s at the median"
    windows.heard(page(25.0)._replace(node=nodes[4]), 430.0)
    assert [windows.room(node, 430.0) for node in nodes] == [1, 1, 1, 1, 0]


def test_a_quick_node_has_many_tasks_after_few_rounds_and_no_more_than_it_can_do() -> None:
    windows, now = Windows(), 0.0
    sizes = []
    for _ in range(4):
        now += 1.0
        for _ in range(windows.room(NODE, now)):
            windows.heard(page(0.02, 0.02), now)
        sizes.append(windows.room(NODE, now))
    assert sizes == [16, 256, TASKS_A_NODE_MAX, TASKS_A_NODE_MAX]
    windows = Windows()
    windows.heard(page(0.25, 0.02), 1.0)
    assert windows.room(NODE, 1.0) == 5, "one after the other, so many would wait for a second"


def test_what_takes_long_itself_is_no_waiting() -> None:
    windows = Windows()
    for turn in range(4):
        for _ in range(2**turn):
            windows.heard(page(20.5, 20.0), 21.0 * (turn + 1))
    assert windows.room(NODE, 100.0) == 16


def test_a_size_that_is_not_used_does_not_grow() -> None:
    windows = Windows()
    windows.heard(page(1.0), 1.0)
    for number in range(20):
        windows.heard(page(1.0), 10.0 + 10.0 * number)
    assert windows.room(NODE, 300.0) == 2


def test_only_pages_of_hosts_without_a_delay_tell() -> None:
    windows = Windows()
    for outcome in (page(None), page(50.0)._replace(result=TaskResult.UNREACHABLE)):
        windows.heard(outcome, 60.0)
    assert entries(windows) == 0


def test_what_is_known_has_a_bound() -> None:
    windows = Windows()
    for number in range(100_002):
        windows.heard(page(1.0, host=f"h{number}.test"), 1.0)
    assert entries(windows) == 100_001, "as many pairs, and one node"
    windows = Windows()
    for number in range(100_001):
        windows.heard(page(1.0)._replace(node=number.to_bytes(20, "big")), 1.0)
    assert entries(windows) == 200_000, "as many nodes, with a pair each"
