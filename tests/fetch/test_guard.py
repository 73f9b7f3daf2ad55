"""The address guard: nobody's private network is reached through a link, a redirect or a DNS answer."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.fetch.guard import AS_CRAWLS_ALLOW, PrivateNetworks, is_public, permits, refusal

PRIVATE = [
    "127.0.0.1",
    "127.255.255.254",
    "0.0.0.0",
    "10.1.2.3",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "192.0.0.1",
    "192.0.2.1",
    "198.18.0.1",
    "198.51.100.7",
    "203.0.113.9",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "fe80::1",
    "fe80::1%eth0",
    "2606:4700::1%eth0",
    "fc00::1",
    "fd12:3456::1",
    "fec0::1",
    "ff02::1",
    "2001:db8::1",
    "100::1",
    "::ffff:127.0.0.1",
    "::ffff:192.168.0.1",
    "2002:7f00:1::",
    "2002:a00:1::",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",  # RFC 4380: Teredo, client 192.0.2.45
    "64:ff9b::127.0.0.1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1",
]
PUBLIC = ["1.1.1.1", "93.184.216.34", "172.32.0.1", "100.128.0.1", "2606:4700:4700::1111", "64:ff9b::101:101"]


@pytest.mark.parametrize("ip", PRIVATE)
def test_a_private_address_is_not_public(ip: str) -> None:
    assert not is_public(ip)


@pytest.mark.parametrize("ip", PUBLIC)
def test_a_public_address_is_public(ip: str) -> None:
    assert is_public(ip)


@pytest.mark.parametrize("text", ["", "localhost", "2130706433", "0x7f.1", "127.1", "1.2.3.4.5", "[::1]", "1.1.1.1 "])
def test_what_is_no_canonical_address_is_not_public(text: str) -> None:
    assert not is_public(text)


@given(st.text(max_size=60))
def test_any_text_gets_an_answer(text: str) -> None:
    assert is_public(text) in (True, False)


@given(st.ip_addresses(v=4))
def test_wrapping_never_makes_a_private_address_public(inner: ipaddress.IPv4Address) -> None:
    number = int(inner)
    wrapped = [
        (0xFFFF << 32) | number,
        (0x2002 << 112) | (number << 80),
        (0x20010000 << 96) | (number ^ 0xFFFFFFFF),
        (0x64FF9B << 96) | number,
    ]
    for value in wrapped:
        assert not is_public(str(ipaddress.IPv6Address(value))) or is_public(str(inner))


def test_a_host_that_a_seed_names_may_be_private() -> None:
    assert permits("127.0.0.1:8000", "127.0.0.1", frozenset({"127.0.0.1:8000"}))


def test_another_port_of_a_private_host_stays_refused() -> None:
    assert not permits("127.0.0.1:9000", "127.0.0.1", frozenset({"127.0.0.1:8000"}))


def test_a_public_name_that_resolves_to_loopback_is_refused() -> None:
    assert not permits("example.org", "127.0.0.1", frozenset({"127.0.0.1:8000"}))


def test_a_public_address_needs_no_leave() -> None:
    assert permits("example.org", "93.184.216.34", frozenset())


ANYTHING = PrivateNetworks.named(["0.0.0.0/0", "::/0"])
networks = (
    st.ip_addresses()
    .flatmap(
        lambda ip: st.integers(0, ip.max_prefixlen).map(
            lambda bits: str(ipaddress.ip_network((ip, bits), strict=False))
        )
    )
    .filter(lambda network: not network.startswith("::ffff:"))
)  # IPv4 written as IPv6 names nothing


@pytest.mark.parametrize(
    ("words", "inside", "outside"),
    [
        (["loopback"], ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"], ["0.0.0.0", "::", "10.0.0.1", "fe80::1"]),
        (["none"], [], ["127.0.0.1", "::1", "169.254.169.254"]),
        ([], [], ["127.0.0.1", "::1", "169.254.169.254"]),
        (["10.20.0.0/16"], ["10.20.3.4", "::ffff:10.20.3.4", "64:ff9b::a14:304"], ["10.21.0.1", "169.254.169.254", ""]),
        (["10.0.0.5"], ["10.0.0.5"], ["10.0.0.4", "10.0.0.6"]),
        (["::1"], ["::1"], ["127.0.0.1", "0.0.0.1", "::2"]),
        # An IPv6 network has no IPv4 address, however that is written.
        (["::/0"], ["fd00::1", "fe80::1%eth0"], ["::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "::10.0.0.1"]),
        (["fe80::/10", "none"], ["fe80::1%eth0"], ["::1"]),
    ],
)  # fmt: skip
def test_a_node_reaches_the_private_networks_that_it_names(
    words: list[str], inside: list[str], outside: list[str]
) -> None:
    named, hosts = PrivateNetworks.named(words), frozenset({"a.example"})
    assert [ip for ip in inside + outside if permits("a.example", ip, hosts, named)] == inside


@given(st.ip_addresses().map(str), st.lists(networks, max_size=3), st.booleans())
def test_crawl_and_node_each_only_narrow_what_the_other_allows(ip: str, named: list[str], by_crawl: bool) -> None:
    hosts = frozenset({"a.example"}) if by_crawl else frozenset()
    permitted = permits("a.example", ip, hosts, PrivateNetworks.named(named))
    assert permitted <= permits("a.example", ip, hosts, AS_CRAWLS_ALLOW)
    assert permitted <= permits("a.example", ip, frozenset({"a.example"}), PrivateNetworks.named(named))
    assert permits("a.example", ip, hosts, ANYTHING) == permits("a.example", ip, hosts, AS_CRAWLS_ALLOW)
    if is_public(ip):
        assert permitted, "nobody has to name the internet"


def test_a_refusal_says_which_of_both_refuses() -> None:
    assert refusal("a.example", "10.0.0.1", frozenset()) == "a.example is at 10.0.0.1, which is not a public address"
    assert "node.private_networks" in refusal("a.example", "10.0.0.1", frozenset({"a.example"}))
