"""What a flood does to a closed swarm of three nodes on loopback that crawls, and what a rotation does to one of five.

In turns the swarm crawls the same site calmly and while another process attacks its first node with

- *datagrams*: 10,000 a second that do not open, from many ports: sealed with another secret, cut, or with a wrong bit;
- *connections*: 1,000 to its task plane and 1,000 to its admin port, each of which sends a byte every two seconds (a
  TLS handshake, the head of a request) and comes back five seconds after it was cut;
- both, with 1,000 ports for the datagrams.

`speed` is pages a second over those of the calm crawls of the same run, and of that, what the remaining CPU allows: the
machine's less what the attacker takes and what the same attack takes of nodes that do nothing. `work` is that by
CPU alone: CPU of the nodes for a page, the attack's share taken off, of a calm crawl over this one; other work on
the machine does not change it, and what only waits does not show in it. Memory is the first node's: the most while it
was attacked, and what it has half a minute later, over the most while it was not.

With --rotation five nodes crawl while their secret is replaced in three steps. A node is *out* while another one does
not see it as active.

    python scripts/bench_attack.py [--quick] [--json FILE] [--rotation]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

import benchmark
import ended
from bench_tasks import RUN_MAX_S, Node, wait_for
from peer_bench.sites import write_pages
from policy_bench.nodes import Cluster, active
from web_server import WebServer, serve_files

from dhtcrawl.cli.main import run as dhtcrawl
from dhtcrawl.closed.sealing import Sealer
from dhtcrawl.closed.secret import Ring
from dhtcrawl.rpc.discovery.datagram import encode_request

DATAGRAMS_A_S, CONNECTIONS = 10_000, 1_000
DRIP_S, COME_BACK_S = 2.0, 5.0
IDLE_S, AFTER_S, ATTACK_MAX_S = 8.0, 30.0, 120.0
SPEED_MIN, MEMORY_MB_MAX = 0.8, 64.0
PROBE_S = 2.2  # a member that does not answer for so long is suspected
STEPS = ("accept", "use", "drop")
KINDS = ("datagrams", "connections", "both")
_POLL_S = 0.05


# The attacker, a process of its own


def bad_datagrams(count: int) -> list[bytes]:
    """Datagrams that open nowhere: made as members make them, but with a secret of nobody's."""
    rng = Random(1)
    sealer = Sealer(Ring.of((rng.randbytes(32),)), rng.randbytes(20), rng.randbytes(16))
    made = []
    for number in range(count):
        data = bytearray(sealer.seal(encode_request(rng.randbytes(20), "ping", [rng.randbytes(20)]), None))
        if number % 3 == 1:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        made.append(bytes(data[: rng.randrange(len(data))] if number % 3 == 2 else data))
    return made


async def _flood(host: str, port: int, sockets: int) -> None:
    loop, datagrams = asyncio.get_running_loop(), bad_datagrams(999)
    ends = [
        (await loop.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=(host, port)))[0]
        for _ in range(sockets)
    ]
    sent, began = 0, time.monotonic()
    while True:
        due = int((time.monotonic() - began) * DATAGRAMS_A_S)
        for number in range(sent, due):
            ends[number % sockets].sendto(datagrams[number % len(datagrams)])
        sent = due
        await asyncio.sleep(0.005)


async def _drip(host: str, port: int, head: bytes, drop: bytes) -> None:
    """One connection that never gets to the point, again and again."""
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(head)
            ended = asyncio.ensure_future(reader.read(1))
            try:
                while not ended.done():
                    await asyncio.wait((ended,), timeout=DRIP_S)
                    writer.write(drop)
            finally:
                ended.cancel()
                writer.close()
        await asyncio.sleep(COME_BACK_S)


async def attack(kind: str, swarm: str, admin: str) -> None:
    """Until it is killed, or for `ATTACK_MAX_S`."""
    (host, port), (admin_host, admin_port) = (address.rsplit(":", 1) for address in (swarm, admin))
    async with asyncio.timeout(ATTACK_MAX_S), asyncio.TaskGroup() as group:
        if kind in ("datagrams", "both"):
            group.create_task(_flood(host, int(port), CONNECTIONS if kind == "both" else 50))
        for _ in range(CONNECTIONS if kind in ("connections", "both") else 0):
            group.create_task(_drip(host, int(port), b"\x16\x03\x01\x40\x00\x01\x00\x3f\xf0\x03\x03", b"\0"))
            group.create_task(_drip(admin_host, int(admin_port), b"GET / HTTP/1.1\r\nX-A: ", b"a"))


class Attacker:
    """The process, while its block lasts; `cpu_s` is what it took, once it is over."""

    def __init__(self, kind: str, node: Node) -> None:
        argv = [sys.executable, __file__, "--attack", kind, node.address, node.admin]
        self.cpu_s = 0.0
        self._process = subprocess.Popen(argv, stderr=subprocess.DEVNULL)

    def __enter__(self) -> Attacker:
        time.sleep(1.0)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        used = os.wait4(self._process.pid, 0)[2]
        self._process.returncode = 0
        self.cpu_s = used.ru_utime + used.ru_stime


