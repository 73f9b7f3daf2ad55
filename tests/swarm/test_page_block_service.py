"""`--max-pages` among five nodes: reached to the page, and not passed when coordinators die."""

from __future__ import annotations

import pytest

from dhtcrawl.config import CrawlSettings
from dhtcrawl.keyspace import crawl_key
from dhtcrawl.storage.store.crawl_record import RUNNING, changed, with_settings
from dhtcrawl.swarm.calls.lifecycle import EPOCH_MAX, ClaimPages
from dhtcrawl.swarm.lifecycle.board import PageNeed

from .five_nodes import CrawlWorld, Job, Weather, a_swarm

TREE = Job("a", 5)  # 63 pages
FOREST = Job("a", 12)  # thousands


async def after(swarm: CrawlWorld, seconds: float) -> None:
    until = swarm.now + seconds
    await swarm.until(lambda: swarm.now >= until)


@pytest.mark.parametrize("limit", [1, 2, 7, 40, 62])
async def test_the_page_limit_is_reached_to_the_page(limit: int) -> None:
    async with a_swarm(crawl=CrawlSettings(max_pages=limit)) as swarm:
        swarm.ranked()[3].accept(TREE)
        await swarm.ended("page limit", within_s=30.0)
    assert swarm.pages == limit


async def test_a_lossy_network_does_not_cost_a_page() -> None:
    async with a_swarm(crawl=CrawlSettings(max_pages=200), weather=Weather(loss=0.1)) as swarm:
        swarm.ranked()[3].accept(FOREST)
        await swarm.ended("page limit")
    assert swarm.pages == 200


async def test_a_crawl_without_a_limit_asks_nobody_for_pages() -> None:
    async with a_swarm() as swarm:
        swarm.ranked()[3].accept(TREE)
        await swarm.ended()
    assert not any(said.name.startswith("pages_") for said in swarm.said)


@pytest.mark.parametrize(("before", "loss"), [(30, 0.0), (30, 0.1), (0, 0.0)])
async def test_a_limit_that_a_user_raises_or_sets_while_the_crawl_runs_is_reached_to_the_page(
    before: int, loss: float
) -> None:
    async with a_swarm(crawl=CrawlSettings(max_pages=before), weather=Weather(loss=loss)) as swarm:
        swarm.ranked()[3].accept(FOREST)
        await swarm.until(lambda: swarm.pages >= 10)
        await change(swarm, CrawlSettings(max_pages=250))
        await swarm.ended("page limit", within_s=300.0)
    assert swarm.pages == 250


async def test_a_limit_that_is_lowered_ends_the_crawl_with_what_was_under_way() -> None:
    async with a_swarm(crawl=CrawlSettings(max_pages=4000)) as swarm:
        swarm.ranked()[3].accept(FOREST)
        await swarm.until(lambda: swarm.pages >= 100)
        await change(swarm, CrawlSettings(max_pages=50))
        used = sum(node.used for node in swarm.nodes.values())
        await swarm.ended("page limit", within_s=30.0)
    assert 100 <= swarm.pages <= used


async def test_a_crawl_whose_limit_is_taken_away_goes_on_to_its_end() -> None:
    async with a_swarm(crawl=CrawlSettings(max_pages=20)) as swarm:
        swarm.ranked()[3].accept(TREE)
        await swarm.until(lambda: swarm.pages >= 10)
        await change(swarm, CrawlSettings())
        await swarm.ended(within_s=30.0)
    assert swarm.pages == 63


async def change(swarm: CrawlWorld, settings: CrawlSettings) -> None:
    """A user changes limits at one node, which tells all; whom it does not reach hears of it by a wave."""
    node = swarm.ranked()[2]
    record = with_settings(changed(node.record(), RUNNING), settings)
    for each in swarm.ranked():
        if each is node or swarm.rng.random() >= swarm.weather.loss:
            await each.update(record)


async def test_what_an_idle_node_has_left_over_is_waited_for() -> None:
    """One node was given pages, has nothing to spend them on, and is not heard for a while."""
    async with a_swarm(crawl=CrawlSettings(max_pages=60)) as swarm:
        busy, idle = swarm.ranked()[2], swarm.ranked()[3]
        # It thinks that it has work, until it is given pages for it.
        idle.need = lambda: PageNeed(idle.used, len(idle.queue) if idle.allowance.out else 50)  # type: ignore[method-assign]
        await swarm.until(lambda: idle.allowance.out > 3)
        swarm.weather.rule = lambda sender, _, name: sender == idle.node_id and name == "pages_ask"
        busy.accept(FOREST)
        await after(swarm, 12.0)
        assert swarm.ends == []
        swarm.weather.rule = lambda *_: False
        await swarm.ended("page limit", within_s=20.0)
    assert swarm.pages == 60


