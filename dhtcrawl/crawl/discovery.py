"""From the links of a page to tasks: canonical, in scope, each once. No I/O.

Most links of a site stand on many of its pages. The cache maps a raw link, within
the directory it is relative to, to its task key and URL, so that a known link
costs one dictionary look-up and only new ones are parsed. Most pages need not even be
parsed (`dhtcrawl.crawl.without_parser`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from dhtcrawl.crawl.analysis import HREF_SHOWN_CHARS, Analysis, Unparsed
from dhtcrawl.crawl.known_links import CACHE_MAX, KnownDirectory, KnownLinks
from dhtcrawl.crawl.scope import Scope
from dhtcrawl.crawl.without_parser import LinksWithoutParser, NotAcked
from dhtcrawl.loop_state import loop_state
from dhtcrawl.spec import CrawlSpec
from dhtcrawl.storage.store.records import SkipReason
from dhtcrawl.storage.store.tasks import Link
from dhtcrawl.url import canonicalize, without_fragment


class Found(NamedTuple):
    """The links of a page: those to send, the task keys of all in scope, those not followed.

    Links that are `known_to_owner` are left out of `links`, but not of `link_keys`; of those that are `under_way` for
    another page the key is enough.
    """

    links: list[Link]
    link_keys: bytes
    skipped: list[tuple[str, str]]  # (url, reason)
    final_url: str
    alias: str | None = None  # the target of a seed's redirect, which counts as a seed
    under_way: Sequence[bytes] = ()


class _Targets(NamedTuple):
    """Where the hrefs of a page lead, each of which is there once."""

    base: str
    known: KnownDirectory
    hrefs: list[str]
    keys: list[bytes]  # in the order of the hrefs; b"" where a link is not followed
    urls: dict[bytes, str]  # of the tasks that no other page of the directory has a link to

    def of(self, wanted: list[bytes]) -> list[tuple[bytes, str]]:
        """These tasks with their URLs."""
        if not wanted:
            return []
        hrefs = dict(zip(self.keys, self.hrefs, strict=True))
        return [(key, self.urls.get(key) or self._resolved(hrefs[key])) for key in wanted]

    def _resolved(self, href: str) -> str:
        plain = self.known.plain.target_of_href(href)
        target = canonicalize(href, self.base) if plain is None else plain.decode()
        assert target is not None, "it leads to a task"
        return target


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
        not_acked: NotAcked | None = None,
        cache_max: int = CACHE_MAX,
    ) -> None:
        """`known_to_owner(key, depth)` says whether the owner has acknowledged a link, so that it need not be sent.

        Without `not_acked` (see `LinksWithoutParser`) every page is parsed: for what needs exactly the links of each
        page, and to compare.
        """
        self._known_to_owner = known_to_owner
        self._not_acked = not_acked
        self._spec = spec
        self._scope = scope
        self._redirects_max = redirects_max
        self._known = KnownLinks(cache_max)
        self._without_parser = None if not_acked is None else LinksWithoutParser(spec, scope, self._known, not_acked)

    def without_parser(self, html: bytes, charset: str, *, url: str, depth: int) -> Unparsed | None:
        """What `discover` needs of the page at `url`, in UTF-8 now, if it need not be parsed for that."""
        return (
            None if self._without_parser is None else self._without_parser.links_of(html, charset, url=url, depth=depth)
        )

    def discover(self, url: str, analysis: Analysis, *, depth: int, hops: int, seed: bool) -> Found:
        """The links of the page at `url`, which lies at `depth`, `hops` redirects behind a link."""
        if analysis.redirect is not None:
            return self._redirect(url, analysis.redirect, depth=depth, hops=hops, seed=seed)
        if analysis.unparsed is not None:
            unparsed = analysis.unparsed
            links = [Link(key, target, depth + 1, url) for key, target in unparsed.links]
            return Found(links, unparsed.link_keys, unparsed.skipped, url, under_way=unparsed.under_way)
        skipped: list[tuple[str, str]] = []
        base, follow = analysis.base, analysis.hrefs
        if self._spec.settings.ignore_robots:
            follow = follow + analysis.nofollow
        else:
            self._skip(base, analysis.nofollow, SkipReason.NOFOLLOW, skipped)
        self._skip(base, analysis.left, SkipReason.RULES, skipped)
        targets = self._targets(base, follow, skipped)
        self._known.keep_bound()
        found = dict.fromkeys(targets.keys)
        found.pop(b"", None)
        limit = self._spec.settings.depth
        if 0 <= limit <= depth:
            beyond = self._known.beyond(found)
            skipped.extend((target, SkipReason.DEPTH) for _, target in targets.of(beyond))
            self._known.note_beyond(beyond)
            return Found([], b"", skipped, url)
        under_way, news = self._not_acknowledged(found, depth + 1)
        links = [Link(key, target, depth + 1, url) for key, target in targets.of(news)]
        return Found(links, b"".join(found), skipped, url, under_way=under_way)

    def _not_acknowledged(self, keys: Iterable[bytes], depth: int) -> tuple[list[bytes], list[bytes]]:
        """Those that are under way, and those to send."""
        if self._not_acked is None:
            return [], [key for key in keys if not self._known_to_owner(key, depth)]
        return self._not_acked(keys, depth)

    def _targets(self, base: str, hrefs: list[str], skipped: list[tuple[str, str]]) -> _Targets:
        known = self._known.of(base)
        # Without their fragments, which no server sees.
        sent = list(dict.fromkeys([without_fragment(href) if "#" in href else href for href in hrefs]))
        urls: dict[bytes, str] = {}
        keys = [
            self._resolve(base, href, known, urls, skipped) if key is None else key
            for href, key in zip(sent, map(known.hrefs.get, sent), strict=True)
        ]
        return _Targets(base, known, sent, keys, urls)

    def forget(self) -> None:
        """Empty the cache, because the scope grew."""
        self._known.forget()

    def _resolve(
        self, base: str, href: str, known: KnownDirectory, urls: dict[bytes, str], skipped: list[tuple[str, str]]
    ) -> bytes:
        """The task to which a link leads, which is known from now on; in all directories, if it is plain."""
        plain = known.plain.target_of_href(href)
        if plain is None:
            target = canonicalize(href, base)
            if target is None:
                skipped.append((href[:HREF_SHOWN_CHARS], SkipReason.NOT_A_URL))
            key = b"" if target is None else self._key_of(target, urls, skipped)
            self._known.note_href(known, href, key)
            return key
        task = self._known.task(plain)
        if task is None:
            task = self._key_of(plain.decode(), urls, skipped)
            self._known.note_task(plain, task)
        self._known.note_plain_href(known, href, task)
        return task

    def _key_of(self, url: str, urls: dict[bytes, str], skipped: list[tuple[str, str]]) -> bytes:
        """The task at a URL, which `urls` has from now on; b"" for one that is skipped."""
        reason = self._scope.refuses(url)
        if reason is not None:
            skipped.append((url, reason))
            return b""
        key = self._spec.key_of(url)
        urls[key] = url
        return key

    def _skip(self, base: str, hrefs: list[str], reason: str, skipped: list[tuple[str, str]]) -> None:
        known = self._known.of(base)
        for href in hrefs:
            href = without_fragment(href)
            if href not in known.nofollow:
                target = canonicalize(href, base)
                if target is not None:
                    skipped.append((target, self._scope.refuses(target) or reason))
                self._known.note_nofollow(known, href)

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
