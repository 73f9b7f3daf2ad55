"""`crawl --nodes N`: several processes, one command, outputs like those of one node."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from dhtcrawl.config import FetchSettings

from .conftest import Serve
from .crawler import Crawler, Outcome
from .deadline import until
from .nginx import Nginx
from .outputs import Outputs
from .sites import SMALL, START
from .stub import Answer, StubServer
from .terminal import CTRL_C, Terminal
from .truth import truth_of

OPTIONS = ("--allow-private", "--delay", "0", "--nodes", "3", "--json")
OPEN_PAGES = FetchSettings().open_pages_max  # what the end of one node costs at most


def command(server: Nginx, out: Path) -> tuple[str | Path, ...]:
    return ("crawl", server.url + START, *OPTIONS, "--out", out)


def assert_whole(ran: Outcome, outputs: Outputs, server: Nginx, crawler: Crawler) -> None:
    truth = truth_of(SMALL.root, START, SMALL.encoding)
    ran.ended_with(0)
    assert ran.summary == outputs.summary()
    assert (ran.summary["complete"], ran.summary["lost"], ran.summary["pages_missing"]) == (True, 0, 0), ran
    assert outputs.html().keys() == truth.pages.keys()
    assert server.requests().keys() == truth.requests
    crawler.check(outputs.out)


def assert_counted(ran: Outcome, server: Nginx, in_flight: int) -> None:
    """The summary has the server's own figures, but for what was in flight when processes ended."""
    times = Counter(server.requests())
    again = times.total() - len(times)
    assert again <= in_flight
    assert again - in_flight <= ran.summary["refetches"] <= again, (ran.summary, again)
    assert times.total() - in_flight <= ran.summary["fetches"] <= times.total(), (ran.summary, times.total())


@pytest.mark.needs_nginx
def test_three_processes_make_one_collection_and_leave_nothing_else(
    serve: Serve, crawler: Crawler, outputs: Outputs
) -> None:
    server = serve(SMALL)
    ran = crawler.run(*command(server, outputs.out))
    assert_whole(ran, outputs, server, crawler)
    assert max(server.requests().values()) == 1
    assert len(ran.summary["per_node"]) == 3
    assert sum(node["pages"] for node in ran.summary["per_node"]) == ran.summary["pages"]
    assert all(node["cpu_seconds"] > 0 for node in ran.summary["per_node"])
    assert not (outputs.node / "nodes").exists()
    again = crawler.run(*command(server, outputs.out)).ended_with(2)
    assert "name another directory" in again.one_line()


@pytest.mark.needs_nginx
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=lambda how: how.name)
def test_the_same_command_goes_on_after_an_interruption(
    how: signal.Signals, serve: Serve, crawler: Crawler, outputs: Outputs
) -> None:
    server = serve(SMALL, "limit_rate 200k;")
    with crawler.start(*command(server, outputs.out)) as running:
        until(lambda: server.hit_count() > 100, "a part of the site is fetched")
        if how is signal.SIGKILL:
            second = crawler.run(*command(server, outputs.out))
            assert f"{outputs.node / 'nodes'} is in use by process" in second.ended_with(2).one_line()
        # Ctrl-C in a terminal reaches the nodes, too.
        running.send(how, to_all=how is signal.SIGINT)
        ended = running.wait()
        assert ended.code == (11 if how is signal.SIGINT else -how), ended
    assert len(list(outputs.node.glob("nodes/*/certificate.pem"))) == 3, "their swarm is closed"
    if how is signal.SIGINT:
        # All that was asked for is there, and nothing else.
        assert ended.summary == outputs.summary()
        assert (ended.summary["complete"], ended.summary["lost"], ended.summary["refetches"]) == (False, 0, 0)
        assert ended.summary["pages"] == len(outputs.pages()) == sum(server.requests().values())
        crawler.check(outputs.out)
    assert not list(outputs.node.glob("nodes/*/crawls/*/pages/*")), "a node writes no outputs that are gathered"
    # The processes of a parent that was killed end by themselves; the next run needs their stores.
    other = crawler.run("crawl", server.url + "/other", *OPTIONS, "--out", outputs.out)
    assert "repeat its command" in other.ended_with(2).one_line()
    fewer = crawler.run(*("2" if word == "3" else word for word in command(server, outputs.out)))
    assert "--nodes 3" in fewer.ended_with(2).one_line()
    ran = crawler.run(*command(server, outputs.out))
    assert_whole(ran, outputs, server, crawler)
    # Nothing that was in flight when it ended is more than what three nodes may have.
    assert_counted(ran, server, in_flight=0 if how is signal.SIGINT else 3 * OPEN_PAGES)


