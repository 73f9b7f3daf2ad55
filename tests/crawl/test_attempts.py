"""What people are told of the attempts at a page: the latest of the latest tasks, in order."""

from __future__ import annotations

from dhtcrawl.crawl.attempts import ATTEMPTS_MAX, TASKS_MAX, Attempts


def test_the_latest_attempts_at_a_task_are_told_the_first_one_first() -> None:
    attempts = Attempts()
    for second in range(ATTEMPTS_MAX + 2):
        attempts.note(b"a", f"12:00:{second:02}", "dns: no such name")
    told = attempts.of(b"a")
    assert [told[0], told[-1]] == ["12:00:02 dns: no such name", f"12:00:{ATTEMPTS_MAX + 1:02} dns: no such name"]
    assert len(told) == ATTEMPTS_MAX
    told.clear()
    assert len(attempts.of(b"a")) == ATTEMPTS_MAX, "a list of the caller's own"
    assert attempts.of(b"b") == []


def test_the_tasks_whose_last_attempt_is_longest_ago_are_forgotten() -> None:
    attempts = Attempts()
    for number in range(TASKS_MAX):
        attempts.note(number.to_bytes(20, "big"), "12:00:00", "it answered 503")
    attempts.note(bytes(20), "12:00:01", "it answered 503")
    attempts.note(b"a", "12:00:02", "it answered 503")
    counts = [len(attempts.of(number.to_bytes(20, "big"))) for number in range(TASKS_MAX)]
    assert counts == [2, 0, *[1] * (TASKS_MAX - 2)]
