"""The messages of the task plane, which check themselves when they are made.

Whether a message came from the wire or from our own code, its constructor
holds every type, length and range to the limits here, so a handler never meets
a value it would have to doubt, and we never send what a peer would hang up on.
What a message *means* is not checked: whether a key is that of its URL, or a
state a state, is for the handler to ask.

A field that a map holds and we do not know is ignored. Rows (links, records,
tombstones) are passed on to further nodes, so their last field, `extra`, is
for what later versions add: opaque bytes, a msgpack map by convention, that
every node keeps and sends on.

    asks             lane      answer
    STORE_TASK       TASKS     ACK
    STORE_BACKUP     BACKUPS   ACK
    DELETE_BACKUP    BACKUPS   ACK
    REFRESH_TASK     CALLS     RECORDS
    CALL             CALLS     RESULT
    any              as above  REFUSED

A new message is a class with `kind`, `lane`, `body` and `parse`, and a row in
`MESSAGES`; a new kind of answer stands in `ANSWERS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ClassVar, Self

from dhtcrawl.keyspace import CRAWL_ID_BYTES, KEY_BYTES
from dhtcrawl.rpc.tasks.frame import FRAME_BYTES_MAX, Body, Kind, Malformed, pack, unpack
from dhtcrawl.rpc.tasks.rows import (
    ITEMS_MAX,
    KEY_WIDTHS,
    TEXT_CHARS_MAX,
    LinkRow,
    PeerRow,
    RecordRow,
    TombstoneRow,
    check_links,
    check_peers,
    check_records,
    check_tombstones,
    rows_of,
)

TRIED_MAX = 16
PEERS_MAX = 64
DIGEST_BYTES = 8
DIGEST_BITS_MAX = 8
REQUEST_ID_MAX = 2**32 - 1
NAME_CHARS_MAX = 32


class Lane(IntEnum):
    """Requests of one lane share a credit window; no lane waits for another (design invariant I13)."""

    TASKS = 0
    BACKUPS = 1
    CALLS = 2  # everything that is asked rarely


class Code(IntEnum):
    """The receiver's answer about one item; a code that a later version adds reads as FAILED."""

    ACCEPTED = 0  # new, and durable here and on the backups
    KNOWN = 1  # seen before; as good as accepted
    MOVED = 2  # a closer node owns it: see `peers`
    FULL = 3  # no room on the disk; keep it and try again later
    FAILED = 4  # could not be stored; keep it and try again later


_MOVED = int(Code.MOVED)
_NOTHING_MORE: tuple[bytes, tuple[()], tuple[()], str] = (b"", (), (), "")
_KNOWN_CODES = bytes(range(len(Code))) + bytes([Code.FAILED]) * (256 - len(Code))


def need(condition: bool, field: str) -> None:
    """Go on where `condition` holds.

    Raises:
        Malformed: it does not; the message names the field.
    """
    if not condition:
        raise Malformed(f"{field}: not within the protocol's limits")


def is_int(value: object, low: int, high: int) -> bool:
    """An integer, not a truth value, from `low` to `high`."""
    return type(value) is int and low <= value <= high


def is_id(value: object, width: int) -> bool:
    """Bytes of exactly this width."""
    return type(value) is bytes and len(value) == width


def _check_keys(task_keys: object, width: int, field: str) -> None:
    """Raises:
    Malformed: these are no task keys of `width` bytes in a row, or too many.
    """
    need(type(task_keys) is bytes and len(task_keys) <= ITEMS_MAX * width, field)
    assert isinstance(task_keys, bytes)
    need(not len(task_keys) % width, field)


@dataclass(frozen=True, slots=True)
class StoreTask:
    """Links for their owner.

    `tried` names the nodes that a MOVED pointed to and that did not take the
    links: the receiver then takes them into custody (I7).
    """

    kind: ClassVar[Kind] = Kind.STORE_TASK
    lane: ClassVar[Lane] = Lane.TASKS
    crawl: bytes
    links: tuple[LinkRow, ...]
    tried: tuple[bytes, ...] = ()

    def __post_init__(self) -> None:
        need(is_id(self.crawl, CRAWL_ID_BYTES), "crawl")
        need(type(self.tried) is tuple and len(self.tried) <= TRIED_MAX, "tried")
        need(all(is_id(node, KEY_BYTES) for node in self.tried), "tried")
        check_links(self.links)

    @property
    def items(self) -> int:
        return len(self.links)

    def body(self) -> dict[str, Any]:
        return {"crawl": self.crawl, "links": self.links, "tried": self.tried}

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> Self:
        return cls(fields["crawl"], rows_of(LinkRow, fields["links"]), fields.get("tried", ()))


