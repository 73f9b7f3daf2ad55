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
from dataclasses import dataclass, field
from typing import Final, Self

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from dhtcrawl.errors import SecretRefused

SECRET_BYTES: Final = 32
RING_MAX: Final = 8  # secrets that are accepted at once; a rotation needs two
_PREFIX: Final = "dhs1-"
_CHECKSUM_BYTES: Final = 3  # 35 bytes are 56 letters of base32, without padding
_NAME_BYTES: Final = 8
_SALT: Final = b"dhtcrawl swarm v1"


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
    """The secrets of a node, at least one: the first is used, all are accepted."""

    secrets: tuple[bytes, ...] = field(repr=False)
    keys: tuple[SwarmKeys, ...]

    @classmethod
    def of(cls, secrets: tuple[bytes, ...]) -> Self:
        return cls(secrets, tuple(map(SwarmKeys.of, secrets)))

    @property
    def used(self) -> SwarmKeys:
        """The keys by which this node seals and signs."""
        return self.keys[0]

    def text(self) -> str:
        """What `parse_ring` reads, a line a secret."""
        return "".join(f"{secret_text(secret)}\n" for secret in self.secrets)


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
    """The secrets of a text, one a line; empty lines and those that begin with `#` are none. `where` it stood.

    Raises:
        SecretRefused: it holds none, too many, one twice, or a line that is none.
    """
    secrets: list[bytes] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
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
    return Ring.of(tuple(secrets))


def _checksum(secret: bytes) -> bytes:
    return hashlib.sha256(b"dhtcrawl secret v1" + secret).digest()[:_CHECKSUM_BYTES]


def _derived(secret: bytes, label: bytes) -> bytes:
    return HKDF(hashes.SHA256(), 32, _SALT, label).derive(secret)
