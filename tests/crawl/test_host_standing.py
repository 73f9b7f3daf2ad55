"""Whether a crawl waits is known of all hosts of its frontier, however many there are."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

from dhtcrawl.crawl.host_standing import HOSTS_ASKED_MAX, frontier_obstacle
from dhtcrawl.fetch.politeness import HoldReason
from dhtcrawl.standing import Cause

from .by_hand import NOW, ByHand, make, over
from .stored import task

MANY = 20 * HOSTS_ASKED_MAX
ORIGINS: Any = SimpleNamespace(delay_s=lambda host: 0.0, asked_delay=lambda host: False)


def snoozing(hosts: int) -> ByHand:
    """Hosts that all asked for ten minutes, the last one for five, found by starting what may start."""
    frontier = make(hosts_max=MANY + 1)
    frontier.add([task(f"http://h{number}/", number) for number in range(hosts)], NOW)
    for number in range(hosts):
        wait_s = 300.0 if number == hosts - 1 else 600.0
        frontier.book.clock(f"h{number}").hold(NOW, wait_s, HoldReason(Cause.RETRY_AFTER, "429"))
    assert frontier.next(NOW) is None
    return frontier


def test_a_request_that_may_begin_at_the_last_of_many_hosts_is_seen() -> None:
    frontier = snoozing(MANY)
    named = frontier_obstacle(frontier, frontier.book, ORIGINS, NOW)
    assert named is not None
    assert (named.cause, named.about, named.left_s) == (Cause.RETRY_AFTER, f"h{MANY - 1}", 300.0)
    assert frontier_obstacle(frontier, frontier.book, ORIGINS, NOW + 299.0) is not None
    assert frontier_obstacle(frontier, frontier.book, ORIGINS, NOW + 300.0) is None
    frontier.add([task("http://free/", MANY)], NOW)
    assert frontier_obstacle(frontier, frontier.book, ORIGINS, NOW) is None


def test_the_host_that_is_free_first_is_known_after_its_old_place_became_stale() -> None:
    frontier = make()
    frontier.add([task("http://a/", 1), task("http://b/", 2)], NOW)
    assert frontier.soonest()[0] == -math.inf
    frontier.book.clock("a").hold(NOW, 5.0, HoldReason(Cause.FAILING))
    job = frontier.next(NOW)
    assert job is not None
    assert job.host == "b"
    frontier.book.clock("a").hold(NOW, 9.0, HoldReason(Cause.FAILING))
    frontier.host_free("a", NOW)
    at, host = frontier.soonest()
    assert host is not None
    assert (at, host.name) == (NOW + 9.0, "a")
    over(frontier, job)
    frontier.forget("a", task("http://a/", 1).key, NOW)
    assert frontier.soonest() == (math.inf, None)
