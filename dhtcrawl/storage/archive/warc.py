"""Writes exchanges as WARC/1.0 records (ISO 28500:2009), one gzip member a record.

Version 1.0, not 1.1: to the fields that we write 1.1 adds only finer dates, and
`warcvalid`, with which people check archives, fails on it.

A response and its request are appended together or not at all, as far as the
file's `size` tells. The same item gives the same bytes, since record ids and
instants are given. The payload is the body as stored, its transfer
coding undone and its content coding kept; digests are `sha1:` in Base32.

Calls block: only the storage thread makes them. A body in memory costs one
`compress` and one `append` for both records; a spooled one is read twice, once
for the digests and once for the file, in constant memory.

Compression is ISA-L's level 1: within a few percent of the size that zlib's
level 6 reaches, for a quarter of its time.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from isal import isal_zlib

from dhtcrawl.clock import warc_date
from dhtcrawl.errors import StorageError
from dhtcrawl.storage.archive.item import ArchiveItem
from dhtcrawl.storage.archive.warcread import GZIP, RECORD_END
from dhtcrawl.storage.archive.warcscan import digest_of
from dhtcrawl.storage.store.engine import storage_error
from dhtcrawl.storage.store.files import AppendFile

VERSION = "WARC/1.0"

_LEVEL = 1

# A line at which some readers may end a head: of white space, or of bytes beyond ASCII, which can be white space, too.
_BLANK_LINE = re.compile(rb"\n[\t\v-\r\x1c- \x80-\xff]*\n")


class Written(NamedTuple):
    """The place of an exchange in its file: the response's member, then the request's."""

    offset: int
    length: int
    payload_digest: str
    request_length: int


def warcinfo(file: AppendFile, *, filename: str, date: datetime, record_id: str, fields: Mapping[str, str]) -> int:
    """Append the warcinfo record, which says what wrote this file; return its offset.

    Raises:
        StorageFull: no space; the file is unchanged.
    """
    block = "".join(f"{name}: {' '.join(value.split())}\r\n" for name, value in fields.items()).encode()
    head = (
        f"{VERSION}\r\n"
        "WARC-Type: warcinfo\r\n"
        f"WARC-Record-ID: <{record_id}>\r\n"
        f"WARC-Date: {warc_date(date)}\r\n"
        f"WARC-Filename: {filename}\r\n"
        f"WARC-Block-Digest: {digest_of(hashlib.sha1(block, usedforsecurity=False).digest())}\r\n"
        "Content-Type: application/warc-fields\r\n"
        f"Content-Length: {len(block)}\r\n\r\n"
    ).encode()
    return file.append(_member(head + block + RECORD_END))


def append_exchange(file: AppendFile, item: ArchiveItem, info_id: str) -> Written:
    """Append the response and then its request, both or neither; `info_id` is that of the file's warcinfo record.

    Raises:
        StorageFull: no space; `file.size` is as before.
        StorageError: the body cannot be read back; `file.size` is as before.
    """
    both = _about(item, info_id)
    request = _request_member(item, both)
    if item.body is None:
        return _append_spooled(file, item, both, request)
    head, body = closed_head(item.response_head), item.body
    block_sha1 = hashlib.sha1(head, usedforsecurity=False)
    block_sha1.update(body)
    payload_digest = digest_of(hashlib.sha1(body, usedforsecurity=False).digest())
    record_head = _response_head(item, both, digest_of(block_sha1.digest()), payload_digest, len(head) + len(body))
    response = _member(b"".join((record_head, head, body, RECORD_END)))
    offset = file.append(response + request)
    return Written(offset, len(response), payload_digest, len(request))


def closed_head(head: bytes) -> bytes:
    """`head`, changed if need be so that its first blank line is its end.

    A head with a blank line in its middle, which no HTTP parser should have let pass,
    loses its empty lines: readers would take the payload to begin there, and the
    digests would not hold.
    """
    blank = _BLANK_LINE.search(head)
    closed = blank is not None and blank.end() == len(head) and blank[0] in (b"\n\r\n", b"\n\n")
    if closed and not head[:1].isspace():
        return head
    lines = (line.rstrip() for line in head.split(b"\n"))
    return b"\r\n".join([line for line in lines if not _is_white(line)]) + b"\r\n\r\n"


def _is_white(line: bytes) -> bool:
    """Whether readers that decode a head line by line, as warcio does, see nothing in a line."""
    try:
        text = line.decode()
    except UnicodeDecodeError:
        text = line.decode("latin-1")
    return not text.strip()


def _append_spooled(file: AppendFile, item: ArchiveItem, both: str, request: bytes) -> Written:
    head = closed_head(item.response_head)
    block_sha1 = hashlib.sha1(head, usedforsecurity=False)
    payload_sha1 = hashlib.sha1(usedforsecurity=False)
    for chunk in _read_back(item):
        block_sha1.update(chunk)
        payload_sha1.update(chunk)
    payload_digest = digest_of(payload_sha1.digest())
    size = len(head) + item.body_size
    record_head = _response_head(item, both, digest_of(block_sha1.digest()), payload_digest, size)
    offset = file.size
    gzip = isal_zlib.compressobj(_LEVEL, wbits=GZIP)
    try:
        _append_some(file, gzip.compress(record_head + head))
        for chunk in _read_back(item):
            _append_some(file, gzip.compress(chunk))
        _append_some(file, gzip.compress(RECORD_END))
        file.append(gzip.flush())
        length = file.size - offset
        file.append(request)
    except BaseException:
        # No reader gets past half a record.
        file.truncate(offset)
        raise
    return Written(offset, length, payload_digest, len(request))


def _append_some(file: AppendFile, data: bytes) -> None:
    if data:  # a compressor may buffer small pieces
        file.append(data)


def _read_back(item: ArchiveItem) -> Iterable[bytes]:
    """Read the spooled body, which must have exactly the size that Content-Length will claim."""
    size = 0
    try:
        for chunk in item.chunks():
            size += len(chunk)
            yield chunk
    except OSError as error:
        raise storage_error(error, f"cannot read back the body of {item.url}") from error
    if size != item.body_size:
        raise StorageError(
            f"the spooled body of {item.url} has {size} bytes, not {item.body_size}: fetch it again with a sound disk"
        )


def _about(item: ArchiveItem, info_id: str) -> str:
    """The lines that both records of an exchange have, next to each other."""
    return (
        f"WARC-Warcinfo-ID: <{info_id}>\r\n"
        f"WARC-Date: {warc_date(item.date)}\r\n"
        f"WARC-Target-URI: {item.url}\r\n"
        f"WARC-IP-Address: {item.remote_ip}\r\n"
    )


def _response_head(item: ArchiveItem, both: str, block_digest: str, payload_digest: str, size: int) -> bytes:
    truncated = f"WARC-Truncated: {item.truncated}\r\n" if item.truncated else ""
    return (
        f"{VERSION}\r\n"
        "WARC-Type: response\r\n"
        f"WARC-Record-ID: <{item.response_id}>\r\n"
        f"{both}"
        f"WARC-Block-Digest: {block_digest}\r\n"
        f"WARC-Payload-Digest: {payload_digest}\r\n"
        f"{truncated}"
        "Content-Type: application/http;msgtype=response\r\n"
        f"Content-Length: {size}\r\n\r\n"
    ).encode()


def _request_member(item: ArchiveItem, both: str) -> bytes:
    block = closed_head(item.request_head)
    head = (
        f"{VERSION}\r\n"
        "WARC-Type: request\r\n"
        f"WARC-Record-ID: <{item.request_id}>\r\n"
        f"WARC-Concurrent-To: <{item.response_id}>\r\n"
        f"{both}"
        f"WARC-Block-Digest: {digest_of(hashlib.sha1(block, usedforsecurity=False).digest())}\r\n"
        "Content-Type: application/http;msgtype=request\r\n"
        f"Content-Length: {len(block)}\r\n\r\n"
    ).encode()
    return _member(head + block + RECORD_END)


def _member(record: bytes) -> bytes:
    return isal_zlib.compress(record, _LEVEL, GZIP)
