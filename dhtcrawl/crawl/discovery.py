"""From the links of a page to tasks: canonical, in scope, each once. No I/O.

Most links of a site stand on many of its pages. The cache maps a raw link, within
the directory it is relative to, to its task key and URL, so that a known link
costs one dictionary look-up and only new ones are parsed. Most pages need not even be
parsed (`dhtcrawl.crawl.without_parser`).

The links of a long page are resolved some at a time, so that the loop has its turns:

    resolve some ──▶ resolve some ──▶ … ──▶ note what is skipped, and hand in all of them at once
         ▲ the scope grew meanwhile: from the beginning │
         └──────────────────────────────────────────────┘
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from types import coroutine
from typing import NamedTuple

from dhtcrawl.crawl.analysis import HREF_SHOWN_CHARS, Analysis, Unparsed
from dhtcrawl.crawl.known_links import CACHE_MAX, KnownDirectory, KnownLinks
from dhtcrawl.crawl.scope import Scope
from dhtcrawl.crawl.without_parser import LinksWithoutParser, NotAcked
from dhtcrawl.fetch.robots import product_token
from dhtcrawl.loop_state import loop_state
from dhtcrawl.spec import CrawlSpec
from dhtcrawl.storage.store.records import SkipReason
from dhtcrawl.storage.store.tasks import Link
from dhtcrawl.url import canonicalize, without_fragment

LINKS_A_TURN = 1_000  # some 6 ms, or 15 ms of those that have escapes
CHARS_A_TURN = 64 << 10  # as many that have to be escaped take some 25 ms


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


class _Skip(NamedTuple):
    """A link that is not followed."""

    href: str
    told: tuple[str, str] | None  # (url, reason)
    plain: bytes | None = None  # where it leads, if it is plain
    nofollow: bool = False  # whether it stood among those that are not to be followed


class _Reading:
    """A page while its links are resolved; only that its tasks exist is known to other pages before all of it is."""

    __slots__ = ("base", "depth", "hrefs", "keys", "links", "skips", "url")

    def __init__(self, url: str, base: str, depth: int) -> None:
        self.url = url
        self.base = base
        self.depth = depth
        self.hrefs: list[str] = []  # each once
        self.keys: list[bytes] = []  # in the order of the hrefs; b"" where a link is not followed
        self.links: dict[bytes, Link] = {}  # to the tasks that no other page of the directory has a link to
        self.skips: list[_Skip] = []

    def of(self, wanted: list[bytes], known: KnownDirectory) -> list[Link]:
        """The links to these tasks."""
        links = self.links
        if all(key in links for key in wanted):
            return [links[key] for key in wanted]
        hrefs = dict(zip(self.keys, self.hrefs, strict=True))
        return [links.get(key) or self._link(key, hrefs[key], known) for key in wanted]

    def _link(self, key: bytes, href: str, known: KnownDirectory) -> Link:
        plain = known.plain.target_of_href(href)
        target = canonicalize(href, self.base) if plain is None else plain.decode()
        assert target is not None, "it leads to a task"
        return Link(key, target, self.depth + 1, self.url)


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
        self.token = product_token(spec.settings.user_agent)  # by which a page may tell this crawl to follow no link
        self._spec = spec
        self._scope = scope
        self._redirects_max = redirects_max
        self._known = KnownLinks(cache_max)
        self._scopes = 0  # how often the scope grew
        self._without_parser = None if not_acked is None else LinksWithoutParser(spec, scope, self._known, not_acked)

    def without_parser(self, html: bytes, charset: str, *, url: str, depth: int) -> Unparsed | None:
        """What `discover` needs of the page at `url`, in UTF-8 now, if it need not be parsed for that."""
        return (
            None if self._without_parser is None else self._without_parser.links_of(html, charset, url=url, depth=depth)
        )

    async def discover(self, url: str, analysis: Analysis, *, depth: int, hops: int, seed: bool) -> Found:
        """The links of the page at `url`, which lies at `depth`, `hops` redirects behind a link."""
        if analysis.redirect is not None:
            return self._redirect(url, analysis.redirect, depth=depth, hops=hops, seed=seed)
        if analysis.unparsed is not None:
            unparsed = analysis.unparsed
            links = [Link(key, target, depth + 1, url) for key, target in unparsed.links]
            return Found(links, unparsed.link_keys, unparsed.skipped, url, under_way=unparsed.under_way)
        while True:
            page, scopes = _Reading(url, analysis.base, depth), self._scopes
            for _ in self._steps(analysis, page):
                await _a_turn()
            if scopes == self._scopes:  # else some may have been refused that are followed now
                return self._found(page)

    def _steps(self, analysis: Analysis, page: _Reading) -> Iterator[None]:
        """Resolve the links of a page, some at each step."""
        for hrefs, reason in self._kinds(analysis):
            # Without their fragments, which no server sees.
            sent = list(dict.fromkeys([without_fragment(href) if "#" in href else href for href in hrefs]))
            for turn, some in enumerate(_turns(sent)):
                if turn:
                    yield
                known = self._known.of(page.base)
                if reason:
                    page.skips += [
                        self._not_to_follow(href, reason, page) for href in some if href not in known.nofollow
                    ]
                    continue
                page.hrefs += some
                page.keys += [
                    self._resolve(href, known, page) if key is None else key
                    for href, key in zip(some, map(known.hrefs.get, some), strict=True)
                ]

    def _kinds(self, analysis: Analysis) -> list[tuple[list[str], str]]:
        """The links of a page, with why they are not to be followed, or "" for those that are."""
        if self._spec.settings.ignore_robots:
            return [(analysis.left, SkipReason.RULES), (analysis.hrefs + analysis.nofollow, "")]
        return [(analysis.nofollow, SkipReason.NOFOLLOW), (analysis.left, SkipReason.RULES), (analysis.hrefs, "")]

    def _found(self, page: _Reading) -> Found:
        """What all the links of a page come to; the skips are noted now, as the page is handed in before any other."""
        skipped = self._note_skips(page)
        known = self._known.of(page.base)
        self._known.keep_bound()
        found = dict.fromkeys(page.keys)
        found.pop(b"", None)
        limit = self._spec.settings.depth
        if 0 <= limit <= page.depth:
            beyond = self._known.beyond(found)
            skipped.extend((link.url, SkipReason.DEPTH) for link in page.of(beyond, known))
            self._known.note_beyond(beyond)
            return Found([], b"", skipped, page.url)
        under_way, news = self._not_acknowledged(found, page.depth + 1)
        return Found(page.of(news, known), b"".join(found), skipped, page.url, under_way=under_way)

    def _not_acknowledged(self, keys: Iterable[bytes], depth: int) -> tuple[list[bytes], list[bytes]]:
        """Those that are under way, and those to send."""
        if self._not_acked is None:
            return [], [key for key in keys if not self._known_to_owner(key, depth)]
        return self._not_acked(keys, depth)

    def forget(self) -> None:
        """Empty the cache, because the scope grew."""
        self._scopes += 1
        self._known.forget()

    def _resolve(self, href: str, known: KnownDirectory, page: _Reading) -> bytes:
        """The task to which a link leads, which is known from now on; in all directories, if it is plain."""
        plain = known.plain.target_of_href(href)
        task = None if plain is None else self._known.task(plain)
        if task is None:
            url = canonicalize(href, page.base) if plain is None else plain.decode()
            if url is None:
                page.skips.append(_Skip(href, (href[:HREF_SHOWN_CHARS], SkipReason.NOT_A_URL)))
                return b""
            refused = self._scope.refuses(url)
            if refused is not None:
                page.skips.append(_Skip(href, (url, refused), plain))
                return b""
            task = self._spec.key_of(url)
            page.links[task] = Link(task, url, page.depth + 1, page.url)
            if plain is not None:
                self._known.note_task(plain, task)
        if plain is None:
            self._known.note_href(known, href, task)
        else:
            self._known.note_plain_href(known, href, task)
        return task

    def _not_to_follow(self, href: str, reason: str, page: _Reading) -> _Skip:
        target = canonicalize(href, page.base)
        told = None if target is None else (target, self._scope.refuses(target) or reason)
        return _Skip(href, told, nofollow=True)

    def _note_skips(self, page: _Reading) -> list[tuple[str, str]]:
        """The skips of a page that were not noted, which they are from now on."""
        known, skipped = self._known.of(page.base), list[tuple[str, str]]()
        for skip in page.skips:
            if skip.nofollow:
                fresh = skip.href not in known.nofollow
                self._known.note_nofollow(known, skip.href)
            elif skip.plain is None:
                fresh = skip.href not in known.hrefs
                self._known.note_href(known, skip.href, b"")
            else:
                fresh = self._known.task(skip.plain) is None
                self._known.note_task(skip.plain, b"")
                self._known.note_plain_href(known, skip.href, b"")
            if fresh and skip.told is not None:
                skipped.append(skip.told)
        return skipped

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


def _turns(hrefs: list[str]) -> Iterator[list[str]]:
    """The links in parts, of which each is resolved in one turn."""
    turn: list[str] = []
    chars = 0
    for href in hrefs:
        if turn and (len(turn) >= LINKS_A_TURN or chars + len(href) > CHARS_A_TURN):
            yield turn
            turn, chars = [], 0
        turn.append(href)
        chars += len(href)
    if turn:
        yield turn


@coroutine
def _a_turn() -> Generator[None]:
    """Others have their turn: a bare yield says so to whatever loop runs this."""
    yield
