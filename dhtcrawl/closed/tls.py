"""TLS 1.3 between the members of a closed swarm, both ends with a certificate of the swarm's.

A member's key is its `identity.pem`; the certificate for it is signed anew at
each start, and again long before it expires (`dhtcrawl.closed.certificate`).
"""

from __future__ import annotations

import secrets
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from dhtcrawl.closed.certificate import VALID, PeerCertificate, authority_of, certificate_for, read_certificate
from dhtcrawl.closed.secret import Ring
from dhtcrawl.storage.store.files import write_private

CERTIFICATE_FILE: Final = "certificate.pem"
RENEW_S: Final = VALID.total_seconds() / 4
_SERIAL_BITS: Final = 159


@dataclass(frozen=True, slots=True)
class SwarmTls:
    """What a node's connections speak TLS with, at both ends."""

    server: ssl.SSLContext
    client: ssl.SSLContext
    accepted: frozenset[str]  # the names of the secrets
    banned: frozenset[bytes]  # node ids
    made_at: float  # when the certificate was, in seconds since 1970

    @classmethod
    def of(cls, ring: Ring, data_dir: Path, key_file: Path, public_key: Ed25519PublicKey) -> Self:
        """For the node whose key is in `key_file`; its new certificate is written to `data_dir`.

        Raises:
            OSError: it cannot be written.
        """
        serial = secrets.randbits(_SERIAL_BITS) | 1
        certificate = data_dir / CERTIFICATE_FILE
        # OpenSSL reads certificates from files only.
        now = datetime.now(UTC)
        pem = certificate_for(public_key, ring.used, now, serial)
        write_private(certificate, pem, durable=False)
        authorities = b"".join(map(authority_of, ring.keys)).decode("ascii")
        contexts = [ssl.SSLContext(kind) for kind in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT)]
        for context in contexts:
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.check_hostname = False  # a member is who its key says, wherever it is
            context.verify_mode = ssl.CERT_REQUIRED
            context.verify_flags |= ssl.VERIFY_X509_STRICT
            context.options |= ssl.OP_NO_TICKET
            context.load_verify_locations(cadata=authorities)
            context.load_cert_chain(certificate, key_file)
        server, client = contexts
        server.num_tickets = 0  # a session that is taken up again would outlive its secret
        return cls(server, client, frozenset(keys.name for keys in ring.keys), ring.banned, now.timestamp())

    def peer(self, connection: ssl.SSLObject) -> PeerCertificate | None:
        """Who is at the other end; None where it has no certificate that is still accepted, or is banned."""
        der = connection.getpeercert(binary_form=True)
        peer = None if der is None else read_certificate(der)
        if peer is None or peer.secret not in self.accepted or peer.node_id in self.banned:
            return None
        return peer
