"""The links of a page that brings little or nothing new, without parsing it. No I/O.

It takes all that may be a tag with a link (`dhtcrawl.fetch.candidates`).
Whether one that leads nowhere, to a task that its owner has or gets anyway, or to
a skip that is noted really is a tag makes no difference to the crawl. Of the
others it has to be clear, or the page is parsed: then the crawl is the same either way.

What is remembered is a cache of what earlier pages had. These are in the store,
in the same round or in an earlier one, which a later one never overtakes; a failed
round ends the run. Whether the owner of a task has it is asked anew for each page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from typing import NamedTuple

from dhtcrawl.crawl.analysis import HREF_SHOWN_CHARS, Unparsed
from dhtcrawl.crawl.known_links import TAG_BYTES_MAX, KnownDirectory, KnownLinks
from dhtcrawl.crawl.scope import Scope
from dhtcrawl.fetch.candidates import candidates, outside
from dhtcrawl.fetch.links import LINKS_MAX, candidate_of
from dhtcrawl.fetch.plain_links import is_anchor
from dhtcrawl.fetch.robots import product_token
from dhtcrawl.loop_state import loop_state
from dhtcrawl.query_charset import in_charset
from dhtcrawl.spec import CrawlSpec
from dhtcrawl.storage.store.records import SkipReason
from dhtcrawl.url import canonicalize, without_fragment

# Of these tasks, sent at this depth: those that are under way already, and those that are not.
NotAcked = Callable[[Iterable[bytes], int], tuple[list[bytes], list[bytes]]]


class _Lead(NamedTuple):
    """Where a tag leads: to a task, to a skip that is not noted, or to neither."""

    href: str | None  # without its fragment
    nofollow: bool = False
    key: bytes = b""  # of the task
    skip: tuple[str, str] | None = None
    plain: bytes = b""  # the URL to which a plain link leads, b"" for one that is none


class _Look(NamedTuple):
    """A page's candidates, and what is known of them."""

    url: str
    charset: str
    html: bytes
    known: KnownDirectory
    texts: list[bytes]
    tags: dict[bytes, bytes]  # those that were known before
    leads: dict[bytes, _Lead]  # the others

    def keys(self, known: list[bytes | None]) -> list[bytes]:
        """Where each text leads; b"" where to no task. Of what was `known` before its place has it."""
        tags, leads = self.tags, self.leads
        return [
            key if key is not None else leads[text].key if text in leads else tags[text]
            for text, key in zip(self.texts, known, strict=True)
        ]

    def targets(self, places: list[tuple[bytes, bytes]], wanted: list[bytes]) -> list[tuple[bytes, str]]:
        """The tasks that are `wanted`, with their URLs; `places` are texts and where they lead."""
        text_of = {key: text for text, key in places}
        return [(key, self._target(text_of[key])) for key in wanted]

    def _target(self, text: bytes) -> str:
        plain = self.known.plain.target_of(text)
        if plain is not None:
            return plain.decode()
        candidate = candidate_of(text)
        assert candidate is not None, "it leads to a task"
        assert candidate.href is not None, "it leads to a task"
        target = canonicalize(without_fragment(candidate.href), self.url)
        assert target is not None, "it leads to a task"
        return target


_NOWHERE = _Lead(None)
_NOTED = _Lead(None)  # of a tag that is among those which were known before
_ANCHOR = _Lead(None)  # of a tag that leads to no other page; most have an id or a fragment that no other page has


