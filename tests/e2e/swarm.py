"""Nodes of a swarm as processes: each is `dhtcrawl join`, killed when its block is left.

Every node has a loopback address to itself, listens at the ports that the system
gives it, and says in one line of JSON which these are; a node that is started
again listens there again, under the same id. No other test can have taken its
ports meanwhile: nobody else has its address.
"""

from __future__ import annotations

import json
import shutil
import signal
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from loopback import free_address

from .crawler import Crawler, Outcome, Running
from .deadline import until
from .nginx import Nginx
from .outputs import Outputs

DEADLINE_S = 120.0  # for what takes a second on a machine that does nothing else
ASK_EVERY_S = 0.05
IN_FLIGHT = 4  # pages a node has under way at most: what its death may cost
AT_ONCE = ["--concurrency", str(IN_FLIGHT), "--set", f"fetch.open_pages_max={IN_FLIGHT}"]
CLEAN = {"complete": True, "lost": 0, "pages_missing": 0, "politeness_violations": 0}


class Node:
    """One `dhtcrawl join`: its process, which may die and be started again, and its directory."""

    def __init__(self, crawler: Crawler, data_dir: Path, options: Sequence[str]) -> None:
        self.data_dir = data_dir
        self.id = ""
        self.address = self.admin = free_address()
        self._crawler = crawler
        self._options = options
        self._running: Running | None = None

    @property
    def running(self) -> Running:
        assert self._running is not None, "it was never started"
        return self._running

    def start(self, *bootstrap: str, listen: str = "") -> Self:
        """Begin to start it; `ready` waits for it."""
        listen = listen or self.address
        argv = ["join", "--json", "--data-dir", str(self.data_dir), "--listen", listen, "--admin", self.admin]
        argv += [word for address in bootstrap for word in ("--bootstrap", address)]
        self._running = self._crawler.start(*argv, *self._options)
        return self

    def ready(self) -> Self:
        """Wait until it takes part.

        Raises:
            AssertionError: it ended instead.
        """

        def is_up() -> bool:
            return self.running.ended or self.running.outcome().stdout.endswith("\n")

        until(is_up, "a node is up", DEADLINE_S, ASK_EVERY_S / 2)
        assert not self.running.ended, self.running.outcome()
        where = json.loads(self.running.outcome().stdout)
        assert self.id in ("", where["node"]), "started again, it is the same node"
        self.id, self.address, self.admin = where["node"], where["address"], where["admin"]
        return self

    @property
    def alive(self) -> bool:
        return self._running is not None and not self._running.ended

    def kill(self) -> None:
        """SIGKILL, and wait for it to be gone."""
        assert self.alive, self.running.outcome()
        self.running.kill()

    def terminate(self) -> Outcome:
        """SIGTERM, and how it ended."""
        self.running.send(signal.SIGTERM)
        return self.running.wait()

    def lose_disk(self) -> None:
        """Everything that it had, its key included."""
        assert not self.alive
        shutil.rmtree(self.data_dir)
        self.id = ""

    def ask(self, path: str) -> Any:
        """The admin's answer to GET `path` below /api/v1."""
        with urllib.request.urlopen(f"http://{self.admin}/api/v1/{path}", timeout=60) as answer:
            return json.load(answer)

    def crawl_dir(self, crawl: str) -> Path:
        return self.data_dir / "crawls" / crawl

    def counters(self, crawl: str) -> dict[str, Any]:
        """Its own of a crawl; empty while it knows nothing of it."""
        if crawl not in {row["crawl"] for row in self.ask("crawls")}:
            return {}
        rows = self.ask(f"crawls/{crawl}")["per_node"]
        return next((row["counters"] for row in rows if row["node"] == self.id), {})


