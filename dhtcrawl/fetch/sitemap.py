"""The URLs that a sitemap lists (sitemaps.org, Sitemaps XML format 0.9); without I/O.

    <urlset><url><loc>https://example.org/a</loc>…              pages
    <sitemapindex><sitemap><loc>https://example.org/b.xml</loc>…   further sitemaps

It is XML by its type, or gzip by its type or nobody's type with a path that ends in `.xml.gz`. Its root says what it
is, in whatever namespace: many sites have an old one, or none. The `loc` of pictures and films has another prefix and
is no page.
"""

from __future__ import annotations

from itertools import islice
from typing import Final, NamedTuple

from dhtcrawl.encodings import decode as to_text
from dhtcrawl.fetch import header_fields
from dhtcrawl.fetch.body import decode
from dhtcrawl.fetch.charset import XML_TYPES, charset_of
from dhtcrawl.fetch.coded_body import decoded_body
from dhtcrawl.fetch.links import LINKS_MAX
from dhtcrawl.url import path_of

_ROOTS: Final = frozenset(("urlset", "sitemapindex"))
_GZIP_TYPES: Final = frozenset(
    ("", "application/gzip", "application/octet-stream", "application/x-gzip", "application/x-gzip-compressed",
     "binary/octet-stream")
)  # fmt: skip
_GZIP_PATH: Final = ".xml.gz"
_GZIP_MAGIC: Final = b"\x1f\x8b"
_CODING: Final = "content-encoding: "
_SPACE: Final = " \t\n\r"


class Sitemap(NamedTuple):
    """What a sitemap lists, each as it is written; `beyond`: the part that was read, where that is not all of it."""

    locs: list[str]
    beyond: str | None = None
    error: str | None = None  # what broke while it was decoded


def may_be_sitemap(media_type: str, url: str) -> bool:
    """Whether `sitemap_of` is worth asking for a response of this type from a canonical URL."""
    return media_type in XML_TYPES or (
        media_type in _GZIP_TYPES and path_of(url).partition("?")[0].lower().endswith(_GZIP_PATH)
    )


class LongSitemap(Exception):
    """There is more than may be read."""


def sitemap_of(
    content_type: str | None,
    headers: header_fields.Headers,
    raw: bytes,
    *,
    bytes_max: int,
    here_bytes_max: int | None = None,
) -> Sitemap | None:
    """What the sitemap in a response of this type lists, in its first `bytes_max` decoded bytes; None where it is none.

    `headers` are those beside the type, and `raw` is the body as sent.

    Raises:
        LongSitemap: it is a sitemap of more than `here_bytes_max`.
    """
    limit = bytes_max if here_bytes_max is None else min(bytes_max, here_bytes_max)
    document, beyond, error = decoded_body(headers, raw, limit)
    if document.startswith(_GZIP_MAGIC):
        document, more, broken = decode(document, "gzip", limit)
        # That what was cut off here is missing is no error of the site.
        beyond, error = beyond or more, error if beyond or broken is None else broken.removeprefix(_CODING)
    # Its patterns take a start longer than one page.
    from dhtcrawl.fetch.xhtml import root_of, texts_of

    root = root_of(document)
    if root is None or root.name not in _ROOTS:
        return None
    if beyond and limit < bytes_max:
        raise LongSitemap
    text = to_text(document, charset_of(document, content_type, xml=True))
    texts = texts_of(text, "loc", root.prefix)
    locs = [loc for loc in (each.strip(_SPACE) for each in islice(texts, LINKS_MAX)) if loc]
    if beyond:
        return Sitemap(locs, f"{bytes_max} bytes (fetch.html_bytes_max)", error)
    return Sitemap(locs, None if next(texts, None) is None else f"{LINKS_MAX} tags", error)
