"""The rows that task messages carry: links, records, tombstones, peers.

Rows are plain tuples on the wire and named tuples here. They are checked in
one pass over the whole message: a constructor a row would cost more than the
rest of the frame. The fields are those of a task in the store.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, TypeVar

from dhtcrawl.keyspace import KEY_BYTES
from dhtcrawl.rpc.tasks.frame import Malformed
from dhtcrawl.url import URL_CHARS_MAX

ITEMS_MAX = 300  # design: 100–300 URLs a frame
KEY_WIDTHS = (KEY_BYTES, 2 * KEY_BYTES)
TEXT_CHARS_MAX = 1024
EXTRA_BYTES_MAX = 1024
HOST_CHARS_MAX = 255  # RFC 1035, section 2.3.4
STATE_MAX = 15
SMALL_MAX = 2**31 - 1  # depths, generations, attempts
ORDER_MAX = 2**63 - 1  # offsets and places in a queue


class LinkRow(NamedTuple):
    """A URL on its way to its owner."""

    key: bytes  # 20 bytes, or 40 with host keys
    url: str
    depth: int
    referrer: str
    hops: int = 0
    seed: bool = False
    extra: bytes = b""


class PlaceRow(NamedTuple):
    """Where a body lies."""

    node: str
    file: str
    offset: int
    length: int


class RecordRow(NamedTuple):
    """A task as its holder has it; what the numbers of `state` mean is the store's business."""

    key: bytes
    url: str
    depth: int
    referrer: str
    hops: int
    seed: bool
    order: int
    state: int
    gen: int
    attempt: int
    reason: str = ""
    detail: str = ""
    place: PlaceRow | None = None
    extra: bytes = b""


class TombstoneRow(NamedTuple):
    """A task that is over."""

    key: bytes
    state: int
    gen: int
    attempt: int
    reason: str = ""
    detail: str = ""
    place: PlaceRow | None = None
    extra: bytes = b""


class PeerRow(NamedTuple):
    """A node's identity and where its task plane listens."""

    node_id: bytes
    host: str
    port: int


# Of a tuple with its fields: what the class itself does takes a Python call more.
make_link = partial(tuple.__new__, LinkRow)
make_place = partial(tuple.__new__, PlaceRow)
make_record = partial(tuple.__new__, RecordRow)
make_tombstone = partial(tuple.__new__, TombstoneRow)
_PLACE_FIELDS = len(PlaceRow._fields)
# Where the place stands in those rows that have one.
_PLACE_AT: dict[type[Any], int] = {kind: kind._fields.index("place") for kind in (RecordRow, TombstoneRow)}

Row = TypeVar("Row", LinkRow, RecordRow, TombstoneRow, PeerRow)


def rows_of(kind: type[Row], rows: Any) -> tuple[Row, ...]:
    """Rows of the wire under their names, unchecked but for their number of fields.

    Raises:
        Malformed: they are not rows of this kind.
    """
    if type(rows) is not tuple or not set(map(type, rows)) <= {tuple}:
        raise Malformed(f"{kind.__name__}: not a list of lists")
    if not set(map(len, rows)) <= {len(kind._fields)}:
        raise Malformed(f"{kind.__name__}: not {len(kind._fields)} fields each")
    # `_make` is this and a Python call a row.
    make = partial(tuple.__new__, kind)
    at = _PLACE_AT.get(kind)
    if at is None:
        return tuple(map(make, rows))
    return tuple([make(row if row[at] is None else _with_place(row, at)) for row in rows])


def check_links(links: tuple[LinkRow, ...]) -> None:
    """Raises:
    Malformed: a link is not within the limits, or there are none, or too many.
    """
    _check_count(links, 1)
    for index, (key, url, depth, referrer, hops, seed, extra) in enumerate(links):
        if not (
            type(key) is bytes and len(key) in KEY_WIDTHS
            and type(url) is str and 0 < len(url) <= URL_CHARS_MAX
            and type(depth) is int and 0 <= depth <= SMALL_MAX
            and type(referrer) is str and len(referrer) <= URL_CHARS_MAX
            and type(hops) is int and 0 <= hops <= SMALL_MAX
            and type(seed) is bool
            and type(extra) is bytes and len(extra) <= EXTRA_BYTES_MAX
        ):  # fmt: skip
            raise Malformed(f"link {index}: not within the protocol's limits")