@dataclass(frozen=True, slots=True)
class StoreBackup:
    """Records as they are at the sender; the answer holds those that are further on at the receiver (I6).

    With `hand_over` the sender lets go of them once they are acked (I5). `safe` has task keys in a row: of what the
    sender told earlier, those that enough backups have, so that a link to them is as good as acked.
    """

    kind: ClassVar[Kind] = Kind.STORE_BACKUP
    lane: ClassVar[Lane] = Lane.BACKUPS
    crawl: bytes
    records: tuple[RecordRow, ...]
    hand_over: bool = False
    safe: bytes = b""

    def __post_init__(self) -> None:
        need(is_id(self.crawl, CRAWL_ID_BYTES), "crawl")
        need(type(self.hand_over) is bool, "hand_over")
        check_records(self.records, least=1)
        _check_keys(self.safe, len(self.records[0].key), "safe")

    @property
    def items(self) -> int:
        return len(self.records)

    def body(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"crawl": self.crawl, "records": self.records, "hand_over": self.hand_over}
        return {**fields, "safe": self.safe} if self.safe else fields

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> Self:
        return cls(fields["crawl"], rows_of(RecordRow, fields["records"]), fields.get("hand_over", False),
                   fields.get("safe", b""))  # fmt: skip


@dataclass(frozen=True, slots=True)
class DeleteBackup:
    """Says that tasks are over: the backup keeps a tombstone of each and drops the rest. `safe` is StoreBackup's."""

    kind: ClassVar[Kind] = Kind.DELETE_BACKUP
    lane: ClassVar[Lane] = Lane.BACKUPS
    crawl: bytes
    tombstones: tuple[TombstoneRow, ...]
    safe: bytes = b""

    def __post_init__(self) -> None:
        need(is_id(self.crawl, CRAWL_ID_BYTES), "crawl")
        check_tombstones(self.tombstones)
        _check_keys(self.safe, len(self.tombstones[0].key), "safe")

    @property
    def items(self) -> int:
        return len(self.tombstones)

    def body(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"crawl": self.crawl, "tombstones": self.tombstones}
        return {**fields, "safe": self.safe} if self.safe else fields

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> Self:
        return cls(fields["crawl"], rows_of(TombstoneRow, fields["tombstones"]), fields.get("safe", b""))


