"""A node's leases: a clock runs only under one, and what is to be said to gatekeepers is said in time."""

from __future__ import annotations

import itertools
import math

import pytest
from crawl.stored import task

from dhtcrawl.crawl.frontier import Frontier
from dhtcrawl.fetch.politeness import HoldReason
from dhtcrawl.standing import GATEKEEPER_NEW, GATEKEEPER_SILENT, Cause, Obstacle
from dhtcrawl.swarm.hosts.lease_holder import RETRY_S, RETURN_TRIES_MAX, LeaseHolder
from dhtcrawl.swarm.hosts.leased_clock import IDLE_S, LAST_START, LINGER_MAX_S, RENEW_LATEST, RENEW_LOW
from dhtcrawl.swarm.hosts.leases import CLOCK_MARGIN, GiveBack, Granted, LeaseAsk, Wait

HELD = HoldReason("retry-after", "429")

H = "h.example"
TTL_S = 10.0
USABLE_S = TTL_S * (1 - CLOCK_MARGIN)
LAST_START_S = USABLE_S - TTL_S * LAST_START


class Desk:
    """A book, its clock, and a hand to turn both."""

    def __init__(self, *, fresh: bool = True, clocks_max: int = 1000) -> None:
        self.now = 100.0
        self.woken = 0
        self.book = LeaseHolder(
            now=lambda: self.now, started_at=self.now, fresh=fresh, clocks_max=clocks_max, wake=self._wake
        )

    def _wake(self) -> None:
        self.woken += 1

    @property
    def clock(self):  # type: ignore[no-untyped-def]
        return self.book.clock(H)

    def lease(self, number: int = 1, *, requests: int = 64, not_before_s: float = 0.0, delay_s: float = 1.0) -> None:
        """Wish for the host, ask and be granted at once."""
        assert self.clock.ready_at(1.0) == math.inf
        (ask,) = self.book.wishes(self.now)
        self.book.granted(ask, grant(number, requests, not_before_s, delay_s), self.now, self.now)
        assert self.book.free(self.now) == [H]

    def request(self, seconds: float = 0.25) -> None:
        """A request as soon as one may begin."""
        self.now = max(self.now, self.clock.ready_at(1.0))
        self.clock.begin(self.now, 1.0)
        self.now += seconds
        self.clock.end(self.now)

    def next_thing(self) -> float:
        """Pass the time until the shell has something to do; a book may ask to be looked at too early."""
        while (due_at := self.book.next_due_at()) != -math.inf:
            assert due_at < math.inf, "nothing will ever be to do"
            self.now = max(self.now, due_at)
            self.book.advance(self.now)
        return self.now


def grant(number: int = 1, requests: int = 64, not_before_s: float = 0.0, delay_s: float = 1.0) -> Granted:
    return Granted(bytes([number] * 8), TTL_S, requests, not_before_s, delay_s)


@pytest.fixture
def desk() -> Desk:
    return Desk()


# -- wishes --


def test_without_a_delay_nobody_asks_anybody(desk: Desk) -> None:
    assert desk.clock.ready_at(0.0, parallel=2) == -math.inf
    desk.clock.begin(desk.now, 0.0)
    desk.clock.begin(desk.now, 0.0)
    assert desk.clock.ready_at(0.0, parallel=2) == math.inf
    desk.clock.end(desk.now)
    assert desk.clock.ready_at(0.0, parallel=2) == desk.now
    assert desk.book.wishes(desk.now) == []
    assert desk.book.next_due_at() == math.inf
    assert desk.book.violations == 0


def test_a_host_that_is_looked_at_is_asked_for_once(desk: Desk) -> None:
    assert [desk.clock.ready_at(delay_s) for delay_s in (1.0, 3.0, 2.0)] == [math.inf] * 3
    assert desk.woken == 1
    assert desk.book.wishes(desk.now) == [LeaseAsk(H, 3.0)]
    assert desk.clock.ready_at(1.0) == math.inf
    assert desk.book.wishes(desk.now) == []
    assert desk.book.next_due_at() == math.inf, "an answer is awaited"