@pytest.mark.parametrize("seed", range(4))
async def test_the_page_limit_holds_when_coordinators_die(seed: int) -> None:
    """Pages of the dead ones count, and what was theirs to use is lost at the most."""
    async with a_swarm(seed=seed, weather=Weather(loss=0.02), crawl=CrawlSettings(max_pages=300)) as swarm:
        swarm.weather.fetch_s = 1.0
        swarm.ranked()[3].accept(FOREST)
        epochs = []
        for after_s in (3.0 + seed / 7, 5.0):
            await after(swarm, after_s)
            epochs.append(swarm.ranked()[2].allowance.epoch)
            swarm.kill(swarm.ranked()[0])
        await swarm.ended("page limit", within_s=120.0)
        epochs.append(swarm.ranked()[2].allowance.epoch)
        assert 0 < epochs[0] < epochs[1] < epochs[2]
    assert 250 <= swarm.pages <= 300


async def test_a_newcomer_that_coordinates_learns_what_is_out_at_the_dead() -> None:
    async with a_swarm(crawl=CrawlSettings(max_pages=250)) as swarm:
        swarm.weather.fetch_s = 1.0
        first = swarm.ranked()[0]
        first.accept(Job("a", 30, fan=1))
        for node in swarm.nodes.values():
            node.accept(Job(f"from {node.node_id.hex()}", 40, fan=2))
        await after(swarm, 4.0)
        swarm.kill(first)
        # Closer to the crawl's key than anybody else can be: it comes as the death is noticed.
        newcomer = swarm.add(first.record(), crawl_key(swarm.crawl_id))
        await after(swarm, 1.9)
        swarm.start(newcomer)
        await swarm.until(lambda: newcomer.view.owner(newcomer.node_id) is not None)
        assert swarm.ranked()[0] is newcomer
        await swarm.ended("page limit", within_s=120.0)
        assert first.pages > 3
    assert 200 <= swarm.pages <= 250


async def test_after_a_claim_with_the_last_of_all_epochs_the_next_coordinators_still_hand_out_pages(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with a_swarm(crawl=CrawlSettings(max_pages=40)) as swarm:
        first, *members = swarm.ranked()
        await after(swarm, 0.1)
        for member in members:  # somebody speaks for the coordinator
            member.registered["pages_claim"](first.node_id, ClaimPages(swarm.crawl_id, EPOCH_MAX))
        members[2].accept(TREE)
        await swarm.until(lambda: swarm.pages >= 10)
        swarm.kill(first)
        await swarm.ended("page limit", within_s=60.0)
    assert 30 <= swarm.pages <= 40
    assert [message for message in caplog.messages if f"coordinator number {EPOCH_MAX >> 32}" in message]


async def test_nobody_is_given_a_page_that_no_successor_knows_of() -> None:
    async with a_swarm(crawl=CrawlSettings(max_pages=20)) as swarm:
        swarm.weather.rule = lambda _sender, _to, name: name == "pages_note"
        swarm.ranked()[3].accept(TREE)
        await after(swarm, 30.0)
        assert swarm.pages == 0
        assert [node.allowance.out for node in swarm.nodes.values()] == [0] * 5
        swarm.weather.rule = lambda *_: False
        await swarm.ended("page limit", within_s=60.0)
    assert swarm.pages == 20


async def test_while_nodes_disagree_on_the_coordinator_nobody_gets_more() -> None:
    async with a_swarm(crawl=CrawlSettings(max_pages=100)) as swarm:
        first, *others = swarm.ranked()
        first.alive = False
        swarm.see_each_other(*others[2:])
        first.alive = True
        for node in swarm.nodes.values():
            node.accept(Job(f"from {node.node_id.hex()}", 9))
        await after(swarm, 20.0)
        assert swarm.pages == 0
        swarm.see_each_other()
        await swarm.ended("page limit", within_s=30.0)
    assert swarm.pages == 100
