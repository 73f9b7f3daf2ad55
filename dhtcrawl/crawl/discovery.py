"""From the links of a page to tasks: canonical, in scope, each once. No I/O.

Most links of a site stand on many of its pages. The cache maps a raw link, within
the directory it is relative to, to its task key and URL, so that a known link
costs one dictionary look-up and only new ones are parsed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from dhtcrawl.crawl.analysis import HREF_SHOWN_CHARS, Analysis
from dhtcrawl.crawl.scope import Scope
from dhtcrawl.loop_state import loop_state
from dhtcrawl.spec import CrawlSpec
from dhtcrawl.storage.store.records import SkipReason
from dhtcrawl.storage.store.tasks import Link
from dhtcrawl.url import canonicalize

CACHE_MAX = 40_000  # some 350 bytes each
# The length of an average cache entry; a longer one counts as several.
CACHED_CHARS = 256

# Matches links that are relative to the page and not to its directory: a query, a
# fragment or nothing, perhaps behind a scheme (WHATWG URL, "special relative or
# authority state"), and links with control characters, which a URL parser ignores.
_OF_THE_PAGE = re.compile(r" *(?:https?:)?(?:[?#]| *\Z)|[^\0-\x1f]*[\0-\x1f]", re.IGNORECASE)


class _Resolved(NamedTuple):
    key: bytes  # empty where the link is not followed
    url: str


@dataclass(frozen=True, slots=True)
class Found:
    """The links of a page: those to send, the task keys of all in scope, those not followed.

    Links that are `known_to_owner` are left out of `links`, but not of `link_keys`.
    """

    links: list[Link]
    link_keys: bytes
    skipped: list[tuple[str, str]]  # (url, reason)
    final_url: str
    alias: str | None = None  # the target of a seed's redirect, which counts as a seed


@loop_state
class Discovery:
    """Finds the links of a crawl's pages; the cache holds at most `cache_max` links, fewer if they are long."""

    def __init__(
        self,
        spec: CrawlSpec,
        scope: Scope,
        *,
        redirects_max: int,
        known_to_owner: Callable[[bytes, int], bool] = lambda key, depth: False,
        cache_max: int = CACHE_MAX,
    ) -> None:
        """`known_to_owner(key, depth)` says whether the owner has acknowledged a link, so that it need not be sent."""
        self._known_to_owner = known_to_owner
        self._spec = spec
        self._scope = scope
        self._redirects_max = redirects_max
        self._cache: dict[str, dict[str, _Resolved]] = {}
        self._cached = 0
        self._cache_max = cache_max

    def discover(self, url: str, analysis: Analysis, *, depth: int, hops: int, seed: bool) -> Found:
        """The links of the page at `url`, which lies at `depth`, `hops` redirects behind a link."""
        if analysis.redirect is not None:
            return self._redirect(url, analysis.redirect, depth=depth, hops=hops, seed=seed)
        skipped: list[tuple[str, str]] = []
        base, follow = analysis.base, analysis.hrefs
        if self._spec.settings.ignore_robots:
            follow = follow + analysis.nofollow
        else:
            for href in analysis.nofollow:
                self._skip_nofollow(base, href, skipped)
        found = self._targets(base, follow, skipped)
        limit = self._spec.settings.depth
        if 0 <= limit <= depth:
            skipped.extend((target, SkipReason.DEPTH) for target in found.values())
            return Found([], b"", skipped, url)
        known_to_owner = self._known_to_owner
        links = [
            Link(key, target, depth + 1, url) for key, target in found.items() if not known_to_owner(key, depth + 1)
        ]
        return Found(links, b"".join(found), skipped, url)

    def _targets(self, base: str, hrefs: list[str], skipped: list[tuple[str, str]]) -> dict[bytes, str]:
        """The in-scope targets of a page's hrefs, in their order: task key to URL."""
        found: dict[bytes, str] = {}
        directory = base[: base.rindex("/", 0, (base + "?").index("?")) + 1]
        known = self._cache.get(directory)
        if known is None:
            known = self._cache[directory] = {}
            self._cached += 1
        for href in hrefs:
            # The fragment starts at the first '#', and no server sees it.
            href = href.partition("#")[0]
            resolved = known.get(href)
            if resolved is None:
                resolved = self._resolve(base, href, skipped)
                if _OF_THE_PAGE.match(href) is None:
                    known[href] = resolved
                    self._cached += 1 + (len(href) + len(resolved.url)) // CACHED_CHARS
            if resolved.key:
                found[resolved.key] = resolved.url
        if self._cached > self._cache_max:
            self.forget()
        return found

    def forget(self) -> None:
        """Empty the cache, because it is full or the scope grew."""
        self._cache.clear()
        self._cached = 0

    def _resolve(self, base: str, href: str, skipped: list[tuple[str, str]]) -> _Resolved:
        target = canonicalize(href, base)
        if target is None:
            skipped.append((href[:HREF_SHOWN_CHARS], SkipReason.NOT_A_URL))
            return _Resolved(b"", "")
        reason = self._scope.refuses(target)
        if reason is not None:
            skipped.append((target, reason))
            return _Resolved(b"", "")
        return _Resolved(self._spec.key_of(target), target)

    def _skip_nofollow(self, base: str, href: str, skipped: list[tuple[str, str]]) -> None:
        target = canonicalize(href, base)
        if target is not None:
            skipped.append((target, self._scope.refuses(target) or SkipReason.NOFOLLOW))

    def _redirect(self, url: str, location: str, *, depth: int, hops: int, seed: bool) -> Found:
        target = canonicalize(location, url)
        if target is None:
            return Found([], b"", [(location[:HREF_SHOWN_CHARS], SkipReason.NOT_A_URL)], url)
        alias = None
        if seed and self._scope.extend(target):
            alias = target
            self.forget()
        reason = SkipReason.REDIRECT_LIMIT if hops >= self._redirects_max else self._scope.refuses(target)
        if reason is not None:
            return Found([], b"", [(target, reason)], target, alias)
        key = self._spec.key_of(target)
        # A redirect is part of following one link: the depth stays.
        return Found([Link(key, target, depth, url, hops + 1, seed)], key, [], target, alias)
