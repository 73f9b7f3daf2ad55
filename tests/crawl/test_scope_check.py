"""A task that another node queued is fetched only if it is within the scope, as all members together know it."""

from __future__ import annotations

from typing import Any

from dhtcrawl.crawl.fetcher import BEYOND, Fetcher
from dhtcrawl.crawl.ports import CrawlPorts
from dhtcrawl.crawl.scope_check import AGAIN_S, PATIENCE_S
from dhtcrawl.crawl.single_node import NoReplication, OwnRecord, SoleOwnership
from dhtcrawl.fetch.robots import Robots
from dhtcrawl.storage.store.records import SkipReason

from .fetch_world import SmallWeb

BESIDE = "http://b.example/x"
PAGE = (200, {"content-type": "text/html"}, b"")


class AmongOthers(SoleOwnership):
    """`Ownership` of every task on a node that has others beside it."""

    alone = False


class Members(OwnRecord):
    """`SharedRecord` of which other members may know more."""

    def __init__(self) -> None:
        self.asked = 0
        self.answer = self.room = True
        self.aliases: list[str] = []
        self.web: SmallWeb | None = None

    async def catch_up(self) -> bool:
        self.asked += 1
        assert self.web is not None
        for alias in self.aliases:
            self.web.parts.scope.extend(alias)
        return self.answer

    def has_room(self) -> bool:
        return self.room


def a_world(answers: dict[str, Any], **settings: Any) -> tuple[SmallWeb, Members, Fetcher]:
    """A web, what the members say, and a fetcher that knows no robots.txt but that of the seed's host."""
    members = Members()
    world = SmallWeb(answers, CrawlPorts(AmongOthers(), NoReplication(), members), **settings)
    members.web = world
    world.parts.robots.put("http://a.example", Robots.parse(b""))
    return world, members, Fetcher(world.services, world.spec, world.parts, world.assignment)


async def killed(world: SmallWeb, fetcher: Fetcher, url: str, jobs: int) -> tuple[str, str]:
    """Why the task at `url` died after so many jobs."""
    key = world.add(url)
    for _ in range(jobs):
        await fetcher.run(await world.next())
    (kill,) = world.handed_in().kills
    assert kill.key == key
    return kill.reason, kill.detail


async def test_nothing_of_a_host_beyond_the_scope_is_asked_for_not_even_robots_txt() -> None:
    world, members, fetcher = a_world({BESIDE: PAGE})
    assert await killed(world, fetcher, BESIDE, 2) == (SkipReason.OUT_OF_SCOPE, BEYOND)
    assert world.asked == []
    assert members.asked == 2
    assert not world.services.hosts.clock("b.example").in_flight


async def test_a_page_that_the_crawl_excludes_is_not_asked_for_whoever_queued_it() -> None:
    world, _, fetcher = a_world({}, exclude=("/private/",))
    assert await killed(world, fetcher, "http://a.example/private/x", 1) == (SkipReason.EXCLUDED, BEYOND)
    assert world.asked == []


async def test_a_page_that_only_an_alias_covers_is_fetched_if_one_of_the_members_knows_the_alias() -> None:
    world, members, fetcher = a_world({BESIDE: PAGE})
    members.aliases = ["http://b.example/"]
    world.add(BESIDE)
    for _ in range(3):  # the members are asked; robots.txt; the page
        await fetcher.run(await world.next())
    assert world.asked == ["http://b.example/robots.txt", BESIDE]
    assert members.asked == 1


async def test_an_origin_that_was_beyond_the_scope_is_not_given_up_for_good() -> None:
    world, _, fetcher = a_world({BESIDE: PAGE})
    await killed(world, fetcher, BESIDE, 2)
    world.parts.scope.extend("http://b.example/")
    world.add("http://b.example/y")
    for _ in range(3):  # the origin is taken up again; robots.txt; the page
        await fetcher.run(await world.next())
    assert world.asked == ["http://b.example/robots.txt", "http://b.example/y"]


async def test_while_a_member_is_silent_a_task_waits_but_not_for_ever() -> None:
    world, members, fetcher = a_world({}, exclude=("/private/",))
    members.answer = False
    world.add("http://a.example/private/x")
    began_at = world.clock.monotonic()
    while world.parts.next_round.empty:
        await fetcher.run(await world.next())
    assert world.clock.monotonic() - began_at == PATIENCE_S
    assert members.asked == PATIENCE_S / AGAIN_S + 1
    (kill,) = world.handed_in().kills
    assert kill.reason == SkipReason.EXCLUDED


async def test_where_aliases_have_no_room_in_the_record_no_task_dies_for_the_scope() -> None:
    world, members, fetcher = a_world({BESIDE: PAGE})
    members.room = False
    world.add(BESIDE)
    for _ in range(3):
        await fetcher.run(await world.next())
    assert world.asked == ["http://b.example/robots.txt", BESIDE]


async def test_a_node_by_itself_fetches_what_it_found() -> None:
    world = SmallWeb({BESIDE: PAGE})
    fetcher = Fetcher(world.services, world.spec, world.parts, world.assignment)
    world.parts.robots.put("http://b.example", Robots.parse(b""))
    world.add(BESIDE)
    await fetcher.run(await world.next())
    assert world.asked == [BESIDE]
