"""What every policy keeps, whoever wrote it: `check` tries all of it, and says what was wrong and why it matters.

    def test_my_policy_keeps_the_contract():
        check(lambda: MyPolicy(settings()))

It needs no test framework: what is broken is a `ContractError`, an AssertionError with several lines of text.

    make   makes a policy as an owner would; called often, each time for a new one

Nothing here is drawn by a generator: the same policy meets the same tasks, nodes and history each time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from itertools import cycle, islice
from math import log
from typing import Any, Final, NoReturn

from dhtcrawl.errors import ConfigError
from dhtcrawl.keyspace import url_key
from dhtcrawl.policy.guard import FAULTS_MAX, Guard, said, sensible
from dhtcrawl.policy.seam import Candidate, Outcome, Policy, PolicyTask, Settings, TaskResult

OWN = bytes(20)
TASKS = 2_000
RESULTS: Final = (*[TaskResult.PAGE] * 8, TaskResult.FAILED, TaskResult.UNREACHABLE, TaskResult.RECALLED)
# What a policy may be told by a planner that is broken, of another version, or an enemy.
RUBBISH: Sequence[dict[str, Any]] = (
    {},
    {"weights": None, "shares": [], "nodes": 3, "sites": "x", "finite": "yes"},
    {"weights": {"x": 1, 4: 2}, "shares": {None: 1}, "nodes": {b"": []}, "sites": {"a": [None]}},
    {"weights": {OWN: float("nan")}, "shares": {OWN: -1}, "nodes": {OWN: [float("nan")]}, "sites": {}},
    {"weights": {OWN: float("inf")}, "shares": {OWN: True}, "finite": True, "nodes": {OWN: [1.0]}},
    {"nodes": {OWN: [1.0, 2.0]}, "sites": {"site-1.test": [1.0]}},
)
REPLACED = (
    f"a policy that raises, or answers with nonsense, {FAULTS_MAX} times in a row is not asked any more: xor decides"
)
NOT_MADE = "nodes that cannot make a policy fetch what they own themselves, as if the crawl had none"

Make = Callable[[], Policy]
Part = Callable[[Make], None]


class ContractError(AssertionError):
    """A policy breaks the contract: what it did, what was expected, and why that matters."""


def settings(**options: str) -> Settings:
    """What a policy is made with in these tests."""
    return Settings(OWN, options)


def node(number: int) -> bytes:
    """An id; they lie as ids do."""
    return sha256(b"node %d" % number).digest()[:20]


def nodes(count: int) -> list[Candidate]:
    """Some candidates with nothing to do."""
    return [Candidate(node(number)) for number in range(count)]


def task(number: int, failed: tuple[bytes, ...] = ()) -> PolicyTask:
    """One of many, of 40 hosts."""
    url = _url(number)
    return PolicyTask(url_key(url), f"site-{number % 40}.test", failed, url=url, depth=number % 7)


def history(policy: Policy, seed: int, count: int = 300) -> None:
    """Things that happened to a policy: all results, known and unknown nodes.

    Raises:
        ContractError: the policy raises where it is told of them.
    """
    for index in range(count):
        lot = _lot(seed, index)
        seconds = -log(1 - _lot(seed, index, 1) % 1_000 / 1_000)
        outcome = Outcome(
            node(lot % 12), f"site-{lot // 12 % 40}.test", RESULTS[lot // 480 % len(RESULTS)], seconds, bytes=1000
        )
        _told(policy, outcome, index * 0.1)


def first(policy: Policy, candidates: Sequence[Candidate], count: int = TASKS) -> list[bytes]:
    """Who would get each of so many tasks.

    Raises:
        ContractError: the policy raises, or ranks no node.
    """
    found = []
    for number in range(count):
        ranked = _ranked(policy, number, candidates, 100.0)
        if not ranked:
            _breaks(
                policy,
                did=f"ranked no node for {_named(number)}, of {len(candidates)} that may fetch it",
                expected="a node for each task",
                why="a task for which no node is ranked waits",
            )
        found.append(ranked[0])
    return found


def check(make: Make, but: Sequence[Part] = ()) -> None:
    """All of the contract, without the parts that a policy says it does not keep.

    Raises:
        ContractError: what it breaks, part by part; or it is no policy.
    """
    _made(make)
    broken = []
    parts = [part for part in PARTS if part not in but]
    for part in parts:
        try:
            part(make)
        except ContractError as error:
            broken.append(f"{part.__name__}: {error}")
    if broken:
        count = f"{len(broken)} of {len(parts)} parts of the contract (dhtcrawl.policy.contract) do not hold"
        raise ContractError("\n\n".join([count, *broken]))


def well_formed(make: Make) -> None:
    """A policy, and what it says of how it is asked makes sense.

    Raises:
        ContractError: it is none, or says nonsense of itself.
    """
    policy = _made(make)
    try:
        Guard(policy)
    except ConfigError as error:
        _breaks(
            policy,
            did=f"says of itself: {error}",
            expected="what dhtcrawl.policy.seam.Policy has there: its settings, and whole numbers from 1 on",
            why=NOT_MADE,
        )
    except Exception as error:
        _breaks(
            policy,
            did=f"cannot be asked: {said(error)}",
            expected="a policy that has its settings; let __init__ call super().__init__(settings)",
            why=NOT_MADE,
        )


def deterministic(make: Make) -> None:
    """The same calls bring the same ranks.

    Raises:
        ContractError: they do not.
    """
    policies = [make(), make()]
    for policy in policies:
        history(policy, 1)
    for number in range(200):
        one, other = (_ranked(policy, number, nodes(10), number * 0.5) for policy in policies)
        if one != other:
            _breaks(
                policies[0],
                did=f"ranked {_named(number)} as {_ids(one)}, and as {_ids(other)} when all was done again",
                expected="the same calls in the same order to bring the same ranks",
                why="what a node does could not be repeated or explained; take chance from the task's key, "
                "as dhtcrawl.policy.rendezvous does, and time from `now`",
            )


def total(make: Make) -> None:
    """Every candidate is ranked, once; nobody else is.

    Raises:
        ContractError: one is missing, is there twice, or is no candidate.
    """
    for count in (1, 2, 10, 100):
        policy = make()
        history(policy, 2)
        for number in range(20):
            _all_ranked(policy, number, nodes(count), 100.0, "after it had heard 300 outcomes")
    _all_ranked(make(), 1, [], 100.0, "with no candidate")


def stable(make: Make) -> None:
    """The order in which candidates are given means nothing.

    Raises:
        ContractError: it does.
    """
    policies = [make() for _ in range(3)]
    for policy in policies:
        history(policy, 3)
    for number in range(100):
        ranks = []
        for seed, policy in enumerate(policies):
            given = sorted(nodes(10), key=lambda each: sha256(b"%d %d" % (seed, number) + each.node).digest())
            ranks.append(_ranked(policy, number, given, 100.0))
        for other in ranks[1:]:
            if other != ranks[0]:
                _breaks(
                    policies[0],
                    did=f"ranked {_named(number)} as {_ids(ranks[0])}, and as {_ids(other)} "
                    "when the same candidates were given in another order",
                    expected="the same ranks, whatever the order of the candidates",
                    why="the order is that of each node's own list of members, and changes as they come and go; "
                    "sort by something that is the node's own, last of all by its id",
                )


def fair_to_change(make: Make) -> None:
    """Who leaves takes only its own tasks away; who comes takes no more than its share, and a bit.

    Not for a policy whose ranking of a task depends on the tasks before it.

    Raises:
        ContractError: tasks move between nodes that stay.
    """
    policy = make()
    few, all_ = first(policy, nodes(10)), first(make(), nodes(11))
    moved = sum(before != after for before, after in zip(few, all_, strict=True))
    to_new = all_.count(node(10))
    most = 1.2 * to_new + 0.01 * TASKS
    if moved > most:
        _breaks(
            policy,
            did=f"gave {moved} of {TASKS} tasks to another node when an eleventh came, which got {to_new} of them",
            expected=f"at most {most:.0f} to move: what the new node gets, and a bit",
            why="tasks that wait would change places each time that a node comes or goes, with what nodes learned of "
            "their sites; rendezvous hashing (dhtcrawl.policy.rendezvous) moves only what is the new node's. "
            "A policy that remembers what it ranked before cannot keep this: check(make, but=(fair_to_change,))",
        )


def forgiving(make: Make) -> None:
    """No plan or a senseless one, no history, unknown nodes, times that go backwards: it ranks all the same.

    Raises:
        ContractError: it does not, or its terms make no sense then.
    """
    for now, table in zip(cycle((0.0, 1e9, -5.0)), RUBBISH, strict=False):
        policy = make()
        try:
            policy.adopt(table)
        except Exception as error:
            _breaks(
                policy,
                did=f"raised {said(error)} in adopt({table!r})",
                expected="adopt to take any table, and to leave out what makes no sense in it",
                why=f"a plan comes over the wire, and may be of another version; {REPLACED}",
            )
        _told(policy, Outcome(node(50), "nowhere.test", TaskResult.RECALLED, 0.0), now)
        for number in range(20):
            _all_ranked(policy, number, nodes(5), -now, f"after adopt({table!r})")
        _terms(policy, node(1), "site-1.test")


def failed_nodes_last(make: Make) -> None:
    """Who had a task and brought nothing is asked last, who failed first before those who failed later.

    Raises:
        ContractError: another order.
    """
    policy = make()
    history(policy, 4)
    failed = (node(3), node(7), node(99))
    for number in range(50):
        ranked = _ranked(policy, number, nodes(10), 100.0, failed)
        if ranked[-2:] != [node(3), node(7)]:
            _breaks(
                policy,
                did=f"ranked {_named(number)}, which {_ids(failed)} had failed, as {_ids(ranked, 10)}",
                expected=f"{_ids(failed[:2])} to be the last, in this order; the third is no candidate",
                why="the task would go back to a node that has just failed it, before all others have tried; "
                "let the answer go through dhtcrawl.policy.seam.failed_last(ranked, task.failed)",
            )


PARTS: Final[Sequence[Part]] = (
    well_formed,
    deterministic,
    total,
    stable,
    fair_to_change,
    forgiving,
    failed_nodes_last,
)


# What is asked of a policy, with words for what goes wrong


def _made(make: Make) -> Policy:
    policy: object = make()
    if not isinstance(policy, Policy):
        raise ContractError(
            f"{policy!r} is no policy\n  expected    an object of a subclass of dhtcrawl.policy.seam.Policy"
        )
    return policy


def _ranked(
    policy: Policy, number: int, candidates: Sequence[Candidate], now: float, failed: tuple[bytes, ...] = ()
) -> list[bytes]:
    try:
        # One that never ends, such as a cycle of the nodes, is seen to rank them twice.
        ranked = list(islice(policy.rank(task(number, failed), list(candidates), now), 2 * len(candidates) + 1))
    except Exception as error:
        _breaks(
            policy,
            did=f"raised {said(error)} in rank, for {_named(number)} and {len(candidates)} candidates",
            expected="ranks for any task and candidates, whatever it was told before",
            why=REPLACED,
        )
    wrong = [each for each in ranked if not isinstance(each, bytes)]
    if wrong:
        _breaks(
            policy,
            did=f"ranked {wrong[0]!r} for {_named(number)}",
            expected="a list of node ids, which are bytes: `candidate.node`",
            why=REPLACED,
        )
    return ranked


def _all_ranked(policy: Policy, number: int, candidates: Sequence[Candidate], now: float, when: str) -> None:
    ranked, there = _ranked(policy, number, candidates, now), [each.node for each in candidates]
    faults = {
        "left out": [each for each in there if each not in ranked],
        "ranked twice": [each for each in there if ranked.count(each) > 1],
        "ranked, though no candidate:": [each for each in ranked if each not in there],
    }
    for what, ids in faults.items():
        if ids:
            _breaks(
                policy,
                did=f"{what} {_ids(ids)}, for {_named(number)} and {len(there)} candidates, {when}",
                expected="each candidate once, and no other node",
                why="a node that is left out does not help where the others have no room or cannot connect; "
                + REPLACED,
            )


def _told(policy: Policy, outcome: Outcome, now: float) -> None:
    try:
        policy.heard(outcome, now)
    except Exception as error:
        _breaks(
            policy,
            did=f"raised {said(error)} in heard({outcome!r})",
            expected="any outcome to be taken, of known and unknown nodes and hosts",
            why=REPLACED,
        )


def _terms(policy: Policy, of: bytes, host: str) -> None:
    try:
        terms = policy.terms(of, host)
    except Exception as error:
        did = f"raised {said(error)} in terms"
    else:
        did = "" if sensible(terms) else f"answered terms with {terms!r}"
    if did:
        _breaks(
            policy,
            did=f"{did}, for a node and a host that it has not heard of",
            expected="AssignmentTerms with a batch of 1 to 1000, and positive times of at most an hour",
            why=f"the terms say how many tasks a node gets, and when they are taken back; {REPLACED}",
        )


def _breaks(policy: Policy, *, did: str, expected: str, why: str) -> NoReturn:
    name = policy.name or type(policy).__name__
    raise ContractError(f"{name} {did}\n  expected    {expected}\n  because     {why}")


def _url(number: int) -> str:
    return f"http://site-{number % 40}.test/{number}"


def _named(number: int) -> str:
    return f"task {number} ({_url(number)})"


def _ids(ids: Sequence[bytes], most: int = 4) -> str:
    shown = ", ".join(each.hex()[:8] for each in ids[:most])
    return f"[{shown}, and {len(ids) - most} more]" if len(ids) > most else f"[{shown}]"


def _lot(*of: int) -> int:
    return int.from_bytes(sha256(repr(of).encode()).digest()[:8], "big")
