"""Who brought nothing of a task, and who cannot connect to a host."""

from __future__ import annotations

from harness.memory import entries

from dhtcrawl.crawl.ports import TaskOutcome
from dhtcrawl.policy.seam import TaskResult
from dhtcrawl.swarm.assignment import failures
from dhtcrawl.swarm.assignment.failures import CANNOT_S, Failures

A, B, C = (bytes([number]) * 20 for number in (1, 2, 3))
NODES = [A, B, C]
KEY, OTHER = b"k" * 20, b"o" * 20


HTTP, HTTPS = "http://a", "https://a"


def given(result: TaskResult, key: bytes = KEY) -> TaskOutcome:
    return TaskOutcome(key, "a", result, 1.0, detail=f"{result.value}!")


def test_an_origin_that_nobody_could_connect_to_is_left_for_all_its_tasks() -> None:
    told = Failures()
    for number, node in enumerate(NODES):
        assert told.is_left(OTHER, HTTPS, NODES, float(number))
        told.cannot(node, HTTPS, float(number))
    assert not told.is_left(OTHER, HTTPS, NODES, 3.0)
    assert told.is_left(OTHER, HTTP, NODES, 3.0), "a certificate that is no good is no reason"
    assert told.is_left(OTHER, "https://b", NODES, 3.0)
    assert told.is_left(OTHER, HTTPS, [*NODES, bytes(20)], 3.0), "a node that has not tried"


def test_that_one_could_not_connect_keeps_no_task_from_it_while_another_is_left() -> None:
    told = Failures()
    told.cannot(A, HTTP, 0.0)
    assert told.of(OTHER) == ((), ())
    assert told.is_left(OTHER, HTTP, [A, B], 1.0)
    assert not told.is_left(OTHER, HTTP, [A], 1.0)


def test_who_could_not_connect_is_asked_again_after_a_while_or_once_it_brought_a_page() -> None:
    told = Failures()
    for node in NODES:
        told.cannot(node, HTTP, 0.0)
    assert not told.is_left(KEY, HTTP, NODES, CANNOT_S - 1)
    assert told.is_left(KEY, HTTP, NODES, CANNOT_S)
    told.reaches(B, "b")
    assert not told.is_left(KEY, HTTP, NODES, 1.0)
    told.reaches(B, "a")
    assert told.is_left(KEY, HTTP, NODES, 1.0)


def test_only_nodes_that_connected_count_and_all_of_them_are_quoted() -> None:
    told = Failures()
    assert KEY not in told
    told.note(B, given(TaskResult.UNREACHABLE))
    told.note(A, given(TaskResult.FAILED))
    assert KEY in told
    assert told.connected(KEY) == 1
    assert list(told.words(KEY).items()) == [(B, "unreachable!"), (A, "failed!")]
    assert told.of(KEY) == ((B, A), ())
    assert told.has_failed(KEY, A)
    assert not told.has_failed(KEY, C)
    told.note(B, given(TaskResult.FAILED))
    assert told.connected(KEY) == 2
    told.forget(KEY)
    assert (KEY in told, told.connected(KEY), told.words(KEY)) == (False, 0, {})


def test_what_others_own_by_now_is_forgotten() -> None:
    told = Failures()
    told.note(A, given(TaskResult.FAILED))
    told.note(A, given(TaskResult.FAILED, OTHER))
    told.recalled(KEY, B, "a", counts=True)
    told.recalled(OTHER, B, "a", counts=False)
    told.keep(lambda key: key == OTHER)
    assert (KEY in told, OTHER in told) == (False, True)
    assert (told.of(KEY), told.of(OTHER)) == (((), ()), ((A,), (B,)))


def test_who_had_no_time_for_a_task_is_no_failure_and_comes_in_the_order_of_when() -> None:
    told = Failures()
    for node in (A, B, A):
        told.recalled(KEY, node, "a", counts=True)
    assert told.of(KEY) == ((), (B, A))
    assert (KEY in told, told.is_left(KEY, HTTP, [A], 0.0)) == (False, True)
    told.forget(KEY)
    assert (told.of(KEY), told.recalls(KEY)) == (((), ()), 0)


def test_only_recalls_that_count_are_counted_and_each_node_is_named_with_how_many_it_had() -> None:
    told = Failures()
    for node, counts in ((A, True), (B, False), (A, True), (C, True)):
        told.recalled(KEY, node, "a", counts=counts)
    assert told.of(KEY) == ((), (B, A, C))
    assert told.recalls(KEY) == 3
    host, words = told.recalled_words(KEY)
    assert host == "a"
    assert words == f"taken and not begun, recalled from: {A.hex()[:8]} (2), {C.hex()[:8]} (1)"


def test_neither_tasks_nor_hosts_pile_up() -> None:
    told = Failures()
    for number in range(failures.TASKS_MAX):
        told.note(A, given(TaskResult.FAILED, number.to_bytes(20)))
    for number in range(failures.ORIGINS_MAX):
        told.cannot(A, f"http://{number}", 0.0)
    held = entries(told)
    for number in range(failures.TASKS_MAX, failures.TASKS_MAX + 10):
        told.note(A, given(TaskResult.FAILED, number.to_bytes(20)))
    for number in range(failures.ORIGINS_MAX, failures.ORIGINS_MAX + 10):
        told.cannot(A, f"http://{number}", 0.0)
    assert entries(told) <= held
    assert (9).to_bytes(20) not in told
    assert (10).to_bytes(20) in told
    assert told.is_left(KEY, "http://9", [A], 0.0)
    assert not told.is_left(KEY, "http://10", [A], 0.0)
