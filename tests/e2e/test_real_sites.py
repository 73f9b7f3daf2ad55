"""Real sites: every page once, byte for byte, and archives that others can read."""

from __future__ import annotations

import pytest

from .archive import assert_valid, index_of, parse_index, payloads, read_archive, sha1_of
from .conftest import Serve
from .crawler import Crawler
from .nginx import Nginx
from .outputs import Outputs
from .sites import ALL, DOCBOOK, START, DocSite
from .truth import Truth, truth_of

CLEAN = {"complete": True, "lost": 0, "pages_missing": 0, "refetches": 0, "politeness_violations": 0}


@pytest.mark.needs_nginx
@pytest.mark.parametrize("site", ALL, ids=lambda site: site.package)
def test_a_real_site_is_crawled_whole_and_each_page_once(
    site: DocSite, serve: Serve, crawler: Crawler, outputs: Outputs
) -> None:
    crawl_and_compare(site, serve(site), crawler, outputs)


@pytest.mark.needs_nginx
def test_keys_by_host_change_where_tasks_live_and_nothing_else(
    serve: Serve, crawler: Crawler, outputs: Outputs
) -> None:
    crawl_and_compare(DOCBOOK, serve(DOCBOOK), crawler, outputs, "--key", "host")


def crawl_and_compare(site: DocSite, server: Nginx, crawler: Crawler, outputs: Outputs, *options: str) -> None:
    truth = truth_of(site.root, START, site.encoding)
    seed = server.url + START
    ran = crawler.run("crawl", seed, "--allow-private", "--delay", "0", "--out", outputs.out, "--json", *options)
    ran.ended_with(0)
    assert ran.summary == outputs.summary()
    assert {key: ran.summary[key] for key in CLEAN} == CLEAN, ran

    assert_exactly_the_site(server, truth, outputs, crawler)


def assert_exactly_the_site(server: Nginx, truth: Truth, outputs: Outputs, crawler: Crawler) -> None:
    """`server` was asked for each of its URIs once, and `outputs` are what a crawl of it must leave."""
    asked = server.requests()
    assert asked.keys() == truth.requests, describe(asked.keys(), truth.requests)
    assert max(asked.values()) == 1
    assert sum(hit.uri == "/robots.txt" for hit in server.hits()) == 1

    assert_bodies_are_the_files(outputs, truth, server.url)
    assert_valid(outputs.warcs())
    indexed = parse_index(outputs.cdxj())
    independent = index_of(outputs.warcs())
    assert indexed == independent, describe(indexed, independent)
    crawler.check(outputs.out)


def assert_bodies_are_the_files(outputs: Outputs, truth: Truth, origin: str) -> None:
    """The pages are the truth's; each is archived once, as the bytes of its file."""
    html = outputs.html()
    assert html.keys() == truth.pages.keys(), describe(html.keys(), truth.pages.keys())
    archived = payloads(read_archive(outputs.warcs()))
    for path, file in truth.pages.items():
        content = file.read_bytes()
        assert archived[origin + path] == [content], path
        assert html[path]["payload_digest"] == sha1_of(content), path
        assert html[path]["bytes"] == len(content), path


def describe(found: object, wanted: object) -> str:
    """What is missing and what is too much, a few of each."""
    assert isinstance(found, set | type({}.keys()))
    assert isinstance(wanted, set | type({}.keys()))
    missing, extra = sorted(wanted - found), sorted(found - wanted)
    return f"{len(missing)} missing: {missing[:5]}, {len(extra)} too much: {extra[:5]}"
