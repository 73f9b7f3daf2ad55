"""Which addresses the client connects to: names, literals, TLS, and connections shared between crawls."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from dhtcrawl.config import PolitenessSettings
from dhtcrawl.fetch import resolver as resolver_module
from dhtcrawl.fetch.guard import PrivateNetworks
from dhtcrawl.fetch.http import FetchFailureKind, HttpRequest, Limits, Truncated
from dhtcrawl.fetch.politeness import Backoff
from dhtcrawl.fetch.reply_handler import trusting_the_system
from dhtcrawl.fetch.resolver import NameFailure, SystemResolver
from fetch.raw_server import page, sends, serving
from fetch.test_aiohttp_client import LIMITS, FakeResolver, asked, client_in, exchange_of, failure_of, floods

pytestmark = pytest.mark.loops("asyncio")


async def test_a_refused_port_is_a_connection_failure(tmp_path: Path) -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{unheard.getsockname()[1]}"
        async with client_in(tmp_path) as client:
            failure = failure_of(await client.exchange(HttpRequest(f"http://{host}/", private_hosts=frozenset({host}))))
            assert (failure.kind, failure.detail) == (FetchFailureKind.CONNECT, "connection refused")


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "http://[::1]/", "http://169.254.169.254/", "http://0.0.0.0/"])
async def test_a_private_literal_is_refused(tmp_path: Path, url: str) -> None:
    async with client_in(tmp_path) as client:
        assert failure_of(await client.exchange(HttpRequest(url))).kind is FetchFailureKind.PRIVATE_ADDRESS


async def test_another_port_than_the_seeds_is_refused(tmp_path: Path) -> None:
    async with serving(sends(page())) as seed, serving(sends(page())) as other, client_in(tmp_path) as client:
        exchange_of(await client.exchange(asked(seed)))
        failure = failure_of(await client.exchange(asked(other, private_hosts=frozenset({seed.host}))))
        assert failure.kind is FetchFailureKind.PRIVATE_ADDRESS
        assert other.connections == 0


async def test_a_name_that_resolves_to_a_private_address_is_refused(tmp_path: Path) -> None:
    resolver = FakeResolver({"evil.example": ["127.0.0.1", "10.0.0.1"]})
    async with serving(sends(page())) as server, client_in(tmp_path, resolver=resolver) as client:
        failure = failure_of(await client.exchange(HttpRequest(f"http://evil.example:{server.port}/")))
        assert failure.kind is FetchFailureKind.PRIVATE_ADDRESS
        assert "127.0.0.1" in failure.detail
        assert server.connections == 0


async def test_a_private_name_that_a_seed_names_is_reached(tmp_path: Path) -> None:
    resolver = FakeResolver({"intranet.example": ["127.0.0.1"]})
    async with serving(sends(page())) as server, client_in(tmp_path, resolver=resolver) as client:
        host = f"intranet.example:{server.port}"
        request = HttpRequest(f"http://{host}/", limits=LIMITS, private_hosts=frozenset({host}))
        assert exchange_of(await client.exchange(request)).remote_ip == "127.0.0.1"


async def test_a_node_that_names_no_network_sends_nothing_to_a_seed_that_the_crawl_allows(tmp_path: Path) -> None:
    resolver = FakeResolver({"intranet.example": ["127.0.0.1"]})
    options = {"resolver": resolver, "private_networks": lambda: PrivateNetworks.named(["10.0.0.0/8"])}
    async with serving(sends(page())) as server, client_in(tmp_path, **options) as client:
        for host in (server.host, f"intranet.example:{server.port}", f"[::ffff:127.0.0.1]:{server.port}"):
            request = HttpRequest(f"http://{host}/", limits=LIMITS, private_hosts=frozenset({host}))
            failure = failure_of(await client.exchange(request))
            assert failure.kind is FetchFailureKind.PRIVATE_ADDRESS
            assert "the crawl allows, but not the node" in failure.detail
        assert server.connections == 0


async def test_of_a_names_addresses_those_in_the_nodes_networks_are_tried(tmp_path: Path) -> None:
    resolver = FakeResolver({"intranet.example": ["10.0.0.1", "127.0.0.1"]})
    options = {"resolver": resolver, "private_networks": lambda: PrivateNetworks.named(["loopback"])}
    async with serving(sends(page())) as server, client_in(tmp_path, **options) as client:
        host = f"intranet.example:{server.port}"
        request = HttpRequest(f"http://{host}/", limits=LIMITS, private_hosts=frozenset({host}))
        assert exchange_of(await client.exchange(request)).remote_ip == "127.0.0.1"
        failure = failure_of(await client.exchange(asked(server, private_hosts=frozenset())))
        assert "not a public address" in failure.detail


async def test_a_connection_kept_alive_by_one_crawl_is_no_way_in_for_another(tmp_path: Path) -> None:
    async with serving(sends(page())) as server, client_in(tmp_path) as client:
        exchange_of(await client.exchange(asked(server)))
        failure = failure_of(await client.exchange(asked(server, private_hosts=frozenset())))
        assert failure.kind is FetchFailureKind.PRIVATE_ADDRESS
        assert len(server.requests) == 1


async def test_a_name_without_addresses_is_a_dns_failure(tmp_path: Path) -> None:
    async with client_in(tmp_path, resolver=FakeResolver({})) as client:
        failure = failure_of(await client.exchange(HttpRequest("http://nowhere.example/")))
        assert (failure.kind, failure.detail) == (FetchFailureKind.DNS, "the name does not resolve")


async def test_a_resolver_that_never_answers_is_a_dns_failure(tmp_path: Path) -> None:
    class Silent(FakeResolver):
        async def addresses(self, name: str) -> list[str]:
            never: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
            return await never

    async with client_in(tmp_path, resolver=Silent({})) as client:
        request = HttpRequest("http://nowhere.example/", limits=Limits(connect_s=0.05))
        assert failure_of(await client.exchange(request)).kind is FetchFailureKind.DNS


async def test_names_that_no_server_answers_for_keep_no_other_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = threading.Event()

    def getaddrinfo(name: bytes, *_: object, **__: object) -> list[tuple[object, ...]]:
        if name != b"here.example":
            answered.wait()
        return [(0, 0, 0, "", ("127.0.0.1", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    async with serving(sends(page())) as server, client_in(tmp_path, connections_max=8) as client:
        try:
            for part in range(2):
                dead = [
                    HttpRequest(f"http://{part}-{name}.example/", limits=Limits(connect_s=0.02)) for name in range(8)
                ]
                await asyncio.gather(*[client.exchange(request) for request in dead])
            host = f"here.example:{server.port}"
            request = HttpRequest(f"http://{host}/", limits=LIMITS, private_hosts=frozenset({host}))
            exchange_of(await asyncio.wait_for(client.exchange(request), 10))
        finally:
            answered.set()


NEVER_ANSWERED = """
import asyncio, contextlib, socket, threading
from dhtcrawl.clock import SystemClock
from dhtcrawl.fetch.resolver import SystemResolver

