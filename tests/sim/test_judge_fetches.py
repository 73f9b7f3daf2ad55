"""The oracle is told what is asked of the web, and tells what nobody could know from what somebody did."""

from __future__ import annotations

import asyncio

import pytest

from dhtcrawl.sim.judge_fetches import EARLY_S
from dhtcrawl.storage.store.records import State

from .stage import GRACE_S, Stage

DONE = State.DONE


# I8: once


async def test_a_page_is_fetched_once() -> None:
    stage = Stage()
    stage.asks(stage.hosts[0], stage.url())
    stage.asks(stage.hosts[1], stage.url())
    assert stage.told == ["I8"]
    assert stage.oracle.fetched.refetches == 1


async def test_a_request_that_was_cut_off_brought_nothing() -> None:
    stage = Stage()
    visit = stage.asks(stage.hosts[0], stage.url(), comes=False)
    visit.end = 1.0
    stage.asks(stage.hosts[1], stage.url())
    assert stage.told == []
    assert stage.oracle.fetched.refetches == 0


@pytest.mark.parametrize(("known", "told"), [(False, []), (True, ["I8"])])
async def test_a_crash_accounts_for_what_only_it_knew(known: bool, told: list[str]) -> None:
    stage = Stage()
    one, other, third, *_ = stage.hosts
    stage.asks(one, stage.url())
    stage.write(stage.url(), one, state=DONE)
    if known:
        stage.write(stage.url(), third, state=DONE)
    stage.crash(one)
    stage.asks(other, stage.url())
    assert stage.told == told


async def test_who_has_it_on_its_own_disk_does_not_ask_for_it() -> None:
    stage = Stage()
    one, other, *_ = stage.hosts
    stage.write(stage.url(), other, state=DONE)
    await asyncio.sleep(1)
    stage.crash(one)
    stage.asks(other, stage.url())
    assert stage.told == ["I8"]


async def test_each_side_of_a_partition_may_fetch_a_page_and_neither_twice() -> None:
    stage = Stage()
    one, other, third, *_ = stage.hosts
    stage.asks(third, stage.url(1))  # in flight when it happens
    stage.cut(one)
    stage.asks(one, stage.url(1))
    stage.asks(other, stage.url(2))
    stage.asks(one, stage.url(2))
    assert stage.told == []
    stage.asks(third, stage.url(2))
    assert stage.told == ["I8"]


async def test_what_both_sides_know_before_a_partition_is_fetched_by_neither() -> None:
    stage = Stage()
    one, other, third, *_ = stage.hosts
    stage.asks(one, stage.url())
    stage.write(stage.url(), one, other, state=DONE)
    stage.cut(one)
    stage.asks(third, stage.url())
    assert stage.told == ["I8"]


async def test_sides_are_apart_until_their_views_have_met_and_no_longer() -> None:
    stage = Stage()
    one, other, *rest = stage.hosts
    stage.cut(one)
    stage.meet(one)
    stage.meet(other, *rest)
    stage.heal()
    stage.oracle.step()
    stage.asks(one, stage.url(1))
    stage.asks(other, stage.url(1))
    assert stage.told == []
    stage.meet()
    stage.oracle.step()
    stage.asks(one, stage.url(2))
    stage.asks(other, stage.url(2))
    assert stage.told == ["I8"]


@pytest.mark.parametrize(("met", "told"), [(False, []), (True, ["I8"])])
async def test_sides_that_have_not_met_yet_each_open_a_page_again(met: bool, told: list[str]) -> None:
    """Seed 692 of the random scenarios: the second one did so six seconds after the partition had healed."""
    stage = Stage()
    one, other, *rest = stage.hosts
    stage.asks(other, stage.url())
    stage.write(stage.url(), *stage.hosts, state=DONE)
    stage.cut(one)
    stage.meet(one)
    stage.meet(other, *rest)
    stage.heal()
    stage.oracle.step()
    if met:
        stage.meet()
        stage.oracle.step()
        await asyncio.sleep(1.0)
    for host in (other, one):
        stage.write(stage.url(), host, gen=1)
        stage.asks(host, stage.url())
    assert stage.told == told


async def test_a_pause_accounts_for_what_was_in_flight_and_for_nothing_after_it() -> None:
    stage = Stage()
    one, other, *_ = stage.hosts
    visit = stage.asks(one, stage.url(1), comes=False)
    stage.oracle.pauses(one)
    stage.asks(other, stage.url(1))
    stage.asks(other, stage.url(2))
    stage.oracle.resumes(one)
    stage.arrives(visit)
    assert stage.told == []
    stage.asks(one, stage.url(2))
    assert stage.told == ["I8"]