@dataclass(frozen=True, slots=True)
class RefreshTask:
    """A page of the receiver's records with `first` <= placement <= `last`, in key order after `cursor`.

    With `digest_bits` n > 0 no records but a digest of each of 2^n equal parts
    of the range is asked for, so that only parts that differ are pulled.
    """

    kind: ClassVar[Kind] = Kind.REFRESH_TASK
    lane: ClassVar[Lane] = Lane.CALLS
    items: ClassVar[int] = 0
    crawl: bytes
    first: bytes
    last: bytes
    cursor: bytes = b""
    limit: int = ITEMS_MAX
    digest_bits: int = 0
    reply_bytes_max: int = 256 * 1024

    def __post_init__(self) -> None:
        need(is_id(self.crawl, CRAWL_ID_BYTES), "crawl")
        need(is_id(self.first, KEY_BYTES) and is_id(self.last, KEY_BYTES) and self.first <= self.last, "range")
        need(type(self.cursor) is bytes and len(self.cursor) in (0, *KEY_WIDTHS), "cursor")
        need(is_int(self.limit, 1, ITEMS_MAX), "limit")
        need(is_int(self.digest_bits, 0, DIGEST_BITS_MAX), "digest_bits")
        need(is_int(self.reply_bytes_max, 1, FRAME_BYTES_MAX), "reply_bytes_max")

    def body(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> Self:
        return cls(fields["crawl"], fields["first"], fields["last"], fields["cursor"], fields["limit"],
                   fields["digest_bits"], fields["reply_bytes_max"])  # fmt: skip


@dataclass(frozen=True, slots=True)
class Call:
    """Anything that is asked rarely: a name and arguments, which the handler of that name checks.

    `reply_bytes_max` is the longest answer that the caller wants to hold.
    """

    kind: ClassVar[Kind] = Kind.CALL
    lane: ClassVar[Lane] = Lane.CALLS
    items: ClassVar[int] = 0
    name: str
    args: dict[str, Any]
    reply_bytes_max: int = 16 * 1024

    def __post_init__(self) -> None:
        need(type(self.name) is str and 1 <= len(self.name) <= NAME_CHARS_MAX, "name")
        need(type(self.args) is dict and all(type(key) is str for key in self.args), "args")
        need(is_int(self.reply_bytes_max, 1, FRAME_BYTES_MAX), "reply_bytes_max")

    def body(self) -> dict[str, Any]:
        return {"name": self.name, "args": self.args, "reply_bytes_max": self.reply_bytes_max}

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> Self:
        return cls(fields["name"], fields["args"], fields["reply_bytes_max"])


@dataclass(frozen=True, slots=True)
class Ack:
    """The answer about each item of a request, in its order: one byte of `Code` each.

    `moved` holds one byte for each MOVED, in order: an index into `peers`.
    `records` are the answerer's own where they are further on (I6). `detail`
    says why items are FAILED, for people.
    """

    kind: ClassVar[Kind] = Kind.ACK
    codes: bytes
    moved: bytes = b""
    peers: tuple[PeerRow, ...] = ()
    records: tuple[RecordRow, ...] = ()
    detail: str = ""

    def __post_init__(self) -> None:
        need(type(self.codes) is bytes and 1 <= len(self.codes) <= ITEMS_MAX, "codes")
        need(max(self.codes) < len(Code), "codes")
        if (self.moved, self.peers, self.records, self.detail) == _NOTHING_MORE and type(self.moved) is bytes:
            need(_MOVED not in self.codes, "moved")
            return  # the usual case
        check_peers(self.peers, most=PEERS_MAX)
        need(type(self.moved) is bytes and len(self.moved) == self.codes.count(Code.MOVED), "moved")
        need(not self.moved or max(self.moved) < len(self.peers), "moved")
        check_records(self.records, least=0)
        need(type(self.detail) is str and len(self.detail) <= TEXT_CHARS_MAX, "detail")

    @classmethod
    def all(cls, code: Code, items: int, detail: str = "") -> Self:
        """The same for every item; not for MOVED."""
        return cls(bytes([code]) * items, detail=detail)

    def moved_to(self) -> dict[int, PeerRow]:
        """Where to send the items that are MOVED: item index → peer."""
        places = (index for index, code in enumerate(self.codes) if code == Code.MOVED)
        return {index: self.peers[peer] for index, peer in zip(places, self.moved, strict=True)}

    def body(self) -> dict[str, Any]:
        named: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in named.items() if value or name == "codes"}

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> Self:
        codes = fields["codes"]
        need(type(codes) is bytes, "codes")
        return cls(codes.translate(_KNOWN_CODES), fields.get("moved", b""), rows_of(PeerRow, fields.get("peers", ())),
                   rows_of(RecordRow, fields.get("records", ())), fields.get("detail", ""))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Records:
    """The answer to REFRESH_TASK: records with the cursor for the next page (empty: that was all), or digests."""

    kind: ClassVar[Kind] = Kind.RECORDS
    records: tuple[RecordRow, ...] = ()
    cursor: bytes = b""
    digests: bytes = b""

    def __post_init__(self) -> None:
        check_records(self.records, least=0)
        need(type(self.cursor) is bytes and len(self.cursor) in (0, *KEY_WIDTHS), "cursor")
        need(type(self.digests) is bytes and len(self.digests) <= DIGEST_BYTES << DIGEST_BITS_MAX, "digests")
        need(len(self.digests) % DIGEST_BYTES == 0, "digests")

    def body(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> Self:
        return cls(rows_of(RecordRow, fields["records"]), fields["cursor"], fields.get("digests", b""))


@dataclass(frozen=True, slots=True)
class Result:
    """The answer to CALL; the caller checks what it reads."""

    kind: ClassVar[Kind] = Kind.RESULT
    value: dict[str, Any]

    def __post_init__(self) -> None:
        need(type(self.value) is dict and all(type(key) is str for key in self.value), "value")

    def body(self) -> dict[str, Any]:
        return {"value": self.value}

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> Self:
        return cls(fields["value"])


@dataclass(frozen=True, slots=True)
class Refused:
    """No answer will come: the receiver does not know the request, or failed. `reason` is one word, for programs."""

    kind: ClassVar[Kind] = Kind.REFUSED
    reason: str
    detail: str = ""

    def __post_init__(self) -> None:
        need(type(self.reason) is str and 1 <= len(self.reason) <= 32, "reason")
        need(type(self.detail) is str and len(self.detail) <= TEXT_CHARS_MAX, "detail")

    def body(self) -> dict[str, Any]:
        return {"reason": self.reason, "detail": self.detail}

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> Self:
        return cls(fields["reason"], fields.get("detail", ""))


Request = StoreTask | StoreBackup | DeleteBackup | RefreshTask | Call
Answer = Ack | Records | Result
Reply = Answer | Refused
Message = Request | Reply

MESSAGES: dict[int, type[Message]] = {
    message.kind: message
    for message in (StoreTask, StoreBackup, DeleteBackup, RefreshTask, Call, Ack, Records, Result, Refused)
}
ANSWERS: dict[int, Kind] = {
    Kind.STORE_TASK: Kind.ACK,
    Kind.STORE_BACKUP: Kind.ACK,
    Kind.DELETE_BACKUP: Kind.ACK,
    Kind.REFRESH_TASK: Kind.RECORDS,
    Kind.CALL: Kind.RESULT,
}


def encode(request_id: int, message: Message) -> bytes:
    """The frame of a request or an answer.

    Raises:
        TooLong: no frame can hold it; split it.
        Malformed: it holds text that is not Unicode.
    """
    return pack(message.kind, {"id": request_id, **message.body()})


def decode(kind: int, body: Body) -> tuple[int, Message | None]:
    """The number of a request and the message; None where the kind is one we don't know.

    Raises:
        Malformed: it is not what the protocol allows.
    """
    fields = unpack(body)
    request_id = fields.get("id")
    need(is_int(request_id, 0, REQUEST_ID_MAX), "id")
    assert isinstance(request_id, int)
    known = MESSAGES.get(kind)
    if known is None:
        return request_id, None
    try:
        return request_id, known.parse(fields)
    except KeyError as error:
        raise Malformed(f"{known.__name__}: {error} is missing") from error
