"""Figures that people ask a coordinator for are of now where members answer, and come soon where one does not."""

from __future__ import annotations

import asyncio

from storage.stores import SPEC

from dhtcrawl.sim.loop import VirtualClock
from dhtcrawl.storage.store.crawl_record import CrawlRecord
from dhtcrawl.swarm.calls.lifecycle import CrawlFigures, CrawlStanding, ReportCrawl
from dhtcrawl.swarm.lifecycle.people_desk import FRESH_S, FRESH_WAIT_S, PeopleDesk
from dhtcrawl.swarm.lifecycle.roll import Roll
from swarm.fake_peers import FakePeers, node, view_of

RECORD = CrawlRecord(SPEC.crawl_id(bytes(16)), SPEC, bytes(16))


class Desk(PeopleDesk):
    """A desk whose coordinator makes a wave when it is woken, unless it is mute."""

    def __init__(self, *, mute: bool = False) -> None:
        self.waves = 0
        self._mute = mute
        self._under_way: asyncio.TimerHandle | None = None
        super().__init__(FakePeers(view_of([0, 1])), VirtualClock(asyncio.get_running_loop()), Roll(), self.wake)

    def wake(self) -> None:
        if self._under_way is None and not self._mute:
            self._under_way = asyncio.get_running_loop().call_later(0.1, self.wave)

    def wave(self) -> None:
        self._under_way = None
        self.waves += 1
        for number in (0, 1):
            counters = {"pages": 10 * self.waves}
            self.heard(node(number), CrawlStanding(1, True, False, 0, bytes(16), bytes(8), 0, {}, counters))
        self.wave_over()

    async def asked_for(self, *, nodes: bool = True) -> tuple[CrawlFigures, float]:
        """The figures, and how many seconds they took."""
        now = asyncio.get_running_loop().time
        began_at = now()
        return await self.answer(RECORD, nodes=nodes), now() - began_at


async def test_figures_of_the_last_moment_are_told_at_once_and_older_ones_are_heard_anew() -> None:
    desk = Desk()
    first, took_s = await desk.asked_for()
    assert (first.counters["pages"], desk.waves) == (20, 1)
    assert 0.1 <= took_s < FRESH_WAIT_S
    await asyncio.sleep(FRESH_S - 0.1)
    again, took_s = await desk.asked_for()
    assert (again.counters["pages"], desk.waves, took_s) == (20, 1, 0.0)
    await asyncio.sleep(0.2)
    assert (await desk.asked_for())[0].counters["pages"] == 40


async def test_two_that_ask_at_a_time_have_the_same_wave() -> None:
    desk = Desk()
    answers = await asyncio.gather(desk.asked_for(), desk.asked_for())
    assert [told.counters["pages"] for told, _ in answers] == [20, 20]


async def test_where_members_do_not_answer_figures_say_how_old_they_are() -> None:
    desk = Desk()
    await desk.asked_for()
    mute = Desk(mute=True)
    mute.coordinator_asked(ReportCrawl(RECORD.crawl_id, desk.told([])))
    assert mute.asked
    told, took_s = await mute.asked_for()
    assert took_s == FRESH_WAIT_S
    assert {(row.node, row.heard_ms) for row in told.nodes} == {(node(number), 1_000) for number in (0, 1)}


async def test_rows_of_nodes_are_told_where_they_are_wanted_and_counted_in_any_case() -> None:
    told, _ = await Desk().asked_for(nodes=False)
    assert (told.nodes, told.nodes_total, told.counters["pages"]) == ((), 2, 20)
