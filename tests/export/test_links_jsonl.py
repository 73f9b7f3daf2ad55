"""Every link that the crawl's own extraction finds is a row, with what came of its target."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from dhtcrawl.crawl.analysis import analyse
from dhtcrawl.crawl.recovery import parse_head
from dhtcrawl.export.links_jsonl import FIELDS
from dhtcrawl.fetch.links import TREE_TAGS_MAX
from dhtcrawl.storage.archive import warcread

from .made import Made, export, links, make, redirect

HOME = "http://a.example/"
PAGE = b"""<title>T</title><meta http-equiv=refresh content="5; url=/refresh">
<a href=/a rel="NoFollow  UGC">1</a> <a href=/a>2</a> <a href=/a>3</a> <a href="http://b.example/x#f">4</a>
<map><area href=area></map> <iframe src=iframe></iframe>
<link rel="Stylesheet Preload" href=s.css> <script src=s.js>"<img src=no>"</script> <img src=i.png> <img src="data:,x">
<svg><script src=t.js /><image href=no /></svg> <a href=/after>8</a> <video src=v><source src=w></video>
<a href="mailto:a@b">5</a> <a href="ftp://a.example/f">6</a> <a name=n>7</a>"""
ROWS = [
    ("http://a.example/a", "a", "nofollow ugc"),
    ("http://a.example/a", "a", ""),
    ("http://b.example/x", "a", ""),
    ("http://a.example/area", "area", ""),
    ("http://a.example/iframe", "iframe", ""),
    ("http://a.example/after", "a", ""),
    ("ftp://a.example/f", "a", ""),
    ("http://a.example/refresh", "meta-refresh", ""),
    ("http://a.example/s.css", "link", "stylesheet preload"),
    ("http://a.example/s.js", "script", ""),
    ("http://a.example/i.png", "img", ""),
    ("http://a.example/t.js", "script", ""),
    ("http://a.example/v", "video", ""),
    ("http://a.example/w", "source", ""),
]
MANY = b"<!--" + b"<" * TREE_TAGS_MAX + b"-->"  # scanned instead of parsed


def targets(rows: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [(row["to"], row["kind"], row["rel"]) for row in rows]


@pytest.mark.parametrize("page", [PAGE, MANY + PAGE], ids=["parsed", "scanned"])
def test_every_link_is_a_row_with_its_kind_and_rel(tmp_path: Path, page: bytes) -> None:
    rows = links(make(tmp_path, [Made(HOME, page)]))
    assert targets(rows) == ROWS
    assert {row["from"] for row in rows} == {HOME}
    assert list(rows[0]) == list(FIELDS)


def test_a_frameset_leads_to_its_frames(tmp_path: Path) -> None:
    assert targets(links(make(tmp_path, [Made(HOME, b"<frameset><frame src=f></frameset>")]))) == [
        ("http://a.example/f", "frame", "")
    ]


def test_what_a_template_has_counts_but_not_for_the_page(tmp_path: Path) -> None:
    page = b'<template><base href="/no/"><a href=a></a><img src=i></template><img src=j>'
    assert targets(links(make(tmp_path, [Made(HOME, page)]))) == [
        ("http://a.example/a", "a", ""),
        ("http://a.example/i", "img", ""),
        ("http://a.example/j", "img", ""),
    ]


def test_links_are_relative_to_the_base_of_the_page(tmp_path: Path) -> None:
    rows = links(make(tmp_path, [Made(HOME, b'<base href="/deep/"><a href=x>')]))
    assert targets(rows) == [("http://a.example/deep/x", "a", "")]


def test_a_compressed_page_and_xhtml_are_read_as_the_crawl_reads_them(tmp_path: Path) -> None:
    coded = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: gzip\r\n\r\n"
    xml = b"HTTP/1.1 200 OK\r\nContent-Type: application/xhtml+xml\r\n\r\n"
    pages = [
        Made(HOME, gzip.compress(b"<a href=/coded>"), head=coded),
        Made(
            HOME + "x", b'<script src="s"/><a href="/x"/>', head=xml, fields={"content_type": "application/xhtml+xml"}
        ),
    ]
    assert targets(links(make(tmp_path, pages))) == [
        (HOME + "coded", "a", ""),
        (HOME + "x", "a", ""),
        (HOME + "s", "script", ""),
    ]


def test_what_a_sitemap_lists_is_a_link(tmp_path: Path) -> None:
    page = b"<urlset><url><loc>http://a.example/x</loc></url><url><loc>http://b.example/</loc></url></urlset>"
    fields = {"charset": None, "title": None}
    xml = b"HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\n\r\n"
    packed = b"HTTP/1.1 200 OK\r\nContent-Type: application/gzip\r\n\r\n"
    pages = [
        Made(HOME + "s", page, head=xml, fields=fields | {"content_type": "application/xml"}),
        Made(HOME + "t.xml.gz", gzip.compress(page), head=packed, fields=fields | {"content_type": "application/gzip"}),
        Made(HOME + "t.gz", gzip.compress(page), head=packed, fields=fields | {"content_type": "application/gzip"}),
    ]
    listed = [(HOME + "x", "loc", ""), ("http://b.example/", "loc", "")]
    assert targets(links(make(tmp_path, pages))) == [*listed, *listed]


def test_xhtml_that_is_served_as_xml_has_links_as_in_the_crawl(tmp_path: Path) -> None:
    xml = b"HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\n\r\n"
    page = b'<html xmlns="http://www.w3.org/1999/xhtml"><a href="/x"/></html>'
    pages = [
        Made(HOME, page, head=xml, fields={"content_type": "application/xml", "charset": "utf-8"}),
        Made(HOME + "feed", b"<rss/>", head=xml, fields={"content_type": "application/xml", "charset": None}),
    ]
    assert targets(links(make(tmp_path, pages))) == [(HOME + "x", "a", "")]


def test_a_redirect_is_a_link_of_its_own_kind(tmp_path: Path) -> None:
    rows = links(make(tmp_path, [redirect(HOME, "/new"), redirect(HOME + "2", "mailto:x")]))
    assert targets(rows) == [("http://a.example/new", "redirect", ""), ("mailto:x", "redirect", "")]


def test_what_came_of_a_target_stands_beside_it(tmp_path: Path) -> None:
    page = b"<a href=/gone>1</a><a href=/down>2</a><a href=/queued>3</a>"
    skipped = [{"url": HOME + "down", "reason": "failed", "detail": "dns"}]
    rows = links(make(tmp_path, [Made(HOME, page), Made(HOME + "gone", status=404)], skipped=skipped))
    assert [(row["status"], row["reason"]) for row in rows] == [(404, None), (None, "failed"), (None, None)]


def test_what_is_no_html_or_an_error_has_no_links(tmp_path: Path) -> None:
    plain = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n"
    pages = [
        Made(HOME, b"<a href=x>", head=plain, fields={"content_type": "text/plain"}),
        Made(HOME + "e", b"<a href=x>", status=404),
    ]
    assert links(make(tmp_path, pages)) == []


@pytest.mark.parametrize("page", [PAGE, MANY + PAGE], ids=["parsed", "scanned"])
def test_the_rows_of_a_page_are_the_links_that_the_crawl_found(tmp_path: Path, page: bytes) -> None:
    """The same extraction: whatever `analyse` finds, and of what a crawl follows nothing that it does not."""
    root = make(tmp_path, [Made(HOME, page)])
    found = analyse(HOME, 200, parse_head(Made(HOME).head), page, html_bytes_max=1 << 20)
    rows = {row["to"] for row in links(root) if row["kind"] in ("a", "area", "frame", "iframe", "meta-refresh")}
    assert {href.partition("#")[0].rpartition("/")[2] for href in found.hrefs + found.nofollow} == {
        to.rpartition("/")[2] for to in rows
    }


def test_of_a_large_record_the_beginning_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warcread, "RECORD_BYTES_MAX", 1_000)  # of what is held in memory as a whole
    root = make(tmp_path, [Made(HOME, b"<a href=/1>" + b" " * 2_000)])
    content, report = export(root, "links")
    assert b'"to":"http://a.example/1"' in content
    assert report.problems == []


def test_a_damaged_record_is_named_and_the_other_pages_are_there(tmp_path: Path) -> None:
    root = make(tmp_path, [Made(HOME, b"<a href=/1>" * 99), Made(HOME + "2", b"<a href=/2>")])
    archive = root / "archive/a.warc.gz"
    data = bytearray(archive.read_bytes())
    data[600] ^= 0xFF
    archive.write_bytes(data)
    content, report = export(root, "links")
    assert b'"to":"http://a.example/2"' in content
    assert report.problems_total == 1
    assert "is damaged" in report.problems[0]
