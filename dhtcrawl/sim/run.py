"""One simulation: a scenario and a seed in, a result out, the same every time.

The result is judged from outside the node's own books: the web knows what a
right crawl finds and remembers every request, and the archive is read record
by record.
"""

from __future__ import annotations

import dataclasses
import io
import json
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from dhtcrawl.config import Config, CrawlSettings, load
from dhtcrawl.errors import ConfigError, Exit
from dhtcrawl.sim import loop
from dhtcrawl.sim.trace import Trace
from dhtcrawl.sim.web import SimWeb
from dhtcrawl.sim.world import Disk, SimNode
from dhtcrawl.spec import CrawlSpec, make_spec
from dhtcrawl.storage import catalog, fsck
from dhtcrawl.storage.committer import Txn
from dhtcrawl.storage.files import MemoryDirectory
from dhtcrawl.storage.outputs import PAGES_FILE
from dhtcrawl.storage.summary import Summary
from dhtcrawl.storage.warc import scan

TAIL_EVENTS = 20


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is simulated; times in seconds."""

    nodes: int = 1
    hosts: int = 5
    pages: int = 200
    delay_s: float = 1.0
    crashes: int = 0
    crash_every_s: float = 30.0  # on average
    commit_s: float = 0.004  # what an fsync takes
    key: str = "url"
    depth: int = -1


@dataclass(slots=True)
class Result:
    """What came of it; `violations` is empty when every invariant held."""

    nodes: int
    seed: int
    pages: int
    lost: int
    refetches: int
    violations: list[str]
    rpcs_per_page: float
    virtual_seconds: float
    trace_hash: str
    crashes: int = 0
    tail: list[str] = field(default_factory=list)  # the last events of a run that broke something

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(dataclasses.asdict(self))


def read_scenario(path: Path) -> Scenario:
    """A scenario from TOML; its keys are the fields of `Scenario`.

    Raises:
        ConfigError: the file cannot be read, or has an unknown key.
    """
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"scenario {path}: {error}; see docs/simulation.md for its form") from error
    known = {f.name: type(f.default) for f in dataclasses.fields(Scenario)}
    for name, value in values.items():
        if name not in known:
            raise ConfigError(f"scenario {path}: {name} is unknown; use one of {', '.join(known)}")
        if not isinstance(value, known[name]) and not (known[name] is float and isinstance(value, int)):
            raise ConfigError(f"scenario {path}: {name} is {value!r}; use a {known[name].__name__}")
    return dataclasses.replace(Scenario(), **values)


def simulate(scenario: Scenario, seed: int) -> Result:
    """Run `scenario` with `seed` on a virtual clock."""
    return loop.run(_simulate(scenario, seed))


async def _simulate(scenario: Scenario, seed: int) -> Result:
    import asyncio

    time = asyncio.get_running_loop().time
    web = SimWeb(seed, hosts=scenario.hosts, pages=scenario.pages)
    trace = Trace(time, tail=TAIL_EVENTS)
    config = load(flags={"fetch.concurrency": 16})
    spec = make_spec(web.seeds(), _settings(config, scenario))
    node = SimNode("node 0", seed, config, web, trace, commit_s=scenario.commit_s)
    rng = Random(f"{seed} crashes")
    violations: list[str] = []
    crashed = 0
    while True:
        if crashed < scenario.crashes:
            ended = await node.crawl_until(spec, rng.expovariate(1 / scenario.crash_every_s))
        else:
            ended = await node.crawl(spec)
        violations += _check_disk(node.disk, spec)
        if ended is not None:
            break
        crashed += 1
    summary, exit_code = ended
    in_flight = crashed * config.fetch.concurrency
    refetches = _refetches(web)
    violations += _check_outcome(scenario, web, node.disk, summary, exit_code)
    if refetches > in_flight:
        violations.append(f"I8: {refetches} pages were fetched twice, but at most {in_flight} were in flight")
    return Result(
        nodes=scenario.nodes,
        seed=seed,
        pages=summary.pages,
        lost=summary.lost,
        refetches=refetches,
        violations=violations,
        rpcs_per_page=0.0,
        virtual_seconds=round(time(), 6),
        trace_hash=trace.hash,
        crashes=crashed,
        tail=trace.lines() if violations else [],
    )


def _settings(config: Config, scenario: Scenario) -> CrawlSettings:
    return dataclasses.replace(config.crawl, delay_s=scenario.delay_s, key=scenario.key, depth=scenario.depth)


def _check_disk(disk: Disk, spec: CrawlSpec) -> list[str]:
    """The store against itself and the archive, after a crash or at the end (I1–I3, I8)."""
    txn = Txn(disk.engine, {})
    problems = []
    for record in catalog.crawls(txn):
        findings = fsck.check(txn, record.crawl_id, spec, disk.outputs.archive)
        problems += [f"I3: {problem}" for problem in findings.problems]
    return problems


def _check_outcome(scenario: Scenario, web: SimWeb, disk: Disk, summary: Summary, exit_code: Exit) -> list[str]:
    """The outputs against the web, which knows better."""
    problems = []
    lines = bytes(_file(disk.outputs.pages, PAGES_FILE)).decode().splitlines()
    pages = [json.loads(line) for line in lines]
    urls = [page["url"] for page in pages]
    if len(urls) != len(set(urls)):
        problems.append("I8: a page stands twice in pages.jsonl")
    found = {page["url"]: page["depth"] for page in pages if page["status"] == 200}
    truth = web.truth(depth=scenario.depth)
    problems += [f"I3: {url} was not fetched" for url in sorted(truth.keys() - found.keys())]
    problems += [f"robots: {url} should not have been fetched" for url in sorted(found.keys() - truth.keys())]
    if scenario.depth >= 0:
        problems += [f"I2: {url} is said to be at depth {found[url]}" for url in found if found[url] != truth.get(url)]
    for name in disk.outputs.archive.names():
        for member in scan(io.BytesIO(bytes(_file(disk.outputs.archive, name)))):
            problems += [f"I8: {name} at {member.offset}: {problem}" for problem in member.problems]
    hasty = web.violations(scenario.delay_s) if scenario.delay_s else []
    problems += [f"I9: {late.url} began {late.gap:.3f} s after the response before" for late in hasty]
    if exit_code is not Exit.COMPLETE or not summary.complete:
        problems.append(f"I10: ended with {exit_code.name}, complete {summary.complete}")
    if summary.lost or summary.pages_missing or summary.politeness_violations:
        problems.append(f"I11: summary says lost {summary.lost}, pages_missing {summary.pages_missing}")
    return problems


def _file(directory: object, name: str) -> bytearray:
    assert isinstance(directory, MemoryDirectory)
    return directory.files[name]


def _refetches(web: SimWeb) -> int:
    """Requests that brought a page which an earlier one had brought."""
    asked: dict[str, int] = {}
    brought: dict[str, int] = {}
    for visit in web.visits:
        asked[visit.url] = asked.get(visit.url, 0) + 1
        if web.respond(visit.url, asked[visit.url]).status == 200 and not visit.url.endswith("/robots.txt"):
            brought[visit.url] = brought.get(visit.url, 0) + 1
    return sum(count - 1 for count in brought.values())
