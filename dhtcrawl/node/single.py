"""Builds a node, runs its crawls, and stops them in named stages.

    open ──▶ running ──stop intake──▶ drain ──▶ write outputs ──▶ closed

Clocks, chance, sockets, disk and threads are handed in as `Ports`: the real ones by
`dhtcrawl.cli`, simulated ones by `dhtcrawl.sim`.
"""

from __future__ import annotations

import random
import resource
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple

from dhtcrawl import __version__
from dhtcrawl.clock import Clock
from dhtcrawl.config import Config, CrawlSettings
from dhtcrawl.crawl.budget import Stop, is_raised
from dhtcrawl.crawl.crawler import Crawl
from dhtcrawl.crawl.parts import build, first_round
from dhtcrawl.crawl.ports import CrawlPorts
from dhtcrawl.crawl.record_finder import rule_names
from dhtcrawl.crawl.rounds import CrawlCounters, CrawlStart
from dhtcrawl.crawl.services import Observer, Services
from dhtcrawl.crawl.single_node import PORTS, NoAssignment, SoleBudget
from dhtcrawl.crawl.slot_shares import NodeShares
from dhtcrawl.errors import Exit
from dhtcrawl.fetch.host_access import HostAccess, UnleasedHosts
from dhtcrawl.fetch.http import HttpClient
from dhtcrawl.fetch.politeness import HostBook
from dhtcrawl.node_key import NodeKey
from dhtcrawl.spec import NONCE_BYTES, CrawlSpec
from dhtcrawl.storage.archive import body_copies
from dhtcrawl.storage.archive.archive import Archive
from dhtcrawl.storage.archive.archive import forget as forget_files
from dhtcrawl.storage.archive.names import COPIES, ArchiveSeries
from dhtcrawl.storage.collect.facts import CrawlFacts, NodeFacts, summarise
from dhtcrawl.storage.outputs.outputs import LivePages, OutputCounters, OutputDirs, write_outputs
from dhtcrawl.storage.outputs.summary import Summary, write_summary
from dhtcrawl.storage.store import catalog, keys, tasks
from dhtcrawl.storage.store.committer import Committer, GroupRunner
from dhtcrawl.storage.store.counters import Figures, put_counters
from dhtcrawl.storage.store.crawl_record import (
    COMPLETE,
    RUNNING,
    CrawlRecord,
    changed,
    new_record,
    signed,
    with_settings,
)
from dhtcrawl.storage.store.files import Directory
from dhtcrawl.storage.store.known_depths import DepthTable
from dhtcrawl.storage.store.outcomes import end_of
from dhtcrawl.storage.store.ownership import Test
from dhtcrawl.storage.store.records import Task, pack
from dhtcrawl.storage.store.txn import Engine, Txn

FORGET_AT_ONCE = 10_000

# A node by itself names no class of the swarm: their import would cost its start.
Leases = tuple[HostBook, HostAccess]


class Ports(NamedTuple):
    """The clocks, chance, sockets, disk and threads of a node."""

    clock: Clock
    rng: random.Random
    http: HttpClient
    engine: Engine
    make_committer: Callable[[GroupRunner], Committer]
    offload: Callable[[Callable[[], Any]], Awaitable[Any]]
    # The same for functions that may never return: the node does not wait for them when it ends.
    aside: Callable[[Callable[[], Any]], Awaitable[Any]]
    key: NodeKey  # which gives the node its id
    observer: Observer
    # Traits of the machine, as far as they are known: names and positive numbers.
    machine: Callable[[], Mapping[str, float]] = dict


