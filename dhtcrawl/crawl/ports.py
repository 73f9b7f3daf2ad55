"""What a crawl asks of the swarm, and the swarm of one.

A crawl writes its own tasks and hands the rest over: links to their owners,
copies of what it wrote to the backups. `SingleNode` is a node by itself, which owns
everything and has nobody to tell; `dhtcrawl.swarm` has the other one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from dhtcrawl.policy.seam import TaskResult
from dhtcrawl.storage.store.ownership import EVERYTHING, OwnershipSnapshot
from dhtcrawl.storage.store.replicas import TaskReplica
from dhtcrawl.storage.store.tasks import Link, Queued


class TaskOutcome(NamedTuple):
    """What came of one task at the node that had it. One of `UNREACHABLE` may never have been tried: its host was."""

    key: bytes
    host: str
    result: TaskResult
    seconds: float
    connect_s: float | None = None  # of them, until there was a connection
    bytes: int = 0
    detail: str = ""


class Together(Protocol):
    """One crawl's part of the swarm; all methods are called on the loop and return at once."""

    @property
    def alone(self) -> bool:
        """Whether the crawl ends by itself when nothing is left here."""
        ...

    @property
    def busy(self) -> bool:
        """Whether anything is under way to other nodes."""
        ...

    @property
    def joins(self) -> bool:
        """Whether anybody is joining, who is told of every change by those who own."""
        ...

    def owns(self, key: bytes) -> bool:
        """Whether this node is the owner of a key, by the view it has now."""
        ...

    def mine(self, key: bytes) -> bool:
        """Whether this node owns a task and knows what there is to know of it: it may fetch it (I12)."""
        ...

    def snapshot(self, task_keys: Iterable[bytes] | None = None, /) -> OwnershipSnapshot:
        """`mine` and `held` of this moment for a transaction, of these tasks only or, with None, of all."""
        ...

    def held(self, key: bytes) -> bool:
        """Whether another node is fetching a task of ours, because it owned it when it began."""
        ...

    def waits(self, key: bytes) -> bool:
        """Whether it is to be decided which node fetches a task, before it may start; `assign` asks for that."""
        ...

    def assign(self) -> None:
        """Tasks in the frontier wait to be assigned."""
        ...

    def stays(self, key: bytes) -> bool:
        """Whether this node may try a task again that came to nothing here."""
        ...

    def connect_s(self, host: str) -> float | None:
        """How long a connection to a host may take, where that is not for this node to say."""
        ...

    def brought(self, given: TaskOutcome) -> None:
        """A page came."""
        ...

    def passes_on(self, task: Queued, given: TaskOutcome) -> bool:
        """A task came to nothing here; whether it is for others to go on with, and has left the frontier."""
        ...

    def killed(self, key: bytes) -> None:
        """A task is given up here, for a reason that is the same everywhere."""
        ...

    def send(self, links: Sequence[Link]) -> None:
        """Links of other owners; `RoundWriter.acked` or `RoundWriter.put_back` follows for each."""
        ...

    def keep(self, copies: Sequence[TaskReplica], then: Callable[[], None]) -> None:
        """Records as they are now, for their backups; `then()` once enough of them have it on disk (I1)."""
        ...

    def bury(self, copies: Sequence[TaskReplica], then: Callable[[], None]) -> None:
        """Records that are over; the same with less to send."""
        ...

    def tell(self, copies: Sequence[TaskReplica]) -> None:
        """Records of others that are over, as we have just learned: their owners may not know."""
        ...

    def copy(self, pages: Sequence[bytes], copied: Callable[[bytes, tuple[bytes, ...]], None], *, again: bool) -> None:
        """Bodies of pages that are written here, for further nodes (`--copies`).

        `copied(page, holders)` follows for each: as many nodes have it as the
        crawl wants, or as there are. With `again` some may have it already.
        """
        ...

    def when_kept(self, key: bytes, then: Callable[[], None]) -> bool:
        """Call `then()` once an earlier `keep` of this record is through; False where nothing is under way."""
        ...

    def unsafe(self, key: bytes) -> bool:
        """Whether the backups do not have a record yet: it is not to be fetched before (I6)."""
        ...

    def released(self, key: bytes) -> None:
        """A task that was in flight when another node became its owner came to nothing here."""
        ...

    def announce(self, aliases: Sequence[str]) -> Awaitable[None]:
        """Let every node know of further seeds before links to them go out."""
        ...

    def took_part(self, nodes: Sequence[str]) -> None:
        """These nodes, in hex, fetched pages of the crawl: records say so."""
        ...

    def may_start(self, pages_open: int) -> bool:
        """Whether one more page fits into what the whole crawl may fetch."""
        ...


class SingleNode:
    """Nobody else."""

    alone = True
    busy = False
    joins = False

    def owns(self, key: bytes) -> bool:
        return True

    def mine(self, key: bytes) -> bool:
        return True

    def snapshot(self, task_keys: Iterable[bytes] | None = None, /) -> OwnershipSnapshot:
        return EVERYTHING

    def held(self, key: bytes) -> bool:
        return False

    def waits(self, key: bytes) -> bool:
        return False

    def assign(self) -> None:
        raise AssertionError("nothing waits for anybody")

    def stays(self, key: bytes) -> bool:
        return True

    def connect_s(self, host: str) -> float | None:
        return None

    def brought(self, given: TaskOutcome) -> None:
        return

    def passes_on(self, task: Queued, given: TaskOutcome) -> bool:
        return False

    def killed(self, key: bytes) -> None:
        return

    def send(self, links: Sequence[Link]) -> None:
        assert not links, "there is no other owner"

    def keep(self, copies: Sequence[TaskReplica], then: Callable[[], None]) -> None:
        then()

    def bury(self, copies: Sequence[TaskReplica], then: Callable[[], None]) -> None:
        then()

    def tell(self, copies: Sequence[TaskReplica]) -> None:
        raise AssertionError("nobody else can have told of it")

    def copy(self, pages: Sequence[bytes], copied: Callable[[bytes, tuple[bytes, ...]], None], *, again: bool) -> None:
        for page in pages:
            copied(page, ())

    def when_kept(self, key: bytes, then: Callable[[], None]) -> bool:
        return False

    def unsafe(self, key: bytes) -> bool:
        return False

    def released(self, key: bytes) -> None:
        raise AssertionError("nobody else can have become its owner")

    async def announce(self, aliases: Sequence[str]) -> None:
        return

    def took_part(self, nodes: Sequence[str]) -> None:
        raise AssertionError("nobody else can have told of it")

    def may_start(self, pages_open: int) -> bool:
        return True
