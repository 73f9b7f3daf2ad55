"""What a swarm costs: links a second from one process to another, and the CPU a page of three nodes over one's.

*Links* go in STORE_TASK frames of 300 to a running node, which has a million
already: each is looked up, the new ones are written and synced before the ack.
A row counts all links of its frames, known and new: in the first one fifth is
new, as of links that reach their owner; in two others all or none; and in one
there is a second node, which has a backup of each record before the ack.
In the same run, and over the same transport, a server that acknowledges
without looking (the ceiling), and a bare LevelDB that is asked for each key
and given the new ones in synced batches (the floor of any such store).

*CPU* is user and system time of all node processes from when they have joined
to when the crawl has ended and its outputs are written, for the same site, by
one node and by three, in turns.

    python scripts/bench_tasks.py [--quick] [--links] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from hashlib import sha1
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import plyvel
import uvloop
from loopback import free_address
from peer_bench.sites import write_pages
from web_server import serve_files

sys.path.insert(0, str(Path(__file__).parents[1]))

import benchmark
import ended

from dhtcrawl.identity import NodeIdentity, node_key
from dhtcrawl.rpc.membership.view import Member, View
from dhtcrawl.rpc.tasks.events import Failure
from dhtcrawl.rpc.tasks.messages import Ack, Code, Reply, Request, StoreTask
from dhtcrawl.rpc.tasks.rows import LinkRow
from dhtcrawl.rpc.tasks.signals import Hello
from dhtcrawl.rpc.tasks.transport import TaskTransport

BATCH = 300
AT_ONCE = 8
ASKERS = 8  # a node takes 20,000 links a second from each
NEW_OF_10 = 2  # of ten links that reach their owner; most were acknowledged before and never leave the finder
# What is wanted of each row, in links a second.
LINKS_MIN = {
    "node": 60_000, "node, all new": 60_000, "node, all known": 150_000, "node and a backup": 40_000,
    "transport alone": None, "LevelDB alone": None,
}  # fmt: skip
RATIO_MAX = {"url": 1.4, "host": 1.15}
RUN_MAX_S = 300.0
TICK_S = 0.1
_HERTZ = os.sysconf("SC_CLK_TCK")


# Nodes


class Node:
    """A `dhtcrawl join` process; one that is started again on its directory `listen`s where it did."""

    def __init__(self, data_dir: Path, bootstrap: str | None, *options: str, listen: str = "") -> None:
        argv = [sys.executable, "-m", "dhtcrawl", "join", "--json", "--data-dir", str(data_dir)]
        argv += ["--listen", listen or free_address(), "--admin", "127.0.0.1:0", *options]
        argv += ["--bootstrap", bootstrap] if bootstrap else []
        env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
        self._log = data_dir.with_suffix(".log").open("ab")
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=self._log, env=env)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            said = data_dir.with_suffix(".log").read_text(errors="replace").splitlines()
            raise SystemExit(f"bench: a node did not start: {said[-1] if said else 'it said nothing'}")
        said = json.loads(line)
        self.address, self.admin, self.id = said["address"], said["admin"], said["node"]

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """What its admin answers below /api/v1.

        Raises:
            SystemExit: it refuses.
        """
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{self.admin}/api/v1/{path}", data=data, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise SystemExit(f"bench: a node refuses {path}: {error.read().decode('utf-8', 'replace')}") from None

    @property
    def cpu_s(self) -> float:
        """User and system time so far (proc(5), fields 14 and 15)."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _HERTZ

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._log.close()


@contextmanager
def swarm(home: Path, count: int) -> Iterator[list[Node]]:
    """Nodes that know each other; killed in the end."""
    home.mkdir()
    nodes: list[Node] = []
    try:
        for number in range(count):
            nodes.append(Node(home / str(number), nodes[0].address if nodes else None))
        wait_for(lambda: all(len(node.ask("GET", "peers")) == count for node in nodes))
        yield nodes
    finally:
        for node in nodes:
            node.end()


