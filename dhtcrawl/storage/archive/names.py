"""The names of a node's archive files of a crawl, without I/O: PREFIX-00000.warc.gz."""

from __future__ import annotations

import re
from typing import NamedTuple

from dhtcrawl.storage.store import records

COPIES = records.COPIES
SUFFIX = ".warc.gz"
NUMBERED = re.compile(rf"{COPIES}?\d{{5,9}}\.warc\.gz", re.ASCII)  # the part behind the last dash of a name


class ArchiveSeries(NamedTuple):
    """The files of a crawl (id) at a node (id in hex); copies of bodies have a `series` of their own."""

    crawl: bytes
    node: str
    series: str = ""

    @property
    def prefix(self) -> str:
        """The beginning of the files' names, up to the number."""
        return f"{self.crawl.hex()[:12]}-{self.node[:12]}-{self.series}"
