"""Replies as browsers and curl read them (RFC 9112, 6.3), however they are cut into segments."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dhtcrawl.fetch.heads import response_head
from dhtcrawl.fetch.http import FetchFailureKind
from dhtcrawl.fetch.replies import BadReply, ReplyParser
from fetch.reply_table import CHUNKED, HEAD_BYTES_MAX, OK, TABLE, Kept, Refused, Result, Row, Unfinished

# Rows that are longer are cut in two at places drawn by their length.
CUT_EVERYWHERE_BYTES = 400


def outcome(segments: Iterable[bytes], *, limit: int = HEAD_BYTES_MAX, bodiless: bool = False) -> Result:
    """What the reply in `segments`, at whose end the connection is closed, comes to."""
    parser = ReplyParser(limit, bodiless=bodiless)
    try:
        body = b"".join([parser.feed(segment) for segment in segments])
    except BadReply as error:
        return Refused(error.detail, error.kind)
    whole = parser.end()
    if parser.head is None:
        return Unfinished()
    told = b"\n".join([name + b": " + value if name else value for name, value in parser.head.fields])
    return Kept(body, told, parser.head.status, parser.reusable, whole)


def in_bytes(sent: bytes) -> list[bytes]:
    return [sent[at : at + 1] for at in range(len(sent))]


def everywhere_cut(sent: bytes) -> Iterable[list[bytes]]:
    yield [sent]
    yield in_bytes(sent)
    places: Iterable[int] = range(1, len(sent))
    if len(sent) > CUT_EVERYWHERE_BYTES:
        places = Random(len(sent)).sample(range(1, len(sent)), CUT_EVERYWHERE_BYTES)
    for at in places:
        yield [sent[:at], sent[at:]]


@pytest.mark.parametrize("row", TABLE.values(), ids=TABLE)
def test_a_reply_comes_to_the_same_in_any_two_segments_and_byte_by_byte(row: Row) -> None:
    for segments in everywhere_cut(row.sent):
        assert outcome(segments, bodiless=row.bodiless) == row.result


def test_nothing_comes_after_a_refusal() -> None:
    parser = ReplyParser(HEAD_BYTES_MAX)
    with pytest.raises(BadReply):
        parser.feed(b"no reply")
    assert parser.feed(OK + b"\r\nabc") == b""
    assert (parser.head, parser.done, parser.reusable) == (None, True, False)


def test_a_body_without_a_length_is_whole_only_if_its_connection_was_closed_in_order() -> None:
    for sent, whole in ((OK + b"\r\nabc", False), (OK + CHUNKED + b"\r\n0\r\n", True)):
        for broken in (False, True):
            parser = ReplyParser(HEAD_BYTES_MAX)
            parser.feed(sent)
            assert parser.end(broken=broken) is (whole or not broken)


def test_a_head_may_have_as_many_lines_as_curl_takes_and_no_more() -> None:
    for lines in (5000, 5001):
        sent = OK + b"A:\r\n" * lines + b"\r\n"
        refused = Refused("the response head has 5001 lines, more than 5000", FetchFailureKind.HEADERS)
        found = outcome([sent], limit=1 << 20)
        assert found == refused if lines > 5000 else isinstance(found, Kept)


ROWS = [row.sent for row in TABLE.values() if len(row.sent) <= 1500]
TOKENS = [
    b"\r\n", b"\n", b"\r", b" ", b"\t", b":", b";", b",", b"0", b"3", b"f", b"\0", b"\xff", b"1", b"abc", b"9" * 20,
    b"\r\n\r\n", b"\n\n", b"http/1.1 ", b"Content-Length: ", b"Content-Length: 3\r\n", b"Transfer-Encoding: ",
    b"chunked", b"Connection: close\r\n", b"3\r\nabc\r\n", b"0\r\n\r\n", b"HTTP/1.1 103 x\r\n\r\n", OK, CHUNKED,
]  # fmt: skip


def mutant(chance: Random) -> bytes:
    """A row of the table with one to four places changed."""
    sent = bytearray(chance.choice(ROWS))
    for _ in range(chance.randint(1, 4)):
        at = chance.randint(0, len(sent))
        end = min(len(sent), at + chance.choice((1, 1, 2, 5, 20)))
        change = chance.randrange(6)
        if change == 0:
            del sent[at:end]
        elif change == 1:
            sent[at:at] = chance.choice(TOKENS)
        elif change == 2:
            sent[at:end] = chance.choice((chance.choice(TOKENS), chance.randbytes(1)))
        elif change == 3:
            sent[at:at] = sent[at:end] * chance.choice((1, 2, 10))
        elif change == 4:
            sent[at:end] = sent[at:end].swapcase()
        else:
            other = chance.choice(ROWS)
            sent[at:] = other[chance.randint(0, len(other)) :]
    return bytes(sent)


def test_mutants_of_the_table_raise_nothing_else_and_segments_change_nothing(mutants: int) -> None:
    chance = Random(20)
    results = {Kept: 0, Refused: 0, Unfinished: 0}
    for _ in range(mutants):
        sent = mutant(chance)
        limit = chance.choice((HEAD_BYTES_MAX, HEAD_BYTES_MAX, 60))
        cuts = sorted(chance.randint(0, len(sent)) for _ in range(3))
        segments = [sent[a:b] for a, b in pairwise([0, *cuts, len(sent)])]
        expected = outcome([sent], limit=limit)
        assert outcome(segments, limit=limit) == expected, (sent, limit, cuts)
        assert outcome(in_bytes(sent), limit=limit) == expected, (sent, limit)
        results[type(expected)] += 1
    # It is no fuzzing if nearly all of them end at the first line.
    assert min(results.values()) > mutants // 50


def test_what_a_mutant_says_can_be_stored(mutants: int) -> None:
    chance = Random(21)
    for _ in range(mutants // 2):
        parser = ReplyParser(HEAD_BYTES_MAX)
        with suppress(BadReply):
            body = parser.feed(mutant(chance))
        if parser.head is None:
            continue
        version, status, reason, fields = parser.head
        assert not set(b"".join([part for field in fields for part in field])) & set(b"\r\n\0")
        stored = response_head(version, status, reason, fields, len(body))
        read = ReplyParser(1 << 20)
        assert read.feed(stored + body) == (b"" if status in (204, 304) else body)
        assert read.done
        assert read.head is not None
        assert read.head.status == status


PIECES = st.sampled_from(
    [
        OK,
        CHUNKED,
        b"HTTP/1.1 103 x\r\n",
        b"\r\n",
        b"\r\n\r\n",
        b"\n",
        b"\r",
        b" ",
        b":",
        b"Content-Length: 3\r\n",
        b"Content-Length: ",
        b"3",
        b"abc",
        b"3\r\nabc\r\n",
        b"0\r\n",
        b"0\r\n\r\n",
        b"A: b\r\n",
        b"odd\r\n",
        b"\0",
    ]
)
HOSTILE = st.lists(PIECES | st.binary(max_size=5), max_size=12).map(b"".join)


@settings(max_examples=400)
@given(HOSTILE, st.sampled_from([b"", OK, CHUNKED, CHUNKED + b"\r\n"]), st.data())
def test_hostile_bytes_raise_nothing_else_and_segments_change_nothing(
    noise: bytes, start: bytes, data: st.DataObject
) -> None:
    sent = start + noise
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=8)))
    segments = [sent[a:b] for a, b in zip([0, *cuts], [*cuts, len(sent)], strict=True)]
    limit = data.draw(st.sampled_from([40, HEAD_BYTES_MAX]))
    expected = outcome([sent], limit=limit)
    assert outcome(segments, limit=limit) == expected
    assert outcome(in_bytes(sent), limit=limit) == expected


LENGTH = 1 << 19
# Each has a part that a careless reader looks at, or copies, again and again.
MONSTERS = {
    "a status line without end": b"HTTP/1.1 200 " + b"a" * LENGTH,
    "blanks after the version": b"HTTP/1.1" + b" " * LENGTH,
    "a field without end": OK + b"X: " + b"a" * LENGTH,
    "a name without end": OK + b"X" * LENGTH,
    "blanks before a colon": OK + b"X" + b" " * LENGTH + b": a\r\n\r\n",
    "lines without end": OK + b"A:\r\n" * (LENGTH // 4),
    "lines without a colon": OK + b"A\r\n" * 4000 + b"\r\n",
    "folds": OK + b"X: a\r\n" + b" b\r\n" * 4000 + b"\r\n",
    "CR without end": OK + b"X: a" + b"\r" * LENGTH + b"\n\r\n",
    "empty lines": b"\r\n" * (LENGTH // 2),
    "interim replies": b"HTTP/1.1 103 x\r\nA: b\r\n\r\n" * (LENGTH // 24),
    "a list of lengths": OK + b"Content-Length: " + b"3, " * (LENGTH // 3) + b"3\r\n\r\nabc",
    "a list of codings": OK + b"Transfer-Encoding: " + b"x, " * (LENGTH // 3) + b"chunked\r\n\r\n0\r\n\r\n",
    "a list of options": OK + b"Connection: " + b"x, " * (LENGTH // 3) + b"\r\n\r\n",
    "chunks of a byte": OK + CHUNKED + b"\r\n" + b"1\r\na\r\n" * (LENGTH // 6),
    "sizes without data": OK + CHUNKED + b"\r\n" + b"1" * LENGTH,
    "trailers without end": OK + CHUNKED + b"\r\n0\r\n" + b"A: b\r\n" * (LENGTH // 6),
    "a trailer without end": OK + CHUNKED + b"\r\n0\r\n" + b"a" * LENGTH,
}
CHILD = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
resource.setrlimit(resource.RLIMIT_CPU, (5, 5))
from dhtcrawl.fetch.replies import BadReply, ReplyParser
sent = sys.stdin.buffer.read()
for size in (len(sent), 1000, 1):
    parser = ReplyParser(1 << 22)
    try:
        for at in range(0, len(sent), size):
            parser.feed(sent[at : at + size])
    except BadReply:
        pass
    parser.end()
print("done")
"""


@pytest.mark.parametrize("sent", MONSTERS.values(), ids=MONSTERS)
def test_a_monster_takes_no_more_time_than_its_length(sent: bytes) -> None:
    done = subprocess.run([sys.executable, "-c", CHILD], input=sent, capture_output=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, b"done\n"), done.stderr[-500:]
