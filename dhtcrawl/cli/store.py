"""Opening a store to look at it, without running a node."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dhtcrawl.cli.runtime import STORE_DIR, locked
from dhtcrawl.errors import UsageError
from dhtcrawl.storage.store import catalog
from dhtcrawl.storage.store.crawl_record import CrawlRecord
from dhtcrawl.storage.store.engine import LevelEngine
from dhtcrawl.storage.store.txn import Txn


@contextmanager
def opened(data_dir: Path) -> Iterator[tuple[LevelEngine, Txn]]:
    """The store of a node that is not running; writes of the transaction are dropped. It stays its owner's.

    Raises:
        UsageError: a process holds it.
        StoreTooNew, StorageError: it cannot be read.
    """
    with locked(data_dir):
        engine = LevelEngine(data_dir / STORE_DIR)
        try:
            txn = Txn(engine, {})
            catalog.check_format(txn)
            yield engine, txn
        finally:
            engine.close()
            if os.geteuid() == 0:
                _left_to_owner(data_dir / STORE_DIR)


def _left_to_owner(store: Path) -> None:
    """Give root's files in a store to its owner: LevelDB writes new ones whenever it opens it.

    Else a node that runs as a user of its own could not open its store after root has looked into it.
    """
    owner = store.stat()
    for path in store.iterdir() if owner.st_uid else ():
        with suppress(OSError):
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                here = os.fstat(fd)
                # No file of root's that somebody has linked to from here.
                if here.st_uid == 0 and here.st_nlink == 1 and stat.S_ISREG(here.st_mode):
                    os.fchown(fd, owner.st_uid, owner.st_gid)
            finally:
                os.close(fd)


def chosen(crawls: list[CrawlRecord], prefix: str | None) -> list[CrawlRecord]:
    """The crawls whose id begins with `prefix`; all of them without one.

    Raises:
        UsageError: there is none, or `prefix` could mean several.
    """
    if prefix is None:
        return crawls
    if not prefix:
        # An unset variable of a script: it does not mean the only crawl there is.
        raise UsageError("the crawl's id is empty; give the start of it")
    found = [crawl for crawl in crawls if crawl.crawl_id.hex().startswith(prefix.lower())]
    if not found:
        known = ", ".join(crawl.crawl_id.hex()[:12] for crawl in crawls) or "none"
        raise UsageError(f"no crawl {prefix} here; there is: {known}")
    if len(found) > 1:
        raise UsageError(f"{prefix} could be any of {len(found)} crawls; give more of the id")
    return found
