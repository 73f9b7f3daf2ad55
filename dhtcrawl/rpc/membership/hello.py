"""Records of members, which nodes tell each other: which of two is newer, how one is read from a stranger.

A record on the wire is a row, a list in this order:

    id, host, port, incarnation, epoch, state, owns, features, version_min, version_max, …

What a later version adds behind them is kept and passed on. Of two records of
one node the higher `precedence` counts, and merging is taking the maximum, so
it does not matter in which order or how often gossip arrives. The order is
SWIM's (Das et al. 2002, section 4.2): within one incarnation and epoch the
worse claim wins, and only the node itself raises its epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import lru_cache
from typing import Any, Self

import msgpack

from dhtcrawl.keyspace import INCARNATION_MAX
from dhtcrawl.rpc.contact import Address, canonical_host, parse_id
from dhtcrawl.rpc.discovery.datagram import packed_bytes
from dhtcrawl.rpc.tasks.signals import VERSION, VERSION_MIN, WORD_CHARS_MAX
from dhtcrawl.units import PORT_MAX, ip_of

EPOCH_MAX = 2**31 - 1
FEATURES_MAX = 16
FIELDS = 10
FIELDS_MAX = 32
# Two rows must fit into a datagram: the sender's own, and what it has to tell the receiver about itself.
ROW_BYTES_MAX = 512
ROWS_A_DATAGRAM_MAX = 64
SEES_MAX = 2**31 - 1
# Rows come again and again, so what they amount to is kept. All members of the largest swarm fit twice.
ROWS_KEPT_MAX = 8192
# Among the features of a node that no other can reach. It is JOINING as long as it runs, so it owns nothing.
OUTBOUND = "outbound"

_VERSION_MAX = 65_535
_UNSPECIFIED = ("", "0.0.0.0", "::")
Row = list[Any]
Scalar = bytes | str | int | bool | None
_packer = msgpack.Packer()


class NodeState(IntEnum):
    """What is known of a node, from best to worst."""

    JOINING = 0  # owns nothing yet
    ACTIVE = 1
    SUSPECTED = 2  # it did not answer a member; still owns what it owned
    LEFT = 3  # said so itself
    DEAD = 4  # suspected for too long

    @property
    def is_gone(self) -> bool:
        return self >= NodeState.LEFT


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """One node at one moment. `host` is an IP address; an unspecified one only in a node's record of itself."""

    id: bytes
    host: str
    port: int
    incarnation: int  # how often the node has started
    epoch: int = 0  # raised by the node itself, to change its state or to refute
    state: NodeState = NodeState.JOINING
    owns: bool = False  # it was active; of a suspected node the state alone does not say it
    features: tuple[str, ...] = ()
    version_min: int = VERSION_MIN
    version_max: int = VERSION
    extra: tuple[Scalar, ...] = ()
    _row: Row | None = field(default=None, init=False, compare=False, repr=False)

    @classmethod
    def newcomer(cls, node_id: bytes, address: Address, incarnation: int, features: Sequence[str] = ()) -> Self:
        """A node's record of itself when it starts.

        Raises:
            ValueError: other nodes would not take it.
        """
        host, port = canonical_host(address[0]) or address[0], address[1]
        record = cls(node_id, host, port, incarnation, features=tuple(features))
        if parse_record(record.row(), host if record.is_placed else "127.0.0.1", first_hand=True) is None:
            raise ValueError(f"member {node_id.hex()} at {host}:{port}: not within the protocol's limits")
        return record

    @property
    def address(self) -> Address:
        return self.host, self.port

    @property
    def is_placed(self) -> bool:
        """Whether it says where it is; otherwise it is where its datagrams come from."""
        return self.host not in _UNSPECIFIED

    @property
    def is_outbound(self) -> bool:
        """Whether others are not to ask it, but over connections that it has made."""
        return OUTBOUND in self.features

    @property
    def life(self) -> tuple[int, int]:
        """What only the node itself counts up."""
        return self.incarnation, self.epoch

    @property
    def precedence(self) -> tuple[Any, ...]:
        """Total, so that all nodes choose alike. A loopback address counts less than one that others can use."""
        place = (self.is_placed, not is_loopback(self.host), self.host, self.port)
        extra = [(value is not None, str(type(value)), value) for value in self.extra]
        return (*self.life, self.state, self.owns, place, self.features, self.version_min, self.version_max, extra)

    def row(self) -> Row:
        """For the wire; the same list each time, not to be changed."""
        if self._row is None:
            row = [self.id, self.host, self.port, self.incarnation, self.epoch, int(self.state), self.owns,
                   list(self.features), self.version_min, self.version_max, *self.extra]  # fmt: skip
            object.__setattr__(self, "_row", row)
            return row
        return self._row

    def turned(self, state: NodeState) -> MemberRecord:
        """The same node in another state; what it owns goes with JOINING and ACTIVE only."""
        owns = state is NodeState.ACTIVE or (self.owns and state is not NodeState.JOINING)
        return replace(self, state=state, owns=owns)


