"""docs/protocol-tasks.md says what the code does: its examples are our bytes, its tables our numbers."""

from __future__ import annotations

import dataclasses
import re
from hashlib import blake2b
from pathlib import Path

import msgpack

from dhtcrawl.rpc.discovery import pending, rtt, table, values, verify
from dhtcrawl.rpc.discovery.datagram import DATAGRAM_BYTES_MAX, RECEIVED_BYTES_MAX, VALUE_BYTES_MAX, encode_request
from dhtcrawl.rpc.discovery.protocol import RoutingProtocol
from dhtcrawl.rpc.peers import connectionless
from dhtcrawl.rpc.tasks.frame import FRAME_BYTES_MAX, GREETING_BYTES_MAX, LIST_ITEMS_MAX, Decoder, Kind
from dhtcrawl.rpc.tasks.handshakes import MET_SOURCE, NETWORK, SOURCE, STRANGERS
from dhtcrawl.rpc.tasks.lanes import COST_BYTES_MIN
from dhtcrawl.rpc.tasks.link import LinkLimits, LinkState
from dhtcrawl.rpc.tasks.messages import MESSAGES, Ack, Code, StoreTask, decode, encode
from dhtcrawl.rpc.tasks.rows import ITEMS_MAX, LinkRow, PeerRow, PlaceRow, RecordRow, TombstoneRow
from dhtcrawl.rpc.tasks.signals import SIGNALS, Why
from dhtcrawl.rpc.tasks.tls_stream import HANDSHAKE_BYTES_MAX
from dhtcrawl.rpc.tasks.transport import TransportLimits
from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.memory import MemoryEngine
from dhtcrawl.storage.store.ranges import FIRST, LAST, Digests, add_digests, record_hash
from dhtcrawl.storage.store.records import Additions, Place, State, Task
from dhtcrawl.storage.store.replicas import TaskReplica
from dhtcrawl.storage.store.txn import Txn
from rpc.wire import CRAWL, KEY

LATER_KEY = b"\xff" * 20

PAGE = (Path(__file__).parents[2] / "docs" / "protocol-tasks.md").read_text("utf-8")


