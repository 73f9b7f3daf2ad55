"""The parts of a crawl on a node by itself, its web a dictionary, its store in memory."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from storage.stores import CRAWL

from dhtcrawl.config import Config, CrawlSettings, FetchSettings, PolitenessSettings
from dhtcrawl.crawl.frontier import Job
from dhtcrawl.crawl.parts import build, first_round
from dhtcrawl.crawl.ports import CrawlPorts, TaskOutcome
from dhtcrawl.crawl.rounds import CrawlCounters, CrawlStart, Round
from dhtcrawl.crawl.services import Services, Silent
from dhtcrawl.crawl.single_node import PORTS, NoAssignment
from dhtcrawl.crawl.slot_shares import NodeShares
from dhtcrawl.fetch.host_access import UnleasedHosts
from dhtcrawl.fetch.http import Body, Exchange, FetchFailure, FetchFailureKind, HttpRequest, Truncated
from dhtcrawl.fetch.politeness import HostBook
from dhtcrawl.sim.committer import LoopCommitter
from dhtcrawl.sim.loop import VirtualClock
from dhtcrawl.spec import make_spec
from dhtcrawl.storage.store.committer import GroupRunner
from dhtcrawl.storage.store.known_depths import DepthTable
from dhtcrawl.storage.store.memory import MemoryEngine
from dhtcrawl.storage.store.ownership import EVERYTHING
from dhtcrawl.storage.store.tasks import Queued

SEED = "http://a.example/"
Answer = tuple[int, dict[str, str], bytes] | FetchFailureKind


class Given(NoAssignment):
    """Notes what the crawl says of its tasks."""

    def __init__(self) -> None:
        self.told: list[TaskOutcome] = []
        self.others_go_on = False

    def brought(self, given: TaskOutcome) -> None:
        self.told.append(given)

    def passes_on(self, task: Queued, given: TaskOutcome) -> bool:
        self.told.append(given)
        return self.others_go_on


class SmallWeb:
    """Answers by URL; what is not there is 404."""

    def __init__(
        self, answers: dict[str, Answer], ports: CrawlPorts = PORTS, /, robots_ttl_s: float = 86_400.0, **settings: Any
    ) -> None:
        self.answers = answers
        self.cut: dict[str, Truncated] = {}  # the URLs whose bodies are not whole, and why
        self.reused = False  # whether failures are those of connections that were kept alive
        self.asked: list[str] = []
        self.assignment = Given()
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.engine = MemoryEngine()
        self.spec = make_spec([SEED], replace(CrawlSettings(delay_s=0.0), **settings))
        archive: Any = SimpleNamespace()
        http: Any = self
        self.services = Services(
            config=replace(
                Config(),
                fetch=FetchSettings(retries_max=1),
                politeness=PolitenessSettings(robots_ttl_s=robots_ttl_s),
            ),
            clock=self.clock,
            rng=random.Random(1),
            http=http,
            committer=LoopCommitter(GroupRunner(self.engine, sync=False)),
            archive=archive,
            hosts=HostBook(started_at=0.0, fresh=True),
            node="ab" * 20,
            incarnation=1,
            offload=_at_once,
            ports=ports,
            gate=UnleasedHosts(),
            observer=Silent(),
            crawls=NodeShares(),
            safe_tasks=DepthTable(),
        )
        start = CrawlStart(self.spec, CRAWL, CrawlCounters(), [], {})
        live: Any = SimpleNamespace(shown=True, append=lambda lines: None)
        self.parts = build(self.services, start, first_round(start), live)
        self.frontier = self.parts.frontier
        self.frontier.walk_begins()
        self.frontier.walk_ended()

    async def exchange(self, request: HttpRequest) -> Exchange | FetchFailure:
        """As `HttpClient`."""
        self.asked.append(request.url)
        now = self.clock.monotonic()
        answer = self.answers.get(request.url, (404, {}, b""))
        await asyncio.sleep(0.1)
        if isinstance(answer, FetchFailureKind):
            return FetchFailure(answer, "as the test says", now, self.clock.monotonic(), self.reused)
        status, headers, content = answer
        fetched_at = datetime(2026, 1, 1, tzinfo=UTC)
        pairs, ended_at, cut = list(headers.items()), self.clock.monotonic(), self.cut.get(request.url)
        return Exchange(b"", b"", status, pairs, Body(content), "192.0.2.1", now, ended_at, fetched_at, cut)

    async def close(self) -> None:
        """As `HttpClient`."""

    def add(self, url: str) -> bytes:
        """A task in the frontier; its key."""
        key = self.spec.key_of(url)
        self.frontier.add([Queued(0, 1, key, url, "", 0, True)], self.clock.monotonic())
        return key

    async def next(self) -> Job:
        """What may start next, once it may."""
        wait_s = self.frontier.next_due_at() - self.clock.monotonic()
        if 0 < wait_s < math.inf:
            await asyncio.sleep(wait_s)
        job = self.frontier.next(self.clock.monotonic())
        assert job is not None
        return job

    def handed_in(self) -> Round:
        """All that is to be written now."""
        found = self.parts.next_round.take([], {}, EVERYTHING)
        assert found is not None
        return found


async def _at_once(function: Callable[[], Any]) -> Any:
    return function()