def test_a_host_is_asked_for_again_when_the_wait_is_over_or_an_offer_comes(desk: Desk) -> None:
    desk.clock.ready_at(1.0)
    desk.book.wishes(desk.now)
    desk.book.waiting(H, desk.now + 2.0)
    assert desk.book.next_due_at() == desk.now + 2.0
    assert desk.book.wishes(desk.now + 1.0) == []
    assert len(desk.book.wishes(desk.now + 2.0)) == 1
    desk.book.waiting(H, desk.now + 4.0)
    assert desk.book.offered(H)
    assert len(desk.book.wishes(desk.now + 2.0)) == 1


def test_an_offer_that_overtakes_the_answer_to_the_last_question_is_not_lost(desk: Desk) -> None:
    desk.clock.ready_at(1.0)
    desk.book.wishes(desk.now)
    assert desk.book.offered(H)
    assert desk.book.wishes(desk.now) == []
    desk.book.waiting(H, desk.now + 30.0)
    assert len(desk.book.wishes(desk.now)) == 1


def test_an_offer_of_what_nobody_wants_is_declined(desk: Desk) -> None:
    assert not desk.book.offered(H)
    desk.lease()
    assert not desk.book.offered(H)


def test_who_knows_that_a_host_wants_to_be_left_alone_says_so(desk: Desk) -> None:
    desk.clock.hold(desk.now, 60.0, HELD)
    desk.clock.ready_at(1.0)
    assert desk.book.wishes(desk.now + 10.0) == [LeaseAsk(H, 1.0, 50.0)]


def test_after_a_restart_the_gatekeeper_hears_that_we_do_not_know_when_the_host_was_asked() -> None:
    desk = Desk(fresh=False)
    desk.clock.ready_at(1.0)
    assert desk.book.wishes(desk.now) == [LeaseAsk(H, 1.0, 1.0)]


def test_a_new_gatekeeper_is_asked_for_what_is_wished_and_leases_run_on(desk: Desk) -> None:
    desk.lease()
    desk.book.clock("other").ready_at(1.0)
    desk.book.clock("stays").ready_at(1.0)
    for ask in desk.book.wishes(desk.now):
        desk.book.waiting(ask.host, desk.now + 30.0)
    desk.book.forget_gatekeeper(lambda host: host != "stays")
    assert [ask.host for ask in desk.book.wishes(desk.now)] == ["other"]
    assert desk.clock.ready_at(1.0) < math.inf


def test_a_clock_says_that_its_gatekeeper_is_silent_until_it_answers(desk: Desk) -> None:
    def obstacle() -> tuple[str, str]:
        found = desk.clock.obstacle(H, desk.now, 1.0)
        assert found is not None
        return found.cause, found.detail

    desk.clock.ready_at(1.0)
    assert obstacle() == (Cause.LEASE, "")
    desk.book.wishes(desk.now)
    desk.book.waiting(H, desk.now, unanswered=True)
    assert obstacle() == (Cause.GATEKEEPER, GATEKEEPER_SILENT)
    desk.book.wishes(desk.now)
    desk.book.waiting(H, desk.now + 2.0)
    assert obstacle() == (Cause.LEASE, "")


def test_a_clock_says_how_long_a_new_gatekeeper_waits_for_the_last_lease_of_the_former_one(desk: Desk) -> None:
    desk.clock.ready_at(1.0)
    (ask,) = desk.book.wishes(desk.now)
    desk.book.forget_gatekeeper(lambda host: True, desk.now + TTL_S)
    waits = Obstacle(Cause.GATEKEEPER, H, GATEKEEPER_NEW, left_s=TTL_S + 1.0)
    assert desk.clock.obstacle(H, desk.now, 1.0) == waits
    desk.now += 8.0
    desk.book.granted(ask, grant(not_before_s=3.0), desk.now, desk.now)
    assert desk.clock.obstacle(H, desk.now, 1.0) == waits._replace(left_s=3.0), "it is leased, from then on"
    desk.now += 3.0
    assert desk.clock.obstacle(H, desk.now, 1.0) is None


# -- leases --


def test_a_lease_counts_from_the_asking_less_a_margin(desk: Desk) -> None:
    desk.clock.ready_at(1.0)
    (ask,) = desk.book.wishes(desk.now)
    desk.book.granted(ask, grant(), desk.now, desk.now + 1.5)
    assert desk.book.deadline(H) == desk.now + USABLE_S


