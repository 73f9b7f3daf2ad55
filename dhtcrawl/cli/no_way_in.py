"""Why nobody answered a node that wants to join: another secret, none, an open swarm, its own address, or nobody there.

Members of a closed swarm drop the datagrams of strangers without a word. Their
TCP port shows a certificate, though, whose issuer names the secret, and tells
a stranger's certificate from a member's.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from typing import Final

from dhtcrawl.cli.addresses import JoinOptions
from dhtcrawl.closed.certificate import read_certificate
from dhtcrawl.closed.tls import SwarmTls
from dhtcrawl.errors import BootstrapUnreachable, SecretRefused
from dhtcrawl.units import Address, format_address, ip_of, is_loopback

TIMEOUT_S: Final = 3.0
_ASKED_MAX: Final = 4


def why_refused(bootstrap: Sequence[Address], tls: SwarmTls | None, own_name: str) -> SecretRefused | None:
    """What to tell of the first of these nodes that has another secret than ours, or we none; None for other reasons.

    `own_name` is that of our secret, "" without.
    """
    for address in bootstrap[:_ASKED_MAX]:
        problem = _problem(address, tls, own_name)
        if problem:
            return SecretRefused(f"--bootstrap {format_address(address)}: {problem}")
    return None


def why_unanswered(join: JoinOptions) -> BootstrapUnreachable | None:
    """What to tell of a node by whose own addresses none of the others could answer; None where they could."""
    bootstrap = ", ".join(map(format_address, join.bootstrap))
    own = (join.listen,) if join.advertise is None else (join.listen, join.advertise)
    if set(join.bootstrap) <= set(own):
        return BootstrapUnreachable(
            f"--bootstrap {bootstrap}: that is this node itself; name another node, or none to begin a swarm"
        )
    listen = ip_of(join.listen[0])
    if listen is not None and listen != ip_of("::") and not _has_family(listen.version, join.bootstrap):
        return BootstrapUnreachable(
            f"bootstrap: no answer from {bootstrap}; --listen {format_address(join.listen)} is IPv{listen.version}, "
            "as they are not: listen on an address of their family"
        )
    if not is_loopback(join.listen[0]) or all(is_loopback(host) for host, _ in join.bootstrap):
        return None
    return BootstrapUnreachable(
        f"bootstrap: no answer from {bootstrap}; --listen {format_address(join.listen)} leads to this machine alone: "
        "leave it out, or name an address that other machines reach"
    )


def _has_family(version: int, bootstrap: Sequence[Address]) -> bool:
    """Whether one of these may have an address of this family; a name may have either."""
    return any(address is None or address.version == version for address in (ip_of(host) for host, _ in bootstrap))


def _problem(address: Address, tls: SwarmTls | None, own_name: str) -> str:
    try:
        theirs = _secret_of(address)
    except ssl.SSLError:
        theirs = None
    except OSError:
        return ""  # nobody there
    if theirs is None:
        return (
            ""
            if tls is None
            else ("what listens there is in no closed swarm, and we have a secret; leave it out to join an open swarm")
        )
    if tls is None:
        return f"it is in a closed swarm, whose secret {theirs} we do not have; name its file with --secret-file"
    if theirs not in tls.accepted:
        return f"its secret is {theirs}, ours {own_name}; use the secret of that swarm"
    try:
        if _is_let_in(address, tls):
            return ""
    except ssl.SSLCertVerificationError as error:
        return f"its certificate cannot be used ({error.verify_message}); are the clocks of both machines right?"
    except OSError:
        return ""  # it is busy, or gone by now
    return f"it does not let us in: it dropped our secret {own_name} for {theirs}, or this node is banned there"


def _secret_of(address: Address) -> str | None:
    """The name of the secret of the node there; None for what is no node of a closed swarm."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # to read, and to trust nothing
    with socket.create_connection(address, TIMEOUT_S) as plain, context.wrap_socket(plain) as connection:
        der = connection.getpeercert(binary_form=True)
        certificate = None if der is None else read_certificate(der)
        return None if certificate is None else certificate.secret


def _is_let_in(address: Address, tls: SwarmTls) -> bool:
    """Whether the node there takes us for a member; who says nothing in time is busy, and has refused nobody.

    Raises:
        OSError: there is no handshake; `ssl.SSLCertVerificationError` where its certificate is not to be used.
    """
    with socket.create_connection(address, TIMEOUT_S) as plain, tls.client.wrap_socket(plain) as connection:
        try:
            # A server looks at our certificate after we have seen its own: its refusal comes with what we read.
            return bool(connection.recv(1))
        except TimeoutError:
            return True
        except OSError:
            return False
