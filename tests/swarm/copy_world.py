"""A few nodes that keep copies of one another's pages, and a wire between them that counts and fails."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from harness.world import Node, World
from storage.stores import CRAWL, SPEC, archive_in, page
from storage.warcs import item

from dhtcrawl.rpc.tasks.messages import Refused
from dhtcrawl.storage.archive import body_copies
from dhtcrawl.storage.archive.archive import Archive
from dhtcrawl.storage.archive.names import COPIES
from dhtcrawl.storage.collect import export
from dhtcrawl.storage.store import keys, tasks
from dhtcrawl.storage.store.crawl_record import CrawlRecord
from dhtcrawl.storage.store.files import MemoryDirectory
from dhtcrawl.storage.store.records import Place, unpack
from dhtcrawl.storage.store.txn import Txn
from dhtcrawl.swarm.bodies.copier import Copier, PageRows
from dhtcrawl.swarm.bodies.copy_service import CopyService
from dhtcrawl.swarm.calls import bodies as calls
from swarm.fake_peers import node as node_id

COPY = calls.CopyPages.terms.name
STAND_IN = calls.StandIn.terms.name


class CopyWorld(World["CopyNode"]):
    """Nodes 0 to n-1, each with a store, an archive, a copier and a desk."""

    def __init__(self, group: asyncio.TaskGroup, count: int, *, copies: int = 2) -> None:
        super().__init__()
        settings = replace(SPEC.settings, copies=copies)
        self.record = CrawlRecord(CRAWL, replace(SPEC, settings=settings), bytes(16))
        self.told: list[bytes] = []  # who was told of the crawl
        self.join(*map(node_id, range(count)))
        self.all = [CopyNode(self, group, n, copies - 1) for n in range(count)]

    def remove(self, number: int) -> None:
        """A node is gone, and no member any more."""
        self.down.add(node_id(number))
        self.leave(node_id(number))

    def copied(self) -> list[dict[str, Any]]:
        """The arguments of each call that carried copies."""
        return self.args(COPY)

    def closest(self, key: bytes, without: bytes) -> list[bytes]:
        """The nodes next to a key, but one."""
        return [member.id for member in self.view.closest(key, 99) if member.id != without]


class CopyNode(Node):
    """A node with an archive, which copies pages and takes copies."""

    world: CopyWorld

    def __init__(self, world: CopyWorld, group: asyncio.TaskGroup, number: int, further: int) -> None:
        super().__init__(world, node_id(number))
        self.id = self.node_id
        self.directory = MemoryDirectory()
        self.archive = archive_in(self.directory, node=self.id.hex(), bytes_max=1 << 20)
        self.runner.participants.append(self.archive)
        self.knows_crawl = True
        self.leaves = False
        self.copier = Copier(
            self,
            self.committer,
            self.clock,
            group,
            PageRows(CRAWL, self.directory),
            further=further,
            tell_crawl=self._tell,
        )
        self.restart()
        self.registry.serve(calls.CopyPages, self._known(lambda asker, args: self.desk.on_copy(asker, args)))
        self.registry.serve(calls.StandIn, self._known(lambda asker, args: self.desk.on_stand_in(asker, args)))
        self.handlers = {"export_chunk": self._known(self._chunk), "export_rows": self._known(self._rows)}

    def restart(self) -> None:
        """Take copies as after a start: into a new file."""
        self.desk = CopyService(
            self,
            self.committer,
            lambda: self.world.record,
            self.directory,
            self._copies,
            self._offload,
            lambda: not self.leaves,
        )

    @property
    def submitted(self) -> int:
        """How many transactions it began."""
        return self.committer.submitted

    @property
    def groups(self) -> int:
        """How often it wrote to the store."""
        return self.runner.groups

    def _known(self, handler: Callable[[bytes, Any], Any]) -> Callable[[bytes, Any], Any]:
        """A handler of a crawl's calls: refused until the node knows the crawl."""
        return lambda asker, args: handler(asker, args) if self.knows_crawl else Refused("unknown-crawl")

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
        return self.archive.read(place, 1 << 30).payload

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
        self.runner.participants.append(archive)
        return archive

    async def _offload(self, function: Callable[[], Any]) -> Any:
        await asyncio.sleep(0)
        return function()

    async def _tell(self, node: bytes) -> None:
        self.world.told.append(node)
        self.world.nodes[node].knows_crawl = True

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
async def a_world(count: int = 4, *, copies: int = 2) -> AsyncIterator[CopyWorld]:
    """Some nodes, on virtual time."""
    async with asyncio.TaskGroup() as group, asyncio.timeout(10_000.0):
        yield CopyWorld(group, count, copies=copies)


def url(number: int) -> str:
    return f"http://a.example/{number}"
