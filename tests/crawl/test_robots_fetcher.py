"""robots.txt is fetched before the first page, followed where it leads, and asked for again where it fails."""

from __future__ import annotations

from dhtcrawl.crawl.robots_fetcher import PageRequests, RobotsFetcher

from .fetch_world import SEED, Answer, SmallWeb

ORIGIN = "http://a.example"
ROBOTS = f"{ORIGIN}/robots.txt"


async def after(answers: dict[str, Answer], times: int = 1) -> SmallWeb:
    """What is so when the job before the seed was run."""
    world = SmallWeb(answers)
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


async def test_one_that_answers_with_errors_is_asked_for_later_and_then_forbids_everything() -> None:
    broken: dict[str, Answer] = {ROBOTS: (500, {}, b"")}
    world = await after(broken)
    assert not world.parts.robots.known(ORIGIN)
    world = await after(broken, times=2)
    assert not world.parts.robots.allows(ORIGIN, SEED)
