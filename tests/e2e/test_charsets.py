"""What a site in an old charset is asked for, octet for octet."""

from __future__ import annotations

from .crawler import Crawler
from .outputs import Outputs
from .stub import Answer, StubServer

# The query of a link, and the request target; characters that the charset lacks are references.
PAGES = {
    "shift_jis": ("日本", "/s?q=%93%FA%96%7B"),
    "euc-jp": ("日本", "/s?q=%C6%FC%CB%DC"),
    "iso-2022-jp": ("日本", "/s?q=%1B%24BF%7CK%5C%1B%28B"),
    "gb2312": ("北京", "/s?q=%B1%B1%BE%A9"),
    "big5": ("台北", "/s?q=%A5x%A5_"),
    "euc-kr": ("서울", "/s?q=%BC%AD%BF%EF"),
    "windows-1251": ("Москва&#8253;", "/s?q=%CC%EE%F1%EA%E2%E0%26%238253%3B"),
    "iso-8859-1": ("café", "/s?q=caf%E9"),
    "utf-16": ("café", "/s?q=caf%C3%A9"),
}


def test_queries_are_asked_for_in_the_charset_of_the_page_that_links_there(
    stub: StubServer, crawler: Crawler, outputs: Outputs
) -> None:
    stub.page("/", *(f"/{charset}" for charset in PAGES))
    for charset, (query, _) in PAGES.items():
        body = f'<!doctype html><meta charset={charset}><a href="/s?q={query}#é">x</a>'
        octets = body.encode(charset, "xmlcharrefreplace")
        stub.answers[f"/{charset}"] = Answer(octets, headers={"Content-Type": "text/html"})
    crawler.run("crawl", f"{stub.url}/", "--allow-private", "--delay", "0", "--out", outputs.out).ended_with(0)
    assert sorted(stub.paths()) == sorted(
        ["/", *(f"/{charset}" for charset in PAGES), *{target for _, target in PAGES.values()}]
    )
    crawler.check(outputs.out)
