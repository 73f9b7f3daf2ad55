"""A coordinator and four others, on a virtual clock: the crawl ends once, and not early, whoever dies."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dhtcrawl.config import CrawlSettings
from dhtcrawl.keyspace import crawl_key
from dhtcrawl.rpc.membership.view import Member, MemberState, View
from dhtcrawl.rpc.tasks.messages import Refused
from dhtcrawl.sim.loop import run
from dhtcrawl.storage.store.crawl_record import COMPLETE, PAUSED, RUNNING, STOPPING, changed
from dhtcrawl.swarm.calls.lifecycle import AuditCrawl, AuditResult
from dhtcrawl.swarm.lifecycle.coordinator import CoordinatorSettings
from dhtcrawl.swarm.lifecycle.page_block_service import SUCCESSORS

from .five_nodes import CrawlNode, CrawlWorld, Job, Weather, a_swarm

TREE = Job("a", 5)  # 63 pages
PAGES = 63


# The end


@pytest.mark.parametrize("seed", range(3))
async def test_the_end_is_noticed_within_two_seconds_on_all_nodes(seed: int) -> None:
    async with a_swarm(seed=seed) as swarm:
        swarm.ranked()[2].accept(TREE)
        await swarm.until(lambda: not swarm.work())
        await swarm.ended(within_s=2.0)
    assert swarm.pages == PAGES
    assert [word for _, _, word in swarm.ends] == ["complete"] * 5


async def test_only_those_that_may_coordinate_next_are_told_figures_of_others() -> None:
    async with a_swarm() as swarm:
        swarm.ranked()[1].accept(TREE)
        await swarm.ended(within_s=60.0)
        reports = zip(swarm.calls("crawl_report"), swarm.args("crawl_report"), strict=True)
        told = {said.asked for said, args in reports if args.get("gone")}
        assert told == {node.node_id for node in swarm.ranked()[1 : SUCCESSORS + 1]}


async def test_a_newcomer_that_will_coordinate_is_told_figures_of_others_while_it_joins() -> None:
    async with a_swarm() as swarm:
        swarm.ranked()[1].accept(TREE)
        coordinator, key = swarm.ranked()[0], crawl_key(swarm.crawl_id)
        far = bytes([key[0] ^ 0xFF]) + key[1:]  # it coordinates nothing
        newcomers = [swarm.add(coordinator.record(), node_id) for node_id in (key, far)]
        joining = [Member(node.node_id, ("10.0.0.1", 1), MemberState.JOINING) for node in newcomers]
        for node in swarm.nodes.values():
            node.own_view = View([*(m for m in coordinator.view.members if m.id not in (key, far)), *joining])
        for node in newcomers:
            swarm.start(node)
        await swarm.until(lambda: {key, far} <= {said.asked for said in swarm.calls("crawl_report")}, 5.0)
        reports = zip(swarm.calls("crawl_report"), swarm.args("crawl_report"), strict=True)
        told = {said.asked for said, args in reports if args.get("gone")}
        assert (key in told, far in told) == (True, False)


async def test_a_coordinator_of_many_asks_them_less_often() -> None:
    asked = []
    for member_s in (CoordinatorSettings().member_s, 1.0):  # the second as if each of the five were a thousand
        async with a_swarm(settings=CoordinatorSettings(member_s=member_s)) as swarm:
            swarm.weather.fetch_s = 20.0
            swarm.ranked()[2].accept(Job("slow", 0))
            await swarm.ended(within_s=60.0)
        asked.append(len(swarm.calls("crawl_report")))
    assert asked[1] < asked[0] / 2


@pytest.mark.parametrize("seed", range(4))
async def test_a_lossy_network_delays_the_end_and_no_more(seed: int) -> None:
    async with a_swarm(seed=seed, weather=Weather(latency_s=0.05, loss=0.1)) as swarm:
        swarm.ranked()[1].accept(TREE)
        await swarm.ended(within_s=600.0)
    assert swarm.pages == PAGES
    assert len({node.record().digest for node in swarm.nodes.values()}) == 1


async def test_nothing_ends_while_a_single_slow_page_is_in_flight() -> None:
    async with a_swarm() as swarm:
        swarm.weather.fetch_s = 100.0
        swarm.ranked()[3].accept(Job("slow", 0))
        await swarm.until(lambda: not swarm.work())
        assert swarm.now > 50
        assert swarm.ends == []
        await swarm.ended(within_s=2.5)


async def test_the_reasons_say_who_is_waited_for_and_why() -> None:
    seen: dict[str, None] = {}

    async with a_swarm() as swarm:
        swarm.weather.fetch_s = 5.0
        coordinator, other, mute = swarm.ranked()[:3]
        other.accept(Job("slow", 0))
        await swarm.until(lambda: not swarm.work())
        swarm.weather.rule = lambda _, to, name: to == mute.node_id and name == "crawl_report"
        while not any("no answer" in reason for reason in seen):
            assert coordinator.coordinator is not None
            seen.update(dict.fromkeys(coordinator.coordinator.state.reasons))
            await swarm.until(lambda now=swarm.now: swarm.now > now + 0.2)  # type: ignore[misc]
        swarm.weather.rule = lambda *_: False
        await swarm.ended()
        assert f"1 pages in flight at {other.node_id.hex()[:4]}…" in seen
        assert f"no answer from {mute.node_id.hex()[:4]}…" in seen


async def test_a_crawl_that_brought_nothing_has_failed() -> None:
    async with a_swarm() as swarm:
        await swarm.ended("failed", within_s=5.0)


async def test_everybody_that_ran_a_crawl_is_among_its_participants() -> None:
    async with a_swarm() as swarm:
        swarm.ranked()[0].accept(TREE)
        await swarm.ended()
        assert swarm.ranked()[3].record().participants == sorted(node.hex() for node in swarm.nodes)


# The coordinator dies

MOMENTS = [
    ("crawl_report", 1),
    ("crawl_report", 7),
    ("crawl_report", -3),
    ("crawl_audit", 1),
    ("crawl_audit", 3),
    ("crawl_audit", 4),
    ("last wave", 1),
    ("last wave", 4),
    ("end", 1),
    ("end", 3),
    ("ended", 1),
]


@pytest.mark.parametrize(("name", "count"), MOMENTS)
async def test_whoever_takes_over_ends_the_crawl_once_and_rightly(name: str, count: int) -> None:
    """The first coordinator dies as it sends the n-th call of a name; negative: the n-th after the work is done."""
    async with a_swarm() as swarm:
        first = swarm.ranked()[0]
        left = [count]

        def rule(sender: bytes, to: bytes, called: str) -> bool:
            audited = not swarm.work() and bool(swarm.calls("crawl_audit"))
            after = {"crawl_tell": "end", "crawl_report": "last wave"}
            named = after.get(called, called) if audited else called
            if sender == first.node_id and first.alive and named == name and to != first.node_id:
                if left[0] < 0 and not swarm.work():
                    left[0] = -left[0]
                left[0] -= left[0] > 0
                if not left[0]:
                    swarm.kill(first)
            return not first.alive and sender == first.node_id

        swarm.weather.rule = rule
        swarm.ranked()[2].accept(TREE)
        if name == "ended":
            await swarm.until(lambda: bool(first.record().ended))
            swarm.kill(first)
        await swarm.until(lambda: not first.alive)
        await swarm.ended(within_s=60.0)
    assert swarm.pages >= PAGES  # what the dead one fetched and had not told of is fetched again
    assert {node.record().version for node in swarm.nodes.values() if node.record().ended} == {1}


async def test_nobody_is_told_again_who_took_part(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[bytes, list[dict[str, Any]]] = {}
    placed: dict[bytes, list[str]] = {}
    real = CrawlNode.on_tell

    async def on_tell(self: CrawlNode, args: dict[str, Any]) -> Any:
        record = msgpack.unpackb(zlib.decompress(args["record"]))
        told.setdefault(self.node_id, []).append(record)
        bits = f"{int.from_bytes(record['places']):0{len(self.view.ids)}b}"
        placed.setdefault(self.node_id, []).extend(
            node.hex() for node, bit in zip(self.view.ids, bits, strict=True) if bit == "1"
        )
        return await real(self, args)

    monkeypatch.setattr(CrawlNode, "on_tell", on_tell)

    async with a_swarm() as swarm:
        newcomer = swarm.add(None)
        swarm.see_each_other()
        swarm.start(newcomer)
        swarm.ranked()[2].accept(TREE)
        await swarm.ended()
    assert sum("spec" in record for records in told.values() for record in records) == 1  # whoever did not know it
    assert len(told) == len(swarm.nodes) - 1
    for records in told.values():
        assert not any(record["participants"] for record in records)  # all see all, and hear of places
        assert records[-1]["ended"] == COMPLETE
    for names in placed.values():
        assert sorted(names) == sorted({node.hex() for node in swarm.nodes})


async def test_who_sees_other_members_by_then_is_told_names_in_the_next_wave(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: dict[bytes, list[tuple[bool, bool]]] = {}
    real = CrawlNode.on_tell

    async def on_tell(self: CrawlNode, args: dict[str, Any]) -> Any:
        view, heard = self.view, answers.setdefault(self.node_id, [])
        names = msgpack.unpackb(zlib.decompress(args["record"]))["participants"]
        # It sees less when it hears of places, and when the next wave asks.
        self.own_view = View(view.members[1:]) if not heard else view
        answer = await real(self, args)
        if heard:
            self.own_view = View(every)
        heard.append((bool(names), isinstance(answer, Refused)))
        return answer

    monkeypatch.setattr(CrawlNode, "on_tell", on_tell)
    every: list[Member] = []

    async with a_swarm() as swarm:
        every.extend(swarm.ranked()[0].view.members)
        swarm.ranked()[2].accept(TREE)
        await swarm.ended()
    assert len(answers) == len(swarm.nodes) - 1
    assert not swarm.calls("crawl_get")  # what they have was ours, and says nothing new
    for node, heard in answers.items():
        assert heard[:2] == [(False, True), (True, False)], node.hex()
        assert swarm.nodes[node].record().ended == COMPLETE
        assert len(swarm.nodes[node].record().participants) == len(swarm.nodes)


async def test_who_was_not_told_of_the_end_asks_for_it() -> None:
    """The coordinator tells its successor and dies; for the successor the crawl is over, and it asks nobody."""
    async with a_swarm() as swarm:
        first, second, *_ = swarm.ranked()

        def rule(sender: bytes, to: bytes, name: str) -> bool:
            audited = bool(swarm.calls("crawl_audit"))
            return audited and name == "crawl_tell" and sender == first.node_id and to != second.node_id

        swarm.weather.rule = rule
        swarm.ranked()[2].accept(TREE)
        await swarm.until(lambda: bool(second.record().ended))
        swarm.kill(first)
        await swarm.ended(within_s=25.0)


@pytest.mark.parametrize("seed", range(4))
async def test_one_after_the_other_dies_and_the_last_one_ends_it(seed: int) -> None:
    async with a_swarm(seed=seed, weather=Weather(loss=0.02)) as swarm:
        swarm.weather.fetch_s = 1.0
        swarm.ranked()[0].accept(TREE)
        for after_s in (1.0, 4.0, 4.5):
            until = swarm.now + after_s
            await swarm.until(lambda until=until: swarm.now >= until)  # type: ignore[misc]
            swarm.kill(swarm.ranked()[0])
        await swarm.ended(within_s=120.0)
        assert len(swarm.ranked()) == 2
    assert swarm.pages >= PAGES


async def test_two_coordinators_at_once_end_the_crawl_the_same_way() -> None:
    """Half of the nodes have not seen the closest one come, and take another for the coordinator."""
    async with a_swarm() as swarm:
        first, *others = swarm.ranked()
        everybody = first.view
        first.alive = False
        swarm.see_each_other(*others[2:])
        first.alive = True
        assert others[0].view is everybody
        others[1].accept(TREE)
        await swarm.until(lambda: not swarm.work())
        until = swarm.now + 30.0
        await swarm.until(lambda: swarm.now >= until)
        assert swarm.ends == []  # their views differ
        swarm.see_each_other()
        await swarm.ended(within_s=5.0)


# Members come


async def test_a_node_that_joins_between_the_waves_starts_them_over() -> None:
    async with a_swarm() as swarm:
        swarm.ranked()[1].accept(TREE)
        await swarm.until(lambda: bool(swarm.calls("crawl_audit")))
        # One of five knows the newcomer already, and gives it work.
        newcomer = swarm.add(None)
        swarm.start(newcomer)
        knows = swarm.ranked()[3]
        swarm.see_each_other(newcomer, knows)
        newcomer.accept(Job("late", 3))
        until = swarm.now + 10.0
        await swarm.until(lambda: swarm.now >= until)
        assert swarm.ends == []
        swarm.see_each_other()
        await swarm.ended(within_s=30.0)
        assert newcomer.node_id.hex() in newcomer.record().participants
        assert newcomer.pages


async def test_who_does_not_know_the_crawl_or_has_an_old_record_is_told() -> None:
    async with a_swarm() as swarm:
        swarm.weather.fetch_s = 3.0
        swarm.ranked()[0].accept(Job("a", 2))
        newcomer = swarm.add(None)
        swarm.start(newcomer)
        swarm.see_each_other()
        other = swarm.ranked()[-1]
        await other.update(replace(other.record(), aliases=["http://www.a.example/"]))
        await swarm.until(
            lambda: all(n.stored and n.stored.aliases == ["http://www.a.example/"] for n in swarm.nodes.values()), 5.0
        )
        await swarm.ended()


# The audit


async def test_lost_links_are_found_sent_again_and_fetched_before_the_end() -> None:
    async with a_swarm() as swarm:
        swarm.ranked()[4].lost_links.append(Job("lost", 2))
        swarm.ranked()[1].accept(TREE)
        await swarm.ended()
    assert swarm.pages == PAGES + 7
    assert all(node.audits == 2 for node in swarm.nodes.values())


async def test_a_long_audit_is_asked_after_and_not_begun_again() -> None:
    async with a_swarm() as swarm:
        for node in swarm.nodes.values():
            node.audit_s = 40.0
        swarm.ranked()[1].accept(TREE)
        await swarm.ended()
        assert swarm.now > 40
    assert [each.audits for each in swarm.nodes.values()] == [1] * 5


async def test_an_audit_that_work_breaks_into_counts_for_nothing() -> None:
    async with a_swarm() as swarm:
        for node in swarm.nodes.values():
            node.audit_s = 10.0
        swarm.ranked()[1].accept(Job("a", 0))
        await swarm.until(lambda: swarm.ranked()[0].audits > 0)
        until = swarm.now + 5.0
        await swarm.until(lambda: swarm.now >= until)
        swarm.ranked()[2].accept(Job("woken", 1))
        await swarm.ended()
        assert {node.audits for node in swarm.nodes.values()} == {2}


async def test_an_audit_that_found_something_is_made_anew_when_asked_again() -> None:
    async with a_swarm() as swarm:
        swarm.weather.fetch_s = 5.0
        coordinator, asked, *_ = swarm.ranked()
        asked.accept(Job("a", 0))
        asked.lost_links.append(Job("b", 0))
        await swarm.until(lambda: swarm.now > 0.1)
        assert asked.coordinator is not None
        audit = AuditCrawl(swarm.crawl_id, bytes(16))
        answers = [await asked.coordinator.on_audit(coordinator.node_id, audit) for _ in range(3)]
        assert answers == [AuditResult(1, 1), *[AuditResult(0, 0)] * 2]
        assert asked.audits == 2
        await swarm.ended()


async def test_only_the_coordinator_may_ask_for_an_audit() -> None:
    async with a_swarm() as swarm:
        swarm.ranked()[1].accept(Job("a", 0))
        await swarm.until(lambda: swarm.now > 0.1)
        asked = swarm.ranked()[2]
        assert asked.coordinator is not None
        answer = await asked.coordinator.on_audit(swarm.ranked()[3].node_id, AuditCrawl(swarm.crawl_id, bytes(16)))
        assert answer == Refused("not-coordinator")
        await swarm.ended()


# Limits and control


async def test_the_time_limit_stops_the_whole_crawl_once_what_is_in_flight_is_done() -> None:
    async with a_swarm(crawl=CrawlSettings(time_limit_s=10.0)) as swarm:
        swarm.weather.fetch_s = 2.0
        swarm.ranked()[3].accept(Job("a", 12))
        await swarm.ended("time limit", within_s=30.0)
        assert 10.0 < swarm.now < 20.0
        assert all(not node.open and node.queue for node in swarm.nodes.values())
        assert swarm.ranked()[0].record().cause == "time limit"


async def passed(swarm: CrawlWorld, seconds: float) -> None:
    ends_at = swarm.now + seconds
    await swarm.until(lambda: swarm.now > ends_at)


async def test_the_time_limit_counts_from_when_the_crawl_began_though_all_that_were_there_are_gone() -> None:
    async with a_swarm(crawl=CrawlSettings(time_limit_s=60.0)) as swarm:
        swarm.weather.fetch_s = 2.0
        swarm.ranked()[4].accept(Job("a", 12))
        for replaced in range(3):
            # The coordinator is always the one that was there before; the others have counted from here on.
            for node in swarm.ranked()[1:]:
                node.began_at = swarm.now
            await passed(swarm, 15.0)
            if replaced < 2:
                swarm.kill(swarm.ranked()[0])
        await swarm.ended("time limit", within_s=30.0)
        assert 60.0 < swarm.now < 70.0


async def test_the_size_limit_counts_all_nodes_and_those_that_are_gone() -> None:
    async with a_swarm(crawl=CrawlSettings(size_limit_bytes=40_000)) as swarm:
        swarm.ranked()[3].accept(Job("a", 12))
        await swarm.until(lambda: swarm.pages > 150)
        swarm.kill(swarm.ranked()[2])
        await swarm.ended("size limit")
        assert 400 <= swarm.pages < 2000  # a dead node takes 5 s to be counted out


async def test_a_crawl_that_is_done_as_it_reaches_its_limit_is_complete() -> None:
    async with a_swarm(crawl=CrawlSettings(size_limit_bytes=100 * PAGES, max_pages=PAGES)) as swarm:
        swarm.ranked()[3].accept(TREE)
        await swarm.ended("complete")
        assert swarm.ranked()[0].record().cause == ""


async def change_all(swarm: CrawlWorld, node: CrawlNode, state: str) -> None:
    """As a user does at any node."""
    await node.update(changed(node.record(), state))


async def test_a_paused_crawl_stays_until_it_is_resumed() -> None:
    async with a_swarm() as swarm:
        swarm.ranked()[3].accept(TREE)
        await swarm.until(lambda: swarm.pages > 10)
        await change_all(swarm, swarm.ranked()[4], PAUSED)
        await swarm.until(lambda: all(n.record().state == PAUSED and not n.open for n in swarm.nodes.values()))
        paused, until = swarm.pages, swarm.now + 60.0
        await swarm.until(lambda: swarm.now >= until)
        assert swarm.pages == paused < PAGES
        await change_all(swarm, swarm.ranked()[1], RUNNING)
        await swarm.ended()
    assert swarm.pages == PAGES


async def test_a_stopped_crawl_ends_although_work_and_repairs_are_left() -> None:
    async with a_swarm() as swarm:
        swarm.ranked()[3].accept(Job("a", 12))
        swarm.ranked()[2].repair = 1
        await swarm.until(lambda: swarm.pages > 10)
        await change_all(swarm, swarm.ranked()[2], STOPPING)
        await swarm.ended("stopped", within_s=10.0)
        assert swarm.work()
        assert not any(node.open for node in swarm.nodes.values())


async def test_a_pause_that_comes_as_the_crawl_ends_changes_nothing() -> None:
    async with a_swarm() as swarm:
        paused: list[bytes] = []
        last = swarm.ranked()[-1]

        def rule(_sender: bytes, to: bytes, name: str) -> bool:
            if name == "crawl_tell" and swarm.now > 3 and not paused:
                # Between the last wave and the news.
                paused.append(to)
                last.stored = changed(last.record(), PAUSED)
            return False

        swarm.weather.fetch_s = 1.0
        swarm.weather.rule = rule
        swarm.ranked()[1].accept(Job("a", 2))
        await swarm.ended(within_s=20.0)
        assert paused


async def test_nobody_audits_or_ends_anything_while_a_member_is_mute() -> None:
    async with a_swarm() as swarm:
        mute = swarm.ranked()[4]
        swarm.weather.rule = lambda _, to, name: to == mute.node_id and name.startswith("crawl")
        swarm.ranked()[1].accept(TREE)
        until = 60.0
        await swarm.until(lambda: swarm.now >= until)
        assert not swarm.calls("crawl_audit")
        swarm.weather.rule = lambda *_: False
        await swarm.ended(within_s=10.0)


# What strangers may say

# What the wire can carry.
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.binary(max_size=40)
    | st.text(max_size=10),
    lambda inner: st.tuples(inner, inner) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from(
    ["epoch", "serial", "out", "book", "missing", "resent", "running", "record", "idle", "waiting"]
)


@settings(max_examples=25)
@given(
    garbage=st.dictionaries(FIELDS, VALUES, max_size=6),
    name=st.sampled_from(["crawl_report", "crawl_audit", "pages_claim", "crawl_get"]),
)
def test_no_answer_makes_a_coordinator_raise_or_end_early(garbage: dict[str, Any], name: str) -> None:
    async def story() -> None:
        async with a_swarm(crawl=CrawlSettings(max_pages=100)) as swarm:
            liar = swarm.ranked()[2]
            truth = liar.says

            def lie(asker: bytes, called: str, args: dict[str, Any]) -> Any:
                return garbage if called == name and swarm.now < 8.0 else truth(asker, called, args)

            liar.says = lie  # type: ignore[assignment,method-assign]
            liar.stored = replace(liar.record(), aliases=["http://b.example/"])
            swarm.ranked()[0].accept(Job("a", 2))
            await swarm.ended()

    run(story())
