"""Writes what a release says on the wire and leaves on the disk, for the tests of the releases after it.

    python scripts/record_release.py tests/data/0.1.0

    wire.json      frames of a small simulated swarm, the first of each kind and call, and made-up ones of kinds that it
                   lacks; a question and an answer of every call there is, from the examples of the tests; datagrams,
                   one of each RPC that it used, plain and sealed; a row and a proof with true signatures
    store.tar.gz   a node's data directory in the middle of that crawl: its key, and its store as LevelDB has it
    store.json     what is in it: the node's id, how many records of each kind, how many tasks of each state

`tests/test_earlier_release.py` reads them. They are made once, when a release is made, and never again: what is made
anew from the code at hand says nothing about the code before it.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "scripts")]

import msgpack  # noqa: E402 - found on the path above
from scale_swarms import Simulated, took  # noqa: E402 - found on the path above
from swarm.test_calls import GOOD  # noqa: E402

from dhtcrawl import __version__  # noqa: E402
from dhtcrawl.closed.sealing import SESSION_BYTES, Sealer  # noqa: E402
from dhtcrawl.closed.secret import SECRET_BYTES, Ring  # noqa: E402
from dhtcrawl.identity import NodeIdentity, keep, load_or_create, new_keys  # noqa: E402
from dhtcrawl.keyspace import CRAWL_ID_BYTES, KEY_BYTES  # noqa: E402
from dhtcrawl.rpc.discovery import datagram  # noqa: E402
from dhtcrawl.rpc.membership.hello import MemberRecord  # noqa: E402
from dhtcrawl.rpc.membership.row_proofs import RowProofs  # noqa: E402
from dhtcrawl.rpc.tasks.frame import HEADER, Decoder, unpack  # noqa: E402
from dhtcrawl.rpc.tasks.identity_check import IdentityCheck  # noqa: E402
from dhtcrawl.rpc.tasks.link import PeerLink  # noqa: E402
from dhtcrawl.rpc.tasks.messages import (  # noqa: E402
    Ack,
    Call,
    Code,
    DeleteBackup,
    Message,
    Records,
    RefreshTask,
    Refused,
    Result,
    encode,
)
from dhtcrawl.rpc.tasks.rows import PeerRow, PlaceRow, RecordRow, TombstoneRow  # noqa: E402
from dhtcrawl.rpc.tasks.signals import Credit, Goodbye, Hello, Ping, Pong, Proof, Signal, Why, encode_signal  # noqa: E402
from dhtcrawl.sim.net import DatagramNetwork  # noqa: E402
from dhtcrawl.storage.store import keys  # noqa: E402
from dhtcrawl.storage.store.engine import LevelEngine  # noqa: E402
from dhtcrawl.storage.store.records import State, unpack_task  # noqa: E402

NODES, PAGES_EACH, SEED = 3, 14, 1
STEP_S = 0.01  # virtual; the store is looked at so often, until it has a task of each of these states
STATES = (State.PENDING, State.FETCHED, State.DONE, State.DEAD)
BYTES_MAX = 6_000  # a longer frame is left for a shorter one of its kind
SECRET, SENDER, RECEIVER = bytes(range(SECRET_BYTES)), b"s" * KEY_BYTES, b"r" * KEY_BYTES
KEY, CRAWL = b"k" * KEY_BYTES, bytes(range(CRAWL_ID_BYTES))


class Overheard:
    """The first frame and datagram of each kind."""

    def __init__(self) -> None:
        self.frames: dict[str, str] = {}
        self.datagrams: dict[str, str] = {}
        self._streams: dict[int, tuple[PeerLink, Decoder]] = {}
        self._asked: dict[bytes, str] = {}  # by message id

    def received(self, link: PeerLink, data: bytes) -> None:
        """Bytes of a connection, in order."""
        _, decoder = self._streams.setdefault(id(link), (link, Decoder()))
        for kind, body in decoder.feed(bytes(data)):
            frame = HEADER.pack(len(body) + 1, kind) + bytes(body)
            fields = unpack(body)
            name = f"{kind:02x} {fields.get('name', '')}".strip()
            if len(frame) <= BYTES_MAX:
                self.frames.setdefault(name, frame.hex())

    def sent(self, data: bytes) -> None:
        """A datagram."""
        read = datagram.decode(data)
        if isinstance(read, datagram.DatagramRequest):
            self._asked[read.message_id] = read.name
            self.datagrams.setdefault(read.name, data.hex())
        elif isinstance(read, datagram.DatagramReply) and (name := self._asked.get(read.message_id)):
            self.datagrams.setdefault(f"answer to {name}", data.hex())


@contextmanager
def overheard() -> Iterator[Overheard]:
    """What any nodes of this process say to each other in the block."""
    heard, receive, send = Overheard(), PeerLink.receive, DatagramNetwork.send

    def received(link: PeerLink, data: Any, now: float) -> None:
        heard.received(link, data)
        receive(link, data, now)

    def sent(network: DatagramNetwork, data: bytes, source: Any, target: Any) -> None:
        heard.sent(data)
        send(network, data, source, target)

    # The simulator offers no way to listen in, and nothing else needs one.
    PeerLink.receive = received  # type: ignore[method-assign, assignment]
    DatagramNetwork.send = sent  # type: ignore[method-assign, assignment]
    try:
        yield heard
    finally:
        PeerLink.receive = receive  # type: ignore[method-assign]
        DatagramNetwork.send = send  # type: ignore[method-assign]


def examples() -> dict[str, str]:
    """Frames of kinds that a short crawl without faults may lack."""
    signals: tuple[Signal, ...] = (Goodbye(Why.LEAVING, "bye"), Credit((1, 2, 3)), Ping(7), Pong(7), Proof(bytes(64)))
    place = PlaceRow("ab" * KEY_BYTES, "x.warc.gz", 7, 9)
    record = RecordRow(KEY, "http://a.test/", 1, "http://a.test/", 0, True, 5, int(State.DONE), 1, 2, "", "", place)
    messages: tuple[Message, ...] = (
        RefreshTask(CRAWL, bytes(KEY_BYTES), b"\xff" * KEY_BYTES, digest_bits=8),
        Records((record,), KEY),
        Ack(bytes([Code.ACCEPTED, Code.MOVED]), b"\0", (PeerRow(SENDER, "192.0.2.1", 8468),), (record,), "why"),
        DeleteBackup(CRAWL, (TombstoneRow(KEY, int(State.DONE), 1, 2, "", "", place),)),
        Refused("not-a-member", "who?"),
    )
    found = {f"{signal.kind:02x} made up": encode_signal(signal).hex() for signal in signals}
    return found | {f"{message.kind:02x} made up": encode(1, message).hex() for message in messages}


def calls() -> dict[str, dict[str, str]]:
    """A question and an answer of every call."""
    return {
        name: {"asked": encode(1, Call(name, asked)).hex(), "answered": encode(1, Result(answered)).hex()}
        for name, (asked, answered) in GOOD.items()
    }


def sealed(data: bytes) -> str:
    """A datagram as a closed swarm sends it."""
    return Sealer(Ring.of((SECRET,)), SENDER, bytes(SESSION_BYTES)).seal(data, RECEIVER).hex()


def states_of(entries: list[tuple[bytes, bytes]]) -> Counter[str]:
    """How many tasks of each state."""
    return Counter(unpack_task(value).state.name for key, value in entries if key[:1] == keys.TASK)


def signed() -> dict[str, str]:
    """A member's row and a proof of who is at the other end, each with a true signature."""
    dialer, other = NodeIdentity.drawn(), NodeIdentity.drawn()
    said, heard = (
        Hello(key.node_id, 1, "active", ("xor",), 8468, key=key.public, nonce=key.nonce()) for key in (dialer, other)
    )
    record = RowProofs(dialer).signed(MemberRecord.newcomer(dialer.node_id, ("192.0.2.1", 8468), 3))
    return {
        "row": msgpack.packb(record.row()).hex(),
        "dialer": encode_signal(said).hex(),
        "other": encode_signal(heard).hex(),
        "proof": encode_signal(IdentityCheck(dialer, dialed=True).proof(said, heard)).hex(),
    }


