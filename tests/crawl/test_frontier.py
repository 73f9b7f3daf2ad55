"""The frontier: who is next, and when."""

from __future__ import annotations

import math

import pytest

from dhtcrawl.crawl.back_queue import RETRIES_MAX
from dhtcrawl.fetch.politeness import HoldReason, HostBook

from .by_hand import NOW, begin, make, over, url_of, urls
from .stored import task

HELD = HoldReason("retry-after", "429")

# -- the order --


def test_a_smaller_depth_goes_first_whatever_the_order_of_discovery() -> None:
    frontier = make()
    frontier.add([task("http://a/deep", 1, 2), task("http://a/near", 2, 1), task("http://a/seed", 3, 0)], NOW)
    assert urls(frontier) == ["http://a/seed", "http://a/near", "http://a/deep"]


def test_the_host_with_the_shallowest_task_goes_first() -> None:
    frontier = make()
    frontier.add([task("http://a/3", 1, 3), task("http://b/1", 2, 1), task("http://c/2", 3, 2)], NOW)
    assert urls(frontier) == ["http://b/1", "http://c/2", "http://a/3"]


def test_tasks_of_equal_depth_go_in_the_order_of_discovery() -> None:
    frontier = make()
    frontier.add([task(f"http://a/{n}", order) for n, order in ((1, 5), (2, 3), (3, 4))], NOW)
    assert urls(frontier) == ["http://a/2", "http://a/3", "http://a/1"]


def test_hosts_of_equal_depth_take_turns() -> None:
    frontier = make()
    frontier.add([task(f"http://{host}/{n}", n) for host in "abc" for n in range(2)], NOW)
    assert [url[7] for url in urls(frontier)] == list("abcabc")


def test_a_host_keeps_its_turn_when_more_is_found_for_it() -> None:
    frontier = make()
    frontier.add([task("http://a/1", 1), task("http://b/1", 2)], NOW)
    for order in range(3, 6):
        frontier.add([task(f"http://a/{order}", order)], NOW)
    assert url_of(frontier.next(NOW)) == "http://a/1"


def test_a_shallower_find_moves_its_host_forward() -> None:
    frontier = make()
    frontier.add([task("http://a/deep", 1, 5), task("http://b/mid", 2, 3)], NOW)
    frontier.add([task("http://a/near", 3, 1)], NOW)
    assert urls(frontier) == ["http://a/near", "http://b/mid", "http://a/deep"]


def test_a_task_found_again_on_a_shorter_way_moves_forward_and_is_started_once() -> None:
    frontier = make()
    frontier.add([task("http://a/x", 1, 4), task("http://a/y", 2, 3)], NOW)
    frontier.add([task("http://a/x", 1, 1)], NOW)
    assert urls(frontier) == ["http://a/x", "http://a/y"]
    assert frontier.empty


def test_tasks_that_are_written_together_leave_together() -> None:
    frontier = make(parallel=2)
    frontier.add([task("http://a/1"), task("http://a/2", 2), task("http://b/1")], NOW)
    jobs = [begin(frontier) for _ in range(3)]
    for job in jobs:
        frontier.book.clock(job.host).end(NOW)
        frontier.finish(job, NOW)
    assert not frontier.empty
    frontier.all_written([(job.host, job.task.key) for job in jobs if job.task is not None], NOW)
    assert frontier.empty


# -- politeness --


def test_a_host_with_a_delay_gets_one_request_and_then_a_rest() -> None:
    frontier = make(delay_s=2.0, parallel=8)
    frontier.add([task("http://a/1", 1), task("http://a/2", 2)], NOW)
    job = begin(frontier)
    assert frontier.next(NOW + 50) is None
    over(frontier, job, NOW + 50)
    assert frontier.next(NOW + 51.9) is None
    assert frontier.next_due_at() == NOW + 52
    assert url_of(frontier.next(NOW + 52)) == "http://a/2"


def test_hosts_do_not_wait_for_one_another() -> None:
    frontier = make(delay_s=10.0)
    frontier.add([task(f"http://{host}/{n}", n) for host in "ab" for n in range(2)], NOW)
    assert urls(frontier) == ["http://a/0", "http://b/0"]
    assert urls(frontier, NOW + 10) == ["http://a/1", "http://b/1"]


