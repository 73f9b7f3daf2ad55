"""The five ports through which a crawl uses the other nodes that take part in it.

    Ownership     which tasks are this node's
    Replication   links to their owners, records and bodies to further nodes
    Assignment    which node fetches a task
    Budget        how many pages the whole crawl may fetch
    SharedRecord  what all nodes know of the crawl

A crawl writes its own tasks and hands over those of other nodes. `dhtcrawl.crawl.single_node`
has the ports of a node by itself, `dhtcrawl.swarm` and `dhtcrawl.node` those of a swarm's
node. All methods are called on the event loop and return at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from dhtcrawl.policy.seam import TaskResult
from dhtcrawl.storage.store.ownership import OwnershipSnapshot
from dhtcrawl.storage.store.replicas import TaskReplica
from dhtcrawl.storage.store.tasks import Link, Queued

Copied = Callable[[bytes, tuple[bytes, ...]], None]  # (page, the nodes that have copies)


class TaskOutcome(NamedTuple):
    """How a task ended at the node that had it. An `UNREACHABLE` one may not have been tried itself: its host was."""

    key: bytes
    host: str
    result: TaskResult
    seconds: float
    connect_s: float | None = None  # the part of `seconds` until there was a connection
    bytes: int = 0
    detail: str = ""


class Ownership(Protocol):
    """Which tasks are this node's."""

    @property
    def alone(self) -> bool:
        """Whether the crawl ends by itself when nothing is left here."""
        ...

    def owns(self, key: bytes) -> bool:
        """Whether this node owns a task, by its present view."""
        ...

    def owned(self, keys: Iterable[bytes]) -> list[bytes]:
        """Those of these tasks that this node owns, for one call."""
        ...

    def mine(self, key: bytes) -> bool:
        """Whether a task belongs into this node's queues: the node has synced about it and may fetch it (I12)."""
        ...

    def held(self, key: bytes) -> bool:
        """Whether another node has a task of this node: assigned, or in flight since before this node owned it."""
        ...

    def stays(self, key: bytes) -> bool:
        """Whether this node may try a task once more that it could not fetch."""
        ...

    def waits(self, key: bytes) -> bool:
        """Whether a task is still to be assigned to a node, which `Assignment.assign` brings about."""
        ...

    def awaited(self, key: bytes) -> bool:
        """Whether the owner of a task that was fetched here waits for its end, since it had assigned it to us."""
        ...

    def snapshot(self, task_keys: Iterable[bytes] | None = None, /) -> OwnershipSnapshot:
        """`mine` and `held` as they are now, for a transaction: for these tasks only or, with None, for all."""
        ...


class Replication(Protocol):
    """Sends links, records and bodies that this node wrote to the other nodes that are to have them."""

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
            The links that are not sent, because too much waits for their owners. When there is
            room again, `acked` or `put_back` is called for other links.
        """
        ...

    def keep(self, copies: Sequence[TaskReplica], then: Callable[[], None], *, over: bool = False) -> None:
        """Give records to their backups; call `then()` once enough backups have them on disk (I1).

        `over` says that all records are done or dead: tombstones take fewer bytes.
        """
        ...

    def tell(self, copies: Sequence[TaskReplica]) -> None:
        """Tell owners that tasks of theirs are over, which they may not know."""
        ...

    def when_kept(self, key: bytes, then: Callable[[], None]) -> bool:
        """Call `then()` once an earlier `keep` of a record is through; return False if none is under way."""
        ...

    def unsafe(self, key: bytes) -> bool:
        """Whether the backups do not have a record yet; until then its task must not be fetched (I6)."""
        ...

    def copy(self, pages: Sequence[bytes], copied: Copied, *, again: bool) -> None:
        """Give the bodies of pages that are written here to further nodes (`--copies`).

        `copied(page, holders)` follows for each page, once as many nodes have the body as the
        crawl wants, or as there are. With `again` some nodes may have it already.
        """
        ...


class Assignment(Protocol):
    """Decides which node fetches a task."""

    def assign(self) -> None:
        """Assign the tasks in the frontier that wait for it."""
        ...

    def connect_s(self, host: str) -> float | None:
        """How long connecting to a host may take, in seconds; None for the configured limit."""
        ...

    def brought(self, given: TaskOutcome) -> None:
        """Note that this node fetched a task's page."""
        ...

    def passes_on(self, task: Queued, given: TaskOutcome) -> bool:
        """Pass a task that this node could not fetch on to other nodes, if that is possible.

        Returns:
            Whether it was passed on; then it has left the frontier.
        """
        ...

    def killed(self, key: bytes) -> None:
        """Note that a task is given up for a reason that holds at every node."""
        ...

    def released(self, key: bytes) -> None:
        """Tell the owner that this node could not fetch a task that it began while it owned it."""
        ...


class Budget(Protocol):
    """How many pages the whole crawl may fetch."""

    def may_start(self, pages_open: int) -> bool:
        """Whether one more page may be fetched; this node has `pages_open` pages that are not counted yet."""
        ...


class SharedRecord(Protocol):
    """Adds to the crawl's record, which every node has."""

    def announce(self, source: str, alias: str) -> Awaitable[None]:
        """Tell every node that a seed, `source`, redirects to `alias`; await this before links to that go out."""
        ...

    def catch_up(self) -> Awaitable[bool]:
        """Learn what the record of each other member has more; whether all of them answered."""
        ...

    def has_room(self) -> bool:
        """Whether the record could take a further seed; one that it cannot take is known to its node alone."""
        ...

    def took_part(self, nodes: Sequence[str]) -> None:
        """Note that these nodes (ids in hex) fetched pages of the crawl."""
        ...

    def stop(self, cause: str) -> Awaitable[None]:
        """Have the crawl stop on every node, for a limit that this one reached; `cause` is the word of its end."""
        ...


class CrawlPorts(NamedTuple):
    """The ports that the parts of a crawl are made with; `Crawl` gets `Assignment` and `Budget` by itself."""

    ownership: Ownership
    replication: Replication
    record: SharedRecord
