"""The node's key on disk: made once, ours alone, refused when it is not what it should be."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dhtcrawl.errors import IdentityError
from dhtcrawl.identity import FILE_NAME, load_or_create, new_keys
from dhtcrawl.keyspace import node_id_of

PLAIN = serialization.NoEncryption()


def write(directory: Path, data: bytes, mode: int = 0o600) -> Path:
    path = directory / FILE_NAME
    path.write_bytes(data)
    path.chmod(mode)
    return path


def pem(
    key: Ed25519PrivateKey | rsa.RSAPrivateKey, encryption: serialization.KeySerializationEncryption = PLAIN
) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


def refusal(directory: Path) -> str:
    with pytest.raises(IdentityError) as caught:
        load_or_create(directory)
    assert int(caught.value.exit_code) == 32
    message = str(caught.value)
    assert str(directory) in message
    assert "\n" not in message
    return message


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_a_new_key_is_readable_by_its_owner_only(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        load_or_create(tmp_path)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / FILE_NAME).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


def test_a_key_is_made_once_and_kept(tmp_path: Path) -> None:
    first = load_or_create(tmp_path)
    content = (tmp_path / FILE_NAME).read_bytes()
    assert len(first) == 20
    assert load_or_create(tmp_path) == first
    assert (tmp_path / FILE_NAME).read_bytes() == content


def test_a_key_is_written_as_the_library_writes_it() -> None:
    written = next(new_keys()).pem
    key = serialization.load_pem_private_key(written, password=None)
    assert isinstance(key, Ed25519PrivateKey)
    assert written == pem(key)


@pytest.mark.parametrize(("ours", "theirs"), [(b"\n", b"\r\n"), (b"-----BEGIN", b"for node 3\n-----BEGIN")])
def test_a_key_that_another_tool_has_written_is_read(ours: bytes, theirs: bytes, tmp_path: Path) -> None:
    key = next(new_keys())
    write(tmp_path, key.pem.replace(ours, theirs))
    assert load_or_create(tmp_path) == key.node_id


def test_two_nodes_have_two_ids(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    assert load_or_create(tmp_path / "a") != load_or_create(tmp_path / "b")


def test_the_id_is_the_digest_of_the_public_key(tmp_path: Path) -> None:
    key = Ed25519PrivateKey.from_private_bytes(bytes(32))
    write(tmp_path, pem(key))
    assert load_or_create(tmp_path) == node_id_of(key.public_key().public_bytes_raw())


def test_what_a_crash_left_half_written_is_no_key(tmp_path: Path) -> None:
    (tmp_path / ".identity.pem.new").write_bytes(b"-----BEGIN")
    (tmp_path / ".identity.pem.new").chmod(0o666)
    assert len(load_or_create(tmp_path)) == 20


@pytest.mark.parametrize("data", [b"", b"garbage", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_garbage_is_refused_and_left_alone(data: bytes, tmp_path: Path) -> None:
    path = write(tmp_path, data)
    assert "is no private key; restore it, or remove it" in refusal(tmp_path)
    assert path.read_bytes() == data


def test_a_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    write(tmp_path, pem(rsa.generate_private_key(65537, 1024)))
    assert "is no Ed25519 key" in refusal(tmp_path)


def test_a_key_with_a_password_is_refused(tmp_path: Path) -> None:
    write(tmp_path, pem(Ed25519PrivateKey.generate(), serialization.BestAvailableEncryption(b"secret")))
    assert "restore it, or remove it" in refusal(tmp_path)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_key_that_others_can_read_is_refused_with_the_remedy(mode: int, tmp_path: Path) -> None:
    path = write(tmp_path, pem(Ed25519PrivateKey.generate()), mode)
    assert refusal(tmp_path).endswith(f"run: chmod 600 {path}")


def test_a_directory_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).mkdir(mode=0o700)
    refusal(tmp_path)


def test_a_data_directory_that_is_missing_is_refused(tmp_path: Path) -> None:
    refusal(tmp_path / "missing")
