"""Frames and datagrams made from valid ones by chance, at a node of a swarm: what becomes of them, what they cost.

A simulated swarm of three nodes crawls a small site; every request, answer and datagram is kept. Then one of the
nodes is given mutants of them (scripts/mutants.py):

- frames, each over a connection of its own that has been greeted: bytes of the stream, its lengths among them, and
  values within messages. One that is none ends the connection. One that still is a message is given to the node
  itself, first by a stranger and then by a member; a stranger gets a refusal and changes nothing.
- datagrams, from addresses that nobody has, in an open swarm and in a closed one, where they are sealed and
  nothing that was changed may open. They change nothing, neither at once nor after the pings that they bring.

What is compared: all rows of the node's store, the members that it sees, its routing table, the values that it keeps.
An exception is one that comes out, or one that is logged. CPU is told beside that of valid ones in the same run.

    python scripts/bench_fuzz.py [--quick] [--json FILE] [--frames N] [--datagrams N] [--seed S]
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import logging
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1]))

import benchmark
import ended
from mutants import mutant, mutant_map

from dhtcrawl.closed.secret import Ring
from dhtcrawl.config import load
from dhtcrawl.rpc.contact import Address
from dhtcrawl.rpc.discovery.datagram import DatagramRequest, Garbage, decode
from dhtcrawl.rpc.tasks.connection import Handler
from dhtcrawl.rpc.tasks.events import Asked
from dhtcrawl.rpc.tasks.frame import Malformed, pack, unpack
from dhtcrawl.rpc.tasks.link import LinkLimits, LinkState, PeerLink
from dhtcrawl.rpc.tasks.messages import Call, Message, Refused, Reply, Request, encode
from dhtcrawl.rpc.tasks.signals import Credit, Goodbye, Hello, Ping, Pong, Why, encode_signal
from dhtcrawl.sim.loop import run
from dhtcrawl.sim.net import DatagramNetwork
from dhtcrawl.sim.pages import WebShape
from dhtcrawl.sim.swarm import SimConditions, SimHost, SimSwarm
from dhtcrawl.sim.trace import Trace
from dhtcrawl.sim.web import SimWeb
from dhtcrawl.spec import make_spec

FRAMES, DATAGRAMS = 100_000, 1_000_000
QUICK_FRAMES, QUICK_DATAGRAMS = 5_000, 20_000
BAD_DATAGRAM_US_MAX = 20.0
NODES, PAGES = 3, 24
KEPT_OF_A_KIND = 40  # valid messages, and valid datagrams
BATCH = 500
LOOK_EVERY = 20  # batches
PATIENCE_S = 30.0  # of virtual time: what the mutants began is over
REPLY = "a reply"
SECRET = bytes(range(32))
STRANGER, US = Hello(b"s" * 20, 1, "active"), Hello(b"u" * 20, 1, "active")


@dataclass(slots=True)
class Fuzzed:
    """What came of one plane."""

    sent: int = 0
    bad: int = 0  # of them no messages, or nothing that opens
    kinds: Counter[str] = field(default_factory=Counter)  # of valid ones that they were made from
    errors: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    bad_s: float = 0.0  # CPU of those that are none
    valid_s: float = 0.0
    valid: int = 0

    @property
    def bad_us(self) -> float:
        return 1e6 * self.bad_s / max(self.bad, 1)

    @property
    def ratio(self) -> float:
        """What a bad one costs, in valid ones."""
        return self.bad_us / (1e6 * self.valid_s / max(self.valid, 1))


class _Errors(logging.Handler):
    """Keeps what the program logs as its own fault."""

    def __init__(self, found: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the line and what was raised."""
        self._found.append(f"{record.getMessage()}: {record.exc_info[1]!r}" if record.exc_info else record.getMessage())


class Kept:
    """What three nodes said to each other, a few of each kind."""

    def __init__(self) -> None:
        self.messages: dict[str, list[Message]] = {"Refused": [Refused("unknown-crawl", "it has ended")]}
        self.datagrams: dict[str, list[bytes]] = {}
        self.handlers: dict[str, Handler] = {}

    def handler_of(self, host: SimHost, handler: Handler) -> Handler:
        """The node's own, which is heard."""
        self.handlers[host.name] = handler

        def answer(hello: Hello, message: Request) -> Reply | asyncio.Future[Reply]:
            self._keep(message)
            reply = handler(hello, message)
            if isinstance(reply, asyncio.Future):
                reply.add_done_callback(self._keep_answer)
            else:
                self._keep(reply)
            return reply

        return answer

    def hear(self, network: DatagramNetwork) -> None:
        """Keep datagrams that are not sealed."""
        send = network.send

        def heard(data: bytes, source: Address, target: Address) -> None:
            message = decode(data)
            if not isinstance(message, Garbage):
                known = self.datagrams.setdefault(message.name if isinstance(message, DatagramRequest) else REPLY, [])
                if len(known) < KEPT_OF_A_KIND:
                    known.append(data)
            send(data, source, target)

        network.send = heard  # type: ignore[method-assign]

    def _keep_answer(self, done: asyncio.Future[Reply]) -> None:
        if not done.cancelled() and done.exception() is None:
            self._keep(done.result())

    def _keep(self, message: Message) -> None:
        name = message.name if isinstance(message, Call) else type(message).__name__
        known = self.messages.setdefault(name, [])
        if len(known) < KEPT_OF_A_KIND and message not in known:
            known.append(message)


