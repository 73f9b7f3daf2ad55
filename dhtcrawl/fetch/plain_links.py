"""Where a tag leads whose link needs no URL parser: a path of letters, digits, `-`, `.`, `_` and `~`. Pure.

Most links are such paths, relative to the directory of their page, to one above it, or to the origin. To resolve one
is to put it behind the URL of that directory (WHATWG URL, "path state"). What is no such path is left to
`dhtcrawl.fetch.links` and `dhtcrawl.url`, which find the same for these: a scheme, a query, an escape, a segment
that begins with a dot, a tag that is written in another way than nearly all are.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from dhtcrawl.url import URL_CHARS_MAX, origin_of

# How many directories up a link may lead; one that leads above the root is not plain.
_UP_MAX = 16

# The other attributes; with `rel`, it might be that no robot is to follow the link.
_OTHERS = rb'(?: (?!rel=|href=)[a-z-]++="[^"]*+")*+'
# A segment is no dot segment, since it does not begin with a dot. What follows a '#' never counts.
_PLAIN_TAG = re.compile(
    rb"<a"
    + _OTHERS
    + rb' href="(/|(?:\.\./)*+)((?:[A-Za-z0-9_~-][A-Za-z0-9_.~-]*+/?+)*+)(?:#[^"]*+)?+"'
    + _OTHERS
    + rb">"
)


class PlainLinks:
    """The plain links of pages in one directory."""

    def __init__(self, base: str) -> None:
        """`base` is the canonical URL of a page."""
        self._before: dict[bytes, bytes] = {}
        # Escapes could depend on what follows them.
        if "%" in base:
            return
        origin = origin_of(base)
        path = base.partition("?")[0][len(origin) :]
        self._before[b"/"] = f"{origin}/".encode()
        up = b""
        while path and len(self._before) <= _UP_MAX:
            path = path[: path.rindex("/") + 1]
            self._before[up] = (origin + path).encode()
            up, path = up + b"../", path[:-1]

    @property
    def directories(self) -> Collection[bytes]:
        """All URLs that it holds."""
        return self._before.values()

    def target_of(self, text: bytes) -> bytes | None:
        """The canonical URL to which one of the `candidates` of a page leads; None if it takes a URL parser to say."""
        found = _PLAIN_TAG.fullmatch(text)
        if found is None:
            return None
        up, path = found.groups()
        before = self._before.get(up)
        # An empty link leads to the page itself, and not to its directory.
        if before is None or not (up or path):
            return None
        target = before + path
        return target if len(target) <= URL_CHARS_MAX else None
