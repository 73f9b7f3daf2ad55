"""The certificates of a closed swarm: each member signs one for its own key, as any holder of the secret can. Pure.

    authority   Ed25519, its seed is derived from the secret; every member makes the same one for itself
    member      Ed25519, the node's own key, of which its id is the digest; signed at each start

Who holds the secret can sign for any key, but owns no other node's: that a
connection is with the node that it greets as follows from the key, not from the
name in the certificate.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dhtcrawl.closed.secret import SwarmKeys
from dhtcrawl.keyspace import node_id_of

VALID: Final = timedelta(days=30)
_BACKDATED: Final = timedelta(days=1)  # clocks differ
_AUTHORITY_FROM, _AUTHORITY_UNTIL = datetime(2020, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)
_AUTHORITY: Final = "dhtcrawl swarm "
_KEY_USES: Final = (
    "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
    "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PeerCertificate:
    """What a certificate says, once TLS has found its signature to be an accepted authority's."""

    node_id: bytes  # of its key
    secret: str  # the name of the secret whose authority signed it


def authority_of(keys: SwarmKeys) -> bytes:
    """The certificate, PEM, by which members of a swarm know each other's."""
    key = Ed25519PrivateKey.from_private_bytes(keys.ca_seed)
    name = _name(_AUTHORITY + keys.name)
    builder = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, _AUTHORITY_FROM, _AUTHORITY_UNTIL)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage("key_cert_sign"), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return builder.sign(key, None).public_bytes(Encoding.PEM)


def certificate_for(public_key: Ed25519PublicKey, keys: SwarmKeys, now: datetime, serial: int) -> bytes:
    """A certificate, PEM, for a member's key; `serial` is random, 1 to 2^159 - 1."""
    authority = Ed25519PrivateKey.from_private_bytes(keys.ca_seed)
    name = _name(node_id_of(public_key.public_bytes_raw()).hex())
    issuer = _name(_AUTHORITY + keys.name)
    uses = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    authority_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
    builder = (
        x509.CertificateBuilder(issuer, name, public_key, serial, now - _BACKDATED, now + VALID)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage("digital_signature"), critical=True)
        .add_extension(uses, critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        .add_extension(authority_id, critical=False)
    )
    return builder.sign(authority, None).public_bytes(Encoding.PEM)


def read_certificate(der: bytes) -> PeerCertificate | None:
    """What a peer's certificate says; None for one that is no member's."""
    try:
        certificate = x509.load_der_x509_certificate(der)
        key = certificate.public_key()
        issuer = certificate.issuer.get_attributes_for_oid(NameOID.COMMON_NAME)
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion):
        return None
    if not isinstance(key, Ed25519PublicKey) or len(issuer) != 1:
        return None
    name = issuer[0].value
    if not isinstance(name, str) or not name.startswith(_AUTHORITY):
        return None
    return PeerCertificate(node_id_of(key.public_bytes_raw()), name.removeprefix(_AUTHORITY))


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _key_usage(use: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{name: name == use for name in _KEY_USES})
