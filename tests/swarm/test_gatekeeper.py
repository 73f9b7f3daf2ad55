"""Who is granted a host, and when: one at a time, in turn, and never before the host has rested."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from harness.memory import entries
from hypothesis import given, settings
from hypothesis import strategies as st

from dhtcrawl.fetch.host_access import RobotsFetch, RobotsKnown, RobotsWait
from dhtcrawl.fetch.robots import RobotsVerdict
from dhtcrawl.swarm.hosts.agenda import Agenda
from dhtcrawl.swarm.hosts.gatekeeper import DELAY_KEPT_S, HELD_MAX_S, OFFER_S, REASK_MAX_S, TAKEOVERS_MAX, Gatekeeper
from dhtcrawl.swarm.hosts.host_line import OFFERS_MISSED_MAX, QUEUE_MAX
from dhtcrawl.swarm.hosts.lease_holder import LeaseHolder
from dhtcrawl.swarm.hosts.leases import Granted, HostState, LeaseAsk, LeaseTerms, RestLimits, Wait
from dhtcrawl.swarm.hosts.robots_table import CLAIM_S, REASK_S, RobotsTable

from .lease_world import Story, Troubles

A, B, C = b"A" * 20, b"B" * 20, b"C" * 20
H = "h.example"


def keeper(hosts_max: int = 1000) -> Gatekeeper:
    return Gatekeeper(LeaseTerms(ttl_s=10.0, requests=3), random.Random(1), hosts_max=hosts_max)


def granted(answer: Granted | Wait) -> Granted:
    assert isinstance(answer, Granted), answer
    return answer


def wants(delay_s: float = 1.0, hold_s: float = 0.0, lease_id: bytes = b"") -> LeaseAsk:
    return LeaseAsk(H, delay_s, hold_s, lease_id)


# -- one at a time, in turn --


def test_a_host_that_nobody_has_is_granted_at_once() -> None:
    lease = granted(keeper().ask(wants(), A, 0.0))
    assert (lease.ttl_s, lease.requests, lease.not_before_s, lease.delay_s) == (10.0, 3, 0.0, 1.0)


def test_while_one_has_a_host_the_others_wait_and_are_told_in_the_order_in_which_they_asked() -> None:
    book = keeper()
    lease = granted(book.ask(wants(), A, 0.0))
    assert isinstance(book.ask(wants(), B, 1.0), Wait)
    assert isinstance(book.ask(wants(), C, 2.0), Wait)
    assert isinstance(book.ask(wants(), B, 2.5), Wait)
    assert book.offers(3.0) == []
    book.give_back(H, A, lease.lease_id, 0.25, 0.0, 4.0)
    assert book.next_due_at() <= 4.0
    assert book.offers(4.0) == [(B, H)]
    assert isinstance(book.ask(wants(), C, 4.0), Wait)
    assert granted(book.ask(wants(), B, 4.0)).not_before_s == 0.75
    assert book.offers(4.0) == []


def test_the_next_grant_waits_for_the_delay_from_the_last_byte() -> None:
    book = keeper()
    lease = granted(book.ask(wants(2.0), A, 0.0))
    book.give_back(H, A, lease.lease_id, 0.5, 0.0, 5.0)
    assert granted(book.ask(wants(2.0), B, 5.0)).not_before_s == 1.5


def test_a_lease_without_a_request_costs_the_host_no_rest() -> None:
    book = keeper()
    lease = granted(book.ask(wants(), A, 0.0))
    book.give_back(H, A, lease.lease_id, None, 0.0, 5.0)
    assert granted(book.ask(wants(), B, 5.0)).not_before_s == 0.0


def test_a_host_that_asked_to_be_left_alone_is_granted_to_nobody_before() -> None:
    book = keeper()
    lease = granted(book.ask(wants(), A, 0.0))
    book.give_back(H, A, lease.lease_id, 0.0, 60.0, 5.0)
    assert book.ask(wants(), B, 5.0) == Wait(REASK_MAX_S)
    assert book.next_due_at() == 65.0 - 2.5
    assert book.offers(62.5) == [(B, H)]
    assert granted(book.ask(wants(), B, 62.5)).not_before_s == 2.5


def test_an_asker_that_knows_of_a_longer_wait_is_believed() -> None:
    book = keeper()
    assert isinstance(book.ask(wants(hold_s=30.0), A, 0.0), Wait)
    assert isinstance(book.ask(wants(), B, 1.0), Wait)


def test_a_lease_not_given_back_ends_after_its_time_and_a_delay() -> None:
    book = keeper()
    granted(book.ask(wants(), A, 0.0))
    assert isinstance(book.ask(wants(), B, 9.0), Wait)
    assert book.next_due_at() == 10.0
    assert book.offers(10.0) == [(B, H)]
    assert granted(book.ask(wants(), B, 10.0)).not_before_s == 1.0


# -- what nodes may say --

DAY_S = 86_400.0
RESTS = RestLimits(delay_s=60.0, hold_s=3600.0)


def limited(rests: RestLimits = RESTS) -> Gatekeeper:
    return Gatekeeper(LeaseTerms(ttl_s=10.0, requests=3), random.Random(1), rests=rests)


def test_no_host_rests_for_a_day_because_a_node_says_so() -> None:
    asked, returned, adopted = limited(), limited(), limited()
    asked.ask(wants(DAY_S, DAY_S), A, 0.0)
    returned.give_back(H, A, b"no lease", 0.0, DAY_S, 0.0)
    adopted.adopt([HostState(H, b"", b"", 0.0, DAY_S, DAY_S)], 0.0)
    for book in (asked, returned, adopted):
        state = book.explain(H, 0.0)
        assert state is not None
        assert state["next_in_s"] == 3600.0
        assert state["delay_s"] <= 60.0
        assert book.shortened >= 1
        assert isinstance(book.ask(wants(), B, 0.0), Wait)
        book.withdraw(H, A)
        assert granted(book.ask(wants(), B, 3600.0)).not_before_s == 0.0


def test_a_longer_delay_counts_as_long_as_a_crawl_wants_it() -> None:
    crawls = [300.0]
    book = limited(replace(RESTS, delay_of_crawls=lambda: crawls[0]))
    lease = granted(book.ask(wants(DAY_S), A, 0.0))
    assert lease.delay_s == 300.0
    book.give_back(H, A, lease.lease_id, 0.0, 0.0, 1.0)
    assert book.shortened == 1
    assert book.ask(wants(), B, 100.0) == Wait(REASK_MAX_S)
    crawls[0] = 0.0
    assert granted(book.ask(wants(), B, 100.0)).delay_s == 60.0


SAID_S = st.floats(0, 2 * DAY_S)


@given(
    st.lists(st.tuples(st.sampled_from(["ask", "give back", "adopt"]), SAID_S, SAID_S, st.floats(0, 100)), max_size=20),
    st.sampled_from([0.0, 200.0, 7200.0]),
)
def test_a_free_host_is_never_further_away_than_the_longest_rest(
    said: list[tuple[str, float, float, float]], of_crawls: float
) -> None:
    book, now = limited(replace(RESTS, delay_of_crawls=lambda: of_crawls)), 0.0
    for what, delay_s, hold_s, pause_s in said:
        now += pause_s
        if what == "ask":
            book.ask(wants(delay_s, hold_s), A, now)
        elif what == "give back":
            book.give_back(H, A, b"no lease", delay_s, hold_s, now)
        else:
            book.adopt([HostState(H, b"", b"", 0.0, delay_s, hold_s)], now)
        state = book.explain(H, now)
        assert state is not None
        assert state["next_in_s"] <= max(3600.0, of_crawls) + 0.001
        assert state["delay_s"] <= max(60.0, of_crawls)


# -- delays --


def test_the_longest_delay_that_anybody_wants_is_kept_until_it_is_long_unused() -> None:
    book = keeper()
    lease = granted(book.ask(wants(5.0), A, 0.0))
    book.give_back(H, A, lease.lease_id, 0.0, 0.0, 1.0)
    lease = granted(book.ask(wants(1.0), B, 4.0))
    assert (lease.not_before_s, lease.delay_s) == (2.0, 5.0)
    book.give_back(H, B, lease.lease_id, 0.0, 0.0, 6.0)
    assert granted(book.ask(wants(1.0), B, 7.0 + DELAY_KEPT_S)).delay_s == 1.0


def test_delays_are_longer_while_part_of_the_swarm_is_out_of_sight() -> None:
    book = keeper()
    lease = granted(book.ask(wants(), A, 0.0))
    book.delay_factor = 2.0
    book.give_back(H, A, lease.lease_id, 0.0, 0.0, 1.0)
    lease = granted(book.ask(wants(), B, 1.0))
    assert (lease.not_before_s, lease.delay_s) == (2.0, 2.0)


# -- whoever does not answer --


def test_a_node_that_does_not_take_its_offer_lets_the_next_one_have_it() -> None:
    book = keeper()
    lease = granted(book.ask(wants(), A, 0.0))
    book.ask(wants(), B, 1.0)
    book.ask(wants(), C, 1.0)
    book.give_back(H, A, lease.lease_id, 0.0, 0.0, 2.0)
    assert book.offers(2.0) == [(B, H)]
    assert book.offers(2.5) == []
    assert book.next_due_at() == 2.0 + OFFER_S
    assert book.offers(3.0) == [(C, H)]
    assert isinstance(book.ask(wants(), C, 3.0), Granted)
    assert isinstance(book.ask(wants(), B, 3.0), Wait)


def test_nodes_whose_asks_come_after_their_offers_have_passed_get_a_host_that_is_free() -> None:
    """Of three nodes 1.1 s away each was late for its turn, and none ever had the host."""
    book, away_s = keeper(), OFFER_S + 0.1
    lease = granted(book.ask(wants(), A, 0.0))
    book.ask(wants(), B, 1.0)
    book.ask(wants(), C, 1.0)
    book.give_back(H, A, lease.lease_id, 0.0, 0.0, 2.0)
    assert book.offers(2.0) == [(B, H)]
    assert book.offers(3.0) == [(C, H)]
    lease = granted(book.ask(wants(), B, 2.0 + away_s))
    assert isinstance(book.ask(wants(), C, 3.0 + away_s), Wait)
    book.give_back(H, B, lease.lease_id, 0.0, 0.0, 5.0)
    offered = [book.offers(5.0 + second) for second in range(OFFERS_MISSED_MAX + 1)]
    assert offered == [[(C, H)]] * OFFERS_MISSED_MAX + [[]]  # it had its place, and had missed no offer


def test_a_node_that_takes_no_offers_loses_its_place() -> None:
    book = keeper()
    lease = granted(book.ask(wants(), A, 0.0))
    book.ask(wants(), B, 1.0)
    book.give_back(H, A, lease.lease_id, 0.0, 0.0, 2.0)
    offered = [book.offers(2.0 + second) for second in range(10)]
    assert offered == [[(B, H)]] * OFFERS_MISSED_MAX + [[]] * (10 - OFFERS_MISSED_MAX)
    assert book.next_due_at() == math.inf


def test_an_offer_that_could_not_be_told_goes_to_the_next_at_once() -> None:
    book = keeper()
    lease = granted(book.ask(wants(), A, 0.0))
    book.ask(wants(), B, 1.0)
    book.ask(wants(), C, 1.0)
    book.give_back(H, A, lease.lease_id, 0.0, 0.0, 2.0)
    assert book.offers(2.0) == [(B, H)]
    book.missed(H, C)
    assert book.offers(2.0) == []
    book.missed(H, B)
    assert book.offers(2.0) == [(C, H)]
    book.withdraw(H, C)
    assert book.offers(2.0) == [(B, H)]


def test_a_member_that_is_gone_has_no_place_in_line_but_keeps_its_lease_until_it_runs_out() -> None:
    book = keeper()
    granted(book.ask(wants(), A, 0.0))
    book.ask(wants(), B, 1.0)
    book.ask(wants(), C, 1.0)
    book.member_gone(A)
    book.member_gone(B)
    assert book.offers(9.9) == []
    assert book.offers(10.0) == [(C, H)]


def test_an_offer_does_not_stand_when_the_host_is_found_to_need_a_longer_rest() -> None:
    book = keeper()
    lease = granted(book.ask(wants(), A, 0.0))
    book.ask(wants(), B, 1.0)
    book.give_back(H, A, lease.lease_id, 0.0, 0.0, 2.0)
    assert book.offers(2.0) == [(B, H)]
    assert isinstance(book.ask(wants(hold_s=20.0), B, 2.1), Wait)
    assert book.offers(5.0) == []
    assert book.next_due_at() == pytest.approx(22.1 - 2.5)


# -- renewals --


def test_a_holder_goes_on_while_nobody_waits() -> None:
    book = keeper()
    lease = granted(book.ask(wants(), A, 0.0))
    again = granted(book.ask(wants(lease_id=lease.lease_id), A, 6.0))
    assert (again.lease_id, again.requests) == (lease.lease_id, 3)
    assert isinstance(book.ask(wants(), B, 15.9), Wait)
    assert book.offers(15.9) == []
    assert book.offers(16.0) == [(B, H)]


def test_a_holder_may_only_finish_while_others_wait_and_not_for_ever() -> None:
    book = keeper()
    lease = granted(book.ask(wants(), A, 0.0))
    book.ask(wants(), B, 1.0)
    now = 1.0
    while now < HELD_MAX_S:
        now += 5.0
        again = book.ask(wants(lease_id=lease.lease_id), A, now)
        assert isinstance(again, Wait) == (now > HELD_MAX_S)
        assert isinstance(again, Wait) or again.requests == 0
    assert book.offers(now + 5.0) == [(B, H)]


@pytest.mark.parametrize(("node", "other"), [(B, False), (A, True)])
def test_nobody_renews_a_lease_that_is_not_his(node: bytes, other: bool) -> None:
    book = keeper()
    lease = granted(book.ask(wants(), A, 0.0))
    lease_id = bytes(8) if other else lease.lease_id
    assert isinstance(book.ask(wants(lease_id=lease_id), node, 1.0), Wait)
    assert book.next_due_at() == math.inf, "a renewal is no place in line"


def test_what_a_late_holder_learned_counts_though_its_lease_does_not() -> None:
    book = keeper()
    late = granted(book.ask(wants(), A, 0.0))
    current = granted(book.ask(wants(), B, 20.0))
    book.give_back(H, A, late.lease_id, 0.5, 0.0, 21.0)
    assert book.exceptions == 1
    assert isinstance(book.ask(wants(), C, 21.0), Wait)
    book.give_back(H, B, current.lease_id, None, 0.0, 21.0)
    assert book.offers(21.0) == [(C, H)]
    assert granted(book.ask(wants(), C, 21.0)).not_before_s == 0.5


def test_a_holder_that_asks_anew_waits_until_its_lease_is_over() -> None:
    book = keeper()
    granted(book.ask(wants(), A, 0.0))
    assert isinstance(book.ask(wants(), A, 1.0), Wait)
    assert book.offers(10.0) == [(A, H)]


# -- changes of gatekeeper --


def test_what_came_without_its_state_rests_for_a_whole_lease_and_a_delay() -> None:
    book = keeper()
    granted(book.ask(replace(wants(), host="ours"), A, 0.0))
    book.took_over(100.0, lambda host: host == "ours")
    assert isinstance(book.ask(wants(5.0), A, 101.0), Wait)
    assert book.next_due_at() == 115.0 - 2.5
    assert granted(book.ask(replace(wants(), host="ours"), B, 101.0)).not_before_s == 0.0


def test_a_takeover_counts_for_a_host_that_is_first_asked_for_after_it() -> None:
    book = keeper()
    book.took_over(100.0, lambda _: False)
    assert granted(book.ask(wants(5.0), A, 113.0)).not_before_s == 2.0


def test_a_takeover_counts_for_what_was_known_from_before_unless_it_stayed_ours() -> None:
    book = keeper()
    lease = granted(book.ask(wants(), A, 0.0))
    book.give_back(H, A, lease.lease_id, 0.0, 0.0, 1.0)
    book.took_over(100.0, lambda _: False)
    assert isinstance(book.ask(wants(), A, 101.0), Wait)


def test_many_takeovers_are_remembered_as_few_and_none_is_forgotten() -> None:
    book = keeper()
    book.took_over(100.0, lambda _: False)
    for _ in range(TAKEOVERS_MAX):
        book.took_over(100.0, lambda _: True)
    held = entries(book)
    for _ in range(2 * TAKEOVERS_MAX):
        book.took_over(100.0, lambda _: True)
    assert entries(book) == held
    assert isinstance(book.ask(wants(), A, 100.0), Wait)


def test_the_next_gatekeeper_goes_on_where_the_last_one_stopped() -> None:
    old, new = keeper(), keeper()
    lease = granted(old.ask(wants(), A, 0.0))
    old.ask(wants(), B, 1.0)
    resting = granted(old.ask(replace(wants(4.0), host="resting"), C, 1.0))
    old.give_back("resting", C, resting.lease_id, 0.0, 0.0, 2.0)
    owes_nothing = granted(old.ask(replace(wants(), host="free"), C, 1.0))
    old.give_back("free", C, owes_nothing.lease_id, None, 0.0, 2.0)
    old.ask(replace(wants(), host="stays"), C, 1.0)

    rows = old.export(lambda host: host != "stays", 3.0, rows_max=1)
    rows += old.export(lambda host: host != "stays", 3.0, rows_max=1)
    assert old.export(lambda host: host != "stays", 3.0) == []
    assert len(old) == 1
    assert old.next_due_at() == math.inf

    new.adopt(rows, 103.5)
    assert isinstance(new.ask(wants(), B, 104.0), Wait)
    assert granted(new.ask(wants(lease_id=lease.lease_id), A, 105.0)).lease_id == lease.lease_id
    new.give_back(H, A, lease.lease_id, 0.0, 0.0, 106.0)
    assert new.offers(106.0) == [(B, H)]
    assert granted(new.ask(replace(wants(), host="resting"), C, 104.5)).not_before_s == 2.0


def test_two_leases_of_one_host_are_both_waited_for() -> None:
    one, two, book = keeper(), keeper(), keeper()
    granted(one.ask(wants(), A, 0.0))
    granted(two.ask(wants(), B, 5.0))
    book.adopt(one.export(lambda _: True, 6.0), 6.0)
    book.adopt(two.export(lambda _: True, 6.0), 6.0)
    book.ask(wants(), C, 7.0)
    assert book.offers(10.0) == []
    assert book.next_due_at() == 15.0 + 1.0 - 2.5


# -- bounds --


def test_hosts_that_owe_nothing_are_forgotten_when_there_are_too_many_and_others_are_not() -> None:
    book = keeper(hosts_max=10)
    for number in range(10):
        lease = granted(book.ask(LeaseAsk(f"h{number}", 1.0), A, 0.0))
        if number % 2:
            book.give_back(f"h{number}", A, lease.lease_id, 0.0, 0.0, 1.0)
    assert book.ask(LeaseAsk("new", 1.0), A, 1.5) == Wait(REASK_MAX_S)
    assert isinstance(book.ask(LeaseAsk("new", 1.0), A, 2.0), Granted)
    assert len(book) <= 10
    assert isinstance(book.ask(LeaseAsk("h0", 1.0), B, 3.0), Wait)


def test_the_line_for_a_host_is_bounded() -> None:
    book = keeper()
    granted(book.ask(wants(), A, 0.0))
    for number in range(QUEUE_MAX + 5):
        book.ask(wants(), number.to_bytes(20, "big"), 1.0)
    described = book.explain(H, 1.0)
    assert described is not None
    assert len(described["waiting"]) == QUEUE_MAX
    assert described["holder"] == A.hex()


def test_an_agenda_stays_as_small_as_its_names_however_often_they_move() -> None:
    agenda = Agenda()
    for number in range(10_000):
        agenda.put(f"{number % 3}", float(number))
    assert entries(agenda) <= 4 * (3 + 16) + 1 + 3
    assert [agenda.pop_due(1e9) for _ in range(4)] == ["1", "2", "0", None]


def test_names_that_are_never_due_again_take_no_room_on_an_agenda() -> None:
    agenda = Agenda()
    for number in range(1_000):
        agenda.put(f"{number}", 1.0)
        agenda.put(f"{number}", math.inf)
    assert entries(agenda) <= 4 * (1 + 16) + 1
    assert (agenda.due_at("7"), agenda.next_due_at(), agenda.pop_due(1e9)) == (math.inf, math.inf, None)


# -- robots.txt --


def test_one_fetches_a_robots_txt_and_the_others_wait_for_it() -> None:
    desk = RobotsTable(ttl_s=100.0)
    assert desk.ask("http://h", "bot", A, 0.0) == RobotsFetch()
    assert desk.ask("http://h", "bot", B, 0.0) == RobotsWait(REASK_S)
    assert desk.ask("http://h", "bot", B, CLAIM_S - REASK_S / 2) == RobotsWait(REASK_S / 2)
    assert desk.ask("http://h", "other", B, 0.0) == RobotsFetch()
    desk.tell("http://h", "bot", A, RobotsVerdict.PARSE, b"rules", 5.0)
    assert desk.ask("http://h", "bot", B, 8.0) == RobotsKnown(RobotsVerdict.PARSE, b"rules", 3.0)
    desk.keep_claims({C})
    assert desk.ask("http://h", "bot", B, 8.0) == RobotsKnown(RobotsVerdict.PARSE, b"rules", 3.0), "it is no claim"
    assert desk.ask("http://h", "bot", B, 105.0) == RobotsFetch()


@pytest.mark.parametrize("how", ["failed", "silent", "gone", "asks again"])
def test_a_robots_txt_that_one_could_not_fetch_is_fetched_by_the_next(how: str) -> None:
    desk, now, asker = RobotsTable(ttl_s=100.0), 1.0, B
    desk.ask("http://h", "bot", A, 0.0)
    match how:
        case "failed":
            desk.tell("http://h", "bot", B, None, b"", 1.0)
            assert isinstance(desk.ask("http://h", "bot", B, 1.0), RobotsWait), "it was not his to fetch"
            desk.tell("http://h", "bot", A, None, b"", 1.0)
        case "silent":
            now = CLAIM_S
        case "gone":
            desk.keep_claims({B, C})
        case _:
            asker = A
    assert desk.ask("http://h", "bot", asker, now) == RobotsFetch()


@pytest.mark.parametrize("verdict", list(RobotsVerdict))
def test_what_a_node_says_of_a_robots_txt_counts_only_if_it_was_to_fetch_it(verdict: RobotsVerdict) -> None:
    desk = RobotsTable(ttl_s=100.0)
    desk.tell("http://h", "bot", C, verdict, b"forged", 0.0)
    assert desk.ask("http://h", "bot", A, 0.0) == RobotsFetch(), "nothing is known before"
    desk.tell("http://h", "bot", C, verdict, b"forged", 1.0)
    assert isinstance(desk.ask("http://h", "bot", B, 1.0), RobotsWait), "nor during the fetch"
    desk.tell("http://h", "bot", A, RobotsVerdict.PARSE, b"rules", 2.0)
    desk.tell("http://h", "bot", C, verdict, b"forged", 3.0)
    desk.tell("http://h", "bot", A, verdict, b"another", 3.0)
    assert desk.ask("http://h", "bot", B, 3.0) == RobotsKnown(RobotsVerdict.PARSE, b"rules", 1.0), "nor after it"


def test_the_desk_forgets_what_was_asked_for_longest_ago() -> None:
    desk = RobotsTable(ttl_s=100.0, entries_max=10, bytes_max=25)
    for number in range(4):
        desk.ask(f"http://h{number}", "bot", A, 0.0)
        desk.tell(f"http://h{number}", "bot", A, RobotsVerdict.PARSE, bytes(10), 0.0)
    assert len(desk) == 2
    assert desk.explain("http://h3", 0.0) == {"bot": "parse"}
    desk.ask("http://h2", "bot", B, 0.0)
    for number in range(9):
        desk.ask(f"http://c{number}", "bot", A, 0.0)
    assert desk.ask("http://h2", "bot", B, 0.0) == RobotsKnown(RobotsVerdict.PARSE, bytes(10), 0.0), "it was asked for"
    assert desk.explain("http://h3", 0.0) == {}
    for number in range(20):
        desk.ask(f"http://c{number}", "bot", A, 0.0)
    assert len(desk) == 10
    desk.tell("http://c19", "bot", A, RobotsVerdict.PARSE, bytes(26), 0.0)
    assert len(desk) == 1, "the newest stays, however long it is"


# -- the whole: clocks that drift, stops, crashes, losses, takeovers --

EVERYTHING = Troubles(
    latency_s=(0.0005, 0.05),
    slow_message=0.05,
    loss=0.02,
    drift=0.01,
    slow_answer=0.03,
    pauses=0.05,
    crashes=0.03,
    takeovers=0.03,
    quiet=0.05,
)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    delay_s=st.sampled_from([0.1, 0.5, 0.5, 3.0, 6.0]),
    requests=st.sampled_from([3, 64]),
    members=st.integers(1, 5),
)
def test_no_request_begins_before_the_host_has_rested_whatever_happens(
    seed: int, delay_s: float, requests: int, members: int
) -> None:
    story = Story(seed, EVERYTHING, members, delay_s, terms=LeaseTerms(ttl_s=4.0, requests=requests))
    story.run()
    assert story.too_soon() == []
    assert story.violations == 0


@pytest.mark.parametrize("drift", [0.0, 0.01])
def test_a_host_is_kept_as_busy_as_its_delay_allows(drift: float) -> None:
    story = Story(1, Troubles(drift=drift), members=5, delay_s=0.2, seconds=200.0, terms=LeaseTerms())
    served = story.run()
    assert story.too_soon() == []
    assert len(served) >= 0.9 * story.seconds / (0.2 + 0.02)
    shares = [sum(request.node == node for request in served) for node in range(5)]
    assert min(shares) > 0.5 * len(served) / 5


def test_a_host_is_kept_busy_when_nodes_have_work_only_now_and_then() -> None:
    story = Story(2, Troubles(quiet=0.3), members=5, delay_s=0.2, seconds=200.0, terms=LeaseTerms())
    served = story.run()
    # Somebody has work nearly all of the time: 0.3 * 4 s of pause for each request of one of five.
    assert len(served) >= 0.6 * story.seconds / (0.2 + 0.02)


class CountsFromReceipt(LeaseHolder):
    """Wrong: a lease's time counts from when the answer came."""

    def granted(self, ask: LeaseAsk, granted: Granted, asked_at: float, now: float) -> None:
        super().granted(ask, granted, now, now)