# What is measured


@dataclass(frozen=True, slots=True)
class Crawled:
    """A crawl: seconds, and CPU seconds of all nodes; MB of the first node at most."""

    pages: int
    seconds: float
    cpu_s: float
    memory_mb: float


@dataclass(frozen=True, slots=True)
class Attacked:
    """A crawl while one kind of attack went on; `idle_cpu` and `attacker_cpu` are cores."""

    crawled: Crawled
    idle_cpu: float
    attacker_cpu: float
    before_mb: float
    after_mb: float


def memory_mb(node: Node) -> float:
    """What a node has now."""
    text = Path(f"/proc/{node.process.pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


def crawl(nodes: Sequence[Node], url: str) -> Crawled:
    """A whole crawl.

    Raises:
        SystemExit: it does not end, or brings nothing.
    """
    cpu_s, began, most = sum(node.cpu_s for node in nodes), time.monotonic(), 0.0
    settings = {"delay_s": "0", "allow_private": True}
    name = nodes[0].ask("POST", "crawls", {"seeds": [url], "settings": settings})["crawl"]
    while (told := nodes[-1].ask("GET", f"crawls/{name}"))["state"] != "ended":
        if time.monotonic() > began + RUN_MAX_S:
            raise SystemExit(f"bench: a crawl does not end within {RUN_MAX_S:g} s")
        most = max(most, memory_mb(nodes[0]))
        time.sleep(_POLL_S)
    if not told["counters"]["pages"]:
        raise SystemExit(f"bench: nothing of {url} could be fetched")
    used = sum(node.cpu_s for node in nodes) - cpu_s
    return Crawled(told["counters"]["pages"], time.monotonic() - began, used, most)


def attacked(nodes: Sequence[Node], url: str, kind: str, after_s: float) -> Attacked:
    """A crawl under attack, and before it the attack alone."""
    before_mb = memory_mb(nodes[0])
    with Attacker(kind, nodes[0]):
        cpu_s, began = nodes[0].cpu_s, time.monotonic()
        time.sleep(IDLE_S)
        idle_cpu = (nodes[0].cpu_s - cpu_s) / (time.monotonic() - began)
    began = time.monotonic()
    with Attacker(kind, nodes[0]) as attacker:
        crawled = crawl(nodes, url)
        seconds = time.monotonic() - began
    time.sleep(after_s)
    return Attacked(crawled, idle_cpu, attacker.cpu_s / seconds, before_mb, memory_mb(nodes[0]))


def rows_of(kind: str, calm: Sequence[Crawled], under: Sequence[Attacked]) -> list[benchmark.Row]:
    """Rows of one kind of attack."""
    cores = os.cpu_count() or 1
    rate = median(each.pages / each.seconds for each in calm)
    page_s = median(each.cpu_s / each.pages for each in calm)
    usual_mb = max(each.memory_mb for each in calm)
    speeds, works = [], []
    for each in under:
        left = (cores - each.attacker_cpu - each.idle_cpu) / cores
        speeds.append(each.crawled.pages / each.crawled.seconds / rate / left)
        works.append(page_s / ((each.crawled.cpu_s - each.idle_cpu * each.crawled.seconds) / each.crawled.pages))
    more = [each.crawled.memory_mb - usual_mb for each in under]
    after = [each.after_mb - usual_mb for each in under]
    speed, work = median(speeds), median(works)
    row = benchmark.row
    return [
        row(f"{kind}: speed", speed, "of what is left", speeds, target=SPEED_MIN, ok=speed >= SPEED_MIN),
        row(f"{kind}: work", work, "of a calm page", works),
        row(f"{kind}: the attack alone", median(each.idle_cpu for each in under), "cores", len(under)),
        row(f"{kind}: the attacker", median(each.attacker_cpu for each in under), "cores", len(under)),
        row(f"{kind}: memory", max(more), "MB more", more, target=MEMORY_MB_MAX, ok=max(more) <= MEMORY_MB_MAX),
        row(f"{kind}: memory after it", max(after), "MB more", after),
    ]  # fmt: skip


@contextmanager
def site(home: Path, pages: int) -> Iterator[WebServer]:
    """Pages of one host."""
    write_pages(home / "site", pages)
    with serve_files(home / "site", home / "server") as server:
        yield server


@contextmanager
def closed_swarm(home: Path, count: int) -> Iterator[tuple[Cluster, Path]]:
    """Nodes with a secret, and the file that it is in."""
    file = home / "swarm.secret"
    dhtcrawl(["secret", "new", str(file)])
    with Cluster(home / "nodes", "--secret-file", str(file)) as cluster:
        for _ in range(count):
            cluster.add()
        yield cluster, file


def floods(home: Path, rounds: int, pages: int, after_s: float) -> list[benchmark.Row]:
    """All kinds of attacks, in turns with calm crawls."""
    with site(home, pages) as server, closed_swarm(home, 3) as (cluster, _):
        url, nodes = f"{server.url}/index.html", cluster.nodes
        crawl(nodes, url)  # warm
        calm: list[Crawled] = []
        under: dict[str, list[Attacked]] = {kind: [] for kind in KINDS}
        for _ in range(rounds):
            for kind, found in under.items():
                calm.append(crawl(nodes, url))
                found.append(attacked(nodes, url, kind, after_s))
        wait_for(lambda: all(active(node) == 3 for node in nodes))
    rows = [
        benchmark.row("calm", median(each.pages / each.seconds for each in calm), "pages/s", len(calm)),
        benchmark.row("calm", 1000 * median(each.cpu_s / each.pages for each in calm), "ms/page", len(calm)),
        benchmark.row("calm: memory", max(each.memory_mb for each in calm), "MB", len(calm)),
    ]
    return rows + [row for kind, found in under.items() for row in rows_of(kind, calm, found)]


# A rotation


class Watch:
    """How long each node was out for any other, at most; `look` is to be called often."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.longest_s = 0.0
        self.looks = 0
        self._nodes = nodes
        self._out_since: dict[tuple[str, str], float] = {}

    def look(self) -> None:
        """Ask every node whom it sees."""
        for node in self._nodes:
            there = {peer["node"] for peer in node.ask("GET", "peers") if peer["state"] == "active"}
            now = time.monotonic()
            for other in self._nodes:
                pair = node.id, other.id
                if other.id in there:
                    self._out_since.pop(pair, None)
                else:
                    self.longest_s = max(self.longest_s, now - self._out_since.setdefault(pair, now))
        self.looks += 1


def rotation(home: Path, pages: int) -> list[benchmark.Row]:
    """Five nodes that crawl while their secret is replaced."""
    with site(home, pages) as server, closed_swarm(home, 5) as (cluster, file):
        nodes = cluster.nodes
        watch = Watch(nodes)
        settings = {"delay_s": "0.01", "allow_private": True}
        asked = {"seeds": [f"{server.url}/index.html"], "settings": settings}
        name = nodes[0].ask("POST", "crawls", asked)["crawl"]

        def told() -> dict[str, object]:
            return dict(nodes[-1].ask("GET", f"crawls/{name}"))

        def done() -> int:
            return int(told()["counters"]["pages"])  # type: ignore[index]

        def watched(true: Callable[[], bool]) -> None:
            end = time.monotonic() + RUN_MAX_S
            while not true():
                if time.monotonic() > end:
                    raise SystemExit(f"bench: a step of the rotation takes more than {RUN_MAX_S:g} s")
                watch.look()

        for number, step in enumerate(STEPS, start=1):
            watched(lambda: done() >= number * pages // 5)  # noqa: B023
            dhtcrawl(["secret", "rotate", str(file), step])
        within = done()
        watched(lambda: told()["state"] == "ended")
        paths = Counter(_paths(home / "server" / "access.log"))
        wanted = {"/index.html", *(f"/page{number}.html" for number in range(1, pages))}
        lost, twice = len(wanted - paths.keys()), sum(paths[path] - 1 for path in wanted & paths.keys())
    row = benchmark.row
    return [
        row("rotation: pages when the old one was dropped", within, "pages", 1, ok=True),
        row("rotation: out", watch.longest_s, "s", watch.looks, target=PROBE_S, ok=watch.longest_s <= PROBE_S),
        row("rotation: lost", lost, "pages", pages, target=0, ok=lost == 0),
        row("rotation: twice", twice, "pages", pages, target=0, ok=twice == 0),
    ]


def _paths(log: Path) -> list[str]:
    return [line.split()[4] for line in log.read_text().splitlines()]


def main() -> int:
    """Measure, print, write; 0 only when every row with a target is ok."""
    parser = argparse.ArgumentParser(description="Attacks a closed swarm on loopback while it crawls.")
    parser.add_argument("--rotation", action="store_true", help="replace the secret of five nodes that crawl instead")
    parser.add_argument("--attack", nargs=3, metavar=("KIND", "SWARM", "ADMIN"), help=argparse.SUPPRESS)
    benchmark.add_options(parser, "one round on a small site")
    args = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 8192)), hard))
    if args.attack:
        with contextlib.suppress(TimeoutError):
            asyncio.run(attack(*args.attack))
        return 0
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        if args.rotation:
            rows = rotation(Path(name), 300 if args.quick else 1000)
        else:
            rows = floods(Path(name), *((1, 400, 5.0) if args.quick else (2, 1500, AFTER_S)))
    benchmark.print_table(rows)
    return benchmark.finish(rows, args.json)


if __name__ == "__main__":
    sys.exit(ended.in_order(main))
