"""Archive records: written, read back, and judged by other people's readers."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import tracemalloc
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from fastwarc.warc import ArchiveIterator
from hypothesis import example, given
from hypothesis import strategies as st
from storage.warcs import DATE, HEAD, INFO_ID, NAME, archive, begin, item, scan_file, tool

from dhtcrawl.errors import StorageError, StorageFull
from dhtcrawl.storage.archive.item import ArchiveItem
from dhtcrawl.storage.archive.warc import Written, append_exchange, warcinfo
from dhtcrawl.storage.archive.warcread import WarcRecord, read_beginning, read_record
from dhtcrawl.storage.archive.warcscan import GzipMember, scan
from dhtcrawl.storage.store.files import MemoryDirectory

HEADS = st.one_of(
    st.binary(max_size=200),
    st.lists(st.sampled_from([b"HTTP/1.1 200 OK", b"\r\n", b"\n", b"\r", b" ", b"\t", b"A: b", b"\x00\xff"])).map(
        b"".join
    ),
)


def sha1_of(data: bytes) -> str:
    return "sha1:" + base64.b32encode(hashlib.sha1(data).digest()).decode()


def members(data: bytes) -> list[GzipMember]:
    return list(scan(io.BytesIO(data)))


def problems(data: bytes) -> list[str]:
    return [problem for member in members(data) for problem in member.problems]


def record_of(directory: MemoryDirectory, written: Written) -> WarcRecord:
    return read_record(directory.read(NAME, written.offset, written.length))


# Writing and reading back


def test_a_response_comes_back_with_its_head_payload_and_fields() -> None:
    directory, [written] = archive(item(truncated="length"))
    record = record_of(directory, written)
    assert (record.type, record.head, record.payload) == ("response", HEAD, b"<p>hello</p>")
    assert record.headers == {
        "warc-type": "response",
        "warc-record-id": f"<{item().response_id}>",
        "warc-warcinfo-id": f"<{INFO_ID}>",
        "warc-date": "2026-01-31T12:00:05Z",
        "warc-target-uri": "http://example.org/",
        "warc-ip-address": "192.0.2.1",
        "warc-block-digest": sha1_of(HEAD + b"<p>hello</p>"),
        "warc-payload-digest": sha1_of(b"<p>hello</p>"),
        "warc-truncated": "length",
        "content-type": "application/http;msgtype=response",
        "content-length": str(len(HEAD) + 12),
    }


def test_the_request_follows_its_response_and_names_it() -> None:
    directory, [written] = archive(item())
    data = directory.read(NAME, written.offset + written.length, written.request_length)
    record = read_record(data)
    assert (record.type, record.head, record.payload) == ("request", item().request_head, b"")
    assert record.headers["warc-concurrent-to"] == f"<{item().response_id}>"


def test_a_warcinfo_value_cannot_break_out_of_its_line() -> None:
    file = MemoryDirectory().open(NAME, 0)
    offset = warcinfo(file, filename=NAME, date=DATE, record_id=INFO_ID, fields={"software": "a\r\nrobots: ignore"})
    assert offset == 0
    directory = MemoryDirectory()
    begin(directory.open(NAME, 0))
    record = read_record(bytes(directory.files[NAME]))
    assert record.payload == b"software: dhtcrawl\r\nrobots: obey\r\n"


@given(head=HEADS, request=HEADS, body=st.binary(max_size=3000), spooled=st.booleans())
@example(head=b"", request=b"", body=b"\r\n\r\n", spooled=False)
@example(head=b"\0\n\t\n", request=b"\0\n\t\n", body=b"\n", spooled=False)
@example(head=HEAD, request=b"GET / HTTP/1.1\r\n\r\n", body=b"", spooled=True)
def test_whatever_a_server_sent_comes_back(head: bytes, request: bytes, body: bytes, spooled: bool) -> None:
    directory, [written] = archive(item(body=body, head=head, request=request, spooled=spooled))
    assert record_of(directory, written).payload == body
    assert problems(bytes(directory.files[NAME])) == []


@given(body=st.binary(max_size=5000))
def test_a_spooled_body_gives_the_same_record_as_one_in_memory(body: bytes) -> None:
    (_, [here]), (_, [there]) = archive(item(body=body)), archive(item(body=body, spooled=True))
    assert here.payload_digest == there.payload_digest


def test_the_same_exchange_gives_the_same_bytes() -> None:
    assert archive(item())[0].files == archive(item())[0].files


def test_a_large_body_passes_through_in_constant_memory() -> None:
    class Sink:
        name = NAME
        size = 0

        def append(self, data: bytes) -> int:
            self.size += len(data)
            return self.size - len(data)

        def truncate(self, size: int) -> None: ...
        def sync(self) -> None: ...
        def close(self) -> None: ...

    piece = bytes(range(256)) * 256
    large = item(spooled=True)._replace(
        body_size=512 * len(piece), chunks=lambda: (piece for _ in range(512))
    )  # 32 MiB
    tracemalloc.start()
    append_exchange(Sink(), large, INFO_ID)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20


# Failing


class FillingUp:
    """An append file on a disk that has room for a few appends."""

    def __init__(self, appends: int) -> None:
        self.name = NAME
        self._file = MemoryDirectory().open(NAME, 0)
        self._left = appends

    @property
    def size(self) -> int:
        return self._file.size

    def append(self, data: bytes) -> int:
        if not self._left:
            raise StorageFull("no space left")
        self._left -= 1
        return self._file.append(data)

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def sync(self) -> None: ...
    def close(self) -> None: ...


@pytest.mark.parametrize("appends", range(1, 3))
def test_a_spooled_exchange_that_fills_the_disk_leaves_nothing(appends: int) -> None:
    file = FillingUp(appends)
    begin(file)
    before = file.size
    with pytest.raises(StorageFull):
        append_exchange(file, item(body=b"x" * 100_000, spooled=True), INFO_ID)
    assert file.size == before


def failing(chunks: Iterable[bytes]) -> ArchiveItem:
    return item(body=b"12345", spooled=True)._replace(chunks=lambda: chunks)


def torn() -> Iterator[bytes]:
    yield b"123"
    raise OSError(5, "Input/output error")


@pytest.mark.parametrize("chunks", [torn(), [b"123"], [b"123456"]], ids=["unreadable", "short", "long"])
def test_a_spool_that_cannot_be_read_back_leaves_nothing(chunks: Iterable[bytes]) -> None:
    file = MemoryDirectory().open(NAME, 0)
    with pytest.raises(StorageError, match=r"body of http://example\.org/"):
        append_exchange(file, failing(chunks), INFO_ID)
    assert file.size == 0


def test_a_spool_that_shrinks_between_its_two_readings_leaves_nothing() -> None:
    file = MemoryDirectory().open(NAME, 0)
    readings = iter([[b"12345"], [b"1"]])
    shrinking = item(body=b"12345", spooled=True)._replace(chunks=lambda: next(readings))
    with pytest.raises(StorageError):
        append_exchange(file, shrinking, INFO_ID)
    assert file.size == 0


def test_a_record_that_cannot_be_read_names_file_and_offset() -> None:
    directory, [written] = archive(item())
    assert read_record(directory.read(NAME, written.offset, written.length)).payload == b"<p>hello</p>"
    for offset, length in (
        (written.offset + 1, written.length),
        (written.offset, written.length - 1),
        (written.offset, written.length + 1),
        (10_000, 10),
    ):
        with pytest.raises(StorageError, match=rf"a\.warc\.gz at {offset} is damaged"):
            read_record(directory.read(NAME, offset, length), where=f"{NAME} at {offset}")


@given(body=st.binary(max_size=300), cut=st.integers(0, 400), pieces=st.integers(1, 400))
def test_the_beginning_of_a_record_is_that_of_its_payload(body: bytes, cut: int, pieces: int) -> None:
    directory, [written] = archive(item(body=body))
    data = directory.read(NAME, written.offset, written.length)
    whole = read_record(data)
    found = read_beginning([data[at : at + pieces] for at in range(0, len(data), pieces)], cut)
    assert found == whole._replace(payload=body[:cut])


def test_the_beginning_of_a_large_record_takes_little_memory() -> None:
    file = (directory := MemoryDirectory()).open(NAME, 0)
    piece = bytes(1 << 20)
    large = item(spooled=True)._replace(body_size=64 << 20, chunks=lambda: (piece for _ in range(64)))
    written = append_exchange(file, large, INFO_ID)
    data = directory.read(NAME, written.offset, written.length)
    tracemalloc.start()
    found = read_beginning([data], 1000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (found.payload, found.headers["content-length"]) == (bytes(1000), str(len(HEAD) + (64 << 20)))
    assert peak < 8 << 20


@given(st.binary(max_size=300))
def test_reading_survives_any_bytes(data: bytes) -> None:
    for raw in (data, gzip.compress(data), gzip.compress(b"WARC/1.0\r\n" + data + b"\r\n\r\n")):
        with pytest.raises(StorageError):
            read_record(raw)
        with pytest.raises(StorageError):
            read_beginning([raw], 10)
        assert not raw or problems(raw)


def test_a_line_beyond_ascii_that_is_not_blank_stays_in_its_head() -> None:
    head = b"HTTP/1.1 200 OK\r\n\xc3\xa9\r\n\xe9\r\nA: b\r\n\r\n"
    directory, [written] = archive(item(head=head))
    assert record_of(directory, written).head == head


# Other people's readers

# White space to those who decode a head line by line as UTF-8, or else as Latin-1.
WHITE_LINES = (b"\xc2\xa0", b"\xa0", b"\x85\x1c", b"\x1f\x0b", b"\xe3\x80\x80 \xe2\x80\xa8", b"A: b\r\n\xc2\x85")


@pytest.fixture
def varied(tmp_path: Path) -> Path:
    chunked = HEAD.replace(b"Server", b"Transfer-Encoding: chunked\r\nServer")
    directory, _ = archive(
        item(),
        item("http://example.org/empty", b"", number=2),
        item("http://[2001:db8::1]:8080/?b&a", b"x" * 300_000, number=3, spooled=True, remote_ip="2001:db8::1"),
        item("http://example.org/cut", b"half", number=4, truncated="disconnect"),
        item(
            "http://example.org/gz", gzip.compress(b"abc"), number=5, head=HEAD[:-2] + b"Content-Encoding: gzip\r\n\r\n"
        ),
        item(
            "http://example.org/odd", b"\r\n\r\nWARC/1.0\r\n\x1f\x8b\x08", number=6, head=b"HTTP/1.1 404 \xe9\r\n\r\n"
        ),
        item("http://example.org/unchunked", b"plain", number=7, head=chunked),
        item("http://example.org/gap", b"body", number=8, head=b"HTTP/1.1 200 OK\r\n \r\nA: b\r\n\r\n"),
        *(
            item("http://example.org/white", b"body", number=9 + number, head=b"HTTP/1.1 200 OK\r\n%b\r\n\r\n" % line)
            for number, line in enumerate(WHITE_LINES)
        ),
    )
    path = tmp_path / NAME
    path.write_bytes(directory.files[NAME])
    return path


def test_warcio_and_warcvalid_find_nothing_wrong(varied: Path) -> None:
    tool("warcio", "check", varied)
    tool("warcvalid", varied)


def test_fastwarc_confirms_every_digest(varied: Path) -> None:
    with varied.open("rb") as stream:
        blocks = [record.verify_block_digest() for record in ArchiveIterator(stream, parse_http=False)]
    with varied.open("rb") as stream:
        payloads = [
            record.verify_payload_digest()
            for record in ArchiveIterator(stream)
            if record.headers.get("WARC-Payload-Digest")
        ]
    assert blocks == [True] * (17 + 2 * len(WHITE_LINES))
    assert payloads == [True] * (8 + len(WHITE_LINES))


def test_scan_sees_each_record_as_a_member_of_its_own(varied: Path) -> None:
    found = scan_file(varied)
    assert [member.problems for member in found] == [[]] * (17 + 2 * len(WHITE_LINES))
    assert [member.type for member in found] == ["warcinfo", *["response", "request"] * (8 + len(WHITE_LINES))]
    ends = [member.offset + member.length for member in found]
    assert [member.offset for member in found[1:]] == ends[:-1]
    assert ends[-1] == varied.stat().st_size


# Damage


@pytest.fixture
def three() -> tuple[bytes, list[Written]]:
    directory, written = archive(*[item(f"http://example.org/{n}", b"body %d " % n * 50, number=n) for n in (1, 2, 3)])
    return bytes(directory.files[NAME]), written


@pytest.mark.parametrize("cut", [1, 7, 8, 9, 100, 200])
def test_a_file_cut_in_its_last_member_is_told(three: tuple[bytes, list[Written]], cut: int) -> None:
    last = members(three[0][:-cut])[-1]
    assert last.problems == ["unreadable: cut off, the file ends inside the member"]
    assert last.offset == three[1][2].offset + three[1][2].length


def test_a_flipped_bit_in_a_members_data_is_told_and_the_rest_is_still_read(three: tuple[bytes, list[Written]]) -> None:
    data, (_, second, third) = three
    end = second.offset + second.length
    # Left out: the gzip header, which says nothing about the content, and the
    # byte before the trailer, whose last bits are padding.
    for at in {*range(second.offset + 10, end)} - {end - 9}:
        broken = bytearray(data)
        broken[at] ^= 0x10
        found = members(bytes(broken))
        assert [member.offset for member in found if member.problems] == [second.offset]
        assert third.offset in [member.offset for member in found]


def test_garbage_between_members_is_told_and_skipped(three: tuple[bytes, list[Written]]) -> None:
    data, (_, second, _) = three
    for garbage in (b"\x00", b"\x1f\x8b\x08", b"\x1f\x8b\x08" * 30_000, gzip.compress(b"no record")):
        found = members(data[: second.offset] + garbage + data[second.offset :])
        assert [(m.offset, m.length) for m in found if m.problems] == [(second.offset, len(garbage))]
        assert len(found) == 8


class _Counting(io.BytesIO):
    """A file that counts what is read of it."""

    bytes_read = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.bytes_read += len(data)
        return data


def test_where_a_member_seems_to_begin_at_every_third_byte_each_is_read_about_once() -> None:
    """A chunk was read for each of them: whoever makes a file could have it take days."""
    garbage = b"\x1f\x8b\x08" * 30_000
    file = _Counting(garbage)
    (member,) = scan(file)
    assert (member.offset, member.length) == (0, len(garbage))
    assert file.bytes_read < 4 * len(garbage)


@pytest.mark.parametrize("length", range(64 * 1024 - 1, 64 * 1024 + 3))
def test_a_member_after_garbage_is_found_across_two_reads(three: tuple[bytes, list[Written]], length: int) -> None:
    data, (_, second, _) = three
    found = members(data[: second.offset] + bytes(length) + data[second.offset :])
    assert [(m.offset, m.length) for m in found if m.problems] == [(second.offset, length)]


def test_a_record_may_end_across_two_pieces() -> None:
    directory, [written] = archive(item(body=b""))
    head = len(gzip.decompress(directory.read(NAME, written.offset, written.length)))
    for size in range(64 * 1024 - head - 8, 64 * 1024 - head + 8):
        directory, _ = archive(item(body=b"x" * size))
        assert problems(bytes(directory.files[NAME])) == []


def repacked(three: tuple[bytes, list[Written]], old: bytes, new: bytes) -> list[str]:
    """The problems of the second response after a change to its record."""
    data, (_, second, _) = three
    raw = gzip.decompress(data[second.offset : second.offset + second.length])
    assert old in raw
    member = gzip.compress(raw.replace(old, new))
    return problems(data[: second.offset] + member + data[second.offset + second.length :])


def test_a_changed_payload_fails_both_digests(three: tuple[bytes, list[Written]]) -> None:
    found = repacked(three, b"body 2 body", b"body X body")
    assert [problem.split(":")[0] for problem in found] == ["block digest mismatch", "payload digest mismatch"]


def test_a_changed_http_head_fails_the_block_digest_only(three: tuple[bytes, list[Written]]) -> None:
    assert [problem.split(":")[0] for problem in repacked(three, b"nginx", b"apach")] == ["block digest mismatch"]


@pytest.mark.parametrize(
    ("length", "told"),
    [
        (b"423", "Content-Length is wrong: 5 bytes after the block instead of 4"),
        (b"425", "Content-Length is wrong: 3 bytes after the block instead of 4"),
        (b"999999", "Content-Length is wrong: the block is 999571 bytes shorter"),
        (b"-1", "Content-Length is wrong: '-1'"),
        (b"9" * 40, f"Content-Length is wrong: '{'9' * 40}'"),
    ],
)
def test_a_wrong_content_length_is_told(three: tuple[bytes, list[Written]], length: bytes, told: str) -> None:
    assert told in repacked(three, b"Content-Length: 424", b"Content-Length: " + length)


def test_two_records_in_one_member_are_told(three: tuple[bytes, list[Written]]) -> None:
    data, (first, _, _) = three
    start, end = first.offset, first.offset + first.length + first.request_length
    both = gzip.compress(gzip.decompress(data[start:end]))
    assert problems(data[:start] + both + data[end:]) == ["more than one record in the member"]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (b"WARC/1.0", b"WARC/7.0", "not a WARC record: it begins with b'WARC/7.0'"),
        (b"WARC-Date:", b"WARC-Dato:", "record header warc-date is missing"),
        (b"WARC-Type: response", b"WARC-Type response", "malformed record header b'WARC-Type response'"),
        (b"WARC-Date:", b"WARC-Type: x\r\nWARC-Date:", "record header warc-type is there twice"),
    ],
)
def test_a_malformed_record_head_is_told(three: tuple[bytes, list[Written]], old: bytes, new: bytes, told: str) -> None:
    assert told in repacked(three, old, new)


def test_a_member_that_inflates_without_end_is_scanned_in_constant_memory() -> None:
    bomb = gzip.compress(b"WARC/1.0\r\n" + b"a" * (64 << 20))
    tracemalloc.start()
    found = problems(bomb)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found == ["no record head"]
    assert peak < 4 << 20
