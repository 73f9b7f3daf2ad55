"""Pages that are not parsed bring a crawl to the same tasks, skips and depths as parsed ones."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest

from dhtcrawl.config import CrawlSettings
from dhtcrawl.crawl.analysis import analyse
from dhtcrawl.crawl.discovery import Discovery
from dhtcrawl.crawl.outbox import Outbox
from dhtcrawl.crawl.scope import Scope
from dhtcrawl.spec import make_spec
from dhtcrawl.storage.store.tasks import Link

from .turns import at_once

SEED = "http://a/d0/p0"
PARTS = (
    '<a href="{}">', "<a class=x href='{}' title='it\"s'>", "<A HREF={}>", '<a href="{}" rel=nofollow>',
    '<!-- <a href="{}"> -->', '<script>w("<a href=\'{}\'>")</script>', '<area href="{}">', '<iframe src="{}"></iframe>',
    '<p title="<a href=\'{}\'>">', '<svg><a href="{}"></a></svg>', '<link href="{}">', '<a href="{}#part">',
    "<!--><a href={}>-->", '<textarea><a href="{}"></textarea>', "<p>it's \"so</p>",
    '<template><a href="{}"></template>', "<a title='a > b' href={}>",
)  # fmt: skip
RARE = (
    "<base href=/d1/>", "<meta name=robots content=nofollow>", '<meta http-equiv=refresh content="0;{}">',
    '<noscript><meta http-equiv=refresh content="0;{}"></noscript><meta http-equiv=refresh content="9;p3">',
    "<title>{}</title>", "<style>a > b {{}}</style>", "<a href='{}", "<frame src={}>", "<base>",
)  # fmt: skip


def site(chance: Random) -> dict[str, bytes]:
    """Pages in three directories, with links that look like links, and some that only do."""
    urls = [f"http://a/d{chance.randint(0, 2)}/p{number}" for number in range(1, 30)]
    hrefs = [
        *(url[8:] for url in urls),
        *(f"p{n}" for n in range(30)),
        "http://b/x",
        "http://b/é?é",
        "?q",
        "",
        "mailto:x",
    ]
    pages = {}
    for url in (SEED, *urls):
        parts = chance.choices(PARTS[:3] if chance.random() < 0.7 else PARTS, k=12)
        if chance.random() < 0.1:
            parts.insert(chance.randint(0, 12), chance.choice(RARE))
        written = [part.format(chance.choice(hrefs)) for part in parts]
        pages[url] = b"<!doctype html><title>T</title>" + "\n".join(written).encode()
    return pages


def crawl(
    pages: dict[str, bytes], charset: str, *, parse_all: bool, **settings: object
) -> tuple[dict[str, int], dict[str, str], int]:
    """The depths of all URLs of a crawl, what it skips, and how many pages were not parsed."""
    spec = make_spec((SEED,), CrawlSettings(**settings))  # type: ignore[arg-type]
    outbox = Outbox(depth_matters=spec.settings.depth >= 0)
    discovery = Discovery(
        spec, Scope(spec.seeds, spec.settings), redirects_max=10, known_to_owner=outbox.knows,
        not_acked=outbox.not_acked if not parse_all else None,
    )  # fmt: skip
    depths, skipped, unparsed = {SEED: 0}, dict[str, str](), 0
    todo: list[Link] = [Link(b"", SEED, 0, "")]
    headers = [("content-type", f"text/html; charset={charset}")]
    while todo:
        task = todo.pop(0)
        look = partial(discovery.without_parser, url=task.url, depth=task.depth)
        analysis = analyse(task.url, 200, headers, pages.get(task.url, b""), html_bytes_max=10_000, without_parser=look)
        unparsed += analysis.unparsed is not None
        assert analysis.title in ("T", None)
        found = at_once(discovery.discover(task.url, analysis, depth=task.depth, hops=0, seed=False))
        outbox.add(task.url.encode(), found.links, found.under_way)
        for url, reason in found.skipped:
            skipped.setdefault(url, reason)
        # Three pages are handled before an owner acknowledges anything.
        if len(todo) % 3 == 0:
            sent = outbox.take(1_000)
            fresh = {link.url: link for link in sent if link.url not in depths}
            depths.update((link.url, link.depth) for link in fresh.values())
            todo += fresh.values()
            outbox.acked(sent)
    return depths, {url: why for url, why in skipped.items() if url not in depths}, unparsed


@pytest.mark.parametrize(
    "settings",
    [{}, {"depth": 2}, {"ignore_robots": True}, {"exclude": ["p3"]}, {"scope": "any"}, {"key": "host"}],
    ids=str,
)
@pytest.mark.parametrize("charset", ["utf-8", "latin1"])
def test_a_crawl_is_the_same_without_a_parser(settings: dict[str, object], charset: str) -> None:
    chance, unparsed = Random(40), 0
    for _ in range(8):
        pages = site(chance)
        *parsed, none = crawl(pages, charset, parse_all=True, **settings)
        *found, count = crawl(pages, charset, parse_all=False, **settings)
        assert found == parsed
        assert none == 0
        unparsed += count
    assert unparsed > 80


def links_of(html: bytes, *, known: bytes = b"", depth: int = 0, outbox: Outbox | None = None) -> list[str] | None:
    """The links to send of a page in a directory whose page `known` was parsed; None if it has to be parsed."""
    box = Outbox(depth_matters=True) if outbox is None else outbox
    spec = make_spec((SEED,), CrawlSettings())
    discovery = Discovery(
        spec, Scope(spec.seeds, spec.settings), redirects_max=9, known_to_owner=box.knows, not_acked=box.not_acked
    )
    analysis = analyse(SEED, 200, [("content-type", "text/html")], known, html_bytes_max=1_000)
    first = at_once(discovery.discover(SEED, analysis, depth=5, hops=0, seed=False))
    box.add(b"page", first.links)
    box.acked(box.take(1_000))
    found = discovery.without_parser(html, "utf-8", url="http://a/d0/p9", depth=depth)
    return None if found is None else [url for _, url in found.links]


def test_a_link_in_a_comment_or_a_script_is_none_and_needs_no_parser() -> None:
    assert links_of(b"<!-- <a href=x> --><script>'<a href=y>'</script><a href=z>") == ["http://a/d0/z"]


@pytest.mark.parametrize(
    "html",
    [
        b"<base href=/><a href=x>", b"<meta name=robots content=none><a href=x>", b"<svg><style><a href=x></style>",
        b"<p title='<a href=x>'>", b"<p title=\"><a href=x>\">", b"<a href=x", b"<a title='>' href=x>", b"<!<a href=x>",
        b"<frame src=x>", b"<a rel=nofollow href=x>", b'<meta http-equiv=refresh content="0;x">',
    ],
)  # fmt: skip
def test_a_page_that_is_not_clear_is_parsed(html: bytes) -> None:
    assert links_of(html) is None


def test_a_page_that_tells_this_crawler_by_its_name_to_follow_nothing_is_parsed() -> None:
    spec = make_spec((SEED,), CrawlSettings(user_agent="MyBot/2"))
    box = Outbox(depth_matters=True)
    discovery = Discovery(spec, Scope(spec.seeds, spec.settings), redirects_max=9, not_acked=box.not_acked)
    for name, parsed in ((b"mybot", True), (b"dhtcrawl", False), (b"description", False)):
        html = b"<meta name=%b content='none'><a href=x>" % name
        assert (discovery.without_parser(html, "utf-8", url=SEED, depth=0) is None) == parsed, name


def test_a_known_link_is_sent_again_at_a_smaller_depth_or_where_its_owner_lost_it() -> None:
    page = b"<a href=x>"
    assert links_of(page, known=page, depth=5) == []
    assert links_of(page, known=page, depth=4) == ["http://a/d0/x"]


HOSTILE = (
    b"<a ", b"<a href=x>", b'<a "', b'<a ="', b"<!--", b"<script><!--", b"<a href='x'> > ", b"<iframe a>", b"<",
)  # fmt: skip


def test_a_hostile_page_takes_linear_time() -> None:
    # What is quadratic takes minutes.
    for part in HOSTILE:
        page = part * (300_000 // len(part))
        assert links_of(page) in (None, [], ["http://a/d0/x"]), part
