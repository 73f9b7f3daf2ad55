"""One crawl, gathered from all its nodes into one directory that looks like any crawl's.

    claim ──▶ rows, kind by kind ──▶ archive files ──▶ finish ──▶ outputs ──▶ summary
                                          ▲               │
                                          └─ of copies ◀──┘ where a body is not here

The nodes are asked through `Source`. Their answers are merged in the
collection's own store, beside the outputs, in an order that does not matter, so
that a gathering which broke off, or missed a node, is simply done again: rows
are read anew, files go on where they ended. Where the nodes' stores lie open (those of
one command, once they have ended), most rows are merged in one pass over all stores. A node that cannot be reached, or
sends nonsense, does not stop the rest: the others' pages are there, the summary is
not complete, and one line names the node.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from dhtcrawl.cli.earlier import keep_outputs
from dhtcrawl.cli.main import fail
from dhtcrawl.cli.places import gone
from dhtcrawl.cli.runtime import STORE_DIR
from dhtcrawl.crawl.record_finder import rule_names
from dhtcrawl.errors import StorageError, UsageError
from dhtcrawl.storage.archive import archive
from dhtcrawl.storage.collect.facts import CrawlFacts, NodeFacts, Unreachable, checked, get_node, put_node, summarise
from dhtcrawl.storage.collect.foreign import BadRow, Origin, is_archive_file, is_file_not_left, is_node
from dhtcrawl.storage.collect.gather import COPIES, GATHERED, GatherProgress, Phase, finish, merge_rows, wanted_files
from dhtcrawl.storage.collect.gather_aside import drop_aside
from dhtcrawl.storage.collect.gather_files import IncomingFile, link_file
from dhtcrawl.storage.collect.merge_stores import MERGED, EndedStore, MergeStep, is_empty, merge_skipped, merge_tasks
from dhtcrawl.storage.collect.transfer import bring_bytes, row_pages
from dhtcrawl.storage.outputs.outputs import OutputCounters, OutputDirs, write_outputs
from dhtcrawl.storage.outputs.summary import Summary, write_summary
from dhtcrawl.storage.store import catalog, keys
from dhtcrawl.storage.store.catalog import DropStep
from dhtcrawl.storage.store.committer import Committer, GroupRunner, ThreadCommitter
from dhtcrawl.storage.store.crawl_record import COMPLETE, FAILED, CrawlRecord, left_to
from dhtcrawl.storage.store.engine import LevelEngine
from dhtcrawl.storage.store.outcomes import end_of
from dhtcrawl.storage.store.records import holds_copies
from dhtcrawl.storage.store.txn import Txn

log = logging.getLogger(__name__)
T = TypeVar("T")
NODES_AT_ONCE = 8  # each has one question under way, and one page or chunk in memory
DROP_AT_ONCE = 10_000
LET_GO_EVERY_STEPS = 10  # of a merge, each of which reads some megabytes
ARCHIVE_DIR = "archive"


class Source(Protocol):
    """The nodes of a crawl, named by their ids in hex. Any question may raise `Unreachable`."""

    async def nodes(self) -> list[NodeFacts]:
        """All nodes that hold something of the crawl; one that does not answer has a `failure`."""

    async def rows(self, node: str, kind: bytes, cursor: bytes) -> tuple[Sequence[tuple[bytes, bytes]], bytes | None]:
        """A page of rows from `cursor` on (b"" begins), and the next cursor, None at the end."""

    async def files(self, node: str) -> list[tuple[str, int]]:
        """The node's archive files, and how much of each is committed."""

    async def chunk(self, node: str, name: str, offset: int, limit: int) -> bytes:
        """1 to `limit` bytes of an archive file."""

    def local_dir(self, node: str) -> Path | None:
        """The node's archive directory, where it is on this machine."""

    def stores(self) -> Sequence[EndedStore]:
        """The stores of the nodes, where those have ended, and are this machine's own; else nothing."""


