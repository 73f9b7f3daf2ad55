"""Plans of a crawl's policy: members report, the coordinator plans, owners rank nodes by the plan.

    member ──crawl_plan: epoch, report──▶ coordinator ──planner, off the loop──▶ table, epoch + 1
           ◀── epoch, table, where the member's is older ──┘

Members report every `EVERY_S`. One that has measured what others wait for reports at once, and one that waits asks
every `HURRY_EVERY_S` for a while, or as often as the tables of all members together allow (`TABLES_BYTES_PER_S`).

The coordinator is the crawl's (closest to its key), by each node's own view. Nothing is stored: a new coordinator has
the last table as a member, and counts on from the highest epoch that a member names. That table serves until all have
reported to it, for `REPORTS_WITHIN_S` at most: one of the first reports would tell of few nodes only. Without a plan
all nodes count the same. An assignment carries the epoch that it was made under, and a node that sees a newer one than
its own asks at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import msgpack

from dhtcrawl.clock import Clock
from dhtcrawl.keyspace import crawl_key
from dhtcrawl.loop_state import loop_state
from dhtcrawl.policy.guard import said
from dhtcrawl.policy.seam import PLAN_TABLE_BYTES_MAX, Planner, number_in
from dhtcrawl.rpc.peers.port import Peers
from dhtcrawl.rpc.tasks.events import Failure
from dhtcrawl.rpc.tasks.schema import BadArguments
from dhtcrawl.storage.store.plan_counters import MadeBy, count_plan, made_by
from dhtcrawl.swarm.calls import assignment as calls
from dhtcrawl.swarm.calls.assignment import PLAN_REPORT_BYTES_MAX

log = logging.getLogger(__name__)

EVERY_S = 10.0  # at first sooner: a plan can only tell of those that have reported
REPORTS_WITHIN_S = 1.25 * EVERY_S  # all that run the crawl have reported to a new coordinator by then
PAUSE_S = 0.5  # between two questions, even if another node has a newer plan
PLANS_WITHIN_S = 60.0
HURRY_S, HURRY_EVERY_S = 20.0, 1.0
TABLES_BYTES_PER_S = 1e6  # what a coordinator sends, if all members ask for a plan as often as they may
REST_TIMES = 3.0  # a planner rests for so many times what its last plan took, however much there is in hurry
ITEMS_MAX = 20_000
# What others name counts in steps: after a last epoch of all no further plan could be published. A node whose epoch was
# lowered has an older one than it is told of, asks again, and is at an honest number soon.
EPOCH_STEP_MAX = 1_000

Table = Mapping[str, Any]


class Plan(NamedTuple):
    """A table, and as it is sent."""

    epoch: int  # 0: none yet
    table: Table
    packed: bytes


class PlannerRun:
    """Runs the planner of a crawl off the event loop, one plan at a time, and logs once what is wrong with it.

    A plan that is late is the answer to the next question: a planner that is slow, as for many nodes, makes plans, too.
    """

    def __init__(self, crawl_id: bytes, planner: Planner, aside: Callable[[Callable[[], Any]], Awaitable[Any]]) -> None:
        """`aside(function)` runs it on a thread that is not waited for at the end."""
        self._crawl_id = crawl_id
        self._planner = planner
        self._aside = aside
        self._thinking: asyncio.Future[Any] | None = None
        self._began_at = 0.0
        self._said = ""
        self.took_s = 0.0  # the last plan; at most `PLANS_WITHIN_S`, as its thread may have been suspended

    @property
    def busy(self) -> bool:
        """Whether the planner is still at work on its last plan."""
        return self._thinking is not None and not self._thinking.done()

    async def plan(self, nodes: Mapping[bytes, Table], before: Plan, now: float) -> Table | None:
        """A table of these reports, as the others get it: with tuples for lists; None where there is none to send."""
        loop = asyncio.get_running_loop()
        if self._thinking is None:
            self._began_at = loop.time()
            work = partial(_made, self._planner, nodes, before.packed, now)
            self._thinking = asyncio.ensure_future(self._aside(work))
        done, _ = await asyncio.wait({self._thinking}, timeout=PLANS_WITHIN_S)
        if not done:
            self._say(f"its planner has not answered for {PLANS_WITHIN_S:g} s")
            return None
        packed, why = self._thinking.result()
        self._thinking, self.took_s = None, min(loop.time() - self._began_at, PLANS_WITHIN_S)
        table = unpacked(packed, PLAN_TABLE_BYTES_MAX)
        if why or table is None:
            takes = f"it takes {len(packed):,} bytes, and may {PLAN_TABLE_BYTES_MAX:,}"
            self._say(why or f"its planner's table cannot be sent: {takes}")
            return None
        return table

    def _say(self, why: str) -> None:
        if why != self._said:
            self._said = why
            log.warning("no new plan for crawl %s: %s", self._crawl_id.hex()[:12], why[:300])


class _Haste:
    """What makes a member report, or ask, sooner."""

    def __init__(self) -> None:
        self.wake = asyncio.Event()
        self.news = False  # something that a plan is waited for has not been reported
        self.until = float("-inf")  # a plan is waited for here
        self.hurries = False


class _Leadership:
    """What a node knows as the coordinator."""

    def __init__(self) -> None:
        self.since: float | None = None  # None: another node coordinates
        self.reports: dict[bytes, Table] = {}
        self.made_epoch = 0  # of the last plan that was made here

    def hears_first(self, there: list[bytes], epoch: int, now: float) -> bool:
        """Whether the plan of this epoch is another's, who had reports that this node is about to hear."""
        if self.since is None or epoch <= self.made_epoch:
            return False
        return now - self.since < REPORTS_WITHIN_S and not self.reports.keys() >= {*there}