asked = threading.Event()

def getaddrinfo(*_, **__):
    asked.set()
    threading.Event().wait()

async def main():
    resolver = SystemResolver(SystemClock())
    looks_up = asyncio.create_task(resolver.addresses("a.example"))
    await asyncio.to_thread(asked.wait)
    looks_up.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await looks_up
    resolver.close()

socket.getaddrinfo = getaddrinfo
asyncio.run(main())
print("closed")
"""


def test_a_name_that_no_server_answers_for_keeps_no_process_from_ending() -> None:
    ended = subprocess.run([sys.executable, "-c", NEVER_ANSWERED], capture_output=True, text=True, timeout=20)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "closed\n", "")


class ManualClock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self.now, datetime.UTC)


async def test_the_resolver_remembers_answers_and_failures_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_for: list[bytes] = []

    def getaddrinfo(name: bytes, *_: object, **__: object) -> list[tuple[object, ...]]:
        asked_for.append(name)
        if name == b"gone.example":
            raise socket.gaierror(socket.EAI_NONAME, "gone")
        return [(0, 0, 0, "", ("192.0.2.1", 0)), (0, 0, 0, "", ("fe80::1", 0, 0, 2)), (0, 0, 0, "", ("192.0.2.1", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    clock = ManualClock()
    resolver = SystemResolver(clock)
    for now, asks in ((0.0, 1), (59.0, 1), (61.0, 2)):
        clock.now = now
        assert await resolver.addresses("here.example") == ["192.0.2.1", "fe80::1%2"]
        assert len(asked_for) == asks
    for now, asks in ((61.0, 3), (61.4, 3), (61.6, 4)):
        clock.now = now
        with pytest.raises(NameFailure, match="does not resolve"):
            await resolver.addresses("gone.example")
        assert len(asked_for) == asks
    resolver.close()


async def test_an_origin_is_given_up_for_as_many_answers_of_the_name_server_as_tries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked_at: list[float] = []
    clock, polite = ManualClock(), PolitenessSettings()

    def getaddrinfo(*_: object, **__: object) -> list[tuple[object, ...]]:
        asked_at.append(clock.now)
        raise socket.gaierror(socket.EAI_AGAIN, "no answer")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    resolver, backoff = SystemResolver(clock), Backoff(polite.backoff_first_s, polite.backoff_max_s)
    for failures in range(1, polite.host_strikes_max + 1):
        with pytest.raises(NameFailure, match="gave no answer"):
            await resolver.addresses("here.example")
        clock.now += backoff.wait_s(failures)
    assert len(asked_at) == polite.host_strikes_max
    resolver.close()


async def test_the_resolver_forgets_the_oldest_name_when_it_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_for: list[bytes] = []

    def getaddrinfo(name: bytes, *_: object, **__: object) -> list[tuple[object, ...]]:
        asked_for.append(name)
        return [(0, 0, 0, "", ("192.0.2.1", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(resolver_module, "NAMES_MAX", 2)
    resolver = SystemResolver(ManualClock())
    for name in ("a.example", "b.example", "c.example", "c.example", "b.example", "a.example"):
        await resolver.addresses(name)
    assert asked_for == [b"a.example", b"b.example", b"c.example", b"a.example"]
    resolver.close()


async def test_a_name_that_no_resolver_takes_is_a_failure() -> None:
    resolver = SystemResolver(ManualClock())
    for name in ("a..example", "x" * 70 + ".example", "nosuch.invalid"):
        with pytest.raises(NameFailure):
            await resolver.addresses(name)
    resolver.close()


@pytest.fixture(scope="module")
def certificate_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate that nobody trusts, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    start = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=365_000))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    return path


@pytest.fixture(scope="module")
def self_signed(certificate_file: Path) -> ssl.SSLContext:
    """A server's context with that certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate_file)
    return context


