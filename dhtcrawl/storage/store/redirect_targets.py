"""Where the seeds of a crawl redirect to, as signed by the nodes that fetched them. Pure.

A target widens the scope, so it matters who says it: each carries the URL that redirected and its fetcher's
signature. All nodes keep all that are signed; `dhtcrawl.swarm.lifecycle.redirect_trust` says which a node believes.

In a record they are a map: the URL that redirected, a space and the fetcher's id in hex name the packed target, key and
signature. So each node has one word on each URL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple, cast

import msgpack

from dhtcrawl.keyspace import KEY_BYTES
from dhtcrawl.node_key import PUBLIC_BYTES, SIGNATURE_BYTES, NodeKey, statement

_REDIRECT: Final = "dhtcrawl seed redirect"


class RedirectTarget(NamedTuple):
    """A node says that `source`, which it fetched, redirects to `url`."""

    source: str
    url: str
    node_id: bytes
    public: bytes
    signature: bytes

    @property
    def name(self) -> str:
        return f"{self.source} {self.node_id.hex()}"

    def packed(self) -> bytes:
        """What the record has below the name."""
        return cast(bytes, msgpack.packb([self.url, self.public, self.signature]))


def made(key: NodeKey, crawl_id: bytes, source: str, url: str) -> RedirectTarget:
    """The word of the node with this key."""
    return RedirectTarget(source, url, key.node_id, key.public, key.sign(_said(crawl_id, source, url)))


def is_signed(target: RedirectTarget, crawl_id: bytes, key: NodeKey) -> bool:
    """Whether the node that is named has said so; `key`, any node's, can verify."""
    return key.verify(target.node_id, target.public, target.signature, _said(crawl_id, target.source, target.url))


def read(name: object, value: object, is_url: Callable[[object], bool]) -> RedirectTarget | None:
    """A target from a peer or a store; None where it is none."""
    if type(name) is not str or type(value) is not bytes:
        return None
    source, _, node = name.rpartition(" ")
    try:
        node_id, parts = bytes.fromhex(node), msgpack.unpackb(value)
    except (ValueError, msgpack.UnpackException):
        return None
    if node_id.hex() != node or len(node_id) != KEY_BYTES or type(parts) is not list or len(parts) != 3:
        return None
    url, public, signature = parts
    if not (
        is_url(source) and is_url(url) and _is_bytes(public, PUBLIC_BYTES) and _is_bytes(signature, SIGNATURE_BYTES)
    ):
        return None
    return RedirectTarget(source, url, node_id, public, signature)


def targets_of(packed: Mapping[str, bytes]) -> Iterator[RedirectTarget]:
    """The targets of a record, which were read before."""
    for name, value in packed.items():
        target = read(name, value, lambda url: type(url) is str)
        if target is not None:
            yield target


def _is_bytes(value: object, length: int) -> bool:
    return type(value) is bytes and len(value) == length


def _said(crawl_id: bytes, source: str, url: str) -> bytes:
    return statement(_REDIRECT, crawl_id, source.encode(), url.encode())
