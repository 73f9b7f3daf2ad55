"""Keys and distances, with values that can be checked by hand."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.keyspace import (
    KEY_BYTES,
    TaskKeys,
    crawl_key,
    distance,
    host_key,
    node_id_of,
    placement,
    url_key,
)

KEYS = st.binary(min_size=KEY_BYTES, max_size=KEY_BYTES)


def test_keys_are_what_the_usual_tools_say() -> None:
    # printf %s http://example.org/ | sha1sum, and so on
    assert url_key("http://example.org/").hex() == "bbf5caaf2e8efeeaf919e0d84a683f4b4d8a2c15"
    assert host_key("example.org:81").hex() == "c355f3706f3c684094f78904c68c92caf1ea71d6"
    assert crawl_key(bytes(16)) == hashlib.sha1(b"crawl:" + bytes(16)).digest()


def test_a_node_id_is_160_bits_of_a_sha256() -> None:
    # printf '' | sha256sum
    assert node_id_of(b"").hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4"


def test_distance_is_the_xor_as_a_number() -> None:
    zero, one = bytes(20), bytes(19) + b"\1"
    assert (distance(zero, one), distance(one, one)) == (1, 0)
    assert distance(b"\x80" + bytes(19), zero) == 2**159


@given(KEYS, KEYS, KEYS)
def test_distance_is_a_metric_and_one_way(a: bytes, b: bytes, c: bytes) -> None:
    assert distance(a, b) == distance(b, a)
    assert (distance(a, b) == 0) == (a == b)
    assert distance(a, c) <= distance(a, b) + distance(b, c)
    assert (distance(a, b) == distance(a, c)) == (b == c)  # one point at each distance


def test_with_host_keys_a_hosts_tasks_lie_together() -> None:
    keys = TaskKeys("host")
    one, two = (keys.of(f"http://a/{n}", "a") for n in (1, 2))
    assert placement(one) == placement(two) == host_key("a")
    assert one != two
    assert len(one) == keys.width == 40


def test_with_url_keys_a_task_lies_where_its_url_does() -> None:
    key = TaskKeys("url").of("http://a/1", "a")
    assert key == placement(key) == url_key("http://a/1")
    assert len(key) == TaskKeys("url").width == 20


@given(st.text(max_size=30))
def test_any_text_has_keys(text: str) -> None:
    encodable = text.encode("utf-8", "replace").decode()
    assert len(url_key(encodable)) == len(host_key(encodable)) == KEY_BYTES
