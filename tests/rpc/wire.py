"""What the tests of the task plane share: values, strategies, two links with a wire between them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from dhtcrawl.rpc.tasks.link import LinkLimits, PeerLink
from dhtcrawl.rpc.tasks.messages import (
    Ack,
    Answer,
    Call,
    Code,
    DeleteBackup,
    Message,
    Records,
    RefreshTask,
    Refused,
    Result,
    StoreBackup,
    StoreTask,
)
from dhtcrawl.rpc.tasks.rows import LinkRow, PeerRow, PlaceRow, RecordRow, TombstoneRow
from dhtcrawl.rpc.tasks.signals import Hello

CRAWL = bytes(range(16))
KEY = bytes(range(20))
LINK = LinkRow(KEY, "http://a.example/", 1, "http://a.example/index.html")


def hello(name: int = 1, port: int = 0, **fields: object) -> Hello:
    return Hello(bytes([name]) * 20, 7, "active", ("xor",), port, **fields)  # type: ignore[arg-type]


def links(count: int, padding: int = 0) -> tuple[LinkRow, ...]:
    """Distinct links, each with so much more text."""
    return tuple(
        LinkRow(number.to_bytes(20, "big"), f"http://a.example/{number}{'x' * padding}", 1, "")
        for number in range(count)
    )


def task(count: int = 1, padding: int = 0) -> StoreTask:
    return StoreTask(CRAWL, links(count, padding))


def backup(count: int = 1) -> StoreBackup:
    return StoreBackup(CRAWL, tuple(RecordRow(key, url, 0, "", 0, False, 0, 0, 0, 0) for key, url, *_ in links(count)))


def answer_to(message: Message) -> Answer:
    """What a peer that takes everything says."""
    if isinstance(message, RefreshTask):
        return Records()
    if isinstance(message, Call):
        return Result({})
    assert isinstance(message, StoreTask | StoreBackup | DeleteBackup)
    return Ack.all(Code.ACCEPTED, message.items)


def pair(
    now: float = 0.0, limits: LinkLimits | None = None, windows: tuple[int, ...] | None = None
) -> tuple[PeerLink, PeerLink]:
    """Two links whose bytes the test carries, connected and greeted."""
    says = [hello(number) if windows is None else replace(hello(number), windows=windows) for number in (1, 2)]
    a, b = (PeerLink(each, limits or LinkLimits(), now) for each in says)
    a.connected(now)
    b.connected(now)
    shuttle(a, b, now)
    return a, b


def shuttle(a: PeerLink, b: PeerLink, now: float) -> None:
    """Carry bytes until both are silent."""
    while True:
        there, back = a.take_bytes(), b.take_bytes()
        if not there and not back:
            return
        b.receive(there, now)
        a.receive(back, now)


_small = st.integers(0, 2**31 - 1)
_large = st.integers(0, 2**63 - 1)
_text = st.text(max_size=20)
_key = st.binary(min_size=20, max_size=20) | st.binary(min_size=40, max_size=40)
_id = st.binary(min_size=20, max_size=20)
_crawl = st.binary(min_size=16, max_size=16)
_extra = st.binary(max_size=20)
_url = st.text(min_size=1, max_size=30)
_place = st.none() | st.builds(PlaceRow, _text, _text, _large, _large)
_link = st.builds(LinkRow, _key, _url, _small, _text, _small, st.booleans(), _extra)
_state = st.integers(0, 15)
_record = st.builds(
    RecordRow,
    _key,
    _url,
    _small,
    _text,
    _small,
    st.booleans(),
    _large,
    _state,
    _small,
    _small,
    _text,
    _text,
    _place,
    _extra,
)
_tombstone = st.builds(TombstoneRow, _key, _state, _small, _small, _text, _text, _place, _extra)
_peer = st.builds(PeerRow, _id, st.text(min_size=1, max_size=20), st.integers(1, 65_535))


def _some(rows: st.SearchStrategy[object], least: int = 1) -> st.SearchStrategy[tuple[object, ...]]:
    return st.lists(rows, min_size=least, max_size=4).map(tuple)


@st.composite
def _acks(draw: st.DrawFn) -> Ack:
    peers = draw(_some(_peer))
    codes = bytes(draw(st.lists(st.sampled_from(Code), min_size=1, max_size=6)))
    moved = bytes(draw(st.integers(0, len(peers) - 1)) for code in codes if code == Code.MOVED)
    return Ack(codes, moved, peers, draw(_some(_record, 0)), draw(_text))  # type: ignore[arg-type]


@st.composite
def _refreshes(draw: st.DrawFn) -> RefreshTask:
    first, last = sorted((draw(_id), draw(_id)))
    return RefreshTask(
        draw(_crawl),
        first,
        last,
        draw(st.just(b"") | _key),
        draw(st.integers(1, 300)),
        draw(st.integers(0, 8)),
        draw(st.integers(1, 2**20)),
    )


def _safe(rows: tuple[Any, ...]) -> st.SearchStrategy[bytes]:
    """Task keys as long as those of the rows, in a row."""
    width = len(rows[0].key)
    return st.lists(st.binary(min_size=width, max_size=width), max_size=3).map(b"".join)


messages: st.SearchStrategy[Message] = (
    st.builds(StoreTask, _crawl, _some(_link), _some(_id, 0))
    | _some(_record).flatmap(lambda rows: st.builds(StoreBackup, _crawl, st.just(rows), st.booleans(), _safe(rows)))
    | _some(_tombstone).flatmap(lambda rows: st.builds(DeleteBackup, _crawl, st.just(rows), _safe(rows)))
    | _refreshes()
    | _acks()
    | st.builds(Records, _some(_record, 0), st.just(b"") | _key, st.binary(max_size=4).map(lambda b: b * 8))
    | st.builds(Refused, st.text(min_size=1, max_size=32), _text)
)
