"""Nothing of a crawl is started before its node knows what it owns, nor while it is paused or the node leaves (I12)."""

from __future__ import annotations

import pytest
from storage.stores import CRAWL, SPEC

from dhtcrawl.rpc.membership.view import Member, MemberState, View
from dhtcrawl.storage.store.crawl_record import PAUSED, RUNNING, STOPPING, CrawlRecord
from dhtcrawl.swarm.lifecycle.run_state import RunState
from swarm.fake_peers import node, view_of

VIEW = view_of([0, 1])
KEY = node(0)  # which this node owns


def run_of(state: str = RUNNING) -> RunState:
    return RunState(CrawlRecord(CRAWL, SPEC, b"", state=state), node(0), VIEW)


def test_a_node_starts_nothing_before_it_has_synced_about_what_it_owns() -> None:
    run = run_of()
    assert (run.held, run.leaving, run.owning) == (True, True, False)
    assert (run.claim().owns(KEY), run.claim().mine(KEY)) == (True, False)
    run.settle(VIEW)
    assert (run.held, run.leaving, run.owning) == (False, False, True)
    assert run.claim().mine(KEY)
    run.settle(None)
    assert (run.held, run.leaving, run.owning) == (True, True, False)


@pytest.mark.parametrize("state", [PAUSED, STOPPING])
def test_a_crawl_that_is_paused_or_stopping_starts_nothing_though_the_node_stays(state: str) -> None:
    run = run_of(state)
    run.settle(VIEW)
    assert (run.held, run.leaving, run.owning) == (True, False, False)


def test_a_node_that_leaves_or_joins_once_more_starts_nothing_of_a_crawl_that_runs() -> None:
    run = run_of()
    run.settle(VIEW)
    run.held_back = True
    assert (run.held, run.leaving, run.owning) == (True, True, False)


def test_a_node_fetches_what_it_owned_by_the_view_that_it_has_synced_about_too() -> None:
    run = run_of()
    run.settle(view_of([0, 1, 8]))  # whose keys are this node's by the present view only
    theirs = node(8)
    assert (run.claim().owns(theirs), run.claim().mine(theirs)) == (True, False)
    assert run.claim().mine(KEY)


def test_a_view_in_which_the_same_nodes_own_counts_as_the_present_one() -> None:
    run = run_of()
    suspected = View([Member(node(0), ("h", 1)), Member(node(1), ("h", 2), MemberState.SUSPECTED)])
    run.settle(suspected)
    assert run.settled is VIEW
    other = view_of([0, 1, 2])
    run.settle(other)
    assert run.settled is other
