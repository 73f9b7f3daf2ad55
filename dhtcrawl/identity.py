"""Who a node is: an Ed25519 key on disk; the node id is the digest of its public half.

    node id = first 160 bits of SHA-256(raw public key)

The key is made at the first start, in the data directory, readable by its
owner only. It is PKCS#8 PEM, which the usual tools can show.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from dhtcrawl.errors import IdentityError, StorageFull
from dhtcrawl.keyspace import node_id_of
from dhtcrawl.node_key import NONCE_BYTES
from dhtcrawl.storage.store.engine import storage_error
from dhtcrawl.storage.store.files import write_private

FILE_NAME = "identity.pem"


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
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise IdentityError(f"{path} is no private key; restore it, or remove it to get a new node id") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise IdentityError(f"{path} is no Ed25519 key; restore it, or remove it to get a new node id")
    return key


def new_keys() -> Iterator[NewKey]:
    """Keys without an end, each made as it is asked for, in an eighth of a millisecond."""
    encoding = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    while True:
        key = Ed25519PrivateKey.generate()
        yield NewKey(node_id_of(key.public_key().public_bytes_raw()), key.private_bytes(*encoding))


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
