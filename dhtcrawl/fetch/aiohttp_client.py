"""The web port on real sockets: aiohttp's connections, with one exchange of ours on each.

aiohttp resolves, connects, does TLS and keeps connections alive. Its requests
and responses above them are left out (decision 0051): a crawler wants no
cookies, redirects, decompression, proxies or passwords from the environment,
no headers but those of the request, no parser that refuses what browsers read
(`replies` is ours), and no hidden second request. aiohttp would repeat a GET
whose connection broke, at once, which a polite crawler may not (the scheduler
decides about retries).

One exchange passes these gates, each of which may end it with a `Failure`:

    slot ─ resolve ─ guard ─ connect ─ TLS ─ guard ─ send ─ head ─ body
           `──────── connect_s ────────┘     `─ head_s ─┘   body_s, idle_s, rate

At most `connections_max` connections are open, kept-alive ones included.
"""

from __future__ import annotations

import asyncio
import math
import socket
import struct
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp.connector import Connection
from yarl import URL

from dhtcrawl.clock import Clock
from dhtcrawl.fetch.body_rate import BodyRate
from dhtcrawl.fetch.deadline import Deadline
from dhtcrawl.fetch.failures import REQUEST_ERRORS, failure_of
from dhtcrawl.fetch.flight import FLIGHT, Flight, GuardedResolver, Spoiled
from dhtcrawl.fetch.guard import AS_CRAWLS_ALLOW, PrivateNetworks
from dhtcrawl.fetch.heads import header_pairs, request_head, response_head
from dhtcrawl.fetch.http import Body, Exchange, FetchFailure, FetchFailureKind, HttpRequest, Truncated
from dhtcrawl.fetch.reply_handler import Begun, ReplyConnector
from dhtcrawl.fetch.resolver import Resolver, SystemResolver
from dhtcrawl.fetch.spool import Spool
from dhtcrawl.url import origin_of, path_of

# Longer than the default delay of a host; servers wait from 5 s (Apache) to
# 75 s (nginx), and one that closed sooner is noticed.
KEEPALIVE_S = 15.0
# A pooled connection may turn out spoiled; the third time it is no accident.
ATTEMPTS_MAX = 3
# How long no connection is kept alive to an origin that closed one as the next request came. Whoever closes them after
# as long as a host rests would lose a request each time.
CLOSES_EARLY_S = 600.0
# How long the body of a redirect is waited for: what is wanted of one is its head. Some proxies tell the length of a
# body that they have taken out.
REDIRECT_BODY_S = 5.0
SPOOL_BYTES = 1 << 20
# Some two kilobytes each.
ORIGINS_MAX = 1024
_SPOOL_THREADS = 2
_NO_TIMEOUT = aiohttp.ClientTimeout()  # `Deadline` is cheaper and knows our phases
_NO_LINGER = struct.pack("ii", 1, 0)  # closed with a reset, and nothing is sent any more (socket(7), SO_LINGER)


@dataclass(slots=True)
class _Origin:
    """What is kept of a `scheme://host[:port]`."""

    request: aiohttp.ClientRequest  # as the connector wants it; it is never sent
    once_until: float = 0.0  # each connection there is used once only before that time


