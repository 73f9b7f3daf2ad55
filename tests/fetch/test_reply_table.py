"""Each row of the table of replies over real sockets, in one segment, in two and byte by byte."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from dhtcrawl.fetch.failures import one_line
from dhtcrawl.fetch.http import Exchange, FetchFailure, FetchFailureKind, Limits, Truncated
from dhtcrawl.fetch.replies import BadReply, ReplyParser
from fetch.raw_server import Peer, page, serving
from fetch.reply_table import HEAD_BYTES_MAX, TABLE, Kept, Refused, Row
from fetch.test_aiohttp_client import asked, client_in

pytestmark = pytest.mark.loops("asyncio")
# Long enough never to pass in a test that expects an answer.
LIMITS = Limits(connect_s=60, head_s=60, body_s=60, idle_s=60, head_bytes_max=HEAD_BYTES_MAX)
# Byte by byte only what is short: the server waits for the client after each.
BYTEWISE_BYTES = 150

WAYS = ("in one segment", "in two", "byte by byte")


def segments(row: Row, way: str, chance: Random) -> list[bytes]:
    sent = row.sent
    if way == "in one segment" or len(sent) < 2:
        return [sent]
    if way == "in two" or len(sent) > BYTEWISE_BYTES:
        at = chance.randint(1, len(sent) - 1)
        return [sent[:at], sent[at:]]
    return [sent[a:b] for a, b in pairwise(range(len(sent) + 1))]


def waits_for_the_end(row: Row) -> bool:
    """Whether the server has to close the connection, lest the client wait for more."""
    parser = ReplyParser(HEAD_BYTES_MAX)
    try:
        parser.feed(row.sent)
    except BadReply:
        return False
    return not parser.done


def check(found: Exchange | FetchFailure, row: Row) -> None:
    expected = row.result
    if isinstance(expected, Kept):
        assert isinstance(found, Exchange), found
        told = [line.partition(b": ") for line in expected.fields.split(b"\n") if b": " in line]
        named = [(name, value) for name, _, value in told if name]
        assert [name for name, _ in found.headers] == [name.decode("latin-1").lower() for name, _ in named]
        assert len(found.headers) == len(named)
        truncated = None if expected.whole else Truncated.DISCONNECT
        assert (found.status, found.body.data, found.truncated) == (expected.status, expected.body, truncated)
    elif isinstance(expected, Refused):
        assert isinstance(found, FetchFailure), found
        assert (found.kind, found.detail) == (expected.kind, one_line(expected.words))
    else:
        assert isinstance(found, FetchFailure), found
        assert found.kind is FetchFailureKind.DISCONNECTED


@pytest.mark.parametrize("way", WAYS)
async def test_a_row_over_a_socket_comes_to_the_same_and_its_connection_serves_on_where_it_may(
    tmp_path: Path, way: str
) -> None:
    chance = Random(way)

    def script(peer: Peer) -> None:
        if b" /after " in peer.request_head:
            peer.send(page(b"after"))
            return
        parts = segments(row, way, chance)

        def send(at: int) -> None:
            if at < len(parts):
                peer.send(parts[at])
                peer.after_reads(lambda: send(at + 1))
            elif waits_for_the_end(row):
                peer.close()

        send(0)

    for name, row in TABLE.items():
        if row.bodiless:
            continue
        async with serving(script) as server, client_in(tmp_path) as client:
            check(await client.exchange(asked(server, limits=LIMITS)), row)
            # Bytes after the end of a reply are on their way.
            for peer in list(server.open):
                if not (isinstance(row.result, Kept) and row.result.reusable) or waits_for_the_end(row):
                    await peer.closed
            after = await client.exchange(asked(server, "/after", limits=LIMITS))
            assert isinstance(after, Exchange), (name, after)
            assert after.body.data == b"after", name
            served_on = isinstance(row.result, Kept) and row.result.reusable and not waits_for_the_end(row)
            assert server.connections == (1 if served_on else 2), name
