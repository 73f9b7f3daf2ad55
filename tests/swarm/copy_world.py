"""A few nodes that keep copies of one another's pages, and a wire between them that counts and fails."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

from storage.stores import CRAWL, SPEC, archive_in, page
from storage.warcs import item

from dhtcrawl.rpc.membership.view import Member, MemberState, View
from dhtcrawl.rpc.peers.port import call_of
from dhtcrawl.rpc.tasks.events import Failure, FailureKind
from dhtcrawl.rpc.tasks.messages import Call, Refused
from dhtcrawl.rpc.tasks.schema import BadArguments, CallArgs, WireMap
from dhtcrawl.sim.loop import VirtualClock
from dhtcrawl.storage.archive import body_copies
from dhtcrawl.storage.archive.archive import Archive
from dhtcrawl.storage.archive.names import COPIES
from dhtcrawl.storage.collect import export
from dhtcrawl.storage.store import keys, tasks
from dhtcrawl.storage.store.committer import GroupRunner, LoopCommitter
from dhtcrawl.storage.store.crawl_record import CrawlRecord
from dhtcrawl.storage.store.files import MemoryDirectory
from dhtcrawl.storage.store.memory import MemoryEngine
from dhtcrawl.storage.store.records import Place, unpack
from dhtcrawl.storage.store.txn import Txn
from dhtcrawl.swarm import calls
from dhtcrawl.swarm.bodies.copier import Copier, PageRows
from dhtcrawl.swarm.bodies.copy_service import CopyService
from swarm.fake_peers import answered
from swarm.fake_peers import node as node_id
from swarm.sync_swarm import across

T = TypeVar("T")
R = TypeVar("R", bound=WireMap)
COPY = calls.CopyPages.terms.name
STAND_IN = calls.StandIn.terms.name

LATENCY_S = 0.01
GONE = Failure(FailureKind.TIMEOUT, "no answer")
Handler = Callable[[bytes, dict[str, Any]], Any]


class World:
    """Nodes 0 to n-1, each with a store, an archive, a copier and a desk."""

    def __init__(self, group: asyncio.TaskGroup, count: int, *, copies: int = 2) -> None:
        self.view = View(Member(node_id(n), ("10.0.0.1", n + 1)) for n in range(count))
        settings = replace(SPEC.settings, copies=copies)
        self.record = CrawlRecord(CRAWL, replace(SPEC, settings=settings), bytes(16))
        self.down: dict[bytes, None] = {}  # members that do not answer
        self.called: list[tuple[bytes, bytes, str, dict[str, Any]]] = []  # from, to, name, arguments
        self.told: list[bytes] = []  # who was told of the crawl
        self.nodes = [Node(self, group, n, copies - 1) for n in range(count)]
        self.by_id = {node.id: node for node in self.nodes}

    def remove(self, number: int) -> None:
        """A node is no member any more."""
        self.down[node_id(number)] = None
        self.view = View(member for member in self.view.members if member.id != node_id(number))

    def become(self, number: int, state: MemberState) -> None:
        self.view = View(
            Member(member.id, member.address, state) if member.id == node_id(number) else member
            for member in self.view.members
        )

    def calls(self, name: str = COPY) -> list[tuple[bytes, bytes, dict[str, Any]]]:
        return [(asker, asked, args) for asker, asked, called, args in self.called if called == name]

    def closest(self, key: bytes, without: bytes) -> list[bytes]:
        """The nodes next to a key, but one."""
        return [member.id for member in self.view.closest(key, 99) if member.id != without]


class _Counting(LoopCommitter):
    def __init__(self, runner: GroupRunner, node: Node) -> None:
        super().__init__(runner)
        self._node = node

    def submit(self, function: Callable[[Txn], T]) -> asyncio.Future[T]:
        self._node.submitted += 1
        return super().submit(function)


class Node:
    """One node, as `Peers` of itself."""

    def __init__(self, world: World, group: asyncio.TaskGroup, number: int, further: int) -> None:
        self.node_id = self.id = node_id(number)
        self.world = world
        self.engine, self.directory = MemoryEngine(), MemoryDirectory()
        runner = GroupRunner(self.engine, sync=False)
        self.committer = _Counting(runner, self)
        self.submitted = 0
        self.archive = archive_in(self.directory, node=self.id.hex(), bytes_max=1 << 20)
        runner.participants.append(self.archive)
        self._runner = runner
        self.knows_crawl = True
        self.leaves = False
        clock = VirtualClock(asyncio.get_running_loop())
        self.copier = Copier(
            self, self.committer, clock, group, PageRows(CRAWL, self.directory), further=further, tell_crawl=self._tell
        )
        self.desk = CopyService(
            self,
            self.committer,
            lambda: world.record,
            self.directory,
            self._copies,
            self._offload,
            lambda: not self.leaves,
        )
        self.handlers: dict[str, Handler] = {
            COPY: lambda asker, args: self.desk.on_copy(asker, calls.CopyPages.parse(args)),
            STAND_IN: lambda asker, args: self.desk.on_stand_in(asker, calls.StandIn.parse(args)),
            "export_chunk": self._chunk,
            "export_rows": self._rows,
        }

    @property
    def view(self) -> View:
        return self.world.view

    @property
    def groups(self) -> int:
        """How often it wrote to the store."""
        return self._runner.groups

    async def ask(self, node: bytes, message: Any, timeout_s: float | None = None) -> Any:
        raise AssertionError("nothing but calls")

    async def call(
        self, node: bytes, args: CallArgs[R], *, timeout_s: float | None = None, reply_bytes_max: int | None = None
    ) -> R | Failure:
        message = across(call_of(args))
        assert isinstance(message, Call)
        self.world.called.append((self.id, node, message.name, message.args))
        if node in self.world.down:
            await asyncio.sleep(30.0 if timeout_s is None else timeout_s)
            return GONE
        await asyncio.sleep(LATENCY_S)
        asked = self.world.by_id[node]
        if not asked.knows_crawl:
            return answered(args, Refused("unknown-crawl"))
        try:
            value = asked.handlers[message.name](self.id, message.args)
            value = await value if asyncio.iscoroutine(value) else value
        except BadArguments as error:
            value = Refused("bad-args", error.field)
        return answered(args, value.to_map() if isinstance(value, WireMap) else value)

    # Pages

    async def fetch(self, url: str, body: bytes = b"<p>hello</p>", links: tuple[str, ...] = ()) -> bytes:
        """Fetch a page; its task key."""
        exchange = item(url, body, number=next(_NUMBERS))

        def write(txn: Txn) -> bytes:
            place, digest = self.archive.append(exchange)
            found = page(url, links=links, payload_digest=digest, node=self.id.hex(), referrer=None)
            tasks.fetched(txn, CRAWL, found, place, 0)
            return found.key

        return await self.committer.submit(write)

    async def copy(self, *pages: bytes, again: bool = False) -> dict[bytes, tuple[bytes, ...]]:
        """Have pages copied; who has each."""
        over = asyncio.get_running_loop().create_future()
        found: dict[bytes, tuple[bytes, ...]] = {}

        def copied(page: bytes, holders: tuple[bytes, ...]) -> None:
            assert page not in found, "told once"
            found[page] = holders
            if len(found) == len(pages):
                over.set_result(None)

        self.copier.copy(pages, copied, again=again)
        await over
        return found

    def copies(self) -> dict[bytes, dict[str, Any]]:
        """What it has copies of."""
        rows = self.engine.scan(*keys.bounds(keys.COPY, CRAWL))
        return {keys.suffix(full): unpack(value) for full, value in rows}

    def body(self, key: bytes, kind: bytes = keys.COPY) -> bytes:
        """The body of a copy, from the file."""
        place = Place(*unpack(self.engine.get(kind + CRAWL + key) or b"")["place"])
        return self.archive.read(place).payload

    def links(self, key: bytes) -> bytes | None:
        return self.engine.get(keys.COPY_LINKS + CRAWL + key)

    def page(self, key: bytes) -> dict[str, Any]:
        found = tasks.get_page(Txn(self.engine, {}), CRAWL, key)
        assert found is not None
        return found

    def row(self, key: bytes) -> tuple[Any, ...]:
        """A page as `copy_pages` carries it."""
        sent = body_copies.parcel(Txn(self.engine, {}), CRAWL, self.directory, key)
        assert sent is not None
        return (key, sent.record, sent.links, body_copies.members(self.directory, sent), sent.length, False)

    # Parts of it

    async def _copies(self) -> Archive:
        archive = archive_in(self.directory, node=self.id.hex(), series=COPIES, bytes_max=1 << 20)
        await self.committer.submit(archive.recover)
        self._runner.participants.append(archive)
        return archive

    async def _offload(self, function: Callable[[], Any]) -> Any:
        await asyncio.sleep(0)
        return function()

    async def _tell(self, node: bytes) -> None:
        self.world.told.append(node)
        self.world.by_id[node].knows_crawl = True

    def _chunk(self, _: bytes, args: dict[str, Any]) -> Any:
        data = export.export_chunk(
            Txn(self.engine, {}), CRAWL, self.directory, args["name"], args["offset"], args["limit"]
        )
        return {"data": data}

    def _rows(self, _: bytes, args: dict[str, Any]) -> Any:
        rows, cursor = export.export_rows(Txn(self.engine, {}), CRAWL, args["kind"], args["cursor"])
        return {"rows": rows, "cursor": cursor}


_NUMBERS = itertools.count(1)


@asynccontextmanager
async def a_world(count: int = 4, *, copies: int = 2) -> AsyncIterator[World]:
    """Some nodes, on virtual time."""
    async with asyncio.TaskGroup() as group, asyncio.timeout(10_000.0):
        yield World(group, count, copies=copies)


def url(number: int) -> str:
    return f"http://a.example/{number}"