class AiohttpClient:
    """`HttpClient` on aiohttp; belongs to the event loop of its first exchange."""

    def __init__(
        self,
        clock: Clock,
        spool_dir: Path,
        *,
        connections_max: int,
        resolver: Resolver | None = None,
        tls_verify: bool = True,
        spool_bytes: int = SPOOL_BYTES,
        private_networks: Callable[[], PrivateNetworks] = lambda: AS_CRAWLS_ALLOW,
    ) -> None:
        """`private_networks()` is asked for each exchange."""
        self._clock = clock
        self._connections_max = connections_max
        self._resolver = resolver or SystemResolver(clock, connections_max)
        self._tls_verify = tls_verify
        self._private_networks = private_networks
        self._spooler = ThreadPoolExecutor(_SPOOL_THREADS, thread_name_prefix="spool")
        self._new_spool = partial(Spool, spool_dir, spool_bytes, self._spooler)
        self._slots = asyncio.Semaphore(connections_max)
        self._connector: ReplyConnector | None = None
        self._origins: OrderedDict[str, _Origin] = OrderedDict()  # the one not asked for longest first
        self._active = 0
        # Connections kept alive, the longest idle first.
        self._idle: OrderedDict[asyncio.Transport, None] = OrderedDict()

    async def exchange(self, request: HttpRequest) -> Exchange | FetchFailure:
        """See `HttpClient.exchange`; waits while `connections_max` others are under way."""
        async with self._slots:
            flight = Flight(request, self._private_networks(), self._idle, self._clock.monotonic(), self._clock.wall())
            token = FLIGHT.set(flight)
            self._active += 1
            try:
                return await self._exchange(request, flight)
            except TimeoutError:
                return self._failed(flight, flight.phase, _timeout_detail(flight))
            except REQUEST_ERRORS as error:
                kind, detail = failure_of(error)
                reused = kind is FetchFailureKind.DISCONNECTED and flight.unanswered_again
                if reused:
                    self._origin(origin_of(request.url)).once_until = self._clock.monotonic() + CLOSES_EARLY_S
                return self._failed(flight, kind, detail, reused=reused)
            finally:
                self._active -= 1
                FLIGHT.reset(token)
                transport = None if flight.handler is None else flight.handler.transport
                if transport is not None and not transport.is_closing():
                    self._idle[transport] = None

    async def close(self) -> None:
        if self._connector is not None:
            await self._connector.close()
        self._idle.clear()
        self._resolver.close()
        self._spooler.shutdown(wait=False)

    async def _exchange(self, request: HttpRequest, flight: Flight) -> Exchange:
        loop = asyncio.get_running_loop()
        target = path_of(request.url)
        sent = request_head(target, (("Host", flight.host), *request.headers), request.method)
        if sent.count(b"\r") != len(request.headers) + 3 or sent.count(b"\n") != len(request.headers) + 3:
            raise ValueError("a line break in a header")
        origin = self._origin(origin_of(request.url))
        with Deadline(loop, loop.time() + flight.limits.connect_s) as flight.deadline:
            connection, begun = await self._begin(origin, sent, flight, bodiless=request.method == "HEAD")
        whole = False
        try:
            body, truncated = await self._body(begun, flight)
            whole = truncated is None
        finally:
            if whole and self._is_used_once(origin):
                connection.close()
            elif whole:
                # aiohttp closes it if the reply said so.
                connection.release()
            else:
                _abort(connection)
        version, status, reason, raw = begun.head
        return Exchange(
            request_head=sent,
            response_head=response_head(version, status, reason, raw, body.size),
            status=status,
            headers=header_pairs(raw),
            body=body,
            remote_ip=flight.remote_ip,
            started_at=flight.started_at,
            ended_at=self._clock.monotonic(),
            fetched_at=flight.fetched_at,
            truncated=truncated,
            first_byte_s=begun.first_byte_s,
        )

    async def _begin(self, origin: _Origin, sent: bytes, flight: Flight, *, bodiless: bool) -> tuple[Connection, Begun]:
        """Ask on a connection of the pool or a new one, and wait for the head of the reply."""
        connector = self._connector or self._open_connector()
        once = self._is_used_once(origin)
        for _ in range(ATTEMPTS_MAX + len(self._idle) if once else ATTEMPTS_MAX):
            flight.fresh = False
            connection = await connector.connect(origin.request, [], _NO_TIMEOUT)
            try:
                handler = flight.board(connection, once=once)
                flight.deadline.move(asyncio.get_running_loop().time() + flight.limits.head_s)
                return connection, await handler.ask(sent, flight.limits.head_bytes_max, bodiless=bodiless)
            except Spoiled:
                connection.close()
            except BaseException:
                _abort(connection)
                raise
        raise aiohttp.ServerDisconnectedError

    async def _body(self, begun: Begun, flight: Flight) -> tuple[Body, Truncated | None]:
        if begun.rest is None:
            data, most = begun.body, flight.limits.body_bytes_max
            return (Body(data), None) if len(data) <= most else (Body(data[:most]), Truncated.LENGTH)
        if 300 < begun.head.status < 400:
            flight.limits = flight.limits._replace(body_s=min(flight.limits.body_s, REDIRECT_BODY_S))
        spool = self._new_spool()
        try:
            truncated = await _stream(begun.rest, spool, flight)
            return await spool.finish(), truncated
        except BaseException:
            spool.abandon()
            raise

    def _failed(self, flight: Flight, kind: FetchFailureKind, detail: str, *, reused: bool = False) -> FetchFailure:
        return FetchFailure(kind, detail, flight.started_at, self._clock.monotonic(), reused)

    def _is_used_once(self, origin: _Origin) -> bool:
        """Whether a connection to there is not to be used for a second request."""
        return origin.once_until > 0 and origin.once_until > self._clock.monotonic()

    def _origin(self, origin: str) -> _Origin:
        found = self._origins.get(origin)
        if found is not None:
            self._origins.move_to_end(origin)
            return found
        if len(self._origins) >= ORIGINS_MAX:
            self._origins.popitem(last=False)
        request = aiohttp.ClientRequest("GET", URL(origin, encoded=True), loop=asyncio.get_running_loop())
        found = self._origins[origin] = _Origin(request)
        return found

    def _open_connector(self) -> ReplyConnector:
        # `limit=0`: the slots above are the limit, so that a request that
        # waits for one has not begun. aiohttp's own DNS cache would share one
        # crawl's permitted addresses with another.
        self._connector = ReplyConnector(
            resolver=GuardedResolver(self._resolver),
            use_dns_cache=False,
            limit=0,
            keepalive_timeout=KEEPALIVE_S,
            ssl=self._tls_verify,
            socket_factory=self._open_socket,
        )
        return self._connector

    def _open_socket(self, address: tuple[Any, ...]) -> socket.socket:
        flight = FLIGHT.get()
        flight.check(address[4][0])
        flight.fresh = True
        while self._idle and len(self._idle) + self._active > self._connections_max:
            self._idle.popitem(last=False)[0].close()
        return socket.socket(address[0], address[1], address[2])


