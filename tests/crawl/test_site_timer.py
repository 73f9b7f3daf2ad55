"""A site is timed by small requests in its turn, which never crowd out what politeness asks for."""

from __future__ import annotations

import asyncio
from typing import Any

from dhtcrawl.crawl.site_timer import SiteTimer
from dhtcrawl.fetch.host_access import RobotsAnswer, RobotsFetch, RobotsKnown, RobotsWait, UnleasedHosts
from dhtcrawl.fetch.http import Exchange, FetchFailure, FetchFailureKind, HttpRequest
from dhtcrawl.fetch.robots import ALLOW_ALL, RobotsVerdict

from .fetch_world import SEED, SmallWeb

ORIGIN, HOST = "http://a.example", "a.example"
ROBOTS = f"{ORIGIN}/robots.txt"


class Told(UnleasedHosts):
    """What the gatekeeper says of robots.txt."""

    def __init__(self, answer: RobotsAnswer) -> None:
        self.answer = answer
        self.told: list[RobotsVerdict | None] = []

    async def robots(self, origin: str, agent: str) -> RobotsAnswer:
        await asyncio.sleep(0.01)  # it is another node
        return self.answer

    async def robots_tell(self, origin: str, agent: str, verdict: RobotsVerdict | None, body: bytes = b"") -> None:
        self.told.append(verdict)


class TimedWeb(SmallWeb):
    """A web that notes requests with the time at which they began."""

    def __init__(self, answer: RobotsAnswer, **settings: Any) -> None:
        super().__init__({}, **settings)
        self.requests: list[tuple[float, HttpRequest]] = []
        self.gate = Told(answer)
        self.timer = SiteTimer(self.services._replace(gate=self.gate), self.spec, self.parts)

    async def exchange(self, request: HttpRequest) -> Exchange | FetchFailure:
        self.requests.append((self.clock.monotonic(), request))
        found = await super().exchange(request)
        return found if isinstance(found, FetchFailure) else found._replace(first_byte_s=0.04)


KNOWN = RobotsKnown(RobotsVerdict.ALLOW_ALL, b"", 0.0)


async def test_a_host_is_timed_by_a_small_request() -> None:
    world = TimedWeb(KNOWN)
    assert await world.timer.times(ORIGIN) == [0.04]
    assert {(request.method, request.url) for _, request in world.requests} == {("HEAD", ROBOTS)}
    assert world.parts.counters.probes == 1
    assert world.parts.counters.fetches == world.parts.counters.robots_fetches == 0


async def test_a_host_whose_robots_txt_this_node_fetches_is_not_asked_and_its_claim_stays() -> None:
    world = TimedWeb(RobotsFetch())
    world.add(SEED)
    job = await world.next()
    assert job.task is None
    assert await world.timer.times(ORIGIN) == []
    assert world.gate.told == []


async def test_a_delay_is_kept_before_and_after_and_allows_one() -> None:
    world = TimedWeb(KNOWN, delay_s=1.0)
    clock = world.services.hosts.clock(HOST)
    clock.begin(world.clock.monotonic(), 1.0)
    clock.end(world.clock.monotonic())
    ended_at = world.clock.monotonic()
    assert await world.timer.times(ORIGIN) == [0.04]
    assert world.requests[0][0] >= ended_at + 1.0
    assert clock.ready_at(1.0) >= world.requests[0][0] + 1.1, "a probe counts as a request of the host"
    assert world.services.hosts.violations == 0


async def test_the_delay_that_robots_txt_asks_for_is_known_before() -> None:
    world = TimedWeb(RobotsKnown(RobotsVerdict.PARSE, b"User-agent: *\nCrawl-delay: 7\n", 0.0))
    assert await world.timer.times(ORIGIN) == [0.04]
    assert world.parts.origins.delay_s(HOST) == 7.0


async def test_nothing_is_asked_before_another_node_has_read_robots_txt() -> None:
    for answer in (RobotsWait(1.0), RobotsFetch()):
        world = TimedWeb(answer)
        assert await world.timer.times(ORIGIN) == []
        assert world.requests == []
        assert world.gate.told == ([None] if answer == RobotsFetch() else []), "who wants a page fetches it"


