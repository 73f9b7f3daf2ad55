"""Datagrams of the routing plane, without I/O: a type, a message id, msgpack.

    request  00 ‖ message id (20 bytes) ‖ msgpack [name, [argument, …]]
    reply    01 ‖ message id (20 bytes) ‖ msgpack result

That is the wire of rpcudp 5.0.1, to the byte. What is written never exceeds
1,170 bytes; what is read may be as long as the stock library ever writes.
Anything else is `Garbage`: a value, to be counted and dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgpack

MESSAGE_ID_BYTES = 20
HEAD_BYTES = 1 + MESSAGE_ID_BYTES
# With the seal of a closed swarm 1,232: what IPv6 takes everywhere in one piece (1,280, RFC 8200, section 5), less the
# heads of IP and UDP.
DATAGRAM_BYTES_MAX = 1170
# rpcudp refuses to send more than 8 KiB of name and arguments.
RECEIVED_BYTES_MAX = HEAD_BYTES + 8192
# The largest packed value that STORE can carry: head, array, "store", array, id and key.
VALUE_BYTES_MAX = DATAGRAM_BYTES_MAX - (HEAD_BYTES + 1 + 6 + 1 + 22 + 22)
_REQUEST, _REPLY = b"\x00", b"\x01"
_NAME_CHARS_MAX = 64
_ITEMS_MAX = 1024


@dataclass(frozen=True, slots=True)
class DatagramRequest:
    """A request."""

    message_id: bytes
    name: str
    args: list[Any]


@dataclass(frozen=True, slots=True)
class DatagramReply:
    """A reply to one of our requests."""

    message_id: bytes
    value: Any


@dataclass(frozen=True, slots=True)
class Garbage:
    """Not a datagram of ours."""

    reason: str


class TooLarge(ValueError):
    """A message does not fit into a datagram."""


def decode(data: bytes) -> DatagramRequest | DatagramReply | Garbage:
    """Read one datagram; never raises."""
    if not HEAD_BYTES < len(data) <= RECEIVED_BYTES_MAX:
        return Garbage(f"{len(data)} bytes long")
    try:
        value = msgpack.unpackb(data[HEAD_BYTES:], max_array_len=_ITEMS_MAX, max_map_len=_ITEMS_MAX)
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        return Garbage(f"not msgpack: {type(error).__name__}")
    message_id = data[1:HEAD_BYTES]
    kind = data[:1]
    if kind == _REPLY:
        return DatagramReply(message_id, value)
    if kind != _REQUEST:
        return Garbage(f"of type {data[0]}")
    match value:
        case [str(name), list(args)] if len(name) <= _NAME_CHARS_MAX:
            return DatagramRequest(message_id, name, args)
    return Garbage("not [name, arguments]")


def question_in(datagram: bytes) -> bytes | None:
    """The message id of a request of ours; None for a reply."""
    return datagram[1:HEAD_BYTES] if datagram[:1] == _REQUEST else None


def encode_request(message_id: bytes, name: str, args: Sequence[object]) -> bytes:
    """One request.

    Raises:
        TooLarge: it has more than 1,170 bytes.
    """
    return _bounded(_REQUEST + message_id + _pack([name, list(args)]), DATAGRAM_BYTES_MAX)


def encode_reply(message_id: bytes, value: object, bytes_max: int = DATAGRAM_BYTES_MAX) -> bytes:
    """One reply; of a list, as many first elements as fit.

    Raises:
        TooLarge: it is no list and has more than `bytes_max` bytes.
    """
    head = _REPLY + message_id
    whole = head + _pack(value)
    if len(whole) <= bytes_max or not isinstance(value, list):
        return _bounded(whole, bytes_max)
    room = bytes_max - HEAD_BYTES - 3  # the longest array header that can be needed
    count = 0
    for item in value:
        room -= len(_pack(item))
        if room < 0:
            break
        count += 1
    return head + _pack(value[:count])


def packed_bytes(value: object) -> int:
    """How long a value is on the wire.

    Raises:
        ValueError: it cannot be written at all.
    """
    return len(_pack(value))


def _pack(value: object) -> bytes:
    try:
        packed: bytes = msgpack.packb(value)
    except (TypeError, OverflowError, RecursionError) as error:
        raise ValueError(f"cannot be written as msgpack: {error}") from error
    return packed


def _bounded(datagram: bytes, bytes_max: int) -> bytes:
    if len(datagram) > bytes_max:
        raise TooLarge(f"a datagram of {len(datagram)} bytes; at most {bytes_max} are sent")
    return datagram
