"""What a command does about a crawl that failed, or is complete, in the directory in which it begins another."""

from __future__ import annotations

from pathlib import Path

from dhtcrawl.cli.main import tell
from dhtcrawl.cli.store import opened
from dhtcrawl.crawl.budget import is_raised
from dhtcrawl.spec import CrawlSpec
from dhtcrawl.storage.outputs.earlier import set_aside
from dhtcrawl.storage.store import catalog
from dhtcrawl.storage.store.crawl_record import COMPLETE, FAILED


def keep_outputs(out: Path, crawl: bytes) -> None:
    """Keep the outputs of a crawl that failed in `out`, and say where, if it has any page.

    Raises:
        StorageError: they cannot be moved.
    """
    kept = set_aside(out, crawl)
    if kept is not None:
        tell(f"the crawl that was here fetched nothing but redirects and errors; its outputs are in {kept}/ now")


def holds_failed(data_dir: Path) -> bool:
    """Whether all crawls of a store have failed, so that another may begin in its place.

    Raises:
        StoreInUse: a process holds it.
        StorageError: it cannot be read.
    """
    with opened(data_dir) as (_, txn):
        return all(crawl.ended == FAILED for crawl in catalog.crawls(txn))


def is_deeper(data_dir: Path, spec: CrawlSpec) -> bool:
    """Whether `spec` is a crawl of this store that is complete, but with a higher depth limit.

    Raises:
        StoreInUse: a process holds it.
        StorageError: it cannot be read.
    """
    with opened(data_dir) as (_, txn):
        crawls = [crawl for crawl in catalog.crawls(txn) if crawl.ended == COMPLETE and crawl.spec.is_like(spec)]
    return any(is_raised(crawl.ended, crawl.settings, spec.settings) for crawl in crawls)
