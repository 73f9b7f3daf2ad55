"""Frames about the connection itself: the handshake, credit, signs of life, the end.

HELLO and GOODBYE are read by every version, so their fields only grow: two
nodes that share no version still understand why they part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Self

from dhtcrawl.keyspace import INCARNATION_MAX, KEY_BYTES
from dhtcrawl.node_key import NONCE_BYTES, PUBLIC_BYTES, SIGNATURE_BYTES
from dhtcrawl.rpc.tasks.frame import FRAME_BYTES_MAX, Kind, Malformed, pack
from dhtcrawl.rpc.tasks.messages import REQUEST_ID_MAX, Lane, is_id, is_int, need
from dhtcrawl.rpc.tasks.rows import TEXT_CHARS_MAX

MAGIC = "dhtcrawl"
VERSION = 6
VERSION_MIN = 6  # the lowest that is spoken, too: that of the release before (docs/development.md, "Releases")
FEATURES_MAX = 64
# What is owed may add up to a quarter of the longest frame before it is given back, and that frame still fits.
WINDOW_BYTES = FRAME_BYTES_MAX + FRAME_BYTES_MAX // 4
WORD_CHARS_MAX = 32
LANES = len(Lane)


class Why(StrEnum):
    """Why a connection ends: what GOODBYE says, and what a failed request is told."""

    LEAVING = "leaving"  # the node stops
    IDLE = "idle"  # not used for a while, or the least used of too many
    DUPLICATE = "duplicate"  # both sides connected at once; the other connection stays
    VERSION = "version"  # no version that both speak
    SELF = "self"  # a node reached itself
    GARBAGE = "garbage"  # bytes that are no frame, or a frame out of place
    CREDIT = "credit"  # more was sent than was allowed
    TIMEOUT = "timeout"  # no handshake, no sign of life, or no answers
    FULL = "full"  # no connection is to spare
    IDENTITY = "identity"  # HELLO names another node than that whose key the other end has
    PAUSED = "paused"  # the address has broken the protocol, and is not let in for a while


@dataclass(frozen=True, slots=True)
class Hello:
    """Says which node speaks. `port` is where its task plane listens on the address it connects from, 0 for nowhere.

    `windows` is how many bytes of requests of each lane may be unanswered. `key` is the node's public key, and `nonce`
    is new for each connection; both are empty where TLS proves which node it is.
    """

    kind: ClassVar[Kind] = Kind.HELLO
    node_id: bytes
    incarnation: int
    state: str  # "joining", "active" or "leaving"; others may come
    features: tuple[str, ...] = ()
    port: int = 0
    version_min: int = VERSION_MIN
    version_max: int = VERSION
    windows: tuple[int, ...] = (WINDOW_BYTES,) * LANES
    key: bytes = b""
    nonce: bytes = b""

    def __post_init__(self) -> None:
        need(is_id(self.node_id, KEY_BYTES), "node_id")
        need(is_int(self.incarnation, 0, INCARNATION_MAX), "incarnation")
        need(_is_word(self.state), "state")
        need(type(self.features) is tuple and len(self.features) <= FEATURES_MAX, "features")
        need(all(map(_is_word, self.features)), "features")
        need(is_int(self.port, 0, 65_535), "port")
        need(is_int(self.version_min, 1, 65_535), "version_min")
        need(is_int(self.version_max, self.version_min, 65_535), "version_max")
        # A window that the longest frame does not fit into would stop a lane for good.
        need(type(self.windows) is tuple and len(self.windows) >= LANES, "windows")
        need(all(is_int(window, FRAME_BYTES_MAX, 2**32 - 1) for window in self.windows), "windows")
        need(self.key == b"" or is_id(self.key, PUBLIC_BYTES), "key")
        need(self.nonce == b"" or is_id(self.nonce, NONCE_BYTES), "nonce")

    def body(self) -> dict[str, Any]:
        return {"magic": MAGIC, **{name: getattr(self, name) for name in self.__slots__}}

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> Self:
        need(fields.get("magic") == MAGIC, "magic")
        return cls(fields["node_id"], fields["incarnation"], fields["state"], fields["features"], fields["port"],
                   fields["version_min"], fields["version_max"], fields["windows"],
                   fields.get("key", b""), fields.get("nonce", b""))  # fmt: skip

    def version_with(self, other: Hello) -> int | None:
        """The highest version that both speak."""
        version = min(self.version_max, other.version_max)
        return version if version >= max(self.version_min, other.version_min) else None


@dataclass(frozen=True, slots=True)
class Goodbye:
    """No request will follow; `reason` is a `Why`, or what a later version made of it."""

    kind: ClassVar[Kind] = Kind.GOODBYE
    reason: str
    detail: str = ""

    def __post_init__(self) -> None:
        need(_is_word(self.reason), "reason")
        need(type(self.detail) is str and len(self.detail) <= TEXT_CHARS_MAX, "detail")

    def body(self) -> dict[str, Any]:
        return {"reason": self.reason, "detail": self.detail}

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> Self:
        return cls(fields["reason"], fields.get("detail", ""))


@dataclass(frozen=True, slots=True)
class Credit:
    """Gives back credit: so many more bytes may be sent, lane by lane."""

    kind: ClassVar[Kind] = Kind.CREDIT
    lanes: tuple[int, ...]

    def __post_init__(self) -> None:
        need(type(self.lanes) is tuple and len(self.lanes) >= LANES, "lanes")
        need(set(map(type, self.lanes)) == {int} and 0 <= min(self.lanes) <= max(self.lanes) < 2**32, "lanes")

    def body(self) -> dict[str, Any]:
        return {"lanes": self.lanes}

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> Self:
        return cls(fields["lanes"])


@dataclass(frozen=True, slots=True)
class Ping:
    """Are you there?"""

    kind: ClassVar[Kind] = Kind.PING
    number: int

    def __post_init__(self) -> None:
        need(is_int(self.number, 0, REQUEST_ID_MAX), "number")

    def body(self) -> dict[str, Any]:
        return {"number": self.number}

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> Self:
        return cls(fields["number"])


@dataclass(frozen=True, slots=True)
class Pong(Ping):
    """Yes."""

    kind: ClassVar[Kind] = Kind.PONG


@dataclass(frozen=True, slots=True)
class Proof:
    """I am the node that I said: a signature (`dhtcrawl.rpc.tasks.identity_check`)."""

    kind: ClassVar[Kind] = Kind.PROOF
    signature: bytes

    def __post_init__(self) -> None:
        need(is_id(self.signature, SIGNATURE_BYTES), "signature")

    def body(self) -> dict[str, Any]:
        return {"signature": self.signature}

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> Self:
        return cls(fields["signature"])


Signal = Hello | Goodbye | Credit | Ping | Pong | Proof
SIGNALS: dict[int, type[Signal]] = {signal.kind: signal for signal in (Hello, Goodbye, Credit, Ping, Pong, Proof)}


def encode_signal(signal: Signal) -> bytes:
    """Its frame."""
    return pack(signal.kind, signal.body())


def parse_signal(kind: int, fields: Mapping[str, Any]) -> Signal | None:
    """The signal; None for one that a later version may send.

    Raises:
        Malformed: it is not what the protocol allows.
    """
    known = SIGNALS.get(kind)
    if known is None:
        return None
    try:
        return known.parse(fields)
    except KeyError as error:
        raise Malformed(f"{known.__name__}: {error} is missing") from error


def _is_word(value: object) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= WORD_CHARS_MAX
