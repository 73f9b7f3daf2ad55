"""Where a tag leads whose link needs no URL parser: a path of letters, digits, `-`, `.`, `_` and `~`. Pure.

Most links are such paths, perhaps with a query, relative to the directory of their page, to one above it, to the
origin, or behind a scheme and a host name in lower case. To resolve one is to put it behind the URL of that directory
(WHATWG URL, "path state"); a query keeps its octets ("query state"), and an absolute link is canonical as it stands.
What is no such link is left to `dhtcrawl.fetch.links` and `dhtcrawl.url`, which find the same for these: a port, an
address instead of a name, a name in Punycode, an escape, a segment that begins with a dot, a tag that is written in
another way than nearly all are.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from dhtcrawl.possessive import compile_pattern
from dhtcrawl.url import HOST_CHARS_MAX, URL_CHARS_MAX, origin_of

# How many directories up a link may lead; one that leads above the root is not plain.
_UP_MAX = 16

# The other attributes; with `rel`, it might be that no robot is to follow the link.
_OTHERS = rb'(?: (?!rel=|href=)[a-z-]++="[^"]*+")*+'
# Labels that DNS allows and that stand for nothing else; a name whose last one begins with a letter is no IPv4 address.
_LABEL = rb"(?![a-z0-9-]{64}|..--)[a-z0-9]++(?:-++[a-z0-9]++)*+"
_NAME = rb"(?![a-z0-9.-]{%d})" % (HOST_CHARS_MAX + 1)
_ORIGIN = rb"https?://" + _NAME + rb"(?:" + _LABEL + rb"\.)++(?!..--)[a-z]{2,63}+/"
# What a query keeps as it is; of character references the one that links with two arguments need.
_QUERY = rb"\?(?:[A-Za-z0-9_.~/?=+:,;@!*()$-]++|&amp;)*+"
# A segment is no dot segment, since it does not begin with a dot. What follows a '#' never counts.
_PLAIN_TAG = compile_pattern(
    rb"<a"
    + _OTHERS
    + rb' href="('
    + _ORIGIN
    + rb"|/|(?:\.\./)*+)((?:[A-Za-z0-9_~-][A-Za-z0-9_.~-]*+/?+)*+)("
    + _QUERY
    + rb')?+(?:#[^"]*+)?+"'
    + _OTHERS
    + rb">"
)
_PLAIN_ANCHOR = compile_pattern(rb'<a(?: (?!rel=|href=(?!"#))[a-z-]++="[^"]*+")*+>')
# The same of a link that was read, in which a character reference is a character.
_PLAIN_HREF = compile_pattern(
    rb"("
    + _ORIGIN
    + rb"|/|(?:\.\./)*+)((?:[A-Za-z0-9_~-][A-Za-z0-9_.~-]*+/?+)*+)(\?[A-Za-z0-9_.~/?=+:,;@!*()$&-]*+)?+(?:#.*+)?+",
    re.DOTALL,
)
_ABSOLUTE = b"h"  # with which a directory above the page, or the origin, does not begin


def is_anchor(text: bytes) -> bool:
    """Whether one of the `candidates` of a page is clearly an `<a>` that leads to no other page, if anywhere."""
    return _PLAIN_ANCHOR.fullmatch(text) is not None


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
        return self.targets_of([text])[0]

    def targets_of(self, texts: Iterable[bytes]) -> list[bytes | None]:
        """The same of several of them, in their order; a node of a swarm meets most links of a site for itself."""
        before_of, matches, targets = self._before.get, _PLAIN_TAG.fullmatch, list[bytes | None]()
        for found in map(matches, texts):
            if found is None:
                targets.append(None)
                continue
            up, path, query = found.groups()
            before = before_of(up)
            if before is None or query is not None or not (up or path):
                targets.append(self._resolved(up, path, query and query.replace(b"&amp;", b"&")))
                continue
            target = before + path
            targets.append(target if len(target) <= URL_CHARS_MAX else None)
        return targets

    def target_of_href(self, href: str) -> bytes | None:
        """The same of a link as it is read, without the white space around it."""
        found = _PLAIN_HREF.fullmatch(href.encode("utf-8", "replace"))
        return None if found is None else self._resolved(*found.groups())

    def _resolved(self, up: bytes, path: bytes, query: bytes | None) -> bytes | None:
        before = up if up.startswith(_ABSOLUTE) else self._before.get(up)
        # An empty link, and a query alone, lead to the page itself, and not to its directory.
        if before is None or not (up or path):
            return None
        target: bytes = before + path
        if query is not None:
            target += query
        return target if len(target) <= URL_CHARS_MAX else None