def test_under_a_lease_the_clock_keeps_its_start_and_the_longer_delay(desk: Desk) -> None:
    desk.lease(not_before_s=0.5, delay_s=2.0)
    assert desk.clock.ready_at(1.0) == desk.now + 0.5
    desk.request()
    assert desk.clock.ready_at(1.0) == desk.now + 2.0


def test_no_request_begins_near_the_end_of_a_lease(desk: Desk) -> None:
    desk.lease()
    desk.now += USABLE_S - 0.5
    assert desk.clock.ready_at(1.0) == math.inf
    assert [back.lease_id for back in desk.book.returns(desk.now)] == [bytes([1] * 8)]
    assert len(desk.book.wishes(desk.now)) == 1


def test_a_lease_ends_with_its_requests_and_says_when_the_last_byte_came(desk: Desk) -> None:
    desk.lease(requests=2)
    desk.request()
    assert desk.book.returns(desk.now) == []
    desk.request()
    ended_at = desk.now
    (back,) = desk.book.returns(desk.now)
    assert (back.since_end_s(ended_at + 0.25), back.hold_s(desk.now)) == (0.25, 0.0)
    assert desk.clock.ready_at(1.0) == math.inf


def test_a_hold_that_is_told_after_the_last_response_goes_with_the_lease(desk: Desk) -> None:
    desk.lease(requests=1)
    desk.request()
    desk.clock.hold(desk.now, 60.0, HELD)
    (back,) = desk.book.returns(desk.now)
    assert back.hold_s(desk.now + 20.0) == 40.0


def test_a_host_that_wants_to_be_left_alone_for_longer_than_the_lease_goes_back(desk: Desk) -> None:
    desk.lease()
    desk.request()
    desk.clock.hold(desk.now, 60.0, HELD)
    assert desk.clock.ready_at(1.0) == math.inf
    assert len(desk.book.returns(desk.now)) == 1
    assert desk.book.wishes(desk.now) == [LeaseAsk(H, 1.0, 60.0)]


def test_a_request_that_was_never_sent_does_not_count(desk: Desk) -> None:
    desk.lease(requests=1)
    desk.clock.begin(desk.now, 1.0)
    desk.clock.cancel()
    assert desk.clock.ready_at(1.0) <= desk.now
    desk.request()
    assert len(desk.book.returns(desk.now)) == 1


def test_a_host_that_no_crawl_wants_any_more_goes_back_while_it_rests(desk: Desk) -> None:
    desk.lease()
    desk.request()
    ended_at = desk.now
    desk.book.quiet(H)
    assert desk.next_thing() == ended_at + min(0.5, LINGER_MAX_S)
    assert desk.book.free(desk.now) == [H]
    desk.book.offered_around(H)
    assert [back.ended_at for back in desk.book.returns(desk.now)] == [ended_at]


def test_a_host_that_another_crawl_wants_stays(desk: Desk) -> None:
    desk.lease()
    desk.request()
    desk.book.quiet(H)
    desk.next_thing()
    assert desk.book.free(desk.now) == [H]
    ready_at = desk.clock.ready_at(1.0)
    desk.book.offered_around(H)
    assert desk.book.returns(desk.now) == []
    assert ready_at < math.inf


def test_a_host_that_was_granted_and_that_nobody_wants_goes_back_at_once(desk: Desk) -> None:
    desk.lease()
    desk.book.offered_around(H)
    (back,) = desk.book.returns(desk.now)
    assert back.since_end_s(desk.now) is None


def test_a_node_that_waits_for_another_leaves_the_host_to_it_and_holds_nobody_up(desk: Desk) -> None:
    desk.lease()
    desk.clock.begin(desk.now, 1.0)
    desk.clock.cancel()
    desk.book.step_back(H, desk.now, desk.now + 3.0, HoldReason(Cause.LINE, "dns: none"))
    assert desk.clock.obstacle(H, desk.now, 1.0) == Obstacle(Cause.LINE, H, "dns: none", left_s=3.0)
    (back,) = desk.book.returns(desk.now)
    assert (back.since_end_s(desk.now), back.hold_s(desk.now)) == (None, 0.0)
    assert desk.clock.ready_at(1.0) == desk.clock.ready_at(0.0) == desk.now + 3.0
    assert desk.book.wishes(desk.now) == []
    desk.now += 3.0
    assert desk.clock.ready_at(1.0) == math.inf
    assert desk.book.wishes(desk.now) == [LeaseAsk(H, 1.0)]


