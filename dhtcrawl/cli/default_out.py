"""Where a crawl goes whose command names no directory: on in the newest one that it was begun in, else to a new one.

A new one is named by the first seed's site and the day, `./example.org-2026-11-25`.
A crawl that was begun in the working directory is meant if it is not over, has the
same seeds, and the same settings but for those that may change. Older versions
named theirs `./crawl-2026-11-25`, and these are found as well: the name says nothing.
A crawl whose command was killed is meant, too, though its nodes have not all ended yet.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Final

from dhtcrawl.cli.options import AUTO
from dhtcrawl.cli.orphans import freed
from dhtcrawl.cli.places import NODES_DIR, SUFFIX, data_dirs_in, node_dir, nodes_dir, out_of
from dhtcrawl.cli.runtime import STORE_DIR, locked
from dhtcrawl.cli.screen import Screen
from dhtcrawl.cli.store import opened
from dhtcrawl.errors import DhtcrawlError
from dhtcrawl.identity import FILE_NAME
from dhtcrawl.spec import CrawlSpec
from dhtcrawl.storage.outputs.outputs import SUMMARY_FILE
from dhtcrawl.storage.store import catalog
from dhtcrawl.storage.store.crawl_record import COMPLETE, FAILED, STOPPED
from dhtcrawl.url import host_of

HOST_CHARS_MAX: Final = 200  # a file name has 255 bytes, and more than the host is in it
STORES_MAX: Final = 50  # the newest ones are looked into; each takes some milliseconds to open
_UNSAFE = re.compile(r"[^a-z0-9._-]+")


def new_out(spec: CrawlSpec, today: date) -> Path:
    """A directory for a new crawl, in the working directory."""
    site = _UNSAFE.sub("-", host_of(spec.all_seeds[0]).lower())[:HOST_CHARS_MAX].strip("-.")
    return Path("-".join(filter(None, ("crawl", site, today.isoformat()))))


def unfinished(directory: Path, spec: CrawlSpec, nodes: int) -> Path | None:
    """The outputs of the newest crawl in `directory` with which this one goes on; None where there is none.

    `nodes` is how many crawl, or `AUTO` for any number. What is in use, or cannot be read, is passed over.
    """
    places = _newest(directory, nodes)
    for out, data_dir in places[:STORES_MAX]:
        if not _is_complete(out) and _goes_on(data_dir, spec):
            return out
    return None


def nodes_begun(out: Path) -> int | None:
    """With how many nodes a crawl was begun in `out`; None where none is under way."""
    swarm = len(_dirs(nodes_dir(out)))
    return swarm or (1 if (node_dir(out) / FILE_NAME).exists() else None)


def _newest(directory: Path, nodes: int) -> list[tuple[Path, Path]]:
    if nodes == AUTO:
        both = [*_swarms(directory, nodes), *_single_nodes(directory)]
        return sorted(both, key=lambda place: place[1].stat().st_mtime, reverse=True)
    return _swarms(directory, nodes) if nodes > 1 else _single_nodes(directory)


def _single_nodes(directory: Path) -> list[tuple[Path, Path]]:
    # A collection that was gathered has a store, but no node's key: nobody crawls there.
    found = [(out_of(path), path) for path in data_dirs_in(directory) if (path / FILE_NAME).exists()]
    return [(out, path) for out, path in found if out is not None]


def _swarms(directory: Path, nodes: int) -> list[tuple[Path, Path]]:
    """The outputs of crawls by so many processes, or by any number, and the first data directory, the newest first."""
    found = [(out, base / "1") for out, base in _bases(directory) if nodes in (AUTO, len(_dirs(base)))]
    found = [(out, path) for out, path in found if (path / STORE_DIR).is_dir()]
    return sorted(found, key=lambda place: place[1].stat().st_mtime, reverse=True)


def _bases(directory: Path) -> Iterator[tuple[Path, Path]]:
    for base in directory.glob(f"*/{NODES_DIR}"):
        beside = out_of(base.parent) if base.parent.name.endswith(SUFFIX) else None
        yield beside or base.parent, base


def _dirs(base: Path) -> list[Path]:
    return [path for path in base.iterdir() if path.is_dir()] if base.is_dir() else []


def _is_complete(out: Path) -> bool:
    try:
        summary = json.loads((out / SUMMARY_FILE).read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(summary, dict) and summary.get("complete") is True


def _goes_on(data_dir: Path, spec: CrawlSpec) -> bool:
    base = data_dir.parent
    try:
        if base.name == NODES_DIR:
            with locked(base):  # else its command is at work
                pass
            asyncio.run(freed([data_dir], Screen()))
        with opened(data_dir) as (_, txn):
            crawls = catalog.crawls(txn)
    except DhtcrawlError:
        return False
    return any(crawl.spec.is_like(spec) and crawl.ended not in (COMPLETE, FAILED, STOPPED) for crawl in crawls)
