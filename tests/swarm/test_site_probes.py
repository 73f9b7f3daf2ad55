"""Which nodes time a site: few, well apart, and only where a site has pages enough to make up for it."""

from __future__ import annotations

from dhtcrawl.policy.gnp.planner import SIGHTS_MIN, TOP
from dhtcrawl.storage.store.tasks import Queued
from dhtcrawl.swarm.assignment.site_probes import (
    AGAIN,
    AGAIN_S,
    FIRST,
    PLACED_WITHIN_S,
    PROBES_MAX,
    READ_WITHIN_S,
    WORTH,
    PlaceWishes,
    Seen,
    SiteProbes,
    well_apart,
)
from swarm.fake_peers import node

ORIGIN, HOST = "http://a.test", "a.test"
NODES = [node(number) for number in range(9)]
# Three regions far from each other, three nodes in each.
POINTS = {NODES[number]: (100.0 * (number % 3), float(number)) for number in range(9)}


SEEN = Seen(NODES, POINTS, {}, (), lambda origin: NODES[4])


def no_delay(host: str) -> float:
    return 0.0


def task(number: int, depth: int = 1, host: str = HOST) -> Queued:
    return Queued(depth, number, bytes([number]) * 20, f"http://{host}/{number}", "", 0, False)


def order(probes: SiteProbes, now: float, seen: Seen = SEEN, delay_s: float = 0.0) -> list[bytes]:
    """Those that are asked to time the site."""
    due = probes.due(seen, lambda host: delay_s, now)
    assert all(origins == [ORIGIN] for origins in due.values())
    return list(due)


def at(*point: float) -> Seen:
    """The same with a place of the site."""
    return SEEN._replace(placed={HOST: point})


def wanted() -> SiteProbes:
    probes = SiteProbes()
    probes.want(NODES[0], ORIGIN, WORTH)
    return probes


def test_a_site_of_few_pages_is_not_timed() -> None:
    probes = SiteProbes()
    probes.want(NODES[0], ORIGIN, WORTH - 1)
    probes.want(NODES[0], ORIGIN, WORTH - 1)
    assert order(probes, 0.0) == [], "an owner's count is not added to its last"
    probes.want(NODES[1], ORIGIN, 1)
    assert len(order(probes, 0.0)) == FIRST


def test_who_has_read_robots_txt_times_it_first_and_the_others_lie_in_other_regions() -> None:
    asked = order(wanted(), 0.0)
    assert asked[0] == NODES[4]
    assert {NODES.index(node) % 3 for node in asked[:3]} == {0, 1, 2}
    assert len(set(asked)) == FIRST >= SIGHTS_MIN


def test_nobody_is_asked_before_robots_txt_is_read_but_for_so_long() -> None:
    probes, unread = wanted(), SEEN._replace(reader=lambda origin: None)
    assert order(probes, 0.0, unread) == order(probes, READ_WITHIN_S - 0.1, unread) == []
    assert len(order(probes, READ_WITHIN_S, unread)) == FIRST


def test_once_it_has_a_place_the_nearest_time_it_and_then_nobody() -> None:
    probes, near = wanted(), {NODES[1], NODES[4], NODES[7]}
    first = order(probes, 0.0)
    then = order(probes, 1.0, at(100.0, 4.0))
    assert set(then) <= near
    assert not set(then) & set(first)
    assert len(set(then) | set(first) & near) == TOP
    assert order(probes, 2.0, at(0.0, 0.0)) == order(probes, 1e6) == []
    probes.want(NODES[2], ORIGIN, WORTH)
    assert order(probes, 1e6) == [], "owners of an older plan still want it"


def test_where_each_time_costs_a_turn_the_nearest_times_it_only_if_none_near_has() -> None:
    probes = wanted()
    asked = order(probes, 0.0, delay_s=1.0)
    assert len(asked) == SIGHTS_MIN
    assert order(probes, 1.0, at(100.0, 4.0), delay_s=1.0) == [], "node 4 is near, and read its robots.txt"
    assert order(probes, 1e6, at(100.0, 4.0), delay_s=1.0) == []
    probes = wanted()
    asked = order(probes, 0.0, delay_s=1.0)
    points = {each: (100.0 if each in asked else float(number), 0.0) for number, each in enumerate(NODES)}
    nearest = next(each for each in NODES if each not in asked)
    assert order(probes, 1.0, at(0.0, 0.0)._replace(points=points), delay_s=1.0) == [nearest]
    assert order(probes, 2.0, at(0.0, 0.0)._replace(points=points), delay_s=1.0) == []


