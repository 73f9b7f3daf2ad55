"""A swarm's secret as text, and the keys that are derived from it. Pure: chance comes from the caller.

    dhs1-  base32 of  secret (32 bytes) ‖ checksum (3 bytes)

The checksum tells a slip of the pen from another secret. Nothing is ever done
with the secret itself; each use has a key of its own (RFC 5869):

    HKDF-SHA256(secret, salt "dhtcrawl swarm v1", info LABEL)

    ca      the seed of the Ed25519 key that signs the members' certificates
    dgram   what the keys of datagrams are derived from
    name    what a secret may be called in public
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final, Self

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from dhtcrawl.errors import SecretRefused

SECRET_BYTES: Final = 32
RING_MAX: Final = 8  # secrets that are accepted at once; a rotation needs two
BANNED_MAX: Final = 1024
_PREFIX: Final = "dhs1-"
_CHECKSUM_BYTES: Final = 3  # 35 bytes are 56 letters of base32, without padding
_NAME_BYTES: Final = 8
_SALT: Final = b"dhtcrawl swarm v1"
_BAN: Final = "ban"
_BANNED: Final = re.compile(rf"{_BAN}\s+([0-9a-fA-F]{{40}})")


@dataclass(frozen=True, slots=True)
class SwarmKeys:
    """What is derived from one secret. Keys do not show in its repr; `name` may be shown to anybody."""

    name: str  # 16 hex digits
    key_id: int  # the first byte of the name, by which a datagram says its secret
    ca_seed: bytes = field(repr=False)
    datagram_key: bytes = field(repr=False)

    @classmethod
    def of(cls, secret: bytes) -> Self:
        name = _derived(secret, b"name")[:_NAME_BYTES]
        return cls(name.hex(), name[0], _derived(secret, b"ca"), _derived(secret, b"dgram"))


@dataclass(frozen=True, slots=True)
class Ring:
    """The secrets of a node, at least one: the first is used, all are accepted, but from the nodes that are banned."""

    secrets: tuple[bytes, ...] = field(repr=False)
    keys: tuple[SwarmKeys, ...]
    banned: frozenset[bytes] = frozenset()  # node ids

    @classmethod
    def of(cls, secrets: tuple[bytes, ...], banned: Collection[bytes] = ()) -> Self:
        return cls(secrets, tuple(map(SwarmKeys.of, secrets)), frozenset(banned))

    @property
    def used(self) -> SwarmKeys:
        """The keys by which this node seals and signs."""
        return self.keys[0]

    def text(self) -> str:
        """What `parse_ring` reads, a line a secret and a line a banned node."""
        lines = [*map(secret_text, self.secrets), *(f"{_BAN} {node.hex()}" for node in sorted(self.banned))]
        return "".join(f"{line}\n" for line in lines)


def secret_text(secret: bytes) -> str:
    """A secret as people handle it: 61 letters and digits, one word."""
    return _PREFIX + base64.b32encode(secret + _checksum(secret)).decode().lower()


def parse_secret(text: str) -> bytes:
    """The secret of a text.

    Raises:
        ValueError: it is none; the message does not repeat it.
    """
    word = text.strip().lower()
    if not word.startswith(_PREFIX):
        raise ValueError(f"does not begin with {_PREFIX}")
    try:
        data = base64.b32decode(word.removeprefix(_PREFIX), casefold=True)
    except ValueError:
        raise ValueError("has letters that no secret has, or too few or too many") from None
    secret, checksum = data[:SECRET_BYTES], data[SECRET_BYTES:]
    if len(data) != SECRET_BYTES + _CHECKSUM_BYTES:
        raise ValueError("is too short or too long")
    if checksum != _checksum(secret):
        raise ValueError("has a wrong letter: its checksum does not fit")
    return secret


def parse_ring(text: str, where: str) -> Ring:
    """The secrets of a text and the nodes that it bans, one a line; empty lines and those with `#` are comments.

    `where` says where it stood.

    Raises:
        SecretRefused: it holds no secret, too many, one twice, or a line that is none of these.
    """
    secrets: list[bytes] = []
    banned: set[bytes] = set()
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        ban = _BANNED.fullmatch(line.strip())
        if ban is not None:
            banned.add(bytes.fromhex(ban[1]))
            continue
        try:
            secret = parse_secret(line)
        except ValueError as error:
            raise SecretRefused(f"{where}: line {number} {error}; write it as 'dhtcrawl secret new' made it") from None
        if secret in secrets:
            raise SecretRefused(f"{where}: the secret of line {number} stands there twice; remove one")
        secrets.append(secret)
    if not secrets:
        raise SecretRefused(f"{where}: there is no secret; make one with 'dhtcrawl secret new FILE'")
    if len(secrets) > RING_MAX:
        raise SecretRefused(f"{where}: {len(secrets)} secrets; at most {RING_MAX} are accepted at once")
    if len(banned) > BANNED_MAX:
        raise SecretRefused(
            f"{where}: {len(banned)} banned nodes; at most {BANNED_MAX}: put another secret in its place"
        )
    return Ring.of(tuple(secrets), banned)


def _checksum(secret: bytes) -> bytes:
    return hashlib.sha256(b"dhtcrawl secret v1" + secret).digest()[:_CHECKSUM_BYTES]


def _derived(secret: bytes, label: bytes) -> bytes:
    return HKDF(hashes.SHA256(), 32, _SALT, label).derive(secret)
