"""Exceptions of aiohttp, ssl and the system as failures, by table.

Only `aiohttp_client` calls this. A detail is one line for people: it never
carries more of the server's bytes than `DETAIL_CHARS_MAX` printable ones.
"""

from __future__ import annotations

import errno
import ssl

import aiohttp

from dhtcrawl.fetch.http import FetchFailureKind
from dhtcrawl.fetch.replies import BadReply
from dhtcrawl.fetch.resolver import NameFailure

DETAIL_CHARS_MAX = 200


class AddressRefused(OSError):
    """The address guard says no; the message names host and address."""


# What may come out of a request besides cancellation. ValueError: aiohttp and
# ssl refuse some URLs and host names with it; RuntimeError: a read of a
# connection that went away meanwhile.
REQUEST_ERRORS = (BadReply, aiohttp.ClientError, OSError, ValueError, RuntimeError)

_CONNECT_DETAILS = {
    errno.ECONNREFUSED: "connection refused",
    errno.ECONNRESET: "connection reset while it was made",
    errno.ENETUNREACH: "network is unreachable",
    errno.EHOSTUNREACH: "host is unreachable",
    errno.ETIMEDOUT: "no answer to the connection attempt",
    errno.EMFILE: "too many open files on this machine; raise `ulimit -n` or lower the concurrency",
    errno.ENFILE: "too many open files on this machine",
}

# The first row that fits decides: subclasses stand before their bases.
_KINDS: tuple[tuple[type[BaseException], FetchFailureKind], ...] = (
    (AddressRefused, FetchFailureKind.PRIVATE_ADDRESS),
    (NameFailure, FetchFailureKind.DNS),
    (ssl.SSLError, FetchFailureKind.TLS),
    (ssl.CertificateError, FetchFailureKind.TLS),
    (aiohttp.ClientConnectorDNSError, FetchFailureKind.DNS),
    (aiohttp.ClientConnectorCertificateError, FetchFailureKind.TLS),
    (aiohttp.ClientConnectorSSLError, FetchFailureKind.TLS),
    (aiohttp.ClientConnectorError, FetchFailureKind.CONNECT),
    (aiohttp.ServerDisconnectedError, FetchFailureKind.DISCONNECTED),
    (aiohttp.ClientOSError, FetchFailureKind.DISCONNECTED),
    (aiohttp.ClientConnectionError, FetchFailureKind.DISCONNECTED),
    (aiohttp.ClientResponseError, FetchFailureKind.PROTOCOL),
    (ConnectionError, FetchFailureKind.DISCONNECTED),
    (OSError, FetchFailureKind.CONNECT),
)


def failure_of(error: BaseException) -> tuple[FetchFailureKind, str]:
    """What kind of failure an exception stands for, and one line about it."""
    if isinstance(error, BadReply):
        return error.kind, one_line(error.detail)
    # Innermost first: aiohttp's wrappers know less than what they wrap.
    chain = _chain(error)[::-1]
    for wanted, kind in _KINDS:
        for link in chain:
            if isinstance(link, wanted):
                return kind, _detail(kind, link)
    return FetchFailureKind.PROTOCOL, one_line(f"the request cannot be sent: {error}")


def _detail(kind: FetchFailureKind, error: BaseException) -> str:
    if kind is FetchFailureKind.DISCONNECTED:
        return "the server closed the connection before a complete response head"
    if kind is FetchFailureKind.PROTOCOL:
        message = error.message if isinstance(error, aiohttp.ClientResponseError) else str(error)
        return one_line(f"not HTTP: {message}")
    if kind is FetchFailureKind.TLS:
        return _tls_detail(error)
    if kind is FetchFailureKind.CONNECT:
        number = error.errno if isinstance(error, OSError) else None
        return _CONNECT_DETAILS.get(number or 0, one_line(f"cannot connect: {error}"))
    return one_line(str(error))


def _tls_detail(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError) and error.verify_message:
        return one_line(error.verify_message)
    if isinstance(error, ssl.SSLError) and error.reason:
        return one_line("TLS handshake failed: " + error.reason.lower().replace("_", " "))
    return one_line(f"TLS handshake failed: {error}")


def one_line(text: str) -> str:
    """The first line of `text`, printable and short."""
    lines = text.strip().splitlines()
    line = lines[0].rstrip(": ") if lines else ""
    return "".join(char if char.isprintable() else "?" for char in line[:DETAIL_CHARS_MAX])


def _chain(error: BaseException) -> list[BaseException]:
    """The exception and what it was raised from, outermost first."""
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain and len(chain) < 8:
        chain.append(link)
        link = link.__cause__
    return chain
