"""Moves the outputs of an earlier crawl out of the way of the one that begins in its directory.

    OUT/earlier/CRAWL/    archive, indexes, pages, records, reports and summary.json, as they were

A crawl that brought nothing but redirects and errors is begun anew by the same command; the answers that it got are
kept here until a person removes them. Files are renamed one by one, the archive first: what a crash leaves behind is
moved by the next call. What a person has put into records/ stays.
"""

from __future__ import annotations

from pathlib import Path

from dhtcrawl.storage.outputs.outputs import ARCHIVE_DIR, OUTPUT_FILES, PAGES_DIR, PAGES_FILE
from dhtcrawl.storage.outputs.record_files import RECORDS_DIR, begins_as_records, record_files
from dhtcrawl.storage.store.engine import storage_error

EARLIER_DIR = "earlier"
_ID_DIGITS = 12  # of a crawl's id, in the names of its archive files


def set_aside(out: Path, crawl: bytes) -> Path | None:
    """Move a crawl's outputs from `out` to where they stay, and return that directory; None if there are no pages.

    Raises:
        StorageError: a file cannot be moved; the same call goes on from there.
    """
    name_begins = crawl.hex()[:_ID_DIGITS]
    target = out / EARLIER_DIR / name_begins
    pages = out / PAGES_DIR / PAGES_FILE
    if not (target.exists() or (pages.exists() and pages.stat().st_size)):
        return None
    archive = sorted((out / ARCHIVE_DIR).glob(f"{name_begins}-*"))
    names = [f"{ARCHIVE_DIR}/{path.name}" for path in archive]
    try:
        records = [f"{RECORDS_DIR}/{path.name}" for path in record_files(out) if begins_as_records(path)]
        for name in (*names, *OUTPUT_FILES, *records):
            if (out / name).exists():
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                (out / name).replace(target / name)
    except OSError as error:
        raise storage_error(error, f"cannot move outputs to {target}") from error
    return target
