"""The whole crawl as a user gets it: what is on several disks, gathered and written out as one collection."""

from __future__ import annotations

from collections.abc import Iterable

from dhtcrawl.sim.world import SimDisk
from dhtcrawl.spec import CrawlSpec
from dhtcrawl.storage.collect.gather import COPIES, GATHERED, GatherProgress, Phase, finish, merge_rows
from dhtcrawl.storage.outputs.outputs import OutputCounters, OutputDirs, write_outputs
from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.files import MemoryDirectory
from dhtcrawl.storage.store.memory import MemoryEngine
from dhtcrawl.storage.store.records import unpack
from dhtcrawl.storage.store.txn import Txn

# Where the page record stands that a row belongs to.
_PAGE_OF = dict.fromkeys((keys.PAGE, keys.LINKS, keys.FETCHED), keys.PAGE) | dict.fromkeys(COPIES, keys.COPY)


def collect(
    disks: Iterable[tuple[bytes, SimDisk]], crawl: bytes, spec: CrawlSpec
) -> tuple[OutputDirs, OutputCounters, int]:
    """Gather disks (of node ids); the outputs, what they hold, and how many page records there were beyond one a page.

    Raises:
        BadRow: a disk has what no sound node writes.
    """
    batch: dict[bytes, bytes | None] = {}
    txn, dirs = Txn(MemoryEngine(), batch), OutputDirs.in_memory()
    disks = list(disks)
    for kind in GATHERED + (COPIES if spec.settings.copies > 1 else ()):
        for node, disk in disks:
            for origin, rows in _rows(node, disk, crawl, kind).items():
                merge_rows(txn, crawl, origin, kind, rows, spec.key_of)
    for _, disk in disks:
        _copy_archive(disk, crawl, dirs, txn)
    at = GatherProgress()
    while at.phase != Phase.OVER:
        at = finish(txn, crawl, at)
    totals = write_outputs(txn, crawl, dirs, spec=spec, pending_reason="")
    return dirs, totals, at.refetches


def _rows(node: bytes, disk: SimDisk, crawl: bytes, kind: bytes) -> dict[str, list[tuple[bytes, bytes]]]:
    """A disk's rows by who fetched what they are about: a node that left gave its pages to another."""
    found: dict[str, list[tuple[bytes, bytes]]] = {}
    for full, value in disk.engine.scan(*keys.bounds(kind, crawl)):
        origin = node.hex()
        if kind == keys.EXTRA:
            origin = unpack(value)["place"][0]
        elif kind in _PAGE_OF:
            page = disk.engine.get(_PAGE_OF[kind] + full[1:])
            origin = origin if page is None else unpack(page)["place"][0]
        found.setdefault(origin, []).append((keys.suffix(full), value))
    return found


def _copy_archive(disk: SimDisk, crawl: bytes, dirs: OutputDirs, txn: Txn) -> None:
    source, target = disk.outputs.archive, dirs.archive
    assert isinstance(source, MemoryDirectory), "a simulated disk"
    assert isinstance(target, MemoryDirectory), "the collection, too"
    for full, value in disk.engine.scan(*keys.bounds(keys.ARCHIVE, crawl)):
        name, length = keys.suffix(full).decode(), unpack(value)
        data = source.files.get(name, bytearray())[:length]
        # Another heir may have less of it.
        if len(data) == length >= len(target.files.get(name, b"")):
            target.files[name] = data
            txn.put(full, value)