class ForgetsTheRest(Gatekeeper):
    """Wrong: after a lease that ran out the host is granted without a delay."""

    def ask(self, ask: LeaseAsk, node: bytes, now: float) -> Granted | Wait:
        host = self._hosts.get(ask.host)
        if host is not None and host.lease is not None and host.lease.ends_at <= now:
            host.lease = None
        return super().ask(ask, node, now)

    def offers(self, now: float) -> list[tuple[bytes, str]]:
        for host in self._hosts.values():
            if host.lease is not None and host.lease.ends_at <= now:
                host.lease = None
        return super().offers(now)


class TakesOverAtOnce(Gatekeeper):
    """Wrong: hosts without state are granted at once."""

    def took_over(self, now: float, exempt: Callable[[str], bool]) -> None:
        pass


class ForgetsHolders(Gatekeeper):
    """Wrong: a hand-over loses who has a host."""

    def export(self, wanted: Callable[[str], bool], now: float, rows_max: int = 256):  # type: ignore[no-untyped-def]
        return [replace(row, node=b"") for row in super().export(wanted, now, rows_max)]


@pytest.mark.parametrize(
    ("book", "gatekeeper"),
    [
        (CountsFromReceipt, Gatekeeper),
        (LeaseHolder, ForgetsTheRest),
        (LeaseHolder, TakesOverAtOnce),
        (LeaseHolder, ForgetsHolders),
    ],
)
def test_the_judge_sees_what_goes_wrong(book: type[LeaseHolder], gatekeeper: type[Gatekeeper]) -> None:
    stories = (Story(seed, EVERYTHING, book=book, keeper=gatekeeper) for seed in range(60))
    assert any(story.run() and story.too_soon() for story in stories)
