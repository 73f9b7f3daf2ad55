"""Opens both planes on one address: TCP for tasks, UDP for routing, under the same port number."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dhtcrawl.closed.secret import Ring
from dhtcrawl.rpc.contact import Address
from dhtcrawl.rpc.discovery.server import RoutingServer
from dhtcrawl.rpc.tasks.sockets import TlsContexts
from dhtcrawl.rpc.tasks.transport import TaskTransport
from dhtcrawl.swarm.membership.own_address import OwnHosts

LISTEN_TRIES = 10  # attempts to find a port that is free for both, if any port will do


@dataclass(frozen=True, slots=True)
class NetworkConfig:
    """A node's addresses. `source` is the local address of its outgoing connections, if it must be a certain one.

    `met` is told the addresses of other nodes: of those that are remembered, before any crawl goes on, and, with each
    new view, of all members. `ring` and `tls` are those of a closed swarm. Where `own_hosts` is given, the host of
    `advertise` is only the first: it is looked up again as long as the node runs. With `tried` the node joins once
    others have reached it; with `outbound_only` they need not: it takes no connections. Where it is
    `commanded_anywhere`, no other machine takes part and nobody needs a token: people command it by other nodes, too.
    """

    listen: Address
    advertise: Address | None = None
    bootstrap: tuple[Address, ...] = ()
    source: str | None = None
    ring: Ring | None = None
    tls: TlsContexts | None = None
    own_hosts: OwnHosts | None = None
    tried: bool = False
    outbound_only: bool = False
    commanded_anywhere: bool = False
    met: Callable[[Iterable[Address]], None] = lambda addresses: None


async def listen(
    transport: TaskTransport, host: str, port: int, make_routing: Callable[[], RoutingServer], *, outbound_only: bool
) -> tuple[RoutingServer, Address]:
    """Open both planes; return the routing plane and their address. Port 0 is any that is free for both.

    With `outbound_only` datagrams come from that port, and no connections are taken.

    Raises:
        OSError: the address is taken, or not one of this machine.
    """
    for tries_left in reversed(range(LISTEN_TRIES)):
        routing = make_routing()
        try:
            await routing.listen(port, host)
        except OSError as error:
            cause = error.errno or _refusal(host, port)
            raise OSError(cause, os.strerror(cause)) from error
        if outbound_only:
            routing.plane.hide()
            return routing, routing.address
        try:
            return routing, await transport.listen(host, routing.address[1])
        except OSError:
            routing.stop()
            # A port that is free for UDP may be taken for TCP.
            if port or not tries_left:
                raise
    raise AssertionError("the last try returns or raises")


def _refusal(host: str, port: int) -> int:
    """Why a socket cannot be bound there, as an `errno`: uvloop does not tell, but a plain socket does."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as plain:
        try:
            plain.bind((host, port))
        except OSError as error:
            return error.errno or errno.EADDRINUSE
    return errno.EADDRINUSE  # until a moment ago
