"""Keys of simulated nodes: what a node has signed, another knows, and it costs a hash.

Nothing here is secret, since all nodes are in one process: a forger in a simulation signs with a key of
its own, and is found as one that signs with Ed25519 would be.
"""

from __future__ import annotations

from hashlib import blake2b
from itertools import count

from dhtcrawl.node_key import NONCE_BYTES, PUBLIC_BYTES, SIGNATURE_BYTES


class SimKey:
    """The key of the node with an id, in one of its lives."""

    def __init__(self, node_id: bytes, life: int = 1) -> None:
        self.node_id = node_id
        self.public = _public(node_id)
        self._life = life
        self._nonces = count(1)

    def sign(self, said: bytes) -> bytes:
        return _signature(self.public, said)

    def verify(self, node_id: bytes, public: bytes, signature: bytes, said: bytes) -> bool:
        return public == _public(node_id) and signature == _signature(public, said)

    def nonce(self) -> bytes:
        return blake2b(b"%d %d" % (self._life, next(self._nonces)), key=self.node_id, digest_size=NONCE_BYTES).digest()


def _public(node_id: bytes) -> bytes:
    return blake2b(node_id, digest_size=PUBLIC_BYTES).digest()


def _signature(public: bytes, said: bytes) -> bytes:
    return blake2b(said, key=public, digest_size=SIGNATURE_BYTES).digest()
