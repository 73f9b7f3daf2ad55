"""What a coordinator adds up of all nodes, and which reason it names why nothing moves."""

from __future__ import annotations

from dataclasses import replace

from storage.stores import SPEC

from dhtcrawl.standing import Cause, Obstacle
from dhtcrawl.storage.store.crawl_record import PAUSED, CrawlRecord
from dhtcrawl.swarm.calls.lifecycle import CrawlStanding
from dhtcrawl.swarm.calls.words import NODES_TOLD_MAX, obstacle_in, obstacle_row
from dhtcrawl.swarm.lifecycle.board import RunReport, standing_of
from dhtcrawl.swarm.lifecycle.roll import SILENT_S, Roll
from swarm.fake_peers import FakePeers, node, view_of

RECORD = CrawlRecord(SPEC.crawl_id(bytes(16)), SPEC, bytes(16))
A, B, C = node(0), node(1), node(2)


def report(obstacle: Obstacle | None = None, **counters: float) -> CrawlStanding:
    row = None if obstacle is None else obstacle_row(obstacle)
    return CrawlStanding(1, True, False, 0, bytes(16), bytes(8), 0, {}, counters, row)


def roll_of(*reports: CrawlStanding, now: float = 0.0) -> Roll:
    roll = Roll()
    for which, told in zip((A, B, C), reports, strict=False):
        roll.heard(which, told, now)
    return roll


def test_the_figures_are_the_sum_of_what_the_nodes_told_last() -> None:
    roll = roll_of(report(pages=1, fetches=9, seconds=4.0), report(pages=2, seconds=5.0))
    roll.heard(A, report(pages=3, fetches=10, seconds=6.0), 1.0)
    assert roll.totals([A, B]) == {"pages": 5, "fetches": 10, "seconds": 6.0}


def test_a_node_that_is_gone_keeps_its_row_and_its_pages_and_has_no_tasks_any_more() -> None:
    roll = roll_of(report(pages=3), report(pages=4, queued=5, in_flight=1))
    totals = roll.totals([A])
    assert (totals["pages"], totals.get("queued", 0), totals.get("in_flight", 0)) == (7, 0, 0)
    rows = roll.figures(RECORD, [A], 42.0, nodes_max=9).nodes
    assert {(row.node, row.member, row.heard_ms) for row in rows} == {(A, True, 42_000), (B, False, 42_000)}


def test_a_page_that_is_fetched_again_for_a_node_that_is_gone_is_not_counted_twice() -> None:
    roll = roll_of(report(pages=3, pages_reopened=0), report(pages=4))
    roll.heard(A, report(pages=3, pages_reopened=4), 1.0)
    assert roll.totals([A])["pages"] == 3, "its pages are known to be lost"
    roll.heard(A, report(pages=7, pages_reopened=4), 2.0)
    assert roll.totals([A])["pages"] == 7


def test_pages_of_nodes_that_were_never_heard_of_are_not_taken_off_when_they_are_fetched_again() -> None:
    roll = roll_of(report(pages=9, pages_reopened=7), report(pages=1))
    assert roll.totals([A])["pages"] == 9, "one of the seven may have been the page of B"
    alone = roll_of(report(pages=9, pages_reopened=7))
    assert alone.totals([A])["pages"] == 9


def test_a_coordinators_successor_knows_the_rows_of_those_that_are_gone() -> None:
    first = roll_of(report(pages=3), report(pages=4), report(pages=5))
    told = first.told(A, [A, C], 2.0)
    assert {row.node for row in told} == {A, B}
    successor = roll_of()
    successor.heard(C, report(pages=6), 3.0)
    successor.hear_of(told, 3.0)
    assert successor.totals([C])["pages"] == 13
    successor.heard(B, report(pages=8), 3.5)
    successor.hear_of(told, 4.0)
    assert successor.totals([B, C])["pages"] == 17, "what a node says itself counts more"


def test_of_more_nodes_that_are_gone_than_a_wave_has_room_for_those_heard_of_last_are_told() -> None:
    roll, nodes = Roll(), [bytes([number]) * 20 for number in range(NODES_TOLD_MAX + 3)]
    for second, each in enumerate(nodes):
        roll.heard(each, report(pages=1), float(second))
    told = roll.told(nodes[-1], [], float(len(nodes)))
    assert [row.node for row in told] == nodes[:2:-1]