def test_without_a_delay_requests_run_side_by_side_up_to_the_limit() -> None:
    frontier = make(parallel=3)
    frontier.add([task(f"http://a/{n}", n) for n in range(5)], NOW)
    jobs = [begin(frontier) for _ in range(3)]
    assert frontier.next(NOW) is None
    over(frontier, jobs[1])
    assert url_of(frontier.next(NOW)) == "http://a/3"
    assert frontier.in_flight == 3


def test_a_request_of_somebody_else_is_waited_for() -> None:
    book = HostBook(started_at=0.0, fresh=True)
    frontier = make(book=book)
    book.clock("a").begin(NOW, 0.0)
    frontier.add([task("http://a/1")], NOW)
    assert frontier.next(NOW) is None
    assert frontier.next_due_at() == math.inf
    book.clock("a").end(NOW)
    frontier.host_free("a", NOW)
    assert url_of(frontier.next(NOW)) == "http://a/1"


def test_a_hold_that_comes_while_a_host_is_ready_is_kept() -> None:
    book = HostBook(started_at=0.0, fresh=True)
    frontier = make(book=book)
    frontier.add([task("http://a/1")], NOW)
    book.clock("a").hold(NOW, 30.0, HELD)
    assert frontier.next(NOW) is None
    assert frontier.next_due_at() == NOW + 30
    assert url_of(frontier.next(NOW + 30)) == "http://a/1"


def test_a_clock_forgotten_by_the_book_is_no_dead_end() -> None:
    book = HostBook(started_at=0.0, fresh=True, clocks_max=0)
    frontier = make(book=book)
    frontier.add([task("http://a/1", 1), task("http://a/2", 2)], NOW)
    book.sweep(NOW, lambda _: 0.0)
    assert urls(frontier) == ["http://a/1", "http://a/2"]


# -- robots.txt --


def test_robots_comes_first_once_and_nothing_else_of_the_host_meanwhile() -> None:
    known: set[str] = set()
    frontier = make(parallel=8, robots=True, known=known)
    frontier.add([task("http://a/1", 1), task("http://a/2", 2), task("http://b/1", 3)], NOW)
    jobs = [begin(frontier), begin(frontier)]
    assert [(job.task, job.origin) for job in jobs] == [(None, "http://a"), (None, "http://b")]
    assert frontier.next(NOW) is None
    known.add("http://a")
    over(frontier, jobs[0])
    assert urls(frontier) == ["http://a/1", "http://a/2"]


def test_a_robots_job_that_failed_is_offered_again() -> None:
    frontier = make(robots=True)
    frontier.add([task("http://a/1")], NOW)
    over(frontier, begin(frontier))
    again = begin(frontier)
    assert (again.task, again.origin) == (None, "http://a")


def test_each_origin_of_a_host_has_its_own_robots() -> None:
    known = {"http://a"}
    frontier = make(parallel=8, robots=True, known=known)
    frontier.add([task("http://a/1", 1), task("https://a/2", 2), task("http://a/3", 3)], NOW)
    first = begin(frontier)
    second = begin(frontier)
    assert url_of(first) == "http://a/1"
    assert (second.task, second.origin) == (None, "https://a")
    assert frontier.next(NOW) is None
    known.add("https://a")
    over(frontier, second)
    assert urls(frontier) == ["https://a/2", "http://a/3"]


# -- retries --


def test_a_retry_waits_for_its_time_and_lets_others_pass() -> None:
    frontier = make()
    frontier.add([task("http://a/1", 1), task("http://a/2", 2)], NOW)
    job = begin(frontier)
    frontier.book.clock("a").end(NOW)
    frontier.finish(job, NOW, retry_at=NOW + 5)
    assert urls(frontier) == ["http://a/2"]
    assert frontier.next_due_at() == NOW + 5
    assert frontier.next(NOW + 4.9) is None
    again = begin(frontier, NOW + 5)
    assert (url_of(again), again.attempt) == ("http://a/1", 1)


def test_a_due_retry_goes_before_what_is_new() -> None:
    frontier = make()
    frontier.add([task("http://a/1", 1), task("http://a/2", 2)], NOW)
    job = begin(frontier)
    frontier.book.clock("a").end(NOW)
    frontier.finish(job, NOW, retry_at=NOW)
    assert urls(frontier) == ["http://a/1", "http://a/2"]


