"""The frontier's memory: a front on each stored queue, refilled, spilled, and bounded."""

from __future__ import annotations

from harness.memory import entries

from dhtcrawl.crawl.frontier import FRONT_MIN
from dhtcrawl.fetch.politeness import HoldReason, HostBook

from .by_hand import NOW, begin, make, over, stored, url_of, urls
from .stored import task

HELD = HoldReason("retry-after", "429")


def test_a_long_stored_queue_is_worked_off_front_by_front() -> None:
    frontier = make(tasks_max=2 * FRONT_MIN)
    queue = stored(100)
    frontier.activate("a")
    started: list[str] = []
    while queue:
        ((name, limit),) = frontier.refills()
        assert name == "a"
        frontier.refilled("a", queue[:limit], len(queue) <= limit, NOW)
        some = urls(frontier)
        assert some, "a refill brings something to do"
        started += some
        del queue[: len(some)]
    assert started == [f"http://a/{n}" for n in range(100)]
    assert frontier.empty


def test_a_front_asks_for_more_when_it_runs_low_not_when_it_is_empty() -> None:
    frontier = make(tasks_max=4 * FRONT_MIN)
    frontier.add(stored(10 * FRONT_MIN), NOW)
    assert len(frontier) <= 4 * FRONT_MIN
    assert not frontier.wants_refill
    while not frontier.wants_refill:
        over(frontier, begin(frontier))
    assert len(frontier) == FRONT_MIN


def test_a_refill_is_asked_for_once_until_it_comes() -> None:
    frontier = make(tasks_max=2 * FRONT_MIN)
    frontier.activate("a")
    assert [name for name, _ in frontier.refills()] == ["a"]
    frontier.add([task("http://a/new", 1)], NOW)
    assert frontier.refills() == []
    frontier.refilled("a", [task("http://a/new", 1)], True, NOW)
    assert urls(frontier) == ["http://a/new"]


def test_a_task_in_flight_is_not_started_again_by_a_refill_that_still_has_it() -> None:
    frontier = make(parallel=9)
    frontier.activate("a")
    ((_, alone),) = frontier.refills()
    frontier.refilled("a", stored(2), False, NOW)
    jobs = [begin(frontier), begin(frontier)]
    ((_, limit),) = frontier.refills()
    assert limit == alone + 2, "it reads past those in flight"
    frontier.refilled("a", stored(3), True, NOW)
    assert url_of(frontier.next(NOW)) == "http://a/2"
    for job in jobs:
        over(frontier, job)
    assert frontier.next(NOW) is None


def test_a_find_never_overtakes_what_still_lies_on_disk() -> None:
    frontier = make()
    frontier.activate("a")
    frontier.refills()
    frontier.refilled("a", [task("http://a/0", 1, 0)], False, NOW)
    frontier.add([task("http://a/deep", 9, 7), task("http://a/near", 8, 0)], NOW)
    assert urls(frontier) == ["http://a/0"]
    frontier.refills()
    queue = [task("http://a/near", 8, 0), task("http://a/mid", 2, 3), task("http://a/deep", 9, 7)]
    frontier.refilled("a", queue, True, NOW)
    assert urls(frontier) == ["http://a/near", "http://a/mid", "http://a/deep"]


def test_fronts_shrink_when_hosts_become_many() -> None:
    tasks_max = 16 * FRONT_MIN
    frontier = make(delay_s=1.0, tasks_max=tasks_max)
    for index in range(8):
        name = f"h{index}"
        frontier.add(stored(tasks_max, name), NOW)
    for index in range(8):
        frontier.host_free(f"h{index}", NOW)  # a host is looked at whenever its clock moves
    assert len(frontier) <= tasks_max


def test_a_host_that_does_not_fit_is_found_by_the_next_walk() -> None:
    frontier = make(hosts_max=1)
    frontier.add([task("http://a/1", 1), task("http://b/1", 2)], NOW)
    assert not frontier.wants_hosts, "there is no room"
    assert not frontier.activate("b")
    assert urls(frontier) == ["http://a/1"]
    assert frontier.wants_hosts
    assert not frontier.empty
    frontier.walk_begins()
    assert frontier.activate("b")
    frontier.walk_ended()
    assert [name for name, _ in frontier.refills()] == ["b"]
    frontier.refilled("b", [task("http://b/1", 2)], True, NOW)
    assert urls(frontier) == ["http://b/1"]
    assert frontier.empty


