"""What a node says with its key: that it is who it says, and what it says of itself. Pure.

A node's id is the digest of its public key (`dhtcrawl.identity`), so a signature names its node
without anybody who vouches for it. `statement` is what is signed: a label that nothing else
is signed under, and parts that cannot be read as others.
"""

from __future__ import annotations

from typing import Final, Protocol

PUBLIC_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
NONCE_BYTES: Final = 16


class NodeKey(Protocol):
    """A node's own key, and what it takes to check another's."""

    @property
    def node_id(self) -> bytes:
        """The digest of `public`."""

    @property
    def public(self) -> bytes:
        """The half that others may see, `PUBLIC_BYTES` long."""

    def sign(self, said: bytes) -> bytes:
        """`SIGNATURE_BYTES` that only this node can make of what is said."""

    def verify(self, node_id: bytes, public: bytes, signature: bytes, said: bytes) -> bool:
        """Whether the node with this id, any node, has signed this; False for keys and signatures that are none."""

    def nonce(self) -> bytes:
        """`NONCE_BYTES` that were never used and cannot be guessed."""


def statement(label: str, *parts: bytes) -> bytes:
    """What is signed; each part has its length before it."""
    return b"".join([label.encode(), b"\0", *(len(part).to_bytes(4, "big") + part for part in parts)])