def test_a_crawl_has_gone_on_since_it_began_whoever_has_counted_since_then() -> None:
    first = roll_of(report(seconds=50.0), report(seconds=5.0))
    assert first.elapsed_s(0.0) == 50.0
    first.heard(B, report(seconds=25.0), 20.0)  # A is gone
    assert first.elapsed_s(20.0) == 70.0
    successor = roll_of()
    successor.hear_of(first.told(B, [B, C], 20.0), 20.0)
    successor.heard(C, report(seconds=3.0), 21.0)
    assert successor.elapsed_s(21.0) == 70.0
    successor.begin_again()
    assert successor.elapsed_s(500.0) == 70.0, "meanwhile it did not go on"
    assert successor.elapsed_s(501.0) == 71.0


def test_what_keeps_a_crawl_back_is_named_once_nothing_moves_anywhere() -> None:
    asked = Obstacle(Cause.RETRY_AFTER, "h", "429", left_s=27.0)
    assert roll_of(report(asked, queued=3), report(queued=1)).obstacle(RECORD, [A, B], 0.0) is None
    named = roll_of(report(asked, queued=3), report()).obstacle(RECORD, [A, B], 0.0)
    assert named is not None
    assert (named.cause, named.about, named.left_s) == (Cause.RETRY_AFTER, "h", 27.0)


def test_a_wait_that_passes_is_not_named_before_it_has_lasted() -> None:
    roll, waits = Roll(), Obstacle(Cause.LEASE, "h")
    roll.heard(A, report(waits, queued=1), 0.0)
    assert roll.obstacle(RECORD, [A], 0.0) is None
    roll.heard(A, report(waits, queued=1), 2.5)
    named = roll.obstacle(RECORD, [A], 2.5)
    assert named is not None
    assert named.for_s == 2.5


def test_pages_that_lie_only_at_a_node_that_is_gone_are_added_up_over_their_owners() -> None:
    def gone(number: int, left_s: float) -> Obstacle:
        return Obstacle(Cause.HOLDER_GONE, C.hex(), number=number, left_s=left_s)

    named = roll_of(report(gone(5, 9.0)), report(gone(6, 8.0))).obstacle(RECORD, [A, B], 0.0)
    assert named is not None
    assert (named.number, named.left_s) == (11, 8.0)


def test_the_row_of_a_node_that_is_gone_says_how_many_pages_lie_only_there() -> None:
    lies = obstacle_row(Obstacle(Cause.HOLDER_GONE, B.hex(), number=3, left_s=9.0))
    roll = roll_of(report(pages=1), report(pages=3))
    roll.heard(A, CrawlStanding(1, True, False, 0, bytes(16), bytes(8), 0, {}, {"pages": 1}, None, (lies,)), 1.0)
    rows = {row.node: row.obstacle for row in roll.figures(RECORD, [A], 1.0, nodes_max=9).nodes}
    assert rows == {A: None, B: lies}


def test_a_member_that_does_not_answer_and_a_user_who_paused_are_named_first() -> None:
    roll = roll_of(report(), report(queued=1, in_flight=1))
    roll.heard(A, report(Obstacle(Cause.RETRY_AFTER, "h", "429", left_s=1.0)), SILENT_S)
    named = roll.obstacle(RECORD, [A, B], SILENT_S)
    assert named is not None
    assert (named.cause, named.about, named.for_s) == (Cause.SILENT, B.hex(), SILENT_S)
    paused = roll.obstacle(replace(RECORD, state=PAUSED), [A, B], SILENT_S)
    assert paused == Obstacle(Cause.PAUSED)


def test_an_obstacle_survives_the_wire_to_the_millisecond() -> None:
    told = Obstacle(Cause.FAILING, "h", "connect: " + "x" * 500, 3, None, 1.2344)
    back = obstacle_in(obstacle_row(told))
    assert back == told._replace(detail=told.detail[:200], left_s=1.234)


def test_what_is_0_is_not_sent_in_every_wave_but_for_what_must_not_be_taken_for_unknown() -> None:
    counted = {"pages": 0, "pages_ok": 0, "redirects": 0, "dead": 0, "seconds": 0.0, "bytes": 0, "queued": 3}
    report, out = RunReport(1, 0, {}, counted), {"pages_out": 0}
    told = standing_of(FakePeers(view_of([0])), None, report, idle=False, figures=out)
    assert told.counters == {"pages": 0, "pages_ok": 0, "seconds": 0.0, "bytes": 0, "queued": 3, "pages_out": 0}
