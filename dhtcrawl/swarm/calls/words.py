"""Kinds of values, and their limits, that calls of several rooms have. No I/O."""

import re
from collections.abc import Mapping
from typing import Annotated, Final

from dhtcrawl.keyspace import CRAWL_ID_BYTES, KEY_BYTES
from dhtcrawl.rpc.tasks.schema import WireMap, integer, items, mapping, number, octets, text
from dhtcrawl.url import URL_CHARS_MAX, canonicalize

COUNT_MAX: Final = 2**63 - 1
KEYS_MAX: Final = 500  # of the 512 items that a list on the wire may have
HELD_KEYS_MAX: Final = 8_000  # two thirds of the answer that a newcomer wants to hold, where keys are longest


def is_host(value: str) -> bool:
    """Whether this may be a host: printable ASCII without a slash."""
    return value.isascii() and value.isprintable() and "/" not in value


def is_origin(value: str) -> bool:
    """Whether it is a scheme and a host, as robots.txt has them."""
    scheme, separator, host = value.partition("://")
    return scheme in ("http", "https") and separator != "" and 1 <= len(host) <= HOST_CHARS_MAX and is_host(host)


def _is_canonical(value: str) -> bool:
    return canonicalize(value) == value


HOST_CHARS_MAX: Final = 261  # 255 octets of a name (RFC 1035, 2.3.4), a colon, a port
_KEY_WIDTHS: Final = (KEY_BYTES, 2 * KEY_BYTES)

Crawl = Annotated[bytes, octets(CRAWL_ID_BYTES), "the crawl's id"]
TaskKey = Annotated[bytes, octets(*_KEY_WIDTHS)]
TaskKeys = Annotated[tuple[bytes, ...], items(octets(*_KEY_WIDTHS), KEYS_MAX, distinct=True)]
Count = Annotated[int, integer(0, COUNT_MAX)]
Host = Annotated[str, text(HOST_CHARS_MAX, 1, made_of=is_host, says="printable ASCII without a slash")]
Url = Annotated[str, text(URL_CHARS_MAX, 1, where=_is_canonical, says="a canonical URL")]
_WORD = text(32, 1, where=re.compile(r"[a-z][a-z_-]*").fullmatch, says="a-z, _ and -")
WORDS_MAX: Final = 64
Waiting = Annotated[Mapping[str, int], mapping(_WORD, integer(0, COUNT_MAX), WORDS_MAX)]
Counters = Annotated[Mapping[str, int | float], mapping(_WORD, number(0, COUNT_MAX), WORDS_MAX)]
Figures = Annotated[Mapping[str, int | float], mapping(_WORD, number(-COUNT_MAX, COUNT_MAX), WORDS_MAX)]


class Done(WireMap):
    """An empty map: the call was carried out."""
