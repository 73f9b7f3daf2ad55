"""How many ends of an owner's tasks a node is believed that was not given them."""

from __future__ import annotations

import pytest

from dhtcrawl.swarm.records import end_trust
from dhtcrawl.swarm.records.end_trust import AWAY_RATE_S, BURST, LAST_MAX, RATE_S, SETTLED_S, EndTrust
from dhtcrawl.swarm.records.patience import PATIENCE_S
from swarm.fake_peers import node, view_of

CRAWL = bytes(16)
HERE = view_of([0, 1, 2])
KEYS = [number.to_bytes(20, "big") for number in range(50_000)]


def taken(trust: EndTrust, now: float, *, teller: int = 1, count: int = 1_200, lends: bool = False) -> int:
    return len(trust.believed(node(teller), CRAWL, KEYS[:count], now, lends=lends))


def test_while_no_node_comes_or_goes_nothing_is_believed_of_tasks_that_owners_fetch() -> None:
    trust = EndTrust(HERE, 0.0)
    assert taken(trust, SETTLED_S) == 0


def test_a_member_that_says_of_all_tasks_that_they_are_over_is_believed_of_a_hundred_a_minute() -> None:
    trust, believed = EndTrust(HERE, 0.0), set[bytes]()
    for tick in range(5 * 60 * 5):  # five minutes, five times a second
        left = [key for key in KEYS[:1_200] if key not in believed]
        believed |= trust.believed(node(1), CRAWL, left, SETTLED_S + tick / 5, lends=False)
    assert len(believed) <= 5 * LAST_MAX


@pytest.mark.parametrize("lends", [False, True])
def test_once_a_node_has_come_or_gone_each_sender_has_a_little_credit(lends: bool) -> None:
    trust = EndTrust(HERE, 0.0)
    trust.look(view_of([0, 1, 2, 3]), SETTLED_S)
    for teller in (1, 2):
        assert taken(trust, SETTLED_S, teller=teller, lends=lends) == BURST
        assert taken(trust, SETTLED_S, teller=teller, lends=lends) == 0
        assert taken(trust, SETTLED_S + 2, teller=teller, lends=lends) == 2 * RATE_S
        assert taken(trust, SETTLED_S + 4, teller=teller, lends=lends) == 2 * RATE_S, "and not for the time before"
    assert taken(trust, 10 * SETTLED_S, lends=True) == BURST, "a worker may be late at any time"


def test_a_view_with_the_same_members_gives_nobody_credit() -> None:
    trust = EndTrust(HERE, 0.0)
    trust.look(view_of([0, 1, 2]), SETTLED_S)
    assert taken(trust, SETTLED_S) == 0


def test_a_node_that_comes_for_the_first_time_has_the_credit_of_all() -> None:
    trust = EndTrust(HERE, 0.0)
    trust.look(view_of([0, 1, 2, 3]), 1_000.0)
    assert taken(trust, 1_000.0, teller=3) == BURST
    trust.look(HERE, 1_001.0)
    trust.look(view_of([0, 1, 2, 3]), 1_003.0)
    assert taken(trust, 1_003.0, teller=3) == 2 * AWAY_RATE_S + 3 * RATE_S


def test_of_many_senders_those_that_were_heard_of_last_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(end_trust, "NODES_MAX", 2)
    trust = EndTrust(HERE, 0.0)
    trust.look(view_of([0, 1, 2, 3]), 1.0)
    for teller in (1, 2):
        assert taken(trust, 1.0, teller=teller) == BURST
    assert [taken(trust, 1.0, teller=teller) for teller in (1, 2)] == [0, 0]
    assert taken(trust, 1.0, teller=3) == BURST
    assert [taken(trust, 1.0, teller=teller) for teller in (2, 3, 1)] == [0, 0, BURST], "as if it had said nothing"


def test_a_node_that_was_away_may_have_fetched_all_the_while() -> None:
    trust = EndTrust(HERE, 0.0)
    trust.look(view_of([0, 2]), 1_000.0)
    assert taken(trust, 1_001.0, count=50_000) == BURST, "nothing more before it is back"
    trust.look(HERE, 1_060.0)
    assert taken(trust, 1_060.0, count=50_000) == 60 * AWAY_RATE_S + BURST
    assert taken(trust, 1_060.0 + SETTLED_S, count=50_000) == 0
    assert taken(trust, 1_060.0, teller=2) == BURST, "another has not been away"


def test_who_leaves_and_comes_back_at_once_gains_nothing_but_the_credit_of_all() -> None:
    trust = EndTrust(HERE, 0.0)
    for turn in range(10):
        trust.look(view_of([0, 2]), 1_000.0 + turn)
        trust.look(HERE, 1_000.0 + turn)
    assert taken(trust, 1_010.0) == BURST


def test_a_node_that_has_nobody_else_to_tell_is_believed_after_a_minute() -> None:
    trust, now = EndTrust(HERE, 0.0), SETTLED_S
    while now < SETTLED_S + PATIENCE_S:
        assert taken(trust, now, count=3) == 0
        now += 5.0
    assert taken(trust, now, count=3) == 3