def test_a_host_that_somebody_comes_back_for_is_kept_so_long(desk: Desk) -> None:
    desk.book.expect(H, desk.now + 3.0)
    desk.lease()
    desk.book.offered_around(H)
    assert desk.book.returns(desk.now + 2.9) == []
    assert len(desk.book.returns(desk.now + 3.0)) == 1


@pytest.mark.parametrize("requests", [0, 1])
def test_a_crawl_without_work_there_is_not_asked_again_before_who_is_expected_has_come(
    desk: Desk, requests: int
) -> None:
    desk.lease()
    for _ in range(requests):
        desk.request()
    until = desk.now + 3.0
    desk.book.expect(H, until)
    desk.book.quiet(H)
    desk.book.offered_around(H)
    assert desk.next_thing() == until
    assert len(desk.book.returns(desk.now)) == 1


def test_a_host_on_which_nothing_begins_goes_back_after_a_while(desk: Desk) -> None:
    desk.lease(not_before_s=0.5)
    assert desk.clock.ready_at(1.0) == desk.now + 0.5
    desk.book.offered_around(H)
    assert desk.next_thing() == 100.5 + IDLE_S
    assert len(desk.book.returns(desk.now)) == 1


def test_a_lease_that_a_crawl_wants_is_renewed_while_the_host_rests(desk: Desk) -> None:
    desk.lease()
    while desk.now < 100.0 + TTL_S * (1 - RENEW_LATEST) - 2.0:
        desk.request()
    ended_at = desk.now
    assert desk.clock.ready_at(1.0) == ended_at + 1.0
    desk.now = 100.0 + USABLE_S - TTL_S * RENEW_LATEST
    assert desk.book.renewals(desk.now - 0.01) == []
    (ask,) = desk.book.renewals(desk.now)
    asked_at = desk.now
    desk.now += 0.25
    assert desk.book.renewals(desk.now) == [], "the answer is awaited"
    desk.book.granted(ask, grant(), asked_at, desk.now)
    assert desk.book.deadline(H) == asked_at + USABLE_S
    assert desk.book.free(desk.now) == [H], "another crawl may have its turn"
    assert desk.clock.ready_at(1.0) == ended_at + 1.0
    assert desk.book.returns(desk.now) == []


def test_a_lease_that_no_crawl_wants_is_not_renewed_while_the_host_rests(desk: Desk) -> None:
    desk.book.expect(H, 200.0)
    desk.lease()
    desk.book.offered_around(H)
    assert desk.next_thing() == 100.0 + USABLE_S
    assert desk.book.renewals(desk.now) == []
    assert len(desk.book.returns(desk.now)) == 1


def test_a_renewal_does_not_cut_short_how_long_a_host_is_kept_for_links_to_come(desk: Desk) -> None:
    desk.lease()
    desk.request()
    desk.now = 100.0 + USABLE_S - TTL_S * RENEW_LATEST
    assert desk.clock.ready_at(1.0) <= desk.now
    desk.clock.begin(desk.now, 1.0)
    (ask,) = desk.book.renewals(desk.now)
    desk.book.granted(ask, grant(), desk.now, desk.now)
    desk.clock.end(desk.now)
    ended_at = desk.now
    desk.book.quiet(H)
    assert desk.book.free(desk.now) == []
    assert desk.next_thing() == ended_at + LINGER_MAX_S
    assert desk.book.free(desk.now) == [H]
    desk.book.offered_around(H)
    assert len(desk.book.returns(desk.now)) == 1


def late(desk: Desk) -> tuple[LeaseAsk, float]:
    """A crawl looks at the clock when its next request would begin too late for the lease: the renewal, and when."""
    desk.lease()
    desk.now = 100.0 + LAST_START_S - 1.0 - 0.25
    desk.request(0.5)
    assert desk.clock.ready_at(1.0) == math.inf
    (ask,) = desk.book.renewals(desk.now)
    assert desk.book.returns(desk.now) == []
    assert desk.book.wishes(desk.now) == []
    assert desk.clock.ready_at(1.0) == math.inf
    assert desk.book.renewals(desk.now) == [], "it is asked for once"
    return ask, desk.now


