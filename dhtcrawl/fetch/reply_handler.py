"""aiohttp's connections with our parser of replies in place of its own.

aiohttp's parser is strict, and the switches of the library below it cannot be
reached from Python (decision 0033). aiohttp still opens, pools and closes the
connections; `ReplyHandler` overrides what in its protocol touches the parser.
Only `aiohttp_client` uses this module.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.helpers import BaseTimerContext
from aiohttp.http import HttpVersion, HttpVersion11
from aiohttp.http_parser import RawResponseMessage
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from multidict import CIMultiDict, CIMultiDictProxy

from dhtcrawl.fetch.replies import BadReply, ReplyHead, ReplyParser

# aiohttp looks for cookies in it, which we do not keep; we read the raw ones.
_NO_HEADERS: CIMultiDictProxy[str] = CIMultiDictProxy(CIMultiDict())


class ReplyHandler(ResponseHandler):
    """One connection; `ReplyParser` reads each reply on it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._reply: ReplyParser | None = None
        self._timer_of_reader: BaseTimerContext | None = None

    def set_response_params(self, **params: Any) -> None:
        """Begin to wait for a reply; `max_field_size` is the limit of its whole head."""
        self._read_bufsize = params["read_bufsize"]
        self._timer_of_reader = params["timer"]
        self._reply = ReplyParser(params["max_field_size"], bodiless=params["skip_payload"])
        self._payload = None  # the reader of the reply before
        self._drain_tail()

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
        try:
            body = reply.feed(data)
        except BadReply as error:
            self._close_after(error)
            return
        if not reply.reusable:
            self._should_close = True
        if headless and reply.head is not None:
            self._begin(reply, reply.head, empty=reply.done and not body and reply.fault is None)
        elif self._payload is not None and self._payload.is_eof():
            # Bytes that answer no request.
            self._close_transport()
            return
        if self._payload is not None and self._payload is not EMPTY_PAYLOAD:
            self._pass_on(reply, body, self._payload)

    def _pass_on(self, reply: ReplyParser, body: bytes, payload: StreamReader) -> None:
        """Give the reader the part of the body that came, and its end."""
        if body:
            payload.feed_data(body)
        if reply.fault is not None:
            payload.set_exception(aiohttp.ClientPayloadError(reply.fault))
            self._close_transport()
        elif reply.done:
            payload.feed_eof()

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

    def _begin(self, reply: ReplyParser, head: ReplyHead, *, empty: bool) -> None:
        """Hand the head over, with the reader from which the body will be had."""
        payload = EMPTY_PAYLOAD
        if not empty:
            payload = StreamReader(self, self._read_bufsize, timer=self._timer_of_reader, loop=self._loop)
        self._payload = payload
        version = HttpVersion11 if head.version == HttpVersion11 else HttpVersion(*head.version)
        message = RawResponseMessage(
            version, head.status, head.reason, _NO_HEADERS, tuple(head.fields),
            not reply.reusable, None, False, False,
        )  # fmt: skip
        self.feed_data((message, payload))

    def _close_after(self, error: BadReply) -> None:
        self._close_transport()
        self.set_exception(error)

    def _close_transport(self) -> None:
        self._should_close = True
        if self.transport is not None:
            self.transport.close()


class ReplyConnector(aiohttp.TCPConnector):
    """aiohttp's pool, whose connections are `ReplyHandler`s; belongs to the running event loop."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        # There is no public way; a test watches it.
        handler: type[ResponseHandler] = ReplyHandler
        self._factory = partial(handler, self._loop)
