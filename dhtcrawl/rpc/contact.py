"""A contact: who (160-bit id) and where (IP address, UDP port), and how to read one from a stranger.

A contact on the wire is `[id, host, port]`, a triple and never more: the stock
library unpacks exactly three. What cannot be one is dropped here, so that
nothing behind this module meets a malformed id.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, ip_network
from typing import NamedTuple

from dhtcrawl.keyspace import KEY_BYTES
from dhtcrawl.units import PORT_MAX, ip_of

KEY_BITS = 8 * KEY_BYTES
HOST_CHARS_MAX = 64  # an IPv6 address is 39, and a zone may follow
# Other implementations may use a larger k; more than this in a reply is not looked at.
CONTACTS_IN_REPLY_MAX = 64

Address = tuple[str, int]


class Contact(NamedTuple):
    """A node's id and address. msgpack writes it as the triple of the wire."""

    id: bytes
    host: str
    port: int

    @property
    def address(self) -> Address:
        return self.host, self.port

    @property
    def number(self) -> int:
        return int.from_bytes(self.id, "big")


def parse_id(value: object) -> bytes | None:
    """`value` if it is an id or key, else None."""
    return value if isinstance(value, bytes) and len(value) == KEY_BYTES else None


@lru_cache(maxsize=4096)
def canonical_host(text: str) -> str | None:
    """The one form of an IP address that can be written to, else None. IPv4 mapped into IPv6 becomes IPv4."""
    address = ip_of(text) if len(text) <= HOST_CHARS_MAX else None
    if address is None or address.is_multicast or address.is_unspecified:
        return None
    # 240.0.0.0/4, and with it the broadcast address.
    if isinstance(address, IPv4Address) and address.is_reserved:
        return None
    return str(address)


@lru_cache(maxsize=4096)
def network_of(host: str) -> str:
    """The network that an address is in, as far as one owner goes: 256 addresses of IPv4, a /48 of IPv6."""
    address = ip_of(host)
    if address is None:
        return host
    return str(ip_network((address, 24 if address.version == 4 else 48), strict=False))


@lru_cache(maxsize=4096)
def source_of(host: str) -> str:
    """Who shares one bound: an address, or the network of 64 bits that a subscriber of IPv6 has."""
    known = canonical_host(host) or host
    return str(ip_network((known, 64), strict=False)) if ip_of(known) is not None and ":" in known else known


@lru_cache(maxsize=4096)
def is_own_machine(host: str) -> bool:
    """Whether it is a loopback address: of programs on this machine."""
    address = ip_of(canonical_host(host) or host)
    return address is not None and address.is_loopback


def parse_contact(value: object) -> Contact | None:
    """One contact from a decoded message, else None. Further elements are ignored."""
    if not isinstance(value, list) or len(value) < 3:
        return None
    node_id, host, port = parse_id(value[0]), value[1], value[2]
    # A bool is an int to Python, but not a port.
    if node_id is None or not isinstance(host, str) or type(port) is not int or not 0 < port <= PORT_MAX:
        return None
    known = canonical_host(host)
    return None if known is None else Contact(node_id, known, port)


def parse_contacts(value: object) -> tuple[list[Contact], int]:
    """The contacts of a FIND_NODE reply and how many of its entries were none."""
    if not isinstance(value, list):
        return [], 0 if value is None else 1
    parsed = [parse_contact(entry) for entry in value[:CONTACTS_IN_REPLY_MAX]]
    contacts = [contact for contact in parsed if contact is not None]
    return contacts, len(value) - len(contacts)
