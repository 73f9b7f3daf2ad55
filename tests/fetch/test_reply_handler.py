"""The handler of a connection gives what the parser of replies reads, whatever the reply and its segments."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from random import Random

import aiohttp

from dhtcrawl.fetch.replies import BadReply, ReplyParser
from dhtcrawl.fetch.reply_handler import ReplyHandler
from fetch.reply_table import HEAD_BYTES_MAX, Kept, Refused, Result, Unfinished
from fetch.test_replies import mutant, outcome


class Wire(asyncio.Transport):
    """The transport of a connection on which the server sends and the client only reads."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


async def handled(segments: list[bytes]) -> Result:
    """What the reply in `segments`, at whose end the connection is closed, comes to."""
    handler, wire = ReplyHandler(asyncio.get_running_loop()), Wire()
    handler.connection_made(wire)
    asked = handler.ask(b"GET / HTTP/1.1\r\n\r\n", HEAD_BYTES_MAX)
    for segment in segments:
        # Some transports give what they had read before they were closed.
        handler.data_received(segment)
        await asyncio.sleep(0)
    reusable = not (handler.should_close or wire.closed)
    handler.connection_lost(None)
    try:
        begun = await asked
    except BadReply as error:
        return Refused(error.detail, error.kind)
    except aiohttp.ServerDisconnectedError:
        return Unfinished()
    head, body, whole = begun.head, begun.body, True
    if begun.rest is not None:
        assert not body
        whole = begun.rest.exception() is None
        assert begun.rest.is_eof() or not whole
        begun.rest.set_exception(None)  # type: ignore[arg-type]
        body = begun.rest.read_nowait()
    fields = b"\n".join([name + b": " + value if name else value for name, value in head.fields])
    return Kept(body, fields, head.status, reusable, whole)


def expected(sent: bytes) -> Result:
    """The same from the parser; a connection on which the body has not ended may not be used again."""
    found = outcome([sent])
    if not isinstance(found, Kept):
        return found
    parser = ReplyParser(HEAD_BYTES_MAX)
    parser.feed(sent)
    return Kept(found.body, found.fields, found.status, found.reusable and parser.done, found.whole)


async def test_mutants_come_to_the_same_through_the_handler_in_any_segments(mutants: int) -> None:
    chance = Random(23)
    for _ in range(mutants // 4):
        sent = mutant(chance)
        cuts = sorted(chance.randint(0, len(sent)) for _ in range(4))
        wanted = expected(sent)
        for segments in ([sent], [part for a, b in pairwise([0, *cuts, len(sent)]) if (part := sent[a:b])]):
            assert await handled(segments) == wanted, segments
