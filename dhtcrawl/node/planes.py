"""Both planes on one address: TCP for tasks, UDP for routing, under the same port number."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass

from dhtcrawl.rpc.contact import Address
from dhtcrawl.rpc.discovery.server import RoutingServer
from dhtcrawl.rpc.tasks.transport import TaskTransport

LISTEN_TRIES = 10  # where any port will do


@dataclass(frozen=True, slots=True)
class NetworkConfig:
    """Where a node is in the network. `source` is the local address of its connections, where that matters."""

    listen: Address
    advertise: Address | None = None
    bootstrap: tuple[Address, ...] = ()
    source: str | None = None


async def listen(
    transport: TaskTransport, host: str, port: int, make_routing: Callable[[], RoutingServer]
) -> tuple[RoutingServer, Address]:
    """The routing plane and where both listen; with port 0 it is any that is free for both.

    Raises:
        OSError: the address is taken, or not ours.
    """
    for tries_left in reversed(range(LISTEN_TRIES)):
        routing = make_routing()
        try:
            await routing.listen(port, host)
        except OSError as error:
            # uvloop does not say why.
            raise OSError(error.errno or errno.EADDRINUSE, os.strerror(error.errno or errno.EADDRINUSE)) from error
        try:
            return routing, await transport.listen(host, routing.address[1])
        except OSError:
            routing.stop()
            # The port that is free for UDP may be taken for TCP.
            if port or not tries_left:
                raise
    raise AssertionError("the last try returns or raises")