class Node:
    """One node with its store open; made by `open_node`."""

    def __init__(
        self, config: Config, ports: Ports, runner: GroupRunner, committer: Committer, incarnation: int
    ) -> None:
        self.config = config
        self.node_id = ports.key.node_id.hex()
        self.ports = ports
        self.committer = committer
        self.incarnation = incarnation
        self._runner = runner
        self._shares = NodeShares()
        self._safe_tasks = DepthTable()
        self._archives: dict[bytes, list[Archive]] = {}  # of the crawls that run
        self._has_run = False  # a crawl, since the process began
        self._hosts = HostBook(started_at=ports.clock.monotonic(), fresh=incarnation == 1)

    async def crawls(self) -> list[CrawlRecord]:
        """The crawls in the store.

        Raises:
            StorageError: the store cannot be read.
        """
        return await self.committer.submit(catalog.crawls)

    async def create_crawl(self, spec: CrawlSpec) -> CrawlRecord:
        """Store a new crawl of `spec`, with an id and a record, and no task yet.

        Raises:
            StorageError: the store cannot be written.
        """
        record = new_record(spec, self.ports.rng.randbytes(NONCE_BYTES), self.ports.key)
        await self.committer.submit(lambda txn: catalog.put_crawl(txn, record))
        return record

    async def change(self, record: CrawlRecord, settings: CrawlSettings) -> CrawlRecord:
        """Store that the limits and the delay of a crawl are those of `settings` from now on; the record since then.

        One that is complete goes on where its depth limit is higher now, also at one node after it was of several.

        Raises:
            StorageError: the store cannot be written.
        """
        after = with_settings(record, settings)
        if record.ended == COMPLETE and is_raised(COMPLETE, record.settings, after.settings):
            after = changed(after, RUNNING)
        after = signed(after, record, self.ports.key)

        def write(txn: Txn) -> None:
            catalog.put_crawl(txn, after)
            counted = keys.key(keys.COUNTERS, record.crawl_id)
            if record.totals and txn.get(counted) is None:  # several nodes had it, each with counters of its own
                txn.put(counted, pack(dict(record.totals)))

        await self.committer.submit(write)
        return after

    async def forget(self, crawl_id: bytes, dirs: OutputDirs) -> int:
        """Drop all records of a crawl and its archive files; return how many records there were.

        Raises:
            StorageError: the store cannot be written, or a file not removed.
        """
        await self.committer.submit(lambda txn: forget_files(dirs.archive, txn, crawl_id))
        return await self._drop(partial(catalog.forget, crawl=crawl_id))

    async def drop_forgotten(self, crawl_ids: Iterable[bytes]) -> None:
        """Drop what is there of these crawls, which were forgotten here (`catalog.closed`).

        Nodes that have not forgotten them send task records that both would keep. And who killed `dhtcrawl forget` in
        the middle may not find that the rest of a crawl is taken for all of it.

        Raises:
            StorageError: the store cannot be read or written.
        """
        for crawl_id in crawl_ids:
            await self._drop(partial(catalog.drop_closed, crawl=crawl_id))

    async def task(self, record: CrawlRecord, key: bytes) -> Task | None:
        """The record of one task, or None.

        Raises:
            StorageError: the record cannot be read.
        """
        return await self.committer.submit(partial(tasks.get_task, crawl=record.crawl_id, key=key))

    async def recover(self, record: CrawlRecord, directory: Directory, *, first_file: int = 0) -> RecoveredCrawl:
        """Read a crawl's state from the store, and cut its archive files in `directory` to their committed lengths.

        New ones are numbered from `first_file` on.

        Raises:
            StorageError: the store or an archive file cannot be read.
        """
        archive, further = self._archive(record, directory, "", first_file), record.spec.settings.copies - 1

        def recover(txn: Txn) -> tuple[bytes | None, int, dict[str, float]]:
            archive.recover(txn)
            undercopied = body_copies.undercopied(txn, record.crawl_id, further) if further else 0
            stored = txn.get(keys.key(keys.COUNTERS, record.crawl_id))
            return stored, undercopied, tasks.owed(txn, record.crawl_id)

        stored, undercopied, owed = await self.committer.submit(recover)
        counters = CrawlCounters.unpack(stored)
        counters.pages_undercopied = undercopied
        self._use(archive, record)
        return RecoveredCrawl(
            record,
            archive,
            CrawlStart(record.spec_now, record.crawl_id, counters, record.aliases, owed, record.begun_depth),
        )

    def services(self, recovered: RecoveredCrawl, ports: CrawlPorts, leases: Leases | None = None) -> Services:
        """The services of a crawl; in a swarm `leases` are the clocks of its hosts, and the access to them."""
        hosts, gate = leases or (self._hosts, UnleasedHosts())
        return Services(
            config=self.config,
            clock=self.ports.clock,
            rng=self.ports.rng,
            http=self.ports.http,
            committer=self.committer,
            archive=recovered.archive,
            hosts=hosts,
            node=self.node_id,
            incarnation=self.incarnation,
            offload=self.ports.offload,
            ports=ports,
            gate=gate,
            observer=self.ports.observer,
            crawls=self._shares,
            safe_tasks=self._safe_tasks,
        )

    async def prepare(
        self, record: CrawlRecord, dirs: OutputDirs, *, disk_used: Callable[[], Awaitable[bool]]
    ) -> RunningCrawl:
        """Make a crawl ready to run on this node by itself.

        Raises:
            StorageError: the store or an archive file cannot be read.
        """
        recovered, live = await self.recover(record, dirs.archive), LivePages(dirs)
        services = self.services(recovered, PORTS)
        parts = build(services, recovered.start, first_round(recovered.start), live)
        budget = SoleBudget(record.settings.max_pages, parts.counters)
        crawl = Crawl(services, parts, NoAssignment(), budget, disk_used=disk_used)
        return self.running(record, crawl, dirs, live)

    def running(self, record: CrawlRecord, crawl: Crawl, dirs: OutputDirs, live: LivePages) -> RunningCrawl:
        """The crawl together with its outputs, to be run once."""
        # What the process used before belongs to its first crawl, or a command would not count its own start.
        cpu_from_s = _cpu_seconds() if self._has_run else 0.0
        self._has_run = True
        return RunningCrawl(self, record, crawl, dirs, live, cpu_from_s=cpu_from_s)

    async def copies_archive(self, record: CrawlRecord, directory: Directory, first_file: int) -> Archive:
        """The archive for copies of other nodes' bodies, ready to be written to; call it once a crawl."""
        archive = self._archive(record, directory, COPIES, first_file)
        await self.committer.submit(archive.recover)
        self._use(archive, record)
        return archive

    async def retire(self, crawl_id: bytes) -> None:
        """Close the archive files of a crawl that runs no more, or a node with many crawls runs out of open files.

        Raises:
            StorageError: the disk has failed.
        """
        archives = self._archives.pop(crawl_id, [])
        await self.committer.submit(partial(_rest, archives=archives))

    async def _drop(self, drop: Callable[..., catalog.DropStep]) -> int:
        """Drop records until none is left; how many there were."""
        step, dropped = catalog.DropStep(), 0
        while step.cursor is not None:
            step = await self.committer.submit(partial(drop, limit=FORGET_AT_ONCE, cursor=step.cursor))
            dropped += step.dropped
        return dropped

    def _use(self, archive: Archive, record: CrawlRecord) -> None:
        self._runner.participants.append(archive)
        self._archives.setdefault(record.crawl_id, []).append(archive)

    def _archive(self, record: CrawlRecord, directory: Directory, series: str, first: int) -> Archive:
        return Archive(
            directory,
            ArchiveSeries(record.crawl_id, self.node_id, series, first),
            bytes_max=self.config.storage.warc_bytes_max,
            sync=self.config.storage.sync,
            wall=self.ports.clock.wall,
            info=_warcinfo(record),
        )


