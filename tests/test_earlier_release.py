"""What the release before said and stored is understood, and what it has to understand is said and stored as it was.

`tests/data/VERSION` has what `scripts/record_release.py` recorded when that version was released. A change that breaks
one of these breaks swarms of two versions, or the way back to the version before: docs/development.md, "Releases", says
how a format changes over two of them.
"""

from __future__ import annotations

import json
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import msgpack
import pytest
from rpc.wire import hello

from dhtcrawl.closed.sealing import SESSION_BYTES, Sealer
from dhtcrawl.closed.secret import Ring
from dhtcrawl.identity import NodeIdentity, load_or_create
from dhtcrawl.rpc.discovery import datagram
from dhtcrawl.rpc.membership.hello import parse_records
from dhtcrawl.rpc.membership.member_rows import ROWS_A_CALL_MAX, ExchangeMembers
from dhtcrawl.rpc.membership.row_proofs import RowProofs
from dhtcrawl.rpc.tasks import frame as frames
from dhtcrawl.rpc.tasks.frame import FIRST_REQUEST, HEADER
from dhtcrawl.rpc.tasks.identity_check import IdentityCheck
from dhtcrawl.rpc.tasks.messages import Call, Result, decode, encode
from dhtcrawl.rpc.tasks.signals import Hello, Proof, encode_signal, parse_signal
from dhtcrawl.storage.store import catalog, keys
from dhtcrawl.storage.store.crawl_record import from_wire, write_fields
from dhtcrawl.storage.store.engine import LevelEngine
from dhtcrawl.storage.store.fsck import check
from dhtcrawl.storage.store.records import unpack, unpack_task
from dhtcrawl.storage.store.txn import Txn
from dhtcrawl.swarm.calls import BY_NAME

# `members` belongs to a room below that of the other calls.
CALLS: dict[str, Any] = {**BY_NAME, ExchangeMembers.terms.name: ExchangeMembers}
RELEASES = sorted(path.parent for path in (Path(__file__).parent / "data").glob("*/wire.json"))
WIRES = [json.loads((release / "wire.json").read_text()) for release in RELEASES]


def recorded(part: str) -> list[Any]:
    """Each recorded thing of one part, by its name and its version."""
    return [
        pytest.param(name, value, id=f"{wire['version']} {name}")
        for wire in WIRES
        for name, value in wire[part].items()
    ]


def frame(text: str) -> tuple[int, bytes]:
    """Kind and body."""
    data = bytes.fromhex(text)
    length, kind = HEADER.unpack_from(data)
    assert length == len(data) - 4
    return kind, data[HEADER.size :]


def body_of(data: bytes) -> dict[Any, Any]:
    return frames.unpack(data[HEADER.size :])


def assert_said(theirs: Any, ours: Any) -> None:
    """Whatever that version said is in what we say: it may have more fields, and none of another kind or value."""
    if isinstance(theirs, dict):
        assert isinstance(ours, dict)
        for name, value in theirs.items():
            assert name in ours, f"{name} is missing"
            assert_said(value, ours[name])
    else:
        assert ours == theirs


def test_there_is_a_record_of_a_release() -> None:
    assert RELEASES
    assert [wire["version"] for wire in WIRES] == [release.name for release in RELEASES]


@pytest.mark.parametrize(("name", "text"), recorded("frames"))
def test_each_frame_is_understood_and_says_the_same_when_we_say_it(name: str, text: str) -> None:
    kind, body = frame(text)
    if kind < FIRST_REQUEST:
        signal = parse_signal(kind, frames.unpack(body))
        assert signal is not None
        assert_said(frames.unpack(body), body_of(encode_signal(signal)))
        if isinstance(signal, Hello):
            assert hello().version_with(signal) is not None, "no version that both speak"
        return
    request_id, message = decode(kind, body)
    assert message is not None
    assert_said(frames.unpack(body), body_of(encode(request_id, message)))
    if isinstance(message, Call):
        assert not CALLS[message.name].parse(message.args).extra


