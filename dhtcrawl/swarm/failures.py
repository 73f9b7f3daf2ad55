"""Who brought nothing of a task of ours, and who cannot connect to a host: when nobody is left to ask. Pure.

That a node cannot connect says nothing of the page: another may be the only one
that reaches the host. So a task is given up for nodes that connected, and for
others only when all that may be asked have tried. What one task has shown of a
host holds for the others: of a dead host each node is asked once, not once for
each page.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from dhtcrawl.crawl.lending import Given
from dhtcrawl.policy.seam import Result

TASKS_MAX = 100_000
HOSTS_MAX = 10_000
# Whoever could not connect to a host is taken to be unable to for so long, or until it brings a page from there.
CANNOT_S = 300.0


class _Said(NamedTuple):
    words: str
    connected: bool


class Failures:
    """Of one crawl at an owner. Times are seconds on the caller's monotonic clock."""

    def __init__(self) -> None:
        self._said: dict[bytes, dict[bytes, _Said]] = {}  # key → node
        self._cannot: dict[str, dict[bytes, float]] = {}  # host → node → until when

    def __contains__(self, key: object) -> bool:
        return key in self._said

    def of(self, key: bytes) -> tuple[bytes, ...]:
        """The nodes that brought nothing of a task, in this order."""
        return tuple(self._said.get(key, ()))

    def is_left(self, key: bytes, host: str, nodes: Sequence[bytes], now: float, but: bytes = b"") -> bool:
        """Whether any of these, `but` one, might bring a task."""
        said, cannot = self._said.get(key, {}), self._cannot.get(host, {})
        return any(node not in said and cannot.get(node, now) <= now for node in nodes if node != but)

    def has_failed(self, key: bytes, node: bytes) -> bool:
        """Whether a node has had a task and brought nothing."""
        return node in self._said.get(key, {})

    def connected(self, key: bytes) -> int:
        """How many nodes connected for a task, and brought nothing."""
        return sum(said.connected for said in self._said.get(key, {}).values())

    def words(self, key: bytes) -> dict[bytes, str]:
        """What each node said that brought nothing of a task, in this order."""
        return {node: said.words for node, said in self._said.get(key, {}).items()}

    def note(self, node: bytes, given: Given) -> None:
        """A node brought nothing of a task."""
        said = self._said.pop(given.key, {})
        self._said[given.key] = said | {node: _Said(given.detail, given.result is not Result.UNREACHABLE)}
        if len(self._said) > TASKS_MAX:
            del self._said[next(iter(self._said))]

    def heard(self, node: bytes, given: Given, now: float) -> None:
        """What came of any task of a host at a node."""
        if given.result is Result.UNREACHABLE:
            cannot = self._cannot.pop(given.host, {})
            self._cannot[given.host] = cannot | {node: now + CANNOT_S}
            if len(self._cannot) > HOSTS_MAX:
                del self._cannot[next(iter(self._cannot))]
        elif given.result is Result.PAGE and given.host in self._cannot:
            self._cannot[given.host].pop(node, None)

    def forget(self, key: bytes) -> None:
        """What came of a task is known."""
        self._said.pop(key, None)

    def keep(self, mine: Callable[[bytes], bool]) -> None:
        """Forget the tasks that are not `mine`."""
        self._said = {key: said for key, said in self._said.items() if mine(key)}