def merge(a: MemberRecord, b: MemberRecord) -> MemberRecord:
    """What is known of a node after hearing both; `a` when they say the same."""
    if a.life != b.life:
        return b if b.life > a.life else a
    return b if b.precedence > a.precedence else a


@lru_cache(maxsize=4096)
def is_loopback(host: str) -> bool:
    """Whether it is a loopback address, which means another machine to a node elsewhere."""
    address = ip_of(host)
    return address is not None and address.is_loopback


def parse_record(row: object, sender_host: str | None, *, first_hand: bool = False) -> MemberRecord | None:
    """A record from a decoded message, else None.

    `sender_host` is where the message came from, None where that is unknown:
    then loopback addresses are refused, as they are from other machines.
    With `first_hand` the row is the sender's own, and `sender_host` fills in
    an address that it leaves open.
    """
    return _read(row, _is_near(sender_host), sender_host if first_hand else None)


def parse_records(rows: object, sender_host: str | None, most: int) -> tuple[list[MemberRecord], int]:
    """The records among at most `most` rows, and how many were none or too many."""
    if not isinstance(rows, list | tuple):
        return [], 1
    near = _is_near(sender_host)
    parsed = [_read(row, near, None) for row in rows[:most]]
    records = [record for record in parsed if record is not None]
    return records, len(rows) - len(records)


def parse_sees(value: object) -> int:
    """How many others a sender says that answer it; 0 for nonsense."""
    return value if isinstance(value, int) and _in(value, 0, SEES_MAX) else 0


def _is_near(sender_host: str | None) -> bool:
    return sender_host is not None and is_loopback(sender_host)


def _read(row: object, near: bool, sender_host: str | None) -> MemberRecord | None:
    """`near`: the sender is on this machine; `sender_host`: what stands for an address that is left open."""
    if not isinstance(row, list | tuple) or not FIELDS <= len(row) <= FIELDS_MAX:
        return None
    if sender_host is not None and row[1] not in _UNSPECIFIED:
        sender_host = None
    try:
        packed: bytes = _packer.pack(row)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return _parse(row, near, sender_host)
    # A long one may still be a record: what it has too much of is left out. It is not worth keeping.
    if len(packed) > ROW_BYTES_MAX:
        return _parse(row, near, sender_host)
    return _parse_packed(packed, near, sender_host)


@lru_cache(maxsize=ROWS_KEPT_MAX)
def _parse_packed(packed: bytes, near: bool, sender_host: str | None) -> MemberRecord | None:
    """The same record for the same bytes, so that all who heard of it share it."""
    return _parse(msgpack.unpackb(packed, use_list=False, strict_map_key=False), near, sender_host)


def _parse(row: Sequence[Any], near: bool, sender_host: str | None) -> MemberRecord | None:
    node_id, host, port, incarnation, epoch, state, owns, features, version_min, version_max = row[:FIELDS]
    if parse_id(node_id) is None or not _in(port, 1, PORT_MAX) or type(owns) is not bool:
        return None
    if not (_in(incarnation, 0, INCARNATION_MAX) and _in(epoch, 0, EPOCH_MAX) and _in(state, 0, NodeState.DEAD)):
        return None
    if not (_in(version_min, 1, _VERSION_MAX) and _in(version_max, version_min, _VERSION_MAX)):
        return None
    words, place = _words(features), _place(host, near, sender_host)
    if words is None or place is None:
        return None
    claim = NodeState(state)
    owns = owns if claim >= NodeState.SUSPECTED else claim is NodeState.ACTIVE
    extra = _scalars(row[FIELDS:])
    record = MemberRecord(node_id, place, port, incarnation, epoch, claim, owns, words, version_min, version_max, extra)
    return record if _fits(record) else None


def _fits(record: MemberRecord) -> bool:
    try:
        return packed_bytes(record.row()) <= ROW_BYTES_MAX
    except ValueError:  # text that is not Unicode
        return False


def _in(value: object, low: int, high: int) -> bool:
    return type(value) is int and low <= value <= high


def _words(value: object) -> tuple[str, ...] | None:
    if not isinstance(value, list | tuple) or len(value) > FEATURES_MAX:
        return None
    words = tuple(word for word in value if isinstance(word, str) and 1 <= len(word) <= WORD_CHARS_MAX)
    return words if len(words) == len(value) else None


def _place(host: object, near: bool, sender_host: str | None) -> str | None:
    if not isinstance(host, str):
        return None
    if host in _UNSPECIFIED:
        return sender_host
    known = canonical_host(host)
    return None if known is None or (is_loopback(known) and not near) else known


def _scalars(values: Sequence[object]) -> tuple[Scalar, ...]:
    """What can be passed on on either plane, up to the first that cannot."""
    kept: list[Scalar] = []
    for value in values:
        if not (value is None or isinstance(value, bytes | str | int)):
            break
        kept.append(value)
    return tuple(kept)
