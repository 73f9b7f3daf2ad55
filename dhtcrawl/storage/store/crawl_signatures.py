"""Who began a crawl, and who changed what may change of it, as signed by the nodes that did. Pure.

    author   the node where the crawl was submitted has signed its id. The nonce is a digest of that node's id and a
             salt, so the crawl's id commits to its author, and nobody can put another one in its place
    maker    a node has signed one version of the state, or of the settings that were changed

Nothing here says whether the maker may make that change: `dhtcrawl.swarm.lifecycle.crawl_authority` does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, cast

import msgpack

from dhtcrawl.keyspace import KEY_BYTES
from dhtcrawl.node_key import PUBLIC_BYTES, SIGNATURE_BYTES, NodeKey, statement
from dhtcrawl.spec import NONCE_BYTES

_AUTHOR: Final = "dhtcrawl crawl author"
_CRAWL: Final = "dhtcrawl crawl"
_CHANGE: Final = "dhtcrawl crawl change"
STATE, SETTINGS = b"state", b"settings"  # what a change is of


class CrawlAuthor(NamedTuple):
    """The node that a crawl was submitted to."""

    node_id: bytes
    public: bytes
    salt: bytes
    signature: bytes


class Maker(NamedTuple):
    """The node that made a change, and its signature."""

    node_id: bytes
    public: bytes
    signature: bytes


def nonce_of(node_id: bytes, salt: bytes) -> bytes:
    """The nonce of a crawl that this node begins; another for each salt of `NONCE_BYTES`."""
    return hashlib.sha256(statement(_AUTHOR, node_id, salt)).digest()[:NONCE_BYTES]


def author(key: NodeKey, salt: bytes, crawl_id: bytes) -> CrawlAuthor:
    """The node with this key as the author of a crawl whose nonce is `nonce_of` it and the salt."""
    return CrawlAuthor(key.node_id, key.public, salt, key.sign(statement(_CRAWL, crawl_id)))


def is_author(author: CrawlAuthor, nonce: bytes, crawl_id: bytes, key: NodeKey) -> bool:
    """Whether that node has begun the crawl; `key`, any node's, can verify."""
    if nonce_of(author.node_id, author.salt) != nonce:
        return False
    return key.verify(author.node_id, author.public, author.signature, statement(_CRAWL, crawl_id))


def made_by(key: NodeKey, crawl_id: bytes, what: bytes, said: Sequence[Any]) -> Maker:
    """The signature of the node with this key on a change; `said` begins with its version."""
    return Maker(key.node_id, key.public, key.sign(_change(crawl_id, what, said)))


def has_made(maker: Maker, crawl_id: bytes, what: bytes, said: Sequence[Any], key: NodeKey) -> bool:
    """Whether that node has signed this change; `key`, any node's, can verify."""
    return key.verify(maker.node_id, maker.public, maker.signature, _change(crawl_id, what, said))


def read_author(value: object) -> CrawlAuthor | None:
    """An author from a peer or a store; None where it is none."""
    parts = _parts(value, (KEY_BYTES, PUBLIC_BYTES, NONCE_BYTES, SIGNATURE_BYTES))
    return None if parts is None else CrawlAuthor(*parts)


def read_maker(value: object) -> Maker | None:
    """The maker of a change, from a peer or a store; None where it is none."""
    parts = _parts(value, (KEY_BYTES, PUBLIC_BYTES, SIGNATURE_BYTES))
    return None if parts is None else Maker(*parts)


def _parts(value: object, lengths: tuple[int, ...]) -> list[bytes] | None:
    if type(value) is not list or len(value) != len(lengths):
        return None
    sound = all(type(part) is bytes and len(part) == length for part, length in zip(value, lengths, strict=True))
    return value if sound else None


def _change(crawl_id: bytes, what: bytes, said: Sequence[Any]) -> bytes:
    return statement(_CHANGE, crawl_id, what, cast(bytes, msgpack.packb(said)))