class Swarm:
    """Nodes that were started here; leaving the block kills those that still run."""

    def __init__(self, home: Path, *options: str) -> None:
        self.nodes: list[Node] = []
        self._home = home
        self._options = options

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self.nodes:
            if node.alive:
                node.kill()

    @property
    def alive(self) -> list[Node]:
        return [node for node in self.nodes if node.alive]

    def node(self, node_id: str) -> Node:
        return next(node for node in self.nodes if node.id == node_id)

    def start(self, count: int, *options: str) -> list[Node]:
        """So many more nodes, all at once; the very first alone, the rest through those that run."""
        started = []
        if not self.alive:
            started.append(self.add(*options).start().ready())
        through = self.alive[0].address
        rest = [self.add(*options).start(through) for _ in range(count - len(started))]
        started += [node.ready() for node in rest]
        return started

    def add(self, *options: str) -> Node:
        """One more node, to be started."""
        home = self._home / f"node{len(self.nodes)}"
        node = Node(Crawler(home), home / "data", [*self._options, *options])
        self.nodes.append(node)
        return node

    def restart(self, *nodes: Node) -> None:
        """Start them again, all at once, through those that run; they need not be ready yet."""
        through = [node.address for node in self.alive][:3]
        for node in nodes:
            node.start(*through)

    def meet(self) -> None:
        """Wait until every node knows every other as active, and nobody else."""
        ids = {node.id for node in self.alive}
        _each(self.alive, lambda node: _members(node) == ids, "they know each other")

    def give_up(self, *dead: Node) -> None:
        """Wait until those that run know these no more."""
        gone = {node.id for node in dead}
        _each(
            self.alive,
            lambda node: not gone & _members(node, "active", "suspected", "joining"),
            "the dead are given up",
        )

    def logs(self) -> str:
        """The end of what each node said on stderr, and how it ended if it did, for a message."""
        return "\n".join(
            f"--- {node.id[:12]}{'' if node.alive else ' has ended'}\n{node.running.stderr[-1500:]}"
            for node in self.nodes
        )

    def check(self) -> None:
        """No node printed a traceback."""
        for node in self.nodes:
            assert "Traceback" not in node.running.stderr, self.logs()


class SwarmCrawl:
    """`submit --wait --out` under way, and what comes of it."""

    def __init__(self, running: Running, outputs: Outputs, crawl: str) -> None:
        self.running = running
        self.outputs = outputs
        self.id = crawl

    def reach(self, server: Nginx, requests: int) -> None:
        """Wait until `server` has answered so many requests; the crawl is still under way then."""
        until(lambda: self.running.ended or server.hit_count() >= requests, f"request {requests}", DEADLINE_S)
        assert not self.running.ended, f"it ended too soon: {self.running.outcome()}"

    def finish(self, swarm: Swarm, expected: Mapping[str, Any] = CLEAN) -> dict[str, Any]:
        """Wait for its end; the summary, in which `expected` stands."""
        try:
            ended = self.running.wait(DEADLINE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{swarm.logs()}") from None
        assert ended.code == 0, f"{ended}\n{swarm.logs()}"
        summary = ended.ended_with(0).summary
        assert summary == self.outputs.summary()
        assert {key: summary[key] for key in expected} == dict(expected), f"{summary}\n{swarm.logs()}"
        return summary


@contextmanager
def submitted(crawler: Crawler, through: Node, outputs: Outputs, url: str, *options: str) -> Iterator[SwarmCrawl]:
    """A crawl of `url`, given to the node `through` and gathered from there."""
    before = {row["crawl"] for row in through.ask("crawls")}
    argv = ["submit", url, "--allow-private", "--wait", "--json", "--out", str(outputs.out), "--admin", through.admin]
    with crawler.start(*argv, *options) as running:

        def new() -> list[str]:
            return [row["crawl"] for row in through.ask("crawls") if row["crawl"] not in before]

        until(lambda: running.ended or bool(new()), "the crawl is known", DEADLINE_S, ASK_EVERY_S)
        assert new(), running.outcome()
        yield SwarmCrawl(running, outputs, new()[0])


def bodies_of(node: Node, crawl: str) -> set[str]:
    """The URLs of which a dead node has bodies, by what is committed of its archive."""
    from .archive import read_archive

    return {record.url for record in read_archive(sorted(node.crawl_dir(crawl).glob("archive/*.warc.gz")))}


def _each(nodes: Sequence[Node], true: Callable[[Node], bool], what: str) -> None:
    for node in nodes:
        until(partial(true, node), f"{node.id[:12]}: {what}", DEADLINE_S, ASK_EVERY_S)


def _members(node: Node, *states: str) -> set[str]:
    return {peer["node"] for peer in node.ask("peers") if peer["state"] in (states or ("active",))}