@loop_state
class LinksWithoutParser:
    """Says of pages which links they have, where that is clear without a parser."""

    def __init__(self, spec: CrawlSpec, scope: Scope, known: KnownLinks, not_acked: NotAcked) -> None:
        """`not_acked(keys, depth)`: of these tasks, those under way, and those to send because the owner has not."""
        self._spec = spec
        self._scope = scope
        self._known = known
        self._not_acked = not_acked
        self._token = product_token(spec.settings.user_agent)

    def links_of(self, html: bytes, charset: str, *, url: str, depth: int) -> Unparsed | None:
        """The links of the page at `url`, which is in UTF-8 now and was in `charset`; None if it has to be parsed.

        The links may be more than those of the parsed page, by tasks that their owner has or gets anyway.
        """
        texts = candidates(html)
        if len(texts) > LINKS_MAX:
            return None
        known = self._known.of(url)
        page = _Look(url, charset, html, known, texts, known.tags.setdefault(charset, {}), {})
        found = list(map(page.tags.get, texts))
        if not self._look_up([text for text, key in zip(texts, found, strict=True) if key is None], page):
            return None
        unparsed = self._unparsed(page, page.keys(found), depth)
        self._known.keep_bound()
        return unparsed

    def _look_up(self, texts: list[bytes], page: _Look) -> bool:
        """Find where these tags lead, which were not met in the page's directory; False if it has to be parsed."""
        short = [text for text in dict.fromkeys(texts) if len(text) <= TAG_BYTES_MAX]
        targets = dict(zip(short, page.known.plain.targets_of(short), strict=True))
        tasks = zip(short, self._known.tasks(targets.values()), strict=True)
        known = {text: key for text, key in tasks if key is not None}
        self._known.note_tags(page.tags, known)
        for text in dict.fromkeys(texts):
            if text in known:
                continue
            target = targets.get(text)
            if target is None:
                lead = _ANCHOR if is_anchor(text) else self._lead_of(text, page)
            else:
                lead = self._plain_lead(text, target, page)
            if lead is None:
                return False
            if lead is not _NOTED:
                page.leads[text] = lead
        return True

    def _plain_lead(self, text: bytes, target: bytes, page: _Look) -> _Lead:
        """Where the plain link of a tag leads: to a task, or to a skip that is noted, which is known from now on."""
        key = self._known.task(target)
        if key is None:
            url = target.decode()
            reason = self._scope.refuses(url)
            if reason is not None:
                return _Lead(None, skip=(url, reason), plain=target)
            key = self._spec.key_of(url)
            self._known.note_task(target, key)
        self._known.note_tag(page.tags, text, None, key)
        return _NOTED

    def _lead_of(self, text: bytes, page: _Look) -> _Lead | None:
        candidate = candidate_of(text, self._token)
        if candidate is None or candidate.href is None:
            return None if candidate is None else _NOWHERE
        href, links = without_fragment(candidate.href), [candidate.href]
        if in_charset(links, page.charset) is not links:
            return None  # the page record has to say in which charset the queries are
        nofollow = candidate.nofollow and not self._spec.settings.ignore_robots
        if nofollow and href in page.known.nofollow:
            return _Lead(href)
        key = None if nofollow else page.known.hrefs.get(href)
        return self._resolved(href, nofollow, page) if key is None else _Lead(href, nofollow, key)

    def _resolved(self, href: str, nofollow: bool, page: _Look) -> _Lead | None:
        plain = page.known.plain.target_of_href(href)
        target = canonicalize(href, page.url) if plain is None else plain.decode()
        if target is None:
            skip = None if nofollow else (href[:HREF_SHOWN_CHARS], SkipReason.NOT_A_URL)
            return _Lead(href, nofollow, skip=skip)
        reason = self._scope.refuses(target)
        if reason is not None:
            return _Lead(href, nofollow, skip=(target, reason))
        # Whether the same link is followed elsewhere on the page decides on one with nofollow.
        return None if nofollow else _Lead(href, nofollow, self._spec.key_of(target))

    def _unparsed(self, page: _Look, keys: list[bytes], depth: int) -> Unparsed | None:
        unique = dict.fromkeys(keys)
        unique.pop(b"", None)
        beyond = 0 <= self._spec.settings.depth <= depth
        waits, news = ([], self._known.beyond(unique)) if beyond else self._not_acked(unique, depth + 1)
        asked = set(news)
        places = [(text, key) for text, key in zip(page.texts, keys, strict=True) if key in asked] if asked else []
        real = self._real(page, places)
        if real is None:
            return None
        skipped = self._remember(page, real)
        if news:
            sure = {key for text, key in places if text in real}
            for key in news:
                if key not in sure:
                    del unique[key]
            news = [key for key in news if key in sure]
        if beyond:
            self._known.note_beyond(news)
            skipped += [(target, SkipReason.DEPTH) for _, target in page.targets(places, news)]
            return Unparsed(b"", [], skipped, [])
        return Unparsed(b"".join(unique), page.targets(places, news), skipped, waits)

    def _real(self, page: _Look, places: list[tuple[bytes, bytes]]) -> Set[bytes] | None:
        """The texts that are tags, of those that make a difference; None if that is not clear."""
        wanted = {text for text, lead in page.leads.items() if lead.skip is not None}
        wanted.update([text for text, _ in places])
        return outside(page.html, page.texts, wanted) if wanted else wanted

    def _remember(self, page: _Look, real: Set[bytes]) -> list[tuple[str, str]]:
        """Remember what was looked up, but for skips that are no tags; returns the skips to note."""
        skipped: dict[tuple[str, str], None] = {}
        for text, lead in page.leads.items():
            if lead is _ANCHOR:
                continue
            if lead.skip is not None:
                if text not in real:
                    continue
                skipped[lead.skip] = None
                self._note_skip(lead, page)
            self._known.note_tag(page.tags, text, lead.href, lead.key)
        return list(skipped)

    def _note_skip(self, lead: _Lead, page: _Look) -> None:
        if lead.plain:
            self._known.note_task(lead.plain, b"")
            return
        assert lead.href is not None, "it has a skip"
        if lead.nofollow:
            self._known.note_nofollow(page.known, lead.href)
        else:
            self._known.note_href(page.known, lead.href, lead.key)
