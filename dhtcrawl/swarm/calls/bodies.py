"""Calls of `swarm/bodies`: copies of bodies, and the export of what a node has stored. No I/O."""

import re
from typing import Annotated, Any, Final, NamedTuple

from dhtcrawl.keyspace import KEY_BYTES
from dhtcrawl.rpc.tasks.frame import FRAME_BYTES_MAX
from dhtcrawl.rpc.tasks.schema import CallArgs, WireMap, flag, integer, octets, octets_up_to, or_nil, row, rows, text
from dhtcrawl.storage.collect.limits import CHUNK_BYTES_MAX, ROWS_MAX
from dhtcrawl.storage.store.bequests import BEQUEST_BYTES
from dhtcrawl.swarm.calls.words import COUNT_MAX, KEYS_MAX, Count, Crawl, Done, Figures, TaskKey, TaskKeys

COPIES_A_CALL: Final = 256
COPY_TIMEOUT_S: Final = 15.0  # a node that takes longer is most likely gone, and members know by then
NAME_CHARS_MAX: Final = 255
CURSOR_BYTES_MAX: Final = 256
EXPORT_REPLY_BYTES: Final = 1 << 20
_OFFSET_MAX: Final = 2**62 - 1

_BODY = octets_up_to(FRAME_BYTES_MAX)


class CopyRow(NamedTuple):
    """One page whose body is to have a copy."""

    key: TaskKey
    record: Annotated[bytes, _BODY]  # the page record as stored
    links: Annotated[  # its link keys; None: to be fetched
        bytes | None, or_nil(octets_up_to(FRAME_BYTES_MAX, in_rows_of=KEY_BYTES))
    ]
    data: Annotated[bytes | None, or_nil(_BODY)]  # its members; None: it may be there already, or is to be fetched
    length: Annotated[int, integer(0, _OFFSET_MAX)]  # of the members
    fetch: Annotated[bool, flag()]


def _is_whole(page: tuple[Any, ...]) -> bool:
    _, _, _, data, length, _ = page
    return data is None or len(data) == length


class CopyCodes(WireMap):
    """Answer to `copy_pages`."""

    codes: Annotated[
        bytes,
        octets_up_to(COPIES_A_CALL, 1),
        "a byte a page: 0 it is on disk, 1 full, 2 send the members, too, 3 refused",
    ]

    def wrong(self) -> str:
        return "" if max(self.codes) <= 3 else "codes"


class CopyPages(CallArgs[CopyCodes], name="copy_pages", timeout_s=COPY_TIMEOUT_S):
    """A node that fetched pages has their bodies copied (`--copies`).

    Refused: `unknown-crawl`, `leaving`, `no-copies`.
    """

    crawl: Crawl
    pages: Annotated[
        tuple[CopyRow, ...],
        rows(CopyRow, COPIES_A_CALL, 1, where=_is_whole),
        "the page record; its link keys, or nil: fetch them; its members, or nil; how long they are; whether to "
        "fetch them",
    ]

    def misfit(self, reply: CopyCodes) -> str:
        return "" if len(reply.codes) == len(self.pages) else "codes"


