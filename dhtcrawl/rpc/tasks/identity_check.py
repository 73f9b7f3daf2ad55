"""Who is at the other end of one connection: by its certificate, by a signature, or by its word alone. Pure.

In a closed swarm TLS has proven it before the first frame. In an open one each end says its public
key and a nonce in HELLO, and then signs, in PROOF,

    "dhtcrawl hello", its role, its id, the other's id, the other's nonce, its own nonce

so that a signature is good for one connection, one direction, and one pair of nodes. It does not keep out who
stands between two nodes and passes their bytes on: what follows is not signed. That takes a secret.
"""

from __future__ import annotations

from typing import Final

from dhtcrawl.node_key import NONCE_BYTES, PUBLIC_BYTES, NodeKey, statement
from dhtcrawl.rpc.tasks.signals import Hello, Proof

_LABEL: Final = "dhtcrawl hello"
_DIALED, _ACCEPTED = b"dialed", b"accepted"


class IdentityCheck:
    """One end's part of it. `dialed`: this end made the connection."""

    def __init__(self, key: NodeKey | None = None, *, dialed: bool = False) -> None:
        """With `key` both ends prove themselves by signatures; without one TLS does it, or nothing."""
        self.dialed = dialed
        self.certified: bytes | None = None  # the node that TLS has found
        self.claimed: Hello | None = None  # what the other end has said of itself
        self._key = key

    @property
    def signs(self) -> bool:
        """Whether both ends prove themselves by signatures."""
        return self._key is not None

    def misfit(self, theirs: Hello) -> str:
        """Why the other end cannot be who it says that it is; empty where it may be."""
        if self.certified not in (None, theirs.node_id):
            return "the key of its certificate is another node's"
        if self._key is not None and (len(theirs.key) != PUBLIC_BYTES or len(theirs.nonce) != NONCE_BYTES):
            return "it does not prove which node it is; has it a secret, or another version?"
        return ""

    def proof(self, ours: Hello, theirs: Hello) -> Proof:
        """What we say to prove ourselves."""
        assert self._key is not None, "only where `signs`"
        role = _DIALED if self.dialed else _ACCEPTED
        return Proof(self._key.sign(_said(role, ours, theirs)))

    def holds(self, ours: Hello, proof: Proof) -> bool:
        """Whether the other end is who it said."""
        theirs = self.claimed
        assert self._key is not None, "only where `signs`"
        assert theirs is not None, "a proof comes after HELLO"
        role = _ACCEPTED if self.dialed else _DIALED
        return self._key.verify(theirs.node_id, theirs.key, proof.signature, _said(role, theirs, ours))


def _said(role: bytes, signer: Hello, other: Hello) -> bytes:
    return statement(_LABEL, role, signer.node_id, other.node_id, other.nonce, signer.nonce)