@pytest.mark.parametrize(("others_there", "told"), [(False, []), (True, ["I8"])])
async def test_who_starts_where_nobody_else_is_knows_what_its_disk_does(others_there: bool, told: list[str]) -> None:
    """Seed 513 of the random scenarios: all others of its side had crashed before it was back."""
    stage = Stage()
    one, knows, *others = stage.hosts
    stage.crash(one)
    stage.asks(knows, stage.url())
    stage.write(stage.url(), knows, *others, state=DONE)
    stage.cut(one, knows)
    if not others_there:
        stage.crash(knows)
    stage.come_back(one)
    stage.oracle.step()
    stage.asks(one, stage.url())
    assert stage.told == told


@pytest.mark.parametrize(("kept", "told"), [(False, []), (True, ["I8"])])
async def test_who_has_let_go_of_a_record_does_not_know_it_for_its_side(kept: bool, told: list[str]) -> None:
    """All who have it now are cut off from it."""
    stage = Stage()
    one, other, *keepers = stage.hosts
    stage.asks(one, stage.url())
    stage.write(stage.url(), one, *keepers, state=DONE)
    if not kept:
        stage.drop(stage.url(), one)
        stage.oracle.violations.clear()  # whether it may is not the question
    stage.cut(one, other)
    stage.asks(other, stage.url())
    assert stage.told == told


async def test_a_record_that_goes_to_those_who_were_cut_off_meanwhile_is_unknown_to_who_had_it() -> None:
    stage = Stage()
    one, other, *keepers = stage.hosts
    stage.asks(one, stage.url())
    stage.write(stage.url(), one, *keepers, state=DONE)
    stage.cut(one, other)
    stage.drop(stage.url(), one)
    stage.oracle.violations.clear()  # whether it may is not the question
    stage.asks(other, stage.url())
    assert stage.told == []


@pytest.mark.parametrize(("others_own", "told"), [(False, []), (True, ["I8"])])
async def test_what_the_last_owner_knew_goes_with_it(others_own: bool, told: list[str]) -> None:
    """Seed 859 of the random scenarios."""
    stage = Stage()
    one, other, *others = stage.hosts
    for each in others:
        stage.crash(each)
    stage.asks(one, stage.url())
    stage.write(stage.url(), one, state=DONE)
    if not others_own:
        other.swarm.joins()
    stage.oracle.left(one, True)
    one.swarm = None
    other.swarm.activates()
    stage.asks(other, stage.url())
    assert stage.told == told


# I9: polite


@pytest.mark.parametrize(("apart", "told"), [(False, ["I9"]), (True, [])])
async def test_two_requests_keep_their_distance_but_for_what_sides_that_are_apart_do(
    apart: bool, told: list[str]
) -> None:
    stage = Stage()
    one, other, *_ = stage.hosts
    await asyncio.sleep(1)
    if apart:
        stage.cut(one)
    stage.asks(one, stage.url(1))
    await asyncio.sleep(0.9)
    stage.asks(other, stage.url(2))
    assert stage.oracle.fetched.haste(lambda host: 1.0) == apart
    assert stage.told == told


@pytest.mark.parametrize(("parted", "met", "told"), [(False, True, ["I9"]), (True, True, []), (True, False, [])])
async def test_what_one_side_had_under_way_when_they_met_is_nothing_that_the_gatekeeper_of_all_knows(
    parted: bool, met: bool, told: list[str]
) -> None:
    """Seeds 69 and 575 of the random scenarios: both clients were of one side, but only one of the gatekeepers.

    The other may be of the other side from when the network is whole, before all know one another.
    """

    stage = Stage()
    one, same_side, *_ = stage.hosts
    await asyncio.sleep(1)
    if parted:
        stage.cut(*stage.hosts[2:])
    stage.asks(one, stage.url(1))
    await asyncio.sleep(0.5)
    if parted:
        stage.heal()
    if met:
        stage.oracle.step()
    await asyncio.sleep(0.4)
    stage.asks(same_side, stage.url(2))
    assert stage.oracle.fetched.haste(lambda host: 1.0) == parted
    assert stage.told == told


@pytest.mark.parametrize(("since_met_s", "told"), [(0.4, []), (0.6, ["I9"])])
async def test_what_one_side_had_leased_when_they_met_is_good_for_no_request_a_delay_after(
    since_met_s: float, told: list[str]
) -> None:
    """The last request of the other side is known to nobody here; a lease of before they met is over."""
    stage = Stage()
    one, same_side, *others = stage.hosts
    await asyncio.sleep(1)
    stage.cut(*others)
    await asyncio.sleep(1)
    stage.heal()
    stage.oracle.step()
    await asyncio.sleep(since_met_s)
    stage.asks(one, stage.url(1))
    await asyncio.sleep(0.5)
    stage.asks(same_side, stage.url(2))
    assert stage.oracle.fetched.haste(lambda host: 1.0) == (not told)
    assert stage.told == told


async def test_of_one_side_the_requests_keep_their_distance_while_it_is_cut_off() -> None:
    stage = Stage()
    one, same_side, *others = stage.hosts
    await asyncio.sleep(1)
    stage.cut(*others)
    stage.asks(one, stage.url(1))
    await asyncio.sleep(0.9)
    stage.asks(same_side, stage.url(2))
    assert stage.oracle.fetched.haste(lambda host: 1.0) == 0
    assert stage.told == ["I9"]