def former_members(home: Path, nodes: list[Node]) -> list[NodeIdentity]:
    """Keys of nodes that were members: a swarm answers no strangers, and takes so much a second from each."""
    home.mkdir()
    before, paths = len(nodes), [home / str(number) for number in range(ASKERS)]
    others = [Node(path, nodes[0].address) for path in paths]
    wait_for(lambda: len(active(nodes[0])) == before + ASKERS)
    for other in others:
        other.process.terminate()
    for other in others:
        other.process.wait(timeout=RUN_MAX_S)
        other.end()
    wait_for(lambda: all(len(active(each)) == before for each in nodes))
    return [node_key(path) for path in paths]


def active(node: Node) -> list[Any]:
    """The members that a node knows to be there."""
    return [peer for peer in node.ask("GET", "peers") if peer["state"] == "active"]


def wait_for(condition: Any) -> None:
    """Until it holds."""
    until = time.monotonic() + RUN_MAX_S
    while not condition():
        if time.monotonic() > until:
            raise SystemExit(f"bench: nothing came of it within {RUN_MAX_S:g} s")
        time.sleep(TICK_S)


# CPU a page


def cpu_per_1000(home: Path, nodes: int, key: str, seed: str, pages: int) -> float:
    """CPU-seconds of all nodes per 1,000 pages."""
    with swarm(home, nodes) as running:
        before = sum(node.cpu_s for node in running)
        settings = {"delay_s": "0", "allow_private": True, "key": key}
        crawl = running[0].ask("POST", "crawls", {"seeds": [seed], "settings": settings})["crawl"]
        wait_for(lambda: running[0].ask("GET", f"crawls/{crawl}")["state"] == "ended")
        # Answers come once a node has written what it has.
        facts = running[0].ask("GET", f"crawls/{crawl}/export/nodes")
        fetched = sum(fact["counters"]["pages"] for fact in facts)
        if fetched != pages:
            raise SystemExit(f"bench: {fetched} pages instead of {pages}")
        return 1000 * (sum(node.cpu_s for node in running) - before) / pages


def cpu_rows(home: Path, pages: int, rounds: int) -> list[benchmark.Row]:
    """Three nodes over one, for both keys."""
    rows = []
    with serve_files(home / "web", home / "server") as server:
        seed = f"{server.url}/index.html"
        taken: dict[tuple[int, str], list[float]] = {(nodes, key): [] for key in RATIO_MAX for nodes in (1, 3)}
        for number in range(rounds):
            for (nodes, key), samples in taken.items():
                samples.append(cpu_per_1000(home / f"{number}-{nodes}-{key}", nodes, key, seed, pages))
                print(f"round {number + 1}: {nodes} nodes, {key} keys: {samples[-1]:.3f}", file=sys.stderr)
    for key, most in RATIO_MAX.items():
        one, three = taken[1, key], taken[3, key]
        ratio = median(b / a for a, b in zip(one, three, strict=True))
        for nodes, samples in ((1, one), (3, three)):
            rows.append(row(f"cpu, {nodes} nodes, {key} keys", "", None, median(samples), "s/1000 pages", rounds))
        rows.append(row(f"cpu, 3 nodes over 1, {key} keys", f"at most {most:g}", most, ratio, "", rounds, most=True))
    return rows


# Links a second


def link(number: int, seed: str) -> LinkRow:
    """A link of the crawl of `seed`."""
    url = f"{seed}section/page-{number}.html?id={number}"
    return LinkRow(sha1(url.encode()).digest(), url, 3, seed)


def links(numbers: Iterable[int], seed: str) -> tuple[LinkRow, ...]:
    """Links of the crawl of `seed`, as a page has them."""
    return tuple([link(number, seed) for number in numbers])