def test_a_request_that_would_begin_too_late_waits_for_the_renewal_and_the_host_rests_no_longer(desk: Desk) -> None:
    ask, ended_at = late(desk)
    desk.now += 0.25
    desk.book.granted(ask, grant(), ended_at, desk.now)
    assert desk.book.free(desk.now) == [H]
    assert desk.clock.ready_at(1.0) == ended_at + 1.0
    desk.request()
    assert desk.book.violations == 0


@pytest.mark.parametrize("answer", ["others wait", "no lease", "none"])
def test_a_lease_that_is_not_renewed_goes_back_and_the_host_is_wished_for(desk: Desk, answer: str) -> None:
    ask, ended_at = late(desk)
    desk.now += 0.25
    if answer == "others wait":
        desk.book.granted(ask, grant(requests=0), ended_at, desk.now)
    else:
        desk.book.not_renewed(ask, desk.now, refused=answer == "no lease")
    assert [back.ended_at for back in desk.book.returns(desk.now)] == [ended_at]
    assert desk.book.wishes(desk.now) == [LeaseAsk(H, 1.0, ended_at + 1.0 - desk.now)]
    desk.book.not_renewed(ask, desk.now, refused=True)
    assert desk.clock.ready_at(1.0) == math.inf


def test_while_others_wait_a_lease_ends_when_it_would_have_and_is_not_asked_for_again(desk: Desk) -> None:
    desk.lease()
    desk.request()
    desk.now = 100.0 + USABLE_S - TTL_S * RENEW_LATEST
    desk.clock.begin(desk.now, 1.0)
    (ask,) = desk.book.renewals(desk.now)
    desk.book.granted(ask, grant(requests=0), desk.now, desk.now)
    desk.clock.end(desk.now)
    desk.request()
    assert desk.now < 100.0 + LAST_START_S
    assert desk.clock.ready_at(1.0) == math.inf
    assert len(desk.book.returns(desk.now)) == 1
    assert desk.book.renewals(desk.now) == []
    assert len(desk.book.wishes(desk.now)) == 1


def test_a_renewal_without_an_answer_is_asked_for_again_while_there_is_time(desk: Desk) -> None:
    desk.lease()
    desk.request()
    desk.clock.hold(desk.now, 8.0, HELD)
    assert desk.clock.ready_at(1.0) < math.inf
    desk.now = 100.0 + USABLE_S - TTL_S * RENEW_LATEST
    (ask,) = desk.book.renewals(desk.now)
    desk.book.not_renewed(ask, desk.now, refused=False)
    assert desk.book.renewals(desk.now) == []
    assert len(desk.book.renewals(desk.now + RETRY_S)) == 1


def test_a_lease_whose_requests_are_nearly_used_up_is_renewed(desk: Desk) -> None:
    desk.lease(requests=20, delay_s=0.0)
    for _ in range(20 - int(20 * RENEW_LOW)):
        assert desk.book.renewals(desk.now) == []
        assert desk.clock.ready_at(0.01) <= desk.now
        desk.clock.begin(desk.now, 0.01)
        desk.now += 0.01
        desk.clock.end(desk.now)
        desk.now += 0.01
    (ask,) = desk.book.renewals(desk.now)
    desk.book.granted(ask, grant(requests=20, delay_s=0.0), desk.now, desk.now)
    for _ in range(10):
        desk.clock.begin(desk.now, 0.01)
        desk.clock.end(desk.now)
        desk.now += 0.02
    assert desk.book.returns(desk.now) == []
    assert desk.book.violations == 0


def test_a_crawl_that_waits_for_a_renewal_is_not_forgotten_when_the_node_is_taken_for_dead(desk: Desk) -> None:
    _, ended_at = late(desk)
    desk.book.void()
    assert desk.book.wishes(desk.now) == [LeaseAsk(H, 1.0, ended_at + 1.0 - desk.now)]


def test_a_clock_says_that_the_lease_is_waited_for_where_that_is_longer_than_the_delay(desk: Desk) -> None:
    _, ended_at = late(desk)
    assert desk.clock.obstacle(H, ended_at + 0.5, 1.0) == Obstacle(Cause.DELAY, H, left_s=0.5)
    assert desk.clock.obstacle(H, ended_at + 1.0, 1.0) == Obstacle(Cause.LEASE, H)


