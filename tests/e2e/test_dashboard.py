"""The dashboard in a browser, over a real swarm: its figures are the API's, and what is gone stays to be seen."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from . import browser as chrome
from .crawler import Crawler
from .deadline import until
from .stub import Answer, StubServer
from .swarm import DEADLINE_S, Node, Swarm

pytestmark = pytest.mark.skipif(
    chrome.CHROMIUM is None, reason="Chromium is missing: apt-get install chromium-headless-shell"
)
GONE_WITHIN_S = 10.0
ASK_EVERY_S = 0.2
LINKS = [f"/{number}" for number in range(60)]
FIGURES = {"pages": "pages", "queued": "queued", "errors": "errors", "requests": "fetches", "URLs seen": "urls_seen"}

# What sticks out of the window, if anything does.
TOO_WIDE = """document.documentElement.scrollWidth <= innerWidth ? [] : [...document.querySelectorAll("*")].filter(
    each => each.getBoundingClientRect().right > innerWidth || each.scrollWidth > innerWidth
).map(each => each.cloneNode(false).outerHTML + each.scrollWidth + " " + each.textContent.slice(0, 80))"""


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with chrome.chromium() as browser:
        yield browser


@pytest.fixture
def swarm(tmp_path: Path) -> Iterator[Swarm]:
    with Swarm(tmp_path / "swarm") as swarm:
        swarm.start(3)
        swarm.meet()
        yield swarm
        swarm.check()


def submit(crawler: Crawler, node: Node, *options: str) -> str:
    crawler.run("submit", *options, "--allow-private", "--admin", node.admin).ended_with(0)
    (row,) = node.ask("crawls")
    return str(row["crawl"])


def figures(page: Page, list_id: str) -> dict[str, float]:
    """Those on the page, by what stands over them."""
    pairs = page.eval_on_selector_all(
        f"#{list_id} dd[data-value]", "all => all.map(dd => [dd.previousSibling.textContent, +dd.dataset.value])"
    )
    return dict(pairs)


def rows(page: Page, table_id: str) -> list[dict[str, str]]:
    """The cells of a table by the heads of their columns."""
    told: list[dict[str, str]] = page.eval_on_selector_all(
        f"#{table_id} tbody tr",
        "all => all.map(row => Object.fromEntries([...row.cells].map(cell => [cell.dataset.name, cell.innerText])))",
    )
    return told


def focus(page: Page) -> str:
    """The id of the element that has it."""
    return str(page.evaluate("document.activeElement.id"))


def settled(node: Node, crawl: str) -> dict[str, Any]:
    """How a paused crawl stands, once nothing changes any more."""
    before: list[dict[str, Any]] = [{}]

    def still() -> bool:
        now = node.ask(f"crawls/{crawl}")["counters"]
        same = before[-1].items() >= {name: now[name] for name in FIGURES.values()}.items() and not now["in_flight"]
        before.append(now)
        return same

    until(still, "a paused crawl stands still", DEADLINE_S, 1.5)
    answer: dict[str, Any] = node.ask(f"crawls/{crawl}")
    return answer


def test_the_figures_of_the_page_are_the_apis_and_a_killed_node_stays(
    window: Browser, swarm: Swarm, stub: StubServer, crawler: Crawler
) -> None:
    stub.page("/", *LINKS)
    for number, path in enumerate(LINKS):
        if number % 6:
            stub.page(path)
    asked, other, killed = swarm.nodes
    # One server under two names is two hosts, so that two nodes can have one at the same time.
    crawl = submit(crawler, asked, stub.url + "/", f"http://localhost:{stub.port}/", "--delay", "0.1")
    url = f"http://{asked.admin}/"
    with chrome.looking(window, url, viewport={"width": 1280, "height": 900}) as page:
        page.wait_for_selector("#crawls tbody tr")
        page.keyboard.press("Tab")  # the title, then the first crawl: no mouse
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.hash") == f"#/crawl/{crawl}"
        page.keyboard.press("Enter")
        until(lambda: focus(page) == "crawl-title", "the crawl's title has the focus", DEADLINE_S, 0.05)
        until(lambda: figures(page, "figures").get("pages", 0) > 8, "pages are counted on the page", DEADLINE_S, 0.1)

        page.click("#pause")
        page.wait_for_selector("#crawl-state.paused")
        assert page.inner_text("#crawl-why").startswith("It is paused")
        assert page.evaluate("[document.activeElement.id, document.activeElement.innerText]") == ["pause", "Resume"]
        for node in (asked, other):
            counters = settled(node, crawl)["counters"]
            expected = {said: counters[name] for said, name in FIGURES.items()}
            until(lambda: figures(page, "figures").items() >= expected.items(), f"{expected}", DEADLINE_S, ASK_EVERY_S)  # noqa: B023
        assert len(rows(page, "nodes")) == 3
        assert sum(int(row["pages"]) for row in rows(page, "nodes")) == counters["pages"]
        kinds = {name.removeprefix("errors_"): count for name, count in counters.items() if name.startswith("errors_")}
        assert figures(page, "errors") == kinds

        page.fill("#url", f"{stub.url}/1")
        page.keyboard.press("Enter")
        page.wait_for_selector("#told dl")
        (told,) = asked.ask(f"why?crawl={crawl}&url={stub.url}/1")
        assert page.inner_text("#told p") == f"{stub.url}/1 {told['story'][0]}"

        assert chrome.hurdles(page) == []
        chrome.shot(page, "crawl-1280")

        killed.kill()
        died_at = time.monotonic()
        row = f"#nodes tbody tr:has-text('{killed.id[:12]}')"
        page.wait_for_selector(f"{row} .gone")
        # Nine seconds pass on a machine that does nothing else; where more wants to run than can, all takes longer.
        busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        assert time.monotonic() - died_at < GONE_WITHIN_S * busy
        assert "gone" in page.inner_text(row)
        assert len(rows(page, "nodes")) == 3
        chrome.shot(page, "gone-1280")
        page.click(".back a")
        page.wait_for_selector(f"#peers tbody tr:has-text('{killed.id[:12]}') .gone")
        assert chrome.hurdles(page) == []
        chrome.shot(page, "swarm-1280")

    phone: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "reduced_motion": "reduce"}
    dark: dict[str, Any] = {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"}
    for name, options in (("390", phone), ("dark", dark)):
        with chrome.looking(window, f"{url}#/crawl/{crawl}", **options) as page:
            page.wait_for_selector("#nodes tbody tr")
            assert page.evaluate(TOO_WIDE) == []
            assert chrome.hurdles(page) == []
            chrome.shot(page, f"crawl-{name}")
            page.goto(f"{url}#/")
            page.wait_for_selector("#crawls tbody tr")
            assert chrome.hurdles(page) == []
            chrome.shot(page, f"swarm-{name}")
            if name == "dark":
                page.goto(f"{url}#/crawl/{crawl}")
                page.click("#stop")
                page.click("#no")
                until(lambda: focus(page) == "stop", "the button has the focus again", DEADLINE_S, 0.05)
                assert asked.ask(f"crawls/{crawl}")["state"] == "paused"
                page.click("#stop")
                page.click("#yes")
                page.wait_for_selector("#crawl-state.stopped, #crawl-state.stopping")
                until(
                    lambda: asked.ask(f"crawls/{crawl}")["ended"] == "stopped", "it is stopped", DEADLINE_S, ASK_EVERY_S
                )


def test_a_page_says_since_when_it_has_no_connection_and_goes_on_after_it(
    window: Browser, tmp_path: Path, stub: StubServer, crawler: Crawler
) -> None:
    stub.page("/", *LINKS)
    stub.answers |= dict.fromkeys(LINKS, Answer(status=429, headers={"Retry-After": "600"}))
    with Swarm(tmp_path / "swarm") as swarm:
        (node,) = swarm.start(1)
        submit(crawler, node, stub.url + "/", "--delay", "0")
        refused = "net::ERR_"  # the browser itself says so
        with chrome.looking(window, f"http://{node.admin}/", unless=refused) as page:
            page.wait_for_selector("#crawls .waiting")
            assert "asked for a pause (429), " in page.inner_text("#crawls .why")
            node.terminate()
            page.wait_for_selector("#trouble:has-text('No connection to the node since')")
            assert page.inner_text("#link") == "lost"
            assert page.is_visible("#crawls tbody tr"), "what was known stays"
            node.start().ready()
            page.wait_for_selector("#link.live")
            assert page.is_hidden("#trouble")
