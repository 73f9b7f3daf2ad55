"""Certificates of members: what OpenSSL makes of them, and what is read from one."""

from __future__ import annotations

import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding

from dhtcrawl.closed.certificate import PeerCertificate, certificate_for, read_certificate
from dhtcrawl.closed.secret import Ring
from dhtcrawl.closed.tls import CERTIFICATE_FILE, SwarmTls

from .members import OTHER, OTHERS, RING, SECRET, Member


def shake_hands(server: SwarmTls, client: SwarmTls | None) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both ends of a TLS connection in memory; without a client's contexts it has no certificate and asks for none."""
    context = client.client if client is not None else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if client is None:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = context.wrap_bio(down, up)
    asked = server.server.wrap_bio(up, down, server_side=True)
    open_ends = [asking, asked]
    while open_ends:
        end = open_ends.pop(0)
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            open_ends.append(end)
    return asking, asked


def test_members_know_each_other_by_their_keys(tmp_path: Path) -> None:
    one, two = Member(tmp_path, 1), Member(tmp_path, 2)
    tls = one.tls(), two.tls()
    asking, asked = shake_hands(*tls)
    assert asking.version() == asked.version() == "TLSv1.3"
    assert tls[1].peer(asking) == PeerCertificate(one.id, RING.used.name)
    assert tls[0].peer(asked) == PeerCertificate(two.id, RING.used.name)
    assert stat.S_IMODE((one.directory / CERTIFICATE_FILE).stat().st_mode) == 0o600


def test_another_secret_or_none_or_tls_1_2_gets_no_connection(tmp_path: Path) -> None:
    one, two = Member(tmp_path, 1), Member(tmp_path, 2)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(one.tls(), two.tls(OTHERS))
    with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        shake_hands(one.tls(), None)
    old = two.tls()
    old.client.minimum_version = ssl.TLSVersion.TLSv1_2
    old.client.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError, match="PROTOCOL"):
        shake_hands(one.tls(), old)


def test_a_client_that_looks_away_is_refused_by_the_server(tmp_path: Path) -> None:
    tls = Member(tmp_path, 2).tls(OTHERS)
    tls.client.verify_mode = ssl.CERT_NONE
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(Member(tmp_path, 1).tls(), tls)


def test_two_secrets_are_accepted_during_a_rotation_and_a_dropped_one_is_not(tmp_path: Path) -> None:
    one, two = Member(tmp_path, 1), Member(tmp_path, 2)
    old, both, new = Ring.of((SECRET,)), Ring.of((SECRET, OTHER)), Ring.of((OTHER, SECRET))
    for ours, theirs in ((old, both), (both, old), (both, new), (new, both), (new, OTHERS), (OTHERS, new)):
        server = one.tls(ours)
        _, asked = shake_hands(server, two.tls(theirs))
        assert server.peer(asked) == PeerCertificate(two.id, theirs.used.name)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(one.tls(OTHERS), two.tls(both))
    # A connection of before the drop: its certificate counts no more.
    _, asked = shake_hands(one.tls(both), two.tls(old))
    assert one.tls(OTHERS).peer(asked) is None


def test_a_certificate_is_good_for_a_month_and_for_clocks_that_are_late() -> None:
    now = datetime(2026, 11, 26, tzinfo=UTC)
    pem = certificate_for(Ed25519PrivateKey.from_private_bytes(bytes(32)).public_key(), RING.used, now, 5)
    found = x509.load_pem_x509_certificate(pem)
    assert found.not_valid_before_utc == now - timedelta(days=1)
    assert found.not_valid_after_utc == now + timedelta(days=30)


def test_what_is_no_members_certificate_reads_as_none(tmp_path: Path) -> None:
    member = Member(tmp_path, 1)
    member.tls()
    der = ssl.PEM_cert_to_DER_cert((member.directory / CERTIFICATE_FILE).read_text())
    found = read_certificate(der)
    assert found == PeerCertificate(member.id, RING.used.name)
    assert read_certificate(b"") is None
    assert read_certificate(der[:-1]) is None
    for place in range(0, len(der), 3):
        changed = bytearray(der)
        changed[place] ^= 0x41
        read_certificate(bytes(changed))  # OpenSSL has refused it before; here it only must not raise
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "dhtcrawl swarm x")])
    now = datetime(2026, 1, 1, tzinfo=UTC)
    key = X25519PrivateKey.generate().public_key()
    foreign = x509.CertificateBuilder(name, name, key, 1, now, now).sign(member.key, None)
    assert read_certificate(foreign.public_bytes(Encoding.DER)) is None
