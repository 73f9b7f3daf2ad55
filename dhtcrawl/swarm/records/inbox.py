"""What other nodes ask of this one, message by message (`docs/protocol.md`).

    STORE_TASK      the owner accepts, replicates, acks; anybody else says MOVED (I1, I7)
    STORE_BACKUP    merged, and answered with what we know better (I6)
    DELETE_BACKUP   the same for records that are over
    REFRESH_TASK    a page of what the asker and we share (I5, I12)
    CALL            by name, see `dhtcrawl.rpc.peers.port`

Copies never wait for another node, so two nodes that send each other copies
cannot wait for each other (I13).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from dhtcrawl.crawl.intake import Intake
from dhtcrawl.errors import StorageError
from dhtcrawl.keyspace import placement
from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.membership.view import MemberState
from dhtcrawl.rpc.peers.port import UNKNOWN_CRAWL, CallRegistry, Peers
from dhtcrawl.rpc.tasks.messages import (
    PEERS_MAX,
    Ack,
    Call,
    Code,
    DeleteBackup,
    Records,
    RefreshTask,
    Refused,
    Reply,
    Request,
    StoreBackup,
    StoreTask,
)
from dhtcrawl.rpc.tasks.rows import PeerRow
from dhtcrawl.rpc.tasks.signals import Hello
from dhtcrawl.storage.store import ownership, replicas
from dhtcrawl.storage.store.committer import Committer
from dhtcrawl.storage.store.ownership import OwnershipSnapshot, TakeSnapshot
from dhtcrawl.storage.store.replicas import Merged, TaskReplica
from dhtcrawl.storage.store.tasks import Link
from dhtcrawl.swarm.records import wire


class InboxRun(Protocol):
    """A crawl that runs here, as its messages see it."""

    @property
    def intake(self) -> Intake: ...

    @property
    def key_bytes(self) -> int: ...

    @property
    def depth_matters(self) -> bool: ...

    def snapshot(self, task_keys: Iterable[bytes] | None = None, /) -> OwnershipSnapshot: ...

    def heard(self, found: Sequence[TaskReplica]) -> None:
        """Copies of these came from another node."""
        ...

    def buried(self, keys: Sequence[bytes]) -> None:
        """These are over."""
        ...


@loop_state
class Inbox:
    """Of one node."""

    def __init__(
        self,
        peers: Callable[[], Peers],
        registry: CallRegistry,
        committer: Committer,
        group: asyncio.TaskGroup,
        *,
        incarnation: int,
        run_of: Callable[[bytes], InboxRun | None],
        refresh: Callable[[bytes, RefreshTask], Awaitable[Records | Refused]],
        awake: Callable[[], bool] = lambda: True,
    ) -> None:
        self.owning = False  # whether links are taken: not before this node knows what it owns (I12)
        self.links_taken = 0
        self.records_taken = 0
        self._peers = peers
        self._registry = registry
        self._committer = committer
        self._group = group
        self.orders = itertools.count(incarnation << 40)
        self._run_of = run_of
        self._refresh = refresh
        self._awake = awake

    def handle(self, hello: Hello, message: Request) -> Reply | asyncio.Future[Reply]:
        """The answer to a peer, or a future of it."""
        if isinstance(message, Call):
            return self._registry.answer(hello.node_id, message, self._group)
        return self._group.create_task(self._answer(hello.node_id, message))

    async def _answer(self, asker: bytes, message: Request) -> Reply:
        try:
            if isinstance(message, StoreTask):
                return await self._store_task(message)
            if isinstance(message, StoreBackup):
                return await self._store_backup(message)
            if isinstance(message, DeleteBackup):
                return await self._delete_backup(message)
            assert isinstance(message, RefreshTask), "calls are answered elsewhere"
            return await self._refresh(asker, message)
        except StorageError as error:
            # The node is about to end over it, and says so; the peer asks another one.
            return Refused("storage", type(error).__name__)

    # STORE_TASK

    async def _store_task(self, message: StoreTask) -> Reply:
        run = self._run_of(message.crawl)
        if run is None:
            return Refused(UNKNOWN_CRAWL, message.crawl.hex())
        if not self._awake() or not self.owning:
            return Ack.all(Code.FAILED, message.items, "joining")
        found = [wire.link_of(row, run.key_bytes) for row in message.links]
        codes, moved, named = self._sort(found, message.tried)
        taken = [link for link, code in zip(found, codes, strict=True) if code == Code.ACCEPTED and link is not None]
        self.links_taken += len(taken)
        if taken:
            new = await run.intake.accept(taken)
            codes = bytearray(
                Code.KNOWN if code == Code.ACCEPTED and row.key not in new else code
                for row, code in zip(message.links, codes, strict=True)
            )
        return Ack(bytes(codes), bytes(moved), tuple(named))

    def _sort(self, links: list[Link | None], tried: tuple[bytes, ...]) -> tuple[bytearray, bytearray, list[PeerRow]]:
        """Whose each link is: a code each, and for those that moved an index into the peers to ask instead."""
        peers = self._peers()
        view, own = peers.view, peers.node_id
        codes, moved = bytearray(), bytearray()
        named: dict[bytes, int] = {}
        rows: list[PeerRow] = []
        for link in links:
            owner = None if link is None else view.owner(placement(link.key))
            if link is None:
                codes.append(Code.FAILED)
            elif owner is None or owner.id == own or owner.id in tried:
                codes.append(Code.ACCEPTED)
            elif owner.state is MemberState.SUSPECTED or (owner.id not in named and len(rows) == PEERS_MAX):
                # Not one to name to others; the sender tries again, or sends it into our custody.
                codes.append(Code.FAILED)
            else:
                if owner.id not in named:
                    named[owner.id] = len(rows)
                    rows.append(PeerRow(owner.id, *owner.address))
                codes.append(Code.MOVED)
                moved.append(named[owner.id])
        return codes, moved, rows

    # STORE_BACKUP, DELETE_BACKUP

    async def _store_backup(self, message: StoreBackup) -> Reply:
        width = self._width(message.crawl, message.records[0].key)
        found = [wire.copy_of(row, width) for row in message.records]
        good = [copy for copy in found if copy is not None]
        self.records_taken += len(good)
        merged = await self.merge(message.crawl, good)
        codes = bytes(Code.FAILED if copy is None else Code.ACCEPTED for copy in found)
        return Ack(codes, records=tuple(map(wire.record_of, merged.further)))

    async def _delete_backup(self, message: DeleteBackup) -> Reply:
        run = self._run_of(message.crawl)
        width = self._width(message.crawl, message.tombstones[0].key)
        found = [wire.end_of(row, width) for row in message.tombstones]
        ends = [end for end in found if end is not None]
        self.records_taken += len(ends)
        now = _take_snapshot(run)(end.key for end in ends)
        write: Any = partial(replicas.bury, crawl=message.crawl, ends=ends, mine=now.mine, held=now.held)
        known, merged = await self._committer.submit(write)
        if run is not None:
            run.buried([end.key for end, there in zip(ends, known, strict=True) if there])
            run.intake.merged(merged)
        there = iter(known)
        codes = bytes(Code.ACCEPTED if end is not None and next(there) else Code.FAILED for end in found)
        return Ack(codes, records=tuple(map(wire.record_of, merged.further)))

    def _width(self, crawl: bytes, key: bytes) -> int:
        """How long the task keys of a crawl are; of one that we don't know, as the message has it."""
        run = self._run_of(crawl)
        return len(key) if run is None else run.key_bytes

    async def merge(self, crawl: bytes, records: list[TaskReplica]) -> Merged:
        """Merge records of other nodes into the store; what we know better."""
        run = self._run_of(crawl)
        now = _take_snapshot(run)(record.key for record in records)
        merged: Merged = await self._committer.submit(
            partial(
                replicas.merge_in,
                crawl=crawl,
                copies=records,
                orders=self.orders,
                mine=now.mine,
                held=now.held,
                depth_matters=run is not None and run.depth_matters,
            )
        )
        if run is not None:
            # Not before it is written: whoever looks for what there is to fetch would find it as pending, and not held.
            run.heard(records)
            run.intake.merged(merged)
        return merged


def _take_snapshot(run: InboxRun | None) -> TakeSnapshot:
    """Records of a crawl that does not run here are only kept (I4)."""
    return ownership.nothing if run is None else run.snapshot
