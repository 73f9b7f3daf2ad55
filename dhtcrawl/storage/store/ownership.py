"""Snapshots of which tasks a node may fetch, for transactions.

Transactions run on the committer's thread while the event loop goes on changing
which tasks the node owns and which are assigned. So a transaction gets a snapshot that
was taken on the loop when the transaction was submitted. Transactions run in the
order in which they were submitted: code that changes ownership on the loop, and then
submits a transaction that puts the queues right, corrects what earlier ones decided.
What their results bring into memory is checked once more on the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

Test = Callable[[bytes], bool]  # of a task key
NO_KEYS: frozenset[bytes] = frozenset()


class OwnershipSnapshot(NamedTuple):
    """Which tasks belong into this node's queues; never changes."""

    claims: Test  # of an immutable claim: the node owns the task and has synced about it
    here: frozenset[bytes] = NO_KEYS  # tasks of other nodes that are assigned to this one
    elsewhere: frozenset[bytes] = NO_KEYS  # tasks of this node that other nodes have

    def mine(self, key: bytes) -> bool:
        """Whether this node may fetch a task (I12)."""
        return self.claims(key) or key in self.here

    def held(self, key: bytes) -> bool:
        """Whether another node has a task of this node."""
        return key in self.elsewhere

    @property
    def is_mine(self) -> Test:
        """The same as `mine`, for less where no task of another node is here."""
        return self.mine if self.here else self.claims


class TakeSnapshot(Protocol):
    """Takes a snapshot on the event loop."""

    def __call__(self, task_keys: Iterable[bytes] | None = None, /) -> OwnershipSnapshot:
        """The ownership as it is now, for `task_keys` only or, with None, for all tasks."""


EVERYTHING = OwnershipSnapshot(lambda _: True)  # of a node by itself
NOTHING = OwnershipSnapshot(lambda _: False)  # of a crawl that does not run here, but whose records are kept


def nothing(_: Iterable[bytes] | None = None) -> OwnershipSnapshot:
    """`TakeSnapshot` of a crawl that does not run here."""
    return NOTHING