def mixed(known: Sequence[int], fresh: Iterator[int], count: int, seed: str, new_of_10: int) -> list[Any]:
    """Batches of known links and new ones."""
    chance = random.Random(len(known))
    new = BATCH * new_of_10 // 10
    batches = []
    for _ in range(count):
        numbers = [*islice(fresh, new), *(chance.sample(known, BATCH - new) if new < BATCH else ())]
        chance.shuffle(numbers)
        batches.append(links(numbers, seed))
    return batches


def owned(node: Node, nodes: list[Node], seed: str) -> Iterator[int]:
    """The numbers of links that a node of a swarm owns."""
    view, own = View([Member(bytes.fromhex(each.id), ("127.0.0.1", 1)) for each in nodes]), bytes.fromhex(node.id)
    for number in itertools.count():
        owner = view.owner(link(number, seed).key)
        if owner is not None and owner.id == own:
            yield number


class LinkTarget:
    """A crawl at rest in a swarm, and the first node, to which links go."""

    def __init__(self, nodes: list[Node], askers: list[NodeIdentity], seed: str) -> None:
        node = nodes[0]
        self._askers = askers
        self._crawl = node.ask("POST", "crawls", {"seeds": [seed], "settings": {}})["crawl"]
        node.ask("POST", f"crawls/{self._crawl}/pause")
        host, port = node.address.rsplit(":", 1)
        self._address = (host, int(port))
        self._seed = seed
        self._fresh = owned(node, nodes, seed)
        self.known: list[int] = []

    def fill(self, known: int) -> None:
        """Have it know so many links."""
        while len(self.known) < known:
            numbers = list(islice(self._fresh, min(60_000, known - len(self.known))))
            rate = self._send([links(numbers[n : n + BATCH], self._seed) for n in range(0, len(numbers), BATCH)])
            self.known += numbers
            print(f"{len(self.known):,} known; new ones {rate:,.0f}/s", end="\r", file=sys.stderr)

    def rate(self, count: int, new_of_10: int) -> tuple[float, list[Any]]:
        """Links a second, of so many batches, and these."""
        fresh = list(islice(self._fresh, count * BATCH * new_of_10 // 10))
        batches = mixed(self.known, iter(fresh), count, self._seed, new_of_10)
        rate = self._send(batches)
        self.known += fresh
        return rate, batches

    def _send(self, batches: list[Any]) -> float:
        async def run() -> float:
            async with AsyncExitStack() as stack:
                clients = [await stack.enter_async_context(transport_of(key)) for key in self._askers]
                return await send(clients, self._address, bytes.fromhex(self._crawl), batches)

        return uvloop.run(run())


async def send(clients: list[TaskTransport], address: tuple[str, int], crawl: bytes, batches: list[Any]) -> float:
    """Links a second."""
    waiting = iter(batches)

    async def one(client: TaskTransport) -> None:
        for batch in waiting:
            answer = await client.request(address, StoreTask(crawl, batch), timeout_s=RUN_MAX_S)
            if isinstance(answer, Failure):
                raise SystemExit(f"bench: {answer}")
            assert isinstance(answer, Ack)
            assert max(answer.codes) <= Code.KNOWN, answer

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(AT_ONCE):
            group.create_task(one(clients[number % len(clients)]))
    return sum(map(len, batches)) / (time.perf_counter() - began)


def accept_all(peer: Hello, message: Request) -> Reply:
    """A handler that stores nothing."""
    return Ack.all(Code.ACCEPTED, message.items)


def transport_of(key: NodeIdentity) -> TaskTransport:
    """A peer that acknowledges all that it is sent."""
    return TaskTransport(lambda: Hello(key.node_id, 1, "active"), accept_all, key=key)


async def ceiling(batches: list[Any]) -> float:
    """The same frames to a server in this process that acknowledges them as they come."""
    async with transport_of(NodeIdentity.drawn()) as server, transport_of(NodeIdentity.drawn()) as client:
        return await send([client], await server.listen("127.0.0.1", 0), bytes(16), batches)


def floor(path: Path, known: int, batches: list[Any], seed: str) -> float:
    """The same links to a LevelDB without anything around it."""
    database = plyvel.DB(str(path), create_if_missing=True, bloom_filter_bits=10)
    try:
        for first in range(0, known, 10_000):
            with database.write_batch() as batch:
                for link in links(range(first, min(first + 10_000, known)), seed):
                    batch.put(link.key, link.url.encode())
        began = time.perf_counter()
        for rows in batches:
            with database.write_batch(sync=True) as batch:
                for link in rows:
                    if database.get(link.key) is None:
                        batch.put(link.key, link.url.encode())
        return sum(map(len, batches)) / (time.perf_counter() - began)
    finally:
        database.close()


def link_rows(home: Path, known: int, batches_a_round: int, rounds: int) -> list[benchmark.Row]:
    """One process to another, beside the ceiling and the floor."""
    seed = "http://tasks.example/"
    taken: dict[str, list[float]] = {name: [] for name in LINKS_MIN}
    with swarm(home / "owner", 1) as nodes:
        target = LinkTarget(nodes, former_members(home / "askers", nodes), seed)
        target.fill(known)
        for number in range(rounds):
            rate, batches = target.rate(batches_a_round, NEW_OF_10)
            taken["node"].append(rate)
            taken["transport alone"].append(uvloop.run(ceiling(batches)))
            taken["LevelDB alone"].append(floor(home / f"floor{number}", min(known, 200_000), batches, seed))
            taken["node, all new"].append(target.rate(batches_a_round // 5, 10)[0])
            taken["node, all known"].append(target.rate(batches_a_round, 0)[0])
    with swarm(home / "owner-and-backup", 2) as nodes:
        target = LinkTarget(nodes, former_members(home / "other-askers", nodes), seed)
        target.fill(known // 5)
        for _ in range(rounds):
            taken["node and a backup"].append(target.rate(batches_a_round // 2, NEW_OF_10)[0])
    share = median(a / b for a, b in zip(taken["node"], taken["LevelDB alone"], strict=True))
    by = {"LevelDB alone": f"plyvel {plyvel.__version__}"}
    rows = [
        row(
            f"links, {name}",
            "" if least is None else f"at least {least:,}",
            least,
            median(taken[name]),
            "URLs/s",
            rounds,
            by=by.get(name, benchmark.OURS),
        )
        for name, least in LINKS_MIN.items()
    ]
    rows.append(row("links, node over LevelDB alone", "", None, share, "", rounds))
    return rows


def row(
    name: str,
    claim: str,
    target: float | None,
    measured: float,
    unit: str,
    samples: int,
    *,
    most: bool = False,
    by: str = benchmark.OURS,
) -> benchmark.Row:
    """One row of the report."""
    ok = target is None or (measured <= target if most else measured >= target)
    return benchmark.row(
        name, float(f"{measured:.4g}"), unit, samples, by=by, claim=claim, target=target, ok=ok, digits=9
    )


def main() -> int:
    """Measure, print, write; 0 only when every row with a target is ok."""
    parser = argparse.ArgumentParser(description="What the task plane and the backups of a swarm cost.")
    benchmark.add_options(parser, "fewer links, pages and rounds; under a minute")
    parser.add_argument("--links", action="store_true", help="only the links a second")
    args = parser.parse_args()
    known, batches, pages, rounds = (60_000, 60, 300, 1) if args.quick else (1_000_000, 400, 3_000, 5)
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-tasks-")))
        write_pages(home / "web", pages)
        rows = link_rows(home, known, batches, max(1, rounds))
        rows += [] if args.links else cpu_rows(home, pages, rounds)
    benchmark.print_table(rows, f"medians; {known:,} links known, {pages} pages")
    return benchmark.finish(rows, args.json)


if __name__ == "__main__":
    sys.exit(ended.in_order(main))