def test_an_ask_that_could_not_be_sent_at_once_says_what_is_true_when_it_is(desk: Desk) -> None:
    desk.lease(requests=1)
    desk.request()
    ended_at = desk.now
    assert desk.clock.ready_at(1.0) == math.inf
    (ask,) = desk.book.wishes(desk.now)
    assert desk.book.as_of(ask, ended_at + 0.25) == LeaseAsk(H, 1.0, 0.75)
    renewal = LeaseAsk(H, 1.0, 0.0, bytes([1] * 8))
    assert desk.book.as_of(renewal, ended_at + 0.25) == renewal


def test_an_answer_that_took_too_long_is_given_back_and_asked_for_again(desk: Desk) -> None:
    desk.clock.ready_at(1.0)
    (ask,) = desk.book.wishes(desk.now)
    asked_at, desk.now = desk.now, desk.now + USABLE_S
    desk.book.granted(ask, grant(), asked_at, desk.now)
    assert len(desk.book.returns(desk.now)) == 1
    asked_for_a_little_later(desk)


def test_a_lease_under_which_no_request_may_begin_is_not_asked_for_again_at_once(desk: Desk) -> None:
    """A bad gatekeeper may grant nothing else."""
    desk.lease()
    desk.clock.hold(desk.now, TTL_S, HELD)
    assert desk.clock.ready_at(1.0) == math.inf
    assert len(desk.book.returns(desk.now)) == 1
    asked_for_a_little_later(desk)


def asked_for_a_little_later(desk: Desk) -> None:
    assert desk.book.wishes(desk.now) == []
    before = desk.now
    assert desk.next_thing() == pytest.approx(before + RETRY_S)
    assert len(desk.book.wishes(desk.now)) == 1


def test_a_lease_that_could_not_be_given_back_is_tried_a_few_times(desk: Desk) -> None:
    desk.lease(requests=1)
    desk.request()
    for _ in range(RETURN_TRIES_MAX):
        (back,) = desk.book.returns(desk.now)
        desk.book.return_later(back, desk.now)
        assert desk.book.returns(desk.now) == []
        desk.now += RETRY_S
    assert desk.book.returns(desk.now) == []
    assert desk.book.next_due_at() == math.inf


def test_leases_are_given_back_when_the_node_leaves_but_not_under_a_request(desk: Desk) -> None:
    desk.lease()
    desk.clock.begin(desk.now, 1.0)
    desk.book.release()
    assert desk.book.returns(desk.now) == []
    desk.clock.end(desk.now)
    desk.book.release()
    assert len(desk.book.returns(desk.now)) == 1


# -- renewals, and the end --


def test_a_request_that_takes_long_is_renewed_in_time_and_again_if_that_fails(desk: Desk) -> None:
    desk.lease()
    desk.clock.begin(desk.now, 1.0)
    assert desk.next_thing() == 100.0 + TTL_S / 2
    (ask,) = desk.book.renewals(desk.now)
    assert ask.lease_id == bytes([1] * 8)
    assert desk.next_thing() < 100.0 + TTL_S * 0.6
    (ask,) = desk.book.renewals(desk.now)
    asked_at = desk.now
    desk.book.granted(ask, grant(requests=0), asked_at, asked_at + 1.0)
    assert desk.book.deadline(H) == asked_at + USABLE_S
    desk.now = 100.0 + LAST_START_S
    assert desk.book.returns(desk.now) == []
    desk.clock.end(desk.now)
    assert len(desk.book.returns(desk.now)) == 1, "it was prolonged to finish only"


def test_a_request_that_has_only_begun_is_renewed_near_the_end_alone(desk: Desk) -> None:
    desk.lease()
    desk.now += 6.0
    desk.clock.begin(desk.now, 1.0)
    assert desk.next_thing() == 106.0 + TTL_S / 8
    desk = Desk()
    desk.lease()
    desk.now += 8.5
    desk.clock.begin(desk.now, 1.0)
    assert len(desk.book.renewals(desk.now)) == 1


