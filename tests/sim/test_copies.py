"""`--copies` in simulated swarms: what a node takes along is not fetched again, as long as a copy of it is left."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from dhtcrawl.sim.scenario import Scenario, ScenarioResult
from dhtcrawl.sim.swarm_run import simulate_swarm
from dhtcrawl.storage.archive import body_copies
from dhtcrawl.storage.store import tasks
from dhtcrawl.swarm.bodies import copying
from dhtcrawl.swarm.bodies.copier import Copier
from dhtcrawl.swarm.bodies.copying import BodyCopies
from sim import breakages

CALM = Scenario(
    nodes=5, hosts=5, pages=60, delay_s=0, concurrency=4, open_pages=4, crash_every_s=1.5, holder_grace_s=20, copies=2
)
IN_FLIGHT = CALM.open_pages  # of one node: what its end makes the swarm fetch once more


def simulate(seed: int, **changes: Any) -> ScenarioResult:
    """A run in which no promise was broken; so nothing is lost, and no body is missing."""
    result = simulate_swarm(dataclasses.replace(CALM, **changes), seed)
    assert result.violations == [], result.tail
    assert (result.lost, result.pages > 0) == (0, True)
    return result


# What goes is not fetched again


# In which one node's disk is lost late enough to have many pages.
LATE: dict[str, Any] = {"disk_losses": 1, "crash_every_s": 8}


def test_a_lost_disk_costs_what_was_in_flight() -> None:
    result = simulate(3, **LATE)
    assert result.crashes == 1
    assert result.refetches <= IN_FLIGHT
    assert simulate(3, **LATE, copies=1).refetches > 2 * IN_FLIGHT, "it had more than that"


def test_two_that_go_at_nearly_the_same_time_cost_with_two_copies_what_only_they_had_and_with_three_nothing() -> None:
    with_one, with_two, with_three = (simulate(2, copies=copies, disk_losses=2) for copies in (1, 2, 3))
    assert with_one.refetches > with_two.refetches + IN_FLIGHT
    assert with_three.refetches <= 2 * IN_FLIGHT


def test_nodes_that_are_gone_for_good_cost_what_was_in_flight() -> None:
    result = simulate(2, copies=3, crashes=2, away_s=-1, crash_every_s=3)
    assert result.crashes == 2
    assert result.refetches <= 2 * IN_FLIGHT


def test_when_copies_are_made_again_in_between_two_are_enough() -> None:
    result = simulate(3, disk_losses=2, crash_every_s=12, holder_grace_s=2, delay_s=1.0)
    assert result.crashes == 2
    assert result.refetches <= 2 * IN_FLIGHT


def test_the_host_key_places_copies_too() -> None:
    assert simulate(1, key="host", disk_losses=1).refetches <= IN_FLIGHT


# Nothing else goes wrong


@pytest.mark.parametrize(
    "faults",
    [
        {"joins": 3, "crash_every_s": 0.5},
        {"leaves": 2},
        {"crashes": 1, "crash_at_once": 5},
        {"copies": 9, "crashes": 1},
        {"leaves": 1, "disk_losses": 1, "joins": 1, "crash_every_s": 3},
    ],
    ids=str,
)
def test_copies_break_no_promise_whatever_happens(faults: dict[str, Any]) -> None:
    simulate(1, **faults)


def test_depths_are_right_where_copies_stand_in() -> None:
    assert simulate(2, depth=2, disk_losses=1, joins=1).crashes == 1


# Seeds that found something

LEAVING: dict[str, Any] = {"leaves": 1, "disk_losses": 2, "pages": 40, "crash_every_s": 2}


def test_the_links_of_a_page_that_stands_in_at_an_heir_go_out_again() -> None:
    """Its file has the name of the node that left, so the heir took the page for another's and never ended it."""
    simulate(1, **LEAVING)


def test_a_node_that_left_is_not_waited_for() -> None:
    """It was neither a member nor given up, for its heir was there: so its copies were sought for ever."""
    simulate(2, **LEAVING)


def test_when_the_heir_is_gone_the_node_that_left_may_yet_come_back() -> None:
    """The heir had been gone for the whole grace, and the one that left its copies to it a second less."""
    simulate(11, **LEAVING)


# The gate


def test_no_page_is_done_before_it_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: dict[bytes, None] = {}
    done: dict[bytes, bool] = {}
    put_copy, settle = body_copies.put_copy, tasks.settle

    def put(*args: Any, key: bytes = b"", **kwargs: Any) -> None:
        copied[key or args[2]] = None
        put_copy(*args, **(kwargs | ({"key": key} if key else {})))

    def end(txn: Any, crawl: bytes, key: bytes, **kwargs: Any) -> Any:
        done[key] = key in copied
        return settle(txn, crawl, key, **kwargs)

    monkeypatch.setattr(body_copies, "put_copy", put)
    monkeypatch.setattr(tasks, "settle", end)
    simulate(1)
    assert done
    assert all(done.values())


def test_a_crawl_with_one_copy_has_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("not for one copy")

    monkeypatch.setattr(Copier, "copy", never)
    monkeypatch.setattr(copying, "seek", never)
    monkeypatch.setattr(body_copies, "put_holders", never)
    simulate(1, copies=1, disk_losses=1, leaves=1)


# How many pages have too few copies

SHORT: dict[str, Any] = {"nodes": 2, "copies": 4, "joins": 3, "crash_every_s": 0.7}


@pytest.mark.parametrize("seed", [2, 3, 4])
def test_nodes_that_come_leave_the_count_of_pages_with_too_few_copies_right(seed: int) -> None:
    """Rounds add to it while copies are made anew: what they had counted in between was lost."""
    simulate(seed, **SHORT)


# Each of these breaks it, and must be told


def test_a_count_that_is_put_in_place_of_what_rounds_counted_meanwhile_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    breakages.puts_a_stale_count(monkeypatch)
    found = simulate_swarm(dataclasses.replace(CALM, **SHORT), 2).violations
    assert any("pages with too few copies" in problem for problem in found)


def test_copies_that_are_not_looked_for_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nobody(self: BodyCopies, gone: str, pages: list[bytes]) -> tuple[list[bytes], int]:
        return pages, 0

    monkeypatch.setattr(BodyCopies, "rehome", nobody)
    result = simulate_swarm(dataclasses.replace(CALM, **LATE), 3)
    assert result.refetches > IN_FLIGHT


def test_copies_that_are_said_to_be_and_are_not_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    def lie(self: Copier, pages: Any, then: Any, **_: Any) -> None:
        for page in pages:
            then(page, (bytes(20),))

    monkeypatch.setattr(Copier, "copy", lie)
    result = simulate_swarm(dataclasses.replace(CALM, **LATE), 3)
    assert result.refetches > IN_FLIGHT