async def gather(
    source: Source,
    record: CrawlRecord,
    out: Path,
    data_dir: Path,
    facts: CrawlFacts,
    *,
    sync: bool = True,
    say: Callable[[str], None] = fail,
    make_committer: Callable[[GroupRunner], Committer] = ThreadCommitter,
) -> tuple[Summary, OutputCounters]:
    """Gather a crawl below `out`, with the collection's store in `data_dir`, which the caller has locked.

    `say` gets one line for each node that could not be gathered.

    Raises:
        UsageError: `out` holds another crawl, or this one complete, or what it held is gone.
        StorageError: the disk failed or is full; the same call goes on from there.
    """
    begun = (out / ARCHIVE_DIR).is_dir()
    async with _collection(data_dir / STORE_DIR, sync, make_committer) as committer:
        known = {crawl.crawl_id: crawl.ended for crawl in await committer.submit(catalog.crawls)}
        if not begun and known.get(record.crawl_id, FAILED) != FAILED:
            raise gone(out, data_dir)
        dirs = OutputDirs.on_disk(out)
        await _claim(committer, record, out, dirs)
        gathering = _Gathering(source, committer, record, facts, out / ARCHIVE_DIR)
        await gathering.bring()
        refetches = await gathering.settle()
        if await gathering.bring_copies():
            refetches = await gathering.settle()
        await gathering.keep_books()
        rules = rule_names(record.spec)
        write = partial(write_outputs, crawl=record.crawl_id, dirs=dirs, spec=record.spec, rules=rules)
        totals = await committer.submit(partial(write, pending_reason=facts.pending_reason))
        gathering.name_absent(totals.missing_at)
        summary = summarise(
            record,
            facts,
            gathering.books,
            totals,
            refetches=refetches,
            gathered=not gathering.failed,
        )
        await committer.submit(partial(_end, dirs=dirs, record=record, summary=summary))
        if summary.complete:
            await _drop(committer, partial(drop_aside, crawl=record.crawl_id))
    for node, why in gathering.failed.items():
        say(f"node {node[:12]} {why}; {out} lacks what only it holds: repeat the command when it is back")
    return summary, totals


