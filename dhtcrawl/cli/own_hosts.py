"""Which of this machine's addresses lead to other nodes, and which ones a name stands for.

Nothing is sent to the nodes: connecting a UDP socket looks into the routing table.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence

from dhtcrawl.rpc.contact import canonical_host
from dhtcrawl.units import Address, ip_of, is_loopback

RESOLVE_EVERY_S = 60.0  # a name server is asked for our own name again
WAYS_MAX = 16  # so many of the others are enough to see which address leads to them


def has_ipv6() -> bool:
    """Whether this system has sockets of that family."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM):
            return True
    except OSError:
        return False


def hosts_of(address: Address, listen: str) -> list[str]:
    """The IP addresses that a host stands for, of a family that one who listens at `listen` has.

    Raises:
        OSError, UnicodeError: the name is unknown.
    """
    return _usable(socket.getaddrinfo(*address, type=socket.SOCK_DGRAM), listen)


def own_address(others: Sequence[Address], listen: str) -> str | None:
    """Our address on the way to the first of these that there is a way to; None where there is none.

    Raises:
        BootstrapUnreachable: each is a name, and none of them is known.
    """
    unknown: dict[Address, str] = {}
    for other in others:
        try:
            hosts = hosts_of(other, listen)
        except (OSError, UnicodeError) as error:
            unknown[other] = (error.strerror if isinstance(error, OSError) else None) or str(error)
            continue
        own = next(filter(None, (_way_to((host, other[1])) for host in hosts)), None)
        if own is not None:
            return own
    if len(unknown) == len(others):
        from dhtcrawl.rpc.discovery.server import unreachable  # it brings the network, which no other path here needs

        raise unreachable(others, unknown)
    return None


class OwnHosts:
    """The IP addresses of this node that others may be told, as of now, the best first."""

    def __init__(self, listen: str, name: str | None) -> None:
        """With a `name`, what it stands for; without one, those that lead to the others."""
        self._listen = listen
        self._name = name
        self.is_known = name is None  # whether a name server has ever answered for the name
        self._found: list[str] = []
        self._asked_at: float | None = None

    async def __call__(self, others: Sequence[Address]) -> Sequence[str]:
        """Empty where nothing is known now: the name is unknown, or there is no way to any of the others."""
        if self._name is None:
            ways = [_way_to(other) for other in others[:WAYS_MAX]]
            return list(dict.fromkeys(filter(None, ways)))
        loop = asyncio.get_running_loop()
        if self._asked_at is None or loop.time() - self._asked_at >= RESOLVE_EVERY_S:
            self._asked_at = loop.time()
            try:
                found = await loop.getaddrinfo(self._name, 0, type=socket.SOCK_DGRAM)
            except (OSError, UnicodeError):
                return self._found  # what it stood for before; the next time it may be known again
            self.is_known = True
            # Debian's /etc/hosts has a machine's own name as 127.0.1.1, where no other machine finds it.
            self._found = [host for host in _usable(found, self._listen) if not is_loopback(host)]
        return self._found


def _way_to(address: Address) -> str | None:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)
            return canonical_host(str(probe.getsockname()[0]))
    except OSError:
        return None


def _usable(found: Sequence[tuple[object, ...]], listen: str) -> list[str]:
    """The hosts of `getaddrinfo`'s answer that one who listens there can use."""
    families = {"::": (4, 6), "": (4, 6)}.get(listen) or (_version(listen),)
    hosts = [canonical_host(str(sockaddr[0])) for *_, sockaddr in found if isinstance(sockaddr, tuple)]
    return [host for host in dict.fromkeys(hosts) if host is not None and _version(host) in families]


def _version(host: str) -> int:
    address = ip_of(host)
    assert address is not None, "an IP address"
    return address.version
