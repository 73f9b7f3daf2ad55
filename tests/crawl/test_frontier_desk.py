"""Tasks on the desk: they start when they are assigned, and go when they are lent."""

from __future__ import annotations

import pytest

from dhtcrawl.crawl import frontier as module
from dhtcrawl.crawl.back_queue import BackQueue

from . import by_hand
from .by_hand import NOW, ByHand, stored, urls


def desk(**options: object) -> ByHand:
    return by_hand.make(waits=lambda key: True, parallel=100, **options)  # type: ignore[arg-type]


def test_nothing_starts_before_it_is_assigned() -> None:
    frontier = desk()
    first, second = stored(2)
    assert not frontier.wants_assigning
    frontier.add([first, second], NOW)
    assert frontier.wants_assigning
    assert (urls(frontier), frontier.empty, len(frontier)) == ([], False, 2)
    frontier.assign("a", {second.key}, NOW)
    assert frontier.load("a") == 1
    assert urls(frontier) == [second.url]
    assert frontier.unassigned(10, 10) == [first]


def test_what_is_lent_is_forgotten_and_comes_back_as_if_it_were_new() -> None:
    frontier = desk()
    (task,) = stored(1)
    frontier.add([task], NOW)
    frontier.lend("a", {task.key}, NOW)
    assert (frontier.unassigned(10, 10), frontier.empty) == ([], True)
    frontier.add([task], NOW)
    assert frontier.unassigned(10, 10) == [task]


def test_hosts_take_turns_at_the_desk() -> None:
    frontier = desk()
    for host in "abc":
        frontier.add(stored(5, host), NOW)
    assert [task.url[7] for task in frontier.unassigned(2, 4)] == ["a", "a", "b", "b"]
    assert [task.url[7] for task in frontier.unassigned(2, 4)] == ["c", "c", "a", "a"], "the next in turn goes on"


def test_what_was_assigned_stays_assigned_when_another_way_to_it_is_found() -> None:
    frontier = desk()
    (task,) = stored(1)
    frontier.add([task._replace(depth=3)], NOW)
    frontier.assign("a", {task.key}, NOW)
    frontier.add([task._replace(depth=4)], NOW)
    assert urls(frontier) == [task.url]
    frontier.add([task._replace(depth=3)], NOW)
    frontier.add([task], NOW)
    assert frontier.unassigned(10, 10) == [task], "on a shorter way, it is there once, as that"


def test_a_host_that_is_not_in_memory_is_no_matter() -> None:
    frontier = desk()
    frontier.assign("nowhere", {b"x"}, NOW)
    frontier.lend("nowhere", {b"x"}, NOW)
    assert (frontier.load("nowhere"), frontier.unassigned(5, 5)) == (0, [])


@pytest.mark.parametrize("assigned", [0, 3, 10])
def test_a_head_that_has_grown_too_long_is_cut_by_order_wherever_its_tasks_are(
    assigned: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FRONT_MIN", 2)
    queue = BackQueue("a")
    tasks = stored(10)
    for task in reversed(tasks):
        queue.insert(task, waits=True)
    queue.assign({task.key for task in tasks[:assigned]})
    queue.spill(6)
    assert sorted((*queue.front, *queue.desk)) == tasks[:6]
    assert queue.known == {task.key for task in tasks[:6]}
    assert not queue.complete
    queue.insert(tasks[8], waits=True)
    assert tasks[8].key not in queue.known, "it is on disk, behind the head"


def test_what_is_not_ours_leaves_the_desk_too() -> None:
    frontier = desk()
    first, second = stored(2)
    frontier.add([first, second], NOW)
    frontier.disown(lambda key: key == first.key, NOW)
    assert frontier.unassigned(10, 10) == [first]
    frontier.forget("a", first.key, NOW)
    assert frontier.empty
