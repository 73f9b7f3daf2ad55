"""What cannot work is one line and an exit code; what peers send that makes no sense stops nobody."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback import free_port

from dhtcrawl.rpc.tasks import frame, signals
from dhtcrawl.rpc.tasks.frame import Kind
from dhtcrawl.rpc.tasks.signals import Hello

from .crawler import Crawler
from .outputs import Outputs
from .stub import StubServer
from .swarm import CLEAN, DEADLINE_S, Node, Swarm, submitted
from .test_swarm_stock import address_of

GARBAGE = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"
A_GIGABYTE = struct.pack(">IB", 1 << 30, Kind.HELLO) + b"x" * 1000


@pytest.fixture(scope="module")
def swarm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swarm]:
    """Two nodes, which outlive everything that is done to them here."""
    with Swarm(tmp_path_factory.mktemp("swarm")) as swarm:
        swarm.start(2)
        swarm.meet()
        yield swarm
        assert len(swarm.alive) == 2, swarm.logs()
        swarm.check()


def test_nobody_to_join_through_ends_with_30(crawler: Crawler, tmp_path: Path) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    message = refused(crawler, 30, *join(tmp_path), "--bootstrap", nobody)
    assert nobody in message


def test_a_port_that_is_taken_is_named(swarm: Swarm, crawler: Crawler, tmp_path: Path) -> None:
    taken = swarm.nodes[0].address
    message = refused(crawler, 2, *join(tmp_path, listen=taken))
    assert taken in message
    assert "--listen" in message


def test_an_admin_port_that_is_taken_is_named(swarm: Swarm, crawler: Crawler, tmp_path: Path) -> None:
    taken = swarm.nodes[0].admin
    message = refused(crawler, 2, *join(tmp_path, admin=taken))
    assert taken in message
    assert "--admin" in message


def test_a_data_directory_in_use_is_named(swarm: Swarm, crawler: Crawler) -> None:
    message = refused(crawler, 2, *join(swarm.nodes[0].data_dir))
    assert str(swarm.nodes[0].data_dir) in message


@pytest.mark.parametrize("command", ["crawls", "pause", "resume", "stop"])
def test_a_crawl_that_nobody_knows_is_named(command: str, swarm: Swarm, crawler: Crawler) -> None:
    message = refused(crawler, 2, command, "feedbeef", "--admin", swarm.nodes[0].admin)
    assert "feedbeef" in message


def test_a_policy_that_the_node_does_not_allow_is_named_with_what_allows_it(swarm: Swarm, crawler: Crawler) -> None:
    asked = swarm.nodes[1]
    message = refused(crawler, 4, "submit", "http://a.example/", "--policy", "mine:Best", "--admin", asked.admin)
    assert (
        f"node {asked.id[:12]}: crawl.policy: mine:Best is not among the policies that this node may import" in message
    )
    assert "--allow-policy mine:Best" in message


def test_a_command_to_a_node_that_is_not_there_names_it(crawler: Crawler) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    message = refused(crawler, 1, "status", "--admin", nobody)
    assert nobody in message


@pytest.mark.parametrize("sent", [GARBAGE, A_GIGABYTE], ids=["garbage", "a-gigabyte-announced"])
def test_a_frame_that_is_none_costs_the_connection_and_nothing_else(
    sent: bytes, swarm: Swarm, stub: StubServer, crawler: Crawler, outputs: Outputs
) -> None:
    node = swarm.nodes[0]
    closed_after(node, sent)
    crawls_on(swarm, stub, crawler, outputs)


def test_a_peer_that_shares_no_version_is_told_and_left(
    swarm: Swarm, stub: StubServer, crawler: Crawler, outputs: Outputs
) -> None:
    node = swarm.nodes[0]
    later = Hello(b"\x07" * 20, 1, "active", ("xor",), 0, version_min=60_000, version_max=60_001)
    said = closed_after(node, signals.encode_signal(later))
    kinds = [kind for kind, _ in frame.Decoder().feed(said)]
    assert kinds == [Kind.HELLO, Kind.GOODBYE], "it says why it leaves"
    assert b"version" in said
    assert later.node_id.hex() not in {peer["node"] for peer in node.ask("peers")}
    crawls_on(swarm, stub, crawler, outputs)


def test_datagrams_that_make_no_sense_are_dropped(
    swarm: Swarm, stub: StubServer, crawler: Crawler, outputs: Outputs
) -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as sender:
        for datagram in (b"", b"\x00", b"\x01" * 21, b"\x00" + b"i" * 20 + b"\xc1", GARBAGE, b"\xff" * 1200):
            sender.sendto(datagram, address_of(swarm.nodes[0].address))
    crawls_on(swarm, stub, crawler, outputs)


def join(data_dir: Path, *, listen: str = "127.0.0.1:0", admin: str = "127.0.0.1:0") -> list[str]:
    return ["join", "--data-dir", str(data_dir), "--listen", listen, "--admin", admin]


def refused(crawler: Crawler, code: int, *argv: str) -> str:
    """The one line with which a command ended."""
    return crawler.run(*argv).ended_with(code).one_line()


def closed_after(node: Node, sent: bytes) -> bytes:
    """What the node says to a peer that sends this, until it closes the connection."""
    said = b""
    with socket.create_connection(address_of(node.address), DEADLINE_S) as peer:
        peer.settimeout(DEADLINE_S)
        peer.sendall(sent)
        try:
            while data := peer.recv(65_536):
                said += data
        except ConnectionResetError:
            pass  # it did not read all of it
    return said


def crawls_on(swarm: Swarm, stub: StubServer, crawler: Crawler, outputs: Outputs) -> None:
    """The node that was bothered still does its work."""
    stub.page("/", "/a", "/b", "/c")
    for path in ("/a", "/b", "/c"):
        stub.page(path)
    with submitted(crawler, swarm.nodes[0], outputs, f"{stub.url}/", "--delay", "0") as crawl:
        crawl.finish(swarm, CLEAN | {"refetches": 0, "pages": 4, "nodes": 2})
    assert sorted(stub.paths()) == ["/", "/a", "/b", "/c"]
