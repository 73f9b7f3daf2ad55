"""What a crawl asks of whoever else takes part in it: five ports.

    Ownership     which tasks are this node's
    Replication   links to their owners, records and bodies to further nodes
    Assignment    which node fetches a task
    Budget        how many pages the whole crawl may fetch
    SharedRecord  what all nodes know of the crawl

A crawl writes its own tasks and hands over the rest. `dhtcrawl.crawl.single_node` has the
ports of a node by itself, `dhtcrawl.swarm` and `dhtcrawl.node` those of a swarm's node. All
methods are called on the event loop and return at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from dhtcrawl.policy.seam import TaskResult
from dhtcrawl.storage.store.ownership import OwnershipSnapshot
from dhtcrawl.storage.store.replicas import TaskReplica
from dhtcrawl.storage.store.tasks import Link, Queued

Copied = Callable[[bytes, tuple[bytes, ...]], None]  # (page, the nodes that have copies)


class TaskOutcome(NamedTuple):
    """How a task ended at the node that had it. One of `UNREACHABLE` may never have been tried: its host was."""

    key: bytes
    host: str
    result: TaskResult
    seconds: float
    connect_s: float | None = None  # of them, until there was a connection
    bytes: int = 0
    detail: str = ""


class Ownership(Protocol):
    """Which tasks are this node's."""

    @property
    def alone(self) -> bool:
        """Whether the crawl ends by itself when nothing is left here."""
        ...

    def owns(self, key: bytes) -> bool:
        """Whether this node is the owner of a task, by the view it has now."""
        ...

    def mine(self, key: bytes) -> bool:
        """Whether a task belongs into this node's queues: it knows what there is to know, and may fetch it (I12)."""
        ...

    def held(self, key: bytes) -> bool:
        """Whether another node has a task of this one: for this one, or since before it was its owner."""
        ...

    def stays(self, key: bytes) -> bool:
        """Whether this node may try a task again that it could not fetch."""
        ...

    def waits(self, key: bytes) -> bool:
        """Whether it is still to be decided which node fetches a task; `Assignment.assign` asks for that."""
        ...

    def snapshot(self, task_keys: Iterable[bytes] | None = None, /) -> OwnershipSnapshot:
        """`mine` and `held` of this moment for a transaction, of these tasks only or, with None, of all."""
        ...


class Replication(Protocol):
    """Takes what this node wrote to the other nodes that are to have it."""

    @property
    def busy(self) -> bool:
        """Whether anything is under way to other nodes."""
        ...

    @property
    def joins(self) -> bool:
        """Whether a node is joining: owners tell it of every change."""
        ...

    def send(self, links: Sequence[Link]) -> list[Link]:
        """Send links to their owners; `NextRound.acked` or `NextRound.put_back` follows for each.

        Returns:
            Those that are not sent, as too much waits for their owners. One of the two
            is called for others when there is room.
        """
        ...

    def keep(self, copies: Sequence[TaskReplica], then: Callable[[], None], *, over: bool = False) -> None:
        """Give records to their backups; `then()` once enough of them have them on disk (I1).

        `over`: all of them are done or dead, which takes less to say.
        """
        ...

    def tell(self, copies: Sequence[TaskReplica]) -> None:
        """Tell owners that records of theirs are over, which they may not know."""
        ...

    def when_kept(self, key: bytes, then: Callable[[], None]) -> bool:
        """Call `then()` once an earlier `keep` of a record is through; False where none is under way."""
        ...

    def unsafe(self, key: bytes) -> bool:
        """Whether the backups do not have a record yet: it is not to be fetched before (I6)."""
        ...

    def copy(self, pages: Sequence[bytes], copied: Copied, *, again: bool) -> None:
        """Give the bodies of pages that are written here to further nodes (`--copies`).

        `copied(page, holders)` follows for each: as many nodes have it as the
        crawl wants, or as there are. With `again` some may have it already.
        """
        ...


class Assignment(Protocol):
    """Decides which node fetches a task."""

    def assign(self) -> None:
        """Tasks in the frontier wait to be assigned."""
        ...

    def connect_s(self, host: str) -> float | None:
        """How long a connection to a host may take, where another node has said so."""
        ...

    def brought(self, given: TaskOutcome) -> None:
        """Note that this node fetched a task's page."""
        ...

    def passes_on(self, task: Queued, given: TaskOutcome) -> bool:
        """Whether others go on with a task that this node could not fetch; then it has left the frontier."""
        ...

    def killed(self, key: bytes) -> None:
        """Note that a task is given up here, for a reason that is the same at every node."""
        ...

    def released(self, key: bytes) -> None:
        """Tell the owner that this node could not fetch a task which it began when it owned it."""
        ...


class Budget(Protocol):
    """How many pages the whole crawl may fetch."""

    def may_start(self, pages_open: int) -> bool:
        """Whether one more page may be fetched, when this node has `pages_open` that it has not counted yet."""
        ...


class SharedRecord(Protocol):
    """The crawl's record, which every node has: what each learns that all have to know."""

    def announce(self, aliases: Sequence[str]) -> Awaitable[None]:
        """Let every node know of further seeds; done before links to them go out."""
        ...

    def took_part(self, nodes: Sequence[str]) -> None:
        """Note that these nodes, named in hex, fetched pages of the crawl."""
        ...


@dataclass(frozen=True, slots=True)
class CrawlPorts:
    """The ports that the parts of a crawl are made with; `Assignment` and `Budget` are for whoever runs it."""

    ownership: Ownership
    replication: Replication
    record: SharedRecord
