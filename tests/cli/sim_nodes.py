"""Three nodes' stores and archives of one crawl, made by the real node in the simulator, and a source that has them.

Each of them crawled the whole small web; then every page was left to one, whose
task records are with it and one more. So all that a swarm leaves behind is
there, and what a right collection holds is known.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dhtcrawl.cli.places import CRAWLS_DIR
from dhtcrawl.cli.runtime import STORE_DIR
from dhtcrawl.config import load
from dhtcrawl.sim import loop
from dhtcrawl.sim.pages import WebShape
from dhtcrawl.sim.trace import Trace
from dhtcrawl.sim.web import SimWeb
from dhtcrawl.sim.world import SimNode
from dhtcrawl.spec import CrawlSpec, make_spec
from dhtcrawl.storage.collect.export import export_chunk, export_files, export_rows
from dhtcrawl.storage.collect.facts import CrawlFacts, NodeFacts, Unreachable
from dhtcrawl.storage.collect.merge_stores import EndedStore
from dhtcrawl.storage.outputs.outputs import ARCHIVE_DIR, INDEX_FILE, PAGES_FILE, SKIPPED_FILE, OutputDirs
from dhtcrawl.storage.outputs.summary import Summary
from dhtcrawl.storage.store import catalog, keys
from dhtcrawl.storage.store.crawl_record import CrawlRecord
from dhtcrawl.storage.store.engine import LevelEngine
from dhtcrawl.storage.store.files import Directory, DiskDirectory, MemoryDirectory
from dhtcrawl.storage.store.memory import MemoryEngine
from dhtcrawl.storage.store.records import unpack
from dhtcrawl.storage.store.txn import Txn

SEED = 11
NONCE = bytes(16)


@dataclass
class Part:
    """What one node has of the crawl."""

    node: str
    engine: MemoryEngine
    archive: Directory

    def txn(self) -> Txn:
        return Txn(self.engine, {})

    @property
    def counters(self) -> dict[str, float]:
        value = self.engine.get(keys.key(keys.COUNTERS, record().crawl_id))
        return {} if value is None else dict(unpack(value))

    def file(self, name: str) -> bytearray:
        assert isinstance(self.archive, MemoryDirectory)
        return self.archive.files[name]

    def put(self, key: bytes, value: bytes | None) -> None:
        self.engine.write({key: value}, sync=False)


@dataclass
class Crawled:
    """A crawl that three nodes shared, and what one of them by itself came to."""

    parts: list[Part]
    alone: Summary
    alone_outputs: OutputDirs

    def copy(self) -> list[Part]:
        return copy.deepcopy(self.parts)


def web() -> SimWeb:
    return SimWeb(SEED, WebShape(hosts=3, pages=60, page_bytes=3_000))


def record() -> CrawlRecord:
    spec = make_spec(web().seeds(), replace(load().crawl, delay_s=0.0))
    return CrawlRecord(spec.crawl_id(NONCE), spec, NONCE)


def crawled() -> Crawled:
    return loop.run(_crawled())


async def _crawled() -> Crawled:
    trace = Trace(asyncio.get_running_loop().time, tail=1)
    config = load(flags={"fetch.concurrency": 4, "storage.warc_bytes_max": 1 << 16})
    nodes = [SimNode(f"node {n}", SEED + n, config, web(), trace, commit_s=0.004) for n in range(3)]
    spec, summaries = record().spec, []
    for node in nodes:
        _plant(node, spec)
        summary, _ = await node.crawl(spec)
        assert summary.complete
        summaries.append(summary)
    nodes.sort(key=lambda node: node.id)
    parts = [Part(node.id.hex(), node.disk.engine, node.disk.outputs.archive) for node in nodes]
    _share_out(parts)
    return Crawled(parts, summaries[0], nodes[0].disk.outputs)


def _plant(node: SimNode, spec: CrawlSpec) -> None:
    """Let the node find the crawl begun, under the id that all share."""
    writes: dict[bytes, bytes | None] = {}
    txn = Txn(node.disk.engine, writes)
    catalog.check_format(txn)
    catalog.put_crawl(txn, record())
    node.disk.engine.write(writes, sync=False)
    assert catalog.crawls(Txn(node.disk.engine, {}))[0].spec == spec


def owner(key: bytes) -> int:
    """The number of the node that a task is left to."""
    return key[-1] % 3


def _share_out(parts: Sequence[Part]) -> None:
    """Leave each page to one node, and its task to that and the next."""
    for kind in (keys.PAGE, keys.LINKS, keys.TASK):
        for number, part in enumerate(parts):
            for full, _ in list(part.engine.scan(*keys.bounds(kind, record().crawl_id))):
                if owner(keys.suffix(full)) != number:
                    part.put(full, None)
    for number, part in enumerate(parts):
        for full, value in list(part.engine.scan(*keys.bounds(keys.TASK, record().crawl_id))):
            if owner(keys.suffix(full)) == number:
                parts[(number + 1) % 3].put(full, value)


@dataclass
class FakeSource:
    """The nodes as a gathering asks them."""

    parts: list[Part]
    down: set[str] = field(default_factory=set)  # do not answer from the first
    left: set[str] = field(default_factory=set)  # are no members any more
    dirs: dict[str, Path] = field(default_factory=dict)  # archive directories on this machine
    open_stores: bool = False
    chunk_max: int = 10_000
    asked: list[str] = field(default_factory=list)
    on_ask: Callable[[str, str], None] = lambda node, what: None

    async def nodes(self) -> list[NodeFacts]:
        return [
            NodeFacts(part.node, failure="does not answer")
            if part.node in self.down
            else NodeFacts(part.node, part.counters, 1.5, 1 << 20, 20.0)
            for part in self.parts
            if part.node not in self.left
        ]

    async def rows(self, node: str, kind: bytes, cursor: bytes) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
        part = self._ask(node, f"rows {kind.decode()}")
        return export_rows(part.txn(), record().crawl_id, kind, cursor, 2_000)

    async def files(self, node: str) -> list[tuple[str, int]]:
        return export_files(self._ask(node, "files").txn(), record().crawl_id)

    async def chunk(self, node: str, name: str, offset: int, limit: int) -> bytes:
        part = self._ask(node, f"chunk {name} {offset}")
        wanted = min(limit, self.chunk_max)
        return export_chunk(part.txn(), record().crawl_id, part.archive, name, offset, wanted)

    def local_dir(self, node: str) -> Path | None:
        return self.dirs.get(node)

    def stores(self) -> list[EndedStore]:
        def let_go() -> None:
            self.asked.append("let go")

        return [EndedStore(part.node, part.txn(), let_go) for part in self.parts] if self.open_stores else []

    def _ask(self, node: str, what: str) -> Part:
        self.asked.append(what)
        self.on_ask(node, what)
        if node in self.down:
            raise Unreachable("does not answer")
        return next(part for part in self.parts if part.node == node)


def onto_disk(part: Part, directory: Path) -> Path:
    """Put a node's archive where a node on this machine has it."""
    disk = DiskDirectory(directory)
    for name in part.archive.names():
        disk.open(name, 0).append(bytes(part.file(name)))
    part.archive = disk
    return directory


def whole_onto_disk(part: Part, data_dir: Path) -> Path:
    """Put all that a node has of the crawl where a node on this machine that has ended leaves it."""
    engine = LevelEngine(data_dir / STORE_DIR)
    engine.write(dict(part.engine.scan(b"", b"\xff")), sync=False)
    engine.close()
    onto_disk(part, data_dir / CRAWLS_DIR / record().crawl_id.hex() / ARCHIVE_DIR)
    return data_dir


def ended(**changed: Any) -> CrawlFacts:
    """The crawl, complete, as its coordinator knows it."""
    facts = CrawlFacts(ended=True, complete=True, nodes=3, seconds=12.5)
    return facts._replace(**changed)


def outputs(out: Path) -> dict[str, bytes]:
    """The files made from the collection's store."""
    names = (f"pages/{PAGES_FILE}", f"indexes/{INDEX_FILE}", f"reports/{SKIPPED_FILE}")
    archive = sorted(f"archive/{path.name}" for path in (out / "archive").iterdir())
    return {name: (out / name).read_bytes() for name in (*names, *archive)}
