"""Why seeds brought nothing is told in one line each, whatever it was that refused them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest
from sim.test_hostile import Answer, ScriptedClient, page

from dhtcrawl.cli.causes import first_causes, nothing_fetched, shown
from dhtcrawl.config import load
from dhtcrawl.crawl.explain import explain
from dhtcrawl.crawl.seed_causes import seed_cause
from dhtcrawl.crawl.services import Silent
from dhtcrawl.errors import Exit
from dhtcrawl.fetch.guard import refusal
from dhtcrawl.fetch.http import FetchFailureKind
from dhtcrawl.node.single import Ports, open_node
from dhtcrawl.sim.committer import LoopCommitter
from dhtcrawl.sim.keys import SimKey
from dhtcrawl.sim.loop import VirtualClock
from dhtcrawl.spec import make_spec
from dhtcrawl.storage.outputs.outputs import OutputDirs
from dhtcrawl.storage.outputs.summary import Summary
from dhtcrawl.storage.store.memory import MemoryEngine

SEED = "http://a.test/"
KEY = SimKey(b"n" * 20)


async def told(answer: Callable[[str], Answer], *seeds: str, **settings: object) -> tuple[Summary, Exit, str, str]:
    """A crawl's summary and exit code, the error for a crawl without content, and the lines of its seeds."""
    config = load(flags={key.replace("__", "."): value for key, value in settings.items()})

    async def offload(function: Callable[[], Any]) -> Any:
        return function()

    async def never() -> bool:
        return False

    clock = VirtualClock(asyncio.get_running_loop())
    client = ScriptedClient(answer, clock, 0.05)
    ports = Ports(clock, Random(1), client, MemoryEngine(), LoopCommitter, offload, offload, KEY, Silent())
    async with open_node(config, ports) as node:
        record = await node.create_crawl(make_spec(seeds or [SEED], config.crawl))
        running = await node.prepare(record, OutputDirs.in_memory(), disk_used=never)
        summary, code = await running.run()

        async def ask(url: str) -> dict[str, Any]:
            return await node.committer.submit(partial(explain, crawl=record, url=url))

        error = await nothing_fetched(record.spec.seeds, ask, pages=summary.pages)
        lines = "\n".join(await first_causes(record.spec.seeds, ask))
    return summary, code, str(error), lines


def answering(status: int, **headers: str) -> Callable[[str], Answer]:
    """A site whose every page gives this answer, and that has no robots.txt."""
    return lambda url: (404, {}, b"") if url.endswith("robots.txt") else (status, headers, b"refused")


@pytest.mark.parametrize(
    ("status", "cause", "remedy"),
    [
        (401, "answers 401 (Unauthorized)", "wants a login"),
        (403, "answers 403 (Forbidden)", "ask its owner"),
        (404, "answers 404 (Not Found)", "check the address"),
        (410, "answers 410 (Gone)", "check the address"),
        (418, "answers 418 (I'm a Teapot)", ""),
        (429, "answers 429 (Too Many Requests)", "a longer --delay"),
        (500, "answers 500 (Internal Server Error)", "try again later"),
        (503, "answers 503 (Service Unavailable)", "try again later"),
        (599, "answers 599", "try again later"),
        (304, "answers 304 (Not Modified)", ""),
    ],
)
async def test_a_seed_that_answers_with_an_error_is_told_with_its_status(status: int, cause: str, remedy: str) -> None:
    summary, code, error, _ = await told(answering(status))
    assert (code, summary.complete, summary.pages, summary.pages_ok) == (Exit.NOTHING_FETCHED, True, 1, 0)
    assert error.startswith(f"nothing but redirects and errors was fetched: {SEED}: {cause}")
    assert remedy in error


async def test_a_seed_that_lists_choices_leads_not_back_to_itself() -> None:
    choices = (300, *page()[1:])
    _, _, error, _ = await told(lambda url: choices if url == SEED else (404, {}, b""))
    assert error.startswith(f"nothing but redirects and errors was fetched: {SEED}: answers 300 (Multiple Choices)")
    assert "itself" not in error


