"""Who brought nothing of a task, and who cannot connect to a host."""

from __future__ import annotations

from dhtcrawl.crawl.lending import Given
from dhtcrawl.policy.seam import Result
from dhtcrawl.swarm import failures
from dhtcrawl.swarm.failures import CANNOT_S, Failures

A, B, C = (bytes([number]) * 20 for number in (1, 2, 3))
NODES = [A, B, C]
KEY, OTHER = b"k" * 20, b"o" * 20


def given(result: Result, key: bytes = KEY, host: str = "a") -> Given:
    return Given(key, host, result, 1.0, detail=f"{result.value}!")


def test_a_host_that_nobody_could_connect_to_is_left_for_all_its_tasks() -> None:
    told = Failures()
    for number, node in enumerate(NODES):
        assert told.is_left(OTHER, "a", NODES, float(number))
        told.heard(node, given(Result.UNREACHABLE), float(number))
    assert not told.is_left(OTHER, "a", NODES, 3.0)
    assert told.is_left(OTHER, "b", NODES, 3.0), "of another host it says nothing"
    assert told.is_left(OTHER, "a", [*NODES, bytes(20)], 3.0), "a node that has not tried"


def test_that_one_could_not_connect_keeps_no_task_from_it_while_another_is_left() -> None:
    told = Failures()
    told.heard(A, given(Result.UNREACHABLE), 0.0)
    assert told.of(OTHER) == ()
    assert told.is_left(OTHER, "a", NODES, 1.0, but=B)
    assert not told.is_left(OTHER, "a", [A, B], 1.0, but=B)


def test_who_could_not_connect_is_asked_again_after_a_while_or_once_it_brought_a_page() -> None:
    told = Failures()
    for node in NODES:
        told.heard(node, given(Result.UNREACHABLE), 0.0)
    assert not told.is_left(KEY, "a", NODES, CANNOT_S - 1)
    assert told.is_left(KEY, "a", NODES, CANNOT_S)
    for result in (Result.FAILED, Result.RECALLED):
        told.heard(B, given(result), 1.0)
        assert not told.is_left(KEY, "a", NODES, 1.0), "it has connected to nothing, for all we know"
    told.heard(B, given(Result.PAGE), 1.0)
    assert told.is_left(KEY, "a", NODES, 1.0)


def test_only_nodes_that_connected_count_and_all_of_them_are_quoted() -> None:
    told = Failures()
    assert KEY not in told
    told.note(B, given(Result.UNREACHABLE))
    told.note(A, given(Result.FAILED))
    assert KEY in told
    assert told.connected(KEY) == 1
    assert list(told.words(KEY).items()) == [(B, "unreachable!"), (A, "failed!")]
    assert told.of(KEY) == (B, A)
    assert told.has_failed(KEY, A)
    assert not told.has_failed(KEY, C)
    told.note(B, given(Result.FAILED))
    assert told.connected(KEY) == 2
    told.forget(KEY)
    assert (KEY in told, told.connected(KEY), told.words(KEY)) == (False, 0, {})


def test_what_others_own_by_now_is_forgotten() -> None:
    told = Failures()
    told.note(A, given(Result.FAILED))
    told.note(A, given(Result.FAILED, OTHER))
    told.keep(lambda key: key == OTHER)
    assert (KEY in told, OTHER in told) == (False, True)


def test_neither_tasks_nor_hosts_pile_up() -> None:
    told = Failures()
    for number in range(failures.TASKS_MAX + 10):
        told.note(A, given(Result.FAILED, number.to_bytes(20)))
    for number in range(failures.HOSTS_MAX + 10):
        told.heard(A, given(Result.UNREACHABLE, host=f"h{number}"), 0.0)
    assert len(told._said) == failures.TASKS_MAX
    assert len(told._cannot) == failures.HOSTS_MAX
    assert (9).to_bytes(20) not in told
    assert (10).to_bytes(20) in told
    assert told.is_left(KEY, "h9", [A], 0.0)
    assert not told.is_left(KEY, "h10", [A], 0.0)
