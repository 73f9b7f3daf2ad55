"""TLS of the admin port: the certificate that a node shows, and that a command takes no other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from web.fake import FakeNode, running

from dhtcrawl.cli.admin_tls import fingerprint_of, server_context
from dhtcrawl.config import Config, load
from dhtcrawl.errors import AdminRefused, UsageError
from dhtcrawl.web.admin import Access

from .conftest import Here


def certificate(path: Path) -> Path:
    """A self-signed certificate with its key, in one file."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a crawler")])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pem = made.public_bytes(serialization.Encoding.PEM)
    pem += key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(pem)
    path.chmod(0o600)
    return path


def config_of(**paths: Path) -> Config:
    flags = {f"node.{name}": str(path) for name, path in paths.items()}
    return load(flags=flags, options={key: f"--{key[5:].replace('_', '-')}" for key in flags})


@pytest.fixture
def pem(tmp_path: Path) -> Path:
    return certificate(tmp_path / "admin.pem")


@pytest.fixture
def encrypted(node: FakeNode, pem: Path) -> Iterator[str]:
    """The address of a node that shows the certificate in `pem`."""
    with running(node, Access(tls=server_context(config_of(admin_cert=pem)))) as address:
        yield address


# -- the files --


def test_without_a_certificate_there_is_no_tls() -> None:
    assert (server_context(Config()), fingerprint_of(Config())) == (None, None)


def test_the_key_may_be_in_another_file(pem: Path, tmp_path: Path) -> None:
    certificates, mark, key = pem.read_text().partition("-----BEGIN PRIVATE KEY-----")
    (tmp_path / "cert.pem").write_text(certificates)  # which everybody may read
    (tmp_path / "key.pem").write_text(mark + key)
    (tmp_path / "key.pem").chmod(0o600)
    apart = config_of(admin_cert=tmp_path / "cert.pem", admin_key=tmp_path / "key.pem")
    assert server_context(apart) is not None
    assert fingerprint_of(apart) == fingerprint_of(config_of(admin_cert=pem))


def test_a_certificate_is_found_behind_its_key_or_any_text(pem: Path, tmp_path: Path) -> None:
    certificates, mark, key = pem.read_text().partition("-----BEGIN PRIVATE KEY-----")
    for before in (mark + key, "Subject: O = Übungen\n"):  # as of openssl x509 -text
        other = tmp_path / "other.pem"
        other.write_text(before + certificates + mark + key)
        other.chmod(0o600)
        assert server_context(config_of(admin_cert=other)) is not None
        assert fingerprint_of(config_of(admin_cert=other)) == fingerprint_of(config_of(admin_cert=pem))


def test_a_key_that_others_can_read_is_refused(pem: Path) -> None:
    pem.chmod(0o644)
    with pytest.raises(AdminRefused, match=f"chmod 600 {pem}") as caught:
        server_context(config_of(admin_cert=pem))
    assert caught.value.exit_code == 32


def test_what_is_no_certificate_with_its_key_is_told(pem: Path, tmp_path: Path) -> None:
    other, empty = certificate(tmp_path / "other.pem"), tmp_path / "empty.pem"
    empty.write_text("")
    for named, says in (
        ({"admin_cert": tmp_path / "missing.pem"}, "--admin-cert .*missing.pem: cannot be used with .*No such file"),
        ({"admin_cert": empty}, "--admin-cert .*both PEM"),
        ({"admin_cert": pem, "admin_key": other}, "--admin-key .*other.pem: cannot be used with .*admin.pem"),
        ({"admin_key": pem}, "--admin-key: a key without a certificate; name that with --admin-cert FILE"),
    ):
        with pytest.raises(UsageError, match=says) as caught:
            server_context(config_of(**named))
        assert "\n" not in str(caught.value)
    for path, says in ((empty, "is no certificate"), (tmp_path, "cannot be read"), (tmp_path / "no", "cannot be read")):
        with pytest.raises(UsageError, match=f"--admin-cert {path}: {says}"):
            fingerprint_of(config_of(admin_cert=path))


# -- commands and browsers --


def test_a_command_asks_the_node_that_shows_the_certificate(here: Here, encrypted: str, pem: Path) -> None:
    ended = here("status", "--json", "--admin", encrypted, "--admin-cert", pem)
    assert (ended.code, "node" in json.loads(ended.stdout)) == (0, True)


def test_a_command_takes_no_other_certificate(here: Here, encrypted: str, node: FakeNode, tmp_path: Path) -> None:
    other = certificate(tmp_path / "other.pem")
    ended = here("status", "--admin", encrypted, "--admin-cert", other)
    assert (ended.code, "shows another certificate than --admin-cert" in ended.message()) == (32, True)
    ended = here("leave", "--admin", encrypted)
    assert (ended.code, "--admin-cert" in ended.message()) == (1, True)
    assert node.asked == []


def test_a_node_that_speaks_no_tls_is_not_asked_by_it(here: Here, admin: str, node: FakeNode, pem: Path) -> None:
    ended = here("leave", "--admin", admin, "--admin-cert", pem)
    assert ended.code == 1
    assert ended.message().startswith(f"dhtcrawl: no node answers at {admin}")
    assert node.asked == []


@pytest.mark.loops("asyncio")
async def test_the_pages_own_address_is_https_there(node: FakeNode, pem: Path) -> None:
    def statuses(address: str) -> list[int]:
        async def main() -> list[int]:
            async with aiohttp.ClientSession() as session:
                found = []
                for origin in (f"https://{address}", f"http://{address}"):
                    url, headers = f"https://{address}/api/v1/leave", {"Origin": origin}
                    async with session.post(url, headers=headers, ssl=False) as answer:
                        found.append(answer.status)
                return found

        return asyncio.run(main())

    with running(node, Access(tls=server_context(config_of(admin_cert=pem)))) as address:
        assert await asyncio.to_thread(statuses, address) == [200, 403]
