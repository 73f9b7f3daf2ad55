"""A closed swarm of processes: a secret is replaced while a crawl runs, and who has the old one hears why it is out."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from dhtcrawl.cli.main import run
from dhtcrawl.closed.secret import parse_ring, secret_text
from dhtcrawl.rpc.discovery.datagram import encode_request

from .capture import Capture
from .crawler import Crawler
from .deadline import until
from .outputs import Outputs
from .stub import StubServer
from .swarm import CLEAN, DEADLINE_S, Swarm, submitted
from .test_swarm_bad_input import join, refused
from .test_swarm_limits import assert_whole, tree
from .test_swarm_stock import address_of

NODES = 5


class Closed(NamedTuple):
    """A swarm, and the file with its secret that all its nodes look at."""

    swarm: Swarm
    file: Path

    def names(self) -> list[str]:
        return [keys.name for keys in parse_ring(self.file.read_text(), "here").keys]


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Closed]:
    home = tmp_path_factory.mktemp("closed")
    file = home / "swarm.secret"
    assert run(["secret", "new", str(file)]) == 0
    with Swarm(home / "swarm", "--secret-file", str(file)) as swarm:
        swarm.start(NODES)
        swarm.meet()
        yield Closed(swarm, file)
        assert len(swarm.alive) == NODES, swarm.logs()
        swarm.check()


def test_a_datagram_in_the_clear_gets_no_answer(closed: Closed) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.settimeout(0.3)
        for data in (encode_request(bytes(20), "ping", [bytes(20)]), encode_request(bytes(20), "stun", []), bytes(200)):
            stranger.sendto(data, address_of(closed.swarm.nodes[0].address))
        with pytest.raises(TimeoutError):
            stranger.recv(2000)


def test_a_secret_is_replaced_while_a_crawl_runs_and_nothing_is_lost_or_fetched_twice(
    closed: Closed, stub: StubServer, crawler: Crawler, outputs: Outputs, tmp_path: Path
) -> None:
    old = tmp_path / "old.secret"
    shutil.copy(closed.file, old)
    first = closed.swarm.nodes[0]

    def all_use(name: str, accepted: set[str]) -> bool:
        told = [node.ask("status") for node in closed.swarm.nodes]
        return all(row["secrets"].get(name) == NODES and set(row["secrets"]) == accepted for row in told)

    seed = tree(stub).url + "/"
    with submitted(crawler, first, outputs, seed, "--delay", "0.1") as crawl:
        for number, step in enumerate(("accept", "use", "drop")):
            until(lambda: len(stub.paths()) > 5 + 10 * number, "pages come", DEADLINE_S)  # noqa: B023
            assert run(["secret", "rotate", str(closed.file), step]) == 0
            names = closed.names()
            used = names[0]
            until(lambda: all_use(used, set(names)), f"{step} is taken up", DEADLINE_S)  # noqa: B023
            assert {member["state"] for member in first.ask("peers")} == {"active"}
        assert_whole(stub, crawl.finish(closed.swarm, CLEAN))
    told = refused(crawler, 32, *join(tmp_path / "d"), "--bootstrap", first.address, "--secret-file", str(old))
    assert f"its secret is {closed.names()[0]}, ours " in told


@pytest.mark.needs_root
def test_who_hears_every_packet_between_the_nodes_reads_no_url_no_host_and_no_secret(
    closed: Closed, stub: StubServer, crawler: Crawler, outputs: Outputs
) -> None:
    nodes, site, ring = closed.swarm.nodes, tree(stub), parse_ring(closed.file.read_text(), "here")
    texts = [site.url, site.url.removeprefix("http://"), "/a17", "text/html", "find_node", secret_text(ring.secrets[0])]
    hidden = [*(text.encode() for text in texts), ring.secrets[0], ring.used.ca_seed, ring.used.datagram_key]
    with (
        Capture(address_of(node.address) for node in nodes) as heard,
        Capture([address_of(nodes[0].admin)]) as control,
        submitted(crawler, nodes[0], outputs, site.url + "/", "--delay", "0") as crawl,
    ):
        assert_whole(stub, crawl.finish(closed.swarm, CLEAN))
    assert control.has(site.url.encode()), "what is not closed is heard, too"
    assert heard.bytes_of(17) > 1_000
    assert heard.bytes_of(6) > 20_000
    assert [what for what in hidden if heard.has(what)] == []


def test_a_banned_node_is_gone_for_all_others(closed: Closed) -> None:
    *others, out = closed.swarm.nodes
    assert run(["ban", out.id, "--secret-file", str(closed.file)]) == 0

    def alone() -> bool:
        there = [{row["node"] for row in node.ask("peers") if row["gone_s"] is None} for node in others]
        return all(ids == {node.id for node in others} for ids in there)

    until(alone, "it is gone", DEADLINE_S)
    assert run(["ban", out.id, "--lift", "--secret-file", str(closed.file)]) == 0
    closed.swarm.meet()
