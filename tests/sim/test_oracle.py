"""The oracle is told what a sound swarm does and what a broken one does, and tells them apart."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dhtcrawl.keyspace import placement, url_key
from dhtcrawl.rpc.hello import NodeState
from dhtcrawl.rpc.messages import Ack, Code, DeleteBackup, StoreBackup
from dhtcrawl.rpc.rows import Record, Tombstone
from dhtcrawl.rpc.view import View
from dhtcrawl.sim.judge_ends import ON_ITS_WAY_S, STUCK_S
from dhtcrawl.sim.judge_fetches import EARLY_S
from dhtcrawl.sim.scene import MEET_S, QUIET_S
from dhtcrawl.storage.records import State

from .stage import CRAWL, GRACE_S, Stage, tell

DONE = State.DONE


# I1, I5: what is acked stays


@pytest.mark.parametrize(("disks", "told"), [(3, []), (2, ["I1"])])
def test_an_ack_needs_the_owner_and_two_backups(disks: int, told: list[str]) -> None:
    async def story(stage: Stage) -> None:
        keepers = stage.keepers(stage.url())
        stage.write(stage.url(), *keepers[:disks])
        stage.acks(keepers[0], stage.url())

    assert tell(story).told == told


def test_a_view_that_is_too_small_for_no_reason_excuses_nothing() -> None:
    async def story(stage: Stage) -> None:
        owner, backup = stage.keepers(stage.url())[:2]
        stage.meet(owner, backup)
        stage.write(stage.url(), owner, backup)
        stage.acks(owner, stage.url())

    assert tell(story).told == ["I1"]


def test_a_small_side_acks_with_what_it_has_and_what_it_acked_is_thin() -> None:
    async def story(stage: Stage) -> None:
        few = stage.keepers(stage.url())[:2]
        stage.cut(*few)
        stage.write(stage.url(), *few)
        stage.acks(few[0], stage.url())
        for host in few:
            stage.lose_disk(host)
        assert stage.oracle.acks.thin_lost == 1

    assert tell(story).told == []


def test_who_went_on_a_moment_ago_may_be_taken_for_dead() -> None:
    async def story(stage: Stage) -> None:
        stopped, owner, backup, *others = [*stage.keepers(stage.url()), stage.hosts[4]]
        for other in others:
            stage.crash(other)
        stage.oracle.pauses(stopped)
        stage.meet(owner, backup)
        stage.oracle.resumes(stopped)
        stage.write(stage.url(), owner, backup)
        stage.acks(owner, stage.url())
        assert stage.told == []
        await asyncio.sleep(QUIET_S)
        stage.write(stage.url(2), owner, backup)
        stage.acks(owner, stage.url(2))

    assert tell(story).told == ["I1"]


def test_what_was_acked_is_still_there_when_two_disks_are_lost_but_it_is_missed_where_it_is_not() -> None:
    async def story(stage: Stage) -> None:
        keepers = stage.keepers(stage.url())
        stage.write(stage.url(), *keepers[:3])
        stage.acks(keepers[0], stage.url())
        stage.lose_disk(keepers[0])
        stage.lose_disk(keepers[1])
        assert stage.told == []
        stage.drop(stage.url(), keepers[2])  # that it may not, either
        stage.oracle.violations.clear()
        stage.oracle.disk_lost(keepers[1])

    assert tell(story).oracle.acks.keys_lost == 1


def test_the_last_copy_of_what_was_acked_is_missed() -> None:
    async def story(stage: Stage) -> None:
        keepers = stage.keepers(stage.url())
        stage.write(stage.url(), *keepers[:3])
        stage.acks(keepers[0], stage.url())
        for host in keepers[:2]:
            stage.drop(stage.url(), host)
        stage.oracle.violations.clear()
        stage.lose_disk(keepers[2])

    assert tell(story).told == ["I5"]


def test_a_record_is_dropped_only_when_all_who_keep_it_have_it() -> None:
    async def story(stage: Stage) -> None:
        url = stage.url()
        *keepers, last = stage.keepers(url)
        (stray,) = [host for host in stage.hosts if host not in (*keepers, last)]
        stage.write(url, *keepers, stray)
        stage.drop(url, stray)
        assert stage.told == ["I5"]
        stage.write(url, last, stray)
        stage.drop(url, stray)

    assert tell(story).told == ["I5"]


# I2, I3, I6, I7


def test_of_two_that_are_done_either_is_a_copy_of_the_other() -> None:
    """Seed 575: both sides of a partition had fetched a page, one of them at its second attempt."""

    async def story(stage: Stage) -> None:
        url = stage.url()
        *keepers, last = stage.keepers(url)
        (stray,) = [host for host in stage.hosts if host not in (*keepers, last)]
        stage.write(url, stray, state=DONE, attempt=1)
        stage.write(url, *keepers, last, state=DONE)
        stage.drop(url, stray)

    assert tell(story).told == []


def test_a_record_never_goes_back() -> None:
    async def story(stage: Stage) -> None:
        stage.write(stage.url(), stage.hosts[0], state=DONE)
        stage.write(stage.url(), stage.hosts[0], state=State.FETCHED)

    assert tell(story).told == ["I2"]


def test_a_page_is_done_only_after_its_links_are_safe() -> None:
    async def story(stage: Stage) -> None:
        page, one, other = (stage.url(number) for number in (1, 2, 3))
        keepers = stage.keepers(one)
        stage.write(one, *keepers[:3])
        stage.acks(keepers[0], one)
        stage.done(page, stage.hosts[0], one)
        assert stage.told == []
        stage.write(other, stage.hosts[1])
        stage.done(other, stage.hosts[1], other)

    assert tell(story).told == ["I3"]


@pytest.mark.parametrize("says_so", [True, False])
def test_a_backup_says_what_it_knows_better(says_so: bool) -> None:
    async def story(stage: Stage) -> None:
        key, host = url_key(stage.url()), stage.hosts[0]
        stage.write(stage.url(), host, state=DONE, gen=1)
        answered = stage.oracle.asked(
            host, stage.hosts[1].id, DeleteBackup(CRAWL, (Tombstone(key, int(State.DEAD), 0, 0, "", "", None),))
        )
        known = Record(key, stage.url(), 0, "", 0, False, 1, int(DONE), 1, 0, "", "", None)
        answered(Ack(bytes([Code.ACCEPTED]), records=(known,) if says_so else ()))

    assert tell(story).told == ([] if says_so else ["I6"])


def test_a_record_that_goes_twice_in_one_message_has_come_as_far_as_the_further_of_them() -> None:
    """Seed 575: it got further between being queued and being sent."""

    async def story(stage: Stage) -> None:
        key, url, host = url_key(stage.url()), stage.url(), stage.hosts[0]
        stage.write(url, host, state=DONE)
        rows = [Record(key, url, 0, "", 0, False, 1, int(state), 0, 0, "", "", None) for state in (State.PENDING, DONE)]
        stage.oracle.asked(host, stage.hosts[1].id, StoreBackup(CRAWL, tuple(rows)))(Ack(bytes([Code.ACCEPTED] * 2)))

    assert tell(story).told == []


def test_only_an_owner_takes_links_or_who_was_asked_because_the_owner_is_not_there() -> None:
    async def story(stage: Stage) -> None:
        owner, other, *rest = stage.keepers(stage.url())
        stage.write(stage.url(), owner, other, *rest)
        stage.acks(other, stage.url(), tried=(owner.id,))
        assert stage.told == []
        stage.acks(other, stage.url())

    assert tell(story).told == ["I7"]


# I4: tombstones


async def _old_tombstone(stage: Stage, *keepers: Any) -> None:
    stage.write(stage.url(), *keepers, state=DONE)
    await asyncio.sleep(ON_ITS_WAY_S + 1)


def _newcomer(stage: Stage) -> Any:
    host = stage.add()
    host.swarm.joins()
    stage.meet()
    return host


def _becomes_active(stage: Stage, host: Any) -> None:
    host.swarm.activates()
    stage.meet()
    stage.oracle.step()


def _is_close(stage: Stage, host: Any) -> str:
    """A page that the host would own."""
    place = {url: int.from_bytes(placement(url_key(url)), "big") for url in stage.web.truth()}
    ids = [int.from_bytes(each.id, "big") for each in stage.swarm.hosts]
    own = int.from_bytes(host.id, "big")
    return next(url for url in sorted(place) if min(ids, key=lambda number: number ^ place[url]) == own)


def test_a_newcomer_has_the_tombstones_of_what_it_keeps() -> None:
    async def story(stage: Stage) -> None:
        newcomer = _newcomer(stage)
        url = _is_close(stage, newcomer)
        stage.write(url, *stage.hosts, state=DONE)
        await asyncio.sleep(ON_ITS_WAY_S + 1)
        _becomes_active(stage, newcomer)

    assert tell(story).told == ["I4"]


@pytest.mark.parametrize(("slow_write_s", "told"), [(0.0, ["I4"]), (1.0, [])])
def test_a_slow_newcomer_may_not_have_what_came_a_while_ago(slow_write_s: float, told: list[str]) -> None:
    """Seed 11 of the random scenarios: a tombstone waited for a record on its way to the same slow disk."""

    async def story(stage: Stage) -> None:
        stage.swarm.slow_write_s = slow_write_s
        newcomer = _newcomer(stage)
        url = _is_close(stage, newcomer)
        stage.write(url, *stage.hosts, state=DONE)
        await asyncio.sleep(ON_ITS_WAY_S + 2)
        _becomes_active(stage, newcomer)

    assert tell(story).told == told


def test_a_newcomer_need_not_have_what_becomes_its_only_since_somebody_leaves() -> None:
    """Seed 7 of two crashes, joins and farewells each and a lost disk: two left while two joined."""

    async def story(stage: Stage) -> None:
        newcomer = _newcomer(stage)
        await _old_tombstone(stage, *stage.hosts)
        kept = stage.keepers(stage.url())
        leaving = [host for host in kept if host is not newcomer][:2]
        for host in leaving:
            host.swarm.state = "leaving"
            host.swarm.gossip.members.me.state = NodeState.JOINING
        newcomer.swarm.activates()
        stage.meet(leaving=leaving)
        stage.oracle.step()

    for hosts in (5, 6):
        assert tell(story, hosts).told == []


def test_a_newcomer_goes_by_its_view_also_where_somebody_in_it_is_dead() -> None:
    """Ten nodes, of which one died just before another one had joined."""

    async def story(stage: Stage) -> None:
        newcomer = _newcomer(stage)
        await _old_tombstone(stage, *stage.hosts)
        dead = next(host for host in stage.keepers(stage.url()) if host is not newcomer)
        view = View([*stage.hosts[0].swarm.gossip.view.members])
        stage.crash(dead)
        newcomer.swarm.activates()
        newcomer.swarm.gossip.view = view
        stage.oracle.step()

    assert tell(story).told == []


@pytest.mark.parametrize(("keepers", "told"), [(4, []), (3, ["I4"])])
def test_at_the_end_all_who_keep_a_record_know_that_it_is_over(keepers: int, told: list[str]) -> None:
    async def story(stage: Stage) -> None:
        await _old_tombstone(stage, *stage.keepers(stage.url())[:keepers])
        stage.says(stage.hosts[0], "complete")

    assert tell(story).told == told


# I8: once


def test_a_page_is_fetched_once() -> None:
    async def story(stage: Stage) -> None:
        stage.asks(stage.hosts[0], stage.url())
        stage.asks(stage.hosts[1], stage.url())

    stage = tell(story)
    assert stage.told == ["I8"]
    assert stage.oracle.fetched.refetches == 1


def test_a_request_that_was_cut_off_brought_nothing() -> None:
    async def story(stage: Stage) -> None:
        visit = stage.asks(stage.hosts[0], stage.url(), comes=False)
        visit.end = 1.0
        stage.asks(stage.hosts[1], stage.url())

    stage = tell(story)
    assert stage.told == []
    assert stage.oracle.fetched.refetches == 0


@pytest.mark.parametrize(("known", "told"), [(False, []), (True, ["I8"])])
def test_a_crash_accounts_for_what_only_it_knew(known: bool, told: list[str]) -> None:
    async def story(stage: Stage) -> None:
        one, other, third, *_ = stage.hosts
        stage.asks(one, stage.url())
        stage.write(stage.url(), one, state=DONE)
        if known:
            stage.write(stage.url(), third, state=DONE)
        stage.crash(one)
        stage.asks(other, stage.url())

    assert tell(story).told == told


def test_who_has_it_on_its_own_disk_does_not_ask_for_it() -> None:
    async def story(stage: Stage) -> None:
        one, other, *_ = stage.hosts
        stage.write(stage.url(), other, state=DONE)
        await asyncio.sleep(1)
        stage.crash(one)
        stage.asks(other, stage.url())

    assert tell(story).told == ["I8"]


def test_each_side_of_a_partition_may_fetch_a_page_and_neither_twice() -> None:
    async def story(stage: Stage) -> None:
        one, other, third, *_ = stage.hosts
        stage.asks(third, stage.url(1))  # in flight when it happens
        stage.cut(one)
        stage.asks(one, stage.url(1))
        stage.asks(other, stage.url(2))
        stage.asks(one, stage.url(2))
        assert stage.told == []
        stage.asks(third, stage.url(2))

    assert tell(story).told == ["I8"]


def test_what_both_sides_know_before_a_partition_is_fetched_by_neither() -> None:
    async def story(stage: Stage) -> None:
        one, other, third, *_ = stage.hosts
        stage.asks(one, stage.url())
        stage.write(stage.url(), one, other, state=DONE)
        stage.cut(one)
        stage.asks(third, stage.url())

    assert tell(story).told == ["I8"]


def test_sides_are_apart_until_their_views_have_met_and_no_longer() -> None:
    async def story(stage: Stage) -> None:
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

    assert tell(story).told == ["I8"]


def test_a_pause_accounts_for_what_was_in_flight_and_for_nothing_after_it() -> None:
    async def story(stage: Stage) -> None:
        one, other, *_ = stage.hosts
        visit = stage.asks(one, stage.url(1), comes=False)
        stage.oracle.pauses(one)
        stage.asks(other, stage.url(1))
        stage.asks(other, stage.url(2))
        stage.oracle.resumes(one)
        stage.arrives(visit)
        assert stage.told == []
        stage.asks(one, stage.url(2))

    assert tell(story).told == ["I8"]


@pytest.mark.parametrize(("others_there", "told"), [(False, []), (True, ["I8"])])
def test_who_starts_where_nobody_else_is_knows_what_its_disk_does(others_there: bool, told: list[str]) -> None:
    """Seed 513 of the random scenarios: all others of its side had crashed before it was back."""

    async def story(stage: Stage) -> None:
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

    assert tell(story).told == told


# I9: polite


@pytest.mark.parametrize(("apart", "told"), [(False, ["I9"]), (True, [])])
def test_two_requests_keep_their_distance_but_for_what_sides_that_are_apart_do(apart: bool, told: list[str]) -> None:
    async def story(stage: Stage) -> None:
        one, other, *_ = stage.hosts
        await asyncio.sleep(1)
        if apart:
            stage.cut(one)
        stage.asks(one, stage.url(1))
        await asyncio.sleep(0.9)
        stage.asks(other, stage.url(2))
        assert stage.oracle.haste(1.0) == apart

    assert tell(story).told == told


@pytest.mark.parametrize(("parted", "met", "told"), [(False, True, ["I9"]), (True, True, []), (True, False, [])])
def test_what_one_side_had_under_way_when_they_met_is_nothing_that_the_gatekeeper_of_all_knows(
    parted: bool, met: bool, told: list[str]
) -> None:
    """Seeds 69 and 575 of the random scenarios: both clients were of one side, but only one of the gatekeepers.

    The other may be of the other side from when the network is whole, before all know one another.
    """

    async def story(stage: Stage) -> None:
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
        assert stage.oracle.haste(1.0) == parted

    assert tell(story).told == told


def test_of_one_side_the_requests_keep_their_distance_while_it_is_cut_off() -> None:
    async def story(stage: Stage) -> None:
        one, same_side, *others = stage.hosts
        await asyncio.sleep(1)
        stage.cut(*others)
        stage.asks(one, stage.url(1))
        await asyncio.sleep(0.9)
        stage.asks(same_side, stage.url(2))
        assert stage.oracle.haste(1.0) == 0

    assert tell(story).told == ["I9"]


# I10, I13: it ends, and rightly


def test_complete_is_not_said_while_a_task_is_pending_within_reach() -> None:
    async def story(stage: Stage) -> None:
        stage.write(stage.url(), stage.hosts[0])
        stage.says(stage.hosts[1], "complete")

    assert tell(story).told == ["I10"]


def test_a_side_says_complete_of_what_it_can_reach_and_the_crawl_goes_on_when_the_rest_is_back() -> None:
    async def story(stage: Stage) -> None:
        one, other, *_ = stage.hosts
        stage.write(stage.url(), one)
        stage.cut(one)
        stage.says(other, "complete")
        assert stage.oracle.ended_at is not None
        stage.heal()
        stage.says(one, "", version=2)
        assert stage.oracle.ended_at is None
        stage.says(one, "complete", version=3)

    assert tell(story).told == ["I10"]


def test_nothing_gets_further_and_that_is_told_but_not_of_a_partition() -> None:
    async def story(stage: Stage) -> None:
        stage.cut(stage.hosts[0])
        await asyncio.sleep(2 * STUCK_S)
        assert not stage.oracle.stuck(0.0)
        stage.heal()
        stage.oracle.step()
        await asyncio.sleep(STUCK_S + 1)
        assert stage.oracle.stuck(0.0)

    assert tell(story).told == ["I13"]


def test_sides_that_do_not_find_each_other_again_are_told() -> None:
    async def story(stage: Stage) -> None:
        one, *others = stage.hosts
        stage.cut(one)
        stage.meet(one)
        stage.meet(*others)
        stage.heal()
        await asyncio.sleep(MEET_S + 1)
        stage.oracle.step()

    assert tell(story).told == ["I13"]


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
def test_a_page_is_opened_again_when_its_body_was_out_of_reach_for_the_grace(
    gone_s: float | None, told: list[str]
) -> None:
    async def story(stage: Stage) -> None:
        holder, owner, *_ = stage.hosts
        place = stage.body(holder, holder)
        stage.asks(holder, stage.url())
        stage.write(stage.url(), owner, holder, state=DONE, place=place)
        if gone_s is not None:
            stage.crash(holder)
            await asyncio.sleep(gone_s)
        stage.write(stage.url(), owner, gen=1)
        stage.asks(owner, stage.url())

    assert tell(story).told == told


def test_a_body_that_was_left_to_an_heir_is_lost_with_the_disk_of_the_heir() -> None:
    """Seeds 4 and 11 of two crashes, joins and farewells each and a lost disk."""

    async def story(stage: Stage) -> None:
        holder, heir, owner, *_ = stage.hosts
        place = stage.body(holder, heir)
        stage.asks(holder, stage.url())
        stage.write(stage.url(), owner, state=DONE, place=place)
        holder.swarm = None
        stage.oracle.left(holder, handed_over=True)
        stage.lose_disk(heir)
        await asyncio.sleep(GRACE_S + 1)
        stage.write(stage.url(), owner, gen=1)
        stage.asks(owner, stage.url())

    assert tell(story).told == []


@pytest.mark.parametrize(("page", "told"), [(True, ["I11"]), (False, [])])
def test_an_heir_has_a_body_once_it_has_the_page_record(page: bool, told: list[str]) -> None:
    """Seed 34 of the random scenarios: a node left while it was cut off, and its heir got half of what it had."""

    async def story(stage: Stage) -> None:
        holder, heir, owner, *_ = stage.hosts
        place = stage.body(holder, heir, page=page)
        stage.asks(holder, stage.url())
        stage.write(stage.url(), owner, state=DONE, place=place)
        holder.swarm = None
        stage.oracle.left(holder, handed_over=True)
        await asyncio.sleep(GRACE_S + 1)
        stage.write(stage.url(), owner, gen=1)
        stage.asks(owner, stage.url())

    assert tell(story).told == told


def test_who_is_told_that_a_page_was_opened_again_has_not_opened_it() -> None:
    async def story(stage: Stage) -> None:
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

    assert tell(story).told == ["I8"]


# I12: joining


def test_a_joining_node_acks_nothing_and_asks_for_nothing() -> None:
    async def story(stage: Stage) -> None:
        owner, *others = stage.keepers(stage.url())
        stage.write(stage.url(), owner, *others)
        owner.swarm.joins()
        stage.acks(owner, stage.url())
        stage.asks(owner, stage.url())

    assert tell(story).told == ["I12", "I12"]


@pytest.mark.parametrize(("paused_s", "told"), [(3, []), (60, ["I12"])])
def test_who_stood_still_for_long_asks_for_nothing_before_it_has_joined_again(paused_s: float, told: list[str]) -> None:
    async def story(stage: Stage) -> None:
        host = stage.hosts[0]
        stage.oracle.pauses(host)
        await asyncio.sleep(paused_s)
        stage.oracle.resumes(host)
        stage.asks(host, stage.url(1))
        host.swarm.joins()
        stage.oracle.step()
        host.swarm.activates()
        stage.asks(host, stage.url(2))

    assert tell(story).told == told


# I5: leaving


@pytest.mark.parametrize(("since_s", "told"), [(20.0, []), (60.0, ["I5"])])
def test_who_leaves_long_after_a_partition_has_no_reason_to_keep_its_work(since_s: float, told: list[str]) -> None:
    async def story(stage: Stage) -> None:
        host = stage.hosts[0]
        stage.cut(host)
        stage.heal()
        stage.oracle.step()
        await asyncio.sleep(since_s)
        host.swarm = None
        stage.oracle.left(host, handed_over=False)

    assert tell(story).told == told


@pytest.mark.parametrize(
    ("joining", "owning_s", "told"), [(3, 0.0, ["I5"]), (4, 0.0, []), (4, QUIET_S / 2, []), (4, QUIET_S + 1, ["I5"])]
)
def test_who_leaves_keeps_its_work_where_all_the_others_have_long_been_joining(
    joining: int, owning_s: float, told: list[str]
) -> None:
    async def story(stage: Stage) -> None:
        leaver, *others = stage.hosts
        await asyncio.sleep(QUIET_S + 1)
        for host in others[:joining]:
            host.swarm.joins()
        stage.oracle.step()
        for host in others[:joining] if owning_s else ():
            host.swarm.activates()
        stage.oracle.step()
        await asyncio.sleep(owning_s)
        leaver.swarm = None
        stage.oracle.left(leaver, handed_over=False)

    assert tell(story).told == told
