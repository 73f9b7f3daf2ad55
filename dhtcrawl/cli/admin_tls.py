"""TLS of a node's admin port: the certificate that the node shows, and by which commands know it.

A command is given the node's certificate and takes no other, whoever signed it: there is nothing to set up but to copy
the file, and an address may change.
"""

from __future__ import annotations

import hashlib
import ssl
from pathlib import Path
from typing import Final

from dhtcrawl.config import Config
from dhtcrawl.errors import AdminRefused

_CERTIFICATE: Final = "node.admin_cert"
_KEY: Final = "node.admin_key"
_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_END: Final = "-----END CERTIFICATE-----"


def server_context(config: Config) -> ssl.SSLContext | None:
    """What the node's admin port speaks TLS with; None where it has no certificate.

    Raises:
        UsageError, ConfigError: the certificate or the key cannot be used; by whether an option named it.
        AdminRefused: others can read the key.
    """
    node = config.node
    if not node.admin_cert:
        if node.admin_key:
            raise config.refusal(_KEY, ": a key without a certificate; name that with --admin-cert FILE")
        return None
    key = Path(node.admin_key or node.admin_cert)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2  # what browsers and Prometheus speak
    try:
        mode = key.stat().st_mode
        context.load_cert_chain(node.admin_cert, key)
    except OSError as error:  # also what OpenSSL says of a file
        named = _KEY if node.admin_key else _CERTIFICATE
        raise config.refusal(
            named,
            f" {key}: cannot be used with {node.admin_cert} ({_reason(error)}); "
            "use a certificate and its key without a password, both PEM",
        ) from error
    if mode & 0o077:
        raise AdminRefused(f"{key} can be read by others; run: chmod 600 {key}")
    return context


def fingerprint_of(config: Config) -> bytes | None:
    """SHA-256 of the certificate that the node to ask shows; None where none is named.

    Raises:
        UsageError, ConfigError: it cannot be read, or is no certificate; by whether an option named it.
    """
    if not config.node.admin_cert:
        return None
    path = Path(config.node.admin_cert)
    try:
        text = path.read_text("latin-1")  # around certificates there may be anything
        # The first is the node's own, as OpenSSL takes it; after it may come those that signed it.
        first = text[text.index(_BEGIN) :]
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(first[: first.index(_END)] + _END)).digest()
    except OSError as error:
        raise config.refusal(_CERTIFICATE, f" {path}: cannot be read ({_reason(error)}); check the path") from error
    except ValueError as error:
        raise config.refusal(_CERTIFICATE, f" {path}: is no certificate; name the node's, PEM") from error


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "not PEM").lower().replace("_", " ")
    return str(error.strerror)