def _is_node(value: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{40}", value) is not None


def _is_file(value: str) -> bool:
    return re.fullmatch(r"[0-9A-Za-z][0-9A-Za-z._-]{0,127}", value) is not None


class BodyPlace(NamedTuple):
    """Where a body lies."""

    node: Annotated[str, text(40, 40, where=_is_node, says="a node id in hex")]
    file: Annotated[str, text(128, 1, where=_is_file, says="a plain file name")]
    offset: Annotated[int, integer(0, _OFFSET_MAX)]
    length: Annotated[int, integer(1, _OFFSET_MAX)]


class FoundRow(NamedTuple):
    """A page that the answering node counts as its own from now on."""

    key: TaskKey
    place: Annotated[BodyPlace, row(BodyPlace)]


class PagesFound(WireMap):
    """Answer to `stand_in_pages`."""

    found: Annotated[tuple[FoundRow, ...], rows(FoundRow, KEYS_MAX)]


class StandIn(CallArgs[PagesFound], name="stand_in_pages", timeout_s=15.0, reply_bytes_max=256 << 10):
    """An owner seeks copies of pages whose node is gone. Refused: `unknown-crawl`, `leaving`, `no-copies`."""

    crawl: Crawl
    keys: TaskKeys

    def misfit(self, reply: PagesFound) -> str:
        return "" if {found.key for found in reply.found} <= set(self.keys) else "found"


class PagesHeld(WireMap):
    """Answer to `held_pages`."""

    held: Annotated[bytes, octets_up_to(KEYS_MAX, 1), "a byte for each, 1 where that node has the page"]


class AskHeld(CallArgs[PagesHeld], name="held_pages", timeout_s=15.0):
    """An owner asks a node that was away which of its pages it has: its disk may be older. Refused: `unknown-crawl`."""

    crawl: Crawl
    keys: TaskKeys

    def misfit(self, reply: PagesHeld) -> str:
        return "" if len(reply.held) == len(self.keys) else "held"


class Adopt(CallArgs[Done], name="adopt", timeout_s=3600.0):
    """A node that leaves has its heir take over its pages; answered once all are on its disk, and members know.

    Refused: `leaving`, `not-adopted`.
    """

    crawl: Crawl
    bequest: Annotated[
        bytes, octets(BEQUEST_BYTES), "that who is asked is the heir, as it stands in the crawl's record"
    ]
    copies: Annotated[bool, flag(), "what it has of others' pages, too"] = False


class NodeFigures(WireMap):
    """Answer to `export_facts`."""

    counters: Annotated[Figures, "what the node did, and those whose pages it took over"]
    rss_bytes_max: Annotated[Count, "the most memory that it had"] = 0


class ExportFacts(CallArgs[NodeFigures], name="export_facts"):
    """A gathering command, or an heir, asks what a node did; answered once an ending crawl has written its last."""

    crawl: Crawl


class StoredRow(NamedTuple):
    """A row of the store, its kind and crawl left out."""

    suffix: Annotated[bytes, octets_up_to(CURSOR_BYTES_MAX)]
    value: Annotated[bytes, _BODY]


class StoredRows(WireMap):
    """Answer to `export_rows`."""

    rows: Annotated[tuple[StoredRow, ...], rows(StoredRow, ROWS_MAX)]
    cursor: Annotated[bytes | None, or_nil(octets_up_to(CURSOR_BYTES_MAX)), "nil at the end"]


class ExportRows(CallArgs[StoredRows], name="export_rows", timeout_s=60.0, reply_bytes_max=EXPORT_REPLY_BYTES):
    """A gathering command, or an heir, asks for rows of a kind. Refused: `no-rows`."""

    crawl: Crawl
    kind: Annotated[bytes, octets(1)]
    cursor: Annotated[bytes, octets_up_to(CURSOR_BYTES_MAX), "empty begins"]


class StoredFile(NamedTuple):
    """An archive file."""

    name: Annotated[str, text(NAME_CHARS_MAX, 1)]
    length: Annotated[int, integer(0, COUNT_MAX)]  # as far as it is committed


class StoredFiles(WireMap):
    """Answer to `export_files`."""

    files: Annotated[tuple[StoredFile, ...], rows(StoredFile, ROWS_MAX), "by name; empty at the end"]


class ExportFiles(CallArgs[StoredFiles], name="export_files", timeout_s=60.0, reply_bytes_max=EXPORT_REPLY_BYTES):
    """A gathering command, or an heir, asks for the archive files of a crawl."""

    crawl: Crawl
    after: Annotated[str, text(NAME_CHARS_MAX), "the name to go on behind; empty begins"]


class StoredChunk(WireMap):
    """Answer to `export_chunk`."""

    data: Annotated[bytes, octets_up_to(CHUNK_BYTES_MAX), "empty at the end of what is committed"]


class ExportChunk(CallArgs[StoredChunk], name="export_chunk", timeout_s=60.0, reply_bytes_max=EXPORT_REPLY_BYTES):
    """A gathering command, an heir, or a node that copies a large page, asks for part of a file. Refused: `no-file`."""

    crawl: Crawl
    name: Annotated[str, text(NAME_CHARS_MAX)]
    offset: Count
    limit: Annotated[int, integer(1, COUNT_MAX)]

    def misfit(self, reply: StoredChunk) -> str:
        return "" if len(reply.data) <= self.limit else "data"
