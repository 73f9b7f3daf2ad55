"""Reads rows that another node sent, and checks all that a collection relies on.

A node may be broken, of a later version, or lie. So its rows are checked before any
is written: they must not make the outputs fail, nor speak for another node, unless
that node left its pages to the sender. A record must stand under the key of its URL,
a place must be in an archive file of the sender. Pure; only `BadRow` is raised.

A node that was to be another's heir, and got only a part, has sound rows and files that
are not its own to tell of: `NotLeft`, which says nothing against the rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dhtcrawl.errors import StorageError, StoreTooNew
from dhtcrawl.keyspace import KEY_BYTES, url_key
from dhtcrawl.storage.archive.names import NUMBERED
from dhtcrawl.storage.outputs.stored_records import STORED_CHARS_MAX, stored_records
from dhtcrawl.storage.store import records
from dhtcrawl.storage.store.records import (
    DEPTH_LIMIT,
    OTHERS_MAX,
    Place,
    SkippedLink,
    SkipReason,
    State,
    Task,
    unpack_task,
)
from dhtcrawl.url import URL_CHARS_MAX, canonicalize, has_host

# Three URLs, a title and a header make 30 KB. Escaped as JSON, a value of this size is a line that `verify` reads. What
# rules found on a page comes on top, and stands in no such line.
VALUE_BYTES_MAX = 128 << 10
PAGE_BYTES_MAX = VALUE_BYTES_MAX + STORED_CHARS_MAX
FIELDS_MAX = 64
DEPTH_MAX = 1 << 40
NUMBER_MAX = (1 << 64) - 1

_PLAIN = (str, int, bool, type(None))  # what a line of JSON can hold
_NODE = re.compile(r"[0-9a-f]{40}")
_FILE_OF = re.compile(rf"([0-9a-f]{{12}})-([0-9a-f]{{12}})-{NUMBERED.pattern}", re.ASCII)
_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)


class BadRow(Exception):
    """A row is not one that a sound node of this version sends; one line that says what is wrong."""


class NotLeft(BadRow):
    """A page, or what lies beside it, of a node that did not leave it to the sender."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The sender of rows (node id in hex), their crawl, and the function from URL to task key.

    `left` names the nodes that left their pages to the sender; the pages still name
    the nodes that fetched them.
    """

    crawl: bytes
    node: str
    key_of: Callable[[str], bytes]
    left: tuple[str, ...] = ()

    @property
    def authors(self) -> tuple[str, ...]:
        """The nodes whose pages the sender may have."""
        return (self.node, *self.left)

    def author_of(self, name: object) -> str | None:
        """The node whose archive file has this name; None if the sender may not have such a file."""
        for node in self.authors:
            prefix = f"{self.crawl.hex()[:12]}-{node[:12]}-"
            if isinstance(name, str) and name.startswith(prefix) and NUMBERED.fullmatch(name[len(prefix) :]):
                return node
        return None


def is_node(text: object) -> bool:
    """Whether a value is a node id in hex."""
    return isinstance(text, str) and _NODE.fullmatch(text) is not None


def is_archive_file(origin: Origin, name: object) -> bool:
    """Whether a name is one that an archive file of the sender may have; never one with a directory in it."""
    return origin.author_of(name) is not None


def is_file_not_left(origin: Origin, name: object) -> bool:
    """Whether a name is one that an archive file may have of a node which did not leave it to the sender."""
    return author_of(origin.crawl, name) is not None and not is_archive_file(origin, name)


def author_of(crawl: bytes, name: object) -> str | None:
    """How the id begins of the node whose archive file has this name; None if it is no name of such a file."""
    found = _FILE_OF.fullmatch(name) if isinstance(name, str) else None
    return found[2] if found is not None and found[1] == crawl.hex()[:12] else None


def read_task(origin: Origin, key: bytes, value: bytes) -> Task:
    """Read a task record.

    Raises:
        BadRow: the row is not one.
    """
    try:
        task = unpack_task(_sized(value))
    except StorageError as error:
        raise _unreadable("task record", error) from error
    place = task.place
    sound = (
        _is_url(task.url)
        and _is_number(task.depth, DEPTH_MAX)
        and all(_is_number(number) for number in (task.order, task.gen, task.attempt, task.hops))
        and all(isinstance(text, str) for text in (task.referrer, task.reason, task.detail))
        and type(task.seed) is bool
        and (place is None or _is_place(place))
        and (place is not None or task.state not in (State.FETCHED, State.DONE))
        and len(task.others) <= OTHERS_MAX
        and all(map(is_node, task.others))
        and type(task.added.later) is bytes
    )
    _need(sound, "task record", key)
    _need(origin.key_of(task.url) == key, "task record", key)
    return task


def read_page(origin: Origin, key: bytes, value: bytes, known: str | None = None) -> dict[str, Any]:
    """Read a page record; `known` is the URL under its key, from a record that was checked.

    Raises:
        BadRow: the row is not one.
    """
    fields = _entry(origin, key, value, "page record", known, PAGE_BYTES_MAX)
    url = fields["url"]
    sound = (
        (url == known or origin.key_of(url) == key)
        and _is_number(fields.get("depth"), DEPTH_MAX)
        and (fields.get(DEPTH_LIMIT, -1) == -1 or _is_number(fields[DEPTH_LIMIT]))
        and _is_number(fields.get("bytes"))
        and isinstance(fields.get("referrer", 0), str | None)
        and len(value) - len(stored_records(fields) or "") <= VALUE_BYTES_MAX
    )
    _need(sound, "page record", key)
    return fields


def read_extra(origin: Origin, suffix: bytes, value: bytes) -> dict[str, Any]:
    """Read an index entry of a response that is no page.

    Raises:
        BadRow: the row is not one.
    """
    fields = _entry(origin, suffix, value, "index entry")
    _, file, offset, _ = fields["place"]
    _need(suffix == file.encode() + offset.to_bytes(8, "big"), "index entry", suffix)
    return fields


def read_skipped(key: bytes, value: bytes) -> SkippedLink:
    """Read a skipped link.

    Raises:
        BadRow: the row is not one.
    """
    match _decoded(value, "skipped link"):
        # Without the page that has it: of an earlier version.
        case [str(url), str(reason)] | [str(url), str(reason), str()] as fields:
            sound = reason == SkipReason.NOT_A_URL or has_host(url)
            _need(bool(reason) and sound and url_key(url) == key, "skipped link", key)
            return SkippedLink(*fields)
    raise _bad("skipped link", key)


def read_task_key(key: bytes) -> bytes:
    """Read a key that is a task key alone, as those of marks and link keys are.

    Raises:
        BadRow: the key is not one.
    """
    _need(len(key) in (KEY_BYTES, 2 * KEY_BYTES), "task key", key)
    return key


def _entry(
    origin: Origin, key: bytes, value: bytes, what: str, known: str | None = None, bytes_max: int = VALUE_BYTES_MAX
) -> dict[str, Any]:
    """Read the fields that page records and index entries share, which the index needs."""
    fields: dict[str, Any] = _decoded(value, what, bytes_max)
    _need(isinstance(fields, dict) and 0 < len(fields) <= FIELDS_MAX, what, key)
    for name, field in fields.items():
        if type(name) is not str or (type(field) not in _PLAIN and name != "place"):
            raise _bad(what, key)
    match fields.get("place"):
        case [node, file, int(offset), int(length)]:
            if is_node(node) and node not in origin.authors and author_of(origin.crawl, file) == node[:12]:
                raise NotLeft(f"sent a {what} of node {node[:12]}, which has not left it its pages")
            _need(isinstance(node, str) and origin.author_of(file) == node, what, key)
            _need(_is_place(Place(node, file, offset, length)), what, key)
        case _:
            raise _bad(what, key)
    sound = (
        ((known is not None and fields.get("url") == known) or _is_url(fields.get("url")))
        and _is_number(fields.get("status"), 999)
        and isinstance(fields.get("payload_digest"), str)
        and isinstance(fields.get("mime", 0), str | None)
        and _is_instant(fields.get("fetched_at"))
    )
    _need(sound, what, key)
    return fields


def _decoded(value: bytes, what: str, bytes_max: int = VALUE_BYTES_MAX) -> Any:
    try:
        return records.unpack(_sized(value, bytes_max))
    except StorageError as error:
        raise _unreadable(what, error) from error


def _sized(value: bytes, bytes_max: int = VALUE_BYTES_MAX) -> bytes:
    if not isinstance(value, bytes) or len(value) > bytes_max:
        raise BadRow(f"sent a row of more than {bytes_max} bytes")
    return value


def _is_url(value: object) -> bool:
    return isinstance(value, str) and len(value) <= URL_CHARS_MAX and canonicalize(value) == value


def _is_number(value: object, top: int = NUMBER_MAX) -> bool:
    return type(value) is int and 0 <= value <= top


def _is_place(place: Place) -> bool:
    named = isinstance(place.node, str) and isinstance(place.file, str)
    return named and _is_number(place.offset, 1 << 62) and _is_number(place.length, 1 << 62)


def _is_instant(value: object) -> bool:
    if not isinstance(value, str) or _INSTANT.fullmatch(value) is None:
        return False
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


def _need(condition: bool, what: str, key: bytes) -> None:
    if not condition:
        raise _bad(what, key)


def _bad(what: str, key: bytes) -> BadRow:
    return BadRow(f"sent a {what} that is none ({key[:64].hex()})")


def _unreadable(what: str, error: StorageError) -> BadRow:
    if isinstance(error, StoreTooNew):
        return BadRow(f"sent a {what} of a later version; upgrade dhtcrawl here")
    return BadRow(f"sent a {what} that cannot be read")
