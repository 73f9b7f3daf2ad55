"""A node that begins to own keys hears which of their tasks are in flight, and leaves them alone (I8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from dhtcrawl.keyspace import placement
from dhtcrawl.swarm.calls.membership import HeldRow
from dhtcrawl.swarm.lifecycle import in_flight
from swarm.fake_peers import node, view_of
from swarm.sync_swarm import copy

ONE, OTHER = b"1" * 16, b"2" * 16
NEWCOMER, WORKER = node(1), node(2)
VIEW = view_of([0, 1, 2])
KEYS = [copy(number).key for number in range(200)]
THEIRS = [key for key in KEYS if VIEW.owner(placement(key)).id == NEWCOMER]  # type: ignore[union-attr]
OURS = [key for key in KEYS if VIEW.owner(placement(key)).id == node(0)]  # type: ignore[union-attr]


class Runs(dict[bytes, Any]):
    """The crawls that run here; `held` is what is held for others, in order."""

    def __init__(self, holders: Mapping[bytes, bytes], flying: Sequence[bytes] = ()) -> None:
        super().__init__()
        self.held: list[tuple[str, bytes, Sequence[bytes]]] = []
        changes = SimpleNamespace(
            holders=lambda: dict(holders),
            in_hand=lambda node: list(flying) if node == NEWCOMER else [],
            hold_lent=lambda worker, keys: self.held.append(("lent", worker, keys)),
            hold_for=lambda node, keys: self.held.append(("in flight", node, keys)),
        )
        self[ONE] = SimpleNamespace(assignments=SimpleNamespace(changes=changes))

    def of(self, crawl: bytes) -> Any:
        return self.get(crawl)

    def __iter__(self) -> Any:
        return iter(list(self.items()))


def answer(runs: Runs, to: bytes = NEWCOMER) -> tuple[HeldRow, ...]:
    crawls: Any = runs
    return in_flight.in_flight_of(crawls, VIEW, to, in_flight.lent(crawls))


def test_a_newcomer_is_told_what_is_in_flight_here_and_what_is_assigned_and_to_whom() -> None:
    runs = Runs({THEIRS[0]: WORKER, THEIRS[1]: node(3), OURS[0]: WORKER, THEIRS[2]: NEWCOMER}, flying=[THEIRS[3]])
    assert answer(runs) == (
        HeldRow(ONE, (THEIRS[3],), None),
        HeldRow(ONE, (THEIRS[0],), WORKER),
        HeldRow(ONE, (THEIRS[1],), node(3)),
    ), "neither what others own nor what it has itself"
    assert answer(runs, to=WORKER) == ()


def test_where_nobody_owns_anything_nothing_is_told() -> None:
    crawls: Any = Runs({THEIRS[0]: WORKER})
    nobody = view_of([], joining=[1])
    assert in_flight.in_flight_of(crawls, nobody, NEWCOMER, in_flight.lent(crawls)) == ()


def test_many_tasks_go_in_rows_that_can_be_asked_about_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_flight, "KEYS_MAX", 2)
    rows = answer(Runs({}, flying=THEIRS[:5]))
    assert [len(row.keys) for row in rows] == [2, 2, 1]
    assert [key for row in rows for key in row.keys] == THEIRS[:5]


def test_a_newcomer_holds_what_it_is_told_of_crawls_that_run_there() -> None:
    runs = Runs({})
    told = [HeldRow(OTHER, (KEYS[0],), None), HeldRow(ONE, (KEYS[1],), None), HeldRow(ONE, (KEYS[2],), WORKER)]
    crawls: Any = runs
    in_flight.hold_for(crawls, node(3), told)
    assert runs.held == [("in flight", node(3), (KEYS[1],)), ("lent", WORKER, (KEYS[2],))]
