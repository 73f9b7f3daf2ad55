"""A swarm's secret: as text, as keys, and as a list of which the first is used."""

from __future__ import annotations

import hashlib
import hmac
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.closed.secret import Ring, SwarmKeys, parse_ring, parse_secret, secret_text
from dhtcrawl.errors import SecretRefused

ONE, TWO = bytes(range(32)), bytes(range(1, 33))
TEXT = secret_text(ONE)


def test_a_secret_is_one_word_of_61_characters() -> None:
    assert len(TEXT) == 61
    assert TEXT.startswith("dhs1-aaaqeayeaudaocajbifqydiob4ibceqtcqkrmfyydenbwha5dyp")


@given(st.binary(min_size=32, max_size=32))
def test_a_secret_is_read_as_it_was_written(secret: bytes) -> None:
    assert parse_secret(secret_text(secret)) == secret
    assert parse_secret(f"  {secret_text(secret).upper()}\r\n") == secret


@pytest.mark.parametrize("place", range(len("dhs1-"), 61))
def test_a_wrong_letter_anywhere_is_noticed_and_not_repeated(place: int) -> None:
    wrong = "a" if TEXT[place] != "a" else "b"
    with pytest.raises(ValueError, match="has a wrong letter") as caught:
        parse_secret(TEXT[:place] + wrong + TEXT[place + 1 :])
    assert TEXT[10:20] not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["", "dhs1-", TEXT[5:], TEXT[:-1], TEXT + "aaaaaaaa", "dhs2" + TEXT[4:], TEXT[:-1] + "1"]
)
def test_what_is_no_secret_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"does not begin|has letters|too short"):
        parse_secret(text)


def test_every_use_has_a_key_of_its_own_derived_as_rfc_5869_says() -> None:
    prk = hmac.digest(b"dhtcrawl swarm v1", ONE, hashlib.sha256)
    ca, dgram, name = (hmac.digest(prk, label + b"\x01", hashlib.sha256) for label in (b"ca", b"dgram", b"name"))
    assert SwarmKeys.of(ONE) == SwarmKeys(name[:8].hex(), name[0], ca, dgram)


def test_nothing_secret_shows_in_a_repr() -> None:
    shown = repr(Ring.of((ONE, TWO)))
    keys = SwarmKeys.of(ONE)
    assert keys.name in shown
    for hidden in (ONE, TWO, keys.ca_seed, keys.datagram_key):
        assert repr(hidden) not in shown
        assert hidden.hex() not in shown


def test_the_first_secret_of_a_list_is_used() -> None:
    ring = parse_ring(f"# ours\n\n{secret_text(TWO)}\n  {TEXT}", "here")
    assert ring.secrets == (TWO, ONE)
    assert ring.used == SwarmKeys.of(TWO)
    assert parse_ring(ring.text(), "here") == ring


def test_a_list_says_who_is_banned() -> None:
    ring = parse_ring(f"{TEXT}\nban {'0A' * 20}\n ban  {'ff' * 20} \n", "here")
    assert ring.secrets == (ONE,)
    assert ring.banned == {b"\n" * 20, b"\xff" * 20}
    assert parse_ring(ring.text(), "here") == ring
    with pytest.raises(SecretRefused, match="line 2 does not begin with dhs1-"):
        parse_ring(f"{TEXT}\nban 0a0a", "here")
    with pytest.raises(SecretRefused, match="1025 banned nodes; at most 1024: put another secret in its place"):
        parse_ring(TEXT + "".join(f"\nban {number:040x}" for number in range(1025)), "here")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "there is no secret; make one with 'dhtcrawl secret new FILE'"),
        ("# nothing\n", "there is no secret"),
        ("hunter2", "line 1 does not begin with dhs1-; write it as 'dhtcrawl secret new' made it"),
        (f"{TEXT}\n{TEXT}\n", "the secret of line 2 stands there twice; remove one"),
        ("\n".join(secret_text(random.Random(n).randbytes(32)) for n in range(9)), "9 secrets; at most 8"),
    ],
)
def test_what_is_no_list_of_secrets_is_refused_with_the_remedy(text: str, why: str) -> None:
    with pytest.raises(SecretRefused, match=f"^the file: {why}") as caught:
        parse_ring(text, "the file")
    assert caught.value.exit_code == 32
    assert "hunter2" not in str(caught.value)
