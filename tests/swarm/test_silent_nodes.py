"""Members that do not answer are passed over for a while, are asked again, and are told of now and then."""

from __future__ import annotations

import pytest
from harness.world import GONE

from dhtcrawl.rpc.tasks.events import Failure, FailureKind
from dhtcrawl.swarm.records import silent_nodes
from dhtcrawl.swarm.records.silent_nodes import GAP_S, PASSED_S, SAID_AGAIN_S, SILENT_S, SilentNodes

A, B = b"a" * 20, b"b" * 20


def test_who_has_not_answered_for_long_is_passed_over_until_it_is_asked_again() -> None:
    silent = SilentNodes()
    assert silent.failed(A, GONE, 5.0) is None
    assert silent.failed(A, GONE, 4.9 + SILENT_S) is None
    assert silent.passed_over(4.9 + SILENT_S) == frozenset()
    assert silent.failed(A, GONE, 5.0 + SILENT_S) == SILENT_S
    over = 5.0 + SILENT_S + PASSED_S
    assert silent.passed_over(over - 0.1) == {A}
    assert silent.passed_over(over) == frozenset()
    silent.failed(A, GONE, over)
    assert silent.passed_over(over) == {A}


def test_who_answers_is_not_passed_over_any_more_and_begins_anew() -> None:
    silent = SilentNodes()
    for owner in (A, B):
        silent.failed(owner, GONE, 0.0)
        silent.failed(owner, GONE, SILENT_S)
    silent.answered(A)
    assert silent.passed_over(SILENT_S) == {B}
    assert silent.failed(A, GONE, SILENT_S + 1) is None
    assert silent.passed_over(SILENT_S + 1) == {B}


def test_who_was_not_asked_for_long_begins_anew() -> None:
    silent = SilentNodes()
    silent.failed(A, GONE, 0.0)
    assert silent.failed(A, GONE, GAP_S + 0.1) is None
    assert silent.passed_over(GAP_S + 0.1) == frozenset()


def test_it_is_said_at_first_and_now_and_then() -> None:
    silent = SilentNodes()
    times = [SILENT_S / 2 * count for count in range(int(4 * SAID_AGAIN_S / SILENT_S))]
    said = [now for now in times if silent.failed(A, GONE, now) is not None]
    assert said == [SILENT_S, SILENT_S + SAID_AGAIN_S]


def test_beyond_the_bound_all_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silent_nodes, "NODES_MAX", 2)
    silent = SilentNodes()
    for owner in (A, B, b"c" * 20):
        silent.failed(owner, GONE, 0.0)
    assert silent.failed(A, GONE, SILENT_S) is None


@pytest.mark.parametrize("kind", [FailureKind.BUSY, FailureKind.REFUSED, FailureKind.PARTED, FailureKind.CLOSED])
def test_what_is_no_silence_does_not_count_and_a_refusal_is_an_answer(kind: FailureKind) -> None:
    silent = SilentNodes()
    silent.failed(A, GONE, 0.0)
    assert silent.failed(A, Failure(kind, "so"), SILENT_S) is None
    assert silent.passed_over(SILENT_S) == frozenset()
    assert (silent.failed(A, GONE, SILENT_S) is None) == (kind is FailureKind.REFUSED)
