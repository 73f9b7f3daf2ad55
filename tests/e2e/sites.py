"""Four real sites that Debian ships as packages, and what is known of them.

The number of pages is counted from the start page, which is one page whether
a link calls it `/` or `/index.html` (see `truth.Truth.page_count`). A point
release of what a package documents adds or takes a page or two.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

START = "/index.html"


@dataclass(frozen=True, slots=True)
class DocSite:
    """A directory of HTML; `encoding` is what its pages declare."""

    package: str
    root: Path
    page_count: int
    encoding: str = "utf-8"

    @property
    def installed(self) -> bool:
        return (self.root / "index.html").is_file()


GNUPLOT = DocSite("gnuplot-doc", Path("/usr/share/doc/gnuplot/htmldocs"), 652)
POSTGRESQL = DocSite("postgresql-doc-15", Path("/usr/share/doc/postgresql-doc-15/html"), 1_169)
SQLITE = DocSite("sqlite3-doc", Path("/usr/share/doc/sqlite3"), 757)
DOCBOOK = DocSite("docbook-xsl-doc-html", Path("/usr/share/doc/docbook-xsl-doc-html/doc"), 1_085, "iso-8859-1")
# A part of the last, for tests in which many nodes crawl a site: it links to another part, which is not served.
SMALL = DocSite(DOCBOOK.package, DOCBOOK.root / "html", 358, DOCBOOK.encoding)
ALL = (GNUPLOT, POSTGRESQL, SQLITE, DOCBOOK)
