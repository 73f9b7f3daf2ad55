"""Members of a closed swarm for tests: their keys, and what their connections speak."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from dhtcrawl.closed.secret import Ring
from dhtcrawl.closed.tls import SwarmTls
from dhtcrawl.keyspace import node_id_of

SECRET, OTHER = bytes(range(32)), bytes(range(1, 33))
RING, OTHERS = Ring.of((SECRET,)), Ring.of((OTHER,))


class Member:
    """A node with a key of its own."""

    def __init__(self, directory: Path, number: int) -> None:
        self.directory = directory / f"member-{number}"
        self.directory.mkdir()
        self.key = Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32)
        self.id = node_id_of(self.key.public_key().public_bytes_raw())
        pem = self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        self.key_file = self.directory / "identity.pem"
        self.key_file.write_bytes(pem)

    def tls(self, ring: Ring = RING) -> SwarmTls:
        return SwarmTls.of(ring, self.directory, self.key_file, self.key.public_key())
