"""Five nodes with a crawl between them: tasks that wander, a network that loses, nodes that die. No disk, no web."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from harness.world import Node, World, answered

from dhtcrawl.config import CrawlSettings
from dhtcrawl.keyspace import crawl_key
from dhtcrawl.rpc.membership.view import Member, MemberState, View
from dhtcrawl.rpc.tasks.events import Failure
from dhtcrawl.rpc.tasks.messages import Answer, Call, Message, Refused, Reply, Request
from dhtcrawl.sim.loop import VirtualClock
from dhtcrawl.spec import make_spec
from dhtcrawl.storage.store.crawl_record import (
    PAUSED,
    STOPPING,
    CrawlRecord,
    NotARecord,
    from_wire,
    merge_crawls,
    to_wire,
)
from dhtcrawl.swarm import calls
from dhtcrawl.swarm.lifecycle.board import PageNeed, RunReport, report_without_run
from dhtcrawl.swarm.lifecycle.coordinator import Coordinator, CoordinatorSettings
from dhtcrawl.swarm.lifecycle.page_blocks import PageAllowance
from dhtcrawl.swarm.lifecycle.waves import view_fingerprint

NODES = 5
PARALLEL = 8  # fetches at once on a node
NOTICE_S = 2.0  # how long a death goes unnoticed

Args = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Job:
    """A task: its links are `fan` jobs each, `depth` deep, on nodes drawn by lot."""

    name: str
    depth: int
    fan: int = 2


@dataclass(slots=True)
class Weather:
    latency_s: float = 0.01
    loss: float = 0.0
    fetch_s: float = 0.2
    # (from, to, call) → lost; may also do something to the swarm, such as killing a node.
    rule: Callable[[bytes, bytes, str], bool] = field(default=lambda _a, _b, _name: False)


class CrawlNode(Node):
    """A node's board, its coordinator and its part of the work."""

    def __init__(self, swarm: CrawlWorld, node_id: bytes, record: CrawlRecord | None) -> None:
        super().__init__(swarm, node_id)
        self.swarm = swarm
        self.own_view = View([])
        self.stored = record
        self.alive = True
        self.incarnation = 1
        self.activity = 0
        self.began_at = 0.0
        self.queue: list[Job] = []
        self.open: dict[str, Job] = {}
        self.seen: dict[str, None] = {}
        self.pages = 0
        self.lost_links: list[Job] = []  # what an audit will find
        self.audit_s = 0.0
        self.audits = 0
        self.repair = 0
        self.updates: list[CrawlRecord] = []
        self.allowance = PageAllowance(swarm.spec.settings.max_pages)
        self.allowance.begin(0, self.incarnation)
        self.started = asyncio.Event()
        self.worked = asyncio.Event()
        self.coordinator: Coordinator | None = None
        self.registered: dict[str, Callable[[bytes, Any], Any]] = {}

    # Board

    def record(self) -> CrawlRecord:
        assert self.stored is not None
        return self.stored

    def report(self) -> RunReport:
        stopped = not self.may_fetch
        waiting = {"in_flight": len(self.open), "repair": self.repair}
        waiting["frozen" if stopped or not self.allowance.may_start(self.used) else "queued"] = len(self.queue)
        waiting = {word: count for word, count in waiting.items() if count}
        return RunReport(
            self.incarnation,
            self.activity,
            waiting,
            {"pages": self.pages, "bytes": 100 * self.pages, "seconds": max(0.0, self.swarm.now - self.began_at)},
        )

    async def audit(self) -> tuple[int, int]:
        self.audits += 1
        await asyncio.sleep(self.audit_s)
        found, self.lost_links = self.lost_links, []
        for job in found:
            self.accept(job)
        return len(found), len(found)

    async def update(self, record: CrawlRecord) -> None:
        await asyncio.sleep(0.004)
        before = self.stored
        self.stored = record if before is None else merge_crawls(before, record)
        if before is None or before.digest != self.stored.digest:
            self.updates.append(self.stored)
            self.swarm.updated(self)
        if before is None:
            self.started.set()
        if self.coordinator is not None:
            self.coordinator.record_changed()
        self.worked.set()

    def believed(self, record: CrawlRecord, teller: bytes) -> CrawlRecord:
        return record

    def signed(self, record: CrawlRecord) -> CrawlRecord:
        return record

    def need(self) -> PageNeed:
        return PageNeed(self.used, len(self.queue) if self.may_fetch else 0)

    def granted(self) -> None:
        self.worked.set()

    # The work

    @property
    def used(self) -> int:
        return self.pages + len(self.open)

    @property
    def may_fetch(self) -> bool:
        record = self.stored
        return record is not None and not record.ended and record.state not in (PAUSED, STOPPING)

    @property
    def work(self) -> list[Job]:
        return [*self.queue, *self.open.values()]

    def accept(self, job: Job) -> None:
        if job.name not in self.seen:
            self.seen[job.name] = None
            self.activity += 1
            self.queue.append(job)
            self.worked.set()

    async def fetch_all(self) -> None:
        async with asyncio.TaskGroup() as group:
            while self.alive:
                while (
                    self.queue and self.may_fetch and self.allowance.may_start(self.used) and len(self.open) < PARALLEL
                ):
                    job = self.queue.pop(0)
                    self.open[job.name] = job
                    self.activity += 1
                    group.create_task(self.fetch(job))
                self.worked.clear()
                await self.worked.wait()

    async def fetch(self, job: Job) -> None:
        rng = self.swarm.rng
        await asyncio.sleep(self.swarm.weather.fetch_s * rng.uniform(0.5, 1.5))
        links = [Job(f"{job.name}.{n}", job.depth - 1, job.fan) for n in range(job.fan if job.depth else 0)]
        for link in links:
            while self.alive and not await self.hand_over(link):  # noqa: ASYNC110 - there is no event to wait for
                await asyncio.sleep(0.1)
        if self.alive:
            self.activity += 1
            self.pages += 1
            del self.open[job.name]
            self.worked.set()

    async def hand_over(self, job: Job) -> bool:
        """To the node that owns it; with us until it acks."""
        members = [m.id for m in self.view.members if m.state is not MemberState.JOINING]
        owner = members[hash_of(job.name) % len(members)]
        answer = await self.world.carry(self.node_id, owner, Call("store", dataclasses.asdict(job)), 1.0)
        return not isinstance(answer, Failure)

    # What others ask

    async def answer(self, asker: bytes, message: Message) -> Reply:
        assert isinstance(message, Call), "a coordinator only calls"
        return await answered(lambda asker, args: self.says(asker, message.name, args), asker, message.args)

    def says(self, asker: bytes, name: str, args: dict[str, Any]) -> Any:
        """What it answers to a call: a value, a refusal, or an awaitable of one."""
        if name == "store":
            self.accept(Job(**args))
            return {}
        if name == "crawl_tell":
            return self.on_tell(args)
        if name == "crawl_get":
            return Refused("unknown-crawl") if self.stored is None else {"record": to_wire(self.stored)}
        if name == "crawl_report" and (self.stored is None or self.stored.ended):
            return report_without_run(self, self.stored, self.incarnation)
        if self.coordinator is None:
            return Refused("unknown-crawl")
        return self.registered[name](asker, calls.BY_NAME[name].parse(args))

    async def on_tell(self, args: dict[str, Any]) -> dict[str, Any] | Refused:
        among = self.view.ids if args["view"] == view_fingerprint(self.view) else ()
        try:
            record = from_wire(args["record"], self.stored, among)
        except NotARecord as error:
            return Refused("bad-args", str(error))
        await self.update(record)
        return {}

    async def run(self) -> None:
        if self.stored is not None:
            self.started.set()
        await self.started.wait()
        self.coordinator = Coordinator(
            self, self.swarm.clock, self.swarm.crawl_id, self, self.allowance, self.swarm.settings
        )
        self.registered = {
            "crawl_report": self.coordinator.on_report,
            "crawl_audit": self.coordinator.on_audit,
            "pages_claim": self.coordinator.desk.on_claim,
            "pages_note": self.coordinator.desk.on_note,
            "pages_ask": self.coordinator.desk.on_ask,
        }
        async with asyncio.TaskGroup() as group:
            group.create_task(self.coordinator.run())
            group.create_task(self.fetch_all())


