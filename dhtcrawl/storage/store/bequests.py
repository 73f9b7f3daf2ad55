"""To whom nodes that left gave their pages of a crawl, as signed by the nodes that left. Pure.

Pages of a node that is gone are fetched again, unless it has an heir: so it matters who says that there is one. Only
the leaving node can, for each node that it asks to take them. All nodes keep what is signed, and nothing else.

Of several bequests of one node the last one counts: they are numbered, by how often the node had started, and within
one run by how many it has signed. So one that is told again changes nothing, and of several nodes that were asked the
last is the heir. One to the node itself says that nobody else has all of its pages: those that were asked refused, or
it came back, and fetches more.

In a record they are a map: the ids of the node that left and of the heir, in hex and with a space between them, name
104 bytes, the number (8, big-endian) before the key and the signature of the node that left. Of two of one name the
greater bytes are the later bequest. The earlier heirs of a node stay: they have pages that it fetched, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from dhtcrawl.node_key import PUBLIC_BYTES, SIGNATURE_BYTES, NodeKey, statement

NUMBER_BYTES: Final = 8
BEQUEST_BYTES: Final = NUMBER_BYTES + PUBLIC_BYTES + SIGNATURE_BYTES
_EACH_START: Final = 2**24  # numbers of one start
_BEQUEST: Final = "dhtcrawl bequest"
_NAME: Final = re.compile(r"[0-9a-f]{40} [0-9a-f]{40}")


class Bequest(NamedTuple):
    """A node says that its pages of a crawl are `heir`'s once it has left."""

    node_id: bytes
    heir: bytes
    number: int
    public: bytes
    signature: bytes

    @property
    def name(self) -> str:
        return name_of(self.node_id, self.heir)

    def packed(self) -> bytes:
        """What the record has below the name."""
        return self.number.to_bytes(NUMBER_BYTES, "big") + self.public + self.signature


def name_of(node_id: bytes, heir: bytes) -> str:
    """What names the bequest of a node to another in a record."""
    return f"{node_id.hex()} {heir.hex()}"


def first_number(incarnation: int) -> int:
    """The number before those of a node that starts for the so-manieth time."""
    return incarnation * _EACH_START


def made(key: NodeKey, crawl_id: bytes, heir: bytes, number: int) -> Bequest:
    """What the node with this key leaves."""
    signature = key.sign(_said(crawl_id, key.node_id, heir, number))
    return Bequest(key.node_id, heir, number, key.public, signature)


def is_signed(bequest: Bequest, crawl_id: bytes, key: NodeKey) -> bool:
    """Whether the node that is named has said so; `key`, any node's, can verify."""
    said = _said(crawl_id, bequest.node_id, bequest.heir, bequest.number)
    return key.verify(bequest.node_id, bequest.public, bequest.signature, said)


def read(name: object, value: object) -> Bequest | None:
    """A bequest from a peer or a store; None where it is none."""
    if type(name) is not str or type(value) is not bytes or len(value) != BEQUEST_BYTES or not _NAME.fullmatch(name):
        return None
    node_id, heir = map(bytes.fromhex, name.split())
    number, proof = int.from_bytes(value[:NUMBER_BYTES], "big"), value[NUMBER_BYTES:]
    return Bequest(node_id, heir, number, proof[:PUBLIC_BYTES], proof[PUBLIC_BYTES:])


def bequests_of(packed: Mapping[str, bytes]) -> Iterator[Bequest]:
    """The bequests of a record."""
    for name, value in packed.items():
        bequest = read(name, value)
        if bequest is not None:
            yield bequest


def last_of(packed: Mapping[str, bytes]) -> dict[str, Bequest]:
    """The bequest that counts of each node, by its id in hex."""
    last = dict[str, Bequest]()
    for bequest in sorted(bequests_of(packed), key=lambda each: (each.number, each.heir)):
        last[bequest.node_id.hex()] = bequest
    return last


def _said(crawl_id: bytes, node_id: bytes, heir: bytes, number: int) -> bytes:
    return statement(_BEQUEST, crawl_id, node_id, heir, number.to_bytes(NUMBER_BYTES, "big"))