@pytest.mark.parametrize(("name", "texts"), recorded("calls"))
def test_each_call_and_its_answer_are_understood_and_have_the_fields_of_then(name: str, texts: dict[str, str]) -> None:
    _, asked = decode(*frame(texts["asked"]))
    _, answered = decode(*frame(texts["answered"]))
    assert isinstance(asked, Call)
    assert isinstance(answered, Result)
    call = CALLS[asked.name]
    args = call.parse(asked.args)
    reply = args.answered(answered.value)
    # A field that is no more would be kept as one that we do not know. Some answers are maps of any names.
    assert not args.extra
    assert not (reply.extra and reply.wire_fields)
    assert_said(asked.args, args.to_map())
    assert_said(answered.value, reply.to_map())


@pytest.mark.parametrize(("name", "text"), recorded("datagrams"))
def test_each_datagram_is_understood(name: str, text: str) -> None:
    read = datagram.decode(bytes.fromhex(text))
    if name.startswith("answer to "):
        assert isinstance(read, datagram.DatagramReply)
        return
    assert isinstance(read, datagram.DatagramRequest)
    assert read.name == name
    if name == "hello":
        row, _, others = read.args
        (record, *_), bad = parse_records([row, *others], "10.0.0.1", ROWS_A_CALL_MAX)
        assert bad == 0
        assert tuple(record.row()[: len(row)]) == tuple(row)


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: str(wire["version"]))
def test_a_sealed_datagram_is_opened(wire: dict[str, Any]) -> None:
    sealed = {name: bytes.fromhex(value) for name, value in wire["sealed"].items()}
    opened = Sealer(Ring.of((sealed["secret"],)), sealed["receiver"], bytes(SESSION_BYTES)).open(sealed["data"])
    assert opened is not None
    assert opened.datagram == sealed["plain"]


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: str(wire["version"]))
def test_what_a_node_has_signed_holds(wire: dict[str, Any]) -> None:
    signed, key = wire["signed"], NodeIdentity.drawn()
    (record,), _ = parse_records([msgpack.unpackb(bytes.fromhex(signed["row"]))], None, 1)
    assert RowProofs(key).holds(record, None)
    dialer, other, proof = (
        parse_signal(kind, frames.unpack(body)) for kind, body in map(frame, list(signed.values())[1:])
    )
    assert isinstance(dialer, Hello)
    assert isinstance(other, Hello)
    assert isinstance(proof, Proof)
    check = IdentityCheck(key, dialed=False)
    check.claimed = dialer
    assert check.misfit(dialer) == ""
    assert check.holds(other, proof)


@pytest.fixture(params=RELEASES, ids=lambda release: str(release.name))
def release(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def test_the_store_is_read_and_what_is_written_of_it_can_be_read_by_that_version(release: Path, tmp_path: Path) -> None:
    with tarfile.open(release / "store.tar.gz") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # from 3.11.4 on
        archive.extractall(tmp_path)
    held = json.loads((release / "store.json").read_text())
    assert load_or_create(tmp_path).hex() == held["node"]
    engine = LevelEngine(tmp_path / "store")
    try:
        txn = Txn(engine, {})
        catalog.check_format(txn)
        assert txn.get(keys.FORMAT_KEY) == str(catalog.FORMAT_VERSION).encode(), "that version refuses a later format"
        entries = list(engine.scan(b"", b"\xff" * 64))
        assert Counter(key[:1].decode("latin-1") for key, _ in entries) == held["kinds"]
        tasks = {value: unpack_task(value) for key, value in entries if key[:1] == keys.TASK}
        assert Counter(task.state.name for task in tasks.values()) == held["states"]
        assert all(task.pack() == value for value, task in tasks.items())
        (record,) = catalog.crawls(txn)
        assert check(txn, record.crawl_id, record.spec, None).problems == []
        stored = txn.get(keys.key(keys.CRAWL, record.crawl_id))
        assert stored is not None
        assert_said(unpack(stored), write_fields(record))
    finally:
        engine.close()


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: str(wire["version"]))
def test_the_record_of_a_crawl_is_understood(wire: dict[str, Any]) -> None:
    _, told = decode(*frame(wire["frames"]["14 crawl_tell"]))
    assert isinstance(told, Call)
    record = from_wire(CALLS["crawl_tell"].parse(told.args).record)
    assert record.spec.seeds