class CrawlWorld(World[CrawlNode]):
    """The nodes of one crawl."""

    def __init__(
        self,
        seed: int = 1,
        weather: Weather | None = None,
        crawl: CrawlSettings | None = None,
        settings: CoordinatorSettings | None = None,
    ) -> None:
        super().__init__()
        self.rng = random.Random(seed)
        self.weather = weather or Weather()
        self.delay_s = lambda: self.weather.latency_s * self.rng.uniform(0.5, 2.0)
        self.loses_request = lambda said: said.number in self._lost or self._loses(said.asker, said.asked)
        self.loses_answer = lambda said: self._loses(said.asked)
        self._lost: set[int] = set()
        self.settings = settings or CoordinatorSettings()
        self.spec = make_spec(["http://a.example/"], crawl or CrawlSettings())
        self.crawl_id = self.spec.crawl_id(bytes(16))
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.tasks: dict[bytes, asyncio.Task[None]] = {}
        self.ends: list[tuple[float, bytes, str]] = []
        self.early: list[str] = []
        self.idle_since = 0.0
        self._fresh = itertools.count()
        record = CrawlRecord(self.crawl_id, self.spec, bytes(16))
        for _ in range(NODES):
            self.add(record)
        self.see_each_other()

    @property
    def pages(self) -> int:
        """How many pages the nodes have."""
        return sum(node.pages for node in self.nodes.values())

    def add(self, record: CrawlRecord | None, node_id: bytes = b"") -> CrawlNode:
        node_id = node_id or bytes([17 * next(self._fresh) + 3]) * 20
        return CrawlNode(self, node_id, record)

    def ranked(self) -> list[CrawlNode]:
        """Living nodes, the coordinator first."""
        key = int.from_bytes(crawl_key(self.crawl_id), "big")
        living = [node for node in self.nodes.values() if node.alive]
        return sorted(living, key=lambda node: int.from_bytes(node.node_id, "big") ^ key)

    def see_each_other(self, *only: CrawlNode) -> None:
        """Everybody, or `only` these, learns who lives."""
        view = View(Member(node.node_id, ("10.0.0.1", 1)) for node in self.nodes.values() if node.alive)
        for node in only or self.nodes.values():
            node.own_view = view
            node.activity += 1
            if node.coordinator is not None:
                node.coordinator.view_changed()

    def work(self) -> list[Job]:
        return [job for node in self.nodes.values() for job in (*node.work, *node.lost_links)]

    def updated(self, node: CrawlNode) -> None:
        """A node has changed its record: an end is checked on the spot."""
        assert node.stored is not None
        ended = node.stored.ended
        if ended and (not self.ends or self.ends[-1][1:] != (node.node_id, ended)):
            self.ends.append((self.now, node.node_id, ended))
            if ended == "complete" and self.work():
                self.early.append(f"{len(self.work())} left at {self.now}")

    async def carry(self, asker: bytes, asked: bytes, message: Request, timeout_s: float | None) -> Answer | Failure:
        """As the network has it, in this weather."""
        assert isinstance(message, Call), "a coordinator only calls"
        if self.weather.rule(asker, asked, message.name):
            self._lost.add(len(self.said) + 1)
        return await super().carry(asker, asked, message, timeout_s)

    def _loses(self, *ends: bytes) -> bool:
        here = [self.nodes.get(end) for end in ends]
        return any(node is None or not node.alive for node in here) or self.rng.random() < self.weather.loss

    def _group(self) -> asyncio.TaskGroup:
        assert self.group is not None, "the nodes run"
        return self.group

    # What a test does

    def start(self, node: CrawlNode) -> None:
        self.tasks[node.node_id] = self._group().create_task(node.run())

    def kill(self, node: CrawlNode, *, restart_work: bool = True) -> None:
        """It is gone at once; the others notice after a while, and one of them has its work from its backups."""
        node.alive = False
        work, node.queue, node.open = node.work, [], {}
        heir = self.ranked()[0]
        heir.repair += 1
        self.tasks[node.node_id].cancel()
        self._group().create_task(self._bury(heir, work if restart_work else []))

    async def _bury(self, heir: CrawlNode, work: list[Job]) -> None:
        await asyncio.sleep(NOTICE_S)
        self.see_each_other()
        await asyncio.sleep(0.5)
        for job in work:
            heir.seen.pop(job.name, None)
            heir.accept(job)
        heir.repair -= 1

    async def ended(self, word: str = "complete", within_s: float = 300.0) -> None:
        """Every living node has the crawl's end."""
        await self.until(lambda: all(n.stored and n.stored.ended == word for n in self.ranked()), within_s)
        assert self.early == []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """All nodes run; at the end they are stopped."""
        async with asyncio.TaskGroup() as group:
            self.group = group
            for node in self.nodes.values():
                self.start(node)
            yield
            # In order, so that a run is the same twice.
            for node in self.nodes.values():
                node.alive = False
                self.tasks[node.node_id].cancel()


def hash_of(name: str) -> int:
    return int.from_bytes(random.Random(name).randbytes(4), "big")


@asynccontextmanager
async def a_swarm(
    *,
    seed: int = 1,
    weather: Weather | None = None,
    crawl: CrawlSettings | None = None,
    settings: CoordinatorSettings | None = None,
) -> AsyncIterator[CrawlWorld]:
    """A new swarm that runs on the virtual loop."""
    swarm = CrawlWorld(seed, weather, crawl, settings)
    async with swarm.running():
        yield swarm
