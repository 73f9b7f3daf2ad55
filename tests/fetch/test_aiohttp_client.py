"""The web port on real sockets, against servers that misbehave in every way we could think of."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import struct
import tempfile
import tracemalloc
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dhtcrawl.clock import SystemClock
from dhtcrawl.errors import StorageFull
from dhtcrawl.fetch import aiohttp_client, spool
from dhtcrawl.fetch.aiohttp_client import AiohttpClient
from dhtcrawl.fetch.http import Exchange, FetchFailure, FetchFailureKind, HttpRequest, Limits, Truncated
from dhtcrawl.fetch.resolver import NameFailure
from fetch.raw_server import Peer, RawServer, page, sends, serving

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
# Long enough never to pass in a test that expects an answer.
pytestmark = pytest.mark.loops("asyncio")
LIMITS = Limits(connect_s=20, head_s=20, body_s=20, idle_s=20)


class FakeResolver:
    """Names from a dictionary."""

    def __init__(self, names: dict[str, list[str]]) -> None:
        self.names = names

    async def addresses(self, name: str) -> list[str]:
        if name not in self.names:
            raise NameFailure("the name does not resolve")
        return self.names[name]

    def close(self) -> None:
        pass


@contextlib.asynccontextmanager
async def client_in(directory: Path, **options: Any) -> AsyncIterator[AiohttpClient]:
    client = AiohttpClient(SystemClock(), directory, **{"connections_max": 4} | options)
    try:
        yield client
    finally:
        await client.close()


def asked(server: RawServer, path: str = "/", **options: Any) -> HttpRequest:
    """A request whose seed named the server."""
    fields: dict[str, Any] = {"limits": LIMITS, "private_hosts": frozenset({server.host})}
    return HttpRequest(server.url(path), **fields | options)


async def fetched(
    directory: Path, script: Callable[[Peer], None], *, limits: Limits = LIMITS, **options: Any
) -> Exchange | FetchFailure:
    """What one exchange with a scripted server comes to."""

    async with serving(script) as server, client_in(directory, **options) as client:
        return await client.exchange(asked(server, limits=limits))


def exchange_of(result: Exchange | FetchFailure) -> Exchange:
    assert isinstance(result, Exchange), result
    return result


def failure_of(result: Exchange | FetchFailure) -> FetchFailure:
    assert isinstance(result, FetchFailure), result
    assert "\n" not in result.detail
    return result


# What is sent and what comes back


async def test_the_request_head_is_what_arrived_byte_for_byte(tmp_path: Path) -> None:
    headers = (("User-Agent", "dhtcrawl/1"), ("accept", "text/html"), ("X-Twice", "a"), ("X-Twice", "b"))

    async with serving(sends(page())) as server, client_in(tmp_path) as client:
        for path in ("/", "/a%20b?x=%C3%A9&y", "/empty?", "//double//", "/a;b=c|d[]"):
            exchange = exchange_of(await client.exchange(asked(server, path, headers=headers)))
            assert exchange.request_head == server.requests[-1]
            lines = exchange.request_head.decode().split("\r\n")
            assert lines[0] == f"GET {path} HTTP/1.1"
            assert lines[1] == f"Host: {server.host}"
            assert lines[2:-2] == [f"{name}: {value}" for name, value in headers]


@pytest.mark.parametrize("header", [("User-Agent", "a\r\nX: b"), ("X\n", "b"), ("From", "a\rb")])
async def test_a_header_with_a_line_break_is_not_sent(tmp_path: Path, header: tuple[str, str]) -> None:
    async with serving(sends(page())) as server, client_in(tmp_path) as client:
        failure = failure_of(await client.exchange(asked(server, headers=(header,))))
        assert "line break" in failure.detail
        assert server.requests == []


async def test_a_response_comes_back_as_it_was_sent(tmp_path: Path) -> None:
    sent = page(
        b"\x1f\x8bnot gzip", b"Content-Encoding: gzip", b"X-Mixed: \xc3\xa9 ", b"Set-Cookie: a=b", status=b"200 Fine"
    )
    exchange = exchange_of(await fetched(tmp_path, sends(sent)))
    assert exchange.response_head + exchange.body.data == sent.replace(b"\xa9 \r", b"\xa9\r")
    assert exchange.header("x-mixed") == "é"
    assert exchange.remote_ip == "127.0.0.1"
    assert exchange.truncated is None
    assert exchange.started_at <= exchange.ended_at


async def test_a_cookie_is_not_sent_back(tmp_path: Path) -> None:
    resolver = FakeResolver({"site.example": ["127.0.0.1"]})
    script = sends(page(b"x", b"Set-Cookie: a=b"))
    async with serving(script) as server, client_in(tmp_path, resolver=resolver) as client:
        host = f"site.example:{server.port}"
        for _ in range(2):
            request = HttpRequest(f"http://{host}/", limits=LIMITS, private_hosts=frozenset({host}))
            exchange_of(await client.exchange(request))
        assert b"ookie" not in server.requests[1]


async def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    exchange = exchange_of(await fetched(tmp_path, sends(page(b"", b"Location: /next", status=b"301 Moved"))))
    assert (exchange.status, exchange.header("location")) == (301, "/next")


async def test_chunked_coding_is_undone_and_its_header_renamed(tmp_path: Path) -> None:
    exchange = exchange_of(
        await fetched(tmp_path, sends(CHUNKED + b"3\r\nabc\r\n", b"2;x=y\r\nde\r\n0\r\nT: t\r\n\r\n"))
    )
    assert exchange.body.data == b"abcde"
    assert exchange.header("transfer-encoding") == "chunked"
    assert exchange.response_head == OK + b"X-Archive-Orig-Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n"


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
async def test_a_body_may_end_with_the_connection(tmp_path: Path, version: bytes) -> None:
    exchange = exchange_of(await fetched(tmp_path, sends(b"HTTP/%b 200 OK\r\n\r\nabc" % version, b"def", close=True)))
    assert (exchange.body.data, exchange.truncated) == (b"abcdef", None)
    assert exchange.response_head == b"HTTP/%b 200 OK\r\nContent-Length: 6\r\n\r\n" % version


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
async def test_some_statuses_have_no_body(tmp_path: Path, status: bytes) -> None:
    head = b"HTTP/1.1 %b\r\nContent-Length: 5\r\n\r\n" % status
    exchange = exchange_of(await fetched(tmp_path, sends(head)))
    assert (exchange.response_head, exchange.body.size, exchange.truncated) == (head, 0, None)


async def test_informational_responses_are_skipped(tmp_path: Path) -> None:
    hints = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    assert exchange_of(await fetched(tmp_path, sends(hints, hints + page(b"abc")))).body.data == b"abc"


async def test_a_connection_is_kept_for_the_next_request(tmp_path: Path) -> None:
    async with serving(sends(page())) as server, client_in(tmp_path) as client:
        for _ in range(3):
            exchange_of(await client.exchange(asked(server)))
        assert (len(server.requests), server.connections) == (3, 1)


async def test_an_ipv6_literal_is_reached(tmp_path: Path) -> None:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            pass
    except OSError:
        pytest.skip("needs an IPv6 loopback address")

    async with serving(sends(page()), address="::1") as server, client_in(tmp_path) as client:
        host = f"[::1]:{server.port}"
        request = HttpRequest(f"http://{host}/", limits=LIMITS, private_hosts=frozenset({host}))
        exchange = exchange_of(await client.exchange(request))
        assert exchange.remote_ip == "::1"
        assert f"Host: {host}".encode() in server.requests[0]


# Servers that misbehave


@pytest.mark.parametrize(
    ("sent", "kind"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", FetchFailureKind.PROTOCOL),
        (b"\x00\xff" * 100, FetchFailureKind.PROTOCOL),
        (b"HTTP/1.1 99999 Huge\r\n\r\n", FetchFailureKind.PROTOCOL),
        (OK + b"Content-Length: -3\r\n\r\nabc", FetchFailureKind.PROTOCOL),
        (OK + b"Content-Length: 99999999999999999999999\r\n\r\nabc", FetchFailureKind.PROTOCOL),
        (OK + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", FetchFailureKind.PROTOCOL),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", FetchFailureKind.PROTOCOL),
        (OK + b"X: " + b"a" * (1 << 20) + b"\r\n\r\n", FetchFailureKind.HEADERS),
        (b"HTTP/1.1 200 " + b"a" * (1 << 20) + b"\r\n\r\n", FetchFailureKind.HEADERS),
        (OK + b"X: a\r\n" * 5001 + b"\r\n", FetchFailureKind.HEADERS),
        (OK + (b"X: " + b"a" * 1000 + b"\r\n") * 100 + b"\r\n", FetchFailureKind.HEADERS),
    ],
)
async def test_what_is_not_http_is_a_failure(tmp_path: Path, sent: bytes, kind: FetchFailureKind) -> None:
    failure = failure_of(await fetched(tmp_path, sends(sent)))
    assert failure.kind is kind
    assert len(failure.detail) < 250
    assert failure.detail.isprintable()


@pytest.mark.parametrize("sent", [b"", b"HT", OK, OK + b"X: y"])
async def test_a_server_that_closes_before_the_head_is_complete_disconnected(tmp_path: Path, sent: bytes) -> None:
    assert failure_of(await fetched(tmp_path, sends(sent, close=True))).kind is FetchFailureKind.DISCONNECTED


async def test_an_early_close_leaves_what_arrived(tmp_path: Path) -> None:
    exchange = exchange_of(await fetched(tmp_path, sends(OK + b"Content-Length: 10\r\n\r\nabc", b"de", close=True)))
    assert (exchange.body.data, exchange.truncated) == (b"abcde", Truncated.DISCONNECT)
    assert b"X-Archive-Orig-Content-Length: 10\r\nContent-Length: 5\r\n" in exchange.response_head


async def test_an_early_close_leaves_what_arrived_in_one_packet_too(tmp_path: Path) -> None:
    def script(peer: Peer) -> None:
        peer.send(OK + b"Content-Length: 10\r\n\r\nabc")
        peer.close()

    exchange = exchange_of(await fetched(tmp_path, script))
    assert (exchange.body.data, exchange.truncated) == (b"abc", Truncated.DISCONNECT)


async def test_a_reset_leaves_what_arrived(tmp_path: Path) -> None:
    def script(peer: Peer) -> None:
        peer.send(OK + b"Content-Length: 10\r\n\r\nabc")
        peer.after_reads(peer.transport.abort)

    exchange = exchange_of(await fetched(tmp_path, script))
    assert (exchange.body.data, exchange.truncated) == (b"abc", Truncated.DISCONNECT)


async def test_a_reset_does_not_end_a_body_without_a_length(tmp_path: Path) -> None:
    def script(peer: Peer) -> None:
        peer.send(OK + b"\r\nabc")
        # Closed without lingering, a socket sends a reset.
        peer.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.after_reads(peer.transport.abort)

    exchange = exchange_of(await fetched(tmp_path, script))
    assert (exchange.body.data, exchange.truncated) == (b"abc", Truncated.DISCONNECT)


async def test_an_early_close_while_the_disk_is_busy_leaves_what_arrived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def flush(self: spool.Spool) -> None:
        for peer in list(server.open):
            peer.send(b"y" * 3000)
            peer.after_reads(peer.close)
            await peer.closed
        for _ in range(50):
            await asyncio.sleep(0)
        await real_flush(self)

    real_flush = spool.Spool.flush
    monkeypatch.setattr(spool.Spool, "flush", flush)
    script = sends(OK + b"Content-Length: 99999\r\n\r\n" + b"x" * 5000)
    async with serving(script) as server, client_in(tmp_path, spool_bytes=1000) as client:
        exchange = exchange_of(await client.exchange(asked(server)))
        assert exchange.truncated is Truncated.DISCONNECT
        assert b"".join(exchange.body.chunks()) == b"x" * 5000 + b"y" * 3000
        exchange.body.close()


@pytest.mark.parametrize("rest", [b"zz\r\n", b"-1\r\n", b"ffffffffffffffffffffff\r\n", b"3\r\nabcX"])
async def test_malformed_chunks_end_the_body_at_once(tmp_path: Path, rest: bytes) -> None:
    exchange = exchange_of(await fetched(tmp_path, sends(CHUNKED + b"3\r\nabc\r\n", rest)))
    assert exchange.body.data[:3] == b"abc"
    assert exchange.truncated is Truncated.DISCONNECT


async def test_a_chunked_body_without_an_end_is_disconnected(tmp_path: Path) -> None:
    exchange = exchange_of(await fetched(tmp_path, sends(CHUNKED + b"3\r\nabc\r\n", close=True)))
    assert (exchange.body.data, exchange.truncated) == (b"abc", Truncated.DISCONNECT)


@settings(max_examples=60)
@given(st.binary(max_size=300), st.sampled_from([b"", OK, CHUNKED, CHUNKED + b"3\r\nabc\r\n"]))
async def test_no_bytes_whatever_raise(noise: bytes, start: bytes) -> None:
    result = await fetched(Path("unused"), sends(start, noise, close=True))
    assert isinstance(result, Exchange | FetchFailure)


async def test_a_request_is_never_repeated_behind_our_back(tmp_path: Path) -> None:
    def script(peer: Peer) -> None:
        peer.send(page()) if len(server.requests) == 1 else peer.close()

    async with serving(script) as server, client_in(tmp_path) as client:
        exchange_of(await client.exchange(asked(server)))
        for expected in (2, 3):
            assert failure_of(await client.exchange(asked(server))).kind is FetchFailureKind.DISCONNECTED
            assert len(server.requests) == expected


async def test_where_a_connection_was_closed_while_it_was_kept_each_is_used_once(tmp_path: Path) -> None:
    async with serving(answers_once()) as server, client_in(tmp_path) as client:
        for kept in await asyncio.gather(*[client.exchange(asked(server)) for _ in range(4)]):
            exchange_of(kept)
        failure = failure_of(await client.exchange(asked(server)))
        assert (failure.kind, failure.reused) == (FetchFailureKind.DISCONNECTED, True)
        for _ in range(3):
            exchange_of(await client.exchange(asked(server)))
        assert (len(server.requests), server.connections) == (8, 7)


async def test_connections_are_used_once_for_some_time_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aiohttp_client, "CLOSES_EARLY_S", 0.0)
    async with serving(answers_once()) as server, client_in(tmp_path) as client:
        for _ in range(2):
            exchange_of(await client.exchange(asked(server)))
            assert failure_of(await client.exchange(asked(server))).reused


def answers_once() -> Callable[[Peer], None]:
    """A script that closes a connection as the second request comes on it."""
    used: set[Peer] = set()

    def script(peer: Peer) -> None:
        peer.close() if peer in used else peer.send(page())
        used.add(peer)

    return script


@pytest.mark.parametrize("answers", [[b""], [page(), b"HTTP"]], ids=["new", "begun"])
async def test_a_connection_that_is_new_or_brings_a_byte_was_not_closed_before(
    tmp_path: Path, answers: list[bytes]
) -> None:
    def script(peer: Peer) -> None:
        peer.send(answers[len(server.requests) - 1])
        if len(server.requests) == len(answers):
            peer.after_reads(peer.close)

    async with serving(script) as server, client_in(tmp_path) as client:
        for _ in answers[1:]:
            exchange_of(await client.exchange(asked(server)))
        failure = failure_of(await client.exchange(asked(server)))
        assert (failure.kind, failure.reused) == (FetchFailureKind.DISCONNECTED, False)


async def test_bytes_that_nobody_asked_for_are_no_answer_to_the_next_request(tmp_path: Path) -> None:
    def script(peer: Peer) -> None:
        peer.send(page(b"right"))
        peer.after_reads(lambda: peer.send(page(b"wrong")))

    async with serving(script) as server, client_in(tmp_path) as client:
        for _ in range(3):
            assert exchange_of(await client.exchange(asked(server))).body.data == b"right"
            for peer in list(server.open):
                await peer.closed
        assert (len(server.requests), server.connections) == (3, 3)


ODD_REPLIES = {
    "a body that is too long": OK + b"Content-Length: 3\r\n\r\nabcSURPLUS",
    "a redirect that is too long": b"HTTP/1.1 301 Moved\r\nLocation: /a\r\nContent-Length: 3\r\n\r\nabcSURPLUS",
    "chunked beside a length": CHUNKED[:-2] + b"Content-Length: 9\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "a space before the colon": OK + b"Content-Length : 3\r\n\r\nabc",
    "a line without a colon": OK + b"odd\r\nContent-Length: 3\r\n\r\nabc",
}


@pytest.mark.parametrize("sent", ODD_REPLIES.values(), ids=ODD_REPLIES)
async def test_an_odd_reply_is_kept_and_its_connection_closed(tmp_path: Path, sent: bytes) -> None:
    for cut in (len(sent), len(sent) - 1, sent.index(b"\r\n\r\n") + 4, 20):
        async with serving(sends(sent[:cut], sent[cut:])) as server, client_in(tmp_path) as client:
            for connections in (1, 2):
                exchange = exchange_of(await client.exchange(asked(server)))
                assert (exchange.body.data, exchange.truncated) == (b"abc", None)
                assert b"Content-Length: 3\r\n" in exchange.response_head
                for peer in list(server.open):
                    await peer.closed
                assert server.connections == connections


async def test_a_204_with_a_body_is_kept_without_it(tmp_path: Path) -> None:
    sent = b"HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\nabc"
    async with serving(sends(sent)) as server, client_in(tmp_path) as client:
        for connections in (1, 2):
            exchange = exchange_of(await client.exchange(asked(server)))
            assert (exchange.status, exchange.body.size, exchange.truncated) == (204, 0, None)
            assert server.connections == connections


async def test_the_end_of_a_205_without_a_length_is_not_waited_for(tmp_path: Path) -> None:
    exchange = exchange_of(await fetched(tmp_path, sends(b"HTTP/1.1 205 Reset Content\r\n\r\n")))
    assert (exchange.status, exchange.body.size, exchange.truncated) == (205, 0, None)


async def test_the_archive_has_a_line_without_a_colon_as_it_came(tmp_path: Path) -> None:
    sent = OK + b"odd\r\nA : b\r\nContent-Length: 3\r\ncontent-length: 3\r\n\r\nabc"
    exchange = exchange_of(await fetched(tmp_path, sends(sent)))
    expected = OK + b"odd\r\nA: b\r\nContent-Length: 3\r\nX-Archive-Orig-content-length: 3\r\n\r\n"
    assert exchange.response_head == expected
    assert exchange.headers == [("a", "b"), ("content-length", "3"), ("content-length", "3")]


# Limits


async def test_a_server_that_says_nothing_times_out(tmp_path: Path) -> None:
    failure = failure_of(await fetched(tmp_path, sends(b""), limits=Limits(head_s=0.05)))
    assert (failure.kind, failure.detail) == (FetchFailureKind.TIMEOUT, "no complete response head within 0.05 s")


async def test_a_request_that_is_given_up_is_not_left_to_the_system(tmp_path: Path) -> None:
    peers: list[Peer] = []
    async with serving(peers.append) as server, client_in(tmp_path) as client:
        failure_of(await client.exchange(asked(server, limits=Limits(head_s=0.05))))
        assert isinstance(await peers[0].closed, ConnectionResetError), "else what was not sent yet would still come"


def drips(start: bytes, drop: bytes) -> Callable[[Peer], None]:
    """A script that sends `drop` again and again, slowly and without end."""

    def script(peer: Peer) -> None:
        def drip() -> None:
            if not peer.transport.is_closing():
                peer.send(drop)
                asyncio.get_running_loop().call_later(0.005, drip)

        peer.send(start)
        drip()

    return script


async def test_a_head_that_drips_times_out(tmp_path: Path) -> None:
    failure = failure_of(await fetched(tmp_path, drips(OK, b"X: y\r\n"), limits=Limits(head_s=0.1)))
    assert failure.kind is FetchFailureKind.TIMEOUT


async def test_informational_responses_without_end_time_out(tmp_path: Path) -> None:
    failure = failure_of(await fetched(tmp_path, drips(b"", b"HTTP/1.1 103 Hint\r\n\r\n"), limits=Limits(head_s=0.1)))
    assert failure.kind is FetchFailureKind.TIMEOUT


async def test_a_body_that_drips_is_cut_at_its_time(tmp_path: Path) -> None:
    exchange = exchange_of(await fetched(tmp_path, drips(OK + b"\r\n", b"a"), limits=Limits(body_s=0.1)))
    assert exchange.truncated is Truncated.TIME
    assert exchange.body.data.strip(b"a") == b""


async def test_a_body_that_comes_too_slowly_is_cut_and_one_that_is_fast_enough_is_not(tmp_path: Path) -> None:
    for least, body_s, why in ((1 << 20, 20.0, Truncated.SLOW), (1, 0.2, Truncated.TIME)):
        limits = Limits(body_s=body_s, bytes_per_s_min=least, slow_s=0.05)
        exchange = exchange_of(await fetched(tmp_path, drips(OK + b"\r\n", b"abc"), limits=limits))
        assert exchange.truncated is why
        assert exchange.body.data.startswith(b"abc")
    assert (Truncated.SLOW.in_warc, Truncated.LENGTH.in_warc) == ("time", "length")


async def test_a_server_that_is_silent_before_its_first_byte_is_not_too_slow(tmp_path: Path) -> None:
    def computes(peer: Peer) -> None:
        peer.send(OK + b"Content-Length: 3\r\n\r\n")
        asyncio.get_running_loop().call_later(0.2, peer.send, b"abc")

    limits = Limits(bytes_per_s_min=1 << 20, slow_s=0.01)
    exchange = exchange_of(await fetched(tmp_path, computes, limits=limits))
    assert (exchange.body.data, exchange.truncated) == (b"abc", None)


async def test_a_body_that_stalls_is_cut(tmp_path: Path) -> None:
    exchange = exchange_of(
        await fetched(tmp_path, sends(OK + b"Content-Length: 9\r\n\r\nabc"), limits=Limits(idle_s=0.05))
    )
    assert (exchange.body.data, exchange.truncated) == (b"abc", Truncated.TIME)


@pytest.mark.parametrize("status", [b"301 Moved", b"308 Moved"])
async def test_the_body_of_a_redirect_that_does_not_come_is_not_waited_for_as_a_page_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: bytes
) -> None:
    monkeypatch.setattr(aiohttp_client, "REDIRECT_BODY_S", 0.01)
    head = b"HTTP/1.1 %b\r\nLocation: /x\r\nContent-Length: 9\r\n\r\n" % status
    exchange = exchange_of(await fetched(tmp_path, sends(head), limits=Limits(body_s=9e9, idle_s=9e9)))
    assert (exchange.header("location"), exchange.truncated) == ("/x", Truncated.TIME)


async def test_the_body_of_a_redirect_that_comes_is_kept(tmp_path: Path) -> None:
    head = b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 3\r\n\r\n"
    exchange = exchange_of(await fetched(tmp_path, sends(head, b"abc")))
    assert (exchange.body.data, exchange.truncated) == (b"abc", None)


@pytest.mark.parametrize("end", [b"0\r\n", b"0\r\nX: y\r\n"])
async def test_a_body_whose_last_chunk_has_come_is_whole_though_the_reply_does_not_end(
    tmp_path: Path, end: bytes
) -> None:
    async with serving(sends(CHUNKED + b"3\r\nabc\r\n", end)) as server, client_in(tmp_path) as client:
        for _ in range(2):
            exchange = exchange_of(await client.exchange(asked(server, limits=Limits(idle_s=0.05))))
            assert (exchange.body.data, exchange.truncated) == (b"abc", None)
        assert server.connections == 2


async def test_a_body_as_long_as_the_limit_is_whole(tmp_path: Path) -> None:
    exchange = exchange_of(await fetched(tmp_path, sends(page(b"abcd")), limits=Limits(body_bytes_max=4)))
    assert (exchange.body.data, exchange.truncated) == (b"abcd", None)


async def test_a_body_longer_than_the_limit_is_cut_and_its_connection_closed(tmp_path: Path) -> None:
    async with serving(sends(page(b"abcde"))) as server, client_in(tmp_path) as client:
        for connections in (1, 2):
            limits = Limits(body_bytes_max=4) if connections == 1 else LIMITS
            exchange = exchange_of(await client.exchange(asked(server, limits=limits)))
            assert exchange.body.data == b"abcde"[: 4 if connections == 1 else 5]
            assert (exchange.truncated is Truncated.LENGTH) == (connections == 1)


def floods(peer: Peer) -> None:
    """A script whose body has no end."""
    block = b"x" * 65_536

    def more() -> None:
        while not peer.paused and not peer.transport.is_closing():
            peer.send(block)

    peer.resume = more
    peer.send(OK + b"\r\n")
    more()


async def test_a_flood_neither_fills_memory_nor_lasts(tmp_path: Path) -> None:
    limit = 64 << 20

    async with serving(floods) as server, client_in(tmp_path) as client:
        tracemalloc.start()
        try:
            exchange = exchange_of(await client.exchange(asked(server, limits=Limits(body_bytes_max=limit))))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert exchange.truncated is Truncated.LENGTH
        assert exchange.body.spooled
        assert exchange.body.size == limit == sum(len(chunk) for chunk in exchange.body.chunks())
        assert exchange.body.head(3) == b"xxx"
        # A block here, one on its way to the disk, aiohttp's buffer, the server's.
        assert peak < 8 << 20
        exchange.body.close()
        for peer in list(server.open):
            await peer.closed


async def test_a_large_body_comes_back_as_it_was_sent(tmp_path: Path) -> None:
    body = bytes(range(256)) * 4096
    for spool_bytes in (100, 300_000, len(body)):
        exchange = exchange_of(await fetched(tmp_path, sends(page(body)), spool_bytes=spool_bytes))
        assert exchange.body.spooled == (spool_bytes < len(body))
        assert b"".join(exchange.body.chunks()) == body
        exchange.body.close()


async def test_a_full_disk_is_an_error_and_not_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    async with serving(floods) as server, client_in(tmp_path, spool_bytes=1000) as client:
        with pytest.raises(StorageFull, match="no space left"):
            await client.exchange(asked(server))
        for peer in list(server.open):
            await peer.closed


async def test_a_cancelled_exchange_gives_everything_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed = asyncio.Event()
    files: list[Any] = []

    async def flush(self: spool.Spool) -> None:
        await real_flush(self)
        files.append(self._file)
        flushed.set()

    real_flush = spool.Spool.flush
    monkeypatch.setattr(spool.Spool, "flush", flush)
    script = sends(OK + b"Content-Length: 9999\r\n\r\n" + b"x" * 5000)
    async with serving(script) as server, client_in(tmp_path, spool_bytes=1000, connections_max=1) as client:
        exchange = asyncio.ensure_future(client.exchange(asked(server)))
        await flushed.wait()
        exchange.cancel()
        with pytest.raises(asyncio.CancelledError):
            await exchange
        assert [file.closed for file in files] == [True]
        for peer in list(server.open):
            await peer.closed
        # The only slot is free again.
        server.script = sends(page())
        exchange_of(await client.exchange(asked(server)))


async def test_a_cancelled_wait_for_the_head_closes_the_connection(tmp_path: Path) -> None:
    arrived = asyncio.Event()
    async with serving(lambda peer: arrived.set()) as server, client_in(tmp_path) as client:
        exchange = asyncio.ensure_future(client.exchange(asked(server)))
        await arrived.wait()
        exchange.cancel()
        with pytest.raises(asyncio.CancelledError):
            await exchange
        for peer in list(server.open):
            await peer.closed


async def test_open_connections_are_bounded_with_those_kept_alive(tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(serving(sends(page()))) for _ in range(6)]
        client = await stack.enter_async_context(client_in(tmp_path, connections_max=2))
        for server in servers:
            exchange_of(await client.exchange(asked(server)))
        # The servers hear of a close after a turn or two.
        for server in servers[:-2]:
            for peer in list(server.open):
                await peer.closed
        assert [len(server.open) for server in servers] == [0, 0, 0, 0, 1, 1]