def test_nobody_is_asked_before_it_is_known_where_nodes_lie_but_for_so_long() -> None:
    probes, unplaced = wanted(), SEEN._replace(points={each: POINTS[each] for each in NODES[:4]})
    assert order(probes, 0.0, unplaced) == order(probes, READ_WITHIN_S - 0.1, unplaced) == []
    assert len(order(probes, READ_WITHIN_S, unplaced)) == FIRST


def test_one_that_gets_no_place_is_timed_by_some_more_up_to_a_bound() -> None:
    probes = wanted()
    asked = order(probes, 0.0)
    assert order(probes, AGAIN_S - 1) == []
    asked += order(probes, AGAIN_S)
    assert len(set(asked)) == FIRST + AGAIN
    for times in range(2, 100):
        asked += order(probes, times * AGAIN_S)
    assert len(asked) == len(set(asked)) == len(NODES) <= PROBES_MAX


def test_in_a_swarm_of_so_few_that_no_site_gets_a_place_none_is_timed_and_nothing_waits() -> None:
    few = NODES[: SIGHTS_MIN - 1]
    assert order(wanted(), 0.0, SEEN._replace(members=few)) == []
    assert PlaceWishes(True, no_delay).held([task(1), task(2)], len(few), lambda host: 0, 0.0) == frozenset()


def test_landmarks_time_every_site() -> None:
    seen = SEEN._replace(landmarks=[NODES[8], NODES[2], b"gone"])
    assert order(wanted(), 0.0, seen) == [NODES[8], NODES[2]]


def test_nodes_without_a_place_come_last() -> None:
    points = {NODES[0]: (0.0,), NODES[1]: (0.0,), NODES[2]: (5.0,)}
    assert well_apart(NODES[:4], points, [], 4) == [NODES[0], NODES[2], NODES[1], NODES[3]]
    assert well_apart(NODES[:3], points, [NODES[2]], 1) == [NODES[0]]
    assert well_apart(NODES[:2], {}, [], 5) == NODES[:2]


def test_an_owner_tells_of_each_task_once_and_of_hosts_without_a_place() -> None:
    wishes = PlaceWishes(True, no_delay)
    wishes.seen([task(1), task(2), task(3, host="b.test")])
    assert wishes.lacking
    assert wishes.take_due() == {ORIGIN: 2, "http://b.test": 1}
    wishes.seen([task(1), task(2)])
    assert wishes.take_due() == {}, "it is asked again and again for a node"
    wishes.adopt({"nodes": {NODES[0]: [0.0]}, "sites": {HOST: [1.0]}})
    wishes.lacking = False
    wishes.seen([task(4)])
    assert (wishes.lacking, wishes.take_due()) == (False, {})


def test_a_seed_stands_for_many_pages_where_links_are_followed() -> None:
    for follows_links, count in ((True, WORTH), (False, 1)):
        wishes = PlaceWishes(follows_links, no_delay)
        wishes.seen([task(1, depth=0)])
        assert wishes.take_due() == {ORIGIN: count}


def test_without_a_delay_one_task_of_a_host_at_a_time_goes_out_until_it_has_its_place() -> None:
    wishes, tasks = PlaceWishes(True, no_delay), [task(1), task(2), task(3, host="b.test"), task(4, host="b.test")]
    assert wishes.held(tasks, 9, lambda host: 0, 0.0) == {tasks[1].key, tasks[3].key}
    assert wishes.held(tasks, 9, lambda host: int(host == HOST), 1.0) == {tasks[0].key, tasks[1].key, tasks[3].key}
    wishes.adopt({"nodes": {NODES[0]: [0.0]}, "sites": {HOST: [1.0]}})
    assert wishes.held(tasks, 9, lambda host: 1, 2.0) == {tasks[2].key, tasks[3].key}
    assert wishes.held(tasks, 9, lambda host: 1, PLACED_WITHIN_S) == frozenset(), "it may never get one"


def test_with_a_delay_only_a_seed_goes_out() -> None:
    wishes, seeds = PlaceWishes(True, lambda host: 1.0), [task(1, depth=0), task(2, depth=0)]
    assert wishes.held([*seeds, task(3)], 9, lambda host: 0, 0.0) == {seeds[1].key, task(3).key}
    until = PLACED_WITHIN_S + SIGHTS_MIN * 1.0
    assert wishes.held([task(3)], 9, lambda host: 0, until - 0.1) == {task(3).key}, "its turns are needed to time it"
    assert wishes.held([task(3)], 9, lambda host: 0, until) == frozenset()
