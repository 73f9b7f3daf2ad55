"""Who a node is: an Ed25519 key on disk; the node id is the digest of its public half.

    node id = first 160 bits of SHA-256(raw public key)

The key is made at the first start, in the data directory, readable by its
owner only. It is PKCS#8 PEM, which the usual tools can show.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple, Self

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from dhtcrawl.errors import IdentityError, StorageFull
from dhtcrawl.keyspace import node_id_of
from dhtcrawl.node_key import NONCE_BYTES
from dhtcrawl.storage.store.engine import storage_error
from dhtcrawl.storage.store.files import write_private

FILE_NAME = "identity.pem"
_PEM: Final = b"-----BEGIN PRIVATE KEY-----\n%b\n-----END PRIVATE KEY-----\n"
_PKCS8: Final = bytes.fromhex("302e020100300506032b657004220420")  # RFC 8410, section 10.3; 32 octets of key follow


class NewKey(NamedTuple):
    """A key that no node has yet."""

    node_id: bytes
    pem: bytes


class NodeIdentity:
    """A node's key, as `dhtcrawl.node_key.NodeKey` wants it."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self.public = private.public_key().public_bytes_raw()
        self.node_id = node_id_of(self.public)
        self._private = private

    @classmethod
    def drawn(cls) -> Self:
        """A key for once."""
        return cls(Ed25519PrivateKey.generate())

    def sign(self, said: bytes) -> bytes:
        return self._private.sign(said)

    def verify(self, node_id: bytes, public: bytes, signature: bytes, said: bytes) -> bool:
        if node_id_of(public) != node_id:
            return False
        try:
            Ed25519PublicKey.from_public_bytes(public).verify(signature, said)
        except (InvalidSignature, ValueError):
            return False
        return True

    def nonce(self) -> bytes:
        return secrets.token_bytes(NONCE_BYTES)


def load_or_create(data_dir: Path) -> bytes:
    """The node id of the key in `data_dir`, which is made where there is none.

    Raises:
        IdentityError: the key is unreadable, no Ed25519 key, or open to others.
        StorageFull: no space for a new one.
    """
    return node_key(data_dir).node_id


def node_key(data_dir: Path) -> NodeIdentity:
    """The key in `data_dir`, which is made where there is none.

    Raises:
        IdentityError, StorageFull: what `load_or_create` raises.
    """
    return NodeIdentity(_load(data_dir))


def public_key(data_dir: Path) -> Ed25519PublicKey:
    """The public half of the key in `data_dir`, which is made where there is none.

    Raises:
        IdentityError, StorageFull: what `load_or_create` raises.
    """
    return _load(data_dir).public_key()


def _load(data_dir: Path) -> Ed25519PrivateKey:
    path = data_dir / FILE_NAME
    try:
        if not path.exists():
            write_private(path, next(new_keys()).pem)
        if path.stat().st_mode & 0o077:
            raise IdentityError(f"{path} can be read by others; run: chmod 600 {path}")
        pem = path.read_bytes()
    except OSError as error:
        raise _failure(path, error) from error
    if (own := _own_key(pem)) is not None:
        return own
    from cryptography.hazmat.primitives import serialization  # 9 ms, for SSH's keys mostly; ours need none of it

    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise IdentityError(f"{path} is no private key; restore it, or remove it to get a new node id") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise IdentityError(f"{path} is no Ed25519 key; restore it, or remove it to get a new node id")
    return key


def new_keys() -> Iterator[NewKey]:
    """Keys without an end, each made as it is asked for, in an eighth of a millisecond."""
    while True:
        key = Ed25519PrivateKey.generate()
        pem = _PEM % base64.b64encode(_PKCS8 + key.private_bytes_raw())
        yield NewKey(node_id_of(key.public_key().public_bytes_raw()), pem)


def _own_key(pem: bytes) -> Ed25519PrivateKey | None:
    """The key, where it is written as `new_keys` writes it: always, but for keys that other tools have made."""
    head, tail = _PEM.split(b"%b")
    try:
        der = base64.b64decode(pem.removeprefix(head).removesuffix(tail), validate=True)
    except binascii.Error:
        return None
    ours = pem == _PEM % base64.b64encode(der) and der.startswith(_PKCS8) and len(der) == len(_PKCS8) + 32
    return Ed25519PrivateKey.from_private_bytes(der[len(_PKCS8) :]) if ours else None


def has_key(data_dir: Path) -> bool:
    """Whether a node has been here before."""
    return (data_dir / FILE_NAME).exists()


def keep(data_dir: Path, pem: bytes) -> None:
    """Make this the key in `data_dir`, which has none yet.

    Raises:
        IdentityError, StorageFull: it cannot be written.
    """
    path = data_dir / FILE_NAME
    try:
        write_private(path, pem)
    except OSError as error:
        raise _failure(path, error) from error


def _failure(path: Path, error: OSError) -> IdentityError | StorageFull:
    failure = storage_error(error, f"cannot use {path}")
    return failure if isinstance(failure, StorageFull) else IdentityError(str(failure))
