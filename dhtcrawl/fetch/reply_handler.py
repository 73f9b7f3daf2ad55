"""aiohttp's connections with our parser of replies in place of its own.

aiohttp's parser is strict, and the switches of the library below it cannot be
reached from Python (decision 0033). aiohttp still opens, pools and closes the
connections; a `ReplyHandler` sends a request on one and reads its reply
(decision 0051). Only `aiohttp_client` uses this module.
"""

from __future__ import annotations

import asyncio
import ssl
from functools import cache, partial
from time import monotonic
from typing import Any, NamedTuple

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ClientRequest
from aiohttp.helpers import TimerNoop, set_exception
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader

from dhtcrawl.fetch.replies import BadReply, ReplyHead, ReplyParser

# A reader of a body stops the connection where it holds twice as many bytes.
_READ_AHEAD_BYTES = 1 << 16


class Begun(NamedTuple):
    """A reply whose head has come, with the whole body or what it is read from."""

    head: ReplyHead
    body: bytes
    rest: StreamReader | None  # `None` where `body` is whole; else `body` is empty
    first_byte_s: float  # from when the request was sent


class ReplyHandler(ResponseHandler):
    """One connection; `ReplyParser` reads each reply on it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._reply: ReplyParser | None = None
        self._begun: asyncio.Future[Begun] | None = None
        # Not on the loop's clock: uvloop counts milliseconds, and a near server answers within one. 0: no byte yet.
        self._asked_at = self._first_byte_at = 0.0

    @property
    def replies(self) -> bool:
        """Whether a byte has come since the request was sent."""
        return self._first_byte_at > 0

    @property
    def body_ended(self) -> bool:
        """Whether the whole body of the reply has come, though perhaps not the end of the reply."""
        return self._reply is not None and self._reply.body_ended

    def ask(self, head: bytes, reply_head_bytes_max: int, *, bodiless: bool = False) -> asyncio.Future[Begun]:
        """Send the `head` of a request without a body; its reply, once the head of that has come.

        `bodiless`: it is a HEAD, whose reply has no body, whatever its fields say.

        The future raises `BadReply` where the reply cannot be read, and
        `aiohttp.ClientError` where the connection ends before.
        """
        self._begun = begun = self._loop.create_future()
        self._reply = ReplyParser(reply_head_bytes_max, bodiless=bodiless)
        self._asked_at, self._first_byte_at = monotonic(), 0.0
        self._payload = None  # the reader of the reply before
        if self.transport is None:
            self.set_exception(aiohttp.ServerDisconnectedError())
        else:
            self.transport.write(head)
            # What the server said before it was asked.
            self._drain_tail()
        return begun

    def data_received(self, data: bytes) -> None:
        reply = self._reply
        if reply is None:
            # Bytes before the first request: aiohttp keeps a bounded number of them.
            super().data_received(data)
            return
        if not data:
            # aiohttp resumes a parser so; ours keeps nothing back.
            return
        headless = reply.head is None
        if headless and not self._first_byte_at:
            self._first_byte_at = monotonic()
        try:
            body = reply.feed(data)
        except BadReply as error:
            self._close_after(error)
            return
        if not reply.reusable:
            self._should_close = True
        if headless:
            if reply.head is not None:
                self._begin(reply, reply.head, body)
        elif self._payload is not None:
            if self._payload.is_eof():
                # Bytes that answer no request.
                self._close_transport()
            else:
                self._pass_on(reply, body, self._payload)

    def set_exception(self, exc: BaseException, *cause: BaseException) -> None:
        """End the wait for a head with `exc`."""
        super().set_exception(exc, *cause)
        if self._begun is not None and not self._begun.done():
            set_exception(self._begun, exc, *cause)

    def connection_lost(self, exc: BaseException | None) -> None:
        reply, payload = self._reply, self._payload
        self._reply = None
        if reply is not None and payload is not None and not payload.is_eof() and payload.exception() is None:
            if reply.end(broken=exc is not None):
                payload.feed_eof()
            else:
                payload.set_exception(aiohttp.ClientPayloadError("the connection was closed within the body"))
        super().connection_lost(exc)

    def pause_reading(self) -> None:
        """Stop the transport; aiohttp would also tell its own parser, which there is none of."""
        self._reading_paused = True
        self._pause_transport_reading()

    def _begin(self, reply: ReplyParser, head: ReplyHead, body: bytes) -> None:
        """Hand the head over, with the body or the reader from which it will be had."""
        if reply.done and reply.fault is None:
            # Most pages are complete when their head is.
            self._payload = EMPTY_PAYLOAD
            begun = Begun(head, body, None, self._first_byte_at - self._asked_at)
        else:
            payload = StreamReader(self, _READ_AHEAD_BYTES, timer=TimerNoop(), loop=self._loop)
            self._payload = payload
            self._pass_on(reply, body, payload)
            begun = Begun(head, b"", payload, self._first_byte_at - self._asked_at)
        if self._begun is not None and not self._begun.done():
            self._begun.set_result(begun)

    def _pass_on(self, reply: ReplyParser, body: bytes, payload: StreamReader) -> None:
        """Give the reader the part of the body that came, and its end."""
        if body:
            payload.feed_data(body)
        if reply.fault is not None:
            payload.set_exception(aiohttp.ClientPayloadError(reply.fault))
            self._close_transport()
        elif reply.done:
            payload.feed_eof()

    def _close_after(self, error: BadReply) -> None:
        self._close_transport()
        self.set_exception(error)

    def _close_transport(self) -> None:
        self._should_close = True
        if self.transport is not None:
            self.transport.close()


@cache
def trusting_the_system() -> ssl.SSLContext:
    """Verify certificates by those of the system, which are read now: some 20 ms."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(("http/1.1",))
    return context


class ReplyConnector(aiohttp.TCPConnector):
    """aiohttp's pool, whose connections are `ReplyHandler`s; belongs to the running event loop."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        # There is no public way; a test watches it.
        handler: type[ResponseHandler] = ReplyHandler
        self._factory = partial(handler, self._loop)

    def _get_ssl_context(self, req: ClientRequest) -> ssl.SSLContext | None:
        # aiohttp's own is made when aiohttp is imported, which `dhtcrawl.cli.main` has it do without certificates.
        if req.is_ssl() and req.ssl is True and self._ssl is True:
            return trusting_the_system()
        return super()._get_ssl_context(req)
