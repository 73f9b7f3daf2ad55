"""Members report, the coordinator plans, and everybody ends with the same plan, whoever coordinates."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, ClassVar

import msgpack
import pytest
from harness.bench import Bench
from harness.policies import Speechless

from dhtcrawl.keyspace import crawl_key
from dhtcrawl.policy.seam import Planner
from dhtcrawl.rpc.membership.view import View
from dhtcrawl.rpc.tasks.schema import BadArguments
from dhtcrawl.storage.store.plan_counters import MadeBy
from dhtcrawl.swarm.assignment.plans import EVERY_S, HURRY_S, PLANS_WITHIN_S, REST_TIMES, Plans
from dhtcrawl.swarm.calls.assignment import PLAN_EPOCH_MAX, ReportPlan
from swarm.fake_peers import node, view_of

OWN, OTHER, THIRD = node(0), node(1), node(2)
BOTH = view_of([0, 1])


def crawl_of(owner: bytes) -> bytes:
    """A crawl that this node coordinates, of the two; of the first and the third the first does."""
    ids = (bytes([number]) * 16 for number in range(256))
    return next(each for each in ids if _leads(owner, BOTH, each) and _leads(OWN, view_of([0, 2]), each))


def _leads(owner: bytes, view: View, crawl: bytes) -> bool:
    found = view.owner(crawl_key(crawl))
    return found is not None and found.id == owner


class Rates(Planner):
    """Who is faster gets more."""

    asked = 0

    def plan(self, nodes: Mapping[bytes, Mapping[str, Any]], before: Mapping[str, Any], now: float) -> dict[str, Any]:
        self.asked += 1
        rates = {node: report["rate"] for node, report in nodes.items() if "rate" in report}
        return {"weights": rates} if rates else {}


class PlansBench(Bench):
    """Node 0, of two."""

    def __init__(self, crawl: bytes, planner: Planner) -> None:
        super().__init__(BOTH)
        self.peers.calls["crawl_plan"] = lambda args: {"epoch": 0}
        self.adopted: list[tuple[int, Mapping[str, Any]]] = []
        self.rate = 1.0
        self.answers = asyncio.Event()  # cleared: the planner's thread hangs
        self.answers.set()
        self.takes_s = 0.1
        self.planner = planner
        self.plans = Plans(
            crawl,
            self.peers,
            self.clock,
            planner,
            facts=lambda wants: {"rate": self.rate},
            adopt=lambda epoch, table: self.adopted.append((epoch, table)),
            aside=self.aside,
        )

    async def aside(self, work: Callable[[], Any]) -> Any:
        await asyncio.sleep(self.takes_s)
        await self.answers.wait()
        return work()

    def hears(self, epoch: int = 0, **report: Any) -> Any:
        return self.plans.on_report(OTHER, ReportPlan(bytes(16), epoch, msgpack.packb(report))).to_map()


@asynccontextmanager
async def a_world(crawl: bytes, planner: Planner | None = None) -> AsyncIterator[PlansBench]:
    async with asyncio.TaskGroup() as group:
        world = PlansBench(crawl, planner or Rates())
        running = group.create_task(world.plans.run())
        yield world
        running.cancel()


async def test_the_coordinator_plans_from_what_all_report_and_publishes_what_is_new() -> None:
    async with a_world(crawl_of(OWN)) as world:
        await asyncio.sleep(1)
        assert world.adopted == [(1, {"weights": {OWN: 1.0}})]
        assert world.hears(rate=3.0)["epoch"] == 1
        await asyncio.sleep(EVERY_S)
        assert world.adopted[1:] == [(2, {"weights": {OWN: 1.0, OTHER: 3.0}})]
        answer = world.hears(epoch=1, rate=3.0)
        assert (answer["epoch"], msgpack.unpackb(answer["table"], strict_map_key=False)) == world.adopted[1]
        assert world.hears(epoch=2, rate=3.0) == {"epoch": 2}, "it has it"
        await asyncio.sleep(3 * EVERY_S)
        assert len(world.adopted) == 2, "nothing new"


async def test_a_plan_that_says_what_made_it_is_told_and_counted_where_it_was_made(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Net(Planner):
        def plan(self, nodes: Mapping[bytes, Mapping[str, Any]], before: Mapping[str, Any], now: float) -> Any:
            return {"shares": {OWN: 1.0, OTHER: 3.0}, "made": {"model": "net", "error": 0.031, "samples": 48}}

    caplog.set_level("INFO", "dhtcrawl.swarm.assignment.plans")
    async with a_world(crawl_of(OWN), Net()) as world:
        await asyncio.sleep(3 * EVERY_S)
        assert world.plans.current == (1, MadeBy("net", 0.031, 48))
        assert world.plans.collect() == {"plans_net": 1, "judged_plans_net": 1, "plan_error_net": 0.031}
        assert world.plans.collect() == {}, "each plan once"
        assert world.plans.shares == {OWN: 0.25, OTHER: 0.75}
    said = "plan 1 of crawl {}: by net, from 48 batches; 3.1 % off on batches that it had not seen"
    assert caplog.messages == [said.format(crawl_of(OWN).hex()[:12])]


async def test_a_plan_that_places_sites_says_how_many(caplog: pytest.LogCaptureFixture) -> None:
    class Places(Planner):
        def plan(self, nodes: Mapping[bytes, Mapping[str, Any]], before: Mapping[str, Any], now: float) -> Any:
            return {"nodes": {OWN: [0.0, 1.0]}, "sites": {"one.test": [1.0, 0.0], "two.test": [2.0, 0.0]}}

    caplog.set_level("INFO", "dhtcrawl.swarm.assignment.plans")
    async with a_world(crawl_of(OWN), Places()):
        await asyncio.sleep(1)
    assert caplog.messages == [f"plan 1 of crawl {crawl_of(OWN).hex()[:12]}: 2 sites have a place"]


async def test_a_plan_of_another_node_is_known_and_not_counted_here() -> None:
    async with a_world(crawl_of(OTHER)) as world:
        shares = {OWN: 2.0, OTHER: -1.0, "x": 3.0, 7: 1.0}
        packed = msgpack.packb({"made": {"model": "rates", "samples": 9}, "shares": shares})
        world.peers.calls["crawl_plan"] = partial(_said, {"epoch": 3, "table": packed})
        await asyncio.sleep(EVERY_S)
        assert world.plans.current == (3, MadeBy("rates", None, 9))
        assert world.plans.shares == {OWN: 1.0}, "what is none counts nothing"
        assert world.plans.collect() == {}


async def test_a_member_takes_newer_plans_and_no_others() -> None:
    async with a_world(crawl_of(OTHER)) as world:
        answers: list[tuple[int, Any]] = [(3, {"weights": {OWN: 2.0}}), (2, {"weights": {}}), (3, {}), (4, b"?")]
        answers += [(2**60, {}), (5, {"a": 1})]
        for epoch, table in answers:
            packed = table if isinstance(table, bytes) else msgpack.packb(table)
            answer = {"epoch": epoch, "table": packed}
            world.peers.calls["crawl_plan"] = partial(_said, answer)
            await asyncio.sleep(EVERY_S)
        await asyncio.sleep(EVERY_S)
        assert world.adopted == [answers[0], answers[5]]
        assert world.peers.called[-1][0] == OTHER
        assert world.peers.called[-1][2]["epoch"] == 5
        assert msgpack.unpackb(world.peers.called[-1][2]["report"]) == {"rate": 1.0}


async def test_who_hears_of_a_newer_plan_asks_at_once() -> None:
    async with a_world(crawl_of(OTHER)) as world:
        await asyncio.sleep(5 * EVERY_S)
        before = len(world.peers.called)
        for epoch, asked in ((0, 0), (7, 1)):
            world.plans.newer(epoch)
            await asyncio.sleep(1)
            assert len(world.peers.called) == before + asked


async def test_at_first_members_ask_sooner_since_the_first_plan_knows_of_nobody() -> None:
    async with a_world(crawl_of(OTHER)) as world:
        await asyncio.sleep(EVERY_S)
        soon = len(world.peers.called)
        await asyncio.sleep(9 * EVERY_S)
        assert soon >= 4
        assert len(world.peers.called) <= soon + 10


async def test_a_member_that_measured_what_is_waited_for_reports_at_once_and_says_so() -> None:
    async with a_world(crawl_of(OTHER)) as world:
        await asyncio.sleep(5 * EVERY_S)
        world.peers.called.clear()
        world.plans.tell()
        await asyncio.sleep(1)
        world.plans.tell()
        await asyncio.sleep(2 * EVERY_S)
        assert [asked.get("news", False) for _, _, asked in world.peers.called][:3] == [True, True, False]


async def test_a_member_that_waits_for_a_plan_asks_each_second_for_a_while() -> None:
    async with a_world(crawl_of(OTHER)) as world:
        await asyncio.sleep(5 * EVERY_S)
        world.peers.called.clear()
        world.plans.hurry()
        await asyncio.sleep(HURRY_S)
        assert HURRY_S * 0.7 <= len(world.peers.called) <= HURRY_S + 2
        world.peers.called.clear()
        await asyncio.sleep(5 * EVERY_S)
        assert len(world.peers.called) <= 6


async def test_the_coordinator_plans_at_once_with_what_is_waited_for() -> None:
    async with a_world(crawl_of(OWN)) as world:
        await asyncio.sleep(5 * EVERY_S)
        for news, plans in ((False, 1), (True, 2)):
            report = msgpack.packb({"rate": 3.0})
            world.plans.on_report(OTHER, ReportPlan(bytes(16), 0, report, news))
            await asyncio.sleep(1)
            assert len(world.adopted) == plans


async def test_whoever_takes_over_counts_on_from_the_highest_epoch_and_publishes_again() -> None:
    """What it makes may be what it had, and yet nobody else has it."""
    async with a_world(crawl_of(OWN)) as world:
        await asyncio.sleep(1)
        world.hears(epoch=41)
        await asyncio.sleep(EVERY_S)
        assert world.adopted == [(1, {"weights": {OWN: 1.0}}), (42, {"weights": {OWN: 1.0}})]


async def test_whoever_takes_over_keeps_the_last_plan_until_all_have_reported_or_had_the_time_to() -> None:
    for reports in (True, False):
        async with a_world(crawl_of(OTHER)) as world:
            table = {"weights": {OWN: 2.0, THIRD: 7.0}}
            world.peers.calls["crawl_plan"] = partial(_said, {"epoch": 3, "table": msgpack.packb(table)})
            await asyncio.sleep(EVERY_S)
            world.peers.view = view_of([0, 2])
            await asyncio.sleep(EVERY_S)
            assert world.adopted == [(3, table)], "its own report tells of one node only"
            if reports:
                world.plans.on_report(THIRD, ReportPlan(bytes(16), 3, msgpack.packb({"rate": 5.0}), True))
                await asyncio.sleep(1)
                assert world.adopted[1:] == [(4, {"weights": {OWN: 1.0, THIRD: 5.0}})]
            else:
                await asyncio.sleep(2 * EVERY_S)
                assert world.adopted[1:] == [(4, {"weights": {OWN: 1.0}})], "who never reports holds up nothing"


async def test_after_the_last_of_all_epochs_is_named_plans_are_still_published_and_taken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with a_world(crawl_of(OWN)) as world:
        await asyncio.sleep(1)
        world.hears(epoch=PLAN_EPOCH_MAX)
        assert [f"epoch {PLAN_EPOCH_MAX}, where 1 is known" in message for message in caplog.messages] == [True]
        await asyncio.sleep(EVERY_S)
        world.hears(rate=3.0)
        await asyncio.sleep(EVERY_S)
        assert [epoch for epoch, _ in world.adopted] == [1, 1_002, 1_003]
    async with a_world(crawl_of(OTHER)) as world:
        epochs = iter([PLAN_EPOCH_MAX])

        def answer(args: dict[str, Any]) -> dict[str, Any]:
            epoch = next(epochs, 3_500)
            return {"epoch": epoch, "table": msgpack.packb({"of": epoch}) if epoch > args["epoch"] else None}

        world.peers.calls["crawl_plan"] = answer
        await asyncio.sleep(8 * EVERY_S)
        assert world.adopted[0] == (1_000, {"of": PLAN_EPOCH_MAX})
        assert [epoch for epoch, _ in world.adopted] == [1_000, 2_000, 3_000, 3_500]


async def test_who_is_gone_is_not_planned_for() -> None:
    async with a_world(crawl_of(OWN)) as world:
        world.hears(rate=3.0)
        await asyncio.sleep(1)
        world.peers.view = view_of([0])
        await asyncio.sleep(EVERY_S)
        assert world.adopted[-1] == (2, {"weights": {OWN: 1.0}})


async def test_a_planner_that_throws_or_makes_no_table_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Planner):
        made: ClassVar[Any] = None
        thrown: ClassVar[BaseException] = SystemExit(3)

        def plan(self, nodes: Any, before: Any, now: float) -> dict[str, Any]:
            made = self.made
            if made is None:
                raise self.thrown
            return made  # type: ignore[no-any-return]

    broken = Broken()

    async with a_world(crawl_of(OWN), broken) as world:
        await asyncio.sleep(3 * EVERY_S)
        assert len(caplog.messages) == 1
        assert "SystemExit: 3" in caplog.messages[0]
        Broken.thrown = Speechless()
        await asyncio.sleep(EVERY_S)
        assert "Speechless" in caplog.messages[-1]
        rubbish: list[Any] = [[], {"a": object()}, {"a": "x" * (1 << 20)}]
        for made in rubbish:
            Broken.made = made
            await asyncio.sleep(EVERY_S)
        assert len(caplog.messages) == 5
        assert "its planner made a list, and no table" in caplog.messages[-3]
        assert "its planner's table cannot be sent: it takes 1,048,584 bytes, and may 262,144" in caplog.messages[-1]
        Broken.made = {"a": 1}
        await asyncio.sleep(EVERY_S)
        assert world.adopted == [(1, {"a": 1})]


async def test_a_planner_may_change_the_last_table_and_return_it() -> None:
    class InPlace(Rates):
        def plan(self, nodes: Any, before: Any, now: float) -> dict[str, Any]:
            weights = before.setdefault("weights", {})
            weights |= super().plan(nodes, {}, now)["weights"]
            return dict(before) if self.asked % 2 else before

    async with a_world(crawl_of(OWN), InPlace()) as world:
        for rate in (1.0, 2.0, 3.0):
            world.rate = rate
            await asyncio.sleep(2 * EVERY_S)
        assert [table for _, table in world.adopted] == [{"weights": {OWN: rate}} for rate in (1.0, 2.0, 3.0)]


async def test_a_planner_that_hangs_is_not_asked_again_before_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    async with a_world(crawl_of(OWN)) as world:
        world.answers.clear()
        await asyncio.sleep(PLANS_WITHIN_S + 5 * EVERY_S)
        assert any("has not answered" in line for line in caplog.messages)
        assert isinstance(world.planner, Rates)
        assert world.planner.asked == 0
        world.answers.set()
        await asyncio.sleep(2 * EVERY_S)
        assert world.adopted == [(1, {"weights": {OWN: 1.0}})], "late, but there"
        assert world.planner.asked == 1, "it rests"
        world.rate = 2.0
        await asyncio.sleep(REST_TIMES * PLANS_WITHIN_S)
        assert world.planner.asked >= 2
        assert world.adopted[1:] == [(2, {"weights": {OWN: 2.0}})]


async def test_a_planner_that_always_takes_longer_than_it_may_plans_all_the_same_and_rests() -> None:
    class Anew(Rates):
        def plan(self, nodes: Any, before: Any, now: float) -> dict[str, Any]:
            self.asked += 1
            return {"plan": self.asked}

    async with a_world(crawl_of(OWN), Anew()) as world:
        world.takes_s = 1.5 * PLANS_WITHIN_S
        await asyncio.sleep(world.takes_s + EVERY_S)
        assert world.adopted == [(1, {"plan": 1})]
        await asyncio.sleep(REST_TIMES * PLANS_WITHIN_S)
        assert len(world.adopted) == 1, "it rests"
        await asyncio.sleep(world.takes_s + 2 * EVERY_S)
        assert world.adopted[1:] == [(2, {"plan": 2})]


@pytest.mark.parametrize("report", [b"", msgpack.packb([]), msgpack.packb({})[:-1] + b"\xc1"])
async def test_a_report_that_is_no_packed_map_is_refused(report: bytes) -> None:
    async with a_world(crawl_of(OWN)) as world:
        with pytest.raises(BadArguments, match="report"):
            world.plans.on_report(OTHER, ReportPlan(bytes(16), 0, report))
        await asyncio.sleep(EVERY_S)
        assert world.adopted == [(1, {"weights": {OWN: 1.0}})]


def _said(answer: dict[str, Any], _: dict[str, Any]) -> dict[str, Any]:
    return answer
