"""The task plane's frames: encoded, decoded, and from one process to another beside its alternatives.

They carry the same links in the same run: aiohttp servers that take batches by
POST (connections kept alive, as many at once), and the stock rpcudp library
with a call for each URL. All sides decode and acknowledge and store nothing.

`http` posts the very messages that our frames hold, made and checked the same
way, so that only the transport differs. `http_raw` posts bare msgpack that
nobody checks or names: what checking every field costs is the difference, and
it is more than the transport saves. CPU is that of both processes. Rounds take
turns (A B C D A B C D …).

    python scripts/bench_frames.py [--quick] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import sha1
from pathlib import Path
from statistics import median
from typing import cast

import aiohttp
import msgpack
import uvloop
from aiohttp import web
from rpcudp.protocol import RPCProtocol

sys.path.insert(0, str(Path(__file__).parents[1]))

import benchmark
import ended

from dhtcrawl.rpc.tasks.events import Failure
from dhtcrawl.rpc.tasks.frame import HEADER, Decoder, Kind
from dhtcrawl.rpc.tasks.messages import Ack, Code, Reply, Request, StoreTask, decode, encode
from dhtcrawl.rpc.tasks.rows import LinkRow
from dhtcrawl.rpc.tasks.signals import Hello
from dhtcrawl.rpc.tasks.transport import TaskTransport

BATCH = 200
AT_ONCE = 16
CRAWL = bytes(16)
Check = Callable[[bytes], int]
UDP_RATIO_MIN = 20.0
# What both sides' checking and naming of every field may cost on top of msgpack itself, in µs a URL.
CODEC_URLS_PER_S_MIN = 500_000


def batch(number: int) -> tuple[LinkRow, ...]:
    """Links as a page has them."""
    urls = [f"https://www.site{number}.example/section/page-{index}.html?id={index}" for index in range(BATCH)]
    return tuple(LinkRow(sha1(url.encode()).digest(), url, 3, f"https://www.site{number}.example/") for url in urls)


BATCHES = [batch(number) for number in range(20)]


@dataclass(frozen=True, slots=True)
class Sample:
    """One round of one transport."""

    urls: int
    wall_s: float
    cpu_s: float  # of both processes

    @property
    def urls_per_s(self) -> float:
        """URLs a second of wall time."""
        return self.urls / self.wall_s

    @property
    def cpu_us(self) -> float:
        """Microseconds of CPU a URL, both sides together."""
        return 1e6 * self.cpu_s / self.urls


# The servers: each prints its port, and its CPU time when its input ends


def accept_all(peer: Hello, message: Request) -> Reply:
    """A handler that stores nothing."""
    return Ack.all(Code.ACCEPTED, message.items)


async def serve_frames(done: Awaitable[None]) -> None:
    """Our transport."""
    async with TaskTransport(lambda: Hello(bytes([2]) * 20, 0, "active"), accept_all) as transport:
        _, port = await transport.listen("127.0.0.1", 0)
        print(port, flush=True)
        await done


async def _serve_http(answer: Callable[[bytes], bytes], done: Awaitable[None]) -> None:
    async def post(request: web.Request) -> web.Response:
        return web.Response(body=answer(await request.read()))

    app = web.Application(client_max_size=2**20)
    app.router.add_post("/tasks", post)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await done
    await runner.cleanup()


async def serve_http(done: Awaitable[None]) -> None:
    """By aiohttp, with our messages."""

    def answer(body: bytes) -> bytes:
        number, message = decode(Kind.STORE_TASK, body)
        assert isinstance(message, StoreTask)
        return encode(number, Ack.all(Code.ACCEPTED, message.items))[HEADER.size :]

    await _serve_http(answer, done)


async def serve_http_raw(done: Awaitable[None]) -> None:
    """By aiohttp, with the least that decodes a batch and answers."""

    def answer(body: bytes) -> bytes:
        return cast(bytes, msgpack.packb({"codes": bytes(len(msgpack.unpackb(body, use_list=False)[1]))}))

    await _serve_http(answer, done)


class _Tasks(RPCProtocol):  # type: ignore[misc]
    def rpc_store_task(self, _sender: object, _crawl: bytes, *_link: object) -> int:
        return 0


async def serve_udp(done: Awaitable[None]) -> None:
    """The stock rpcudp."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(_Tasks, ("127.0.0.1", 0))
    print(transport.get_extra_info("sockname")[1], flush=True)
    await done
    transport.close()