@pytest.mark.needs_nginx
def test_a_process_that_ends_before_the_crawl_does_ends_the_command_and_it_can_go_on(
    serve: Serve, crawler: Crawler, outputs: Outputs
) -> None:
    server = serve(SMALL, "limit_rate 200k;")
    with crawler.start(*command(server, outputs.out)) as running:
        until(lambda: server.hit_count() > 100, "a part of the site is fetched")
        os.kill(int((outputs.node / "nodes" / "2" / "lock").read_text()), signal.SIGKILL)
        ended = running.wait().ended_with(1)
    assert "a node ended" in ended.one_line()
    ran = crawler.run(*command(server, outputs.out))
    assert_whole(ran, outputs, server, crawler)
    assert_counted(ran, server, in_flight=3 * OPEN_PAGES)


def test_a_second_ctrl_c_at_a_terminal_ends_all_processes_at_once_and_the_same_command_goes_on(
    crawler: Crawler, outputs: Outputs
) -> None:
    with StubServer() as site:
        site.page("/", "/slow")
        site.answers["/slow"] = Answer(b"<title>slow</title>", headers={"Content-Type": "text/html"}, holds=True)
        argv = ("crawl", site.url, "--allow-private", "--delay", "0", "--nodes", "2", "--out", outputs.out)
        with Terminal(crawler.home, *argv) as terminal:
            until(lambda: "/slow" in site.paths() or terminal.ended, "the slow page is asked for")
            pids = [(outputs.node / "nodes" / number / "lock").read_text() for number in ("1", "2")]
            terminal.press(CTRL_C)
            until(lambda: "(again: at once)" in terminal.shown or terminal.ended, "it answers")
            terminal.press(CTRL_C)
            assert terminal.wait() == 13, terminal.shown
        assert "stopped at once; the same command goes on" in terminal.shown
        until(lambda: not any(Path("/proc", pid).exists() for pid in pids), "no process is left")
        site.release()
        crawler.run(*argv).ended_with(0)
    assert len(outputs.pages()) == 2


def test_a_crawl_that_brings_nothing_says_why_and_can_be_tried_again(crawler: Crawler, outputs: Outputs) -> None:
    with StubServer() as site:
        site.answers["/"] = Answer(status=403, body=b"no")
        command = ("crawl", site.url, "--allow-private", "--delay", "0", "--nodes", "2", "--out", outputs.out)
        refused = crawler.run(*command, "-vv").ended_with(9)
        assert f"{site.url}/: answers 403 (Forbidden); the site refuses this crawler" in refused.one_line()
        before = outputs.pages()
        site.page("/")
        again = crawler.run(*command).ended_with(0)
    (kept,) = (outputs.out / "earlier").iterdir()
    assert f"its outputs are in {kept}/ now" in again.stderr
    assert (Outputs(kept).pages(), [row["status"] for row in outputs.pages()]) == (before, [200])
    for directory in (outputs.out, kept):
        crawler.run("verify", directory).ended_with(0)
    assert any("403" in log.read_text() for log in (outputs.node / "logs").glob("*.log")), "logs stay"


def test_what_a_process_said_stays_after_a_failure(crawler: Crawler, outputs: Outputs) -> None:
    broken = outputs.node / "nodes" / "2"
    (outputs.node / "nodes" / "1").mkdir(parents=True)
    broken.mkdir()
    (broken / "store").write_text("no directory")
    argv = ("crawl", "http://127.0.0.1:9/", "--delay", "0", "--nodes", "2", "--out", outputs.out)
    ran = crawler.run(*argv).ended_with(1)
    log = outputs.node / "logs" / "2.log"
    assert "a node did not start: cannot open the store" in ran.one_line()
    assert ran.one_line().endswith(f"its log: {log}")
    assert "cannot open the store" in log.read_text()