def test_a_request_whose_lease_could_not_be_renewed_has_to_be_aborted_and_the_lease_goes_back(desk: Desk) -> None:
    desk.lease()
    desk.clock.begin(desk.now, 1.0)
    assert desk.book.overdue(desk.now + USABLE_S - 0.01) == []
    desk.now += USABLE_S
    assert desk.book.overdue(desk.now) == [H]
    assert desk.book.overdue(desk.now) == []
    desk.book.renewals(desk.now)
    assert desk.book.next_due_at() == math.inf
    desk.clock.end(desk.now)
    (back,) = desk.book.returns(desk.now)
    assert back.ended_at == desk.now
    assert desk.book.violations == 0


def test_a_renewal_that_comes_after_the_give_back_makes_nothing_ours(desk: Desk) -> None:
    desk.lease()
    desk.clock.begin(desk.now, 1.0)
    desk.now += 6.0
    (renewal,) = desk.book.renewals(desk.now)
    desk.clock.end(desk.now)
    desk.book.release()
    desk.clock.ready_at(1.0)
    (ask,) = desk.book.wishes(desk.now)
    desk.book.granted(renewal, grant(), desk.now, desk.now)
    assert desk.clock.ready_at(1.0) == math.inf
    assert desk.book.deadline(H) == -math.inf
    desk.book.granted(ask, grant(2), desk.now, desk.now)
    desk.book.granted(renewal, grant(), desk.now + 1.0, desk.now + 1.0)
    assert desk.book.deadline(H) == desk.now + USABLE_S


def test_an_older_renewal_does_not_shorten_a_lease(desk: Desk) -> None:
    desk.lease()
    desk.clock.begin(desk.now, 1.0)
    desk.now += 6.0
    (renewal,) = desk.book.renewals(desk.now)
    desk.book.granted(renewal, grant(), desk.now, desk.now)
    desk.book.granted(renewal, grant(), desk.now - 1.0, desk.now)
    assert desk.book.deadline(H) == desk.now + USABLE_S


def test_a_node_that_was_taken_for_dead_has_no_leases_and_aborts_what_is_under_way(desk: Desk) -> None:
    desk.lease()
    desk.book.void()
    assert desk.clock.ready_at(1.0) == math.inf
    (ask,) = desk.book.wishes(desk.now)
    desk.book.granted(ask, grant(2), desk.now, desk.now)
    desk.clock.begin(desk.now, 1.0)
    desk.book.void()
    assert desk.book.overdue(desk.now) == [H]
    desk.clock.end(desk.now)
    assert desk.clock.ready_at(1.0) == math.inf


# -- promises broken are counted --


def test_a_request_without_a_lease_is_a_violation(desk: Desk) -> None:
    desk.clock.begin(desk.now, 1.0)
    desk.clock.end(desk.now)
    assert desk.book.violations == 1
    assert desk.book.overdue(desk.now) == []


@pytest.mark.parametrize("after_s", [0.0, USABLE_S])
def test_a_request_before_a_lease_begins_or_after_it_ends_is_a_violation(desk: Desk, after_s: float) -> None:
    desk.lease(not_before_s=0.5)
    desk.clock.begin(desk.now + after_s, 1.0)
    assert desk.book.violations == 1


def test_a_request_that_began_before_a_stop_of_the_process_is_seen_for_what_it_is(desk: Desk) -> None:
    desk.lease()
    before = desk.now
    desk.now += 30.0
    desk.clock.begin(before, 1.0)
    assert desk.book.violations == 1


def test_a_request_too_soon_after_the_last_is_one_violation_and_not_two(desk: Desk) -> None:
    desk.lease()
    desk.request()
    desk.clock.begin(desk.now, 1.0)
    assert desk.book.violations == 1


# -- bounds --


def test_clocks_with_a_lease_or_a_wish_are_not_forgotten() -> None:
    desk = Desk(clocks_max=0)
    desk.lease()
    desk.book.clock("wished").ready_at(1.0)
    desk.book.clock("idle")
    kept = {name: desk.book.clock(name) for name in (H, "wished", "idle")}
    desk.book.sweep(desk.now, lambda _: 1.0)
    desk.book.sweep(desk.now, lambda _: 1.0)
    assert [name for name, clock in kept.items() if desk.book.clock(name) is clock] == [H, "wished"]


# -- the gatekeeper in the same node --


