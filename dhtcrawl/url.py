"""Canonical URLs, version 1: what makes two links the same page.

A link is resolved and serialized as the WHATWG URL standard says (by Ada, the
parser of Node.js), then

- the fragment and any credentials are dropped (a fragment never reaches the
  server, and a crawler sends no passwords);
- percent-escapes get upper-case digits, and escapes of unreserved characters
  are decoded (RFC 3986, 6.2.2.1 and 6.2.2.2: equivalent by definition).

What could change a page's meaning stays: the order of a query, a trailing
slash, an empty query, doubled slashes. `canonicalize` is idempotent. A crawl's
spec records `CANON_VERSION`, so that nodes of different versions never
disagree about a key.
"""

from __future__ import annotations

import re

import ada_url

CANON_VERSION = 1

# Sitemaps cap URLs at 2,048 and IIS requests at 16 KiB; in between lies
# everything real. What is longer is almost always a trap.
URL_CHARS_MAX = 8_192
# 255 octets of a name (RFC 1035, 2.3.4), a colon, a port: no longer name is found, and calls between nodes carry none.
HOST_CHARS_MAX = 261

# Not the escape behind a bare `%` or `%h`: decoding it could complete another
# escape, whose decoding could complete the next.
_ESCAPE = re.compile(r"(?<!%)(?<!%[0-9A-Fa-f])(%[0-9A-Fa-f]{2})")
_HAS_HOST = re.compile(r"https?://[^/]+/")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_DIGITS = "0123456789ABCDEFabcdef"
_CHARS = {f"%{high}{low}": chr(int(high + low, 16)) for high in _DIGITS for low in _DIGITS}
# A link may have thousands of escapes: each is a look-up, and no call.
_NORMAL_ESCAPES = {escape: char if char in _UNRESERVED else escape.upper() for escape, char in _CHARS.items()}


def canonicalize(raw: str, base: str | None = None) -> str | None:
    """The canonical form of an http(s) link, or None where it is none.

    `raw` may be relative where `base`, a canonical URL, is given. None stands
    for a link that cannot be fetched: another scheme, no host, malformed, longer
    than `URL_CHARS_MAX`, or with a host that is longer than `HOST_CHARS_MAX`.
    """
    if len(raw) > URL_CHARS_MAX:
        return None
    try:
        href: str = ada_url.join_url(base, raw) if base is not None else ada_url.normalize_url(raw)
    except ValueError:
        return None
    if not href.startswith(("http://", "https://")):
        return None
    # In a serialized URL the first '#' starts the fragment.
    href, _, _ = href.partition("#")
    start = href.index("//") + 2
    end = href.index("/", start)
    if "@" in href[start:end]:
        behind = href.rindex("@", start, end) + 1
        href, end = href[:start] + href[behind:], end - (behind - start)
    if end - start > HOST_CHARS_MAX:
        return None
    if "%" in href:
        parts = _ESCAPE.split(href)
        parts[1::2] = map(_NORMAL_ESCAPES.__getitem__, parts[1::2])
        normal = "".join(parts)
        if normal != href:
            # Decoding may have completed a dot segment.
            href = ada_url.normalize_url(normal)
            if href != normal:
                return canonicalize(href)
    return href if len(href) <= URL_CHARS_MAX else None


def without_fragment(href: str) -> str:
    """A link without its fragment, which no server sees; behind white space, which would end with it, a `#` stays."""
    path, sharp, _ = href.partition("#")
    return path + "#" if sharp and path and path[-1] <= " " else path


def has_host(text: str) -> bool:
    """Whether `host_of` can read a text that another node sent, which is canonical if that node is sound."""
    return _HAS_HOST.match(text) is not None


def host_of(url: str) -> str:
    """`hostname[:non-default port]` of a canonical URL: the unit of politeness."""
    start = url.index("//") + 2
    return url[start : url.index("/", start)]


def origin_of(url: str) -> str:
    """`scheme://host[:port]` of a canonical URL: the unit of robots.txt."""
    return url[: url.index("/", url.index("//") + 2)]


def hostname_of(host: str) -> str:
    """The host without its port: `example.org`, `[::1]`."""
    if host.endswith("]") or ":" not in host:
        return host
    return host[: host.rindex(":")]


def path_of(url: str) -> str:
    """Path and query of a canonical URL, as sent in a request line."""
    return url[url.index("/", url.index("//") + 2) :]