class _Gathering:
    """Brings rows and files of all nodes into a collection."""

    def __init__(
        self, source: Source, committer: Committer, record: CrawlRecord, facts: CrawlFacts, directory: Path
    ) -> None:
        self.failed: dict[str, str] = {}  # node → why, of those that are not all here
        self.books: list[NodeFacts] = []
        self._source = source
        self._committer = committer
        self._record = record
        self._crawl = record.crawl_id
        self._wanted: set[str] = set()  # files of copies
        self._files_under_way: dict[str, asyncio.Lock] = {}
        self._unsettled = True
        self._absent: list[str] = []  # who took part, left no heir, and is no member now
        self._ended = facts.ended
        self._directory = directory

    async def bring(self) -> None:
        """All rows, then all files; and who failed."""
        nodes = {facts.node: checked(facts) for facts in await self._source.nodes()}
        self.failed = {node: facts.failure for node, facts in nodes.items() if facts.failure}
        self.failed |= {node: "is no node's id" for node in nodes if not is_node(node)}
        self.books = [facts for node, facts in nodes.items() if is_node(node)]
        parted = (*nodes, *self._record.heirs)  # an heir tells the figures of whom it has the pages of
        self._absent = sorted(node for node in set(self._record.participants).difference(parted) if is_node(node))
        merged = await self._merge()
        for kind in self._kinds:
            if kind not in merged:
                await self._each(partial(self._rows, kind))
        log.info("the rows of %d nodes are here; their archive files are next", len(self.books) - len(self.failed))
        # After the rows: of a crawl that still runs, every page seen is within what is committed then.
        await self._each(self._files)

    async def bring_copies(self) -> bool:
        """The files of copies that stand in for bodies which are not here; whether there were any."""
        cursor: bytes | None = b"" if COPIES[0] in self._kinds else None
        while cursor is not None:
            wanted, cursor = await self._committer.submit(partial(wanted_files, crawl=self._crawl, cursor=cursor))
            self._wanted |= wanted
        if self._wanted:
            await self._each(self._files)
        return bool(self._wanted)

    async def keep_books(self) -> None:
        """What each node did, also for a time when it cannot be asked any more."""
        for number, facts in enumerate(self.books):
            self.books[number], whole = await self._committer.submit(partial(self._keep_books, facts=facts))
            if whole:
                self.failed.pop(facts.node, None)
        for node in self._absent:
            kept = await self._committer.submit(partial(get_node, crawl=self._crawl, node=node))
            if kept is not None:
                self.books.append(kept[0])

    def name_absent(self, missing_at: Container[str]) -> None:
        """Participants that are no members have failed where bodies are `missing_at` them: of others all is here."""
        self.failed |= {node: "has left or is gone" for node in self._absent if node in missing_at}

    async def settle(self) -> int:
        """Make what came hold together; how many fetches of pages there were beyond the first of each."""
        at = GatherProgress()
        if not self._unsettled:
            return 0
        while at.phase != Phase.OVER:
            at = await self._committer.submit(partial(finish, crawl=self._crawl, at=at))
        return at.refetches

    @property
    def _kinds(self) -> tuple[bytes, ...]:
        return GATHERED + (COPIES if self._record.spec.settings.copies > 1 else ())

    @property
    def _stamp(self) -> int:
        """Names this end of the crawl: whatever goes on with it raises the version."""
        return 1 + self._record.version if self._ended else 0

    async def _each(self, bring: Callable[[str], Awaitable[None]]) -> None:
        """Do it for every node that has not failed, some of them at once."""
        room = asyncio.Semaphore(NODES_AT_ONCE)

        async def one(node: str) -> None:
            async with room:
                try:
                    await bring(node)
                except (Unreachable, BadRow) as error:
                    self.failed[node] = str(error)

        try:
            async with asyncio.TaskGroup() as group:
                for facts in self.books:
                    if facts.node not in self.failed:
                        group.create_task(one(facts.node))
        except BaseExceptionGroup as errors:
            # What the user can do something about comes before what it brought along.
            disk = errors.subgroup(StorageError)
            raise (errors if disk is None else disk).exceptions[0] from errors

    async def _merge(self) -> Sequence[bytes]:
        """Bring what lies open, where nothing is here that it had to be merged with; the kinds of rows that it was."""
        stores = self._source.stores()
        if not stores or not await self._committer.submit(partial(is_empty, crawl=self._crawl)):
            return ()
        self._unsettled = False
        for step in (merge_tasks, merge_skipped):
            done, count = MergeStep(b""), 0
            while done.cursor is not None:
                merge: Callable[[Txn], MergeStep] = partial(step, crawl=self._crawl, stores=stores, cursor=done.cursor)
                done = await self._committer.submit(merge)
                self._unsettled |= done.unsettled
                count += 1
                if count % LET_GO_EVERY_STEPS == 0:
                    await self._committer.submit(lambda _: [store.let_go() for store in stores])
        return MERGED

    async def _rows(self, kind: bytes, node: str) -> None:
        key_of, left = self._record.spec.key_of, left_to(self._record, node)
        async for rows in row_pages(partial(self._source.rows, node, kind)):
            log.debug("node %s has sent %d rows of the kind %s", node[:12], len(rows), kind.decode("ascii", "replace"))
            # Robots and the like stand by themselves, whoever sends them.
            self._unsettled |= bool(rows) and kind != keys.EXTRA
            await self._committer.submit(
                partial(merge_rows, crawl=self._crawl, node=node, kind=kind, rows=rows, key_of=key_of, left=left)
            )

    async def _files(self, node: str) -> None:
        origin = Origin(self._crawl, node, self._record.spec.key_of, left_to(self._record, node))
        # What it has of a node that it did not become the heir of, other nodes have.
        files = [file for file in await self._source.files(node) if not is_file_not_left(origin, file[0])]
        for name, length in files:
            if not is_archive_file(origin, name) or type(length) is not int or length < 0:
                raise BadRow(f"names {str(name)[:80]!r} as its archive file, which it cannot be")
        # A node begins a new file and never goes back to an older one, nor to one that was left to it.
        files.sort(key=lambda file: (origin.author_of(file[0]) == node, len(file[0]), file[0]))
        local = self._source.local_dir(node)
        files = [file for file in files if not holds_copies(file[0]) or file[0] in self._wanted]
        own = [name for name, _ in files if not holds_copies(name)]
        for name, length in files:
            # Of copies several files may be written to at once.
            closed = self._ended or (name in own and name != own[-1])
            # A file may lie at the node that wrote it and at the one that it was left to.
            async with self._files_under_way.setdefault(name, asyncio.Lock()):
                if not (local is not None and closed and await self._link(local / name, length)):
                    await self._copy(node, name, length)
            log.debug("%s of node %s is here, %d bytes", name, node[:12], length)
        size = sum(length for _, length in files)
        log.info("node %s has %d archive files, %d bytes, which are here", node[:12], len(files), size)

    async def _link(self, path: Path, length: int) -> bool:
        return await self._committer.submit(
            partial(link_file, crawl=self._crawl, directory=self._directory, source=path, length=length)
        )

    async def _copy(self, node: str, name: str, length: int) -> None:
        incoming = IncomingFile(self._directory, self._crawl, name, length)
        try:
            offset = await self._committer.submit(incoming.begin)
            chunk = partial(self._source.chunk, node)
            await bring_bytes(self._committer, chunk, name, offset, length, incoming.append)
        finally:
            # By the thread that writes to it, which may be in the middle of that. Why a disk failed is known already.
            self._committer.submit(lambda _: incoming.close()).add_done_callback(lambda closed: closed.exception())

    def _keep_books(self, txn: Txn, facts: NodeFacts) -> tuple[NodeFacts, bool]:
        """A node's books, those of the last time where it failed, and whether all it has is here."""
        if facts.node not in self.failed:
            put_node(txn, self._crawl, facts, self._stamp)
            return facts, True
        kept = get_node(txn, self._crawl, facts.node)
        if kept is None:
            return facts, False
        return kept[0], bool(self._stamp) and kept[1] == self._stamp