class Here:
    """A gatekeeper on the spot."""

    def __init__(self) -> None:
        self.answer: Granted | Wait | None = None
        self.backs: list[GiveBack] = []

    def ask_here(self, ask: LeaseAsk) -> Granted | Wait | None:
        return self.answer

    def is_ours(self, host: str) -> bool:
        return self.answer is not None

    def give_back_here(self, back: GiveBack) -> bool:
        self.backs.append(back)
        return self.answer is not None


@pytest.fixture
def here() -> Here:
    return Here()


def local(here: Here, now: list[float]) -> LeaseHolder:
    return LeaseHolder(now=lambda: now[0], started_at=now[0], fresh=True, shortcut=here)


def test_where_this_node_is_gatekeeper_a_look_at_the_clock_brings_the_lease(here: Here) -> None:
    here.answer, now = grant(requests=1), [100.0]
    book = local(here, now)
    clock = book.clock(H)
    assert clock.ready_at(1.0) <= 100.0
    clock.begin(100.0, 1.0)
    clock.end(100.5)
    here.answer, now[0] = grant(2, not_before_s=1.0), 100.5
    assert clock.ready_at(1.0) == 101.5
    assert [back.ended_at for back in here.backs] == [100.5]
    assert book.wishes(100.5) == []
    assert book.returns(100.5) == []


def test_where_this_node_is_gatekeeper_a_place_takes_one_host_though_time_passes_at_each_look(here: Here) -> None:
    ticks = itertools.count(100_000_000)
    book = LeaseHolder(now=lambda: next(ticks) / 1e6, started_at=100.0, fresh=True, shortcut=here)
    hosts = [f"{name}.example" for name in "abc"]
    frontier = Frontier(clock_of=book.clock, delay_of=lambda _: 1.0, robots_known=lambda _: True)
    frontier.walk_begins()
    frontier.walk_ended()
    here.answer = grant()
    frontier.add([task(f"http://{host}/") for host in hosts], next(ticks) / 1e6)
    # No place was free for a while, and all hosts went back.
    book.advance(next(ticks) / 1e6 + IDLE_S + 1.0)
    assert len(here.backs) == len(hosts)
    job = frontier.next(next(ticks) / 1e6)
    assert job is not None
    assert [host for host in hosts if book.clock(host).lease is not None] == [job.host]
    assert book.violations == 0


def test_where_this_node_is_gatekeeper_no_renewal_is_waited_for(here: Here) -> None:
    here.answer, now = grant(), [100.0]
    book = local(here, now)
    clock = book.clock(H)
    assert clock.ready_at(1.0) <= 100.0
    now[0] = 100.0 + LAST_START_S - 0.25
    clock.begin(now[0], 1.0)
    clock.end(now[0])
    here.answer = grant(2)
    assert clock.ready_at(1.0) == now[0] + 1.0
    assert [back.lease_id for back in here.backs] == [bytes([1] * 8)]


def test_where_this_node_is_gatekeeper_and_the_host_is_taken_the_offer_is_waited_for(here: Here) -> None:
    here.answer, now = Wait(5.0), [100.0]
    book = local(here, now)
    assert book.clock(H).ready_at(1.0) == math.inf
    assert book.next_due_at() == 105.0
    assert book.offered(H)
    assert len(book.wishes(100.0)) == 1


def test_where_another_node_is_gatekeeper_it_is_asked(here: Here) -> None:
    book = local(here, [100.0])
    assert book.clock(H).ready_at(1.0) == math.inf
    (ask,) = book.wishes(100.0)
    book.granted(ask, grant(requests=1), 100.0, 100.0)
    book.release()
    assert len(book.returns(100.0)) == 1


def test_a_node_that_notes_while_it_gives_hosts_back_that_it_stood_still_gives_back_no_lease_that_is_over(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.answer = grant()
    book = local(here, [100.0])
    for host in "abc":
        assert book.clock(host).ready_at(1.0) <= 100.0

    def stood_still(back: GiveBack) -> bool:
        here.backs.append(back)
        book.void()
        return False

    monkeypatch.setattr(here, "give_back_here", stood_still)
    book.release()
    assert [back.host for back in here.backs] == ["a"]
    assert [back.host for back in book.returns(100.0)] == ["a"]