# I11: bodies


@pytest.mark.parametrize(
    ("gone_s", "told"),
    [
        (None, ["I11"]),
        (GRACE_S / 2, ["I11"]),
        (GRACE_S - EARLY_S - 1, ["I11"]),
        (GRACE_S - EARLY_S, []),
        (GRACE_S + 1, []),
    ],
)
async def test_a_page_is_opened_again_when_its_body_was_out_of_reach_for_the_grace(
    gone_s: float | None, told: list[str]
) -> None:
    stage = Stage()
    holder, owner, *_ = stage.hosts
    place = stage.body(holder, holder)
    stage.asks(holder, stage.url())
    stage.write(stage.url(), owner, holder, state=DONE, place=place)
    if gone_s is not None:
        stage.crash(holder)
        await asyncio.sleep(gone_s)
    stage.write(stage.url(), owner, gen=1)
    stage.asks(owner, stage.url())
    assert stage.told == told


async def test_a_body_that_was_left_to_an_heir_is_lost_with_the_disk_of_the_heir() -> None:
    """Seeds 4 and 11 of two crashes, joins and farewells each and a lost disk."""
    stage = Stage()
    holder, heir, owner, *_ = stage.hosts
    place = stage.body(holder, heir)
    stage.bequeaths(holder, heir)
    stage.asks(holder, stage.url())
    stage.write(stage.url(), owner, state=DONE, place=place)
    holder.swarm = None
    stage.oracle.left(holder, handed_over=True)
    stage.lose_disk(heir)
    await asyncio.sleep(GRACE_S + 1)
    stage.write(stage.url(), owner, gen=1)
    stage.asks(owner, stage.url())
    assert stage.told == []


@pytest.mark.parametrize(
    ("page", "heir_number", "told"), [(True, 0, ["I11"]), (False, 0, []), (True, 1, []), (True, None, [])]
)
async def test_an_heir_has_a_body_once_it_has_the_page_record(
    page: bool, heir_number: int | None, told: list[str]
) -> None:
    """Or half of what another node left may be there; or all, before it failed and a third one became the heir."""
    stage = Stage()
    holder, taker, owner, third, *_ = stage.hosts
    place = stage.body(holder, taker, page=page)
    if heir_number is not None:
        stage.bequeaths(holder, (taker, third)[heir_number])
    stage.asks(holder, stage.url())
    stage.write(stage.url(), owner, state=DONE, place=place)
    holder.swarm = None
    stage.oracle.left(holder, handed_over=True)
    await asyncio.sleep(GRACE_S + 1)
    stage.write(stage.url(), owner, gen=1)
    stage.asks(owner, stage.url())
    assert stage.told == told


async def test_who_is_told_that_a_page_was_opened_again_has_not_opened_it() -> None:
    stage = Stage()
    holder, owner, backup, *_ = stage.hosts
    place = stage.body(holder, holder)
    stage.asks(holder, stage.url())
    stage.write(stage.url(), owner, backup, state=DONE, place=place)
    stage.crash(holder)
    await asyncio.sleep(GRACE_S + 1)
    stage.write(stage.url(), owner, gen=1)
    stage.write(stage.url(), backup, gen=1)
    for host in (owner, backup):
        stage.asks(host, stage.url())
    assert stage.told == ["I8"]


# I12: joining


async def test_a_joining_node_acks_nothing_and_asks_for_nothing() -> None:
    stage = Stage()
    owner, *others = stage.keepers(stage.url())
    stage.write(stage.url(), owner, *others)
    owner.swarm.joins()
    stage.acks(owner, stage.url())
    stage.asks(owner, stage.url())
    assert stage.told == ["I12", "I12"]


@pytest.mark.parametrize(("paused_s", "told"), [(3, []), (60, ["I12"])])
async def test_who_stood_still_for_long_asks_for_nothing_before_it_has_joined_again(
    paused_s: float, told: list[str]
) -> None:
    stage = Stage()
    host = stage.hosts[0]
    stage.oracle.pauses(host)
    await asyncio.sleep(paused_s)
    stage.oracle.resumes(host)
    stage.asks(host, stage.url(1))
    host.swarm.joins()
    stage.oracle.step()
    host.swarm.activates()
    stage.asks(host, stage.url(2))
    assert stage.told == told


async def test_a_disk_that_ends_its_node_makes_the_side_ignorant_that_the_node_was_on() -> None:
    """Seed 920: the process had ended when the judge heard of it, and was taken for one of the other side."""
    stage = Stage()
    first, one, other, third, _ = stage.hosts
    stage.asks(first, stage.url())
    stage.write(stage.url(), first, third, state=DONE)
    stage.cut(other, third)
    third.swarm = None
    stage.oracle.disk_failed(third)
    stage.asks(other, stage.url())
    assert stage.told == []
    stage.asks(one, stage.url())
    assert stage.told == ["I8"]
