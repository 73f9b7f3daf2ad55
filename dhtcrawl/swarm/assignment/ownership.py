"""What a node owns of a crawl, and which of it others have: the crawl's port `Ownership` in a swarm. No I/O.

    claim      the keys that are this node's by its view (`dhtcrawl.swarm.claim`)
    inherited  its tasks that others had in flight when it became their owner
    asked      its tasks about which others are being asked
    lent       its tasks that are assigned to other nodes
    borrowed   tasks of others that are assigned to it

Where one task is, as its owner and as another node sees it; who holds it in brackets:

    owner    here [this node] ──assigned──▶ lent [worker] ──refused, given back──▶ here
             owned by another ──the view changes──▶ inherited [former owner, or its worker] ──not fetched──▶ here
             lent, inherited ──their holder is gone, restarted or silent──▶ asked [no node] ──all have answered──▶ here
    another  not its own ──`lend`──▶ borrowed [this node] ──outcome, recalled, owner changed or silent──▶ not its own

    from everywhere ──a record says that it is fetched, or dead──▶ over

All of it changes on the event loop. Transactions are given an `OwnershipSnapshot`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from dhtcrawl.loop_state import loop_state
from dhtcrawl.storage.store.ownership import NO_KEYS, OwnershipSnapshot
from dhtcrawl.swarm.assignment.assigned import Assigned, AssignedHere
from dhtcrawl.swarm.assignment.inherited import InheritedInFlight
from dhtcrawl.swarm.claim import KeyClaim


class KeySet:
    """Task keys in the order in which they came; `version` grows with every change."""

    def __init__(self) -> None:
        self.version = 0
        self._keys: dict[bytes, None] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def add(self, keys: Iterable[bytes]) -> None:
        """Add all of these."""
        self._keys |= dict.fromkeys(keys)
        self.version += 1

    def remove(self, keys: Iterable[bytes]) -> None:
        """Remove all of these.

        Raises:
            KeyError: one of them is not there.
        """
        for key in keys:
            del self._keys[key]
        self.version += 1


@loop_state
class SwarmOwnership:
    """The ownership of a crawl's tasks at one node."""

    alone = False

    def __init__(self, claim: KeyClaim, undecided: Container[bytes] = (), *, lends: bool = False) -> None:
        """`undecided` has the tasks for which the crawl's policy chooses the node.

        `lends`: it has other nodes fetch tasks of this one as a rule.
        """
        self.lends = lends
        self.releasing = 0  # tasks whose owners are being told that this node could not fetch them
        self._undecided = undecided
        self.inherited = InheritedInFlight()
        self.asked = KeySet()
        self.lent = Assigned()
        self.borrowed = AssignedHere()
        self._claim = claim
        self._plain = OwnershipSnapshot(claim.mine)
        self._whole = self._plain
        self._whole_of: tuple[int, ...] = self._versions()

    @property
    def claim(self) -> KeyClaim:
        """Which keys are this node's now; immutable, so a transaction may have it."""
        return self._claim

    def reclaim(self, claim: KeyClaim) -> None:
        """Take a new claim, after the view or its settled part has changed."""
        self._claim = claim
        self._plain = self._whole = OwnershipSnapshot(claim.mine)
        self._whole_of = ()

    def owns(self, key: bytes) -> bool:
        """Whether this node is the owner of a task by the view that it has now."""
        return self._claim.owns(key)

    def owned(self, keys: Iterable[bytes]) -> list[bytes]:
        """Those of these tasks that this node owns, for one call."""
        return self._claim.owned(keys)

    def mine(self, key: bytes) -> bool:
        """Whether a task belongs in this node's queues (I12)."""
        return self._claim.mine(key) or key in self.borrowed

    def held(self, key: bytes) -> bool:
        """Whether another node has a task that this one owns."""
        return key in self.inherited or key in self.asked or key in self.lent

    def may_end(self, key: bytes, node: bytes) -> bool:
        """Whether another node has a task of this one from it, or others are being asked who has it.

        What others say to have in flight since before does not count: they may say it of any task.
        """
        loan = self.lent.get(key)
        return key in self.asked or (loan is not None and loan.node == node)

    def stays(self, key: bytes) -> bool:
        """Whether this node may try a task again that it could not fetch."""
        return (self._claim.owns(key) and not self.held(key)) or key in self.borrowed

    def holders(self) -> dict[bytes, bytes]:
        """Which other node has which task. What we assigned ourselves goes before what others have told us of."""
        loans = {key: loan.node for key in self.lent if (loan := self.lent.get(key)) is not None}
        return self.inherited.holders() | loans

    def holder(self, key: bytes) -> bytes | None:
        """As `holders`, of one task."""
        loan = self.lent.get(key)
        return self.inherited.holders().get(key) if loan is None else loan.node

    def waits(self, key: bytes) -> bool:
        """Whether the policy has yet to choose which node fetches a task."""
        return key in self._undecided and key not in self.borrowed

    def awaited(self, key: bytes) -> bool:
        """Whether this node fetched a task for its owner, which owns it still and runs on."""
        return self.borrowed.was_brought(key)

    def snapshot(self, task_keys: Iterable[bytes] | None = None, /) -> OwnershipSnapshot:
        """`mine` and `held` of this moment, for these tasks only or, with None, for all.

        Copies no more than the tasks that are asked for; the snapshot of all tasks
        is kept until something changes.
        """
        if not (len(self.inherited) or len(self.asked) or len(self.lent) or len(self.borrowed)):
            return self._plain
        if task_keys is None:
            return self._of_all()
        asked = list(task_keys)
        here = frozenset(self.borrowed.among(asked)) if len(self.borrowed) else NO_KEYS
        # What `held` says, of many keys: two of the three are empty as a rule.
        held = self.lent.among(asked) if len(self.lent) else set[bytes]()
        for elsewhere in (self.inherited, self.asked):
            if len(elsewhere):
                held.update(filter(elsewhere.__contains__, asked))
        return OwnershipSnapshot(self._claim.mine, here, frozenset(held))

    def _of_all(self) -> OwnershipSnapshot:
        versions = self._versions()
        if self._whole_of != versions:
            elsewhere = frozenset().union(self.inherited, self.asked, self.lent)
            self._whole = OwnershipSnapshot(self._claim.mine, frozenset(self.borrowed), elsewhere)
            self._whole_of = versions
        return self._whole

    def _versions(self) -> tuple[int, ...]:
        return self.inherited.version, self.asked.version, self.lent.version, self.borrowed.version
