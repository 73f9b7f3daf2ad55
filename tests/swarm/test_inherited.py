"""A newcomer leaves alone what a former owner has in flight, until it hears of it or that one is gone."""

from __future__ import annotations

from dhtcrawl.swarm.assignment.inherited import HELD_A_NODE_MAX, HELD_MAX, HELD_S, InheritedInFlight

A, B = b"a" * 20, b"b" * 20
NOW = 100.0


def there(_: bytes) -> int:
    return 1


def test_what_is_held_is_let_go_when_its_outcome_is_known() -> None:
    tasks = InheritedInFlight()
    tasks.hold(A, 1, [b"1", b"2"], NOW)
    assert (b"1" in tasks, b"3" in tasks, len(tasks)) == (True, False, 2)
    assert tasks.let_go([b"1", b"3"]) == [b"1"]
    assert list(tasks) == [b"2"]


def test_a_task_for_which_two_are_named_is_free_when_both_have_let_go_of_it() -> None:
    for first, last in ((A, B), (B, A)):
        tasks = InheritedInFlight()
        for node in (A, B):
            tasks.hold(node, 1, [b"1"], NOW)
        assert (tasks.let_go_from(first, [b"1"]), b"1" in tasks) == ([], True)
        assert tasks.let_go_from(first, [b"1"]) == [], "it has none"
        assert (tasks.let_go_from(last, [b"1"]), b"1" in tasks) == ([b"1"], False)
    tasks.hold(A, 1, [b"1"], NOW)
    tasks.hold(B, 1, [b"1"], NOW)
    assert tasks.given_up({B: 1}.get, NOW) == [], "the other one is there"
    assert tasks.holders() == {b"1": B}
    assert tasks.given_up(lambda _: None, NOW) == [b"1"]


def test_an_outcome_is_known_whoever_was_named() -> None:
    tasks = InheritedInFlight()
    tasks.hold(A, 1, [b"1"], NOW)
    tasks.hold(B, 1, [b"1"], NOW)
    assert tasks.let_go([b"1", b"1"]) == [b"1"]
    assert tasks.given_up(lambda _: None, NOW) == []
    assert not len(tasks)


def test_who_is_gone_holds_nothing() -> None:
    tasks = InheritedInFlight()
    tasks.hold(A, 1, [b"1"], NOW)
    tasks.hold(B, 1, [b"2"], NOW)
    assert tasks.given_up({B: 1}.get, NOW) == [b"1"]
    assert list(tasks) == [b"2"]


def test_who_has_started_anew_has_forgotten_what_it_held() -> None:
    tasks = InheritedInFlight()
    tasks.hold(A, 1, [b"1"], NOW)
    tasks.hold(B, 7, [b"2"], NOW)
    assert tasks.given_up({A: 2, B: 7}.get, NOW) == [b"1"]
    assert list(tasks) == [b"2"]


def test_nobody_holds_a_task_for_ever() -> None:
    tasks = InheritedInFlight()
    tasks.hold(A, 1, [b"1"], NOW)
    assert tasks.given_up(there, NOW + HELD_S - 0.1) == []
    assert tasks.given_up(there, NOW + HELD_S) == [b"1"]
    assert not len(tasks)


def test_a_node_that_names_too_many_tasks_does_not_fill_the_memory() -> None:
    tasks = InheritedInFlight()
    keys = [n.to_bytes(20, "big") for n in range(HELD_MAX + 10)]
    tasks.hold(A, 1, keys, NOW)
    assert len(tasks) == HELD_A_NODE_MAX, "nor leaves it no room for what others name"
    for number in range(20):
        tasks.hold(bytes([number]) * 20, 1, keys[number * HELD_A_NODE_MAX :][:HELD_A_NODE_MAX], NOW)
    assert len(tasks) == HELD_MAX
    tasks.let_go(keys)
    tasks.hold(B, 1, keys[:5], NOW)
    tasks.hold(A, 1, keys[5:], NOW)
    assert len(tasks) == 5 + HELD_A_NODE_MAX
    tasks.hold(A, 1, keys[:5], NOW)
    assert [tasks.holders()[key] for key in keys[:5]] == [B] * 5, "nor is it named for more"
    tasks.hold(B, 1, keys[5:10], NOW)
    assert len(tasks) == 5 + HELD_A_NODE_MAX
    assert tasks.let_go_from(A, keys[5:10]) == [], "another was named for them, too"
