"""robots.txt is fetched before the first page, followed where it leads, and asked for again where it fails."""

from __future__ import annotations

import asyncio

import pytest

from dhtcrawl.crawl.fetcher import Fetcher
from dhtcrawl.crawl.robots_fetcher import PageRequests, RobotsFetcher
from dhtcrawl.fetch.host_access import RobotsAnswer, RobotsFetch, RobotsKnown, UnleasedHosts
from dhtcrawl.fetch.http import FetchFailureKind, Truncated
from dhtcrawl.fetch.robots import Robots, RobotsVerdict
from dhtcrawl.storage.store.records import SkipReason

from .fetch_world import SEED, Answer, SmallWeb

ORIGIN = "http://a.example"
ROBOTS = f"{ORIGIN}/robots.txt"


class Gatekeeper(UnleasedHosts):
    """Has this node fetch each robots.txt that is not known, and notes what it tells."""

    def __init__(self, known: RobotsKnown | None = None) -> None:
        self.known = known
        self.told: list[tuple[str, RobotsVerdict | None]] = []

    async def robots(self, origin: str, agent: str) -> RobotsAnswer:
        return self.known or RobotsFetch()

    async def robots_tell(self, origin: str, agent: str, verdict: RobotsVerdict | None, body: bytes = b"") -> None:
        self.told.append((origin, verdict))


async def after(answers: dict[str, Answer], times: int = 1, cut: Truncated | None = None) -> SmallWeb:
    """What is so when the job before the seed was run; robots.txt may be `cut`."""
    world = SmallWeb(answers)
    world.cut |= {} if cut is None else {ROBOTS: cut}
    requests = PageRequests.of(world.services.config.fetch, world.spec)
    fetcher = RobotsFetcher(world.services, world.spec, world.parts, requests)
    world.add(SEED)
    for _ in range(times):
        job = await world.next()
        assert job.task is None
        await fetcher.run(job)
    return world


async def test_rules_are_in_force_once_they_are_there_and_their_file_is_archived() -> None:
    world = await after({ROBOTS: (200, {}, b"User-agent: *\nDisallow: /x\n")})
    assert world.parts.robots.allows(ORIGIN, SEED)
    assert not world.parts.robots.allows(ORIGIN, f"{ORIGIN}/x")
    assert [fetched.extra is not None for fetched in world.handed_in().fetched] == [True]
    assert world.parts.counters.robots_fetches == 1
    job = await world.next()
    assert job.task is not None


async def test_without_a_file_all_is_allowed() -> None:
    assert (await after({})).parts.robots.allows(ORIGIN, SEED)


async def test_a_redirect_is_followed_also_to_another_host() -> None:
    there = "http://b.example/robots.txt"
    world = await after({ROBOTS: (301, {"location": there}, b""), there: (200, {}, b"User-agent: *\nDisallow: /\n")})
    assert world.asked == [ROBOTS, there]
    assert not world.parts.robots.allows(ORIGIN, SEED)


async def test_where_it_leads_to_a_file_that_was_read_already_no_other_node_waits_for_it() -> None:
    there = "https://a.example"
    world, gatekeeper = SmallWeb({ROBOTS: (301, {"location": f"{there}/robots.txt"}, b"")}), Gatekeeper()
    world.parts.robots.put(there, Robots.parse(b"User-agent: *\nDisallow: /x\n"))
    requests, services = PageRequests.of(world.services.config.fetch, world.spec), world.services
    fetcher = RobotsFetcher(services._replace(gate=gatekeeper), world.spec, world.parts, requests)
    world.add(SEED)
    await fetcher.run(await world.next())
    assert world.asked == [ROBOTS]
    assert not world.parts.robots.allows(ORIGIN, f"{ORIGIN}/x")
    assert gatekeeper.told == [(ORIGIN, None)]


@pytest.mark.parametrize(
    ("headers", "cut"),
    [({}, Truncated.DISCONNECT), ({}, Truncated.TIME), ({"content-encoding": "gzip"}, None)],
)
async def test_one_that_broke_off_or_cannot_be_decoded_is_no_file(
    headers: dict[str, str], cut: Truncated | None
) -> None:
    half: dict[str, Answer] = {ROBOTS: (200, headers, b"User-agent: *\nDisallow: /cgi/\n")}
    assert not (await after(half, cut=cut)).parts.robots.known(ORIGIN)
    assert not (await after(half, times=2, cut=cut)).parts.robots.allows(ORIGIN, SEED)


async def test_of_one_that_is_too_long_the_whole_lines_count() -> None:
    rules = b"User-agent: *\r\nDisallow: /x\r\nDisallow: /"  # of /private/
    world = await after({ROBOTS: (200, {}, rules)}, cut=Truncated.LENGTH)
    assert world.parts.robots.allows(ORIGIN, SEED)
    assert not world.parts.robots.allows(ORIGIN, f"{ORIGIN}/x")


async def test_a_coding_that_is_none_hides_no_rules() -> None:
    rules = b"User-agent: *\nDisallow: /x\n"
    world = await after({ROBOTS: (200, {"content-encoding": "utf-8"}, rules)})
    assert world.parts.robots.allows(ORIGIN, SEED)
    assert not world.parts.robots.allows(ORIGIN, f"{ORIGIN}/x")


