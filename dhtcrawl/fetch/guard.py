"""Which addresses a crawler may connect to, without I/O.

A page may link to whatever its author likes, and a name may resolve to
whatever its owner likes, so a crawler that connects to private addresses
lends strangers its place in the network (server-side request forgery). The
client asks `permits` for each address it is about to connect to, and again
for the address it is connected to.

A crawl may come from another machine, so what it allows is not enough: a
private address is reached only where the crawl allows its host, and the node
the network that it is in.

`is_public` is stricter than `ipaddress.is_global`: an address that carries
another one inside (IPv4-mapped, 6to4, Teredo, NAT64) is as private as the
innermost, since a translator on the way would deliver to that.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final, NamedTuple, Self

from dhtcrawl.units import Network, parse_networks

# RFC 6052: the well-known prefix whose last 32 bits are the IPv4 address.
_NAT64 = IPv6Network("64:ff9b::/96")
# RFC 8215: the same for use within one network; its embedded address can lie
# at several offsets, so the whole prefix is refused.
_NAT64_LOCAL = IPv6Network("64:ff9b:1::/48")
# RFC 4291, 2.5.5.1: deprecated, still routed to IPv4 by some stacks.
_IPV4_COMPATIBLE = IPv6Network("::/96")
# RFC 3879: deprecated site-local addresses; `ipaddress` calls them global.
_SITE_LOCAL = IPv6Network("fec0::/10")

_CACHE_ADDRESSES = 16_384


class PrivateNetworks(NamedTuple):
    """Where a node may go besides the public internet; None: wherever a crawl allows."""

    networks: tuple[Network, ...] | None

    @classmethod
    def named(cls, words: Iterable[str]) -> Self:
        """What these words of a setting name.

        Raises:
            ValueError: one names nothing.
        """
        return cls(tuple(network for word in words if word for network in parse_networks(word)))

    def have(self, ip: str) -> bool:
        """Whether `ip` is in one of them; of an address that carries another one, the innermost counts."""
        if self.networks is None:
            return True
        try:
            address = ip_address(ip)
        except ValueError:
            return False
        inner = _inner_v4(address) if isinstance(address, IPv6Address) else None
        return any((inner or address) in network for network in self.networks)


AS_CRAWLS_ALLOW: Final = PrivateNetworks(None)


def permits(host: str, ip: str, private_hosts: frozenset[str], networks: PrivateNetworks = AS_CRAWLS_ALLOW) -> bool:
    """Whether a request to `host` (`hostname[:non-default port]`) may go to `ip`.

    `private_hosts` are the hosts that seeds named under --allow-private, `networks` those that the node may reach.
    """
    return is_public(ip) or (host in private_hosts and networks.have(ip))


# Whoever tells people why a seed brought nothing finds by it which machine has to allow more.
NODE_REFUSES: Final = "not the node that was to fetch it"


def refusal(host: str, ip: str, private_hosts: frozenset[str]) -> str:
    """Why `permits` says no, for people."""
    if host in private_hosts:
        return f"{host} is at {ip}, which the crawl allows, but {NODE_REFUSES} (node.private_networks)"
    return f"{host} is at {ip}, which is not a public address"


@lru_cache(maxsize=_CACHE_ADDRESSES)
def is_public(ip: str) -> bool:
    """Whether `ip` is an address of the public internet; False for no address at all."""
    try:
        address = ip_address(ip)
    except ValueError:
        return False
    if isinstance(address, IPv6Address):
        return _is_public_v6(address)
    return _is_public_v4(address)


def _is_public_v4(address: IPv4Address) -> bool:
    # `is_global` follows the IANA registry: not private, loopback, link-local
    # (169.254.169.254 hands out cloud credentials), 100.64/10 or 240/4.
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


def _is_public_v6(address: IPv6Address) -> bool:
    # A scope names an interface of this machine: never the internet.
    if address.scope_id is not None:
        return False
    inner = _inner_v4(address)
    if inner is not None:
        return _is_public_v4(inner)
    if address in _NAT64_LOCAL or address in _SITE_LOCAL:
        return False
    return address.is_global and not (
        address.is_multicast or address.is_reserved or address.is_unspecified or address.is_link_local
    )


def _inner_v4(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that a translator would deliver to."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    # `::` and `::1` stand in the compatible range and are none (RFC 4291, 2.5.2 and 2.5.3).
    if address in _NAT64 or (address in _IPV4_COMPATIBLE and int(address) > 1):
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return None
