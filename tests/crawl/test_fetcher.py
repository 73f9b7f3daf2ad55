"""One request, and what follows from its outcome: for the page, for its host, and for whoever else may try."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dhtcrawl.config import Config, FetchSettings
from dhtcrawl.crawl.fetcher import INLINE_BYTES_MAX, Fetcher
from dhtcrawl.fetch.host_access import LeaseLost, RobotsAnswer, RobotsKnown, UnleasedHosts
from dhtcrawl.fetch.http import FetchFailureKind, Truncated
from dhtcrawl.fetch.robots import DISALLOW_ALL, Robots, RobotsVerdict
from dhtcrawl.policy.seam import TaskResult
from dhtcrawl.spec import CrawlSpec
from dhtcrawl.storage.outputs.outputs import page_line
from dhtcrawl.storage.store.records import SkipReason

from .fetch_world import SEED, Answer, SmallWeb

HTML = {"content-type": "text/html"}
HOST = "a.example"


def fetcher_of(world: SmallWeb) -> Fetcher:
    world.parts.robots.put("http://a.example", Robots.parse(b""))
    return Fetcher(world.services, world.spec, world.parts, world.assignment)


async def after(answer: Answer, times: int = 1) -> SmallWeb:
    """What is so when the seed was asked for and said this."""
    world = SmallWeb({SEED: answer})
    fetcher = fetcher_of(world)
    world.add(SEED)
    for _ in range(times):
        await fetcher.run(await world.next())
    return world


async def test_a_page_is_handed_in_with_its_links() -> None:
    world = await after((200, HTML, b'<a href="/x">x</a>'))
    page = world.handed_in().fetched[0].page
    assert page is not None
    assert (page.fields["url"], page.fields["status"]) == (SEED, 200)
    assert [link.url for link in world.parts.next_round.outbox.take(10)] == ["http://a.example/x"]
    assert [given.result for given in world.assignment.told] == [TaskResult.PAGE]
    assert world.parts.counters.fetches == 1
    assert world.frontier.in_flight == 0


@pytest.mark.parametrize("by_header", [False, True])
async def test_a_site_may_tell_this_crawler_by_its_own_name_to_follow_no_link(*, by_header: bool) -> None:
    for token, links in (("MyBot", []), ("dhtcrawl", [f"{SEED}x"])):
        said = {"x-robots-tag": f"{token}: nofollow"} if by_header else {}
        meta = "" if by_header else f"<meta name={token} content=nofollow>"
        world = SmallWeb({SEED: (200, HTML | said, f"{meta}<a href=/x>".encode())}, user_agent="MyBot/2 (test)")
        fetcher = fetcher_of(world)
        world.add(SEED)
        await fetcher.run(await world.next())
        assert [link.url for link in world.parts.next_round.outbox.take(10)] == links, token


async def test_a_page_that_is_too_long_to_be_read_for_links_says_so() -> None:
    size = FetchSettings().html_bytes_max
    for more, error in ((0, None), (1, f"only the first {size} bytes (fetch.html_bytes_max) were read for links")):
        world = await after((200, HTML, b"<a href=/x>".ljust(size + more)))
        page = world.handed_in().fetched[0].page
        assert page is not None
        assert (page.fields["error"], page.fields["bytes"]) == (error, size + more)


@pytest.mark.parametrize("more", [0, 1])
async def test_a_page_that_is_long_once_it_is_decoded_is_read_off_the_loop(more: int) -> None:
    content = gzip.compress(b"<a href=/x>".ljust(INLINE_BYTES_MAX + more))
    world = SmallWeb({SEED: (200, HTML | {"content-encoding": "gzip"}, content)})
    fetcher_of(world)
    aside = list[Callable[[], Any]]()

    async def offload(function: Callable[[], Any]) -> Any:
        aside.append(function)
        return function()

    services = world.services._replace(offload=offload)
    world.add(SEED)
    await Fetcher(services, world.spec, world.parts, world.assignment).run(await world.next())
    assert len(aside) == more
    page = world.handed_in().fetched[0].page
    assert page is not None
    assert (page.fields["bytes"], page.fields["error"]) == (len(content), None)
    assert [link.url for link in world.parts.next_round.outbox.take(10)] == ["http://a.example/x"]


async def test_what_the_seeds_allow_is_found_once_however_many_pages_come(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = list[CrawlSpec]()

    def private_hosts(spec: CrawlSpec) -> frozenset[str]:
        looked.append(spec)
        return frozenset({HOST})

    monkeypatch.setattr(CrawlSpec, "private_hosts", property(private_hosts))
    world = SmallWeb({f"{SEED}{number}": (200, HTML, b"") for number in range(3)}, allow_private=True)
    fetcher = fetcher_of(world)
    before = len(looked)
    assert before, "once at least"
    for number in range(3):
        world.add(f"{SEED}{number}")
        await fetcher.run(await world.next())
    assert len(world.asked) == 3
    assert len(looked) == before


async def test_a_page_record_says_in_which_charset_queries_are_where_that_matters() -> None:
    latin = {"content-type": "text/html; charset=iso-8859-1"}
    for body, charset in (("<a href=?é>", "windows-1252"), ("<a href=/é?e>", None)):
        world = await after((200, latin, body.encode("latin-1")))
        page = world.handed_in().fetched[0].page
        assert page is not None
        assert page.fields.get("query_charset") == charset
        assert "query_charset" not in json.loads(page_line(page.fields)), "is for the crawl only"


async def test_an_answer_that_says_not_now_leaves_its_host_alone_and_is_kept_the_last_time() -> None:
    busy: Answer = (503, {"retry-after": "7"}, b"")
    world = await after(busy)
    assert world.handed_in().fetched == []
    assert world.services.hosts.clock(HOST).hold_until == world.clock.monotonic() + 7
    last = (await after(busy, times=2)).handed_in()
    assert [fetched.page.fields["status"] for fetched in last.fetched if fetched.page] == [503]
    assert last.owed == {HOST: 7.0}, "a restart waits, too"


async def test_a_redirect_whose_body_breaks_off_leads_on_at_once_and_any_other_body_is_asked_for_again() -> None:
    for status, headers, links in ((302, {"location": "/x"}, [f"{SEED}x"]), (302, {}, []), (200, {}, [])):
        world = SmallWeb({SEED: (status, headers, b"")})
        world.cut[SEED] = Truncated.DISCONNECT
        fetcher = fetcher_of(world)
        world.add(SEED)
        await fetcher.run(await world.next())
        assert [link.url for link in world.parts.next_round.outbox.take(10)] == links
        assert world.parts.counters.retried == (not links), (status, headers)


async def test_a_page_that_fails_is_tried_again_and_then_given_up() -> None:
    world = await after(FetchFailureKind.TIMEOUT)
    assert world.parts.next_round.empty
    world = await after(FetchFailureKind.HEADERS)
    (kill,) = world.handed_in().kills
    assert (kill.reason, kill.detail) == (SkipReason.FAILED, "headers: as the test says")


@pytest.mark.parametrize("answer", [FetchFailureKind.CONNECT, FetchFailureKind.TIMEOUT, (429, {}, b"")])
async def test_requests_under_way_together_that_fail_together_count_once_against_their_origin(answer: Answer) -> None:
    config = Config()
    urls = [f"{SEED}{number}" for number in range(config.fetch.concurrency)]
    assert len(urls) >= max(config.politeness.host_failures_max, config.politeness.host_silences_max)
    web: dict[str, Answer] = {SEED: (200, HTML, b"")}
    world = SmallWeb(web | dict.fromkeys(urls, answer))
    fetcher = fetcher_of(world)
    world.add(SEED)
    await fetcher.run(await world.next())
    for url in urls:
        world.add(url)
    jobs = [await world.next() for _ in urls]
    await asyncio.gather(*map(fetcher.run, jobs))
    assert world.parts.origins.without_hope("http://a.example") is None
    assert world.services.hosts.clock(HOST).hold_until <= world.clock.monotonic() + config.politeness.backoff_first_s


@pytest.mark.parametrize("answer", [(503, {}, b""), FetchFailureKind.TIMEOUT])
async def test_requests_that_found_no_connection_leave_a_page_all_its_tries(answer: Answer) -> None:
    unreached = 2
    world = await after(FetchFailureKind.CONNECT, times=unreached)
    world.answers[SEED] = answer
    fetcher = Fetcher(world.services, world.spec, world.parts, world.assignment)
    for _ in range(world.services.config.fetch.retries_max):
        await fetcher.run(await world.next())
        assert world.parts.next_round.empty, "it is tried again"
    await fetcher.run(await world.next())
    found = world.handed_in()
    attempts = [fetched.attempt for fetched in found.fetched] + [kill.attempt for kill in found.kills]
    assert attempts == [unreached + world.services.config.fetch.retries_max], "all tries are told"


@pytest.mark.parametrize("reused", [False, True])
async def test_connections_that_were_closed_while_they_were_kept_alive_give_no_origin_up(reused: bool) -> None:
    urls = [f"{SEED}{number}" for number in range(Config().politeness.host_silences_max)]
    world = SmallWeb(dict.fromkeys(urls, FetchFailureKind.DISCONNECTED))
    world.reused = reused
    fetcher = fetcher_of(world)
    for url in urls:
        world.add(url)
    tries = len(urls) * (1 + world.services.config.fetch.retries_max)
    while len(world.asked) < tries and world.parts.origins.without_hope("http://a.example") is None:
        await fetcher.run(await world.next())
    assert (world.parts.origins.without_hope("http://a.example") is None) is reused


async def test_a_request_that_may_have_reached_its_host_and_brought_no_page_counts_as_retried() -> None:
    def counted(world: SmallWeb) -> tuple[int, int]:
        return world.parts.counters.fetches, world.parts.counters.retried

    for answer in (FetchFailureKind.DISCONNECTED, (503, {"retry-after": "7"}, b"")):
        assert counted(await after(answer)) == (1, 1)
        assert counted(await after(answer, times=2)) == (2, 1), "the last one is followed by none"
    assert counted(await after(FetchFailureKind.CONNECT)) == (1, 0), "the host has seen nothing of it"
    assert counted(await after((404, HTML, b""))) == (1, 0)


@pytest.mark.parametrize("begun", [False, True])
async def test_a_request_that_was_given_up_with_its_lease_counts_if_it_was_begun(begun: bool) -> None:
    class Ending(UnleasedHosts):
        async def within_lease(self, host: str, start: Callable[[], Awaitable[Any]]) -> LeaseLost:
            return LeaseLost(world.clock.monotonic(), begun)

    world = SmallWeb({SEED: (200, HTML, b"")})
    world.parts.robots.put("http://a.example", Robots.parse(b""))
    fetcher = Fetcher(world.services._replace(gate=Ending()), world.spec, world.parts, world.assignment)
    world.add(SEED)
    await fetcher.run(await world.next())
    assert (world.parts.counters.fetches, world.parts.counters.retried) == (begun, begun)
    assert (await world.next()).attempt == 0, "the page is not to blame"


async def test_a_host_that_nobody_reaches_is_for_others_where_there_are_any() -> None:
    world = SmallWeb({SEED: FetchFailureKind.CONNECT})
    fetcher, key = fetcher_of(world), world.add(SEED)
    world.assignment.others_go_on = True
    await fetcher.run(await world.next())
    assert [(given.key, given.result) for given in world.assignment.told] == [(key, TaskResult.UNREACHABLE)]
    assert world.frontier.retrying() == set()
    assert world.parts.next_round.empty


async def test_what_robots_txt_forbids_is_not_asked_for() -> None:
    world = SmallWeb({})
    fetcher, key = fetcher_of(world), world.add(SEED)
    world.parts.robots.put("http://a.example", DISALLOW_ALL)
    await fetcher.run(await world.next())
    assert world.asked == []
    assert [(kill.key, kill.reason) for kill in world.handed_in().kills] == [(key, SkipReason.ROBOTS)]


class Gatekeeper(UnleasedHosts):
    """Tells each robots.txt to forbid everything."""

    def __init__(self) -> None:
        self.asked = self.told = 0

    async def robots(self, origin: str, agent: str) -> RobotsAnswer:
        self.asked += 1
        return RobotsKnown(RobotsVerdict.PARSE, b"User-agent: *\nDisallow: /\n", 0.0)

    async def robots_tell(self, origin: str, agent: str, verdict: RobotsVerdict | None, body: bytes = b"") -> None:
        self.told += 1


@pytest.mark.parametrize("lies", [True, False])
async def test_before_a_page_is_passed_over_for_rules_that_were_told_robots_txt_is_read_once(lies: bool) -> None:
    robots, pages = f"http://{HOST}/robots.txt", [SEED, f"{SEED}x", f"{SEED}y"]
    forbids: dict[str, Answer] = {robots: (200, {}, b"User-agent: *\nDisallow: /\n")}
    world = SmallWeb({} if lies else forbids)
    gate = Gatekeeper()
    services = world.services._replace(gate=gate)
    fetcher = Fetcher(services, world.spec, world.parts, world.assignment)
    keys = [world.add(url) for url in pages]
    for _ in range(len(["told", "in doubt", "read", *pages])):
        await fetcher.run(await world.next())
    assert (gate.asked, gate.told) == (1, 0)
    found = world.handed_in()
    if lies:
        assert world.asked[0] == robots
        assert sorted(world.asked[1:]) == pages
        assert not found.kills
    else:
        assert world.asked == [robots]
        assert {kill.key: kill.reason for kill in found.kills} == dict.fromkeys(keys, SkipReason.ROBOTS)


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_where_robots_txt_cannot_be_read_what_was_told_of_it_counts(elsewhere: bool) -> None:
    class Told(Gatekeeper):
        async def robots(self, origin: str, agent: str) -> RobotsAnswer:
            return RobotsKnown(RobotsVerdict.PARSE, b"User-agent: *\nDisallow: /x\n", 0.0)

    robots, there = f"http://{HOST}/robots.txt", "http://gone.example/robots.txt"
    world = SmallWeb({robots: (301, {"location": there}, b"") if elsewhere else (500, {}, b"")})
    world.answers[there] = FetchFailureKind.DNS
    gate = Told()
    fetcher = Fetcher(world.services._replace(gate=gate), world.spec, world.parts, world.assignment)
    forbidden = world.add(f"{SEED}x")
    for job in ("told", "in doubt", "fails", "fails", "x", "y"):
        if job == "fails":
            world.add(f"{SEED}y")
        await fetcher.run(await world.next())
    assert [url for url in world.asked if url != there] == [robots, robots, f"{SEED}y"]
    assert [(kill.key, kill.reason) for kill in world.handed_in().kills] == [(forbidden, SkipReason.ROBOTS)]
    assert world.parts.origins.given_up(10) == []
    assert gate.told == 0


async def test_an_origin_without_hope_is_not_asked() -> None:
    world = SmallWeb({})
    fetcher, key = fetcher_of(world), world.add(SEED)
    world.parts.origins.give_up("http://a.example", SkipReason.FAILED, "it is gone")
    await fetcher.run(await world.next())
    assert world.asked == []
    assert [(kill.key, kill.detail) for kill in world.handed_in().kills] == [(key, "it is gone")]


async def test_a_page_whose_origin_is_given_up_counts_the_requests_that_were_made() -> None:
    world = SmallWeb({SEED: FetchFailureKind.CONNECT})
    fetcher = fetcher_of(world)
    world.add(SEED)
    while world.parts.next_round.empty:
        await fetcher.run(await world.next())
    (kill,) = world.handed_in().kills
    assert kill.attempt + 1 == len(world.asked) == Config().politeness.host_strikes_max
