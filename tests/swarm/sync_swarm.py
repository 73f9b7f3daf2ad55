"""A few nodes that hold the records of a crawl in stores in memory, and sync them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from harness.world import Node, World
from storage.stores import CRAWL

from dhtcrawl.keyspace import TaskKeys, host_key, placement, url_key
from dhtcrawl.rpc.membership.view import MemberState
from dhtcrawl.rpc.tasks.messages import Ack, Code, Message, Records, RefreshTask, Reply, StoreBackup
from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store import replicas as stored
from dhtcrawl.storage.store.ownership import OwnershipSnapshot
from dhtcrawl.storage.store.records import Task, essence, merge, unpack_task
from dhtcrawl.storage.store.replicas import Merged, TaskReplica
from dhtcrawl.storage.store.txn import Txn
from dhtcrawl.swarm.calls.records import Have
from dhtcrawl.swarm.records.holdings import RecordTerms
from dhtcrawl.swarm.records.sync import Syncer
from dhtcrawl.swarm.records.wire import copies_of, record_of

T = TypeVar("T")

REPLICAS = 3


def url(number: int) -> str:
    return f"http://h{number % 3}.example/{number}"


def copy(number: int, *, host_mode: bool = False, **fields: Any) -> TaskReplica:
    """The record of one of many tasks; with `host_mode` all are on one host."""
    address = f"http://a.example/{number}" if host_mode else url(number)
    key = host_key("a.example") + url_key(address) if host_mode else url_key(address)
    return TaskReplica(key, Task(address, **{"depth": 1, "order": 0, "referrer": "", **fields}))


class SyncWorld(World["SyncNode"]):
    """Nodes that hold the records of one crawl."""

    def __init__(self, states: Mapping[bytes, MemberState], *, keys: TaskKeys | None = None) -> None:
        super().__init__()
        self.keys = keys or TaskKeys()
        self.records_moved = 0
        for node, state in states.items():
            self.join(node, state=state)
            SyncNode(self, node)

    def expected(self) -> dict[bytes, Task]:
        """What all copies of each record amount to."""
        found: dict[bytes, Task] = {}
        for node in self.nodes.values():
            for key, task in node.found().items():
                found[key] = merge(found[key], task) if key in found else task
        return found


class SyncNode(Node):
    """A node's store and its `Syncer`."""

    world: SyncWorld

    def __init__(self, world: SyncWorld, node: bytes) -> None:
        super().__init__(world, node)
        self.queue: dict[bytes, None] = {}  # as it was told of
        self.new = 0
        self.busy: set[bytes] = set()
        self.full = False
        self.orders = itertools.count(1)
        self.transactions = 0
        self.syncer = Syncer(self, self._submit, lambda: [CRAWL], REPLICAS, self._merged, lambda crawl: self.terms)
        self.registry.serve(Have, self.syncer.on_have)

    @property
    def terms(self) -> RecordTerms:
        return RecordTerms(
            self.world.keys,
            self.orders,
            depth_matters=True,
            snapshot=lambda _=None: OwnershipSnapshot(self.mine),
            busy=self.busy.__contains__,
        )

    def _submit(self, function: Callable[[Txn], T]) -> asyncio.Future[T]:
        self.transactions += 1
        return self.committer.submit(function)

    def mine(self, key: bytes) -> bool:
        owner = self.world.view.owner(placement(key))
        return owner is not None and owner.id == self.node_id

    def _merged(self, crawl: bytes, merged: Merged) -> None:
        assert crawl == CRAWL
        self.new += merged.new
        for _, key in merged.unqueued:
            self.queue.pop(key, None)
        for queued in merged.queued:
            self.queue[queued.key] = None

    # -- the store --

    def put(self, some: Iterable[TaskReplica]) -> None:
        """Records that are there from the beginning, in the queue where they are ours."""
        writes: dict[bytes, bytes | None] = {}
        self._merged(CRAWL, self._merge_in(list(some), Txn(self.engine, writes)))
        self.engine.write(writes, sync=False)
        self.new = 0

    def mark(self, key: bytes) -> None:
        """The page of this task still has to send its links."""
        self.engine.write({keys.FETCHED + CRAWL + key: b""}, sync=False)

    def found(self) -> dict[bytes, Task]:
        """The records without what is this node's own."""
        start, stop = keys.bounds(keys.TASK, CRAWL)
        tasks = ((keys.suffix(key), unpack_task(value)) for key, value in self.engine.scan(start, stop))
        return {key: Task(**{**_fields(task), "order": 0}) for key, task in tasks}

    def task_keys(self) -> set[bytes]:
        start, stop = keys.bounds(keys.TASK, CRAWL)
        return {keys.suffix(key) for key, _ in self.engine.scan(start, stop)}

    def essences(self) -> dict[bytes, Any]:
        return {key: essence(task) for key, task in self.found().items()}

    def queued(self) -> set[bytes]:
        start, stop = keys.bounds(keys.QUEUE, CRAWL)
        return {keys.queue_task(key) for key, _ in self.engine.scan(start, stop)}

    def _merge_in(self, some: list[TaskReplica], txn: Txn) -> Merged:
        terms = self.terms
        now = terms.snapshot()
        return stored.merge_in(
            txn, CRAWL, some, terms.orders, mine=now.mine, held=now.held, depth_matters=terms.depth_matters
        )

    # -- what others ask --

    async def on_request(self, asker: bytes, message: Message) -> Reply:
        """What it says to a page of a sync, or to records."""
        if isinstance(message, RefreshTask):
            answer: Reply = await self.syncer.on_refresh(asker, message)
        else:
            assert isinstance(message, StoreBackup), "nothing else is sent"
            self.world.records_moved += len(message.records)
            answer = await self._store(message)
        if isinstance(answer, Records | Ack):
            self.world.records_moved += len(answer.records)
        return answer

    async def _store(self, message: StoreBackup) -> Ack:
        if self.full:
            return Ack.all(Code.FULL, message.items)
        some = copies_of(message.records, self.world.keys)
        assert len(some) == message.items, "what our own nodes send is believed"
        merged = await self.committer.submit(partial(self._merge_in, some))
        self._merged(CRAWL, merged)
        self.new -= merged.new
        return Ack(bytes([Code.ACCEPTED]) * message.items, records=tuple(map(record_of, merged.further)))


def _fields(task: Task) -> dict[str, Any]:
    return task._asdict()
