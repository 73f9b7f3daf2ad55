from __future__ import annotations

import gzip
import random
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import brotli
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.fetch.body import CHUNK_BYTES, CODINGS_MAX, MEMBERS_MAX, PIECE_BYTES, Decoded, decode

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MIB = 1024 * 1024


def br(data: bytes) -> bytes:
    encoded: bytes = brotli.compress(data, quality=4)
    return encoded


def raw_deflate(data: bytes) -> bytes:
    return zlib.compress(data, wbits=-15)


def zstd_without_size(data: bytes) -> bytes:
    stream = zstd.ZstdCompressor()
    return stream.compress(data) + stream.flush()


ENCODERS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "x-gzip": ("x-gzip", gzip.compress),
    "zlib": ("deflate", zlib.compress),
    "raw deflate": ("deflate", raw_deflate),
    "br": ("br", br),
    "zstd": ("zstd", zstd.compress),
    "zstd, size unknown": ("zstd", zstd_without_size),
}
every_coding = pytest.mark.parametrize(("coding", "encode"), ENCODERS.values(), ids=ENCODERS)


def text_of(size: int, seed: int = 1) -> bytes:
    """Something that neither vanishes when compressed nor stays as it is."""
    words = [b"%x" % number for number in range(4000)]
    chosen = random.Random(seed).choices(words, k=size // 3)
    return b" ".join(chosen)[:size]


@every_coding
def test_a_body_comes_out_as_it_went_in(coding: str, encode: Callable[[bytes], bytes]) -> None:
    for body in (b"x", text_of(25_000), text_of(MIB)):
        assert decode(encode(body), coding, 2 * MIB) == Decoded(body)
        assert decode(encode(body), coding.upper(), len(body)) == Decoded(body)


@every_coding
def test_the_limit_cuts_and_says_so(coding: str, encode: Callable[[bytes], bytes]) -> None:
    body = text_of(300_000)
    for limit in (0, 1, CHUNK_BYTES, 299_999):
        assert decode(encode(body), coding, limit) == Decoded(body[:limit], truncated=True)


@every_coding
def test_a_cut_stream_gives_what_there_is_and_an_error(coding: str, encode: Callable[[bytes], bytes]) -> None:
    body = text_of(300_000)
    encoded = encode(body)
    decoded = decode(encoded[: len(encoded) // 2], coding, MIB)
    assert decoded.error is not None
    assert coding in decoded.error
    # brotli and zstd hold back a block of up to 128 KiB.
    assert len(decoded.data) > 10_000
    assert body.startswith(decoded.data)


# Raw deflate and zstd without a check sum have nothing to notice damage by.
@pytest.mark.parametrize(("coding", "encode"), [ENCODERS[name] for name in ("gzip", "zlib", "br")])
def test_a_broken_stream_gives_what_came_before(coding: str, encode: Callable[[bytes], bytes]) -> None:
    body = text_of(MIB)
    encoded = bytearray(encode(body))
    middle = len(encoded) // 2
    encoded[middle : middle + 400] = bytes(400)
    decoded = decode(bytes(encoded), coding, 2 * MIB)
    assert decoded.error is not None
    assert decoded.data[:100_000] == body[:100_000]


def test_brotli_comes_out_up_to_the_byte_that_is_wrong() -> None:
    body = text_of(PIECE_BYTES // 2)
    stream = brotli.Compressor()
    begun = stream.process(body) + stream.flush()
    decoded = decode(begun + b"\xff" * PIECE_BYTES, "br", MIB)
    assert decoded.data == body
    assert decoded.error is not None


@every_coding
def test_a_bomb_costs_no_more_than_the_limit(coding: str, encode: Callable[[bytes], bytes]) -> None:
    bomb = encode(bytes(64 * MIB))
    tracemalloc.start()
    decoded = decode(bomb, coding, 4 * MIB)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert decoded == Decoded(bytes(4 * MIB), truncated=True)
    # The result, the eighth its buffer grows by, and a chunk or two at work.
    assert peak < 4 * MIB * 9 / 8 + 8 * CHUNK_BYTES


def test_a_bomb_within_a_bomb_stops_where_it_first_grows() -> None:
    # 64 MiB of gzip members that hold nothing, compressed to some 70 KB.
    bomb = gzip.compress(gzip.compress(b"") * (64 * MIB // 20), 9)
    tracemalloc.start()
    decoded = decode(bomb, "gzip, gzip", MIB)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert decoded.data == b""
    assert decoded.truncated or decoded.error
    assert peak < 2 * MIB


def test_codings_are_undone_right_to_left() -> None:
    body = text_of(40_000)
    encoded = br(zlib.compress(gzip.compress(body)))
    assert decode(encoded, "gzip,deflate , identity, BR", MIB) == Decoded(body)


def test_more_codings_than_anybody_needs_are_refused() -> None:
    body = b"x"
    for _ in range(CODINGS_MAX + 1):
        body = gzip.compress(body)
    decoded = decode(body, ", ".join(["gzip"] * (CODINGS_MAX + 1)), MIB)
    assert decoded.data == b""
    assert decoded.error is not None


def test_all_members_of_a_gzip_file_count_and_padding_does_not() -> None:
    members = gzip.compress(b"one ") + gzip.compress(b"") + gzip.compress(b"two")
    assert decode(members, "gzip", MIB) == Decoded(b"one two")
    assert decode(members + bytes(700), "gzip", MIB) == Decoded(b"one two")
    # A member may begin anywhere, also across two pieces.
    for size in range(PIECE_BYTES - 60, PIECE_BYTES + 20):
        first = random.Random(size).randbytes(size)
        assert decode(gzip.compress(first) + gzip.compress(b"!"), "gzip", MIB) == Decoded(first + b"!")


def gzip_member(data: bytes, flags: int, fields: bytes) -> bytes:
    header = bytes((0x1F, 0x8B, 8, flags)) + bytes(6) + fields
    header += (zlib.crc32(header) & 0xFFFF).to_bytes(2, "little") if flags & 2 else b""
    return header + zlib.compress(data, wbits=-15) + zlib.compress(data, wbits=31)[-8:]


@pytest.mark.parametrize(
    ("flags", "fields"), [(0, b""), (8, b"name\0"), (24, b"name\0comment\0"), (30, b"\3\0abcname\0comment\0"), (2, b"")]
)
def test_a_gzip_header_counts_wherever_it_is_cut_in_pieces(flags: int, fields: bytes) -> None:  # RFC 1952, 2.3
    second = gzip_member(b"second", flags, fields)
    for before in range(45):
        text = random.Random(1).randbytes(PIECE_BYTES - 20 - before)
        first = gzip.compress(text, 0)
        assert decode(first + second, "gzip", MIB) == Decoded(text + b"second"), (len(first), before)
    for cut in range(1, len(second)):
        found = decode(second[:cut], "gzip", MIB)
        assert b"second".startswith(found.data), cut
        assert found.error


@pytest.mark.parametrize("size", [5_000, 65_535])
def test_a_gzip_header_may_be_longer_than_a_piece(size: int) -> None:
    extra = size.to_bytes(2, "little") + bytes(size)
    assert decode(gzip_member(b"text", 12, extra + b"name\0"), "gzip", MIB) == Decoded(b"text")


@every_coding
@pytest.mark.parametrize("size", [0, 200, 40_000])
def test_what_follows_the_end_of_a_stream_costs_nothing(
    coding: str, encode: Callable[[bytes], bytes], size: int
) -> None:
    body = text_of(size)
    for more in (b"\n", b"<!-- from the cache -->", b"x" * PIECE_BYTES, b"x" * 3 * PIECE_BYTES):
        assert decode(encode(body) + more, coding, MIB) == Decoded(body)


def test_a_bomb_with_something_behind_it_comes_out_up_to_the_limit() -> None:
    body = bytes(5 * MIB)
    assert decode(br(body) + b"\n", "br", 8 * MIB) == Decoded(body)
    assert decode(br(body) + b"\n", "br", MIB) == Decoded(body[:MIB], truncated=True)


def test_endless_empty_members_are_given_up() -> None:
    decoded = decode(gzip.compress(b"") * (MEMBERS_MAX + 1), "gzip", MIB)
    assert decoded == Decoded(b"", error=f"gzip: more than {MEMBERS_MAX} members")


def test_frames_of_zstd_follow_each_other_and_may_be_skipped() -> None:
    skippable = bytes.fromhex("5a2a4d18 03000000") + b"abc"
    frames = skippable + zstd.compress(b"one ") + skippable + zstd.compress(b"two")
    assert decode(frames, "zstd", MIB) == Decoded(b"one two")


def test_a_zstd_window_above_8_mib_is_refused() -> None:  # RFC 9659
    options: dict[int, int] = {
        zstd.CompressionParameter.window_log: 27,
        zstd.CompressionParameter.enable_long_distance_matching: 1,
    }
    stream = zstd.ZstdCompressor(options=options)
    decoded = decode(stream.compress(text_of(MIB)) + stream.flush(), "zstd", 2 * MIB)
    assert decoded.data == b""
    assert decoded.error is not None


def test_a_wrong_checksum_costs_none_of_the_content() -> None:
    body = text_of(25_000)
    encoded = gzip.compress(body)
    decoded = decode(encoded[:-8] + b"checksum", "gzip", MIB)
    assert decoded.data == body
    assert decoded.error is not None


def test_an_unknown_coding_is_named_and_leaves_what_lies_under_it() -> None:
    plain = decode(b"<html>", "utf-8", MIB)
    assert plain.data == b"<html>"
    assert plain.error == "content-encoding: unknown coding 'utf-8'"
    under = decode(gzip.compress(b"<html>"), "compress, gzip", MIB)
    assert under == Decoded(b"<html>", error="content-encoding: unknown coding 'compress'")
    assert decode(b"abc", "exotic", 2) == Decoded(b"ab", True, "content-encoding: unknown coding 'exotic'")


@pytest.mark.parametrize("nothing", [None, "", "identity", " , identity,"])
def test_no_coding_is_the_body_up_to_the_limit(nothing: str | None) -> None:
    assert decode(b"abc", nothing, 3) == Decoded(b"abc")
    assert decode(b"abc", nothing, 2) == Decoded(b"ab", truncated=True)


def test_an_empty_body_is_empty_whatever_the_header_says() -> None:
    assert decode(b"", "gzip", 9) == Decoded(b"")


@given(st.binary(max_size=200), st.sampled_from(["gzip", "deflate", "br", "zstd", "gzip, br", "deflate, zstd"]))
def test_any_bytes_are_decoded_or_refused(data: bytes, codings: str) -> None:
    for head in (b"", gzip.compress(b"a")[:10], zstd.compress(b"a")[:6], zlib.compress(b"a")[:2]):
        assert len(decode(head + data, codings, 1000).data) <= 1000


HTML = {
    "html-gzip": "gzip",
    "html-zlibdeflate": "deflate",
    "html-rawdeflate": "deflate",
    "html-br": "br",
    "html-zstd-static-content-size": "zstd",
    "html-zstd-static-no-content-size": "zstd",
    "html-zstd-streaming-no-content-size": "zstd",
    "html-gzip-deflate": "gzip, deflate",
    "html-gzip-deflate-gzip": "gzip, deflate, gzip",
}


def test_the_same_page_comes_out_of_every_coding(conformance_dir: Path) -> None:
    pages = set()
    for name, coding in HTML.items():
        decoded = decode((conformance_dir / "compressed" / f"{name}.bin").read_bytes(), coding, MIB)
        assert (decoded.truncated, decoded.error) == (False, None), name
        # The page names its coding once.
        pages.add(decoded.data.replace(b"`deflate'", b"`gzip'"))
    assert [len(page) for page in pages] == [74_837]


@pytest.mark.parametrize("name", ["truncated-crc-error", "truncated-crc-error-short", "unexpected-eof"])
def test_real_truncated_pages_give_data_and_an_error(conformance_dir: Path, name: str) -> None:
    encoded = (conformance_dir / "compressed" / f"{name}.gz").read_bytes()
    decoded = decode(encoded, "gzip", MIB)
    assert decoded.error == "gzip: the stream ends too early"
    assert decoded.data == zlib.decompressobj(31).decompress(encoded)
    assert len(decoded.data) > 3_000


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
def test_real_bombs_are_bounded(conformance_dir: Path, coding: str) -> None:
    bomb = (conformance_dir / "compressed" / f"bomb-{coding}.bin").read_bytes()
    decoded = decode(bomb, coding, MIB)
    assert (len(decoded.data), decoded.truncated, decoded.error) == (MIB, True, None)
