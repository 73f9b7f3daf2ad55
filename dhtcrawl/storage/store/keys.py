"""The layout of a node's LevelDB: the keys of all records.

Every key is `kind ‖ crawl id (16) ‖ …`, so that all of a crawl's records of a
kind are one range, in key-space order, and several crawls share a store.

| kind | key after the crawl id                        | value                                   |
|------|-----------------------------------------------|-----------------------------------------|
| `c`  |                                               | the crawl: spec, nonce, aliases, end    |
| `n`  |                                               | counters that survive a restart         |
| `t`  | task key (20 or 40)                           | task record                             |
| `q`  | host key (20) ‖ depth (2) ‖ order (8) ‖ task  | empty: the host's queue, breadth first  |
| `f`  | task key                                      | empty: fetched, its links not all acked |
| `p`  | task key                                      | page record: one line of pages.jsonl    |
| `x`  | archive file ‖ offset (8)                     | index entry of what is no page: robots  |
| `l`  | task key                                      | the in-scope links' task keys, joined   |
| `s`  | SHA1(url) (20)                                | a link that was skipped, and why        |
| `h`  | host key                                      | a wait that a restart owes the host     |
| `e`  |                                               | how many virtual tasks are queued       |
| `w`  | file name                                     | how much of an archive file is committed|
| `y`  | task key                                      | page record of another node's page that |
|      |                                               | has a copy of its body here             |
| `z`  | task key                                      | the link keys of that page              |
| `o`  | task key                                      | the nodes that have copies of a page of |
|      |                                               | ours: their ids, joined                 |

Records of the node itself (format version, incarnation, swarm) begin with `\\0`.
"""

from __future__ import annotations

import struct

from dhtcrawl.keyspace import CRAWL_ID_BYTES, KEY_BYTES

FORMAT_KEY = b"\x00format"
INCARNATION_KEY = b"\x00incarnation"
SWARM_KEY = b"\x00swarm"

CRAWL, COUNTERS, TASK, QUEUE, FETCHED, PAGE, EXTRA, LINKS, SKIPPED, HOST, ARCHIVE, SEEDED = (
    b"c", b"n", b"t", b"q", b"f", b"p", b"x", b"l", b"s", b"h", b"w", b"e",
)  # fmt: skip
# Kinds that only crawls with several copies of a body have.
COPY, COPY_LINKS, HOLDERS = COPIES = (b"y", b"z", b"o")
KINDS = (CRAWL, COUNTERS, TASK, QUEUE, FETCHED, PAGE, EXTRA, LINKS, SKIPPED, HOST, ARCHIVE, SEEDED, *COPIES)

_PRIORITY = struct.Struct(">HQ")
DEPTH_MAX = 0xFFFF
_QUEUE_HEAD_BYTES = 1 + CRAWL_ID_BYTES + KEY_BYTES + _PRIORITY.size


def key(kind: bytes, crawl: bytes, rest: bytes = b"") -> bytes:
    """The key of one record."""
    return kind + crawl + rest


def bounds(kind: bytes, crawl: bytes, prefix: bytes = b"") -> tuple[bytes, bytes]:
    """Start and stop of a scan over all keys that begin so."""
    start = kind + crawl + prefix
    return start, after(start)


def after(prefix: bytes) -> bytes:
    """The first key behind all that begin with `prefix`."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1])


def suffix(full: bytes) -> bytes:
    """The part of a key behind kind and crawl id."""
    return full[1 + CRAWL_ID_BYTES :]


def queue_key(crawl: bytes, host_key: bytes, depth: int, order: int, task: bytes) -> bytes:
    """The key of a queue entry; a host's queue is sorted by depth, then by the order of discovery."""
    return QUEUE + crawl + host_key + _PRIORITY.pack(min(depth, DEPTH_MAX), order) + task


def queue_host(full: bytes) -> bytes:
    """The host key within a queue key."""
    return full[1 + CRAWL_ID_BYTES : 1 + CRAWL_ID_BYTES + KEY_BYTES]


def queue_task(full: bytes) -> bytes:
    """The task key within a queue key."""
    return full[_QUEUE_HEAD_BYTES:]


def extra_key(crawl: bytes, file: str, offset: int) -> bytes:
    """The key of an index entry; each archive record has one, so that none replaces another."""
    return EXTRA + crawl + file.encode() + offset.to_bytes(8, "big")
