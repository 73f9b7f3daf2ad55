"""Ctrl-C once, twice, and what the same directory says to whom."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from dhtcrawl.identity import load_or_create

from .conftest import Serve
from .crawler import Crawler, Running
from .deadline import until
from .nginx import Nginx
from .outputs import Outputs
from .sites import SMALL, START
from .stub import Answer, StubServer
from .swarm import DEADLINE_S, Swarm, submitted
from .truth import truth_of

SLOW = Answer(b"<title>slow</title>", headers={"Content-Type": "text/html"}, holds=True)


class Silent(NamedTuple):
    stream: socket.socket
    datagrams: socket.socket


@pytest.mark.needs_nginx
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_one_signal_drains_and_the_same_command_completes(
    number: signal.Signals, serve: Serve, crawler: Crawler, outputs: Outputs
) -> None:
    server = serve(SMALL)
    truth = truth_of(SMALL.root, START, SMALL.encoding)
    command = ["crawl", server.url + START, "--allow-private", "--delay", "2ms", "--out", str(outputs.out), "--json"]
    with crawler.start(*command) as running:
        wait_for_requests(running, server, 100)
        running.send(number)
        interrupted = running.wait().ended_with(11)
    assert interrupted.summary["complete"] is False
    ran = crawler.run(*command).ended_with(0)
    assert outputs.html().keys() == truth.pages.keys()
    assert max(server.requests().values()) == 1, "a drained crawl asks for nothing twice"
    assert (ran.summary["refetches"], ran.summary["lost"]) == (0, 0)
    crawler.check(outputs.out)


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_forces_and_the_same_command_still_completes(
    second: signal.Signals, stub: StubServer, crawler: Crawler, outputs: Outputs
) -> None:
    stub.page("/", "/a", "/slow")
    stub.page("/a")
    stub.answers["/slow"] = SLOW
    command = crawl(stub, outputs, "--delay", "0")
    with crawler.start(*command) as running:
        until(lambda: "/slow" in stub.paths() or running.ended, "the slow page is asked for")
        # With a request in flight that does not end, only force ends the crawl.
        running.send(signal.SIGINT)
        running.send(second)
        running.wait().ended_with(13)
    stub.release()
    crawler.run(*command).ended_with(0)
    assert outputs.html().keys() == {"/", "/a", "/slow"}
    assert stub.paths().count("/") == 1
    crawler.check(outputs.out)


def test_a_second_signal_stops_the_last_node_of_a_swarm_which_goes_on_when_it_is_started_again(
    stub: StubServer, crawler: Crawler, outputs: Outputs, tmp_path: Path
) -> None:
    stub.page("/", "/a", "/slow")
    stub.page("/a")
    stub.answers["/slow"] = SLOW
    with Swarm(tmp_path / "swarm") as swarm:
        (node,) = swarm.start(1)
        with submitted(crawler, node, outputs, stub.url + "/", "--delay", "0") as crawl:
            until(lambda: "/slow" in stub.paths() or crawl.running.ended, "the slow page is asked for")
            node.running.send(signal.SIGINT)
            until(lambda: "leaving" in node.running.stderr or node.running.ended, "it has heard")
            node.running.send(signal.SIGTERM)
            forced = node.running.wait().ended_with(13)
            assert "stopped at once" in forced.stderr
            stub.release()
            node.start()
            crawl.finish(swarm)
    assert outputs.html().keys() == {"/", "/a", "/slow"}
    assert stub.paths().count("/") == 1
    crawler.check(outputs.out)


@pytest.fixture
def silent() -> Iterator[Silent]:
    """A port where neither a datagram nor a connection is answered."""
    with socket.socket() as stream, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        stream.bind(("127.0.0.1", 0))
        stream.listen()
        datagrams.bind(stream.getsockname())
        for each in (stream, datagrams):
            each.settimeout(DEADLINE_S)
        yield Silent(stream, datagrams)


def joining(crawler: Crawler, silent: Silent, data_dir: Path) -> Running:
    """A node that has begun to join through nobody."""
    address = f"127.0.0.1:{silent.stream.getsockname()[1]}"
    at = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data-dir", str(data_dir)]
    return crawler.start("join", "--bootstrap", address, *at)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_a_key_is_chosen_ends_with_0_and_leaves_nothing(
    number: signal.Signals, silent: Silent, crawler: Crawler, tmp_path: Path
) -> None:
    data_dir = tmp_path / "node"
    with joining(crawler, silent, data_dir) as running:
        asking, _ = silent.stream.accept()
        with asking:
            running.send(number)
            left = running.wait().ended_with(0)
    assert "has not joined yet" in left.one_line()
    assert [path.name for path in data_dir.iterdir()] == ["lock"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_others_are_looked_for_ends_with_0(
    number: signal.Signals, silent: Silent, crawler: Crawler, tmp_path: Path
) -> None:
    data_dir = tmp_path / "node"
    data_dir.mkdir()
    load_or_create(data_dir)
    with joining(crawler, silent, data_dir) as running:
        silent.datagrams.recv(2048)
        running.send(number)
        assert "leaving" in running.wait().ended_with(0).one_line()


def test_a_complete_crawl_is_not_run_again_in_its_directory(
    stub: StubServer, crawler: Crawler, outputs: Outputs
) -> None:
    stub.page("/")
    crawler.run(*crawl(stub, outputs)).ended_with(0)
    before = stub.paths()
    again = crawler.run(*crawl(stub, outputs)).ended_with(2)
    assert "--out" in again.one_line()
    assert stub.paths() == before


def test_a_directory_refuses_other_options_and_other_seeds(
    stub: StubServer, crawler: Crawler, outputs: Outputs
) -> None:
    stub.page("/", *(f"/{number}" for number in range(50)))
    with crawler.start(*crawl(stub, outputs, "--delay", "50ms")) as running:
        until(lambda: len(stub.paths()) >= 3 or running.ended, "some requests")
        running.send(signal.SIGINT)
        running.wait().ended_with(11)
    other_options = crawler.run(*crawl(stub, outputs, "--delay", "50ms", "--scope", "page")).ended_with(2)
    assert "--out" in other_options.one_line()
    other_seed = crawler.run("crawl", f"{stub.url}/1", "--allow-private", "--delay", "50ms", "--out", outputs.out)
    assert "--out" in other_seed.ended_with(2).one_line()


def test_two_processes_never_share_a_directory(stub: StubServer, crawler: Crawler, outputs: Outputs) -> None:
    stub.answers["/"] = SLOW
    with crawler.start(*crawl(stub, outputs)) as running:
        until(lambda: "/" in stub.paths() or running.ended, "the first is under way")
        second = crawler.run(*crawl(stub, outputs)).ended_with(2)
        assert "in use" in second.one_line()
        stub.release()
        running.wait().ended_with(0)


def crawl(stub: StubServer, outputs: Outputs, *options: str) -> list[str]:
    return ["crawl", f"{stub.url}/", "--allow-private", "--out", str(outputs.out), "--json", *options]


def wait_for_requests(running: Running, server: Nginx, count: int) -> None:
    until(lambda: running.ended or server.hit_count() >= count, f"{count} requests")
    assert not running.ended, f"it ended too soon: {running.outcome()}"