@pytest.mark.parametrize("kind", [FetchFailureKind.DNS, FetchFailureKind.CONNECT, FetchFailureKind.TIMEOUT])
async def test_a_seed_without_an_answer_is_told_with_its_failure(kind: FetchFailureKind) -> None:
    summary, code, error, _ = await told(lambda url: kind)
    assert (code, summary.pages, summary.errors_by_kind) == (Exit.NOTHING_FETCHED, 0, {str(kind): 1})
    assert error.startswith(f"nothing was fetched: {SEED}: {kind}: as scripted")
    assert "check the address, and whether the site is up" in error


async def test_a_seed_at_a_private_address_is_told_with_the_option_for_it() -> None:
    _, code, error, _ = await told(lambda url: FetchFailureKind.PRIVATE_ADDRESS)
    assert code is Exit.NOTHING_FETCHED
    assert "private-address: as scripted; if it is yours, use --allow-private" in error


async def test_a_redirect_to_a_private_address_is_told_with_the_option_that_allows_it() -> None:
    there, private = (302, {"Location": "http://10.0.0.1/home"}, b""), FetchFailureKind.PRIVATE_ADDRESS
    nothing: Answer = (404, {}, b"")
    _, _, error, _ = await told(lambda url: there if url == SEED else nothing if SEED in url else private)
    assert f"{SEED}: redirects to http://10.0.0.1/home: private-address: as scripted" in error
    assert "if it is yours, name it as a seed, too, with --allow-private" in error


async def test_a_seed_that_only_the_node_refuses_is_told_with_the_option_of_the_node() -> None:
    cause = {
        "state": "dead",
        "reason": "private-address",
        "detail": refusal("a.test", "10.0.0.1", frozenset({"a.test"})),
    }

    async def ask(url: str) -> dict[str, str]:
        return {"url": url, **cause}

    told_as = await seed_cause(SEED, ask)
    assert told_as.startswith("a.test is at 10.0.0.1, which the crawl allows, but not the node that was to fetch it")
    assert told_as.endswith("start that node, and others that may get it, with join --allow-network")


async def test_a_seed_that_robots_txt_forbids_is_told_as_that() -> None:
    rules: Answer = (200, {"Content-Type": "text/plain"}, b"User-agent: *\nDisallow: /")
    _, code, error, _ = await told(lambda url: rules if url.endswith("robots.txt") else page())
    assert code is Exit.NOTHING_FETCHED
    assert f"{SEED}: robots.txt disallows it; ask the site's owner" in error


async def test_a_redirect_to_itself_is_told_as_what_sites_do_that_want_a_cookie() -> None:
    summary, code, error, _ = await told(answering(302, Location="/"))
    assert (code, summary.redirects) == (Exit.NOTHING_FETCHED, 1)
    assert f"{SEED}: answers 302 (Found) and leads back to itself; sites that want a cookie do that" in error


async def test_a_circle_of_redirects_is_told_with_its_way() -> None:
    def answer(url: str) -> Answer:
        after = {SEED: "/b", "http://a.test/b": "http://c.test/", "http://c.test/": "http://a.test/b"}
        return (301, {"Location": after[url]}, b"") if url in after else (404, {}, b"")

    _, code, error, _ = await told(answer)
    assert code is Exit.NOTHING_FETCHED
    assert f"{SEED}: redirects in a circle: http://a.test/b > http://c.test/ > http://a.test/b; sites" in error


async def test_a_redirect_is_told_with_what_it_ends_at() -> None:
    def answer(url: str) -> Answer:
        return (302, {"Location": "http://b.test/login"}, b"") if url == SEED else (403, {}, b"")

    _, code, error, _ = await told(answer)
    assert code is Exit.NOTHING_FETCHED
    assert f"{SEED}: redirects to http://b.test/login: answers 403 (Forbidden); the site refuses" in error


async def test_a_redirect_whose_body_broke_off_is_told_with_what_it_ends_at() -> None:
    cut = {"state": "done", "status": 302, "final_url": f"{SEED}x", "error": "truncated: disconnect"}
    steps = {SEED: cut, f"{SEED}x": {"state": "done", "status": 404, "final_url": f"{SEED}x", "error": None}}

    async def ask(url: str) -> dict[str, Any]:
        return {"url": url, **steps[url]}

    assert (await seed_cause(SEED, ask)).startswith(f"redirects to {SEED}x: answers 404 (Not Found)")


