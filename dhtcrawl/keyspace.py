"""160-bit keys and the XOR metric (Maymounkov & Mazières 2002, section 2.1).

A role belongs to the member that is XOR-closest to its key:

    owner of a URL         SHA1(canonical url), or the host's key with `--key host`; with `--key search`, for a page
                           of results, SHA1("search:" + engine + NUL + site)
    gatekeeper of a host   SHA1("host:" + host)
    coordinator            SHA1("crawl:" + crawl id)

SHA-1 spreads keys here; nothing relies on it being hard to collide, since a
record carries its URL and the URL is compared where it matters.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Literal, NamedTuple

KEY_BYTES = 20
CRAWL_ID_BYTES = 16
# How often a node may have started, as far as others take its word. The orders of its tasks begin at this number times
# 2^40 and are stored as 64 bits; it is 130 starts a day for 88 years.
INCARNATION_MAX = 2**22 - 1

KeyMode = Literal["url", "host", "search"]


def _sha1(data: bytes) -> bytes:
    return hashlib.sha1(data, usedforsecurity=False).digest()


def url_key(url: str) -> bytes:
    """The 20-byte key of a canonical URL."""
    return _sha1(url.encode())


def url_keys(urls: Iterable[bytes]) -> list[bytes]:
    """The keys of several URLs, which are encoded already."""
    return [hashlib.sha1(url, usedforsecurity=False).digest() for url in urls]


@lru_cache(maxsize=65_536)
def host_key(host: str) -> bytes:
    """The 20-byte key of `hostname[:non-default port]`."""
    return _sha1(b"host:" + host.encode())


def search_key(engine: str, site: str) -> bytes:
    """The 20-byte key of what a task template asks of `engine` about `site`; an engine's name has no NUL."""
    return _sha1(b"search:" + engine.encode() + b"\0" + site.encode())


def crawl_key(crawl_id: bytes) -> bytes:
    """The 20-byte key whose closest node coordinates the crawl."""
    return _sha1(b"crawl:" + crawl_id)


def node_id_of(public_key: bytes) -> bytes:
    """The first 160 bits of SHA-256 over a raw Ed25519 public key."""
    return hashlib.sha256(public_key).digest()[:KEY_BYTES]


def distance(a: bytes, b: bytes) -> int:
    """XOR distance of two 20-byte keys."""
    return int.from_bytes(a, "big") ^ int.from_bytes(b, "big")


def placement(task_key: bytes) -> bytes:
    """The 20 bytes of a task key that decide who owns it.

    A task key is the URL's key (20 bytes), or with `--key host` the host's
    key followed by the URL's (40 bytes), so that a host's tasks lie together
    in the key space, on one node, and side by side in its store. With `--key
    search` the search's key is followed by the URL's, and where a page is no
    page of results, the URL's by itself.
    """
    return task_key[:KEY_BYTES]


class TaskKeys(NamedTuple):
    """How the URLs of a crawl become task keys."""

    mode: KeyMode = "url"
    # The first 20 bytes of some keys, by URL and host; None of the others.
    place_of: Callable[[str, str], bytes | None] | None = None

    @property
    def width(self) -> int:
        """How long they are, in bytes."""
        return KEY_BYTES if self.mode == "url" else 2 * KEY_BYTES

    def of(self, url: str, host: str) -> bytes:
        """The task key of a canonical URL on `host`."""
        own = url_key(url)
        return own if self.mode == "url" else (self._place(url, host) or own) + own

    def fits(self, key: bytes, url: str, host: str) -> bool:
        """Whether `key` is the one of a URL; who checks a peer's word knows the host."""
        return key == self.of(url, host)

    def _place(self, url: str, host: str) -> bytes | None:
        if self.mode == "host":
            return host_key(host)
        return None if self.place_of is None else self.place_of(url, host)


class UnknownKeys(TaskKeys):
    """Keys of a crawl that is not known here: what can be said of them without it."""

    def fits(self, key: bytes, url: str, host: str) -> bool:
        return len(key) == self.width and key.endswith(url_key(url))


def unknown_keys(width: int) -> UnknownKeys:
    """Task keys of `width` bytes, of whatever crawl."""
    return UnknownKeys("url" if width == KEY_BYTES else "host")
