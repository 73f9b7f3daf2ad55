"""What a node says of itself it signs, and what others say of it counts as far as it has signed it. Pure.

A row carries, as the first field behind the tenth, its node's public key and a signature over

    id, host, port, incarnation, epoch, what it was, owns, features, versions, and the fields behind the proof

*What it was* is JOINING, ACTIVE or LEFT: these a node says itself. SUSPECTED and DEAD are others' words
about it, so a row in such a state is signed as the node was before. Nobody but the node raises its numbers, and a node
that nobody has the key of is none. A row that is new is checked once, one that says the same in another state is not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple, cast

import msgpack

from dhtcrawl.node_key import PUBLIC_BYTES, SIGNATURE_BYTES, NodeKey, statement
from dhtcrawl.rpc.contact import canonical_host
from dhtcrawl.rpc.membership.hello import MemberRecord, NodeState

PROOF_BYTES: Final = PUBLIC_BYTES + SIGNATURE_BYTES
# So many rows of one message that their nodes have not signed, and the rest of it is not looked at.
FORGED_A_MESSAGE_MAX: Final = 4
_LABEL: Final = "dhtcrawl member"
_OPEN: Final = b"\0"  # behind a proof: the node did not know its own host, which receivers fill in


class OwnNode(NamedTuple):
    """What this node says of itself as it starts, and the key to say it with."""

    record: MemberRecord
    key: NodeKey


class RowProofs:
    """Signs a node's own rows and checks those of others.

    `unsigned` counts rows that do not hold, and `forged` is the last of them; `full` and `crowded` count newcomers for
    whom there was no place. `double` is what another process has said under this node's key.
    """

    def __init__(self, key: NodeKey) -> None:
        self.unsigned = 0
        self.full = 0
        self.crowded = 0
        self.forged: MemberRecord | None = None
        self.double: MemberRecord | None = None
        self._key = key

    def signed(self, record: MemberRecord) -> MemberRecord:
        """Our own record with its proof."""
        behind = record.extra[1:] if proof_of(record) else record.extra
        bare = replace(record, extra=(bytes(PROOF_BYTES) + (b"" if record.is_placed else _OPEN), *behind))
        proof = self._key.public + self._key.sign(_said(bare)) + (b"" if record.is_placed else _OPEN)
        return replace(record, extra=(proof, *behind))

    def holds(self, record: MemberRecord, known: MemberRecord | None) -> bool:
        """Whether its node has said this, its state aside where that is others' word; what is `known` has held."""
        proof, said = proof_of(record), _said(record)
        if known is not None and proof and proof == proof_of(known) and said == _said(known):
            return True
        public, signature = proof[:PUBLIC_BYTES], proof[PUBLIC_BYTES:PROOF_BYTES]
        if proof and self._key.verify(record.id, public, signature, said):
            return True
        self.unsigned += 1
        self.forged = record
        return False

    def look_for_double(self, record: MemberRecord, own: MemberRecord) -> None:
        """Note a row about this node by which it is elsewhere, and no earlier than we are here: we have not said it."""
        places = own.is_placed and not proof_of(record)[PROOF_BYTES:] and record.address != own.address
        if self.double is None and places and record.life >= own.life and not record.state.is_gone:
            self.double = record if self.holds(record, None) else None


def proof_of(record: MemberRecord) -> bytes:
    """The proof that a row carries; empty where it carries none."""
    first = record.extra[0] if record.extra else None
    if not isinstance(first, bytes) or first[PROOF_BYTES:] not in (b"", _OPEN) or len(first) < PROOF_BYTES:
        return b""
    return first


def _said(record: MemberRecord) -> bytes:
    """What a node has signed, as far as a row says it."""
    was = record.state
    if was in (NodeState.SUSPECTED, NodeState.DEAD):
        was = NodeState.ACTIVE if record.owns else NodeState.JOINING
    is_open = proof_of(record)[PROOF_BYTES:] == _OPEN
    host = "" if is_open else canonical_host(record.host) or record.host
    said = (
        record.id, host, record.port, record.incarnation, record.epoch, int(was), record.owns, list(record.features),
        record.version_min, record.version_max, *record.extra[1:],
    )  # fmt: skip
    return statement(_LABEL, cast(bytes, msgpack.packb(said)))
