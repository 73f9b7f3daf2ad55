"""A swarm of real processes, a namespace each, that faults befall while it crawls: run it, and judge what it leaves.

`run` starts the nodes and a web server, gives the swarm a crawl that lasts as
long as the faults do, and a polite one beside it, lets the faults happen, and
waits for both to end. What is right is worked out from the site; how often
pages were fetched is read in the server's log.
"""

from __future__ import annotations

import asyncio
import json
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from dhtcrawl.cli.client import NodeClient
from dhtcrawl.cli.source import gather_from
from dhtcrawl.units import parse_address

from . import chaos_site
from .chaos_faults import Fault, Kind, schedule
from .chaos_judge import Again, by_kind, fetched_again, read_log, too_many, too_soon
from .chaos_nodes import Guest, Guests, OnHost
from .chaos_site import START, Site
from .crawler import Crawler
from .deadline import until
from .netns import Hosts
from .outputs import Outputs
from .swarm import CLEAN

WEB = "web"
LOOK_EVERY_S = 0.2
SETTLE_MAX_S = 120.0  # from the last fault to the end of the crawl
CHECK_MAX_S = 900.0  # `verify` reads every page of half an hour
UNREACHABLE = 30  # exit code: none of the nodes to join through answered
BULK, POLITE = 8000, (8001, 8002, 8003)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run is; `rate` is how many pages a second the server answers while there are faults."""

    nodes: int
    length_s: float
    seed: int
    every_s: float = 10.0
    rate: float = 20.0
    concurrency: int = 4
    open_pages: int = 8  # what a fault of one node costs at most
    front: int = 0  # how many pages the crawl may know of at a time; 0: no limit
    delay_s: float = 1.0  # of the polite crawl
    blocked: int = 0  # so many nodes, the last ones, do not reach the web server
    options: tuple[str, ...] = ()  # of each node
    forked: bool = False  # nodes are up sooner, and `cpu_s` of the report lacks theirs

    @property
    def down_max(self) -> int:
        """So many may be away at once: a fifth of them."""
        return max(1, self.nodes // 5)

    @property
    def sites(self) -> dict[int, Site]:
        """By port: more than the server answers in that time, and half of what the delay allows."""
        polite = Site(max(5, int(self.length_s / self.delay_s / 2)))
        return {BULK: Site(int(self.length_s * self.rate * 1.1), self.front)} | dict.fromkeys(POLITE, polite)

    def faults(self) -> list[Fault]:
        return schedule(Random(self.seed), self.nodes, self.length_s, self.every_s, self.down_max)


@dataclass(slots=True)
class Report:
    """What came of it; `problems` is empty where all is as it must be."""

    plan: Plan
    faults: list[Fault]
    summaries: dict[str, dict[str, Any]] = field(default_factory=dict)
    again: list[Again] = field(default_factory=list)
    requests: int = 0
    too_soon: tuple[int, int] = (0, 0)
    dropped: int = 0  # packets, by partitions
    came_too_soon: int = 0  # nodes that were started while nobody could be reached
    settled_s: float = 0.0
    cpu_s: float = 0.0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        """One line of JSON."""
        bulk, polite = self.summaries.get("bulk", {}), self.summaries.get("polite", {})
        kinds = Counter(fault.kind.value for fault in self.faults)
        causes = by_kind(self.again)
        return {
            "nodes": self.plan.nodes,
            "seed": self.plan.seed,
            "minutes": round(self.plan.length_s / 60, 2),
            "faults": {kind.value: kinds[kind.value] for kind in Kind},
            "pages": bulk.get("pages"),
            "lost": bulk.get("lost"),
            "pages_missing": bulk.get("pages_missing"),
            "complete": bulk.get("complete"),
            "requests": self.requests,
            "refetches": len(self.again),
            "refetch_percent": round(100 * len(self.again) / max(1, bulk.get("pages", 0)), 2),
            "refetches_in_summary": bulk.get("refetches"),  # those that left two page records
            "refetches_by": {name: causes[name] for name in (*(kind.value for kind in Kind), "unexplained")},
            "polite_pages": polite.get("pages"),
            "polite_lost": polite.get("lost"),
            "politeness_violations": polite.get("politeness_violations"),
            "politeness_exceptions": polite.get("politeness_exceptions"),
            "too_soon_at_server": self.too_soon[0],
            "too_soon_at_server_parted": self.too_soon[1],
            "packets_dropped": self.dropped,
            "came_too_soon": self.came_too_soon,
            "settled_s": round(self.settled_s, 1),
            "cpu_s": round(self.cpu_s, 1),
            "seconds": round(self.seconds, 1),
            "problems": self.problems,
        }


def run(plan: Plan, home: Path, say: Callable[[str], None] = print) -> Report:
    """Do all of it below `home`, where the nodes' directories and what they said stay.

    Raises:
        Unavailable: this machine has no namespaces, or no nft.
        AssertionError: the swarm did not begin.
    """
    began_at, cpu_s = time.monotonic(), _cpu_s()
    report = Report(plan, plan.faults())
    names = [WEB, *(f"node{number}" for number in range(plan.nodes))]
    with Hosts(names) as hosts:
        with _web(plan, hosts, home) as web, Guests(home, hosts, *_options(plan), forked=plan.forked) as swarm:
            _Run(plan, report, hosts, swarm, web, home, say).run()
        report.cpu_s, report.seconds = _cpu_s() - cpu_s, time.monotonic() - began_at
    return report


class _Run:
    """One run, step by step."""

    def __init__(
        self,
        plan: Plan,
        report: Report,
        hosts: Hosts,
        swarm: Guests,
        web: subprocess.Popen[str],
        home: Path,
        say: Callable[[str], None],
    ) -> None:
        self._plan, self._report, self._hosts, self._swarm = plan, report, hosts, swarm
        self._web, self._home, self._say = web, home, say
        self._crawls: dict[str, str] = {}  # bulk, polite → crawl id
        self._away: set[int] = set()  # nodes that were killed and are to be started again

    def run(self) -> None:
        """Everything from the first node to the judgement."""
        self._swarm.start(self._plan.nodes)
        self._swarm.meet()
        if self._plan.blocked:
            self._hosts.cut([guest.host for guest in self._swarm.guests[-self._plan.blocked :]], [WEB])
        begun_at = time.monotonic()
        self._crawls["bulk"] = self._submit(0, [BULK], "--delay", "0")
        self._crawls["polite"] = self._submit(1, POLITE, "--delay", f"{self._plan.delay_s:g}s")
        self._say(f"{self._plan.nodes} nodes, crawls {self._crawls}; what they say is in {self._home}")
        self._befall(begun_at)
        over_at = time.monotonic()
        self._web.send_signal(signal.SIGUSR1)
        self._wait()
        self._report.dropped += self._hosts.heal()
        self._report.settled_s = time.monotonic() - over_at
        for name, crawl in self._crawls.items():
            self._gather(name, crawl)
        self._judge(begun_at)

    def _submit(self, through: int, ports: Sequence[int], *options: str) -> str:
        """Give the swarm a crawl of the sites at these ports; its id."""
        guest = self._swarm.guests[through]
        urls = [f"{self._origin(port)}{START}" for port in ports]
        argv = ["submit", *urls, "--allow-private", "--json", "--admin", guest.admin, *options]
        ran = OnHost(self._home / "submit", self._hosts, guest.host).run(*argv).ended_with(0)
        return str(ran.summary["crawl"])

    def _origin(self, port: int) -> str:
        return f"http://{self._hosts.address(WEB)}:{port}"

    # The faults

    def _befall(self, begun_at: float) -> None:
        """Let each fault begin and end in its time, and start again whoever ended by itself."""
        steps = [(fault.at_s, 1, self._begin, fault) for fault in self._report.faults]
        steps += [(fault.until_s, 0, self._end, fault) for fault in self._report.faults]
        for at_s, _, step, fault in sorted(steps, key=lambda step: step[:2]):
            while (left_s := begun_at + at_s - time.monotonic()) > 0:
                self._look_after()
                time.sleep(min(LOOK_EVERY_S, left_s))
            step(fault)
        while time.monotonic() < begun_at + self._plan.length_s:
            self._look_after()
            time.sleep(LOOK_EVERY_S)

    def _begin(self, fault: Fault) -> None:
        self._say(str(fault))
        if fault.kind is Kind.PARTITION:
            sides = [[f"node{number}" for number in side] for side in (fault.nodes, fault.others)]
            self._hosts.cut(*sides)
            if not fault.one_way:
                self._hosts.cut(*reversed(sides))
        elif fault.kind is Kind.KILL:
            self._away.add(fault.nodes[0])
            self._victim(fault).running.kill()
        else:
            self._victim(fault).signal(signal.SIGSTOP)

    def _end(self, fault: Fault) -> None:
        if fault.kind is Kind.PARTITION:
            self._report.dropped += self._hosts.heal()
        elif fault.kind is Kind.KILL:
            self._away.discard(fault.nodes[0])
            self._swarm.again(fault.nodes[0])
        else:
            self._victim(fault).signal(signal.SIGCONT)

    def _victim(self, fault: Fault) -> Guest:
        return self._swarm.guests[fault.nodes[0]]

    def _look_after(self) -> None:
        """Whoever ended by itself is started again; only one that could not reach anybody had a reason to."""
        for number, guest in enumerate(self._swarm.guests):
            if number in self._away or guest.alive:
                continue
            ended = guest.running.outcome()
            if ended.code == UNREACHABLE:
                self._report.came_too_soon += 1
            else:
                self._problem(f"node{number} ended by itself: {ended}")
            self._swarm.again(number)

    # The end

    def _wait(self) -> None:
        """Until both crawls have ended, at a node that is there."""
        deadline_s = SETTLE_MAX_S + max(len(self._plan.sites[port].walk()) for port in POLITE) * self._plan.delay_s
        try:
            until(self._ended, "both crawls have ended", deadline_s, 0.5)
        except AssertionError as error:
            self._problem(str(error))
            for name, crawl in self._crawls.items():
                state = self._swarm.guests[0].ask(f"crawls/{crawl}")
                self._problem(f"{name} waits for {state['waiting_for']}, coordinator {state['coordinator']}")

    def _ended(self) -> bool:
        self._look_after()
        rows = self._swarm.guests[0].ready().ask("crawls")
        return all(row["ended"] for row in rows)

    def _gather(self, name: str, crawl: str) -> None:
        """All nodes' outputs, into a directory named after the crawl; they must be whole."""
        through, out = self._swarm.guests[0], self._home / name

        async def gather() -> str:
            async with NodeClient(parse_address(through.admin)) as client:
                summary, _ = await gather_from(client, crawl, out)
                return summary.to_json()

        with self._hosts.on(through.host):
            summary = json.loads(asyncio.run(gather()))
        self._report.summaries[name] = summary
        for key, right in CLEAN.items():
            if summary[key] != right:
                self._problem(f"{name}: {key} is {summary[key]}")
        self._compare(name, Outputs(out))
        commands: list[list[str | Path]] = [["verify", out], ["fsck", "--out", out]]
        for argv in commands:
            ran = Crawler(self._home / "check").run(*argv, timeout_s=CHECK_MAX_S)
            if ran.code != 0:
                self._problem(f"{name}: {ran}")

    def _compare(self, name: str, outputs: Outputs) -> None:
        ports = POLITE if name == "polite" else [BULK]
        right = {self._origin(port) + path: status for port in ports for path, status in self._walk(port).items()}
        rows = outputs.pages()
        found = {row["url"]: row["status"] for row in rows}
        if found != right:
            lacks, more = sorted(right.keys() - found.keys()), sorted(found.keys() - right.keys())
            self._problem(f"{name}: {len(lacks)} pages lack, such as {lacks[:3]}; {len(more)} too many: {more[:3]}")
        if len(found) != len(rows):
            self._problem(f"{name}: {len(rows) - len(found)} pages are listed twice")

    def _walk(self, port: int) -> dict[str, int]:
        return self._plan.sites[port].walk()

    def _judge(self, begun_at: float) -> None:
        report, faults = self._report, self._report.faults
        nodes = {self._hosts.address(guest.host): number for number, guest in enumerate(self._swarm.guests)}
        hits = read_log(self._home / "web.log", begun_at, nodes)
        bulk = [hit for hit in hits if hit.port == BULK]
        report.requests = len(bulk)
        report.again = fetched_again(bulk, faults, self._plan.open_pages)
        report.too_soon = too_soon((hit for hit in hits if hit.port != BULK), self._plan.delay_s, faults)
        for problem in too_many(report.again, bulk, self._plan.open_pages):
            self._problem(problem)
        if report.too_soon[0]:
            self._problem(f"{report.too_soon[0]} requests came sooner than the delay, outside of partitions")
        for guest in self._swarm.guests:
            if "Traceback" in (said := guest.said()) or " ERROR " in said:
                self._problem(f"{guest.host} met an error of its own, see {guest.home}")

    def _problem(self, text: str) -> None:
        self._say(f"PROBLEM {text}")
        self._report.problems.append(text)


def _options(plan: Plan) -> list[str]:
    at_once = ["--concurrency", str(plan.concurrency), "--set", f"fetch.open_pages_max={plan.open_pages}"]
    return [*at_once, "--log-level", "info", *plan.options]


@contextmanager
def _web(plan: Plan, hosts: Hosts, home: Path) -> Iterator[subprocess.Popen[str]]:
    """The web server, on a host of its own, once it listens."""
    home.mkdir(parents=True, exist_ok=True)
    argv = [*hosts.wrapper(WEB), sys.executable, chaos_site.__file__, "--host", hosts.address(WEB)]
    argv += ["--rate", str(plan.rate), "--log", str(home / "web.log")]
    argv += [word for port, site in plan.sites.items() for word in ("--site", f"{port},{site.pages},{site.front}")]
    with (
        (home / "web.err").open("w") as errors,
        subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True) as web,
    ):
        assert web.stdout is not None
        assert web.stdout.readline() == "ready\n", (home / "web.err").read_text()
        try:
            yield web
        finally:
            web.kill()


def _cpu_s() -> float:
    """Of all processes that were started here and have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
