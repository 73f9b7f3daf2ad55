"""Content coding undone, within a limit, without I/O.

`decode` is for the analysis of pages; the archive keeps bodies as they came.
Codings are undone right to left (RFC 9110, 8.4) as a pipeline of generators:
at any moment there exist the result so far (and the eighth that its buffer
grows by), one chunk a stage, and what brotli has read, so that a bomb costs no
more memory than an honest page of `limit` bytes. Each stage
stops at `limit`, since a bomb inside a bomb may blow up in the middle only.
What a broken stream gave before it broke is kept.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from itertools import chain
from typing import NamedTuple, Protocol, cast

import brotli

# isal inflates a page two to four times as fast as zlib, and its decompressor
# bounds its output the same way.
from isal import igzip_lib

# The standard library's own module, backported by its author: every call
# bounds its output (`zstandard`'s decompressobj cannot), and there are wheels
# for CPython 3.11 to 3.13; from 3.14 on nothing need be installed.
if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CODINGS_MAX = 4
CHUNK_BYTES = 64 * 1024  # most that one call may produce
# A decoder that raises loses what that call had decoded: small pieces lose little.
PIECE_BYTES = 4 * 1024
# Honest files have a handful of members; empty ones could go on for ever without reaching the limit.
MEMBERS_MAX = 10_000
# An extra field has 64 KiB at most, names are short.
BEGINNING_BYTES_MAX = 128 * 1024
# RFC 9659: a zstd content coding's window is at most 8 MiB.
_ZSTD_WINDOW_LOG_MAX = 23


class Decoded(NamedTuple):
    """The decoded body; `error` is one line about what broke, `truncated` says the limit was reached."""

    data: bytes
    truncated: bool = False
    error: str | None = None


class _Decoder(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Brotli:
    """Brotli behind the interface of the other decoders.

    The library refuses a piece that goes on behind the end of the stream, or breaks, and with it what it had decoded of
    that piece. Then all is decoded anew, that piece byte by byte; what was given before is left out.
    """

    unused_data = b""  # a stream has no members

    def __init__(self) -> None:
        self._inner = brotli.Decompressor()
        self._drained = True
        self._pieces: list[bytes] = []  # all that was taken
        self._given = 0
        self._rest: Iterator[bytes] | None = None  # what comes of the piece that was refused

    @property
    def eof(self) -> bool:
        return self._rest is None and bool(self._inner.is_finished())

    @property
    def needs_input(self) -> bool:
        # With all input taken it accepts more, even while a 34-byte bomb has
        # megabytes to give: only a call that stayed short has emptied it.
        return self._rest is None and self._drained and bool(self._inner.can_accept_more_data())

    def decompress(self, data: bytes, max_length: int) -> bytes:
        if self._rest is None:
            if data:
                self._pieces.append(data)
            try:
                out: bytes = self._inner.process(data, output_buffer_limit=max_length)
            except brotli.error:
                self._rest = self._anew(max_length)
            else:
                self._drained = len(out) < max_length
                self._given += len(out)
                return out
        out = next(self._rest, b"")
        if not out:
            self._rest = None
        return out

    def _anew(self, max_length: int) -> Iterator[bytes]:
        """What all pieces come to behind what was given, in chunks of at most `max_length`."""
        self._inner, skipped = brotli.Decompressor(), 0
        *whole, refused = self._pieces
        for piece in chain(whole, (refused[at : at + 1] for at in range(len(refused)))):
            while not self._inner.is_finished():
                out = self._inner.process(piece, output_buffer_limit=max_length)
                news = out[max(0, self._given - skipped) :]
                skipped += len(out)
                if news:
                    yield news
                if len(out) < max_length:
                    break
                piece = b""


def _gzip(_: bytes) -> _Decoder:
    decoder: _Decoder = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
    return decoder


def _has_magic(data: bytes) -> bool:
    return len(data) >= 4  # the longest magic number


def _has_gzip_header(data: bytes) -> bool:
    """Whether the header of a member is all there (RFC 1952, 2.3); of what is no gzip, whether that can be seen."""
    if not data.startswith(_GZIP_MAGIC):
        return len(data) >= len(_GZIP_MAGIC)
    if len(data) < 10:
        return False
    flags, at = data[3], 10
    if flags & _FEXTRA:
        at += 2 + int.from_bytes(data[10:12], "little")
    for text in (_FNAME, _FCOMMENT):
        if flags & text:
            end = data.find(b"\0", at)
            if end < 0:
                return False
            at = end + 1
    return at + (2 if flags & _FHCRC else 0) <= len(data)


def _deflate(head: bytes) -> _Decoder:
    # RFC 9110, 8.4.1.2: "deflate" means the zlib format, "some
    # implementations send raw". The zlib header is its own check sum.
    wrapped = len(head) >= 2 and head[0] & 0x0F == 8 and int.from_bytes(head[:2], "big") % 31 == 0
    flag = igzip_lib.DECOMP_ZLIB if wrapped else igzip_lib.DECOMP_DEFLATE
    decoder: _Decoder = igzip_lib.IgzipDecompressor(flag=flag)
    return decoder


def _zstd(_: bytes) -> _Decoder:
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG_MAX})


_GZIP_MAGIC = b"\x1f\x8b"
_FHCRC, _FEXTRA, _FNAME, _FCOMMENT = 2, 4, 8, 16


class _Coding(NamedTuple):
    start: Callable[[bytes], _Decoder]  # given the first bytes
    # What another member begins with, by its first bytes; anything else after
    # the end is padding, which browsers ignore too.
    member: tuple[bytes, ...] = ()
    begun: Callable[[bytes], bool] = _has_magic  # whether a decoder may be given what has come of a member


# isal loses its place in a header of several optional fields that comes to it in parts.
_GZIP = _Coding(_gzip, (_GZIP_MAGIC,), _has_gzip_header)
_CODINGS = {
    "gzip": _GZIP,
    "x-gzip": _GZIP,
    "deflate": _Coding(_deflate),
    "br": _Coding(lambda _: _Brotli()),
    # A frame, or a skippable frame of any of its sixteen kinds.
    "zstd": _Coding(_zstd, (b"\x28\xb5\x2f\xfd", *(bytes((0x50 + i, 0x2A, 0x4D, 0x18)) for i in range(16)))),
}
# isal's stub calls its exception class an exception.
_BROKEN = (cast(type[Exception], igzip_lib.IsalError), brotli.error, zstd.ZstdError, EOFError)


class _Fate:
    """What befell any stage; the first error is the one worth telling."""

    __slots__ = ("error", "truncated")

    def __init__(self) -> None:
        self.truncated = False
        self.error: str | None = None

    def fail(self, error: str) -> None:
        if self.error is None and not self.truncated:
            self.error = error


def decode(data: bytes, content_encoding: str | None, limit: int) -> Decoded:
    """A body without its content codings: at most `limit` bytes.

    An unknown coding is an error; what lies under it is returned as it is,
    since servers write `Content-Encoding: utf-8` over plain pages.
    """
    codings = [c for c in (part.strip().lower() for part in (content_encoding or "").split(",")) if c]
    codings = [c for c in codings if c != "identity"]
    if not codings or not data:
        return Decoded(data[:limit], truncated=len(data) > limit)
    if len(codings) > CODINGS_MAX:
        return Decoded(b"", error=f"content-encoding: {len(codings)} codings, at most {CODINGS_MAX} are undone")
    fate = _Fate()
    stream = _pieces(data)
    for name in reversed(codings):
        coding = _CODINGS.get(name)
        if coding is None:
            fate.fail(f"content-encoding: unknown coding {name[:40]!r}")
            break
        stream = _limited(_undo(name, coding, stream, fate), limit, fate)
    else:
        return _gathered(stream, fate)
    return _gathered(_limited(stream, limit, fate), fate)


def begins_coded(data: bytes, codings: str) -> bool:
    """Whether a body begins as the last one of its codings does; False for codings that begin with anything."""
    coding = _CODINGS.get(codings.rpartition(",")[2].strip().lower())
    return coding is not None and data.startswith(coding.member)


def _gathered(stream: Iterator[bytes], fate: _Fate) -> Decoded:
    # BytesIO hands its buffer out without a copy; a join would need twice the limit.
    result = io.BytesIO()
    for chunk in stream:
        result.write(chunk)
    return Decoded(result.getvalue(), fate.truncated, fate.error)


def _pieces(data: bytes) -> Iterator[bytes]:
    # A gzip trailer (check sum, size) goes in alone, so that a wrong one
    # costs none of the content.
    end = max(0, len(data) - 8)
    for start in range(0, end, PIECE_BYTES):
        yield data[start : min(start + PIECE_BYTES, end)]
    yield data[end:]


def _limited(stream: Iterator[bytes], limit: int, fate: _Fate) -> Iterator[bytes]:
    left = limit
    for chunk in stream:
        if len(chunk) > left:
            fate.truncated = True
            yield chunk[:left]
            return
        left -= len(chunk)
        yield chunk


def _undo(name: str, coding: _Coding, source: Iterator[bytes], fate: _Fate) -> Iterator[bytes]:
    """The output of one stage, in chunks; ends early where the input is broken."""
    piece = b""
    for members in range(MEMBERS_MAX):
        piece = _beginning(piece, source, coding.begun)
        if not members and not piece:
            fate.fail(f"{name}: empty stream")
        if not piece or (members and not piece.startswith(coding.member)):
            return
        decoder = coding.start(piece)
        while True:
            try:
                chunk = decoder.decompress(piece, CHUNK_BYTES)
            except _BROKEN as error:
                fate.fail(f"{name}: {error}"[:200])
                return
            if chunk:
                yield chunk
            if decoder.eof:
                break
            piece = b""
            if decoder.needs_input:
                piece = next(source, b"")
                if not piece:
                    fate.fail(f"{name}: the stream ends too early")
                    return
        piece = decoder.unused_data
    fate.fail(f"{name}: more than {MEMBERS_MAX} members")


def _beginning(piece: bytes, source: Iterator[bytes], begun: Callable[[bytes], bool]) -> bytes:
    """`piece` and as much of `source` as it takes to begin a member."""
    while not begun(piece) and len(piece) < BEGINNING_BYTES_MAX and (more := next(source, b"")):
        piece += more
    return piece
