"""Reads one WARC record back from its gzip member.

The file may be written by any program and damaged in any way: every length is
bounded, and its content raises nothing but `StorageError`. Decompression is zlib's,
not that of the library that writes, so that a fault of one is found by the other.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from typing import NamedTuple

from dhtcrawl.errors import StorageError

RECORD_HEAD_BYTES_MAX = 64 * 1024  # URLs end at 8 KiB; the rest is short
HTTP_HEAD_BYTES_MAX = 1024 * 1024  # ours end at 64 KiB, others' may not
RECORD_BYTES_MAX = 1 << 30  # a record is held in memory; our bodies are far smaller

GZIP = 31  # zlib's wbits for a gzip member
RECORD_END = b"\r\n\r\n"
HTTP_HEAD_END = re.compile(rb"\n\r?\n")
_NOT_ONE = "not exactly one record of the length it claims"
_MANDATORY = ("warc-type", "warc-record-id", "warc-date", "content-length")  # ISO 28500, 5
_REPEATABLE = frozenset({"warc-concurrent-to"})


class WarcRecord(NamedTuple):
    """One record in memory. `headers` are by lower-case name; `head` is empty unless the block is HTTP."""

    type: str
    headers: dict[str, str]
    head: bytes
    payload: bytes


def read_record(data: bytes, *, where: str = "the archive") -> WarcRecord:
    """Read the record in the bytes of one gzip member; `where` names it in errors.

    The member's CRC is checked, the record's digests are not.

    Raises:
        StorageError: the bytes are not exactly one whole record.
    """
    raw, whole = _inflated([data], RECORD_BYTES_MAX, where)
    if not whole:
        raise _damaged(where, f"over {RECORD_BYTES_MAX} bytes")
    return _record(raw, where, whole=True)


def read_beginning(pieces: Iterable[bytes], payload_bytes_max: int, *, where: str = "the archive") -> WarcRecord:
    """Read the record in a gzip member that comes in pieces, with at most `payload_bytes_max` bytes of its payload.

    Of a longer one no more pieces are taken than that needs, and its end is not looked at.

    Raises:
        StorageError: the bytes are not exactly one whole record, as far as they are looked at.
    """
    raw, whole = _inflated(pieces, RECORD_HEAD_BYTES_MAX + HTTP_HEAD_BYTES_MAX + payload_bytes_max, where)
    record = _record(raw, where, whole=whole)
    return record._replace(payload=record.payload[:payload_bytes_max])


def _inflated(pieces: Iterable[bytes], bytes_max: int, where: str) -> tuple[bytes, bool]:
    """The first `bytes_max` bytes of a member's content, and whether that is all of it."""
    gzip = zlib.decompressobj(GZIP)
    content: list[bytes] = []
    left, rest = bytes_max, iter(pieces)
    try:
        while left and not gzip.eof and (piece := next(rest, b"")):
            content.append(gzip.decompress(piece, left))
            left -= len(content[-1])
    except zlib.error as error:
        raise _damaged(where, str(error)) from error
    if left and not gzip.eof:
        raise _damaged(where, "cut off")
    if gzip.eof and (gzip.unused_data or next(rest, b"")):
        raise _damaged(where, _NOT_ONE)
    return (content[0] if len(content) == 1 else b"".join(content)), gzip.eof


def _record(raw: bytes, where: str, *, whole: bool) -> WarcRecord:
    """The record that is the content of a member, or the beginning of that."""
    end = raw.find(RECORD_END, 0, RECORD_HEAD_BYTES_MAX)
    problems: list[str] = []
    headers = parse_head(raw[:end], problems) if end >= 0 else {}
    size = content_length(headers)
    if end < 0 or problems or size is None:
        raise _damaged(where, problems[0] if problems else "no record head")
    start = end + len(RECORD_END)
    if whole and raw[start + size :] != RECORD_END:
        raise _damaged(where, _NOT_ONE)
    payload_at = start
    if is_http(headers):
        blank = HTTP_HEAD_END.search(raw, start, start + min(size, HTTP_HEAD_BYTES_MAX))
        if blank is None:
            raise _damaged(where, "an HTTP head without an end")
        payload_at = blank.end()
    return WarcRecord(headers["warc-type"], headers, raw[start:payload_at], raw[payload_at : start + size])


def parse_head(head: bytes, problems: list[str]) -> dict[str, str]:
    """The named fields by lower-case name; missing or malformed ones are added to `problems`."""
    version, *lines = head.split(b"\r\n")
    if version not in (b"WARC/1.0", b"WARC/1.1"):
        problems.append(f"not a WARC record: it begins with {version[:20]!r}")
        return {}
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.decode("utf-8", "replace").partition(":")
        name = name.lower()
        if not colon or not name or name != name.strip():
            problems.append(f"malformed record header {line[:40]!r}")
        elif name in headers and name not in _REPEATABLE:
            problems.append(f"record header {name} is there twice")
        else:
            headers[name] = value.strip()
    problems.extend(f"record header {name} is missing" for name in _MANDATORY if name not in headers)
    if "content-length" in headers and content_length(headers) is None:
        problems.append(f"Content-Length is wrong: {headers['content-length'][:40]!r}")
    return headers


def content_length(headers: dict[str, str]) -> int | None:
    """The record's Content-Length, or None if it is missing or not a number."""
    text = headers.get("content-length", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


def is_http(headers: dict[str, str]) -> bool:
    """Whether the block begins with an HTTP head."""
    return headers.get("content-type", "").replace(" ", "").lower().startswith("application/http")


def _damaged(where: str, why: str) -> StorageError:
    return StorageError(f"{where} is damaged ({why}); run `dhtcrawl verify` on the directory")
