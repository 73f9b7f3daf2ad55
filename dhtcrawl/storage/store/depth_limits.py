"""What another depth limit asks of the pages that were fetched within the one before.

    withheld    a page at the limit sent no links; within a wider limit they go out
    not exact   without a limit no shorter way to a known page is told; within a limit it is, and so are links to what
                lies within it

A page record says within which limit its links were sent, so whoever looks through all pages finds the same, and
nothing once the links of all are out. Functions take a `Txn` and run on the committer's thread; they raise
`StorageError` if a record is damaged.
"""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.records import DEPTH_LIMIT, unpack
from dhtcrawl.storage.store.txn import Txn


class OwedStep(NamedTuple):
    """Some pages were looked at."""

    owing: int  # of which so many owe their links
    cursor: bytes | None  # None: these were the last ones


def reaches(limit: int, depth: int) -> bool:
    """Whether a depth limit, -1: none, lets a page at a depth be fetched."""
    return not 0 <= limit < depth


def owes_links(depth: int, sent_depth: int, sent_within: int, limit: int) -> bool:
    """Whether a page owes its links within a `limit`, if they were to be sent with `sent_depth` within another one.

    A limit of -1 is none. `depth` is that of the links as it is known now.
    """
    if not reaches(limit, depth):
        return False
    withheld = 0 <= sent_within < sent_depth
    exact = sent_within >= 0 and sent_depth <= depth
    return withheld or (limit >= 0 and not exact)


def _further(status: int) -> int:
    """How much further than a page with this status its links are: a redirect is part of following one link."""
    return 0 if 300 < status < 400 else 1


def owe_links(txn: Txn, crawl: bytes, cursor: bytes, *, begun: int, limit: int, pages_max: int) -> OwedStep:
    """Mark those of some pages, from the task key `cursor` on, that owe their links within `limit`.

    The mark is the one of pages that are fetched and not done: the next start sends their links. `begun` is the limit
    that the crawl began with, within which pages were fetched that say nothing.
    """
    rows = list(islice(txn.rows(keys.PAGE, crawl, cursor), pages_max + 1))
    rows, rest = rows[:pages_max], rows[pages_max:]
    depths = txn.task_depths(crawl, [key for key, _ in rows])
    owing = 0
    for (key, value), known in zip(rows, depths, strict=True):
        page = unpack(value)
        sent = page["depth"]
        depth, further = sent if known is None else min(known, sent), _further(page["status"])
        if owes_links(depth + further, sent + further, page.get(DEPTH_LIMIT, begun), limit):
            txn.put(keys.FETCHED + crawl + key, b"")
            owing += 1
    return OwedStep(owing, rest[0][0] if rest else None)
