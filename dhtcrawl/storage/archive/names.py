"""How the archive files of one crawl on one node are called, without I/O: PREFIX-00000.warc.gz."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dhtcrawl.storage.store import records

COPIES = records.COPIES
SUFFIX = ".warc.gz"
NUMBERED = re.compile(rf"{COPIES}?\d{{5,9}}\.warc\.gz", re.ASCII)  # what follows the last dash of a name


@dataclass(frozen=True, slots=True)
class ArchiveSeries:
    """The files of one crawl (id) that one node (id in hex) writes; copies have a `series` of their own."""

    crawl: bytes
    node: str
    series: str = ""

    @property
    def prefix(self) -> str:
        """What the files' names begin with, the number left out."""
        return f"{self.crawl.hex()[:12]}-{self.node[:12]}-{self.series}"
