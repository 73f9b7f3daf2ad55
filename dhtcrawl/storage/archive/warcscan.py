"""Reads a whole WARC file strictly, and reports its records and their faults; for `dhtcrawl verify`.

The scan walks a file member by member in constant memory, recomputes every digest,
and reports a fault instead of stopping at it. Well-known readers accept a file that
ends in the middle of a record, or one with two records in a member; this does not.
"""

from __future__ import annotations

import hashlib
import zlib
from base64 import b32encode
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from dhtcrawl.storage.archive.warcread import (
    GZIP,
    HTTP_HEAD_BYTES_MAX,
    HTTP_HEAD_END,
    RECORD_END,
    RECORD_HEAD_BYTES_MAX,
    content_length,
    is_http,
    parse_head,
)

_CHUNK_BYTES = 64 * 1024
_MAGIC = b"\x1f\x8b\x08"
_LOOK_BYTES = 4 * 1024  # of a member that may begin: its head, its codes and the first word of a record


@dataclass(slots=True)
class GzipMember:
    """What `scan` found between `offset` and `offset + length`.

    The digests are recomputed, `sha1:BASE32`; "" if nothing could be read.
    `problems` is empty for a sound record.
    """

    offset: int
    length: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    block_digest: str = ""
    payload_digest: str = ""
    payload_size: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def type(self) -> str:
        return self.headers.get("warc-type", "")

    @property
    def url(self) -> str:
        return self.headers.get("warc-target-uri", "")


def scan(stream: BinaryIO, *, past_damage: bool = True) -> Iterator[GzipMember]:
    """Yield every member of a seekable `.warc.gz`, sound or not, in constant memory.

    Garbage or a damaged member is skipped up to the next member that holds a
    record, and yielded as one `GzipMember` with its problem. Without `past_damage`
    it is the last one.
    """
    source = _Source(stream)
    while source.peek():
        member = GzipMember(source.offset)
        try:
            _check_member(source, member)
        except (_Unreadable, zlib.error) as error:
            member.problems.append(f"unreadable: {error}")
            if not past_damage:
                yield member
                return
            # Search from its second byte on: where the damage shows is not where the member ends.
            source.skip_to_record(member.offset + 1)
        member.length = source.offset - member.offset
        yield member


class _Unreadable(Exception):
    """The member cannot be read to its end."""


class _Source:
    """A file in chunks, with a position and one step back."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._buffer = b""
        self.offset = stream.tell()

    def peek(self) -> bytes:
        """Some bytes from `offset` on; empty at the end."""
        if not self._buffer:
            self._buffer = self._stream.read(_CHUNK_BYTES)
        return self._buffer

    def take(self) -> bytes:
        data = self.peek()
        self._buffer = b""
        self.offset += len(data)
        return data

    def give_back(self, data: bytes) -> None:
        self._buffer = data + self._buffer
        self.offset -= len(data)

    def _seek(self, offset: int) -> None:
        self._stream.seek(offset)
        self._buffer = b""
        self.offset = offset

    def skip_to_record(self, offset: int) -> None:
        """Move to the next member from `offset` on whose content begins like a record.

        Each byte is read about once, also where a member seems to begin at every third one.
        """
        self._seek(offset)
        window, at = self.take(), 0
        while window:
            at = window.find(_MAGIC, at)
            if (at < 0 or len(window) - at < _LOOK_BYTES) and (more := self.take()):
                window, at = window[at if at >= 0 else 1 - len(_MAGIC) :] + more, 0
                continue
            if at < 0:
                return
            if _begins_record(window[at : at + _LOOK_BYTES]):
                self._seek(self.offset - len(window) + at)
                return
            at += 1


def _begins_record(data: bytes) -> bool:
    try:
        return zlib.decompressobj(GZIP).decompress(data, len(b"WARC/")) == b"WARC/"
    except zlib.error:
        return False


def _inflate(source: _Source) -> Iterator[bytes]:
    """The content of the member at the source's position, in bounded pieces."""
    gzip = zlib.decompressobj(GZIP)
    data = b""
    while not gzip.eof:
        if not data and not (data := source.take()):
            raise _Unreadable("cut off, the file ends inside the member")
        piece = gzip.decompress(data, _CHUNK_BYTES)
        data = gzip.unconsumed_tail
        if piece:
            yield piece
    source.give_back(gzip.unused_data)


