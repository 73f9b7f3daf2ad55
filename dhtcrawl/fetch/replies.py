"""One HTTP/1 reply from bytes, without I/O: what browsers and curl keep is kept.

RFC 9112, 6.3 says where a body ends. A reply that breaks the grammar and has
one meaning nevertheless is read by that meaning; one whose length two readers
could understand differently is read once, and its connection not used again,
so that nothing in it can pass for the answer to another request.

The result does not depend on how the bytes were cut into segments. Work is
linear in the bytes; what is kept of an unfinished reply is bounded by
`head_bytes_max`.

    head ─┬─ 1xx: head again
          ├─ no body
          ├─ chunked: (size, data, end of data) …, trailers
          ├─ Content-Length
          `─ until the connection is closed
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum, auto
from typing import NamedTuple

from dhtcrawl.fetch.heads import NOT_A_FIELD, RawHeaders
from dhtcrawl.fetch.http import FetchFailureKind

# As many as curl takes (`MAX_HTTP_RESP_HEADER_COUNT`).
HEADER_LINES_MAX = 5000
# The size of a chunk with its extensions; nothing that is used has any.
CHUNK_LINE_BYTES_MAX = 4096
# 18 digits hold any length that a file can have.
_LENGTH_DIGITS_MAX = 18

_START = b"HTTP/"
_LINE_BREAKS = re.compile(rb"[\r\n]*")
# No two repetitions that stand beside each other match the same byte, lest a
# hostile line take quadratic time.
_STATUS_LINE = re.compile(rb"[Hh][Tt][Tt][Pp]/([0-9])(?:\.([0-9]))?[ \t]+([1-9][0-9]{2})(?![0-9])([^\n]*)\n")
_BLANK_LINE = re.compile(rb"\n\r?\n")
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_FIELD = re.compile(rb"^([!#$%&'*+\-.^_`|~0-9A-Za-z]+):([^\r\n]*)\r\n", re.MULTILINE)
# 16 digits, as in curl.
_SIZE = re.compile(rb"[0-9A-Fa-f]{1,16}")
_BODILESS = frozenset((204, 304))
_RESET_CONTENT = 205


class BadReply(Exception):
    """A reply that cannot be read; `detail` says why in one line, which may hold bytes of the server."""

    def __init__(self, kind: FetchFailureKind, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail


class ReplyHead(NamedTuple):
    """A head as it was sent: values stripped, folded lines joined.

    A line that is no field is one whose name is `heads.NOT_A_FIELD`. `reason`
    is decoded as UTF-8 with surrogate escapes.
    """

    version: tuple[int, int]
    status: int
    reason: str
    fields: RawHeaders


class _Part(Enum):
    """What comes next."""

    HEAD = auto()
    LENGTH = auto()
    CLOSE = auto()
    CHUNK_SIZE = auto()
    CHUNK = auto()
    CHUNK_END = auto()
    TRAILERS = auto()
    NOTHING = auto()


# Python 3.11 takes a quarter of a microsecond to look a member up in its class.
(_HEAD, _LENGTH, _CLOSE, _CHUNK_SIZE, _CHUNK, _CHUNK_END, _TRAILERS, _NOTHING) = _Part


class ReplyParser:
    """Reads one reply; give it each segment with `feed` and the end of the connection with `end`."""

    __slots__ = (
        "_bodiless",
        "_head_bytes_max",
        "_left",
        "_part",
        "_partial",
        "_seen",
        "_status_line",
        "fault",
        "head",
        "reusable",
    )

    def __init__(self, head_bytes_max: int, *, bodiless: bool = False) -> None:
        self.head: ReplyHead | None = None
        self.fault: str | None = None  # why the body is cut short, once that is known
        self.reusable = True  # whether the connection may carry another exchange after this one
        self._bodiless = bodiless  # the request was a HEAD
        self._head_bytes_max = head_bytes_max
        self._part = _HEAD
        self._left = 0  # bytes of the body or the chunk; of trailers, how many were read
        self._partial = bytearray()  # a head or line without its end
        self._status_line: re.Match[bytes] | None = None
        self._seen = 0  # of a partial head: 1, it begins as HTTP does; 2, so does its status line

    @property
    def done(self) -> bool:
        """Whether nothing more of this reply comes: it is whole, or `fault` says what broke it."""
        return self._part is _NOTHING

    @property
    def body_ended(self) -> bool:
        """Whether the whole body has come, though the end of its trailers perhaps has not."""
        return self.fault is None and self._part in (_TRAILERS, _NOTHING)

    def feed(self, data: bytes) -> bytes:
        """Take a segment; the part of the body that is in it.

        Bytes after the end of the reply are dropped, and make the connection
        one that cannot be used again.

        Raises:
            BadReply: the head is none, or does not say where the body ends.
        """
        at = 0
        if self._part is _HEAD:
            try:
                data, at = self._read_heads(data)
            except BadReply:
                self.reusable = False
                self._part = _NOTHING
                raise
            if self.head is None:
                return b""
        part = self._part
        if part is _LENGTH:
            body = data[at : at + self._left]
            at += len(body)
            self._left -= len(body)
            if not self._left:
                self._part = _NOTHING
        elif part is _CLOSE:
            return data[at:] if at else data
        elif part is _NOTHING:
            body = b""
        else:
            body, at = self._read_chunks(data, at)
        if at < len(data):
            self.reusable = False
        return body

    def end(self, *, broken: bool = False) -> bool:
        """Take the end of the connection, which was `broken` off or closed; whether the reply is whole."""
        # RFC 9112, 8: a chunked body is whole once its last chunk has come, and
        # one without a length only if the connection was closed in order.
        if self._part is _TRAILERS or (self._part is _CLOSE and not broken):
            self._part = _NOTHING
        return self._part is _NOTHING and self.fault is None

    def _read_heads(self, data: bytes) -> tuple[bytes, int]:
        """Read up to the body; the bytes now at hand, and where in them it begins."""
        if self._partial:
            if not self._worth_a_look(data):
                return b"", 0
            data = bytes(self._partial)
            self._partial.clear()
        at = 0
        while self.head is None:
            if data[at : at + 1] in (b"\r", b"\n"):
                at = _end_of(_LINE_BREAKS, data, at)
            if at == len(data):
                break
            end = self._find_end(data, at)
            if not end:
                self._partial += data[at:]
                break
            self._take_head(data[at:end])
            self._seen = 0
            at = end
        return data, at

    def _worth_a_look(self, data: bytes) -> bool:
        """Add `data` to a partial head; False where it changes nothing.

        It sees only the new bytes, so that a head in segments of one byte
        costs no more than its length.
        """
        partial = self._partial
        before = max(0, len(partial) - 2)
        partial += data
        if len(partial) > self._head_bytes_max or self._seen == 0:
            return True
        if self._seen == 1:
            return b"\n" in data
        return partial.find(b"\n\n", before) >= 0 or partial.find(b"\n\r\n", before) >= 0

    def _find_end(self, data: bytes, at: int) -> int:
        """Where the head that begins at `at` ends, 0 if that has not come."""
        if not data.startswith(_START, at):
            # In lower case it is read, as browsers and curl do.
            begin = data[at : at + len(_START)].upper()
            if not _START.startswith(begin):
                raise BadReply(FetchFailureKind.PROTOCOL, "not HTTP: the answer does not begin with HTTP/")
            if begin != _START:
                return 0
        self._seen = 1
        limit = at + self._head_bytes_max
        line_end = data.find(b"\n", at, limit)
        if line_end >= 0:
            self._status_line = _STATUS_LINE.match(data, at)
            if self._status_line is None:
                line = data[at : min(line_end, at + 100)].decode("latin-1").rstrip()
                raise BadReply(FetchFailureKind.PROTOCOL, f"not HTTP: the status line is {line!r}")
            self._seen = 2
            blank = _BLANK_LINE.search(data, line_end, limit)
            if blank is not None:
                return blank.end()
        if len(data) > limit:
            raise BadReply(
                FetchFailureKind.HEADERS,
                f"the response head is larger than the limit of {self._head_bytes_max} bytes",
            )
        return 0

    def _take_head(self, head: bytes) -> None:
        """Read one head; a 1xx is dropped (RFC 9110, 15.2)."""
        lines = head.count(b"\n") - 2
        if lines > HEADER_LINES_MAX:
            raise BadReply(
                FetchFailureKind.HEADERS, f"the response head has {lines} lines, more than {HEADER_LINES_MAX}"
            )
        if b"\0" in head:
            raise BadReply(FetchFailureKind.PROTOCOL, "a NUL byte in the response head")
        first, self._status_line = self._status_line, None
        assert first is not None, "the status line was looked at"
        status = int(first[3])
        if status < 200:
            if status == 101:
                raise BadReply(FetchFailureKind.PROTOCOL, "unexpected status 101: the server changes the protocol")
            return
        if b"\r" in first[4][:-1]:
            self.reusable = False
        start = head.index(b"\n") + 1
        found = _FIELD.findall(head, start)
        if len(found) == lines:
            fields = [(name, value.strip(b" \t")) for name, value in found]
        else:
            fields = self._odd_fields(head, start)
        version = (int(first[1]), int(first[2] or 0))
        reason = first[4].strip(b" \t\r").decode("utf-8", "surrogateescape")
        self._frame(version, status, fields)
        self.head = ReplyHead(version, status, reason, fields)

    def _odd_fields(self, head: bytes, start: int) -> list[tuple[bytes, bytes]]:
        """The fields of a head in which some line is not `name: value` and CRLF."""
        fields: list[tuple[bytes, bytes]] = []
        rest = head[start:]
        if rest.count(b"\r") != rest.count(b"\r\n"):
            # RFC 9112, 2.2: a CR by itself counts as a space. Another reader may end the line there.
            self.reusable = False
            rest = rest.replace(b"\r\n", b"\n").replace(b"\r", b" ")
        if rest[0] in b" \t":
            self.reusable = False
        for parts in _unfolded(rest.split(b"\n")):
            line = b" ".join(parts)
            name, colon, value = line.partition(b":")
            bare = name.rstrip(b" \t")
            if not colon or not _NAME.fullmatch(name):
                self.reusable = False
            if colon and bare:
                # RFC 9112, 5.1: a space before the colon is taken away.
                fields.append((bare, value.strip(b" \t")))
            else:
                fields.append((NOT_A_FIELD, line))
        return fields

    def _frame(self, version: tuple[int, int], status: int, fields: RawHeaders) -> None:
        """Say how the body ends (RFC 9112, 6.3)."""
        told = _told(fields)
        options = told[b"connection"]
        if b"close" in options or version[0] != 1 or (version == (1, 0) and b"keep-alive" not in options):
            self.reusable = False
        lengths = told[b"content-length"]
        codings = [coding for coding in told[b"transfer-encoding"] if coding not in (b"", b"identity")]
        if b"" in lengths or (codings and (lengths or version < (1, 1) or told[b"transfer-encoding"] != [b"chunked"])):
            # RFC 9112, 6.1 and 6.3: it could be an attempt at smuggling.
            self.reusable = False
        if self._bodiless or status in _BODILESS:
            if len(set(lengths)) > 1 or not all(map(bytes.isdigit, lengths)):
                self.reusable = False
            self._part = _NOTHING
        elif codings:
            self._part = _CHUNK_SIZE if codings[-1] == b"chunked" else _CLOSE
        else:
            length = _length_of(lengths)
            self._left = length or 0
            self._part = _CLOSE if length is None else _LENGTH if length else _NOTHING
        if self._part is _CLOSE:
            self.reusable = False
            if status == _RESET_CONTENT:
                # RFC 9110, 15.3.6: nothing follows. Its end need not be told, and would be waited for.
                self._part = _NOTHING

    def _read_chunks(self, data: bytes, at: int) -> tuple[bytes, int]:
        """The chunks in a segment without their framing, and where in it reading ended."""
        pieces: list[bytes] = []
        while at < len(data) and self._part is not _NOTHING:
            if self._part is _CHUNK:
                piece = data[at : at + self._left]
                pieces.append(piece)
                at += len(piece)
                self._left -= len(piece)
                if not self._left:
                    self._part = _CHUNK_END
            elif self._part is _CHUNK_END:
                at = self._end_chunk(data, at)
            else:
                at = self._read_line(data, at)
        return (pieces[0] if len(pieces) == 1 else b"".join(pieces)), at

    def _end_chunk(self, data: bytes, at: int) -> int:
        """Read the line break after a chunk, which may come in two segments."""
        if data[at] == 0x0D and not self._partial:
            self._partial += b"\r"
        elif data[at] == 0x0A:
            self._partial.clear()
            self._part = _CHUNK_SIZE
        else:
            self._break_off("a chunk is longer than its size says")
        return at + 1

    def _read_line(self, data: bytes, at: int) -> int:
        """Read a line with the size of a chunk, or a trailer, or the part of it that is there."""
        trailers = self._part is _TRAILERS
        limit = self._head_bytes_max - self._left if trailers else CHUNK_LINE_BYTES_MAX
        end = data.find(b"\n", at)
        stop = end if end >= 0 else len(data)
        if len(self._partial) + stop - at > limit:
            if trailers:
                # The body is whole; what comes after it is read no further.
                self.reusable = False
                self._part = _NOTHING
            else:
                self._break_off("the line of a chunk is too long")
            return stop
        self._partial += data[at:stop]
        if end < 0:
            return stop
        line = bytes(self._partial)
        self._partial.clear()
        if not trailers:
            self._begin_chunk(line)
        elif line.strip(b"\r"):
            self._left += len(line)  # its content says nothing that is used
        else:
            self._part = _NOTHING
        return end + 1

    def _begin_chunk(self, line: bytes) -> None:
        """Take the line before a chunk; its extensions say nothing that is used."""
        digits = line[:-1] if line[-1:] == b"\r" else line
        if not _SIZE.fullmatch(digits):
            if b"\r" in digits:
                self.reusable = False
            digits = digits.partition(b";")[0].strip(b" \t\r")
            if not _SIZE.fullmatch(digits):
                self._break_off("the size of a chunk is not a number")
                return
        self._left = int(digits, 16)
        self._part = _CHUNK if self._left else _TRAILERS

    def _break_off(self, fault: str) -> None:
        self.fault = fault
        self.reusable = False
        self._part = _NOTHING


def _end_of(pattern: re.Pattern[bytes], data: bytes, at: int) -> int:
    found = pattern.match(data, at)
    return found.end() if found is not None else at


def _unfolded(lines: list[bytes]) -> Iterator[list[bytes]]:
    """Each field line with the lines that continue it (RFC 9112, 5.2), without line breaks and blank ends.

    Blank-led lines before the first field continue nothing and are left out (RFC 9112, 2.2).
    """
    parts: list[bytes] = []
    for line in lines:
        text = line.strip(b" \t\r")
        if line[:1] in (b" ", b"\t"):
            if parts and text:
                parts.append(text)
        elif text:
            if parts:
                yield parts
            parts = [text]
    if parts:
        yield parts


def _told(fields: RawHeaders) -> dict[bytes, list[bytes]]:
    """What a head says of its framing, in lower case, each list taken apart; an item may be empty."""
    told: dict[bytes, list[bytes]] = {b"content-length": [], b"transfer-encoding": [], b"connection": []}
    for name, value in fields:
        items = told.get(name.lower())
        if items is None:
            continue
        if b"," in value:
            items += [item.strip(b" \t") for item in value.lower().split(b",")]
        else:
            items.append(value.lower())
    return told


def _length_of(told: list[bytes]) -> int | None:
    """The one length that all Content-Lengths of a reply tell; None where they tell none.

    Raises:
        BadReply: they tell several, or something that is no length.
    """
    lengths: set[int] = set()
    for text in filter(None, told):
        if not text.isdigit():
            shown = text[:40].decode("latin-1")
            raise BadReply(FetchFailureKind.PROTOCOL, f"the Content-Length is not a number: {shown!r}")
        digits = text.lstrip(b"0")
        if len(digits) > _LENGTH_DIGITS_MAX:
            raise BadReply(FetchFailureKind.PROTOCOL, "the Content-Length is larger than any file")
        lengths.add(int(digits or b"0"))
    if len(lengths) > 1:
        several = " and ".join(str(length) for length in sorted(lengths)[:3])
        raise BadReply(FetchFailureKind.PROTOCOL, f"the reply has different Content-Lengths: {several}")
    return lengths.pop() if lengths else None
