"""The dashboard in a browser: its figures are what the nodes add up to, what is gone stays to be seen, text is text."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from web.fake import CRAWL, NODE, OTHER, FakeNode, running

from dhtcrawl.web.admin import Access

from . import browser as chrome
from .crawler import Crawler
from .deadline import until
from .stub import Answer, StubServer
from .sums import Watch, busy, of, sums
from .swarm import DEADLINE_S, Node, Swarm

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.skipif(
    chrome.CHROMIUM is None, reason="Chromium is missing: apt-get install chromium-headless-shell"
)
GONE_WITHIN_S = 10.0
ASK_EVERY_S = 0.2
LINKS = [f"/{number}" for number in range(60)]
FIGURES = {
    "pages": "pages", "queued": "queued", "in flight": "in_flight", "errors": "errors",
    "pages with content": "pages_ok", "given up": "dead", "redirects": "redirects", "requests": "fetches",
    "fetched again": "refetches", "tried again": "retried", "URLs seen": "urls_seen",
    "robots.txt read": "robots_fetches", "bytes": "body_bytes",
}  # fmt: skip

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
        swarm.start(5)
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


def settled(nodes: list[Node]) -> dict[str, int]:
    """What all nodes of a paused crawl add up to, once nothing changes any more."""
    seen: list[dict[str, int]] = [{}]

    def still() -> bool:
        seen.append(sums(nodes))
        return seen[-1] == seen[-2] and not seen[-1]["in_flight"]

    until(still, "a paused crawl stands still", DEADLINE_S, 0.5)
    return seen[-1]


def test_the_figures_of_the_page_are_the_sums_of_five_nodes_and_a_killed_one_stays(
    window: Browser, swarm: Swarm, stub: StubServer, crawler: Crawler
) -> None:
    stub.page("/", *LINKS)
    for number, path in enumerate(LINKS):
        if number % 6:
            stub.page(path)
    asked, *others, killed = swarm.nodes
    watch = Watch(swarm.nodes)
    # One server under two names is two hosts, so that two nodes can have one at the same time.
    crawl = submit(crawler, asked, stub.url + "/", f"http://localhost:{stub.port}/", "--delay", "0.4")
    url = f"http://{asked.admin}/"
    with chrome.looking(window, url, viewport={"width": 1280, "height": 900}) as page:
        page.wait_for_selector("#crawls tbody tr")
        page.keyboard.press("Tab")  # the title, then the first crawl: no mouse
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.hash") == f"#/crawl/{crawl}"
        page.keyboard.press("Enter")
        until(lambda: focus(page) == "crawl-title", "the crawl's title has the focus", DEADLINE_S, 0.05)
        until(lambda: figures(page, "figures").get("pages", 0) > 8, "pages are counted on the page", DEADLINE_S, 0.1)
        for _ in range(4):
            watch.look()
            shown = page.inner_text("#when"), figures(page, "figures")["pages"]
            until(lambda: figures(page, "figures")["pages"] != shown[1], "the figures change", DEADLINE_S)  # noqa: B023
            told_at = time.monotonic()
            told = {FIGURES[said]: int(value) for said, value in figures(page, "figures").items() if said in FIGURES}
            watch.holds(told, told_at, asked.ask(f"crawls/{crawl}")["as_of_s"])

        page.click("#pause")
        page.wait_for_selector("#crawl-state.paused")
        assert page.inner_text("#crawl-why").startswith("It is paused")
        assert page.evaluate("[document.activeElement.id, document.activeElement.innerText]") == ["pause", "Resume"]
        counters = settled(swarm.nodes)
        expected = {said: counters[name] for said, name in FIGURES.items()}
        until(lambda: figures(page, "figures").items() >= expected.items(), f"{expected}", DEADLINE_S, ASK_EVERY_S)
        assert len(rows(page, "nodes")) == 5
        for name in ("pages", "queued", "errors"):
            assert sum(int(row[name]) for row in rows(page, "nodes")) == counters[name]
        kinds = {name.removeprefix("errors_"): count for name, count in counters.items() if name.startswith("errors_")}
        assert figures(page, "errors") == kinds
        for node in (asked, *others):
            assert of(node.ask(f"crawls/{crawl}")["counters"], counters) == counters

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
        assert time.monotonic() - died_at < GONE_WITHIN_S * busy()
        assert "gone" in page.inner_text(row)
        assert len(rows(page, "nodes")) == 5
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


def test_a_node_with_a_token_is_signed_in_to_for_as_long_as_the_tab_is_open(window: Browser) -> None:
    token, refused = "a-token-that-nobody-guesses", "401"  # the browser itself says so
    with (
        running(FakeNode(), Access(token)) as admin,
        chrome.looking(window, f"http://{admin}/", unless=refused) as page,
    ):
        page.wait_for_selector("#token")
        assert (page.is_hidden("#overview"), page.is_hidden("#trouble"), page.inner_text("#link")) == (
            True,
            True,
            "locked",
        )
        assert focus(page) == "token"
        assert chrome.hurdles(page) == []
        for wrong in ("not-it-at-all-not-it-at-all", "é"):
            page.fill("#token", wrong)
            page.press("#token", "Enter")
            page.wait_for_selector("#sign-in-said:has-text('not the token of this node')")
        page.fill("#token", f" {token} ")
        page.press("#token", "Enter")
        page.wait_for_selector("#crawls tbody tr")
        assert (page.is_hidden("#sign-in"), page.inner_text("#link"), focus(page)) == (True, "live", "swarm-title")
        page.goto(f"http://{admin}/#/crawl/{CRAWL.hex()}")
        page.reload()  # at a crawl's own address, what the stream does not tell is asked for, too
        page.wait_for_selector("#nodes tbody tr")
        page.click("#pause")
        page.wait_for_selector("#done:has-text('Paused')")
        assert token not in page.content()
        assert page.evaluate("[localStorage.length, document.cookie, location.href.includes('token')]") == [
            0,
            "",
            False,
        ]


# A host, a URL, a title, the words of another node: whatever stands where text is shown.
HOSTILE = "<script>document.title='owned'</script><img src=x onerror=document.title='owned'>\"'`&lt;" + (
    "\u202edecnuob\u202c\u2066\u200f\x1b[2J\n\r" + "long" * 500
)
# Those that no one sees, or that turn a line around.
HIDDEN = (
    "[...document.body.innerText].filter(each => /[\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069\\u001b]/.test(each))"
)


class Hostile(FakeNode):
    """A node that says nonsense wherever words of other machines may stand."""

    def __init__(self) -> None:
        super().__init__()
        row = self.known[CRAWL]
        standing = {"state": "waiting", "reason": HOSTILE, "text": HOSTILE, "says": HOSTILE, "about": HOSTILE}
        row |= {"seeds": [HOSTILE], "standing": standing | {"left_s": 9.0, "for_s": None}, "counters_of": HOSTILE}
        row["spec"] = {"seeds": [HOSTILE, HOSTILE], "settings": {HOSTILE: HOSTILE, "include": [HOSTILE]}}
        row["counters"] |= {f"errors_{HOSTILE}": 3, "skipped_recalled": 1_200}
        row["waiting_for"] = [HOSTILE]
        row["counters"] |= {f"plans_{HOSTILE}": 2, "plans_net": 1}
        row["plan"] = {"epoch": 3, "model": HOSTILE, "error": HOSTILE, "samples": HOSTILE, "shares": {HOSTILE: HOSTILE}}
        share = {"counters": row["counters"], "text": HOSTILE, "heard_s": 2.0}
        row["per_node"] = [share | {"node": NODE.hex(), "state": HOSTILE}, share | {"node": HOSTILE, "state": "gone"}]
        self.hosts_told = [
            {"host": f"{number}{HOSTILE}", "state": HOSTILE, "text": HOSTILE, "says": HOSTILE, "left_s": 3.0}
            for number in range(3)
        ]
        told = {"title": HOSTILE, "detail": HOSTILE, "referrer": HOSTILE, "attempts": [HOSTILE], "state": "pending"}
        self.answers["https://example.org/"] = told | {"host": {"state": "snoozed", "text": HOSTILE}}

    async def status(self) -> dict[str, Any]:
        return await super().status() | {"address": HOSTILE, "state": HOSTILE, "version": HOSTILE}

    async def peers(self) -> list[dict[str, Any]]:
        return [each | {"address": HOSTILE, "state": HOSTILE} for each in await super().peers()]


@pytest.mark.parametrize("width", [1280, 390])
def test_whatever_other_machines_say_is_shown_as_text_and_fits(window: Browser, width: int) -> None:
    with (
        running(Hostile()) as admin,
        chrome.looking(
            window, f"http://{admin}/#/crawl/{CRAWL.hex()}", viewport={"width": width, "height": 900}
        ) as page,
    ):
        page.wait_for_selector("#nodes tbody tr:nth-child(2)")
        page.fill("#url", "https://example.org/")
        page.press("#url", "Enter")
        page.wait_for_selector("#told dl")
        for details in page.query_selector_all("details"):
            details.evaluate("each => each.open = true")
        for place in (
            "#crawl-title",
            "#crawl-why",
            "#nodes",
            "#hosts",
            "#seeds",
            "#settings",
            "#owed",
            "#errors",
            "#plan-note",
            "#told",
        ):
            assert "<script>document.title='owned'</script><img" in page.inner_text(place), place
        assert page.inner_text("#manual").endswith("dhtcrawl crawls --manual lists them")
        for view in (f"#/crawl/{CRAWL.hex()}", "#/"):
            page.goto(f"http://{admin}/{view}")
            page.wait_for_selector("#crawls tbody tr" if view == "#/" else "#nodes tbody tr", state="visible")
            assert page.evaluate(HIDDEN) == []
            assert page.evaluate("[document.images.length, document.scripts.length]") == [0, 1]
            assert "owned" not in page.title().partition("document.title")[0]
            assert page.evaluate(TOO_WIDE) == []
            assert chrome.hurdles(page) == []
            chrome.shot(page, f"hostile-{'swarm' if view == '#/' else 'crawl'}-{width}")


def test_a_crawl_shows_its_plan_and_what_made_all_of_them(window: Browser) -> None:
    node = FakeNode()
    row = node.known[CRAWL]
    with (
        running(node) as admin,
        chrome.looking(window, f"http://{admin}/#/crawl/{CRAWL.hex()}", viewport={"width": 390, "height": 844}) as page,
    ):
        page.wait_for_selector("#nodes tbody tr")
        assert page.is_hidden("#plan-card"), "a policy without plans"
        row["counters"] |= {"plans_rates": 2, "plans_net": 3, "judged_plans_net": 2, "plan_error_net": 0.1}
        row["plan"] = {
            "epoch": 5, "model": "net", "error": 0.031, "samples": 48,
            "shares": {NODE.hex(): 0.25, OTHER.hex(): 0.75},
        }  # fmt: skip
        page.wait_for_selector("#plan-note:has-text('Plan 5, by net from 48 batches; 3.1 % off')")
        assert figures(page, "plan") == {"plans by net": 3, "plans by rates": 2}
        assert page.inner_text("#plan").split("\n")[1::2] == ["3, 5.0 % off", "2, not judged"]
        assert {cells["of the plan"] for cells in rows(page, "nodes")} == {"25.0 %", "75.0 %"}
        assert page.evaluate(TOO_WIDE) == []
        assert chrome.hurdles(page) == []
        chrome.shot(page, "plan-390")
        row["plan"] = None
        page.wait_for_selector("#plan-note:has-text('no plan at this node now')")


def test_on_paper_the_figures_stand_without_what_can_be_pressed(window: Browser) -> None:
    with (
        running(FakeNode()) as admin,
        chrome.looking(window, f"http://{admin}/#/crawl/{CRAWL.hex()}", color_scheme="dark") as page,
    ):
        page.wait_for_selector("#nodes tbody tr")
        assert page.is_hidden("#manual"), "nothing is left to a person"
        page.emulate_media(media="print")
        for pressed in ("#pause", "#stop", "#ask", ".back"):
            assert page.is_hidden(pressed), pressed
        for figure in ("#figures", "#nodes", "#hosts", "#crawl-state"):
            assert page.is_visible(figure), figure
        dark = (
            "getComputedStyle(document.body).color, getComputedStyle(document.querySelector('.card')).backgroundColor"
        )
        assert page.evaluate(f"[{dark}]") == ["rgb(0, 0, 0)", "rgb(255, 255, 255)"]
        chrome.shot(page, "print")
