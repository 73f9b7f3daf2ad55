"""The names of a node's archive files of a crawl, without I/O: PREFIX-00000.warc.gz."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final, NamedTuple

from dhtcrawl.storage.store import records

COPIES = records.COPIES
SUFFIX = ".warc.gz"
NUMBERED = re.compile(rf"{COPIES}?\d{{5,9}}\.warc\.gz", re.ASCII)  # the part behind the last dash of a name


_SINCE: Final = datetime(2020, 1, 1, tzinfo=UTC)
_FIRST_MAX: Final = 900_000_000  # in 2048; a number has 9 digits


def first_number(instant: datetime) -> int:
    """The number of the first file of a node that begins now, and may have lost its store, or have an older one.

    Collections and heirs know files by their names: another file of the same name would be taken for what they have. So
    it counts seconds, and files are counted on from there; nobody begins a file a second for long.
    """
    return min(max(0, int((instant - _SINCE).total_seconds())), _FIRST_MAX)


class ArchiveSeries(NamedTuple):
    """The files of a crawl (id) at a node (id in hex); copies of bodies have a `series` of their own.

    They are numbered from `first` on, or from behind the last one that the store knows.
    """

    crawl: bytes
    node: str
    series: str = ""
    first: int = 0

    @property
    def prefix(self) -> str:
        """The beginning of the files' names, up to the number."""
        return f"{self.crawl.hex()[:12]}-{self.node[:12]}-{self.series}"