@asynccontextmanager
async def a_swarm(seed: int, ring: Ring | None) -> AsyncIterator[tuple[SimSwarm, Kept]]:
    """Three nodes that have crawled, and what they said meanwhile."""
    config = load(flags={"crawl.delay_s": "0", "fetch.concurrency": 4})
    web, kept = SimWeb(seed, WebShape(hosts=3, pages=PAGES, flaky=0.1)), Kept()
    async with asyncio.TaskGroup() as group:
        conditions = SimConditions(ring=ring, handler_of=kept.handler_of)
        swarm = SimSwarm(group, seed, config, web, Trace(asyncio.get_running_loop().time), conditions)
        kept.hear(swarm.datagrams)
        hosts = [swarm.add() for _ in range(NODES)]
        try:
            for number, host in enumerate(hosts[:-1]):
                await host.start(hosts[:number])
            record = await hosts[0].submit(make_spec(web.seeds(), config.crawl), b"n" * 16)
            await hosts[-1].start(hosts[:-1])  # a newcomer asks for what it is to own
            async with asyncio.timeout(600):
                while not all(_over(host, record.crawl_id) for host in hosts):  # noqa: ASYNC110 - virtual time
                    await asyncio.sleep(0.5)
            await asyncio.sleep(PATIENCE_S)
            yield swarm, kept
        finally:
            for host in swarm.up:
                await host.stop()


def _over(host: SimHost, crawl: bytes) -> bool:
    known = None if host.swarm is None else host.swarm.crawls.get(crawl)
    return known is not None and bool(known.ended)


def state_of(host: SimHost) -> dict[str, object]:
    """All that a mutant could change."""
    assert host.swarm is not None
    rows = hashlib.sha256()
    for key, value in host.disk.engine.scan(b"", b"\xff" * 64):
        rows.update(len(key).to_bytes(4, "big") + key + len(value).to_bytes(4, "big") + value)
    routing = host.swarm.routing
    return {
        "the store": rows.hexdigest(),
        "the members": host.swarm.gossip.fingerprint(),
        "the routing table": sorted(contact.id for contact in routing.plane.table),
        "the values": len(routing.storage),
    }


def _changed(before: dict[str, object], after: dict[str, object]) -> list[str]:
    return [name for name, value in before.items() if after[name] != value]


# Frames


def _signals() -> dict[str, list[bytes]]:
    return {
        "signals": [
            encode_signal(signal)
            for signal in (Ping(3), Pong(3), Credit((1, 2, 3)), Goodbye(Why.LEAVING, "so long"), STRANGER)
        ]
    }


def greeted(number: int) -> list[PeerLink]:
    """So many ends of connections that are open, with a question of ours on each."""
    made = []
    for _ in range(number):
        here, there = PeerLink(US, LinkLimits(), 0.0), PeerLink(STRANGER, LinkLimits(), 0.0)
        here.connected(0.0)
        there.connected(0.0)
        for _ in range(3):
            there.receive(here.take_bytes(), 0.0)
            here.receive(there.take_bytes(), 0.0)
        here.request(Call("have", {}), 0.0, 60.0)
        here.take_bytes()
        here.take_events()
        made.append(here)
    return made


def frames_of(kept: Kept) -> dict[str, list[bytes]]:
    """Valid frames by kind, under the number that the question on each connection has."""
    frames = {name: [encode(1, message) for message in known] for name, known in kept.messages.items()}
    return frames | _signals()


def _mutant_frame(frame: bytes, others: Sequence[bytes], rng: Random) -> bytes | None:
    if rng.random() < 0.5:
        return mutant(frame, others, rng)
    try:
        return pack(frame[4], mutant_map(unpack(frame[5:]), rng))
    except Malformed:
        return None  # what has no encoding cannot be sent


def _mutants(
    valid: dict[str, list[bytes]],
    make: Callable[[bytes, Sequence[bytes], Random], bytes | None],
    found: Fuzzed,
    rng: Random,
) -> Iterator[bytes]:
    """Without end: each kind as often as another, however often it was said."""
    kinds = sorted(valid)
    everything = [data for kind in kinds for data in valid[kind]]
    whole = set(everything)
    while True:
        kind = rng.choice(kinds)
        made = make(rng.choice(valid[kind]), everything, rng)
        if made is not None and made not in whole:
            found.kinds[kind] += 1
            yield made