async def test_of_two_origins_of_a_host_that_are_to_be_timed_at_once_one_comes_later() -> None:
    world = TimedWeb(KNOWN)
    both = await asyncio.gather(*map(world.timer.times, (ORIGIN, f"https://{HOST}")))
    assert both == [[0.04], []]
    assert await world.timer.times(f"https://{HOST}") == [0.04]
    assert [request.url for _, request in world.requests] == [ROBOTS, f"https://{HOST}/robots.txt"]


async def test_an_origin_that_was_given_up_or_is_beyond_the_scope_is_not_timed() -> None:
    world = TimedWeb(KNOWN)
    assert [world.timer.may_time(origin) for origin in (ORIGIN, "http://elsewhere.test")] == [True, False]
    world.parts.origins.give_up(ORIGIN, "failed", "it is down")
    assert not world.timer.may_time(ORIGIN)
    assert await world.timer.times(ORIGIN) == []
    assert world.requests == []


async def test_a_failure_is_told_and_leaves_the_host_free() -> None:
    world = TimedWeb(KNOWN)
    world.answers[ROBOTS] = FetchFailureKind.CONNECT
    assert await world.timer.times(ORIGIN) is None
    assert len(world.requests) == 1
    assert world.services.hosts.clock(HOST).in_flight == 0


async def test_a_request_that_is_cut_short_has_ended_for_the_host() -> None:
    world = TimedWeb(KNOWN)
    timing = asyncio.ensure_future(world.timer.times(ORIGIN))
    await asyncio.sleep(0.05)
    assert world.services.hosts.clock(HOST).in_flight == 1
    timing.cancel()
    await asyncio.wait({timing})
    assert world.services.hosts.clock(HOST).in_flight == 0


async def test_no_more_requests_are_under_way_than_pages_may_be() -> None:
    world = TimedWeb(KNOWN)
    world.parts.robots.put(ORIGIN, ALLOW_ALL)
    parallel, clock = world.services.config.fetch.concurrency, world.services.hosts.clock(HOST)
    for _ in range(parallel):
        clock.begin(world.clock.monotonic(), 0.0)
    timing = asyncio.ensure_future(world.timer.times(ORIGIN))
    await asyncio.sleep(1.0)
    assert world.requests == []
    clock.end(world.clock.monotonic())
    world.timer.host_free(HOST)
    assert await timing == [0.04]


async def test_a_page_that_waits_for_the_host_is_started_after_a_probe() -> None:
    world = TimedWeb(KNOWN, delay_s=1.0)
    world.parts.robots.put(ORIGIN, ALLOW_ALL)
    timing = asyncio.ensure_future(world.timer.times(ORIGIN))
    await asyncio.sleep(0.05)
    world.add(SEED)
    await timing
    assert (await world.next()).task is not None


async def test_it_goes_before_pages_that_wait_for_the_host() -> None:
    world = TimedWeb(KNOWN, delay_s=1.0)
    world.parts.robots.put(ORIGIN, ALLOW_ALL)
    world.add(SEED)
    clock = world.services.hosts.clock(HOST)
    clock.begin(world.clock.monotonic(), 1.0)
    clock.end(world.clock.monotonic())
    timing = asyncio.ensure_future(world.timer.times(ORIGIN))
    await asyncio.sleep(0.5)
    assert world.parts.frontier.next(world.clock.monotonic() + 0.5) is None, "the page gives way"
    assert await timing == [0.04]
    assert (await world.next()).task is not None


async def test_who_has_fetched_robots_txt_knows_the_time_without_a_request() -> None:
    world = TimedWeb(KNOWN)
    world.parts.robots.put(ORIGIN, ALLOW_ALL)
    found = await world.exchange(HttpRequest(ROBOTS))
    assert isinstance(found, Exchange)
    world.parts.origins.note_robots(ORIGIN, found)
    assert await world.timer.times(ORIGIN) == [0.04]
    assert len(world.requests) == 1