def check_records(records: tuple[RecordRow, ...], least: int) -> None:
    """Raises:
    Malformed: a record is not within the limits, or there are too few or too many.
    """
    _check_count(records, least)
    for index, row in enumerate(records):
        key, url, depth, referrer, hops, seed, order, state, gen, attempt, reason, detail, place, extra = row
        if not (
            type(url) is str and 0 < len(url) <= URL_CHARS_MAX
            and type(depth) is int and 0 <= depth <= SMALL_MAX
            and type(referrer) is str and len(referrer) <= URL_CHARS_MAX
            and type(hops) is int and 0 <= hops <= SMALL_MAX
            and type(seed) is bool
            and type(order) is int and 0 <= order <= ORDER_MAX
            and _end_fits(key, state, gen, attempt, reason, detail, place, extra)
        ):  # fmt: skip
            raise Malformed(f"record {index}: not within the protocol's limits")


def check_tombstones(tombstones: tuple[TombstoneRow, ...]) -> None:
    """Raises:
    Malformed: a tombstone is not within the limits, or there are none, or too many.
    """
    _check_count(tombstones, 1)
    for index, row in enumerate(tombstones):
        if not _end_fits(*row):
            raise Malformed(f"tombstone {index}: not within the protocol's limits")


def check_peers(peers: tuple[PeerRow, ...], most: int) -> None:
    """Raises:
    Malformed: a peer is not within the limits, or there are too many.
    """
    if type(peers) is not tuple or len(peers) > most:
        raise Malformed("peers: too many, or no list")
    for node_id, host, port in peers:
        if not (
            type(node_id) is bytes and len(node_id) == KEY_BYTES
            and type(host) is str and 0 < len(host) <= HOST_CHARS_MAX
            and type(port) is int and 0 < port < 65_536
        ):  # fmt: skip
            raise Malformed("peers: not within the protocol's limits")


def _with_place(row: tuple[Any, ...], at: int) -> tuple[Any, ...]:
    place = row[at]
    if type(place) is not tuple or len(place) != _PLACE_FIELDS:
        raise Malformed("place: not a list of four")
    return (*row[:at], make_place(place), *row[at + 1 :])


def _check_count(rows: object, least: int) -> None:
    if type(rows) is not tuple or not least <= len(rows) <= ITEMS_MAX:
        raise Malformed(f"rows: {least} to {ITEMS_MAX} in a tuple are allowed")


def _end_fits(
    key: object,
    state: object,
    gen: object,
    attempt: object,
    reason: object,
    detail: object,
    place: object,
    extra: object,
) -> bool:
    """Whether what records and tombstones have in common is within the limits."""
    return (
        type(key) is bytes and len(key) in KEY_WIDTHS
        and type(state) is int and 0 <= state <= STATE_MAX
        and type(gen) is int and 0 <= gen <= SMALL_MAX
        and type(attempt) is int and 0 <= attempt <= SMALL_MAX
        and type(reason) is str and len(reason) <= TEXT_CHARS_MAX
        and type(detail) is str and len(detail) <= TEXT_CHARS_MAX
        and (place is None or _place_fits(place))
        and type(extra) is bytes and len(extra) <= EXTRA_BYTES_MAX
    )  # fmt: skip


def _place_fits(place: Any) -> bool:
    if type(place) is not PlaceRow:
        return False
    node, file, offset, length = place
    return (
        type(node) is str and len(node) <= HOST_CHARS_MAX
        and type(file) is str and len(file) <= HOST_CHARS_MAX
        and type(offset) is int and 0 <= offset <= ORDER_MAX
        and type(length) is int and 0 <= length <= ORDER_MAX
    )  # fmt: skip