async def test_a_certificate_that_the_system_trusts_is_taken(
    tmp_path: Path, certificate_file: Path, self_signed: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate_file))
    trusting_the_system.cache_clear()
    async with serving(sends(page()), tls=self_signed) as server, client_in(tmp_path) as client:
        request = HttpRequest(f"https://{server.host}/", limits=LIMITS, private_hosts=frozenset({server.host}))
        assert exchange_of(await client.exchange(request)).body.data == b"hello"
    trusting_the_system.cache_clear()


async def test_a_certificate_that_nobody_signed_is_a_tls_failure(tmp_path: Path, self_signed: ssl.SSLContext) -> None:
    async with serving(sends(page()), tls=self_signed) as server, client_in(tmp_path) as client:
        request = HttpRequest(f"https://{server.host}/", limits=LIMITS, private_hosts=frozenset({server.host}))
        failure = failure_of(await client.exchange(request))
        assert (failure.kind, failure.detail) == (FetchFailureKind.TLS, "self-signed certificate")
        assert server.requests == []


async def test_https_works_where_the_certificate_does_not_matter(tmp_path: Path, self_signed: ssl.SSLContext) -> None:
    async with serving(sends(page()), tls=self_signed) as server, client_in(tmp_path, tls_verify=False) as client:
        request = HttpRequest(f"https://{server.host}/", limits=LIMITS, private_hosts=frozenset({server.host}))
        for _ in range(2):
            assert exchange_of(await client.exchange(request)).body.data == b"hello"
        assert server.connections == 1


async def test_a_flood_over_tls_ends_with_the_limit(tmp_path: Path, self_signed: ssl.SSLContext) -> None:
    async with serving(floods, tls=self_signed) as server, client_in(tmp_path, tls_verify=False) as client:
        limits = Limits(body_bytes_max=1 << 20)
        request = HttpRequest(f"https://{server.host}/", limits=limits, private_hosts=frozenset({server.host}))
        assert exchange_of(await client.exchange(request)).truncated is Truncated.LENGTH
        async with asyncio.timeout(10):
            for peer in list(server.open):
                await peer.closed


async def test_https_to_a_plain_server_is_a_tls_failure(tmp_path: Path) -> None:
    greeting = b"HTTP/1.1 400 Bad Request\r\n\r\n"
    async with serving(sends(), greeting=greeting) as server, client_in(tmp_path) as client:
        request = HttpRequest(f"https://{server.host}/", limits=LIMITS, private_hosts=frozenset({server.host}))
        assert failure_of(await client.exchange(request)).kind is FetchFailureKind.TLS
