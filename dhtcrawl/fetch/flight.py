"""What aiohttp calls back while an exchange runs: the address guard and the phases.

aiohttp calls resolver and socket factory in the task of the exchange or in
children of it. These hooks find their exchange, a `Flight`, in a context
variable. Only `aiohttp_client` uses this module.

The guard stands in three places, since an address comes in by three ways: a
DNS answer (only permitted ones are tried), a literal in the URL (no resolver
sees it, so the socket factory asks), and a connection kept alive by a crawl
that may do more than this one (asked before the first byte is sent on it).
"""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict
from contextvars import ContextVar
from datetime import datetime

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.connector import Connection

from dhtcrawl.fetch.deadline import Deadline
from dhtcrawl.fetch.failures import AddressRefused
from dhtcrawl.fetch.guard import PrivateNetworks, permits, refusal
from dhtcrawl.fetch.http import FetchFailureKind, HttpRequest
from dhtcrawl.fetch.reply_handler import ReplyHandler
from dhtcrawl.fetch.resolver import Resolver
from dhtcrawl.url import host_of


class Spoiled(Exception):
    """A kept-alive connection holds bytes that answer no request, or is used once only; nothing was sent on it."""


class Flight:
    """What the hooks below need to know about the exchange they run in."""

    __slots__ = (
        "deadline", "fetched_at", "fresh", "handler", "host", "idle", "limits", "networks", "phase", "private_hosts",
        "remote_ip", "started_at",
    )  # fmt: skip

    def __init__(
        self,
        request: HttpRequest,
        networks: PrivateNetworks,
        idle: OrderedDict[asyncio.Transport, None],
        started_at: float,
        fetched_at: datetime,
    ) -> None:
        self.host = host_of(request.url)
        self.limits = request.limits
        self.private_hosts = request.private_hosts
        self.networks = networks
        self.idle = idle
        self.started_at = started_at
        self.fetched_at = fetched_at
        self.phase = FetchFailureKind.CONNECT  # what a deadline that passes now means
        self.fresh = False
        self.remote_ip = ""
        self.handler: ReplyHandler | None = None
        self.deadline: Deadline

    @property
    def unanswered_again(self) -> bool:
        """Whether the request was sent on a connection that was kept alive, and not a byte of a reply has come."""
        return self.handler is not None and not self.fresh and not self.handler.replies

    def permits(self, ip: str) -> bool:
        """Whether this request may talk to `ip`."""
        return permits(self.host, ip, self.private_hosts, self.networks)

    def check(self, ip: str) -> None:
        """Let this request talk to `ip`.

        Raises:
            AddressRefused: it may not.
        """
        if not self.permits(ip):
            raise AddressRefused(refusal(self.host, ip, self.private_hosts))

    def board(self, connection: Connection, *, once: bool = False) -> ReplyHandler:
        """Look at the connection before anything is sent on it, and take it; `once`: only if it is a new one.

        Raises:
            Spoiled: it was kept alive and cannot be used.
            AddressRefused: it leads to an address that may not be asked.
        """
        handler, transport = connection.protocol, connection.transport
        if not isinstance(handler, ReplyHandler) or transport is None:
            raise Spoiled
        self.idle.pop(transport, None)
        peer = transport.get_extra_info("peername")
        self.remote_ip = peer[0] if peer else ""
        self.check(self.remote_ip)
        if self.fresh:
            if handler.closed is not None:
                handler.closed.add_done_callback(_retrieve)
        elif handler.should_close or once:
            raise Spoiled
        self.handler = handler
        self.phase = FetchFailureKind.TIMEOUT
        return handler


FLIGHT: ContextVar[Flight] = ContextVar("flight")


class GuardedResolver(AbstractResolver):
    """The resolver port as aiohttp wants it, without the addresses that the guard refuses."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        flight = FLIGHT.get()
        flight.phase = FetchFailureKind.DNS
        found = await self._resolver.addresses(host)
        flight.phase = FetchFailureKind.CONNECT
        allowed = [ip for ip in found if flight.permits(ip)]
        if not allowed:
            flight.check(found[0])
        return [
            ResolveResult(hostname=host, host=ip, port=port, family=_family(ip), proto=0, flags=socket.AI_NUMERICHOST)
            for ip in allowed
        ]

    async def close(self) -> None:
        self._resolver.close()


def _retrieve(closed: asyncio.Future[None]) -> None:
    """Look at how a connection ended, lest asyncio log that it was not retrieved."""
    if not closed.cancelled():
        closed.exception()


def _family(ip: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in ip else socket.AF_INET