def examples() -> list[bytes]:
    """The bytes of the hex blocks: what stands before two spaces on each line, but for placeholders."""
    blocks = re.findall(r"^```hex\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    lines = [[re.sub(r"<.*>|\.\.\.", "", line.split("  ")[0]) for line in block.splitlines()] for block in blocks]
    return [bytes.fromhex("".join(block)) for block in lines]


def test_the_examples_are_our_bytes_both_ways() -> None:
    request, answer, _ = examples()
    task = StoreTask(CRAWL, (LinkRow(KEY, "http://a.example/", 0, "", 0, True),))
    for frame, message in ((request, task), (answer, Ack.all(Code.ACCEPTED, 1))):
        assert encode(7, message) == frame
        ((kind, body),) = Decoder().feed(frame)
        assert decode(kind, body) == (7, message)


def test_links_go_in_the_datagram_of_the_example() -> None:
    frame, _, datagram = examples()
    message_id, asker, asked = bytes(20), bytes([1]) * 20, bytes([2]) * 20
    sent = encode_request(message_id, connectionless.RPC, (asker, asked, frame[4:]))
    assert sent == datagram[:1] + message_id + datagram[1:] + frame[6:], "the example has two bytes of the frame"
    longest = encode_request(message_id, connectionless.RPC, (asker, asked, bytes(connectionless.FRAME_BYTES_MAX)))
    assert len(longest) == DATAGRAM_BYTES_MAX
    assert f"at most {connectionless.FRAME_BYTES_MAX:,} bytes" in PAGE
    assert f"| requests without a connection that are being answered | {connectionless.OPEN_MAX:,} |" in PAGE
    assert f"asked over connections for {connectionless.SHUNNED_S:g} s" in PAGE
    waits = [connectionless.TIMEOUT_S * (2**n - 1) for n in range(1, connectionless.TRIES + 1)]
    assert "after {:g} and {:g} s again, under one message id, and gives up after {:g} s".format(
        *waits
    ) in PAGE.replace("\n ", "")


def test_records_are_compared_by_the_hashes_and_the_sums_that_the_page_describes() -> None:
    waits = Task("http://a.example/", 0, 0, "", seed=True)
    done = waits._replace(
        state=State.DONE, gen=1, place=Place("ab" * 20, "a-1", 5, 6), added=Additions(("cd" * 20,), b"tail")
    )
    described = [
        [KEY, 0, 0, 0, 0, None, True, ""],
        [LATER_KEY, 1, 4, 0, 0, ["ab" * 20, "a-1", 5, 6], True, "", ["cd" * 20], b"tail"],
    ]
    hashes = [blake2b(msgpack.packb(fields), digest_size=8).digest() for fields in described]
    assert hashes[0].hex() in PAGE
    numbers = [int.from_bytes(each, "big") for each in hashes]
    assert [record_hash(TaskReplica(KEY, waits)), record_hash(TaskReplica(LATER_KEY, done))] == numbers
    store = MemoryEngine()
    store.write({keys.TASK + CRAWL + KEY: waits.pack(), keys.TASK + CRAWL + LATER_KEY: done.pack()}, sync=True)
    digests = Digests()
    add_digests(Txn(store, {}), CRAWL, FIRST, LAST, 0, digests, lambda _: True)
    assert "each the XOR" not in PAGE
    assert digests.pack(0) == (sum(numbers) % 2**64).to_bytes(8, "big")


def test_the_table_of_kinds_is_complete_and_names_every_field() -> None:
    rows = re.findall(r"^\| 0x([0-9a-f]{2}) \| (\w+) \|(.*)$", PAGE, re.MULTILINE)
    assert {int(number, 16): name for number, name, _ in rows} == {kind.value: kind.name for kind in Kind}
    for number, _, rest in rows:
        kind = int(number, 16)
        fields = dataclasses.fields(MESSAGES[kind] if kind in MESSAGES else SIGNALS[kind])
        assert {field.name for field in fields} <= set(re.findall(r"`(\w+)`", rest))


def test_the_table_of_rows_has_their_fields_in_order() -> None:
    rows = dict(re.findall(r"^\| (link|record|tombstone|place|peer) \| (.*) \|$", PAGE, re.MULTILINE))
    for name, kind in (
        ("link", LinkRow),
        ("record", RecordRow),
        ("tombstone", TombstoneRow),
        ("place", PlaceRow),
        ("peer", PeerRow),
    ):
        plain = re.sub(r" ?\([^)]*\)|nil, or: ", "", rows[name])
        assert tuple(plain.replace("node id", "node_id").split(", ")) == kind._fields


def test_every_code_reason_and_state_is_explained() -> None:
    codes = re.findall(r"^\| (\d) \| (\w+) \|", PAGE, re.MULTILINE)
    assert {int(number): name for number, name in codes} == {code.value: code.name for code in Code}
    (reasons,) = re.findall(r"\*\*Reasons\.\*\* (.*?); others", PAGE, re.DOTALL)
    assert set(re.findall(r"`(\w+)`", reasons)) == set(Why)
    assert all(re.search(rf"^{state.name} ", PAGE, re.MULTILINE) for state in LinkState)


def test_the_numbers_are_those_of_the_code() -> None:
    limits, pool = LinkLimits(), TransportLimits()
    assert (FRAME_BYTES_MAX, GREETING_BYTES_MAX, LIST_ITEMS_MAX, COST_BYTES_MIN) == (2**20, 4096, 512, 1024)
    said = [
        f"| connections | {pool.connections_max} |",
        f"need a new one wait up to {pool.room_s:g} s",
        f"| accepted connections without a HELLO | {pool.greeting_max} |",
        f"| rows in a frame | {ITEMS_MAX} |",
        f"| unanswered requests of ours | {limits.in_flight_max:,} a connection |",
        f"| handshake | {limits.handshake_s:g} s |",
        f"| answer | {pool.request_s:g} s",
        f"| unanswered in a row | {limits.timeouts_max} |",
        f"After {limits.keepalive_s:g} s of silence PING; after {limits.silent_s:g} s",
        f"for {limits.idle_s:g} s is given up",
        f"after {limits.drain_s:g} s it ends anyway",
        f"At most {pool.greeting_max} that others began are under way at once",
        f"for at most {limits.handshake_s:g} s each",
        f"{HANDSHAKE_BYTES_MAX // 1024} KiB from the other end",
        *(f"| {it.burst}, {it.per_s:g} |" for it in (SOURCE, NETWORK, STRANGERS, MET_SOURCE)),
    ]
    assert [text for text in said if text not in PAGE] == []


def test_the_routing_page_has_the_lengths_and_the_bounds_of_the_code() -> None:
    page = " ".join((Path(__file__).parents[2] / "docs" / "protocol-routing.md").read_text("utf-8").split())
    bounds = (
        f"A datagram we send has at most {DATAGRAM_BYTES_MAX:,} bytes. One we read may have {RECEIVED_BYTES_MAX:,},",
        f"of at most {VALUE_BYTES_MAX:,} bytes packed",
        f"{pending.IN_FLIGHT_MAX:,} calls in flight, {rtt.ADDRESSES_MAX:,} round trips and verified addresses,",
        f"{verify.VERIFYING_MAX} pings, {verify.VERIFYING_STRANGERS_MAX} of them to strangers "
        f"({verify.VERIFYING_HOST_MAX} to one IP address, {verify.VERIFYING_NETWORK_MAX} to one network), "
        f"{table.SHUNNED_MAX:,} silent addresses,",
        f"{values.VALUES_MAX:,} values of {values.VALUE_BYTES_TOTAL >> 20} MiB in all",
        f"at most {values.SENDER_VALUES_MAX:,} values of {values.SENDER_BYTES_MAX >> 20} MiB here",
    )
    assert [bound for bound in bounds if bound not in page] == []
    asked = {"here": (), "stun": (), "ping": (KEY,), "find_node": (KEY, KEY), "find_value": (KEY, KEY)}
    said = re.findall(r"\| `(\w+)` \|[^|]*\|[^|]*\| (\d+)[; ]", page)
    lengths = {name: len(encode_request(KEY, name, args)) for name, args in asked.items()}
    assert {name: int(length) for name, length in said} == lengths | {"store": DATAGRAM_BYTES_MAX - VALUE_BYTES_MAX}
    methods = re.findall(r"`RoutingProtocol\.(\w+)`", page)
    assert methods
    assert [name for name in methods if not hasattr(RoutingProtocol, name)] == []
