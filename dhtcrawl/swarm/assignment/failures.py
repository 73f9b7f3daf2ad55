"""Which nodes have failed a task of ours, and which cannot connect to an origin: whether one is left to ask. Pure.

That a node cannot connect says nothing about the page: another may be the only one that reaches the host. So nodes that
connected decide when a task is given up; without them it is given up only when all that may be asked have tried. What
one task has shown of an origin holds for the others: of a dead origin each node is asked once, not once for each page.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import NamedTuple

from dhtcrawl.crawl.ports import TaskOutcome
from dhtcrawl.loop_state import loop_state
from dhtcrawl.policy.guard import Guard
from dhtcrawl.policy.seam import TaskResult

TASKS_MAX = 100_000
ORIGINS_MAX = 10_000
# A node that could not connect to an origin is not asked for so long, or until it brings a page of the host.
CANNOT_S = 300.0


class _Said(NamedTuple):
    words: str
    connected: bool


class _Recalls(NamedTuple):
    host: str
    counted: dict[bytes, int]  # node → how many of its recalls count; the last node at the end


@loop_state
class Failures:
    """What an owner knows of failures in one crawl. Times are seconds on the caller's monotonic clock."""

    def __init__(self) -> None:
        self._said: dict[bytes, dict[bytes, _Said]] = {}  # key → node
        self._cannot: dict[str, dict[bytes, float]] = {}  # origin → node → until when
        self._recalled: dict[bytes, _Recalls] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._said

    def of(self, key: bytes) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
        """The nodes that failed a task, in this order; those that had no time for it, in this order."""
        recalls = self._recalled.get(key)
        return tuple(self._said.get(key, ())), () if recalls is None else tuple(recalls.counted)

    def is_left(self, key: bytes, origin: str, nodes: Sequence[bytes], now: float) -> bool:
        """Whether any of these nodes might fetch a task."""
        said, cannot = self._said.get(key, {}), self._cannot.get(origin, {})
        return any(node not in said and cannot.get(node, now) <= now for node in nodes)

    def is_dead(self, origin: str, nodes: Sequence[bytes], now: float) -> bool:
        """Whether none of these nodes, of which there is one at least, could connect to an origin lately."""
        cannot = self._cannot.get(origin, {})
        return bool(nodes) and all(cannot.get(node, now) > now for node in nodes)

    def knows(self, origin: str) -> bool:
        """Whether a node could not connect to an origin, some time ago."""
        return origin in self._cannot

    def has_failed(self, key: bytes, node: bytes) -> bool:
        """Whether a node has failed a task."""
        return node in self._said.get(key, {})

    def connected(self, key: bytes) -> int:
        """How many nodes connected for a task, and failed it."""
        return sum(said.connected for said in self._said.get(key, {}).values())

    def words(self, key: bytes) -> dict[bytes, str]:
        """What each node said that failed a task, in this order."""
        return {node: said.words for node, said in self._said.get(key, {}).items()}

    def note(self, node: bytes, given: TaskOutcome) -> None:
        """Note that a node failed a task."""
        said = self._said.pop(given.key, {})
        self._said[given.key] = said | {node: _Said(given.detail, given.result is not TaskResult.UNREACHABLE)}
        if len(self._said) > TASKS_MAX:
            del self._said[next(iter(self._said))]

    def recalls(self, key: bytes) -> int:
        """How many recalls of a task count."""
        recalls = self._recalled.get(key)
        return 0 if recalls is None else sum(recalls.counted.values())

    def recalled_words(self, key: bytes) -> tuple[str, str]:
        """The host of a task whose recalls count, and for people, which nodes had it."""
        host, counted = self._recalled[key]
        times = (f"{node.hex()[:8]} ({count})" for node, count in counted.items() if count)
        return host, f"taken and not begun, recalled from: {', '.join(times)}"

    def recalled(self, key: bytes, node: bytes, host: str, *, counts: bool) -> None:
        """Note that a task came back from a node that had no time for it, or does not report."""
        _, counted = self._recalled.pop(key, (host, {}))
        times = counted.pop(node, 0) + counts
        self._recalled[key] = _Recalls(host, {**counted, node: times})
        if len(self._recalled) > TASKS_MAX:
            del self._recalled[next(iter(self._recalled))]

    def cannot(self, node: bytes, origin: str, now: float) -> None:
        """Note that a node could not connect to an origin."""
        nodes = self._cannot.pop(origin, {})
        self._cannot[origin] = nodes | {node: now + CANNOT_S}
        if len(self._cannot) > ORIGINS_MAX:
            del self._cannot[next(iter(self._cannot))]

    def reaches(self, node: bytes, host: str) -> None:
        """Note that a node fetched a page of a host, over http or https."""
        for scheme in ("http", "https") if self._cannot else ():
            self._cannot.get(f"{scheme}://{host}", {}).pop(node, None)

    def forget(self, key: bytes) -> None:
        """Forget a task whose outcome is known."""
        self._said.pop(key, None)
        self._recalled.pop(key, None)

    def keep(self, mine: Callable[[bytes], bool]) -> None:
        """Forget the tasks that are not `mine`."""
        self._said = {key: said for key, said in self._said.items() if mine(key)}
        self._recalled = {key: recalls for key, recalls in self._recalled.items() if mine(key)}


class EveryTask:
    """Contains the key of every task."""

    def __contains__(self, key: object) -> bool:
        return True


def undecided(policy: Guard | None, failures: Failures) -> Container[bytes]:
    """The tasks for which a crawl's policy chooses the node: where owners try first, those that they failed."""
    if policy is None:
        return ()
    return failures if policy.owner_first else EveryTask()