async def fuzz_frames(swarm: SimSwarm, kept: Kept, count: int, rng: Random) -> Fuzzed:
    """Give so many mutants of frames to the first node."""
    found = Fuzzed()
    target, member = swarm.hosts[:2]
    handler = kept.handlers[target.name]
    frames = frames_of(kept)
    mutants = _mutants(frames, _mutant_frame, found, rng)
    valid = [frame for known in frames.values() for frame in known]
    for first in range(0, count, BATCH):
        size = min(BATCH, count - first)
        still = _receive(list(islice(mutants, size)), found)
        _receive([rng.choice(valid) for _ in range(size)], Fuzzed(), found)
        before = state_of(target)
        for message in still:
            _ask_as_a_stranger(handler, message, found)
        found.changes += _changed(before, state_of(target))
        await _ask_as_a_member(handler, member.id, still, found)
    return found


def _receive(frames: Sequence[bytes], found: Fuzzed, valid: Fuzzed | None = None) -> list[Request]:
    """Those that still are requests; with `valid`, which are no mutants, their CPU is counted there."""
    asked: list[Request] = []
    for link, frame in zip(greeted(len(frames)), frames, strict=True):
        began = time.process_time()
        try:
            link.receive(frame, 1.0)
            asked += [event.message for event in link.take_events() if isinstance(event, Asked)]
            link.take_bytes()
        except Exception as error:  # whatever it is, it is what is looked for
            found.errors.append(f"{frame[:60]!r}: {error!r}")
        spent = time.process_time() - began
        if valid is not None:
            valid.valid, valid.valid_s = valid.valid + 1, valid.valid_s + spent
            continue
        found.sent += 1
        if link.state is LinkState.CLOSED:
            found.bad, found.bad_s = found.bad + 1, found.bad_s + spent
    return asked


def _ask_as_a_stranger(handler: Handler, message: Request, found: Fuzzed) -> None:
    try:
        reply = handler(STRANGER, message)
        open_to_all = isinstance(message, Call) and message.name == "members"
        if not (isinstance(reply, Refused) or open_to_all):
            found.changes.append(f"a stranger was answered: {message!r:.100}")
    except Exception as error:
        found.errors.append(f"{message!r:.100}: {error!r}")


async def _ask_as_a_member(handler: Handler, member: bytes, messages: list[Request], found: Fuzzed) -> None:
    """Whatever it comes to, it is an answer."""
    hello = Hello(member, 1, "active")
    waiting: list[asyncio.Future[Reply]] = []
    for message in messages:
        try:
            reply = handler(hello, message)
        except Exception as error:
            found.errors.append(f"{message!r:.100}: {error!r}")
            continue
        if isinstance(reply, asyncio.Future):
            waiting.append(reply)
    if waiting:
        done, late = await asyncio.wait(waiting, timeout=PATIENCE_S)
        found.errors += [repr(each.exception()) for each in done if each.exception() is not None]
        for each in late:
            each.cancel()


# Datagrams


