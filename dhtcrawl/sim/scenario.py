"""What a simulation is asked, and what it answers."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from enum import StrEnum

from dhtcrawl.config import CrawlSettings
from dhtcrawl.searches import SearchEngine, Searches
from dhtcrawl.sim.machines import CPU_TIMES, Unevenness
from dhtcrawl.sim.pages import WebShape
from dhtcrawl.spec import CrawlSpec, make_spec
from dhtcrawl.url import host_of


class Manner(StrEnum):
    """In which a member is bad; `dhtcrawl.sim.bad_member` says what each does."""

    DROPS = "drops"
    FORGETS = "forgets"
    ANSWERS = "answers"
    INVENTS = "invents"


def type_name(number: int, types: int) -> str:
    """The type of the node, or of the nodes for the host, with this number."""
    return f"type-{number % types}"


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is simulated; times in seconds."""

    nodes: int = 1
    hosts: int = 5
    pages: int = 200
    delay_s: float = 1.0
    key: str = "url"
    policy: str = "xor"  # which node fetches a task
    policy_options: str = ""  # of the policy: NAME=VALUE, with commas between them
    depth: int = -1
    page_s: float = 0.05  # until an answer begins, on average
    broken: float = 0.1  # share of the links (those that hold the web together aside): half 404, half redirects
    flaky: float = 0.03  # share of the pages that answer 503 at first
    breaks: float = 0.0  # share of the URLs whose connection breaks off at first
    slow_hosts: int = 0  # each answer takes 5 s more
    trap: bool = False  # a calendar without end; wants a depth limit
    searches: bool = False  # links whose queries are in the charset of their page
    refuses: bool = False  # every page answers 403
    concurrency: int = 16
    open_pages: int = 64  # under way at once, each node, until the backups know their end
    commit_s: float = 0.004  # what an fsync takes
    crashes: int = 0
    crash_every_s: float = 30.0  # between faults of any kind, on average
    faults_from_s: float = 0.0  # of a swarm: none before, counted from when the crawl is submitted
    # Of a swarm only
    crash_at_once: int = 1
    away_s: float = 5.0  # from a crash to the next start; below 0: never
    disk_losses: int = 0
    disk_losses_at_once: int = 1  # more than one: as many as may come, whatever repair takes
    churn_every_s: float = 0.0  # after all those, so often one crashes and one joins, while there is work; 0: never
    joins: int = 0
    leaves: int = 0
    partitions: int = 0
    one_way: int = 0  # partitions in which one side hears the other
    partition_s: float = 10.0  # how long one lasts, on average
    pauses: int = 0  # a node stands still, as under SIGSTOP
    pause_s: float = 10.0  # on average
    disk_errors: int = 0  # a node's disk takes no more, it ends, and comes back
    slow_nodes: int = 0
    uneven: bool = False  # machines differ, and a fifth of the pairs of a node and a host do not connect
    cpu_times: float = CPU_TIMES  # of uneven machines: the slowest processor's time over the fastest's
    spread_s: float = 0.0  # of uneven machines: one way along a side of the square on which they and hosts lie; 0: none
    hidden: int = 0  # so many of the nodes, not the first, are behind a NAT: they take part with `--outbound-only`
    silent: bool = False  # of uneven machines: what does not connect says nothing
    closed: bool = False  # datagrams are sealed by a secret
    node_types: int = 0  # so many: a node is of one, and each host may be asked by nodes of one type only
    bad_member: str = ""  # in which manner one of the nodes is bad (`dhtcrawl.sim.bad_member`); empty: none
    engine_delay_s: float = 0.0  # the own delay of the first host, which is an engine's; 0: the crawl's
    skew_s: float = 0.0  # how far the nodes' wall clocks are off, at most; they jump, too
    copies: int = 1
    holder_grace_s: float = 600.0
    latency_s: float = 0.08  # one way between two nodes, at most
    latency_matrix: str = ""  # a file with round trips in ms, instead
    loss: float = 0.0  # of datagrams
    duplication: float = 0.0  # of datagrams
    late_s: float = 0.0  # one datagram in ten is late by up to this much
    bytes_per_s: float = 12_500_000.0  # of each connection, each way
    duration_s: float = 0.0  # the simulation ends then, wherever the crawl is; 0: when the crawl does

    @property
    def policy_option_list(self) -> tuple[str, ...]:
        """The options of the policy, strings NAME=VALUE."""
        return tuple(filter(None, self.policy_options.split(",")))

    def settings(self, base: CrawlSettings) -> CrawlSettings:
        """The crawl's settings: `base` with what the scenario says."""
        return dataclasses.replace(
            base,
            delay_s=self.delay_s,
            key=self.key,
            policy=self.policy,
            policy_options=self.policy_option_list,
            depth=self.depth,
            copies=self.copies,
        )

    def unevenness(self) -> Unevenness:
        return Unevenness(self.cpu_times, self.spread_s, self.silent)

    def spec(self, seeds: list[str], base: CrawlSettings) -> CrawlSpec:
        """The crawl of these seeds; each is on an engine's host where there are types or a delay of its own."""
        spec = make_spec(seeds, self.settings(base))
        if not self.node_types and not self.engine_delay_s:
            return spec
        engines = [
            SearchEngine(
                host,
                f"http://{host}/results?q={{query}}",
                type=type_name(place, self.node_types) if self.node_types else "",
                delay_s=self.engine_delay_s if self.engine_delay_s and place == 0 else None,
            )
            for place, host in enumerate(dict.fromkeys(map(host_of, spec.seeds)))
        ]
        return dataclasses.replace(spec, searches=Searches(tuple(engines)))

    def delay_of(self, spec: CrawlSpec, host: str) -> float:
        """The delay of a host in this crawl, in seconds; 0: it may be asked several times at once."""
        return spec.searches.delays.get(host, self.delay_s)

    def web(self) -> WebShape:
        return WebShape(
            hosts=self.hosts,
            pages=self.pages,
            latency_s=self.page_s,
            broken=self.broken,
            flaky=self.flaky,
            breaks=self.breaks,
            slow_hosts=min(self.slow_hosts, self.hosts),
            trap=self.trap and self.depth >= 0,
            searches=self.searches,
            refuses=self.refuses,
        )


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    """What a simulation found; `violations` is empty when every invariant held."""

    nodes: int
    seed: int
    pages: int
    lost: int
    refetches: int
    violations: list[str]
    rpcs_per_page: float
    virtual_seconds: float
    trace_hash: str
    crawl_seconds: float = 0.0  # of a swarm, from submitting to when it was said to be over
    crashes: int = 0
    pages_missing: int = 0
    refetched: int = 0  # of the refetches, those after a response that had come whole
    bodies_lost: int = 0  # pages that lay only on disks which were lost
    # Between different nodes: links, records and tombstones, and the frames that carried them.
    records_per_page: float = 0.0
    frames_per_page: float = 0.0
    faults: dict[str, int] = field(default_factory=dict)  # of each kind, those that happened
    politeness_exceptions: int = 0  # requests that came too soon, of two sides of a partition
    held_up: int = 0  # pages that wait for a bad member, and stand on disks of others
    stopped: bool = False  # at `duration_s`, before the crawl had ended
    tail: list[str] = field(default_factory=list)  # what happened around the first broken promise

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))
