"""A node that others can reach goes only to the private networks that it names, whatever a crawl allows."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dhtcrawl.config import CrawlSettings
from dhtcrawl.identity import NodeIdentity
from dhtcrawl.rpc.tasks.events import Answered, FailureKind, RequestFailed
from dhtcrawl.rpc.tasks.identity_check import IdentityCheck
from dhtcrawl.rpc.tasks.link import LinkLimits, PeerLink
from dhtcrawl.rpc.tasks.messages import Call
from dhtcrawl.rpc.tasks.signals import Hello
from dhtcrawl.spec import make_spec
from dhtcrawl.storage.store.crawl_record import new_record, to_wire
from dhtcrawl.swarm.calls.lifecycle import TellCrawl

from .crawler import Crawler
from .deadline import until
from .stub import StubServer
from .swarm import ASK_EVERY_S, DEADLINE_S, Node, Swarm
from .test_swarm_stock import address_of

# It listens on loopback, as every test does, and says that other machines reach it (RFC 5737: nobody has that address).
REACHABLE = ["--open-swarm", "--advertise", "192.0.2.7:8468"]


@contextmanager
def a_node(home: Path, *options: str) -> Iterator[Node]:
    with Swarm(home, *options) as swarm:
        node = swarm.add()
        listens_at = node.address.removesuffix(":0") + ":8468"  # nobody else has this address
        node.start(listen=listens_at).ready()
        node.address = listens_at
        yield node
        swarm.check()


def asked_by_a_stranger(node: Node, seed: str) -> object:
    """Tell the node of a crawl over a connection of a node that nobody knows; what comes of it."""
    key = NodeIdentity(Ed25519PrivateKey.generate())
    spec = make_spec([seed], CrawlSettings(allow_private=True, delay_s=0.0))
    args = TellCrawl(record=to_wire(new_record(spec, os.urandom(16), key))).to_map()
    hello = Hello(key.node_id, 1, "active", ("xor",), key=key.public, nonce=key.nonce())
    link = PeerLink(hello, LinkLimits(), 0.0, IdentityCheck(key, dialed=True))
    link.request(Call("crawl_tell", args), 0.0, DEADLINE_S)
    link.connected(0.0)
    with socket.create_connection(address_of(node.address), DEADLINE_S) as stranger:
        stranger.settimeout(DEADLINE_S)
        while True:
            stranger.sendall(link.take_bytes())
            link.receive(stranger.recv(65_536), 0.0)
            for event in link.take_events():
                if isinstance(event, Answered | RequestFailed):
                    return event.reply if isinstance(event, Answered) else event.failure.kind


def crawled(crawler: Crawler, node: Node, seed: str) -> str:
    """Give the node a crawl of its own loopback, as who commands it may, and wait for the end of it; its id."""
    crawler.run("submit", seed, "--allow-private", "--delay", "0", "--admin", node.admin).ended_with(0)
    (row,) = node.ask("crawls")
    crawl = str(row["crawl"])
    until(partial(has_ended, node, crawl), "the crawl ends", DEADLINE_S, ASK_EVERY_S)
    return crawl


def has_ended(node: Node, crawl: str) -> bool:
    return any(row["crawl"] == crawl and row["ended"] for row in node.ask("crawls"))


@pytest.mark.parametrize("networks", [[], ["--allow-network", "10.0.0.0/8"]], ids=["none", "another"])
def test_no_crawl_has_a_reachable_node_fetch_from_its_own_loopback_and_a_stranger_gives_it_none(
    networks: list[str], tmp_path: Path, stub: StubServer, crawler: Crawler
) -> None:
    stub.page("/")
    with a_node(tmp_path, *REACHABLE, *networks) as node:
        assert asked_by_a_stranger(node, f"{stub.url}/") is FailureKind.REFUSED
        assert node.ask("crawls") == []
        crawl = crawled(crawler, node, f"{stub.url}/")
        (story,) = node.ask(f"why?url={stub.url}/&crawl={crawl}")
        assert stub.asked == [], "not even for its robots.txt"
        assert (story["state"], story["reason"]) == ("dead", "private-address")
        assert "node.private_networks" in story["detail"]


@pytest.mark.parametrize("options", [[], [*REACHABLE, "--allow-network", "loopback"]], ids=["on-loopback", "named"])
def test_a_node_that_names_loopback_or_is_there_alone_reaches_what_the_crawl_allows(
    options: list[str], tmp_path: Path, stub: StubServer, crawler: Crawler
) -> None:
    stub.page("/")
    with a_node(tmp_path, *options) as node:
        crawled(crawler, node, f"{stub.url}/")
        assert stub.paths() == ["/"]


def test_a_loopback_node_that_comes_into_a_swarm_of_several_machines_reaches_no_private_addresses(
    tmp_path: Path,
) -> None:
    with a_node(tmp_path / "others", *REACHABLE) as door, Swarm(tmp_path / "swarm") as swarm:
        node = swarm.add().start(door.address)

        def narrowed() -> bool:
            return "from now on this one reaches no private addresses" in node.running.stderr

        until(narrowed, "it has met a node of another machine", DEADLINE_S, ASK_EVERY_S)


def test_who_submits_is_told_that_the_node_has_to_allow_it(tmp_path: Path, stub: StubServer, crawler: Crawler) -> None:
    stub.page("/")
    with a_node(tmp_path / "swarm", *REACHABLE) as node:
        argv = ["submit", f"{stub.url}/", "--allow-private", "--delay", "0", "--wait", "--admin", node.admin]
        ended = crawler.run(*argv).ended_with(9)
        assert "start that node, and others that may get it, with join --allow-network" in ended.stderr
        assert stub.asked == []


def test_a_crawl_of_one_machine_reaches_what_it_allows_unless_a_setting_says_less(
    tmp_path: Path, stub: StubServer, crawler: Crawler
) -> None:
    stub.page("/")
    argv = ["crawl", f"{stub.url}/", "--allow-private", "--delay", "0", "--out"]
    for nodes in ("1", "2"):
        narrowed = crawler.run(
            *argv, str(tmp_path / f"less{nodes}"), "--nodes", nodes, "--set", "node.private_networks=10.0.0.0/8"
        ).ended_with(9)
        assert "--allow-network" in narrowed.stderr
    assert stub.asked == []
    crawler.run(*argv, str(tmp_path / "all")).ended_with(0)
    assert stub.paths() == ["/"]
