"""Who is believed after a while: only the sender that goes on saying it, and no more than the bounds have room for."""

from __future__ import annotations

from dhtcrawl.swarm.records.patience import GAP_S, PATIENCE_S, TASKS_A_SENDER_MAX, TASKS_MAX, Patience

A, B = b"a" * 20, b"b" * 20
CRAWL, OTHER = b"c" * 16, b"d" * 16


def key(number: int) -> bytes:
    return number.to_bytes(20, "big")


def say(patience: Patience, sender: bytes, until: float, *, since: float = 0.0, every: float = 5.0) -> bool:
    """Whether the sender is still refused the last time."""
    refused, now = frozenset[bytes](), since
    while now <= until:
        refused = patience.refused(sender, CRAWL, [key(1)], now)
        now += every
    return bool(refused)


def test_a_sender_that_goes_on_is_believed_after_a_minute_and_not_before() -> None:
    patience = Patience()
    assert say(patience, A, PATIENCE_S - 5)
    assert not say(patience, A, PATIENCE_S, since=PATIENCE_S)


def test_what_one_said_counts_for_no_other_and_for_no_other_crawl() -> None:
    patience = Patience()
    assert not say(patience, A, PATIENCE_S)
    assert patience.refused(B, CRAWL, [key(1)], PATIENCE_S) == {key(1)}
    assert patience.refused(A, OTHER, [key(1)], PATIENCE_S) == {key(1)}


def test_who_was_silent_begins_anew() -> None:
    patience = Patience()
    assert say(patience, A, PATIENCE_S * 3, every=GAP_S)
    assert not say(Patience(), A, PATIENCE_S * 3, every=GAP_S - 1)


def test_who_was_silent_about_one_task_begins_anew_with_it_also_while_others_go_on() -> None:
    patience = Patience()
    patience.refused(B, CRAWL, [key(1)], 0.0)
    patience.refused(A, CRAWL, [key(2)], GAP_S - 1)  # which is looked at first, as it has been silent longer than B:
    patience.refused(B, CRAWL, [key(3)], GAP_S - 1)
    now = GAP_S
    patience.refused(B, CRAWL, [key(1)], now)  # so this claim of B was not forgotten, though it is too old
    while now < PATIENCE_S:
        now += 5.0
        refused = patience.refused(B, CRAWL, [key(1)], now)
    assert refused == {key(1)}


def test_claims_that_are_not_repeated_are_forgotten() -> None:
    patience = Patience()
    for second in range(100):
        patience.refused(key(second), CRAWL, map(key, range(50)), float(second))
    assert len(patience) <= 50 * (GAP_S + 1)
    patience.refused(A, CRAWL, [], 1_000.0)
    assert len(patience) == 0


def test_a_flood_of_claims_takes_its_own_places_and_not_those_of_the_others() -> None:
    patience = Patience()
    for now in range(0, int(PATIENCE_S) + 1, 5):
        refused = patience.refused(A, CRAWL, map(key, range(2 * TASKS_A_SENDER_MAX)), float(now))
        for sender in range(100, 112):
            patience.refused(key(sender), CRAWL, map(key, range(TASKS_A_SENDER_MAX)), float(now))
        believed = not patience.refused(B, CRAWL, [key(1)], float(now))
    assert len(refused) >= TASKS_A_SENDER_MAX, "what is beyond the bound is never believed"
    assert believed, "an honest one has its place"
    assert len(patience) <= TASKS_MAX