def _check_member(source: _Source, member: GzipMember) -> None:
    if not source.peek().startswith(_MAGIC[: len(source.peek())]):
        raise _Unreadable("garbage, no gzip member begins here")
    pieces = _inflate(source)
    head, rest = _until(pieces, RECORD_END, RECORD_HEAD_BYTES_MAX)
    if head is None:
        member.problems.append("no record head")
        size = None
    else:
        member.headers = parse_head(head[: -len(RECORD_END)], member.problems)
        size = content_length(member.headers)
    if size is None:
        for _ in pieces:  # read to the member's end, where its CRC is checked
            pass
        return
    tail = _check_block(member, size, rest, pieces)
    extra = len(tail) + sum(map(len, pieces))
    if tail != RECORD_END or extra != len(RECORD_END):
        if tail[len(RECORD_END) :].startswith(b"WARC/"):
            member.problems.append("more than one record in the member")
        else:
            member.problems.append(f"Content-Length is wrong: {extra} bytes after the block instead of 4")


class _Payload:
    """Picks the payload out of the pieces of a block: all of them, or what follows the HTTP head."""

    def __init__(self, member: GzipMember) -> None:
        self._member = member
        self._head: bytes | None = b"" if is_http(member.headers) else None

    def of(self, piece: bytes, *, last: bool) -> bytes:
        """The payload in the next piece; a head that does not end is noted as a problem."""
        if self._head is None:
            return piece
        self._head += piece
        blank = HTTP_HEAD_END.search(self._head)
        if blank is not None:
            payload, self._head = self._head[blank.end() :], None
            return payload
        if len(self._head) > HTTP_HEAD_BYTES_MAX or last:
            self._member.problems.append("an HTTP head without an end")
            self._head = None
        return b""


def _check_block(member: GzipMember, size: int, first: bytes, pieces: Iterator[bytes]) -> bytes:
    """Digest `size` bytes as the record's block; return the first bytes behind it."""
    block_sha1, payload_sha1 = hashlib.sha1(usedforsecurity=False), hashlib.sha1(usedforsecurity=False)
    payload = _Payload(member)
    left, piece = size, first
    while True:
        mine, after = piece[:left], piece[left:]
        left -= len(mine)
        block_sha1.update(mine)
        mine = payload.of(mine, last=not left)
        payload_sha1.update(mine)
        member.payload_size += len(mine)
        if after or not left:
            break
        next_piece = next(pieces, None)
        if next_piece is None:
            member.problems.append(f"Content-Length is wrong: the block is {left} bytes shorter")
            after = RECORD_END  # do not report a second problem
            break
        piece = next_piece
    # The record's end may straddle pieces.
    while len(after) < len(RECORD_END) + 5 and (more := next(pieces, None)):
        after += more
    member.block_digest, member.payload_digest = digest_of(block_sha1.digest()), digest_of(payload_sha1.digest())
    _compare_digests(member)
    return after


def _compare_digests(member: GzipMember) -> None:
    for name, found in (("block", member.block_digest), ("payload", member.payload_digest)):
        if name == "payload" and member.type == "revisit":
            continue  # the digest is that of the record it refers to
        claimed = member.headers.get(f"warc-{name}-digest", "")
        if claimed.startswith("sha1:") and claimed != found:
            member.problems.append(f"{name} digest mismatch: the record says {claimed}, its bytes give {found}")


def _until(pieces: Iterator[bytes], mark: bytes, bytes_max: int) -> tuple[bytes | None, bytes]:
    """The bytes up to and with `mark`, or None if it does not come, and the bytes read beyond it."""
    seen = b""
    for piece in pieces:
        seen += piece
        at = seen.find(mark)
        if at >= 0:
            return seen[: at + len(mark)], seen[at + len(mark) :]
        if len(seen) > bytes_max:
            break
    return None, seen


def digest_of(sha1: bytes) -> str:
    """A SHA-1 as WARC files write it."""
    return "sha1:" + b32encode(sha1).decode()