async def test_where_it_redirects_to_a_private_host_robots_txt_is_the_reason() -> None:
    there = "http://10.0.0.1/robots.txt"
    private = FetchFailureKind.PRIVATE_ADDRESS
    world = await after({ROBOTS: (301, {"location": there}, b""), there: private})
    [(origin, why)] = world.parts.origins.given_up(10)
    assert (origin, why.reason, there in why.detail) == (ORIGIN, SkipReason.ROBOTS, True)


async def test_where_it_redirects_to_a_host_that_does_not_answer_it_is_asked_for_a_few_times() -> None:
    there = "http://gone.example/robots.txt"
    answers: dict[str, Answer] = {ROBOTS: (301, {"location": there}, b""), there: FetchFailureKind.DNS}
    world = await after(answers)
    assert world.parts.origins.given_up(10) == []
    world = await after(answers, times=2)  # as many as `retries_max` and one
    [(origin, why)] = world.parts.origins.given_up(10)
    assert (origin, why.reason, there in why.detail) == (ORIGIN, SkipReason.ROBOTS, True)


async def test_one_that_answers_with_errors_is_asked_for_later_and_then_forbids_everything() -> None:
    broken: dict[str, Answer] = {ROBOTS: (500, {}, b"")}
    world = await after(broken)
    assert not world.parts.robots.known(ORIGIN)
    world = await after(broken, times=2)
    assert not world.parts.robots.allows(ORIGIN, SEED)


@pytest.mark.parametrize("answer", [(503, {}, b""), (301, {"location": "http://gone.example/robots.txt"}, b"")])
async def test_where_it_cannot_be_had_any_more_the_rules_of_before_stay_in_force(answer: Answer) -> None:
    web: dict[str, Answer] = {ROBOTS: (200, {}, b"User-agent: *\nDisallow: /x\n")}
    world = await after(web | {"http://gone.example/robots.txt": FetchFailureKind.DNS})
    await asyncio.sleep(world.services.config.politeness.robots_ttl_s)
    assert not world.parts.robots.known(ORIGIN)
    world.answers[ROBOTS] = answer
    requests = PageRequests.of(world.services.config.fetch, world.spec)
    fetcher = RobotsFetcher(world.services, world.spec, world.parts, requests)
    while (job := await world.next()).task is None:
        await fetcher.run(job)
    assert world.asked.count(ROBOTS) == 1 + 1 + world.services.config.fetch.retries_max
    assert world.parts.origins.given_up(10) == []
    assert world.parts.robots.known(ORIGIN)
    assert world.parts.robots.allows(ORIGIN, SEED)
    assert not world.parts.robots.allows(ORIGIN, f"{ORIGIN}/x")


async def test_where_rules_last_for_less_than_the_delay_each_reading_decides_a_task() -> None:
    """The turn after that for robots.txt comes when the rules have expired, and nothing else was ever asked for."""
    world = SmallWeb({ROBOTS: (200, {}, b"User-agent: *\nDisallow: /x\n")}, robots_ttl_s=1.0, delay_s=2.0)
    requests = PageRequests.of(world.services.config.fetch, world.spec)
    robots = RobotsFetcher(world.services, world.spec, world.parts, requests)
    fetcher = Fetcher(world.services, world.spec, world.parts, world.assignment)
    world.add(SEED)
    world.add(f"{ORIGIN}/x")
    world.add(f"{ORIGIN}/y")
    for _ in range(6):
        job = await world.next()
        await (robots.run(job) if job.task is None else fetcher.run(job))
    assert world.asked == [ROBOTS, SEED, ROBOTS, f"{ORIGIN}/y", ROBOTS]
    assert [kill.reason for kill in world.handed_in().kills] == [SkipReason.ROBOTS]


@pytest.mark.parametrize("answer", [(200, {}, b"User-agent: *\nDisallow: /y\n"), (503, {}, b"")])
async def test_rules_that_are_older_than_this_node_keeps_them_have_it_read_the_file_itself(answer: Answer) -> None:
    world = SmallWeb({ROBOTS: answer})
    age_s = 2 * world.services.config.politeness.robots_ttl_s  # the gatekeeper keeps them for longer
    gatekeeper = Gatekeeper(RobotsKnown(RobotsVerdict.PARSE, b"User-agent: *\nDisallow: /x\n", age_s))
    requests, services = PageRequests.of(world.services.config.fetch, world.spec), world.services
    fetcher = RobotsFetcher(services._replace(gate=gatekeeper), world.spec, world.parts, requests)
    world.add(SEED)
    jobs = 0
    while (job := await world.next()).task is None:
        await fetcher.run(job)
        jobs += 1
        assert jobs < 10, "it asks again and again"
    assert world.parts.robots.allows(ORIGIN, f"{ORIGIN}/x") is (answer[0] == 200)
    assert not world.parts.robots.allows(ORIGIN, f"{ORIGIN}/{'y' if answer[0] == 200 else 'x'}")