def _abort(connection: Connection) -> None:
    """Close a connection on which more may come."""
    if connection.transport is not None:
        # With a reset: what did not get through the system would send again, until long after its host's turn.
        own = connection.transport.get_extra_info("socket")
        if own is not None:
            with suppress(OSError):  # it is closed already
                own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        # Without TLS's farewell: a silent server would keep the connection
        # open for half a minute more.
        connection.transport.abort()
    connection.close()


async def _stream(content: aiohttp.StreamReader, spool: Spool, flight: Flight) -> Truncated | None:
    """Read a body into `spool`; why it is cut, if it is."""
    loop, limits = asyncio.get_running_loop(), flight.limits
    body_end, rate = loop.time() + limits.body_s, BodyRate(limits.bytes_per_s_min, limits.slow_s)
    until = body_end
    try:
        with Deadline(loop, body_end) as deadline:
            while True:
                until = min(body_end, loop.time() + limits.idle_s)
                deadline.move(min(until, rate.ends_at))
                chunk = await content.readany()
                if not chunk:
                    return None
                rate.came(len(chunk), loop.time())
                room = limits.body_bytes_max - spool.size
                full = spool.add(chunk[:room])
                if len(chunk) > room:
                    return Truncated.LENGTH
                if full:
                    # A slow disk of ours is not the server's delay.
                    deadline.move(math.inf)
                    began_at = loop.time()
                    await spool.flush()
                    rate.excuse(loop.time() - began_at)
                    if loop.time() >= body_end:
                        return Truncated.TIME
    except TimeoutError:
        if flight.handler is not None and flight.handler.body_ended and not content.read_nowait():
            return None  # its last chunk has come, and no end of the trailers
        return Truncated.SLOW if rate.ends_at < until else Truncated.TIME
    except REQUEST_ERRORS:
        # aiohttp sets the error as soon as it knows it, before bytes that
        # arrived earlier were read; without the error they can be had.
        content.set_exception(None)  # type: ignore[arg-type]
        spool.add(content.read_nowait()[: limits.body_bytes_max - spool.size])
        return Truncated.DISCONNECT


def _timeout_detail(flight: Flight) -> str:
    if flight.phase is FetchFailureKind.TIMEOUT:
        return f"no complete response head within {flight.limits.head_s:g} s"
    what = "answer from the name server" if flight.phase is FetchFailureKind.DNS else "connection"
    return f"no {what} within {flight.limits.connect_s:g} s"