async def serve(kind: str) -> None:
    """Until the input ends."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def stop() -> None:
        loop.remove_reader(sys.stdin.fileno())
        ended.set_result(None)

    loop.add_reader(sys.stdin.fileno(), stop)
    await SERVERS[kind](ended)
    print(_cpu_s(), flush=True)


# The clients: each sends so many batches, `AT_ONCE` at a time


async def _in_turns(count: int, send: Callable[[tuple[LinkRow, ...]], Awaitable[None]]) -> None:
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            await send(BATCHES[number % len(BATCHES)])

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work())


async def send_frames(port: int, count: int) -> None:
    """Our transport."""
    async with TaskTransport(lambda: Hello(bytes([1]) * 20, 0, "active"), accept_all) as transport:

        async def send(links: tuple[LinkRow, ...]) -> None:
            reply = await transport.request(("127.0.0.1", port), StoreTask(CRAWL, links))
            if isinstance(reply, Failure):
                raise SystemExit(f"bench: {reply}")

        await _in_turns(count, send)


async def _send_http(port: int, count: int, post: Callable[[tuple[LinkRow, ...]], bytes], check: Check) -> None:
    url = f"http://127.0.0.1:{port}/tasks"
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:

        async def send(links: tuple[LinkRow, ...]) -> None:
            async with session.post(url, data=post(links)) as response:
                if check(await response.read()) != len(links):
                    raise SystemExit("bench: the HTTP server lost links")

        await _in_turns(count, send)


async def send_http(port: int, count: int) -> None:
    """By aiohttp, with our messages."""

    def acked(body: bytes) -> int:
        _, ack = decode(Kind.ACK, body)
        return len(ack.codes) if isinstance(ack, Ack) else 0

    await _send_http(port, count, lambda links: encode(1, StoreTask(CRAWL, links))[HEADER.size :], acked)


async def send_http_raw(port: int, count: int) -> None:
    """By aiohttp, with bare msgpack."""

    def post(links: tuple[LinkRow, ...]) -> bytes:
        return cast(bytes, msgpack.packb((CRAWL, links)))

    await _send_http(port, count, post, lambda body: len(msgpack.unpackb(body)["codes"]))


async def send_udp(port: int, count: int) -> None:
    """rpcudp, a call for each URL."""
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.create_datagram_endpoint(_Tasks, ("127.0.0.1", 0))

    async def send(links: tuple[LinkRow, ...]) -> None:
        for link in links:
            answered, _ = await protocol.store_task(("127.0.0.1", port), CRAWL, *link)
            if not answered:
                raise SystemExit("bench: a datagram was lost")

    await _in_turns(count, send)
    transport.close()


SERVERS = {"frames": serve_frames, "http": serve_http, "http_raw": serve_http_raw, "udp": serve_udp}
CLIENTS = {"frames": send_frames, "http": send_http, "http_raw": send_http_raw, "udp": send_udp}


def run(kind: str, count: int) -> Sample:
    """One round: a server process, and this one as its client."""
    argv = [sys.executable, __file__, "--serve", kind]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        port = int(server.stdout.readline())
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            # Connections and caches warm, and the server's start is not counted.
            runner.run(CLIENTS[kind](port, AT_ONCE))
            began, cpu = time.perf_counter(), _cpu_s()
            runner.run(CLIENTS[kind](port, count))
            wall_s, cpu_s = time.perf_counter() - began, _cpu_s() - cpu
        server.stdin.close()
        start_s = _start_cpu_s(kind)
        theirs = float(server.stdout.readline()) - start_s
    return Sample(count * BATCH, wall_s, cpu_s + max(0.0, theirs))


_starts: dict[str, float] = {}


def _start_cpu_s(kind: str) -> float:
    """What a server costs that serves nobody."""
    if kind not in _starts:
        argv = [sys.executable, __file__, "--serve", kind]
        done = subprocess.run(argv, input="", capture_output=True, text=True, check=True)
        _starts[kind] = float(done.stdout.split()[-1])
    return _starts[kind]


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def codec(count: int) -> tuple[float, float]:
    """URLs a second made and encoded, and decoded and checked, in this process."""
    messages = [StoreTask(CRAWL, links) for links in BATCHES]
    frames = [encode(number, message) for number, message in enumerate(messages)]
    began = time.perf_counter()
    for number in range(count):
        encode(number, StoreTask(CRAWL, BATCHES[number % len(BATCHES)]))
    encoded_s = time.perf_counter() - began
    decoder = Decoder()
    began = time.perf_counter()
    for number in range(count):
        for kind, body in decoder.feed(frames[number % len(frames)]):
            decode(kind, body)
    return count * BATCH / encoded_s, count * BATCH / (time.perf_counter() - began)


def row(
    name: str,
    claim: str,
    unit: str,
    samples: list[float],
    target: float | None = None,
    digits: int = 0,
    by: str = benchmark.OURS,
) -> benchmark.Row:
    """One row of the report: the median; without a target it is information."""
    measured = median(samples)
    ok = target is None or measured >= target
    return benchmark.row(name, measured, unit, samples, by=by, claim=claim, target=target, ok=ok, digits=digits)


def report(coded: list[tuple[float, float]], samples: dict[str, list[Sample]]) -> list[benchmark.Row]:
    """All rows."""

    def ratios(peer: str) -> list[float]:
        return [our.urls_per_s / other.urls_per_s for our, other in zip(samples["frames"], samples[peer], strict=True)]

    claims = {
        "frames": f"our frames of {BATCH}, every field checked",
        "http": f"aiohttp, POST of {BATCH}, every field checked",
        "http_raw": f"aiohttp, POST of {BATCH}, nothing checked",
        "udp": "rpcudp, a call for each URL",
    }
    rows = [
        row("encode", "a message made, checked and encoded", "URLs/s", [a for a, _ in coded], CODEC_URLS_PER_S_MIN),
        row("decode", "a frame decoded, checked and named", "URLs/s", [b for _, b in coded], CODEC_URLS_PER_S_MIN),
        row("frames_to_http", "times the URLs/s of aiohttp POST, same messages", "times", ratios("http"), None, 2),
        row("frames_to_raw", "times the URLs/s of aiohttp POST, unchecked", "times", ratios("http_raw"), None, 2),
        row("frames_to_udp", "times the URLs/s of rpcudp", "times", ratios("udp"), UDP_RATIO_MIN, 2),
    ]
    for kind, claim in claims.items():
        by = benchmark.OURS if kind == "frames" else claim.partition(",")[0]
        rows.append(row(f"{kind}_urls", claim, "URLs/s", [sample.urls_per_s for sample in samples[kind]], by=by))
        cpu_us = [sample.cpu_us for sample in samples[kind]]
        rows.append(row(f"{kind}_cpu", "CPU of both sides", "µs/URL", cpu_us, digits=3, by=by))
    return rows


def main() -> int:
    """Measure, print, write; 0 only when every row with a target is ok."""
    parser = argparse.ArgumentParser(description="Carries links in frames, by HTTP and by rpcudp, in turns.")
    benchmark.add_options(parser, "3 short rounds instead of 7; under a minute")
    parser.add_argument("--serve", choices=SERVERS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(args.serve))
        return 0
    rounds, batches = (3, 500) if args.quick else (7, 10_000)
    counts = {"frames": batches, "http": batches, "http_raw": batches, "udp": batches // 50}
    coded: list[tuple[float, float]] = []
    samples: dict[str, list[Sample]] = {kind: [] for kind in counts}
    for _ in range(rounds):
        coded.append(codec(batches))
        for kind, count in counts.items():
            samples[kind].append(run(kind, count))
    rows = report(coded, samples)
    benchmark.print_table(rows)
    return benchmark.finish(rows, args.json)


if __name__ == "__main__":
    sys.exit(ended.in_order(main))