async def test_a_redirect_that_the_crawl_does_not_follow_is_told_with_the_reason() -> None:
    def answer(url: str) -> Answer:
        number = int(url.rpartition("/")[2] or 0) if not url.endswith("robots.txt") else 0
        return (302, {"Location": f"/{number + 1}"}, b"") if not url.endswith("robots.txt") else (404, {}, b"")

    _, code, error, _ = await told(answer, fetch__redirects_max=2)
    assert code is Exit.NOTHING_FETCHED
    assert f"{SEED}: redirects to http://a.test/3: it comes after too many redirects in a row" in error


@pytest.mark.parametrize("headers", [{}, {"Location": "mailto:me@a.test"}])
async def test_a_redirect_without_a_target_is_told_as_that(headers: dict[str, str]) -> None:
    _, code, error, _ = await told(answering(302, **headers))
    assert code is Exit.NOTHING_FETCHED
    assert f"{SEED}: answers 302 (Found), redirects nowhere" in error


async def test_the_first_three_seeds_are_told_and_the_others_counted() -> None:
    seeds = [f"http://a.test/{number}" for number in range(5)]
    _, _, error, _ = await told(answering(403), *seeds)
    assert [seed in error for seed in seeds] == [True, True, True, False, False]
    assert error.endswith("(and 2 more seeds)")
    assert "\n" not in error


async def test_where_some_seeds_brought_content_the_others_are_told() -> None:
    bad = [f"http://a.test/bad/{number}" for number in range(4)]

    def answer(url: str) -> Answer:
        return page() if url == SEED else answering(404)(url)

    summary, code, _, lines = await told(answer, bad[0], SEED, *bad[1:])
    assert (code, summary.pages_ok, summary.errors_by_kind) == (Exit.COMPLETE, 1, {"404": 4})
    assert lines.splitlines() == [f"{url}: answers 404 (Not Found); check the address" for url in bad[:3]]


async def test_a_page_that_came_whole_is_not_told_and_one_that_did_not_is() -> None:
    def answer(url: str) -> Answer:
        if url == "http://a.test/odd":
            return 200, {"Content-Type": "text/html", "Content-Encoding": "gzip"}, b"this is no gzip"
        return page() if url == SEED else answering(404)(url)

    _, code, _, lines = await told(answer, SEED, "http://a.test/odd")
    assert code is Exit.COMPLETE
    assert lines.startswith("http://a.test/odd: ")
    assert "gzip" in lines


async def test_a_seed_that_was_not_asked_for_is_not_told() -> None:
    _, code, _, lines = await told(
        answering(200), *(f"http://a.test/{number}" for number in range(9)), crawl__max_pages=1
    )
    assert (code, lines) == (Exit.PAGE_LIMIT, "")


async def test_a_node_that_cannot_say_is_told_as_that() -> None:
    async def ask(url: str) -> dict[str, str]:
        return {"url": url, "state": "untold", "detail": "the owner does not answer\x1b[2J"}

    assert await first_causes([SEED], ask) == [f"{SEED}: cannot be told now: the owner does not answer?[2J"]


async def test_a_crawl_without_content_has_failed_whatever_else_it_brought() -> None:
    def answer(url: str) -> Answer:
        return (302, {"Location": "/b"}, b"") if url == SEED else answering(404)(url)

    summary, code, _, _ = await told(answer)
    assert (summary.pages, summary.redirects, summary.errors, code) == (2, 1, 1, Exit.NOTHING_FETCHED)


async def test_an_error_page_that_leads_to_content_nowhere_does_not_hide_a_page_with_content() -> None:
    """One page with content is enough, on the way of a redirect, too."""

    def answer(url: str) -> Answer:
        return (302, {"Location": "/b"}, b"") if url == SEED else page() if url == "http://a.test/b" else (404, {}, b"")

    summary, code, _, lines = await told(answer)
    assert (summary.pages_ok, code, lines) == (1, Exit.COMPLETE, "")


def test_lines_of_seeds_fit_into_80_columns() -> None:
    text = shown(["http://a.test/: answers 403 (Forbidden); " + "some more words " * 9])
    assert text.startswith("\n  seed       http://a.test/: answers 403")
    assert max(map(len, text.splitlines())) <= 79
    assert shown([]) == ""