def store(entries: list[tuple[bytes, bytes]], target: Path) -> dict[str, Any]:
    """Write a data directory with these entries as an archive; what it holds."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        keep(home, next(new_keys()).pem)
        engine = LevelEngine(home / "store")
        engine.write(dict(entries), sync=True)
        engine.close()
        kinds = Counter(key[:1].decode("latin-1") for key, _ in entries)
        with tarfile.open(target / "store.tar.gz", "w:gz") as archive:
            for path in sorted(home.rglob("*")):
                if path.is_file() and path.name not in ("LOCK", "LOG"):
                    _add(archive, path.relative_to(home), path.read_bytes())
        return {
            "version": __version__,
            "node": load_or_create(home).hex(),
            "kinds": kinds,
            "states": states_of(entries),
        }


def _add(archive: tarfile.TarFile, name: Path, data: bytes) -> None:
    entry = tarfile.TarInfo(str(name))
    entry.size, entry.mode = len(data), 0o600
    archive.addfile(entry, io.BytesIO(data))


def main() -> None:
    """Write all of it."""
    parser = argparse.ArgumentParser(description="Records what a release says on the wire and leaves on the disk.")
    parser.add_argument("directory", type=Path, help="such as tests/data/0.1.0; it is made")
    target = parser.parse_args().directory
    try:
        target.mkdir(parents=True)
    except OSError as error:
        parser.error(f"{target} cannot be made ({error.strerror}); name another directory")
    with overheard() as heard:
        swarm = Simulated(NODES, PAGES_EACH, SEED)
        took([swarm], Simulated.join)
        crawling = swarm.loop.create_task(swarm.crawl())
        entries: list[tuple[bytes, bytes]] = []
        while not crawling.done() and len(states_of(entries)) < len(STATES):
            swarm.loop.run_until_complete(swarm.after(STEP_S))
            entries = swarm.entries(0)
        swarm.loop.run_until_complete(crawling)
        swarm.end()
    hello = bytes.fromhex(heard.datagrams["hello"])
    wire = {
        "version": __version__,
        "frames": examples() | heard.frames,
        "calls": calls(),
        "datagrams": heard.datagrams,
        "signed": signed(),
        "sealed": {"secret": SECRET.hex(), "receiver": RECEIVER.hex(), "plain": hello.hex(), "data": sealed(hello)},
    }
    (target / "wire.json").write_text(json.dumps(wire, indent=1) + "\n")
    held = store(entries, target)
    (target / "store.json").write_text(json.dumps(held, indent=1) + "\n")
    print(f"{len(heard.frames)} frames, {len(wire['calls'])} calls, {len(heard.datagrams)} datagrams", file=sys.stderr)
    print(f"{len(entries)} records, tasks: {dict(held['states'])}", file=sys.stderr)


if __name__ == "__main__":
    main()