@loop_state
class Plans:
    """Reports, and as the coordinator plans, for one crawl on one node."""

    def __init__(
        self,
        crawl_id: bytes,
        peers: Peers,
        clock: Clock,
        planner: Planner,
        *,
        facts: Callable[[tuple[str, ...]], dict[str, Any]],
        adopt: Callable[[int, Table], None],
        aside: Callable[[Callable[[], Any]], Awaitable[Any]],
    ) -> None:
        """`aside(function)` runs it on a thread that is not waited for at the end."""
        self._crawl_id = crawl_id
        self._peers = peers
        self._clock = clock
        self._planner = PlannerRun(crawl_id, planner, aside)
        self._report = partial(facts, planner.wants)
        self._adopt = adopt
        self._plan = Plan(0, {}, b"")
        self._highest = 0  # epoch that a member has named
        self.leaps = 0  # epochs of others that were lowered
        self._lead = _Leadership()
        self._haste = _Haste()
        self._counted: dict[str, float] = {}  # plans made here, by what made them, that were not collected yet

    def newer(self, epoch: int) -> None:
        """Note that another node has a plan of this epoch: ask for it soon if ours is older."""
        if self._plan.epoch < epoch:
            self._haste.wake.set()

    def tell(self) -> None:
        """Report at once: something was measured that a plan is waited for."""
        self._haste.news = True
        self._haste.wake.set()

    def hurry(self) -> None:
        """Ask for the plan more often for a while."""
        self._haste.until = self._clock.monotonic() + HURRY_S
        if not self._haste.hurries:
            self._haste.hurries = True
            self._haste.wake.set()

    def on_report(self, asker: bytes, args: calls.ReportPlan) -> calls.PlanTable:
        """Take a member's report, and answer with our plan if it is newer.

        Raises:
            BadArguments: the report is no packed map.
        """
        report = unpacked(args.report, PLAN_REPORT_BYTES_MAX)
        if report is None:
            raise BadArguments("report")
        self._highest = max(self._highest, self._stepped(args.epoch, max(self._highest, self._plan.epoch)))
        self._lead.reports[asker] = report
        if args.news:
            self._haste.wake.set()
        return calls.PlanTable(self._plan.epoch, self._plan.packed if self._plan.epoch > args.epoch else None)

    @property
    def current(self) -> tuple[int, MadeBy] | None:
        """The epoch of the plan that this node has, and what made it; None where there is none, or it does not say."""
        made = made_by(self._plan.table)
        return None if made is None else (self._plan.epoch, made)

    @property
    def shares(self) -> dict[bytes, float]:
        """What part of the pages each node is to fetch by the plan that this node has; empty where it does not say."""
        rows = self._plan.table.get("shares")
        nodes = [node for node in rows if isinstance(node, bytes)] if isinstance(rows, Mapping) else []
        found = {node: share for node in nodes if (share := number_in(self._plan.table, "shares", node, 0.0))}
        whole = sum(found.values())
        return {node: share / whole for node, share in found.items()}

    def collect(self) -> dict[str, float]:
        """The counters, by names of `plan_counters`, of the plans that were made here since the last call."""
        counted, self._counted = self._counted, {}
        return counted

    async def run(self) -> None:
        """Report, ask and plan, until cancelled."""
        key, every_s = crawl_key(self._crawl_id), 2 * PAUSE_S
        while True:
            self._haste.wake.clear()
            pause_s = PAUSE_S
            coordinator = self._peers.view.owner(key)
            if coordinator is None or coordinator.id != self._peers.node_id:
                self._lead.since = None
            elif self._lead.since is None:
                self._lead.since = self._clock.monotonic()
            if self._lead.since is not None:
                self._lead.reports[self._peers.node_id] = self._report()
                await self._make_plan()
                pause_s = max(PAUSE_S, REST_TIMES * self._planner.took_s * (not self._planner.busy))
            elif coordinator is not None:
                self._lead.reports.clear()
                await self._ask(coordinator.id)
            await asyncio.sleep(pause_s)
            try:
                async with asyncio.timeout(min(every_s, self._hurry_s()) - PAUSE_S):
                    await self._haste.wake.wait()
            except TimeoutError:
                every_s = min(2 * every_s, EVERY_S)

    def _hurry_s(self) -> float:
        """How long to wait at most before the next question."""
        self._haste.hurries = self._clock.monotonic() < self._haste.until
        tables_s = len(self._peers.view.members) * len(self._plan.packed) / TABLES_BYTES_PER_S
        return min(max(HURRY_EVERY_S, tables_s), EVERY_S) if self._haste.hurries else EVERY_S

    async def _ask(self, coordinator: bytes) -> None:
        news, self._haste.news = self._haste.news, False
        asked = calls.ReportPlan(self._crawl_id, self._plan.epoch, msgpack.packb(self._report()), news)
        answer = await self._peers.call(coordinator, asked)
        if isinstance(answer, Failure):
            self._haste.news |= news
            return
        if answer.table is None:
            return
        table = unpacked(answer.table, PLAN_TABLE_BYTES_MAX)
        if table is not None and self._plan.epoch < answer.epoch:
            self._take(self._stepped(answer.epoch, self._plan.epoch), table)

    async def _make_plan(self) -> None:
        """Make a table of the reports and publish it if it is new; ours again if a member names a later epoch."""
        there = [member.id for member in self._peers.view.members]
        known, now = max(self._highest, self._plan.epoch), self._clock.monotonic()
        if self._planner.busy or self._lead.hears_first(there, known, now):
            return
        nodes = {node: self._lead.reports.get(node, {}) for node in there}
        self._lead.reports = {node: self._lead.reports[node] for node in there if node in self._lead.reports}
        table = await self._planner.plan(nodes, self._plan, now)
        if table is None:
            return
        plan, made = self._plan, made_by(table)
        if table and table != plan.table and made is not None:
            count_plan(self._counted, made)
        if (table and table != plan.table) or (plan.table and self._highest > plan.epoch):
            self._lead.made_epoch = max(self._highest, plan.epoch) + 1
            self._take(self._lead.made_epoch, table or plan.table)

    def _stepped(self, epoch: int, known: int) -> int:
        """How far an epoch that another node names is believed; the first that is lowered is told of."""
        if epoch <= known + EPOCH_STEP_MAX:
            return epoch
        self.leaps += 1
        if self.leaps == 1:
            text = (
                "a plan of crawl %s is said to be of epoch %d, where %d is known here; epochs of others are taken in"
                " steps of %d, and from now on this is only counted"
            )
            log.warning(text, self._crawl_id.hex()[:12], epoch, known, EPOCH_STEP_MAX)
        return known + EPOCH_STEP_MAX

    def _take(self, epoch: int, table: Table) -> None:
        self._plan = Plan(epoch, table, msgpack.packb(table))
        log.info("plan %d of crawl %s%s", epoch, self._crawl_id.hex()[:12], _said_of(table))
        self._adopt(epoch, table)