class RecoveredCrawl(NamedTuple):
    """A crawl's record, archive and stored state when it starts or goes on."""

    record: CrawlRecord
    archive: Archive
    start: CrawlStart


class RunningCrawl:
    """A crawl with its outputs."""

    def __init__(
        self, node: Node, record: CrawlRecord, crawl: Crawl, dirs: OutputDirs, live: LivePages, *, cpu_from_s: float
    ) -> None:
        """The process had used `cpu_from_s` seconds of CPU when what this crawl uses begins to count."""
        self.record = record
        self.crawl = crawl
        self.writing = False  # the outputs, which takes minutes where a million pages are known
        self._node = node
        self._dirs = dirs
        self._live = live
        self._cpu_before = crawl.counters.cpu_seconds - cpu_from_s

    async def run(self) -> tuple[Summary, Exit]:
        """Crawl to the end and write the outputs; return the summary and the exit code.

        Raises:
            StorageError: the disk failed or is full; the same crawl can go on later.
        """
        # A run that was killed may have left a torn or outdated pages.jsonl.
        await self._write(partial(self._outputs, pending_reason=""))
        await self._crawl()
        stopped = self.crawl.stopped
        pending_reason = stopped.reason if stopped is not None else ""
        totals = await self._write(partial(self._outputs, pending_reason=pending_reason))
        self.crawl.counters.cpu_seconds = self._cpu_before + _cpu_seconds()
        summary = self._summary(totals)
        await self._write(partial(self._finish, figures=self.crawl.counters.figures(), summary=summary))
        return summary, _exit_code(summary, stopped)

    async def run_part(self, claims: Callable[[], Test]) -> None:
        """Crawl as one node of a swarm until the crawl is over, and write this node's part of the outputs.

        The part is left out where a command gathers it from here. `claims()` gives an immutable
        test of a task key: whether the task is in this node's part.

        Raises:
            StorageError: the disk failed or is full; the same crawl can go on later.
        """
        write = partial(self._outputs, pending_reason="")
        if self.crawl.counters.pages and not self._dirs.gathered:
            # A run that was killed may have left a torn or outdated pages.jsonl.
            await self._write(partial(write, ours=claims()))
        await self._crawl()
        if not self._dirs.gathered:
            await self._write(partial(write, ours=claims()))
        self.crawl.counters.cpu_seconds = self._cpu_before + _cpu_seconds()
        await self._write(partial(_part_written, crawl=self.record.crawl_id, figures=self.crawl.counters.figures()))

    async def _crawl(self) -> None:
        await self.crawl.run()
        # What only fetching needs makes room for what the outputs need.
        self.crawl.parts.discovery.forget()

    async def _write(self, function: Callable[[Txn], Any]) -> Any:
        self.writing = True
        try:
            return await self._node.committer.submit(function)
        finally:
            self.writing = False

    def _outputs(self, txn: Txn, *, pending_reason: str, ours: Callable[[bytes], bool] | None = None) -> OutputCounters:
        self._live.close()
        crawl, spec = self.record.crawl_id, self.record.spec
        rules = rule_names(spec)
        return write_outputs(txn, crawl, self._dirs, spec=spec, pending_reason=pending_reason, ours=ours, rules=rules)

    def _finish(self, txn: Txn, figures: Figures, summary: Summary) -> None:
        crawl_id = self.record.crawl_id
        put_counters(txn, crawl_id, figures)
        catalog.set_ended(txn, crawl_id, _ended(summary))
        write_summary(self._dirs.root, summary)

    def _summary(self, totals: OutputCounters) -> Summary:
        counters = self.crawl.counters
        counted = {**counters.figures(), "pages": totals.pages, "body_bytes": totals.bytes}
        node = NodeFacts(self._node.node_id, counted, counters.cpu_seconds, _rss_bytes_max())
        facts = CrawlFacts(True, self.crawl.complete, 1, counters.seconds, self._node.config.storage.sync)
        return summarise(self.record, facts, [node], totals, refetches=counters.refetches, gathered=True)


