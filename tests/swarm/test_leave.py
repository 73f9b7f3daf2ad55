"""How a node leaves: what is in flight ends first, its pages go to an heir, and then it says goodbye."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pytest
from storage.stores import SPEC

from dhtcrawl.rpc.membership.view import View
from dhtcrawl.spec import make_spec
from dhtcrawl.storage.store.crawl_record import CrawlRecord
from dhtcrawl.swarm.membership.join import Join
from dhtcrawl.swarm.membership.keeping_up import NEEDED_PAUSE_S
from dhtcrawl.swarm.membership.leave import Leave
from dhtcrawl.swarm.membership.leave_state import HEIRS_TRIED, OWNER_BEGINS_S, LeaveSettings
from dhtcrawl.swarm.records.sync import HandedOver
from swarm.fake_peers import node, view_of

US = node(0)
DRAIN_S = 10.0


class Leaver:
    """Node 0 of four, with one crawl; what its parts were asked, in order."""

    def __init__(self, *, view: View | None = None, copies: int = 1, depth: int = 3, **fields: Any) -> None:
        self.did: list[Any] = []
        settings = replace(SPEC.settings, copies=copies, depth=depth)
        spec = make_spec(SPEC.seeds, settings)
        record = CrawlRecord(spec.crawl_id(b"n" * 16), spec, b"n" * 16, participants=[US.hex()])
        self.record = replace(record, **fields)
        self.view = view or view_of([0, 1, 2, 3])
        self.runs = True  # the crawl, here
        self.draining = False
        self.busy = False
        self.active = True
        self.refuse: set[bytes] = set()  # who takes no pages
        self.leave_too: set[bytes] = set()  # who takes nothing more once this node owns nothing
        self.lose_answers = 0  # of so many who are asked to take pages
        me: Any = self
        self.outcomes: list[HandedOver] = []  # of offering records; then all is taken
        self.part = Leave(LeaveSettings(US, replicas=3, drain_s=DRAIN_S), me, me, me, me, me, cast(Join, _Join(self)))

    # Gossip

    async def leave(self) -> None:
        self.did.append("goodbye")

    async def exchange(self, node: bytes) -> bool:
        return True

    # Syncer

    async def hand_over(self, view: View) -> HandedOver:
        self.did.append("records")
        return self.outcomes.pop(0) if self.outcomes else HandedOver()

    # Crawls

    @property
    def records(self) -> Leaver:
        return self

    def __iter__(self) -> Iterator[CrawlRecord]:
        return iter([self.record])

    def start_no_more(self) -> None:
        self.did.append("starts nothing more")

    async def stop(self) -> None:
        self.did.append("ends its crawls")

    def get(self, crawl: bytes) -> CrawlRecord:
        return self.record

    def of(self, crawl: bytes) -> Leaver | None:
        return self if self.runs and crawl == self.record.crawl_id else None

    # Adoption

    def break_off(self) -> None:
        self.broken_off = True

    async def close(self, wait_s: float) -> None:
        self.did.append("adopts nothing more")

    async def give(self, heir: bytes, crawl: bytes, *, copies: bool) -> bool | None:
        self.did.append(("pages", heir, copies))
        if self.lose_answers:
            self.lose_answers -= 1
            return None
        return heir not in (self.refuse | self.leave_too if "disowns" in self.did else self.refuse)

    async def keep(self, crawl: bytes) -> None:
        self.did.append("nobody has the pages")

    @property
    def asked(self) -> list[bytes]:
        """Who was to take the pages."""
        return [each[1] for each in self.did if isinstance(each, tuple)]


class _Join:
    def __init__(self, leaver: Leaver) -> None:
        self.state = self._leaver = leaver  # `active` is all that is asked

    def leave(self) -> None:
        self._leaver.did.append("disowns")


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_pages_go_to_an_heir_and_records_after_them_and_the_heir_hears_of_shorter_ways() -> None:
    leaver = Leaver()
    assert await leaver.part.run() == HandedOver()
    (heir, again) = leaver.asked
    pages = ("pages", heir, False)
    assert leaver.did == ["starts nothing more", "adopts nothing more", pages, "disowns", "records", pages, "goodbye"]
    assert heir == again != US


async def test_where_depth_is_not_counted_the_heir_is_asked_once() -> None:
    leaver = Leaver(depth=-1)
    await leaver.part.run()
    assert len(leaver.asked) == 1


async def test_copies_of_others_pages_go_along_where_pages_are_copied() -> None:
    leaver = Leaver(copies=2)
    await leaver.part.run()
    assert ("pages", leaver.asked[0], True) in leaver.did


async def test_who_takes_no_pages_is_passed_over() -> None:
    leaver = Leaver()
    await leaver.part.run()
    first = leaver.asked[0]
    leaver = Leaver()
    leaver.refuse = {first}
    await leaver.part.run()
    assert leaver.asked[0] == first
    assert leaver.asked[1:] == [leaver.asked[1]] * 2, "it took them, and hears of shorter ways"


async def test_where_nobody_takes_the_pages_they_stay_and_the_node_leaves() -> None:
    leaver = Leaver(view=view_of(range(8)))
    leaver.refuse = {node(number) for number in range(8)}
    assert await leaver.part.run() == HandedOver()
    assert len(leaver.asked) == HEIRS_TRIED
    assert leaver.did[HEIRS_TRIED + 2 :] == ["nobody has the pages", "disowns", "records", "goodbye"], (
        "what it signed for those that refused is not to count"
    )


async def test_where_one_may_have_the_pages_and_the_others_refuse_it_is_not_said_that_nobody_has_them() -> None:
    leaver = Leaver()
    leaver.lose_answers = 1
    leaver.refuse = {node(1), node(2), node(3)}
    await leaver.part.run()
    assert "nobody has the pages" not in leaver.did


async def test_who_lost_the_answers_asks_again_and_all_that_may_have_the_pages_hear_of_shorter_ways() -> None:
    """The one that has answered at last, as what is signed then counts."""
    leaver = Leaver()
    leaver.lose_answers = 3
    await leaver.part.run()
    first, *others = leaver.asked[:3]
    assert leaver.asked[3:] == [first, *others, first]
    assert now() == pytest.approx(NEEDED_PAUSE_S, abs=0.1)


async def test_answers_that_are_lost_for_ever_are_not_waited_for_for_ever() -> None:
    leaver = Leaver()
    leaver.lose_answers = 1_000
    await leaver.part.run()
    assert now() == pytest.approx(DRAIN_S, abs=NEEDED_PAUSE_S)
    assert leaver.did[-1] == "goodbye"


@pytest.mark.parametrize("fields", [{"ended": "complete"}, {"participants": [node(1).hex()]}])
async def test_a_crawl_that_is_over_or_had_no_part_of_ours_has_no_heir(fields: dict[str, Any]) -> None:
    leaver = Leaver(**fields)
    leaver.runs = False
    await leaver.part.run()
    assert leaver.asked == []


async def test_pages_that_came_before_any_wave_of_the_coordinator_have_an_heir_too() -> None:
    leaver = Leaver(participants=[])
    await leaver.part.run()
    assert len(leaver.asked) == 2


async def test_where_the_heir_leaves_in_turn_another_one_gets_all() -> None:
    """It has given on what it had, so that what came since would be nowhere."""
    leaver = Leaver()
    leaver.leave_too = {each.id for each in leaver.view.closest_active(US, 3)}
    await leaver.part.run()
    heir, again, *others, last = leaver.asked
    assert heir == again
    assert last not in leaver.leave_too
    assert {heir, *others} == leaver.leave_too - {US}


@pytest.mark.parametrize("depth", [-1, 3])
async def test_where_the_heir_is_gone_before_this_node_is_another_one_gets_all(depth: int) -> None:
    leaver = Leaver(depth=depth)
    heir = next(each.id for each in leaver.view.closest_active(US, 4) if each.id != US)

    async def is_gone(view: View) -> HandedOver:
        leaver.did.append("records")
        leaver.view = view_of(number for number in range(4) if node(number) != heir)
        leaver.leave_too = {heir}
        return HandedOver()

    leaver.hand_over = is_gone  # type: ignore[method-assign]
    await leaver.part.run()
    assert leaver.asked[:2] == [heir, heir]
    assert len(leaver.asked) == 3
    assert leaver.asked[2] in leaver.view


@pytest.mark.parametrize("drains", [False, True])
async def test_the_heir_gets_pages_that_came_after_draining_had_ended_in_vain(drains: bool) -> None:
    """Their records lead to it, and no page comes after it was told of the last."""
    leaver = Leaver(depth=-1)
    leaver.draining = True
    if drains:
        asyncio.get_running_loop().call_later(DRAIN_S / 2, setattr, leaver, "draining", False)
    await leaver.part.run()
    pages = ("pages", leaver.asked[0], False)
    late = [] if drains else ["ends its crawls", pages]
    assert leaver.did[2:] == [pages, "disowns", "records", *late, "goodbye"]


@pytest.mark.parametrize("what", ["draining", "busy"])
async def test_what_is_in_flight_is_waited_for_but_not_for_ever(what: str) -> None:
    leaver = Leaver()
    setattr(leaver, what, True)
    asyncio.get_running_loop().call_later(3.0, setattr, leaver, what, False)
    assert await leaver.part.drain()
    assert now() == pytest.approx(3.0, abs=0.1)
    setattr(leaver, what, True)
    assert not await leaver.part.drain()
    assert now() == pytest.approx(3.0 + DRAIN_S, abs=0.1)


async def test_the_last_owner_waits_until_another_member_owns() -> None:
    leaver = Leaver(view=view_of([0], [1, 2]))
    asyncio.get_running_loop().call_later(4.0, setattr, leaver, "view", view_of([0, 1], [2]))
    await leaver.part.run()
    assert now() == pytest.approx(4.0, abs=0.1)
    assert leaver.did[-1] == "goodbye"


@pytest.mark.parametrize("alone", [True, False])
async def test_it_waits_for_no_owner_for_ever_and_not_at_all_where_there_is_nobody(alone: bool) -> None:
    leaver = Leaver(view=view_of([0]) if alone else view_of([0], [1]))
    await leaver.part.run()
    assert now() == pytest.approx(0.0 if alone else DRAIN_S, abs=0.1)


async def test_who_never_became_active_waits_for_nobody() -> None:
    leaver = Leaver(view=view_of([], [0, 1]))
    leaver.active = False
    await leaver.part.run()
    assert now() == pytest.approx(0.0, abs=0.1)


async def test_what_is_not_taken_is_offered_again_until_the_time_is_over() -> None:
    leaver = Leaver()
    leaver.outcomes = [HandedOver(refused=1), HandedOver(needed=1)]
    assert await leaver.part.run() == HandedOver()
    assert now() == pytest.approx(2 * NEEDED_PAUSE_S, abs=0.1)
    leaver = Leaver()
    leaver.outcomes = [HandedOver(refused=1)] * 100
    began_at = now()
    assert not await leaver.part.run()
    assert now() - began_at == pytest.approx(DRAIN_S, abs=NEEDED_PAUSE_S)


async def test_where_all_others_leave_at_once_the_last_one_keeps_its_records_and_has_refused_none() -> None:
    leaver = Leaver()
    leaver.outcomes = [HandedOver(refused=7, pushed=1)] * 100
    asyncio.get_running_loop().call_later(0.1, setattr, leaver, "view", view_of([], [0]))
    assert await leaver.part.run() == HandedOver(pushed=1)
    assert now() == pytest.approx(NEEDED_PAUSE_S, abs=0.1)
    assert leaver.did[-1] == "goodbye"


async def test_where_the_other_owners_leave_at_once_one_that_is_joining_is_waited_for() -> None:
    leaver = Leaver()
    leaver.outcomes = [HandedOver(refused=1)] * 2
    asyncio.get_running_loop().call_later(0.1, setattr, leaver, "view", view_of([], [0, 1]))
    assert await leaver.part.run() == HandedOver()
    assert now() == pytest.approx(2 * NEEDED_PAUSE_S, abs=0.1)


async def test_two_that_leave_at_once_do_not_wait_for_each_other_as_for_one_that_joins() -> None:
    leaver = Leaver()
    leaver.outcomes = [HandedOver(refused=1)] * 100
    asyncio.get_running_loop().call_later(0.1, setattr, leaver, "view", view_of([], [0, 1]))
    assert await leaver.part.run() == HandedOver()
    assert now() == pytest.approx(NEEDED_PAUSE_S + OWNER_BEGINS_S, abs=0.1)


async def test_who_is_told_again_to_leave_waits_for_nothing_any_more() -> None:
    leaver = Leaver(view=view_of([0], [1]))
    leaver.draining = True
    leaver.outcomes = [HandedOver(refused=1)] * 2
    asyncio.get_running_loop().call_later(1.0, leaver.part.hasten)
    assert not await leaver.part.run()
    assert now() == pytest.approx(1.0, abs=0.1)
    assert (leaver.did.count("records"), leaver.did[-1]) == (1, "goodbye")
