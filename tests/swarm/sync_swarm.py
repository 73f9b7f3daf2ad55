"""A few nodes with stores in memory, and a wire between them that counts, loses and checks."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from storage.stores import CRAWL

from dhtcrawl.keyspace import host_key, placement, url_key
from dhtcrawl.rpc.membership.view import Member, MemberState, View
from dhtcrawl.rpc.peers.port import call_of, reply_to
from dhtcrawl.rpc.tasks.events import Failure, FailureKind
from dhtcrawl.rpc.tasks.frame import HEADER
from dhtcrawl.rpc.tasks.messages import (
    Ack,
    Answer,
    Call,
    Code,
    Message,
    Records,
    RefreshTask,
    Refused,
    Request,
    Result,
    StoreBackup,
    decode,
    encode,
)
from dhtcrawl.rpc.tasks.schema import CallArgs, WireMap
from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store import replicas as stored
from dhtcrawl.storage.store.committer import GroupRunner, LoopCommitter
from dhtcrawl.storage.store.memory import MemoryEngine
from dhtcrawl.storage.store.ownership import OwnershipSnapshot
from dhtcrawl.storage.store.records import Task, merge, unpack_task
from dhtcrawl.storage.store.replicas import Merged, TaskReplica, essence
from dhtcrawl.storage.store.txn import Txn
from dhtcrawl.swarm.calls import Have
from dhtcrawl.swarm.records.holdings import RecordTerms
from dhtcrawl.swarm.records.sync import Syncer
from dhtcrawl.swarm.records.wire import copies_of, record_of

T = TypeVar("T")
R = TypeVar("R", bound=WireMap)

REPLICAS = 3
LATENCY_S = 0.01


def url(number: int) -> str:
    return f"http://h{number % 3}.example/{number}"


def copy(number: int, *, host_mode: bool = False, **fields: Any) -> TaskReplica:
    """The record of one of many tasks; with `host_mode` all are on one host."""
    address = f"http://a.example/{number}" if host_mode else url(number)
    key = host_key("a.example") + url_key(address) if host_mode else url_key(address)
    return TaskReplica(key, Task(address, **{"depth": 1, "order": 0, "referrer": "", **fields}))


def across(message: Message) -> Message:
    """A message as it comes out at the other end."""
    frame = encode(1, message)
    _, back = decode(frame[HEADER.size - 1], frame[HEADER.size :])
    assert back is not None
    return back


class Swarm:
    """All nodes, in the order of their making, and what was said."""

    def __init__(self, states: Mapping[bytes, MemberState], *, key_bytes: int = 20) -> None:
        self.key_bytes = key_bytes
        self.view = View(Member(node, ("10.0.0.1", 1), state) for node, state in states.items())
        self.said: list[tuple[bytes, bytes, Request]] = []
        self.records_moved = 0
        self.loses_request: Callable[[bytes, int], bool] = lambda node, number: False  # of the message to `node`
        self.loses_answer: Callable[[bytes, int], bool] = lambda node, number: False
        self.after: Callable[[], None] = lambda: None  # called when a message was handled
        self.nodes = {node: Node(self, node) for node in states}

    def become(self, node: bytes, state: MemberState | None) -> None:
        """A member has another state, or is gone."""
        others = [member for member in self.view.members if member.id != node]
        self.view = View([*others, Member(node, ("10.0.0.1", 1), state)] if state is not None else others)

    def expected(self) -> dict[bytes, Task]:
        """What all copies of each record amount to."""
        found: dict[bytes, Task] = {}
        for node in self.nodes.values():
            for key, task in node.found().items():
                found[key] = merge(found[key], task) if key in found else task
        return found


class Node:
    """One node: its store, its side of the wire, and its `Syncer`."""

    def __init__(self, swarm: Swarm, node_id: bytes) -> None:
        self.node_id = node_id
        self.engine = MemoryEngine()
        self.queue: dict[bytes, None] = {}  # as it was told of
        self.new = 0
        self.busy: set[bytes] = set()
        self.full = False
        self.orders = itertools.count(1)
        self.transactions = 0
        self.committer = LoopCommitter(GroupRunner(self.engine, sync=False))
        self._swarm = swarm
        self.syncer = Syncer(self, self._submit, lambda: [CRAWL], REPLICAS, self._merged, lambda crawl: self.terms)

    @property
    def view(self) -> View:
        return self._swarm.view

    @property
    def terms(self) -> RecordTerms:
        return RecordTerms(
            self._swarm.key_bytes,
            self.orders,
            depth_matters=True,
            snapshot=lambda _=None: OwnershipSnapshot(self.mine),
            busy=self.busy.__contains__,
        )

    def _submit(self, function: Callable[[Txn], T]) -> asyncio.Future[T]:
        self.transactions += 1
        return self.committer.submit(function)

    def mine(self, key: bytes) -> bool:
        owner = self._swarm.view.owner(placement(key))
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

    # -- the wire --

    async def ask(self, node: bytes, message: Request, timeout_s: float | None = None) -> Answer | Failure:
        swarm = self._swarm
        swarm.said.append((self.node_id, node, message))
        number = len(swarm.said)
        if isinstance(message, StoreBackup):
            swarm.records_moved += len(message.records)
        request = across(message)
        await asyncio.sleep(LATENCY_S)
        if swarm.loses_request(node, number):
            return Failure(FailureKind.TIMEOUT, "lost")
        reply = await swarm.nodes[node].answer(self.node_id, request)
        swarm.after()
        if isinstance(message, RefreshTask) and isinstance(reply, Records):
            assert len(encode(1, reply)) <= message.reply_bytes_max
        if isinstance(reply, Records | Ack):
            swarm.records_moved += len(reply.records)
        await asyncio.sleep(LATENCY_S)
        if swarm.loses_answer(node, number):
            return Failure(FailureKind.LOST, "lost")
        back = across(reply)
        if isinstance(back, Refused):
            return Failure(FailureKind.REFUSED, back.reason)
        assert isinstance(back, Answer)
        return back

    async def call(self, node: bytes, args: CallArgs[R], **_: Any) -> R | Failure:
        swarm = self._swarm
        request = across(call_of(args))
        assert isinstance(request, Call)
        swarm.said.append((self.node_id, node, request))
        number = len(swarm.said)
        await asyncio.sleep(LATENCY_S)
        if swarm.loses_request(node, number):
            return Failure(FailureKind.TIMEOUT, "lost")
        assert isinstance(args, Have), "nothing else is asked"
        reply = await swarm.nodes[node].syncer.on_have(self.node_id, Have.parse(request.args))
        swarm.after()
        await asyncio.sleep(LATENCY_S)
        if swarm.loses_answer(node, number):
            return Failure(FailureKind.LOST, "lost")
        back = across(Result(reply.to_map()))
        assert isinstance(back, Result)
        return reply_to(args, back)  # type: ignore[return-value]  # of the one call that there is

    async def answer(self, asker: bytes, message: Message) -> Answer | Refused:
        """What this node says to a request."""
        if isinstance(message, RefreshTask):
            return await self.syncer.on_refresh(asker, message)
        assert isinstance(message, StoreBackup), "nothing else is sent"
        assert not isinstance(message, Call)
        if self.full:
            return Ack.all(Code.FULL, message.items)
        some = copies_of(message.records, self._swarm.key_bytes)
        assert len(some) == message.items, "what our own nodes send is believed"
        merged = await self.committer.submit(partial(self._merge_in, some))
        self._merged(CRAWL, merged)
        self.new -= merged.new
        return Ack(bytes([Code.ACCEPTED]) * message.items, records=tuple(map(record_of, merged.further)))


def _fields(task: Task) -> dict[str, Any]:
    return {name: getattr(task, name) for name in Task.__slots__}
