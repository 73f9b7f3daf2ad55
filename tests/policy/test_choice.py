"""Who is given a task: the best-ranked node that has room, after those that had it for nothing."""

from __future__ import annotations

from collections.abc import Sequence

from dhtcrawl.policy.choice import choose
from dhtcrawl.policy.seam import BATCH, AssignmentTerms, Candidate, Policy, PolicyTask, Settings
from dhtcrawl.policy.xor import Xor

A, B, C = (bytes([number]) * 20 for number in (1, 2, 3))
KEY = bytes(20)


class InOrder(Policy):
    """Ranks nodes as they come."""

    name = "in-order"

    def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
        return [each.node for each in candidates]


class Pinned(InOrder):
    """Waits for the first."""

    pinned = True

    def terms(self, node: bytes, host: str) -> AssignmentTerms:
        return AssignmentTerms(batch=1)


def chosen(policy: Policy, *tasks: PolicyTask, lent: dict[tuple[bytes, str], int] | None = None) -> list[bytes]:
    """The node of each task that has one, by node."""
    choice = choose(policy, tasks, lambda task: [A, B, C], lent or {}, 0.0)
    return [node for node, hosts in choice.keys.items() for keys in hosts.values() for _ in keys]


def test_what_one_had_no_time_for_goes_to_the_next_of_the_ranking_and_then_in_turns() -> None:
    policy = InOrder(Settings(A))
    for recalled, node in (((), A), ((A,), B), ((B, A), C), ((A, B, C), A), ((B, C, A), B)):
        assert chosen(policy, PolicyTask(KEY, "a", (), recalled)) == [node]
        assert chosen(Pinned(Settings(A)), PolicyTask(KEY, "a", (), recalled)) == [A], "it waits for the first"


def test_who_had_no_time_comes_before_who_failed_and_after_who_has_no_room_now() -> None:
    policy = InOrder(Settings(A))
    assert chosen(policy, PolicyTask(KEY, "a", (A, C), (B,))) == [B]
    assert chosen(policy, PolicyTask(KEY, "a", (), (A,)), lent={(B, "a"): BATCH, (C, "a"): BATCH}) == [A]


def test_under_xor_the_owner_has_room_for_all_that_nobody_brought() -> None:
    tasks = [PolicyTask(number.to_bytes(20, "big"), "a", (A, B, C)) for number in range(2 * BATCH)]
    assert chosen(Xor(Settings(A)), *tasks) == [A] * len(tasks)
