"""What is known of the links of a crawl's pages: a cache, by the directory that they are relative to. No I/O.

Where plain links lead (`dhtcrawl.fetch.plain_links`) is kept by the URL of their target as well, since the pages of
one directory link to those that pages of others have linked to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from dhtcrawl.fetch.plain_links import PlainLinks
from dhtcrawl.loop_state import loop_state
from dhtcrawl.possessive import compile_pattern

CACHE_MAX = 40_000  # some 350 bytes each
# The length of an average cache entry; a longer one counts as several.
CACHED_CHARS = 256
# The text of a longer tag is read anew on each page.
TAG_BYTES_MAX = 1_024

# Matches links that are relative to the page and not to its directory: a query, a
# fragment or nothing, perhaps behind a scheme (WHATWG URL, "special relative or
# authority state"), and links with control characters, which a URL parser ignores.
_OF_THE_PAGE = compile_pattern(r" *(?:https?:)?(?:[?#]| *\Z)|[^\0-\x1f]*+[\0-\x1f]", re.IGNORECASE)


class KnownDirectory:
    """What is known in one directory; hrefs are without their fragments."""

    __slots__ = ("hrefs", "nofollow", "plain", "tags")

    def __init__(self, plain: PlainLinks) -> None:
        self.plain = plain
        self.hrefs: dict[str, bytes] = {}  # to the task key; b"" where the link is not followed, which is noted
        self.nofollow: set[str] = set()  # that no robot was to follow, which is noted
        # By the charset of the page: the text of a tag to the task key to which it leads, or b"".
        self.tags: dict[str, dict[bytes, bytes]] = {}


@loop_state
class KnownLinks:
    """Holds at most `size_max` links, fewer if they are long, and forgets all when it is full."""

    def __init__(self, size_max: int) -> None:
        self._directories: dict[str, KnownDirectory] = {}
        self._tasks: dict[bytes, bytes] = {}  # URL to key, of plain links; b"" where a skip is noted
        self._beyond: set[bytes] = set()
        self._size = 0
        self._size_max = size_max

    def of(self, base: str) -> KnownDirectory:
        """What is known in the directory of a URL."""
        name = base[: base.rindex("/", 0, (base + "?").index("?")) + 1]
        known = self._directories.get(name)
        if known is None:
            known = self._directories[name] = KnownDirectory(PlainLinks(base))
            self._size += 1 + sum(1 + len(url) // CACHED_CHARS for url in known.plain.directories)
        return known

    def task(self, url: bytes) -> bytes | None:
        """The key of the task at a URL, b"" where it is noted as skipped; None if no plain link to it is known."""
        return self._tasks.get(url)

    def tasks(self, urls: Iterable[bytes | None]) -> list[bytes | None]:
        """As `task`, of each of these, in their order; None of what is none."""
        return list(map(self._tasks.get, urls))  # type: ignore[arg-type]

    def note_task(self, url: bytes, key: bytes) -> None:
        """Remember the task to which a plain link leads, or by b"" that it is noted that it is skipped."""
        self._tasks[url] = key
        self._size += 1 + len(url) // CACHED_CHARS

    def note_href(self, known: KnownDirectory, href: str, key: bytes) -> None:
        """Remember where a link leads, unless that depends on more than the directory."""
        if _OF_THE_PAGE.match(href) is None:
            self.note_plain_href(known, href, key)

    def note_plain_href(self, known: KnownDirectory, href: str, key: bytes) -> None:
        """The same of a plain link, which depends on nothing else."""
        known.hrefs[href] = key
        self._size += 1 + len(href) // CACHED_CHARS

    def note_nofollow(self, known: KnownDirectory, href: str) -> None:
        """Remember that it is noted that a link is not followed for its `nofollow`, or for the scope."""
        if _OF_THE_PAGE.match(href) is None:
            known.nofollow.add(href)
            self._size += 1 + len(href) // CACHED_CHARS

    def note_tag(self, tags: dict[bytes, bytes], text: bytes, href: str | None, key: bytes) -> None:
        """Remember where a tag leads, whose text stands for that in one directory and charset."""
        if len(text) <= TAG_BYTES_MAX and (href is None or _OF_THE_PAGE.match(href) is None):
            tags[text] = key
            self._size += 1 + len(text) // CACHED_CHARS

    def note_tags(self, tags: dict[bytes, bytes], leads: dict[bytes, bytes]) -> None:
        """Remember where plain tags lead, which are no longer than `TAG_BYTES_MAX`, as `note_tag` does."""
        tags |= leads
        self._size += len(leads) + sum([len(text) // CACHED_CHARS for text in leads])

    def beyond(self, keys: Iterable[bytes]) -> list[bytes]:
        """Those of these tasks of which it is not noted that they are beyond the depth limit."""
        return [key for key in keys if key not in self._beyond]

    def note_beyond(self, keys: Iterable[bytes]) -> None:
        """Remember that it is noted that these tasks are beyond the depth limit."""
        fresh = self.beyond(keys)
        self._beyond.update(fresh)
        self._size += len(fresh)

    def keep_bound(self) -> None:
        """Forget all if that is too much; what `of` returned before is not used any more then."""
        if self._size > self._size_max:
            self.forget()

    def forget(self) -> None:
        """Forget all, because it is full or the scope grew."""
        self._directories.clear()
        self._tasks.clear()
        self._beyond.clear()
        self._size = 0