@asynccontextmanager
async def _collection(
    path: Path, sync: bool, make_committer: Callable[[GroupRunner], Committer]
) -> AsyncIterator[Committer]:
    engine = LevelEngine(path)
    committer = make_committer(GroupRunner(engine, sync=sync))
    try:
        await committer.submit(catalog.check_format)
        yield committer
    finally:
        await committer.close()
        engine.close()


async def _claim(committer: Committer, record: CrawlRecord, out: Path, dirs: OutputDirs) -> None:
    """Make `out` this crawl's, by the rules of `dhtcrawl crawl`.

    Raises:
        UsageError: it is another's, or holds this one complete, as it ended last.
        StorageError: the outputs of one that failed cannot be kept.
    """
    crawls = await committer.submit(catalog.crawls)
    for crawl in crawls:
        if crawl.ended == FAILED and crawl.crawl_id != record.crawl_id:
            keep_outputs(out, crawl.crawl_id)
            await _forget(committer, crawl.crawl_id, dirs)
        elif crawl.crawl_id != record.crawl_id:
            raise UsageError(
                f"{out} holds another crawl, of {crawl.spec.all_seeds[0]}; "
                "name another directory with --out for this one"
            )
        elif crawl.ended == COMPLETE and crawl.version >= record.version:
            raise UsageError(f"{out} holds this crawl, complete; name another directory with --out to gather it anew")
    await committer.submit(partial(catalog.put_crawl, crawl=replace(record, ended="")))


async def _forget(committer: Committer, crawl: bytes, dirs: OutputDirs) -> None:
    await committer.submit(lambda txn: archive.forget(dirs.archive, txn, crawl))
    await _drop(committer, partial(catalog.forget, crawl=crawl))


async def _drop(committer: Committer, drop: Callable[..., DropStep]) -> None:
    """Drop records until none is left."""
    step = DropStep()
    while step.cursor is not None:
        step = await committer.submit(partial(drop, limit=DROP_AT_ONCE, cursor=step.cursor))


def _end(txn: Txn, dirs: OutputDirs, record: CrawlRecord, summary: Summary) -> None:
    write_summary(dirs.root, summary)
    if summary.complete:
        catalog.set_ended(txn, record.crawl_id, end_of(summary.pages_ok))
