"""Frames and messages: what goes in comes out, and nothing else gets in."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from itertools import pairwise
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dhtcrawl.rpc.tasks.frame import FRAME_BYTES_MAX, HEADER, Decoder, Kind, Malformed, TooLong, pack, unpack
from dhtcrawl.rpc.tasks.messages import (
    ANSWERS,
    MESSAGES,
    Ack,
    Code,
    Message,
    Records,
    RefreshTask,
    StoreBackup,
    StoreTask,
    decode,
    encode,
)
from dhtcrawl.rpc.tasks.rows import PeerRow, PlaceRow, RecordRow, TombstoneRow
from dhtcrawl.rpc.tasks.signals import SIGNALS, VERSION, Credit, Goodbye, Hello, Ping, encode_signal, parse_signal
from rpc.wire import CRAWL, KEY, LINK, backup, hello, links, messages, task


def feed(decoder: Decoder, data: bytes) -> list[tuple[int, bytes]]:
    return [(kind, bytes(body)) for kind, body in decoder.feed(data)]


# Frames


@given(st.lists(st.binary(max_size=300), max_size=12), st.data())
def test_frames_come_out_as_they_went_in_however_the_stream_is_cut(bodies: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(HEADER.pack(len(body) + 1, index) + body for index, body in enumerate(bodies))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    decoder = Decoder()
    pieces = [stream[a:b] for a, b in pairwise([0, *cuts, len(stream)])]
    frames = [frame for piece in pieces for frame in feed(decoder, piece)]
    assert frames == list(enumerate(bodies))
    assert decoder.held_bytes == 0


@given(st.binary(max_size=200), st.integers(1, 50))
def test_any_bytes_are_frames_or_a_fault_and_never_an_exception(data: bytes, size: int) -> None:
    decoder = Decoder(64)
    for at in range(0, len(data), size):
        feed(decoder, data[at : at + size])
        assert decoder.held_bytes <= 4 + 64
        if decoder.fault is not None:
            break


def test_a_gigabyte_announced_is_refused_before_anything_is_kept() -> None:
    decoder = Decoder()
    assert feed(decoder, HEADER.pack(2**30, Kind.STORE_TASK) + b"x" * 1000) == []
    assert "1,073,741,824 bytes announced" in str(decoder.fault)
    assert decoder.held_bytes == 0


@pytest.mark.parametrize("length", [0, FRAME_BYTES_MAX + 1, 2**32 - 1])
@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_length_out_of_bounds_is_refused_however_it_comes(length: int, size: int) -> None:
    stream = length.to_bytes(4, "big") + bytes(10)
    decoder = Decoder()
    for at in range(0, len(stream), size):
        feed(decoder, stream[at : at + size])
        if decoder.fault is not None:
            break
    assert decoder.fault is not None
    assert decoder.held_bytes == 0


def test_the_frames_before_a_refused_one_are_read() -> None:
    decoder = Decoder()
    assert feed(decoder, HEADER.pack(2, 9) + b"a" + bytes(4)) == [(9, b"a")]
    assert decoder.fault is not None


def test_what_is_held_grows_with_what_came_not_with_what_was_announced() -> None:
    tracemalloc.start()
    decoders = [Decoder() for _ in range(100)]
    for decoder in decoders:
        feed(decoder, HEADER.pack(FRAME_BYTES_MAX, Kind.ACK) + bytes(1000))
    assert tracemalloc.get_traced_memory()[0] < 100 * 4000
    tracemalloc.stop()


def test_a_frame_that_comes_byte_by_byte_costs_its_own_length() -> None:
    decoder = Decoder()
    tracemalloc.start()
    list(decoder.feed(HEADER.pack(100_001, 3)))
    frames = [frame for _ in range(100_000) for frame in decoder.feed(b"x")]
    assert tracemalloc.get_traced_memory()[1] < 400_000
    tracemalloc.stop()
    assert [(kind, len(body)) for kind, body in frames] == [(3, 100_000)]


# Bodies


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x93\x01",
        b"\x01",
        msgpack.packb([1]),
        msgpack.packb({"a": 1}) + b"\x00",
        b"\x81\xa1\xff\x01",  # text that is not UTF-8
        b"\x81\x01\x01",  # a key that is a number
        b"\x81\x90\x01",  # a key that is a list
        b"\x81\xa1a" + b"\x91" * 5000 + b"\xc0",
        b"\x81\xa1a" + b"\xdd\xff\xff\xff\xff",
        b"\x81\xa1a" + b"\xdf\xff\xff\xff\xff",
        b"\x81\xa1a" + b"\xdb\xff\xff\xff\xff",
        b"\x81\xa1a" + b"\xc9\x00\x00\x00\x05\x01abcde",
    ],
)
def test_a_body_that_is_not_one_map_is_malformed(body: bytes) -> None:
    with pytest.raises(Malformed):
        unpack(body)


def test_lists_within_lists_do_not_take_the_memory_they_announce() -> None:
    # A thousand lists in one another, each of as many elements as the frame has bytes.
    body = b"\x81\xa1a" + b"\xdd\x00\x0f\x00\x00" * 1000 + b"\xc0" * (FRAME_BYTES_MAX - 5010)
    tracemalloc.start()
    with pytest.raises(Malformed):
        unpack(body)
    assert tracemalloc.get_traced_memory()[1] < FRAME_BYTES_MAX
    tracemalloc.stop()


# Messages


@given(messages, st.integers(0, 2**32 - 1))
def test_a_message_comes_out_as_it_went_in(message: Message, number: int) -> None:
    ((kind, body),) = Decoder().feed(encode(number, message))
    assert decode(kind, body) == (number, message)


@settings(max_examples=300)
@given(messages, st.data())
def test_a_message_with_a_part_replaced_is_a_message_or_malformed(message: Message, data: st.DataObject) -> None:
    junk: st.SearchStrategy[Any] = (
        st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary()
    )
    junk = st.recursive(junk, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=3))
    fields: Any = unpack(encode(1, message)[5:])
    place: Any = data.draw(st.sampled_from(sorted(fields)))
    fields[place] = data.draw(junk)
    if data.draw(st.booleans()):
        del fields[data.draw(st.sampled_from(sorted(fields)))]
    frame = pack(message.kind, fields)
    try:
        number, again = decode(message.kind, frame[5:])
    except Malformed:
        return
    assert again is not None
    assert decode(message.kind, encode(number, again)[5:]) == (number, again)


@given(st.sampled_from(sorted(MESSAGES | SIGNALS)), st.binary(max_size=300))
def test_a_body_of_any_bytes_is_a_message_or_malformed(kind: int, body: bytes) -> None:
    try:
        if kind in SIGNALS:
            parse_signal(kind, unpack(body))
        else:
            decode(kind, body)
    except Malformed:
        return


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("key", b"short"),
        ("key", "x" * 20),
        ("url", ""),
        ("url", "x" * 8193),
        ("url", b"http://a.example/"),
        ("depth", -1),
        ("depth", 2**31),
        ("depth", True),
        ("depth", 1.0),
        ("referrer", "x" * 8193),
        ("referrer", None),
        ("hops", "1"),
        ("seed", 1),
        ("extra", None),
        ("extra", bytes(1025)),
    ],
)
def test_a_link_out_of_bounds_is_malformed_in_both_directions(field: str, value: Any) -> None:
    bad = LINK._replace(**{field: value})
    with pytest.raises(Malformed):
        StoreTask(CRAWL, (LINK, bad))
    with pytest.raises(Malformed, match="link 1"):
        decode(Kind.STORE_TASK, pack(Kind.STORE_TASK, {"id": 1, "crawl": CRAWL, "links": [LINK, bad]})[5:])


@pytest.mark.parametrize("rows", [(), links(301), [LINK], None, b"", {}])
def test_a_frame_has_one_to_300_links(rows: Any) -> None:
    with pytest.raises(Malformed):
        StoreTask(CRAWL, rows)


@pytest.mark.parametrize("rows", [5, "links", {"a": 1}, [1], [[1, 2]], [[*LINK, 1]], ["1234567"]])
def test_links_that_are_no_links_are_malformed(rows: Any) -> None:
    with pytest.raises(Malformed):
        decode(Kind.STORE_TASK, pack(Kind.STORE_TASK, {"id": 1, "crawl": CRAWL, "links": rows})[5:])


def test_keys_have_20_bytes_or_40() -> None:
    StoreTask(CRAWL, (LINK, LINK._replace(key=KEY * 2)))
    for width in (0, 19, 21, 39, 41):
        with pytest.raises(Malformed):
            StoreTask(CRAWL, (LINK._replace(key=bytes(width)),))


@pytest.mark.parametrize("safe", [None, "x", [KEY], KEY[:19], KEY * 301, bytes(21)])
def test_safe_tasks_are_told_by_up_to_300_keys_as_long_as_those_beside_them(safe: Any) -> None:
    whole = backup()
    end = TombstoneRow(KEY, 4, 0, 0)
    assert StoreBackup(CRAWL, whole.records, safe=KEY * 300).safe == KEY * 300
    with pytest.raises(Malformed, match="safe"):
        StoreBackup(CRAWL, whole.records, safe=safe)
    fields = {"id": 1, "crawl": CRAWL, "tombstones": [end], "safe": safe}
    with pytest.raises(Malformed, match="safe"):
        decode(Kind.DELETE_BACKUP, pack(Kind.DELETE_BACKUP, fields)[5:])


@pytest.mark.parametrize("number", [None, -1, 2**32, True, "1", 1.0])
def test_a_message_without_a_number_is_malformed(number: Any) -> None:
    with pytest.raises(Malformed, match="id"):
        decode(Kind.REFUSED, pack(Kind.REFUSED, {"id": number, "reason": "x"})[5:])


def test_fields_that_we_do_not_know_are_ignored() -> None:
    body = pack(Kind.ACK, {"id": 5, "codes": b"\0", "new": [1, {"a": 2}]})[5:]
    assert decode(Kind.ACK, body) == (5, Ack(b"\0"))
    fields: Any = unpack(encode_signal(hello())[5:])
    assert parse_signal(Kind.HELLO, {**fields, "colour": "blue"}) == hello()


def test_what_later_versions_add_to_a_row_is_kept() -> None:
    row = LINK._replace(extra=msgpack.packb({"priority": 3}))
    assert decode(Kind.STORE_TASK, encode(1, StoreTask(CRAWL, (row,)))[5:]) == (1, StoreTask(CRAWL, (row,)))


def test_a_code_of_a_later_version_reads_as_failed() -> None:
    _, ack = decode(Kind.ACK, pack(Kind.ACK, {"id": 1, "codes": b"\x00\x01\x07\xff"})[5:])
    assert ack == Ack(bytes([Code.ACCEPTED, Code.KNOWN, Code.FAILED, Code.FAILED]))


def test_an_ack_says_where_each_moved_item_went() -> None:
    peers = (PeerRow(KEY, "10.0.0.1", 1), PeerRow(KEY, "10.0.0.2", 2))
    ack = Ack(bytes([Code.MOVED, Code.KNOWN, Code.MOVED]), b"\x01\x00", peers)
    assert ack.moved_to() == {0: peers[1], 2: peers[0]}


@pytest.mark.parametrize("moved", [b"", b"\x00", b"\x00\x02", b"\x00\x00\x00"])
def test_an_ack_names_a_peer_for_each_moved_item(moved: bytes) -> None:
    peers = (PeerRow(KEY, "10.0.0.1", 1), PeerRow(KEY, "10.0.0.2", 2))
    with pytest.raises(Malformed):
        Ack(bytes([Code.MOVED, Code.MOVED]), moved, peers)


def test_the_place_of_a_body_arrives_under_its_names() -> None:
    record = RecordRow(KEY, "http://a.example/", 0, "", 0, True, 1, 4, 0, 1, "", "", PlaceRow("n", "f", 5, 6))
    _, message = decode(Kind.RECORDS, encode(1, Records((record,)))[5:])
    assert isinstance(message, Records)
    assert message.records[0].place is not None
    assert message.records[0].place.offset == 5


def test_a_range_runs_forward() -> None:
    with pytest.raises(Malformed):
        RefreshTask(CRAWL, b"\1" * 20, b"\0" * 20)


def test_300_links_of_full_length_fit_into_no_frame() -> None:
    with pytest.raises(TooLong):
        encode(1, task(300, padding=8000))


def test_text_that_is_not_unicode_is_refused_when_sent_and_the_next_message_is_whole() -> None:
    with pytest.raises(Malformed):
        encode(1, StoreTask(CRAWL, (LINK._replace(url="http://a.example/\ud800"),)))
    assert decode(Kind.STORE_TASK, encode(2, task())[5:]) == (2, task())


def test_every_request_has_an_answer_and_every_kind_its_class() -> None:
    assert {kind for kind in Kind if 0x10 <= kind < 0x40} == set(ANSWERS)
    assert set(Kind) == MESSAGES.keys() | SIGNALS.keys()


# Signals


@pytest.mark.parametrize(
    "bad",
    [
        {"node_id": b"short"},
        {"incarnation": -1},
        {"state": ""},
        {"state": "x" * 33},
        {"features": ["a"] * 65},
        {"features": [1]},
        {"port": 65_536},
        {"version_min": 0},
        {"version_min": VERSION + 1},
        {"windows": [2**20, 2**20]},
        {"windows": [2**20, 2**20, 2**20 - 1]},
        {"magic": "bittorrent"},
    ],
)
def test_a_hello_out_of_bounds_is_malformed(bad: dict[str, Any]) -> None:
    fields: Any = unpack(encode_signal(hello())[5:])
    with pytest.raises(Malformed):
        parse_signal(Kind.HELLO, {**fields, **bad})


@pytest.mark.parametrize("signal", [hello(), Goodbye("idle", "since noon"), Credit((1, 2, 3)), Ping(9)])
def test_a_signal_comes_out_as_it_went_in(signal: Any) -> None:
    ((kind, body),) = Decoder().feed(encode_signal(signal))
    assert parse_signal(kind, unpack(body)) == signal


def test_the_highest_version_that_both_speak_is_spoken() -> None:
    def speaks(low: int, high: int) -> Hello:
        return replace(hello(), version_min=low, version_max=high)

    assert speaks(1, 3).version_with(speaks(2, 5)) == 3
    assert speaks(2, 5).version_with(speaks(1, 3)) == 3
    assert speaks(1, 1).version_with(speaks(2, 5)) is None