async def fuzz_datagrams(swarm: SimSwarm, plains: dict[str, list[bytes]], count: int, rng: Random) -> Fuzzed:
    """Give so many mutants of datagrams to the first node, sealed where the swarm is closed."""
    found = Fuzzed()
    target, member = swarm.hosts[:2]
    assert target.swarm is not None
    assert member.swarm is not None
    plane, theirs = target.swarm.routing.plane, member.swarm.routing.plane.sealed
    counters = plane.counters

    def whole(plain: bytes) -> bytes:
        return plain if theirs is None else theirs.sealer.seal(plain, target.id if rng.random() < 0.7 else None)

    def is_bad(data: bytes) -> bool:
        return theirs is not None or isinstance(decode(data), Garbage)

    def give(batch: list[bytes]) -> float:
        addresses = [(f"10.{rng.randrange(90, 99)}.{rng.randrange(256)}.7", 9) for _ in batch]
        began = time.process_time()
        for data, address in zip(batch, addresses, strict=True):
            try:
                plane.datagram_received(data, address)
            except Exception as error:  # whatever it is, it is what is looked for
                found.errors.append(f"{data[:60]!r}: {error!r}")
        return time.process_time() - began

    mutants = _mutants({kind: [whole(plain) for plain in known] for kind, known in plains.items()}, mutant, found, rng)
    known = [plain for kind, each in sorted(plains.items()) if kind != REPLY for plain in each]
    before = state_of(target)
    for first in range(0, count, BATCH):
        batch = list(islice(mutants, min(BATCH, count - first)))
        bad, unsealed = [data for data in batch if is_bad(data)], counters.unsealed
        found.bad_s += give(bad)
        if theirs is not None and counters.unsealed - unsealed != len(bad):
            found.changes.append("a datagram that was changed has opened")
        give([data for data in batch if not is_bad(data)])
        valid = [whole(rng.choice(known)) for _ in range(len(batch) // 10)]
        found.valid_s += give(valid)
        found.sent, found.bad, found.valid = found.sent + len(batch), found.bad + len(bad), found.valid + len(valid)
        if first % (LOOK_EVERY * BATCH) == 0:
            await asyncio.sleep(PATIENCE_S)
    await asyncio.sleep(PATIENCE_S)
    found.changes += _changed(before, state_of(target))
    if counters.handler_errors:
        found.errors.append(f"{counters.handler_errors} handlers failed")
    return found


# All of it


@dataclass(slots=True)
class All:
    """What came of each plane."""

    frames: Fuzzed
    open: Fuzzed
    sealed: Fuzzed

    def rows(self) -> list[benchmark.Row]:
        """Rows of the report."""
        rows = []
        for name, found in (("frames", self.frames), ("open datagrams", self.open), ("sealed datagrams", self.sealed)):
            target = None if found is self.frames else BAD_DATAGRAM_US_MAX
            rows += [
                row(f"{name}: mutants", found.sent, "", found.sent),
                row(f"{name}: none any more", 100 * found.bad / found.sent, "%", found.sent),
                row(f"{name}: exceptions", len(found.errors), "", found.sent, target=0, ok=not found.errors),
                row(f"{name}: changes of state", len(found.changes), "", found.sent, target=0, ok=not found.changes),
                row(
                    f"{name}: CPU of a bad one", found.bad_us, "µs", max(found.bad, 1),
                    target=target, ok=target is None or found.bad_us <= target,
                ),
                row(f"{name}: over a valid one", found.ratio, "times", max(found.bad, 1)),
            ]  # fmt: skip
        return rows


row = partial(benchmark.row, by=benchmark.SIMULATED)


async def _open_swarm(datagrams: int, seed: int) -> tuple[Fuzzed, Kept]:
    async with a_swarm(seed, None) as (swarm, kept):
        return await fuzz_datagrams(swarm, kept.datagrams, datagrams, Random(f"{seed} open")), kept


async def _closed_swarm(
    plains: dict[str, list[bytes]], frames: int, datagrams: int, seed: int
) -> tuple[Fuzzed, Fuzzed]:
    async with a_swarm(seed, Ring.of((SECRET,))) as (swarm, kept):
        sealed = await fuzz_datagrams(swarm, plains, datagrams, Random(f"{seed} sealed"))
        return await fuzz_frames(swarm, kept, frames, Random(f"{seed} frames")), sealed


def fuzz(frames: int, datagrams: int, seed: int) -> All:
    """So many frames, and so many datagrams each in an open and in a closed swarm."""
    logged: list[str] = []
    errors, log = _Errors(logged), logging.getLogger("dhtcrawl")
    log.addHandler(errors)
    try:
        opened, kept = run(_open_swarm(datagrams, seed))
        of_frames, sealed = run(_closed_swarm(kept.datagrams, frames, datagrams, seed))
    finally:
        log.removeHandler(errors)
    of_frames.errors += logged
    return All(of_frames, opened, sealed)


def main() -> int:
    """Measure, print, write; 0 only when every row with a target is ok."""
    parser = argparse.ArgumentParser(description="Gives a node what is made from valid frames and datagrams by chance.")
    parser.add_argument("--frames", type=benchmark.count, metavar="N", help=f"mutants of frames; {FRAMES:,} by default")
    parser.add_argument(
        "--datagrams", type=benchmark.count, metavar="N", help=f"of datagrams, of each kind; {DATAGRAMS:,}"
    )
    parser.add_argument("--seed", type=int, default=1)
    benchmark.add_options(parser, f"{QUICK_FRAMES:,} frames and {QUICK_DATAGRAMS:,} datagrams")
    args = parser.parse_args()
    ended.at_once()
    frames = args.frames or (QUICK_FRAMES if args.quick else FRAMES)
    datagrams = args.datagrams or (QUICK_DATAGRAMS if args.quick else DATAGRAMS)
    found = fuzz(frames, datagrams, args.seed)
    for what in (found.frames, found.open, found.sealed):
        for line in [*what.errors, *what.changes][:10]:
            print(f"bench: {line}", file=sys.stderr)
    rows = found.rows()
    benchmark.print_table(rows)
    return benchmark.finish(rows, args.json)


if __name__ == "__main__":
    sys.exit(ended.in_order(main))