def _said_of(table: Table) -> str:
    """For the log: what made a plan, and how far it is off; or how many sites it places."""
    made, sites = made_by(table), table.get("sites")
    if made is None:
        return f": {len(sites)} sites have a place" if isinstance(sites, Mapping) else ""
    error = "not judged" if made.error is None else f"{100 * made.error:.1f} % off on batches that it had not seen"
    return f": by {made.model}, from {made.samples} batches; {error}"


def _made(planner: Planner, nodes: Mapping[bytes, Table], before: bytes, now: float) -> tuple[bytes, str]:
    """A packed table, or what went wrong. Runs on a thread, where an error of any kind is only its planner's.

    The last table is a copy: a planner that changed the one which this node has would never seem to make another.
    """
    try:
        table = planner.plan(nodes, unpacked(before, PLAN_TABLE_BYTES_MAX) or {}, now)
        if not isinstance(table, dict):
            return b"", f"its planner made a {type(table).__name__}, and no table"
        return msgpack.packb(table), ""
    except BaseException as error:
        return b"", said(error)


def unpacked(packed: bytes, bytes_max: int) -> Table | None:
    """A table or report of at most `bytes_max` bytes; None where it is none."""
    if len(packed) > bytes_max:
        return None
    try:
        found = msgpack.unpackb(
            packed, strict_map_key=False, max_map_len=ITEMS_MAX, max_array_len=ITEMS_MAX, use_list=False
        )
    except Exception:  # the library names no common class for what can be wrong
        return None
    return found if isinstance(found, dict) else None
