"""How the archive files of one crawl on one node are called, without I/O: PREFIX-00000.warc.gz."""

from __future__ import annotations

import re

COPIES = "c"  # stands before the number of a file that holds copies of other nodes' records
SUFFIX = ".warc.gz"
NUMBERED = re.compile(rf"{COPIES}?\d{{5,9}}\.warc\.gz", re.ASCII)  # what follows the last dash of a name
