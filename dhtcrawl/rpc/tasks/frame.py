"""Frames of the task plane: bytes in, kinds and bodies out, without I/O.

    0       4      5                    4 + length
    ├───────┼──────┼───────────────────────┤
    │length │ kind │ body: one msgpack map │
    └───────┴──────┴───────────────────────┘

`length` counts kind and body, big-endian. A frame is refused on the length it
announces, before anything of it is kept, so a decoder holds at most one frame.
What it holds grows with the bytes that came, never with what was announced.

Called by `dhtcrawl.rpc.tasks.link` and `dhtcrawl.rpc.tasks.messages` only. The split into
bytes in and events out is sans-I/O's, as in h11.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, cast

import msgpack

# The largest message a node sends: a robots.txt (RFC 9309 asks for 500 KiB) or 300 links with room to spare.
FRAME_BYTES_MAX = 1024 * 1024
# Before the handshake no peer has a reason to send more than a HELLO.
GREETING_BYTES_MAX = 4 * 1024
# msgpack allocates a list of the announced length before it reads the elements: nested lists of a million
# each would make 8 GiB of one frame. With this it is 1,024 levels of 4 KiB.
LIST_ITEMS_MAX = 512

HEADER = struct.Struct(">IB")
_LENGTH = struct.Struct(">I")
_LENGTH_BYTES = _LENGTH.size

Body = bytes | memoryview
_packer = msgpack.Packer()


class Kind(IntEnum):
    """What a frame is. The first four bits say what a node that does not know the rest shall do.

    0x0_ is about the connection: unknown ones are ignored. 0x1_ to 0x3_ ask:
    unknown ones are answered with REFUSED. Above that are answers.
    """

    HELLO = 0x00
    GOODBYE = 0x01
    CREDIT = 0x02
    PING = 0x03
    PONG = 0x04
    PROOF = 0x05
    STORE_TASK = 0x10
    STORE_BACKUP = 0x11
    DELETE_BACKUP = 0x12
    REFRESH_TASK = 0x13
    CALL = 0x14
    ACK = 0x40
    RECORDS = 0x41
    RESULT = 0x42
    REFUSED = 0x4F


FIRST_REQUEST = 0x10
FIRST_REPLY = 0x40


class Malformed(ValueError):
    """A frame or a field that the protocol does not allow; the message says which."""


class TooLong(Malformed):
    """A message of ours that no frame can hold."""


def pack(kind: int, fields: dict[str, Any]) -> bytes:
    """One frame.

    Raises:
        TooLong: it would be longer than `FRAME_BYTES_MAX`.
        Malformed: a value has no encoding, such as text with half a surrogate pair.
    """
    try:
        body = cast(bytes, _packer.pack(fields))
    except (ValueError, OverflowError, TypeError) as error:
        raise Malformed(f"no encoding: {error}") from error
    length = len(body) + 1
    if length > FRAME_BYTES_MAX:
        raise TooLong(f"a frame of {length:,} bytes; {FRAME_BYTES_MAX:,} is the limit")
    return HEADER.pack(length, kind) + body


def unpack(body: Body) -> dict[Any, Any]:
    """The map of a body; lists in it are tuples.

    Raises:
        Malformed: it is not exactly one msgpack map.
    """
    try:
        fields = msgpack.unpackb(
            body, use_list=False, max_array_len=LIST_ITEMS_MAX, max_map_len=LIST_ITEMS_MAX, max_ext_len=0
        )
    except (ValueError, OverflowError, TypeError) as error:
        raise Malformed(f"body: {str(error) or type(error).__name__}") from error
    if type(fields) is not dict:
        raise Malformed(f"body: a {type(fields).__name__} instead of a map")
    return fields


class Decoder:
    """Cuts a stream into frames; `limit` is the longest to be accepted from now on.

    After a frame that is refused the stream has lost its place: `feed` then
    yields no more, and `fault` says what was wrong.
    """

    __slots__ = ("_partial", "fault", "limit")

    def __init__(self, limit: int = FRAME_BYTES_MAX) -> None:
        self.limit = limit
        self.fault: Malformed | None = None
        self._partial = bytearray()

    def feed(self, data: Body) -> Iterator[tuple[int, Body]]:
        """The frames that `data` completes: (kind, body) in order.

        To be run to its end, or never fed again: `limit` is read frame by
        frame. A body may be a view of `data`, so use it before the next.
        """
        position = 0
        if self._partial:
            position = self._fill(data)
            body = self._partial_body()
            if body is None:
                return
            self._partial = bytearray()
            yield body
        view = memoryview(data)
        end = len(view)
        while end - position >= _LENGTH_BYTES:
            (length,) = _LENGTH.unpack_from(view, position)
            if self._refuses(length):
                return
            after = position + _LENGTH_BYTES + length
            if after > end:
                break
            yield view[position + 4], view[position + 5 : after]
            position = after
        if position < end:
            self._partial += view[position:]

    @property
    def held_bytes(self) -> int:
        """How much of an unfinished frame is kept."""
        return len(self._partial)

    def _fill(self, data: Body) -> int:
        """Take what the unfinished frame lacks, and no more; how much that was."""
        partial = self._partial
        taken = max(0, min(_LENGTH_BYTES - len(partial), len(data)))
        partial += data[:taken]
        if len(partial) < _LENGTH_BYTES:
            return taken
        length = int.from_bytes(partial[:_LENGTH_BYTES], "big")
        if self._refuses(length):
            return taken
        missing = data[taken : taken + _LENGTH_BYTES + length - len(partial)]
        partial += missing
        return taken + len(missing)

    def _partial_body(self) -> tuple[int, Body] | None:
        partial = self._partial
        if len(partial) < _LENGTH_BYTES or len(partial) < _LENGTH_BYTES + int.from_bytes(
            partial[:_LENGTH_BYTES], "big"
        ):
            return None
        return partial[4], memoryview(partial)[5:]

    def _refuses(self, length: int) -> bool:
        if 1 <= length <= self.limit:
            return False
        self.fault = Malformed(f"a frame of {length:,} bytes announced; 1 to {self.limit:,} are allowed")
        self._partial = bytearray()
        return True