@asynccontextmanager
async def open_node(config: Config, ports: Ports) -> AsyncIterator[Node]:
    """Open a node on its store; close both at the end, whatever happens.

    Raises:
        StoreTooNew: a later version wrote the store.
        StorageError: the store cannot be read or written.
    """
    runner = GroupRunner(ports.engine, sync=config.storage.sync)
    committer = ports.make_committer(runner)
    try:

        def start(txn: Txn) -> tuple[int, list[bytes]]:
            catalog.check_format(txn)
            return catalog.next_incarnation(txn), catalog.closed(txn)

        incarnation, forgotten = await committer.submit(start)
        node = Node(config, ports, runner, committer, incarnation)
        await node.drop_forgotten(forgotten)
        yield node
    finally:
        await ports.http.close()
        await committer.close()
        for participant in runner.participants:
            participant.close()
        ports.engine.close()


def _rest(_: Txn, archives: list[Archive]) -> None:
    for archive in archives:
        archive.rest()


def _part_written(txn: Txn, crawl: bytes, figures: Figures) -> None:
    put_counters(txn, crawl, figures)
    catalog.set_unwritten(txn, crawl, False)


def _ended(summary: Summary) -> str:
    return end_of(summary.pages_ok) if summary.complete else ""


def _exit_code(summary: Summary, stopped: Stop | None) -> Exit:
    if stopped is not None:
        return stopped.exit_code
    if not summary.pages_ok:
        return Exit.NOTHING_FETCHED
    return Exit.COMPLETE if summary.complete else Exit.FAILURE


def _warcinfo(record: CrawlRecord) -> dict[str, str]:
    settings = record.spec.settings
    return {
        "software": f"dhtcrawl/{__version__}",
        "format": "WARC File Format 1.0",
        "conformsTo": "http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.0/",
        "robots": "ignore" if settings.ignore_robots else "obey",
        "http-header-user-agent": record.spec.user_agent,
        "isPartOf": record.crawl_id.hex(),
    } | ({"operator": settings.contact} if settings.contact else {})


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _rss_bytes_max() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
