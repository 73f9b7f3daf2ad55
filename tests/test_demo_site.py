"""The bundled demo site says the truth about itself."""

from __future__ import annotations

import gzip
import re
import sys
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from urllib.parse import urljoin, urlsplit

import pytest
from demo_site import DemoServer, Site, build, expected, main, serve
from selectolax.lexbor import LexborHTMLParser

from dhtcrawl.url import canonicalize

DISALLOWED = ("/private/", "/calendar/")


@pytest.fixture(scope="module")
def site() -> Site:
    return build()


@pytest.fixture
def server(site: Site) -> Iterator[DemoServer]:
    with serve(site) as running:
        yield running


def test_the_same_seed_makes_the_same_site(site: Site) -> None:
    assert build(1).pages == site.pages
    assert build(2).pages != site.pages


def test_it_is_small_but_has_every_trouble(site: Site) -> None:
    outcome = expected(site)
    assert len(outcome["html"]) == 115
    assert {name: len(paths) for name, paths in outcome.items() if name != "html"} == {
        "other": 2,
        "redirects": 17,
        "errors": 9,
        "robots": 2,
        "external": 1,
    }


def test_what_nothing_leads_to_is_not_expected(site: Site) -> None:
    every_path = set().union(*expected(site).values())
    assert {"/orphan.html", "/links/never.html"} <= site.pages.keys() - every_path


def test_a_plain_walk_over_the_served_pages_meets_what_is_expected(site: Site, server: DemoServer) -> None:
    assert _walk(server.url) == expected(site)
    assert not [path for path in server.hits if path.startswith(DISALLOWED)]


def test_the_calendar_never_ends(site: Site) -> None:
    path, seen = "/calendar/2026/1", set()
    for _ in range(500):
        seen.add(path)
        path = site.page(path).links[-1]
    assert len(seen) == 500


@pytest.mark.parametrize(
    "path", ["/calendar/", "/calendar/x/1", "/calendar/2026/13", "/calendar/-1/1", "/%ff", "/nope"]
)
def test_an_address_that_means_nothing_is_not_found(site: Site, path: str) -> None:
    assert site.page(path).status == 404


def test_the_busy_page_answers_the_second_request(server: DemoServer) -> None:
    first, second = _get(server.url + "busy.html"), _get(server.url + "busy.html")
    assert (first[0].status, first[0].headers["Retry-After"], second[0].status) == (503, "1", 200)
    assert server.hits == {"/busy.html": 2}


@pytest.mark.parametrize("name", ["latin-1", "shift-jis", "utf-16"])
def test_every_charset_round_trips(site: Site, name: str) -> None:
    page = site.page(f"/encodings/{name}.html")
    assert f"<title>{page.title}</title>" in _decoded(page.content_type, page.body)
    assert not page.title.isascii()


def test_the_big_page_is_two_megabytes_and_its_only_link_stands_last(site: Site) -> None:
    body = site.page("/big.html").body
    assert len(body) > 2_000_000
    assert body.index(b"/after-the-big-page.html") > 2_000_000


# --- a crawler of thirty lines, to check the declarations against the bytes ---


def _walk(start: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {
        name: set() for name in ("html", "other", "redirects", "errors", "robots", "external")
    }
    origin = start.rstrip("/")
    queue = [start]
    seen = {start}
    while queue:
        url = queue.pop()
        path = urlsplit(url).path
        if not url.startswith(origin):
            found["external"].add(url)
            continue
        if path.startswith(DISALLOWED):
            found["robots"].add(path)
            continue
        response, body = _get(url)
        if response.status == 503:
            response, body = _get(url)
        is_html = response.headers["Content-Type"].startswith("text/html")
        kind = {2: "html" if is_html else "other", 3: "redirects", 4: "errors"}[response.status // 100]
        found[kind].add(path)
        hrefs = list(_hrefs(response, body)) if is_html else [response.headers["Location"] or ""]
        links = {canonicalize(urljoin(base, href)) for base, href in _based(url, hrefs)}
        new = {link for link in links if link is not None} - seen
        seen |= new
        queue.extend(new)
    return found


def _based(url: str, hrefs: list[str]) -> Iterator[tuple[str, str]]:
    base = url
    for href in hrefs:
        if href.startswith("base:"):
            base = urljoin(url, href.removeprefix("base:"))
        elif href and "[" not in href:
            yield base, href


def _hrefs(response: HTTPResponse, body: bytes) -> Iterator[str]:
    """`base:` first where the page has one, then every link to follow."""
    if response.headers["Content-Encoding"] == "gzip":
        body = gzip.decompress(body)
    tree = LexborHTMLParser(_decoded(response.headers["Content-Type"], body))
    if tree.css_first('meta[name="robots"][content~="nofollow"]'):
        return
    for node in tree.css("base[href]"):
        yield "base:" + (node.attributes["href"] or "")
    for node in tree.css("a[href], area[href]"):
        if "nofollow" not in (node.attributes.get("rel") or ""):
            yield node.attributes["href"] or ""
    for node in tree.css("iframe[src]"):
        yield node.attributes["src"] or ""
    for node in tree.css('meta[http-equiv="refresh"]'):
        yield (node.attributes["content"] or "").partition("url=")[2]


def _decoded(content_type: str, body: bytes) -> str:
    if body.startswith((b"\xff\xfe", b"\xfe\xff")):
        return body.decode("utf-16")
    named = re.search(r"charset=([\w-]+)", content_type) or re.search(rb'charset="([\w-]+)"', body[:1024])
    charset = named[1] if named else "utf-8"
    return body.decode(charset if isinstance(charset, str) else charset.decode())


def _get(url: str) -> tuple[HTTPResponse, bytes]:
    parts = urlsplit(url)
    connection = HTTPConnection(parts.netloc, timeout=10)
    try:
        connection.request("GET", parts.path)
        response = connection.getresponse()
        return response, response.read()
    finally:
        connection.close()


@pytest.mark.parametrize("port", ["taken", "70000", "-1"])
def test_a_port_that_cannot_be_listened_on_is_told(
    port: str, server: DemoServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = str(server.server_port) if port == "taken" else port
    monkeypatch.setattr(sys, "argv", ["demo_site.py", f"--port={given}"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert f"argument --port: {given} cannot be listened on" in capsys.readouterr().err