def test_a_host_that_did_not_fit_during_a_walk_makes_another_walk() -> None:
    frontier = make(hosts_max=1)
    frontier.walk_begins()
    frontier.add([task("http://a/1", 1), task("http://b/1", 2)], NOW)
    frontier.walk_ended()
    urls(frontier)
    assert frontier.wants_hosts


def test_finding_links_to_a_host_on_hold_takes_no_memory_for_its_place_in_time() -> None:
    book = HostBook(started_at=0.0, fresh=True)
    frontier = make(book=book, tasks_max=2 * FRONT_MIN)
    book.clock("a").hold(NOW, 3600.0, HELD)
    held = []
    for order in range(1000):
        frontier.add([task(f"http://a/{order}", order)], NOW)
        held.append(entries(frontier))
    assert held[-1] <= held[2 * FRONT_MIN]


def test_what_was_read_before_the_queues_were_distrusted_is_read_again() -> None:
    """The shell had asked for a host's queue; then tasks were queued there of which nobody told the frontier."""
    frontier = make()
    frontier.distrust(0.0)
    frontier.walk_begins()
    assert frontier.activate("a")
    assert [name for name, _ in frontier.refills()] == ["a"]
    frontier.distrust(NOW)
    frontier.refilled("a", [], True, NOW)  # the answer from before
    assert [name for name, _ in frontier.refills()] == ["a"]
    frontier.refilled("a", [task("http://a/late")], True, NOW)
    frontier.walk_ended()
    assert urls(frontier) == ["http://a/late"]


def test_queues_that_are_distrusted_are_read_again_and_then_no_more() -> None:
    frontier = make()
    frontier.add(stored(1), NOW)
    assert not frontier.wants_refill
    frontier.distrust(NOW)
    assert [name for name, _ in frontier.refills()] == ["a"]
    frontier.distrust(NOW)  # while it is read
    frontier.refilled("a", stored(2), True, NOW)
    assert [name for name, _ in frontier.refills()] == ["a"], "what was read may lack something"
    frontier.refilled("a", stored(3), True, NOW)
    assert not frontier.wants_refill
    assert urls(frontier) == [f"http://a/{n}" for n in range(3)]
    assert [host.name for host in frontier.hosts()] == []


def test_a_host_that_is_in_memory_stays_as_it_is_when_a_walk_names_it_and_one_that_has_no_room_is_refused() -> None:
    frontier = make(hosts_max=1)
    frontier.add(stored(2), NOW)
    job = begin(frontier)
    assert frontier.activate("a")
    assert not frontier.activate("b")
    assert [host.name for host in frontier.hosts()] == ["a"]
    over(frontier, job)
    assert urls(frontier) == ["http://a/1"]


def test_outcomes_of_a_host_that_is_not_in_memory_are_no_matter() -> None:
    frontier = make()
    frontier.all_written([("b", b"http://b/0")], NOW)
    frontier.written("b", b"http://b/0", NOW)
    frontier.forget("b", b"http://b/0", NOW)
    frontier.host_free("b", NOW)
    assert frontier.empty


def test_a_task_that_is_put_back_brings_its_host_back() -> None:
    frontier = make()
    frontier.put_back("a", task("http://a/1"), NOW)
    assert urls(frontier) == ["http://a/1"]


def test_a_host_leaves_memory_when_its_last_task_came_to_nothing_and_had_left_its_queue() -> None:
    frontier = make()
    frontier.add(stored(1), NOW)
    job = begin(frontier)
    assert job.task is not None
    frontier.forget("a", job.task.key, NOW)
    frontier.finish(job, NOW)
    frontier.put_back("a", job.task, NOW)
    assert frontier.empty


def test_a_host_all_of_whose_tasks_are_lent_leaves_memory() -> None:
    frontier = make(waits=lambda key: True)
    frontier.add(stored(2), NOW)
    assert not frontier.empty
    frontier.lend("a", {task.key for task in stored(2)}, NOW)
    assert frontier.empty
