"""Nodes of this machine that have ended, as a gathering asks them: their directories are read, and nobody is asked.

While a node runs, only it can open its store. Once the nodes of `crawl --nodes` have ended, what they have need not be
sent through any of them: the stores are read where they lie, and the archive files are linked. Their data directories
stay locked meanwhile, so that the same command in another terminal does not start them again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from dhtcrawl.cli.places import CRAWLS_DIR
from dhtcrawl.cli.runtime import STORE_DIR, locked
from dhtcrawl.storage.collect.export import CannotExport, Row, export_chunk, export_files, export_rows
from dhtcrawl.storage.collect.facts import NodeFacts, Unreachable
from dhtcrawl.storage.collect.merge_stores import EndedStore
from dhtcrawl.storage.outputs.outputs import ARCHIVE_DIR
from dhtcrawl.storage.store.engine import LevelEngine
from dhtcrawl.storage.store.files import DiskDirectory
from dhtcrawl.storage.store.txn import Txn
from dhtcrawl.swarm.bodies.exports import counters_of

CACHE_BYTES: Final = 1 << 20  # every row is read once


class _Opened(NamedTuple):
    """What a node has left of the crawl."""

    store: EndedStore
    archive: Path


class EndedNodes:
    """One crawl at nodes that have ended, as `dhtcrawl.cli.gather.Source`; `ended_nodes` makes it.

    Raises:
        StorageError: a store cannot be read.
        Unreachable: a part of an archive file is not there.
    """

    def __init__(self, crawl: bytes, asked: Sequence[NodeFacts], opened: Mapping[str, _Opened]) -> None:
        self._crawl = crawl
        self._asked = asked
        self._opened = opened

    async def nodes(self) -> list[NodeFacts]:
        return [self._facts(facts) if facts.node in self._opened else facts for facts in self._asked]

    async def rows(self, node: str, kind: bytes, cursor: bytes) -> tuple[Sequence[Row], bytes | None]:
        return export_rows(self._opened[node].store.txn, self._crawl, kind, cursor)

    async def files(self, node: str) -> list[tuple[str, int]]:
        return export_files(self._opened[node].store.txn, self._crawl)

    async def chunk(self, node: str, name: str, offset: int, limit: int) -> bytes:
        store, archive = self._opened[node]
        try:
            return export_chunk(store.txn, self._crawl, DiskDirectory(archive), name, offset, limit)
        except CannotExport as error:
            raise Unreachable(f"has not all of its files ({error})") from error

    def local_dir(self, node: str) -> Path | None:
        return self._opened[node].archive

    def stores(self) -> Sequence[EndedStore]:
        return [self._opened[facts.node].store for facts in self._asked if facts.node in self._opened]

    def _facts(self, asked: NodeFacts) -> NodeFacts:
        """What a node counted to its very end; what its process took, it said while it ran."""
        counters = counters_of(self._opened[asked.node].store.txn, crawl=self._crawl)
        cpu_seconds, seconds = counters.get("cpu_seconds", 0.0), counters.get("seconds", 0.0)
        return replace(asked, counters=counters, cpu_seconds=cpu_seconds, seconds=seconds, failure="")


@contextmanager
def ended_nodes(crawl: bytes, asked: Sequence[NodeFacts], data_dirs: Mapping[str, Path]) -> Iterator[EndedNodes]:
    """The nodes (ids in hex) that have ended and left these data directories, which are locked meanwhile.

    `asked` is what they, and others that have something of the crawl, said of themselves while they ran.

    Raises:
        StoreInUse: one of them runs.
        StorageError: a store cannot be opened.
    """
    with ExitStack() as stack:
        opened: dict[str, _Opened] = {}
        for node, data_dir in data_dirs.items():
            stack.enter_context(locked(data_dir))
            engine = LevelEngine(data_dir / STORE_DIR, cache_bytes=CACHE_BYTES, new=False)
            stack.callback(engine.close)
            store = EndedStore(node, Txn(engine, {}), engine.let_go)
            opened[node] = _Opened(store, data_dir / CRAWLS_DIR / crawl.hex() / ARCHIVE_DIR)
        yield EndedNodes(crawl, asked, opened)
