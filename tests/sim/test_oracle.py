"""The oracle is told what a sound swarm does and what a broken one does, and tells them apart."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dhtcrawl.keyspace import placement, url_key
from dhtcrawl.rpc.membership.hello import NodeState
from dhtcrawl.rpc.membership.view import View
from dhtcrawl.rpc.tasks.messages import Ack, Code, DeleteBackup, StoreBackup, StoreTask
from dhtcrawl.rpc.tasks.rows import LinkRow, RecordRow, TombstoneRow
from dhtcrawl.sim.judge_acks import UNDER_WAY_S
from dhtcrawl.sim.judge_ends import ENDING_S, ON_ITS_WAY_S, STUCK_S
from dhtcrawl.sim.scene import MEET_S, QUIET_S
from dhtcrawl.storage.store.records import State

from .stage import CRAWL, Stage

DONE = State.DONE


# I1, I5: what is acked stays


@pytest.mark.parametrize(("disks", "told"), [(3, []), (2, ["I1"])])
async def test_an_ack_needs_the_owner_and_two_backups(disks: int, told: list[str]) -> None:
    stage = Stage()
    keepers = stage.keepers(stage.url())
    stage.write(stage.url(), *keepers[:disks])
    stage.acks(keepers[0], stage.url())
    assert stage.told == told


async def test_a_view_that_is_too_small_for_no_reason_excuses_nothing() -> None:
    stage = Stage()
    owner, backup = stage.keepers(stage.url())[:2]
    stage.meet(owner, backup)
    stage.write(stage.url(), owner, backup)
    stage.acks(owner, stage.url())
    assert stage.told == ["I1"]


async def test_a_small_side_acks_with_what_it_has_and_what_it_acked_is_thin() -> None:
    stage = Stage()
    few = stage.keepers(stage.url())[:2]
    stage.cut(*few)
    stage.write(stage.url(), *few)
    stage.acks(few[0], stage.url())
    for host in few:
        stage.lose_disk(host)
    assert stage.oracle.acks.thin_lost == 1
    assert stage.told == []


@pytest.mark.parametrize(("long_ago", "told"), [(False, []), (True, ["I1"])])
async def test_who_comes_from_the_other_side_may_have_told_that_those_of_this_one_are_dead(
    long_ago: bool, told: list[str]
) -> None:
    stage = Stage()
    owner, *_, stranger = stage.keepers(stage.url())
    stage.cut(stranger)
    stage.heal()
    if long_ago:
        stage.meet()
        stage.oracle.step()
        await asyncio.sleep(UNDER_WAY_S + QUIET_S)
    stage.meet(owner, stranger)
    stage.write(stage.url(), owner, stranger)
    stage.acks(owner, stage.url())
    assert stage.told == told


async def test_who_went_on_a_moment_ago_may_be_taken_for_dead() -> None:
    stage = Stage()
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
    assert stage.told == ["I1"]


@pytest.mark.parametrize(("since_s", "told"), [(UNDER_WAY_S - 1.0, []), (UNDER_WAY_S, ["I1"])])
async def test_who_began_again_a_moment_ago_need_not_have_been_heard_of(since_s: float, told: list[str]) -> None:
    stage = Stage()
    owner, backup, *others = [*stage.keepers(stage.url()), stage.hosts[4]]
    for other in others:
        stage.crash(other)
    stage.meet(owner, backup)
    await asyncio.sleep(60.0)
    for other in others:
        stage.come_back(other)
    stage.meet(*others)
    await asyncio.sleep(since_s)
    stage.write(stage.url(), owner, backup)
    stage.acks(owner, stage.url())
    assert stage.told == told


async def test_what_was_acked_is_still_there_when_two_disks_are_lost_but_it_is_missed_where_it_is_not() -> None:
    stage = Stage()
    keepers = stage.keepers(stage.url())
    stage.write(stage.url(), *keepers[:3])
    stage.acks(keepers[0], stage.url())
    stage.lose_disk(keepers[0])
    stage.lose_disk(keepers[1])
    assert stage.told == []
    stage.drop(stage.url(), keepers[2])  # that it may not, either
    stage.oracle.violations.clear()
    stage.oracle.disk_lost(keepers[1])
    assert stage.oracle.acks.keys_lost == 1


async def test_who_sent_a_link_that_all_its_keepers_lost_may_take_it_for_safe_and_nobody_else() -> None:
    """Until the audit, which looks for such links and sends them again."""
    stage = Stage()
    link, page, other = (stage.url(number) for number in (1, 2, 3))
    keepers = stage.keepers(link)[:3]
    stage.write(link, *keepers)
    stage.acks(keepers[0], link)
    for host in keepers:
        stage.lose_disk(host)
    there = next(host for host in stage.hosts if host not in keepers)
    stage.done(page, there, link)
    assert stage.told == []
    stage.write(other, there)
    stage.done(other, there, other)
    assert (stage.told, stage.oracle.acks.keys_lost) == (["I3"], 1)


@pytest.mark.parametrize("acked", [True, False], ids=["acked", "not"])
async def test_a_page_that_others_say_is_done_keeps_its_links_until_they_are_safe(acked: bool) -> None:
    """Another node fetched it, too, and what that one found is safe."""
    stage = Stage()
    link, page = stage.url(1), stage.url(2)
    keepers = stage.keepers(link)[:3]
    there = next(host for host in stage.hosts if host not in keepers)
    stage.done(page, there, link, sends=True)
    assert stage.told == []
    if acked:
        stage.write(link, *keepers)
        stage.acks(keepers[0], link)
    stage.sent(page, there)
    assert stage.told == ([] if acked else ["I3"])


async def test_the_last_copy_of_what_was_acked_is_missed() -> None:
    stage = Stage()
    keepers = stage.keepers(stage.url())
    stage.write(stage.url(), *keepers[:3])
    stage.acks(keepers[0], stage.url())
    for host in keepers[:2]:
        stage.drop(stage.url(), host)
    stage.oracle.violations.clear()
    stage.lose_disk(keepers[2])
    assert stage.told == ["I5"]


async def test_a_record_is_dropped_only_when_all_who_keep_it_have_it() -> None:
    stage = Stage()
    url = stage.url()
    *keepers, last = stage.keepers(url)
    (stray,) = [host for host in stage.hosts if host not in (*keepers, last)]
    stage.write(url, *keepers, stray)
    stage.drop(url, stray)
    assert stage.told == ["I5"]
    stage.write(url, last, stray)
    stage.drop(url, stray)
    assert stage.told == ["I5"]


# I2, I3, I6, I7


async def test_of_two_that_are_done_either_is_a_copy_of_the_other() -> None:
    """Seed 575: both sides of a partition had fetched a page, one of them at its second attempt."""
    stage = Stage()
    url = stage.url()
    *keepers, last = stage.keepers(url)
    (stray,) = [host for host in stage.hosts if host not in (*keepers, last)]
    stage.write(url, stray, state=DONE, attempt=1)
    stage.write(url, *keepers, last, state=DONE)
    stage.drop(url, stray)
    assert stage.told == []


async def test_a_record_never_goes_back() -> None:
    stage = Stage()
    stage.write(stage.url(), stage.hosts[0], state=DONE)
    stage.write(stage.url(), stage.hosts[0], state=State.FETCHED)
    assert stage.told == ["I2"]


@pytest.mark.parametrize(("others_have_it", "told"), [(True, []), (False, ["I5"])])
async def test_a_record_may_go_and_come_again_in_one_batch(others_have_it: bool, told: list[str]) -> None:
    """Seeds 239 and 761 of the random scenarios: all who keep it had acked, then one that did not know brought it."""
    stage = Stage()
    keepers = stage.keepers(stage.url())
    (stray,) = [host for host in stage.hosts if host not in keepers]
    stage.write(stage.url(), stray, *keepers[: 4 if others_have_it else 2], state=DONE)
    stage.write(stage.url(), stray, order=2)
    assert sorted(set(stage.told)) == told


async def test_a_page_is_done_only_after_its_links_are_safe() -> None:
    stage = Stage()
    page, one, other = (stage.url(number) for number in (1, 2, 3))
    keepers = stage.keepers(one)
    stage.write(one, *keepers[:3])
    stage.acks(keepers[0], one)
    stage.done(page, stage.hosts[0], one)
    assert stage.told == []
    stage.write(other, stage.hosts[1])
    stage.done(other, stage.hosts[1], other)
    assert stage.told == ["I3"]


@pytest.mark.parametrize(("since_s", "told"), [(1.0, []), (UNDER_WAY_S + 1, ["I3"])])
async def test_what_a_small_side_had_under_way_is_as_safe_as_it_could_be(since_s: float, told: list[str]) -> None:
    """Random seed 479: two met all the others 0.3 s before a page of theirs was done."""
    stage = Stage()
    page, link, other = (stage.url(number) for number in (1, 2, 3))
    few = stage.keepers(link)[:2]
    stage.cut(*few)
    stage.meet(*few)
    stage.write(link, *few)
    stage.write(other, *few)
    stage.acks(few[0], other, tried=(few[1].id,))
    await asyncio.sleep(1)
    stage.heal()
    stage.meet()
    stage.oracle.step()
    await asyncio.sleep(since_s)
    stage.done(page, few[0], link)
    assert stage.told == told


@pytest.mark.parametrize(
    ("says_so", "code", "told"),
    [(True, Code.ACCEPTED, []), (False, Code.ACCEPTED, ["I6"]), (False, Code.FAILED, [])],
)
async def test_a_backup_says_what_it_knows_better_unless_it_refuses(says_so: bool, code: Code, told: list[str]) -> None:
    """Seed 1086: a record at a node that others do not see yet after a partition is refused, and sent again."""
    stage = Stage()
    key, host = url_key(stage.url()), stage.hosts[0]
    stage.write(stage.url(), host, state=DONE, gen=1)
    answered = stage.oracle.asked(
        host, stage.hosts[1].id, DeleteBackup(CRAWL, (TombstoneRow(key, int(State.DEAD), 0, 0, "", "", None),))
    )
    known = RecordRow(key, stage.url(), 0, "", 0, False, 1, int(DONE), 1, 0, "", "", None)
    answered(Ack(bytes([code]), records=(known,) if says_so else ()))
    assert stage.told == told


@pytest.mark.parametrize(("asked_first", "told"), [(True, []), (False, ["I6"])])
async def test_a_backup_need_not_say_what_it_let_go_of_meanwhile(asked_first: bool, told: list[str]) -> None:
    """Seed 112 under gnp: it got the record again, from whoever asked."""
    stage = Stage()
    url, other = stage.url(), stage.hosts[1].id
    (stray,) = [host for host in stage.hosts if host not in stage.keepers(url)]
    stage.write(url, *stage.keepers(url), stray, state=DONE)
    row = RecordRow(url_key(url), url, 0, "", 0, False, 1, int(State.PENDING), 0, 0, "", "", None)
    if not asked_first:
        stage.drop(url, stray)
        stage.write(url, stray, state=DONE)
        await asyncio.sleep(1)
    answered = stage.oracle.asked(stray, other, StoreBackup(CRAWL, (row,)))
    if asked_first:
        stage.drop(url, stray)
        stage.write(url, stray, state=DONE)
    answered(Ack(bytes([Code.ACCEPTED])))
    assert stage.told == told


async def test_a_record_that_goes_twice_in_one_message_has_come_as_far_as_the_further_of_them() -> None:
    """Seed 575: it got further between being queued and being sent."""
    stage = Stage()
    key, url, host = url_key(stage.url()), stage.url(), stage.hosts[0]
    stage.write(url, host, state=DONE)
    rows = [RecordRow(key, url, 0, "", 0, False, 1, int(state), 0, 0, "", "", None) for state in (State.PENDING, DONE)]
    stage.oracle.asked(host, stage.hosts[1].id, StoreBackup(CRAWL, tuple(rows)))(Ack(bytes([Code.ACCEPTED] * 2)))
    assert stage.told == []


async def test_only_an_owner_takes_links_or_who_was_asked_because_the_owner_is_not_there() -> None:
    stage = Stage()
    owner, other, *rest = stage.keepers(stage.url())
    stage.write(stage.url(), owner, other, *rest)
    stage.acks(other, stage.url(), tried=(owner.id,))
    assert stage.told == []
    stage.acks(other, stage.url())
    assert stage.told == ["I7"]


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


async def test_an_ack_that_takes_long_may_go_by_the_view_of_when_it_was_asked_for() -> None:
    stage = Stage()
    _, *others = stage.keepers(stage.url())
    owner = others[0]
    message = StoreTask(CRAWL, (LinkRow(url_key(stage.url()), stage.url(), 0, "", 0, False),), ())
    stage.meet(*others)
    stage.write(stage.url(), *others)
    told = stage.oracle.asked(owner, stage.hosts[0].id, message)
    for _ in range(28):  # seconds, in which its view changes as often, and something else is asked of it each time
        await asyncio.sleep(1.0)
        stage.meet()
        stage.oracle.asked(owner, stage.hosts[0].id, message)
    told(Ack(bytes([Code.ACCEPTED])))
    assert stage.told == []
    stage.oracle.asked(owner, stage.hosts[0].id, message)(Ack(bytes([Code.ACCEPTED])))
    assert stage.told == ["I7"]


async def test_a_newcomer_has_the_tombstones_of_what_it_keeps() -> None:
    stage = Stage()
    newcomer = _newcomer(stage)
    url = _is_close(stage, newcomer)
    stage.write(url, *stage.hosts, state=DONE)
    await asyncio.sleep(ON_ITS_WAY_S + 1)
    _becomes_active(stage, newcomer)
    assert stage.told == ["I4"]


@pytest.mark.parametrize(("slow_write_s", "told"), [(0.0, ["I4"]), (1.0, [])])
async def test_a_slow_newcomer_may_not_have_what_came_a_while_ago(slow_write_s: float, told: list[str]) -> None:
    """Seed 11 of the random scenarios: a tombstone waited for a record on its way to the same slow disk."""
    stage = Stage()
    stage.swarm.slow_write_s = slow_write_s
    newcomer = _newcomer(stage)
    url = _is_close(stage, newcomer)
    stage.write(url, *stage.hosts, state=DONE)
    await asyncio.sleep(ON_ITS_WAY_S + 2)
    _becomes_active(stage, newcomer)
    assert stage.told == told


@pytest.mark.parametrize(("knows", "before", "told"), [(0, False, ["I4"]), (1, False, []), (1, True, ["I4"])])
async def test_a_newcomer_need_not_have_what_only_a_backup_has_heard_of_since(
    knows: int, before: bool, told: list[str]
) -> None:
    """Random seed 691: one who had been cut off told a backup, after the newcomer had asked that one."""
    stage = Stage()
    newcomer = _newcomer(stage)
    url = _is_close(stage, newcomer)
    keepers = [host for host in _closest(stage, url) if host is not newcomer]
    if before:
        stage.write(url, keepers[knows], state=DONE)
    stage.oracle.step()
    await asyncio.sleep(1)
    if not before:
        stage.write(url, keepers[knows], state=DONE)
    await asyncio.sleep(ON_ITS_WAY_S + 1)
    _becomes_active(stage, newcomer)
    assert stage.told == told


def _closest(stage: Stage, url: str) -> list[Any]:
    number = int.from_bytes(placement(url_key(url)), "big")
    return sorted(stage.swarm.hosts, key=lambda host: int.from_bytes(host.id, "big") ^ number)


async def test_a_newcomer_need_not_have_what_becomes_its_only_since_somebody_leaves() -> None:
    """Seed 7 of two crashes, joins and farewells each and a lost disk: two left while two joined."""
    for hosts in (5, 6):
        stage = Stage(hosts)
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
        assert stage.told == []


async def test_a_newcomer_goes_by_its_view_also_where_somebody_in_it_is_dead() -> None:
    """Ten nodes, of which one died just before another one had joined."""
    stage = Stage()
    newcomer = _newcomer(stage)
    await _old_tombstone(stage, *stage.hosts)
    dead = next(host for host in stage.keepers(stage.url()) if host is not newcomer)
    view = View([*stage.hosts[0].swarm.gossip.view.members])
    stage.crash(dead)
    newcomer.swarm.activates()
    newcomer.swarm.gossip.view = view
    stage.oracle.step()
    assert stage.told == []


async def test_the_end_may_be_declared_before_a_crash_is_known() -> None:
    """Seed 727 of the random scenarios: two of those who kept a record had vanished 40 ms before."""
    stage = Stage()
    stage.add().swarm.activates()
    stage.meet()
    first, *others = stage.keepers(stage.url())
    await _old_tombstone(stage, first, *others)
    view = View([*others[0].swarm.gossip.view.members])
    stage.crash(first)
    for host in stage.hosts:
        if host.swarm is not None:
            host.swarm.gossip.view = view
    stage.says(others[0], "complete")
    assert stage.told == []


@pytest.mark.parametrize(("keepers", "told"), [(4, []), (3, ["I4"])])
async def test_at_the_end_all_who_keep_a_record_know_that_it_is_over(keepers: int, told: list[str]) -> None:
    stage = Stage()
    await _old_tombstone(stage, *stage.keepers(stage.url())[:keepers])
    stage.says(stage.hosts[0], "complete")
    assert stage.told == told


# I10, I13: it ends, and rightly


async def test_complete_is_not_said_while_a_task_is_pending_within_reach() -> None:
    stage = Stage()
    stage.write(stage.url(), stage.hosts[0])
    stage.says(stage.hosts[1], "complete")
    assert stage.told == ["I10"]


async def test_a_side_says_complete_of_what_it_can_reach_and_the_crawl_goes_on_when_the_rest_is_back() -> None:
    stage = Stage()
    one, other, *_ = stage.hosts
    stage.write(stage.url(), one)
    stage.cut(one)
    stage.says(other, "complete")
    assert stage.oracle.ended_at is not None
    stage.heal()
    stage.says(one, "", version=2)
    assert stage.oracle.ended_at is None
    stage.says(one, "complete", version=3)
    assert stage.told == ["I10"]


@pytest.mark.parametrize(("write_s", "told"), [(0.0, ["I10"]), (1.0, [])])
async def test_the_end_comes_soon_after_the_last_task_but_a_slow_store_takes_its_time(
    write_s: float, told: list[str]
) -> None:
    """Seed 297 of the random scenarios."""
    stage = Stage()
    stage.swarm.slow_write_s = write_s
    keepers = stage.keepers(stage.url())
    await _old_tombstone(stage, *keepers)
    await asyncio.sleep(ENDING_S + 5)
    stage.says(stage.hosts[0], "complete")
    stage.oracle.ends.in_time(0.0)
    assert stage.told == told


async def test_nothing_gets_further_and_that_is_told_but_not_of_a_partition() -> None:
    stage = Stage()
    stage.cut(stage.hosts[0])
    await asyncio.sleep(2 * STUCK_S)
    assert not stage.oracle.ends.stuck(0.0)
    stage.heal()
    stage.oracle.step()
    await asyncio.sleep(STUCK_S + 1)
    assert stage.oracle.ends.stuck(0.0)
    assert stage.told == ["I13"]


async def test_sides_that_do_not_find_each_other_again_are_told() -> None:
    stage = Stage()
    one, *others = stage.hosts
    stage.cut(one)
    stage.meet(one)
    stage.meet(*others)
    stage.heal()
    await asyncio.sleep(MEET_S + 1)
    stage.oracle.step()
    assert stage.told == ["I13"]


# I5: leaving


@pytest.mark.parametrize(("since_s", "told"), [(20.0, []), (60.0, ["I5"])])
async def test_who_leaves_long_after_a_partition_has_no_reason_to_keep_its_work(
    since_s: float, told: list[str]
) -> None:
    stage = Stage()
    host = stage.hosts[0]
    stage.cut(host)
    stage.heal()
    stage.oracle.step()
    await asyncio.sleep(since_s)
    host.swarm = None
    stage.oracle.left(host, handed_over=False)
    assert stage.told == told


@pytest.mark.parametrize(
    ("joining", "owning_s", "told"), [(3, 0.0, ["I5"]), (4, 0.0, []), (4, QUIET_S / 2, []), (4, QUIET_S + 1, ["I5"])]
)
async def test_who_leaves_keeps_its_work_where_all_the_others_have_long_been_joining(
    joining: int, owning_s: float, told: list[str]
) -> None:
    stage = Stage()
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
    assert stage.told == told


@pytest.mark.parametrize(("had", "told"), [(True, ["I4"]), (False, [])])
async def test_whoever_owns_what_a_leaver_knew_knows_it(had: bool, told: list[str]) -> None:
    """Seed 575 of the random scenarios: what it never had is others' to tell."""
    stage = Stage()
    _, leaver, *others = stage.keepers(stage.url())
    await _old_tombstone(stage, *others, *[leaver] * had)
    leaver.swarm = None
    stage.meet(*(host for host in stage.hosts if host is not leaver))
    stage.oracle.left(leaver, handed_over=True)
    assert stage.told == told


@pytest.mark.parametrize(("since_s", "told"), [(QUIET_S - 5, []), (QUIET_S + 1, ["I4"])])
async def test_who_leaves_when_sides_have_just_met_is_not_to_have_told_them_everything(
    since_s: float, told: list[str]
) -> None:
    """Seed 34 of the random scenarios: of what only the other side had brought, the next owner was still to hear."""
    stage = Stage()
    owner, leaver, *others = stage.keepers(stage.url())
    await _old_tombstone(stage, leaver, *others)
    stage.cut(owner)
    stage.heal()
    stage.oracle.step()
    await asyncio.sleep(since_s)
    leaver.swarm = None
    stage.meet(*(host for host in stage.hosts if host is not leaver))
    stage.oracle.left(leaver, handed_over=True)
    assert stage.told == told


async def test_the_links_of_a_page_wait_until_nothing_is_left_to_be_told() -> None:
    stage = Stage()
    host, page, link = stage.hosts[0], stage.url(1), stage.url(2)
    stage.done(page, host, link, sends=True)
    assert stage.oracle.ledger.unsent == {page}
    stage.write(link, *stage.keepers(link)[:3])
    stage.sent(page, host)
    assert stage.oracle.ledger.unsent == set()