def test_a_host_where_everything_fails_starts_nothing_new_until_a_retry_is_due() -> None:
    frontier = make()
    frontier.add([task(f"http://a/{n}", n) for n in range(2 * RETRIES_MAX)], NOW)
    started = 0
    while (job := frontier.next(NOW)) is not None:
        started += 1
        frontier.book.clock("a").end(NOW)
        frontier.finish(job, NOW, retry_at=NOW + 3600)
    assert started == RETRIES_MAX
    assert frontier.next_due_at() == NOW + 3600
    assert begin(frontier, NOW + 3600).attempt == 1


# -- what leaves while it is in flight --


def test_what_left_the_stored_queue_while_it_was_in_flight_is_not_tried_again() -> None:
    """Seed 449: others had brought it when our own try broke off, and it was asked for once more."""
    frontier = make()
    one, two = task("http://a/1", 1), task("http://a/2", 2)
    frontier.add([one, two], NOW)
    job = begin(frontier)
    frontier.forget("a", one.key, NOW)
    frontier.book.clock("a").end(NOW)
    frontier.finish(job, NOW, retry_at=NOW + 5)
    assert urls(frontier, NOW + 10) == ["http://a/2"]
    assert frontier.empty


def test_what_came_back_meanwhile_is_tried_again() -> None:
    frontier = make()
    one = task("http://a/1", 1)
    frontier.add([one], NOW)
    job = begin(frontier)
    frontier.forget("a", one.key, NOW)
    frontier.add([one], NOW)
    frontier.book.clock("a").end(NOW)
    frontier.finish(job, NOW, retry_at=NOW + 5)
    assert urls(frontier, NOW + 10) == ["http://a/1"]
    assert frontier.empty


@pytest.mark.parametrize("left", [True, False])
def test_what_comes_to_nothing_is_put_back_unless_it_left(left: bool) -> None:
    frontier = make()
    one = task("http://a/1", 1)
    frontier.add([one], NOW)
    job = begin(frontier)
    if left:
        frontier.forget("a", one.key, NOW)
    frontier.book.clock("a").end(NOW)
    frontier.put_back("a", one, NOW)
    frontier.finish(job, NOW)
    assert urls(frontier) == ([] if left else ["http://a/1"])
    assert frontier.empty


def test_what_left_and_came_as_something_new_later_is_as_new() -> None:
    frontier = make()
    one = task("http://a/1", 1)
    frontier.add([one], NOW)
    job = begin(frontier)
    frontier.forget("a", one.key, NOW)
    over(frontier, job)
    frontier.add([one], NOW)
    job = begin(frontier)
    frontier.book.clock("a").end(NOW)
    frontier.finish(job, NOW, retry_at=NOW + 5)
    assert urls(frontier, NOW + 5) == ["http://a/1"]


# -- what waits on purpose --


def keys_of(*numbers: int) -> frozenset[bytes]:
    return frozenset(task(f"http://a/{number}", number).key for number in numbers)


def test_what_waits_for_a_delay_a_pause_or_the_robots_txt_of_its_host_is_kept_back() -> None:
    polite = make(delay_s=10.0)
    polite.add([task(f"http://a/{number}", number) for number in range(3)], NOW)
    assert polite.kept_back(keys_of(1, 2), NOW) == frozenset(), "it might begin, and no fetcher takes it"
    job = begin(polite)
    assert polite.kept_back(keys_of(1, 2, 7), NOW + 60) == keys_of(1, 2), "a request is under way"
    over(polite, job, NOW + 60)
    assert polite.kept_back(keys_of(1, 2), NOW + 69) == keys_of(1, 2)
    assert polite.kept_back(keys_of(1, 2), NOW + 70) == frozenset()
    polite.book.clock("a").hold(NOW + 70, 600.0, HELD)
    assert polite.kept_back(keys_of(1, 2), NOW + 600) == keys_of(1, 2)

    busy = make(parallel=1)
    busy.add([task(f"http://a/{number}", number) for number in range(2)], NOW)
    begin(busy)
    assert busy.kept_back(keys_of(1), NOW) == frozenset(), "without a delay only this node's fetchers are too few"

    asks = make(robots=True)
    asks.add([task("http://a/1", 1)], NOW)
    assert asks.kept_back(keys_of(1), NOW) == frozenset()
    begin(asks)
    assert asks.kept_back(keys_of(1), NOW) == keys_of(1)
