"""Answers the messages of other nodes, kind by kind (`docs/protocol.md`).

    STORE_TASK      the owner accepts, replicates, acks; another node says MOVED (I1, I7); FAILED beyond the scope
    STORE_BACKUP    merged; the ack has what we know better (I6); FAILED where a page is said to lie at an unknown node,
                    or a task of ours to be over that its sender was not given, or where the ack has no room for more
    DELETE_BACKUP   the same for tombstones
    REFRESH_TASK    a page of the records that the asker and we share (I5, I12)
    CALL            by name, see `dhtcrawl.rpc.peers.port`

Storing a replica never waits for another node, so two nodes that send each
other replicas cannot wait for each other (I13).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from dhtcrawl.errors import StorageError
from dhtcrawl.keyspace import KEY_BYTES, TaskKeys, unknown_keys
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
from dhtcrawl.storage.store.ownership import NO_KEYS
from dhtcrawl.storage.store.replicas import End, TaskReplica
from dhtcrawl.storage.store.tasks import Link
from dhtcrawl.swarm.records import wire
from dhtcrawl.swarm.records.doubts import Doubts
from dhtcrawl.swarm.records.merger import Merger

_ACCEPTED, _KNOWN, _FAILED = int(Code.ACCEPTED), int(Code.KNOWN), int(Code.FAILED)
NO_PLACE = bytes(KEY_BYTES)  # of a link that is refused


@loop_state
class Inbox:
    """Receives the messages to one node, for all its crawls."""

    def __init__(
        self,
        peers: Peers,
        registry: CallRegistry,
        group: asyncio.TaskGroup,
        merger: Merger,
        *,
        refresh: Callable[[bytes, RefreshTask], Awaitable[Records | Refused]],
        doubts: Doubts,
        awake: Callable[[], bool] = lambda: True,
    ) -> None:
        """`refresh(asker, message)` answers REFRESH_TASK; `awake()`: whether this node has run without a pause."""
        self.owning = False  # links are refused until this node knows what it owns (I12)
        self.links_taken = 0
        self.records_taken = 0
        self._peers = peers
        self._registry = registry
        self._group = group
        self._merger = merger
        self._refresh = refresh
        self._awake = awake
        self._doubts = doubts

    def handle(self, hello: Hello, message: Request) -> Reply | asyncio.Future[Reply]:
        """The answer to a peer's message, or a future of it."""
        if isinstance(message, Call):
            return self._registry.answer(hello.node_id, message, self._group)
        return self._group.create_task(self._answer(hello.node_id, message))

    async def _answer(self, asker: bytes, message: Request) -> Reply:
        try:
            if isinstance(message, StoreTask):
                return await self._store_task(asker, message)
            if isinstance(message, StoreBackup):
                return await self._store_backup(asker, message)
            if isinstance(message, DeleteBackup):
                return await self._delete_backup(asker, message)
            assert isinstance(message, RefreshTask), "calls are answered elsewhere"
            return await self._refresh(asker, message)
        except StorageError as error:
            # The node is about to stop because of it. The answer says so, and the peer asks another node.
            return Refused("storage", type(error).__name__)

    # STORE_TASK

    async def _store_task(self, asker: bytes, message: StoreTask) -> Reply:
        run = self._merger.run_of(message.crawl)
        if run is None:
            return Refused(UNKNOWN_CRAWL, message.crawl.hex())
        if not self._awake() or not self.owning:
            return Ack.all(Code.FAILED, message.items, "joining")
        found: Sequence[Link | None] = wire.links_of(message.links, run.keys)
        beyond = await self._doubts.beyond(asker, message.crawl, found)
        if beyond:
            found = [None if link is None or link.key in beyond else link for link in found]
        codes, moved, named = self._sort(found, message.tried)
        taken = [link for link, code in zip(found, codes, strict=True) if code == _ACCEPTED and link is not None]
        self.links_taken += len(taken)
        if taken:
            new = await run.intake.accept(taken)
            codes = bytearray(
                [
                    _KNOWN if code == _ACCEPTED and row[0] not in new else code
                    for row, code in zip(message.links, codes, strict=True)
                ]
            )
        return Ack(bytes(codes), bytes(moved), tuple(named))

    def _sort(
        self, links: Sequence[Link | None], tried: tuple[bytes, ...]
    ) -> tuple[bytearray, bytearray, list[PeerRow]]:
        """Find each link's owner: the codes, an index into the owners for each that moved, and these owners."""
        view, own = self._peers.view, self._peers.node_id
        owners = view.owners([NO_PLACE if link is None else link.key[:KEY_BYTES] for link in links])  # their placements
        codes, moved = bytearray(), bytearray()
        named: dict[bytes, int] = {}
        rows: list[PeerRow] = []
        first = owners[0]
        if first is not None and first.id == own and owners.count(first) == len(links) and None not in links:
            return bytearray([_ACCEPTED]) * len(links), moved, rows  # the usual case
        for link, owner in zip(links, owners, strict=True):
            if link is None:
                codes.append(Code.FAILED)
            elif owner is None or owner.id == own or owner.id in tried:
                codes.append(Code.ACCEPTED)
            elif owner.state is MemberState.SUSPECTED or (owner.id not in named and len(rows) == PEERS_MAX):
                # This owner is not named to others: the sender tries again, or leaves the link in our custody.
                codes.append(Code.FAILED)
            else:
                if owner.id not in named:
                    named[owner.id] = len(rows)
                    rows.append(PeerRow(owner.id, *owner.address))
                codes.append(Code.MOVED)
                moved.append(named[owner.id])
        return codes, moved, rows

    # STORE_BACKUP, DELETE_BACKUP

    async def _store_backup(self, asker: bytes, message: StoreBackup) -> Reply:
        keys = self._keys(message.crawl, message.records[0].key)
        found: Sequence[TaskReplica | None] = wire.copies_in(message.records, keys)
        good = [copy for copy in found if copy is not None]
        held = [(copy.key, copy.task.place) for copy in good if copy.task.place is not None]
        unheld = self._doubts.unheld(asker, message.crawl, held) if held else NO_KEYS
        if unheld:
            found = [None if copy is None or copy.key in unheld else copy for copy in found]
            good = [copy for copy in found if copy is not None]
        self.records_taken += len(good)
        merged = await self._merger.merge(message.crawl, good, asker)
        told, untold = wire.tellable(merged.further)
        failed = untold.union(merged.doubted)
        codes = bytes([_FAILED if copy is None or copy.key in failed else _ACCEPTED for copy in found])
        self._learn(asker, message.crawl, message.safe, len(message.records[0].key))
        return Ack(codes, records=tuple(map(wire.record_of, told)))

    async def _delete_backup(self, asker: bytes, message: DeleteBackup) -> Reply:
        keys = self._keys(message.crawl, message.tombstones[0].key)
        found: Sequence[End | None] = wire.ends_in(message.tombstones, keys)
        ends = [end for end in found if end is not None]
        unheld = self._doubts.unheld(asker, message.crawl, [(end.key, end.place) for end in ends])
        if unheld:
            found = [None if end is None or end.key in unheld else end for end in found]
            ends = [end for end in found if end is not None]
        self.records_taken += len(ends)
        known, merged = await self._merger.bury(message.crawl, ends, asker)
        self._learn(asker, message.crawl, message.safe, len(message.tombstones[0].key))
        told, untold = wire.tellable(merged.further)
        there = iter(known)
        codes = bytes(
            [_ACCEPTED if end is not None and next(there) and end.key not in untold else _FAILED for end in found]
        )
        return Ack(codes, records=tuple(map(wire.record_of, told)))

    def _learn(self, owner: bytes, crawl: bytes, safe: bytes, width: int) -> None:
        """Note which of its tasks a node says to be safe, as an ACK of their links would; of others it has no say."""
        run = self._merger.run_of(crawl) if safe else None
        if run is None or width != run.keys.width:
            return
        task_keys = [safe[at : at + width] for at in range(0, len(safe), width)]
        owners = self._peers.view.owners([key[:KEY_BYTES] for key in task_keys])
        theirs = [key for key, found in zip(task_keys, owners, strict=True) if found and found.id == owner]
        run.intake.known_to_owner(theirs)

    def _keys(self, crawl: bytes, key: bytes) -> TaskKeys:
        """A crawl's task keys; for one that does not run here as long as `key`, which is from the message."""
        run = self._merger.run_of(crawl)
        return unknown_keys(len(key)) if run is None else run.keys
