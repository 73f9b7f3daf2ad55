"""How people write durations, sizes and addresses, what they are told when it is none, and how a size is told.

Each `parse_…` takes what a flag, a variable or a TOML file may hold;
`dhtcrawl.config` says which setting it was.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

INT_MAX: Final = 2**63 - 1  # what a stored record can carry
DURATION_MAX_S: Final = 1e9  # some 30 years: timers take it
PORT_MAX: Final = 65_535
HOST_CHARS_MAX: Final = 253  # RFC 1035, 2.3.4, without the last dot

Address = tuple[str, int]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_DURATION_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "": 1.0}
_SIZE_BYTES: Final = {
    "": 1, "b": 1, "k": 1000, "kb": 1000, "m": 1000**2, "mb": 1000**2, "g": 1000**3, "gb": 1000**3, "tb": 1000**4,
    "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
}  # fmt: skip
_SIZES: Final = ("kB", "MB", "GB", "TB", "PB", "EB")
_NUMBER: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*([A-Za-z]*)\s*")
_NAME: Final = r"[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*\.?"  # or IPv4; labels: RFC 1035, 2.3.4
_ADDRESS: Final = re.compile(rf"(?:\[([0-9A-Fa-f:.]+)\]|({_NAME})):([0-9]{{1,5}})")
_ENDS_IN_A_NUMBER: Final = re.compile(r"(?:^|\.)[0-9]+\.?$")  # which no name does (URL Standard, 3.5)
_ADDRESS_HINT: Final = "use HOST:PORT, such as 127.0.0.1:8468 or [::1]:8468"


def parse_duration(value: object) -> float:
    """Seconds from `2`, `"1.5s"`, `"200ms"`, `"10m"`, `"2h"`, `"1d"`.

    Raises:
        ValueError: with what would be right.
    """
    seconds = _scaled(value, _DURATION_S, 'use a duration such as "10s", "200ms" or "2h"')
    if seconds > DURATION_MAX_S:
        raise ValueError('use a shorter duration, "10000d" at most')
    return seconds


def parse_size(value: object) -> int:
    """Bytes from `4096`, `"2MiB"`, `"1.5GB"`.

    Raises:
        ValueError: with what would be right.
    """
    size = _scaled(value, _SIZE_BYTES, 'use a size such as "10MiB" or "2GB"')
    if size > INT_MAX:
        raise ValueError('use a smaller size, such as "100TB"')
    return int(size)


def parse_disk_limit(value: object) -> str:
    """A size of the data, a share of the disk, or "": as it was written, once it is known to be one.

    Raises:
        ValueError: with what would be right.
    """
    text = str(value).strip()
    if not text:
        return ""
    if text.endswith("%"):
        try:
            percent = float(text[:-1])
        except ValueError:
            percent = 0
        if not 0 < percent <= 100:
            raise ValueError('use a share such as "90%"')
        return text
    if parse_size(text) <= 0:
        raise ValueError('use a size such as "20GiB" or a share such as "90%"')
    return text


def parse_address(value: object) -> Address:
    """Host and port of `127.0.0.1:8468`, `[::1]:8468` or `node.example.org:8468`; port 0 is one.

    Raises:
        ValueError: with what would be right.
    """
    match = _ADDRESS.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or int(match[3]) > PORT_MAX:
        raise ValueError(_ADDRESS_HINT)
    host = match[1] or match[2]
    if match[1] is not None:
        try:
            address = ipaddress.IPv6Address(host)
        except ValueError:
            raise ValueError(_ADDRESS_HINT) from None
        host = str(address.ipv4_mapped or address)
    elif len(host) > HOST_CHARS_MAX or (_ENDS_IN_A_NUMBER.search(host) and ip_of(host) is None):
        raise ValueError(_ADDRESS_HINT)
    return host, int(match[3])


def format_address(address: Address) -> str:
    """What `parse_address` reads."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def ip_of(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """An IP address, IPv4 where it is mapped into IPv6; None where the text is none."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return (isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped) or address


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches `host`, an IP address or a name. Of names only `localhost` is sure to be."""
    address = ip_of(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def is_wildcard(host: str) -> bool:
    """Whether listening on `host` means every address of this machine."""
    address = ip_of(host)
    return address is not None and address.is_unspecified


LOOPBACK_NETWORKS: Final[tuple[Network, ...]] = (
    ipaddress.IPv4Network("127.0.0.0/8"), ipaddress.IPv6Network("::1/128"),
)  # fmt: skip
_NETWORK_HINT = 'use a network such as "10.1.0.0/16", an address, "loopback" or "none"'
_IPV4_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")  # RFC 4291, 2.5.5.2


def parse_networks(text: str) -> tuple[Network, ...]:
    """The networks that one word names: CIDR, an address, `loopback`, or `none`, which names none.

    Raises:
        ValueError: with what would be right.
    """
    word = text.strip().lower()
    if word in ("loopback", "none"):
        return LOOPBACK_NETWORKS if word == "loopback" else ()
    try:
        network = ipaddress.ip_network(word, strict=False)
    except ValueError:
        raise ValueError(_NETWORK_HINT) from None
    if "%" in word:
        raise ValueError("a network of one interface; leave out what follows the %, it counts for all of them")
    if "/" in word and ipaddress.ip_interface(word).ip != network.network_address:
        raise ValueError(f'an address inside of a network; use "{network}" for the network')
    if isinstance(network, ipaddress.IPv6Network) and network.overlaps(_IPV4_MAPPED) and network.prefixlen >= 96:
        raise ValueError("IPv4 written as IPv6; write it as IPv4")
    return (network,)


def _scaled(value: object, units: Mapping[str, float], hint: str) -> float:
    if isinstance(value, bool):
        raise ValueError(hint)
    # A small float is `1e-05` to `str`; this way it is read as the number that it is.
    match = _NUMBER.fullmatch(format(Decimal(value), "f") if isinstance(value, float) else str(value))
    if match is None or match[2].lower() not in units:
        raise ValueError(hint)
    return float(match[1]) * units[match[2].lower()]


def size(count: int) -> str:
    """A size as a person reads it: `812 B`, `3.4 MB`."""
    if count < 1000:
        return f"{count} B"
    value, units = count / 1000, iter(_SIZES)
    unit = next(units)
    while value >= 999.95 and unit != _SIZES[-1]:
        value, unit = value / 1000, next(units)
    return f"{value:.1f} {unit}"
