"""Whoever asks why nothing happens is told in the line before their eyes: real processes, by each node and command.

`test_nothing_happens` has all sixteen situations in each of four places; here `status`, `crawls` and `explain-host`
tell some of them, too.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .crawler import COMMAND, Crawler, environment
from .deadline import until
from .stub import Answer, StubServer
from .swarm import Node, Swarm

DEADLINE_S = 60.0
ASK_EVERY_S = 0.2
DEADLINE_WAVES = 100
LINKS = tuple(f"/{number}" for number in range(12))


def busy(stub: StubServer) -> None:
    """A site whose pages, but for the first, say 429."""
    stub.page("/", *LINKS)
    stub.answers |= dict.fromkeys(LINKS, Answer(status=429, headers={"Retry-After": "600"}))


def slow(stub: StubServer) -> None:
    """A site that wants half a minute between two requests."""
    stub.page("/", *LINKS)
    stub.answers["/robots.txt"] = Answer(b"User-agent: *\nCrawl-delay: 30\n", headers={"Content-Type": "text/plain"})


def broken(stub: StubServer) -> None:
    """A site whose robots.txt says 503."""
    stub.answers["/robots.txt"] = Answer(status=503, headers={"Retry-After": "600"})


HELD_BACK: dict[str, tuple[Callable[[StubServer], None], str, str]] = {
    "429": (busy, "retry-after", r"{host} asked for a pause \(429\), (9|10) min"),
    "Crawl-delay": (slow, "crawl-delay", r"the Crawl-delay in the robots.txt of {host}, \d+ s left"),
    "503 for robots.txt": (broken, "retry-after", r"{host} asked for a pause \(503 for robots.txt\)"),
}


def host_of(stub: StubServer) -> str:
    return stub.url.removeprefix("http://")


def on_a_terminal(home: Path, argv: list[str], wanted: str) -> str:
    """What a command shows on a terminal of 80 columns, up to a line that matches; it is interrupted then."""
    main, terminal = os.openpty()
    env = environment(home) | {"COLUMNS": "80"}
    with subprocess.Popen(
        [*COMMAND, *argv], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=terminal, cwd=home, env=env
    ) as process:
        os.close(terminal)
        shown, end = "", time.monotonic() + DEADLINE_S
        try:
            while not re.search(wanted, shown):
                assert time.monotonic() < end, shown
                shown += os.read(main, 4096).decode()
            process.send_signal(signal.SIGINT)
            while os.read(main, 4096):
                pass
        except OSError:
            pass  # EIO: the command has closed its end
        finally:
            os.close(main)
            process.kill()
    return shown


def test_the_progress_line_of_one_node_says_why_it_waits_within_80_columns(stub: StubServer, tmp_path: Path) -> None:
    site, _, text = HELD_BACK["503 for robots.txt"]
    site(stub)
    wanted = "waiting: " + text.format(host=re.escape(host_of(stub)))
    shown = on_a_terminal(
        tmp_path, ["crawl", f"{stub.url}/", "--allow-private", "--delay", "0", "--out", "out"], wanted
    )
    lines = [line for line in re.split(r"\r\x1b\[K|\r?\n", shown) if "waiting:" in line]
    assert all(len(line) < 80 for line in lines)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Node]]:
    with Swarm(tmp_path_factory.mktemp("nodes")) as swarm:
        swarm.start(2)
        swarm.meet()
        yield swarm.nodes
        swarm.check()


def submit(crawler: Crawler, node: Node, url: str, *options: str) -> str:
    argv = ["submit", url, "--allow-private", "--delay", "0", "--admin", node.admin, *options]
    return crawler.run(*argv).ended_with(0).stdout.strip()


def standing(node: Node, crawl: str) -> dict[str, Any]:
    (row,) = (row for row in node.ask("crawls") if row["crawl"] == crawl)
    assert isinstance(row["standing"], dict)
    return row["standing"]


def waits_for(node: Node, crawl: str, reason: str) -> None:
    until(lambda: standing(node, crawl)["reason"] == reason, f"it waits for {reason}", DEADLINE_S, ASK_EVERY_S)


@pytest.mark.parametrize("situation", HELD_BACK)
def test_every_node_of_a_swarm_says_why_a_crawl_waits(
    situation: str, nodes: list[Node], stub: StubServer, crawler: Crawler
) -> None:
    site, reason, text = HELD_BACK[situation]
    site(stub)
    crawl = submit(crawler, nodes[0], f"{stub.url}/")
    wanted = text.format(host=re.escape(host_of(stub)))
    for node in nodes:
        waits_for(node, crawl, reason)
        assert re.match(wanted, standing(node, crawl)["text"])
        for argv in (["status"], ["crawls"], ["crawls", crawl]):
            said = " ".join(crawler.run(*argv, "--admin", node.admin).ended_with(0).stdout.split())
            assert re.search(wanted, said), argv
        url = f"{stub.url}/7" if situation == "429" else f"{stub.url}/"
        why = crawler.run("why", url, "--crawl", crawl, "--admin", node.admin).ended_with(0).stdout
        assert "is queued" in why
        assert "next       " in why
        host = crawler.run("explain-host", host_of(stub), "--admin", node.admin).ended_with(0).stdout
        state = "waiting" if reason == "crawl-delay" else "snoozed"
        assert re.search(rf"^state +{state}$", host, re.MULTILINE), host
    crawler.run("stop", crawl, "--admin", nodes[0].admin).ended_with(0)
    until(lambda: standing(nodes[1], crawl)["state"] == "ended", "it has ended", DEADLINE_S, ASK_EVERY_S)
    why = crawler.run("why", url, "--crawl", crawl, "--admin", nodes[1].admin).ended_with(0).stdout
    assert "was queued when the crawl ended (stopped), and was not fetched" in why


def test_a_paused_crawl_says_so_and_a_crawl_at_its_limit_says_how_it_ended(
    nodes: list[Node], stub: StubServer, crawler: Crawler
) -> None:
    slow(stub)
    crawl = submit(crawler, nodes[0], f"{stub.url}/")
    waits_for(nodes[1], crawl, "crawl-delay")
    crawler.run("pause", crawl, "--admin", nodes[0].admin).ended_with(0)
    waits_for(nodes[1], crawl, "paused")
    why = crawler.run("why", f"{stub.url}/", "--crawl", crawl, "--admin", nodes[1].admin).ended_with(0).stdout
    assert "is queued; the crawl is paused" in why
    limited = submit(crawler, nodes[0], f"{stub.url}/", "--max-pages", "1", "--ignore-robots")
    until(lambda: standing(nodes[1], limited)["state"] == "ended", "it has ended", DEADLINE_S, ASK_EVERY_S)
    assert standing(nodes[1], limited)["reason"] == "page limit"
    why = crawler.run("why", f"{stub.url}/7", "--crawl", limited, "--admin", nodes[1].admin).ended_with(0).stdout
    assert "was queued when the crawl ended (page limit), and was not fetched" in why
    crawler.run("stop", crawl, "--admin", nodes[0].admin).ended_with(0)


def test_the_figures_of_every_node_are_the_sum_of_all(nodes: list[Node], stub: StubServer, crawler: Crawler) -> None:
    stub.page("/", *LINKS)
    for link in LINKS:
        stub.page(link, "/")
    crawl = submit(crawler, nodes[0], f"{stub.url}/")
    until(lambda: standing(nodes[0], crawl)["state"] == "ended", "it has ended", DEADLINE_S, ASK_EVERY_S)
    until(lambda: standing(nodes[1], crawl)["state"] == "ended", "it has ended", DEADLINE_S, ASK_EVERY_S)
    for node in nodes:
        told = node.ask(f"crawls/{crawl}")
        assert told["counters_of"] == "swarm"
        assert told["counters"]["pages"] == len(LINKS) + 1
        for name in ("pages", "fetches", "body_bytes", "urls_seen", "errors"):
            assert told["counters"][name] == sum(row["counters"][name] for row in told["per_node"]), name
        (row,) = (row for row in node.ask("crawls") if row["crawl"] == crawl)
        assert row["counters"] == told["counters"]


def test_a_node_that_is_killed_keeps_its_row_and_its_pages_and_what_lies_only_there_is_told(
    tmp_path: Path, stub: StubServer, crawler: Crawler
) -> None:
    stub.page("/", *LINKS)
    for link in LINKS:
        stub.page(link)
    with StubServer() as held, Swarm(tmp_path / "nodes") as swarm:
        busy(held)
        asked, *others = swarm.start(3)
        swarm.meet()
        crawl = submit(crawler, asked, f"{stub.url}/", f"{held.url}/")
        pages = len(LINKS) + 2

        def told() -> dict[str, Any]:
            answer = asked.ask(f"crawls/{crawl}")
            assert isinstance(answer, dict)
            return answer

        def row_of(node: Node) -> dict[str, Any]:
            (row,) = (row for row in told()["per_node"] if row["node"] == node.id)
            return dict(row)

        until(lambda: told()["counters"].get("pages", 0) == pages, "all of it is there", DEADLINE_S, ASK_EVERY_S)
        until(
            lambda: told()["as_of_s"] < 0.1, "the other nodes were told the coordinator's own figures", DEADLINE_S, 0.5
        )
        killed = max(others, key=lambda node: int(row_of(node)["counters"]["pages"]))
        before = row_of(killed)["counters"]["pages"]
        killed.kill()
        at = time.monotonic()
        until(lambda: row_of(killed)["state"] != "active", "it is shown not to answer", DEADLINE_S, ASK_EVERY_S)
        assert time.monotonic() - at < 10, "the promise is in seconds: a person watches"
        until(lambda: row_of(killed)["state"] == "gone", "it is shown as gone", DEADLINE_S, ASK_EVERY_S)
        lies = rf"{before} pages lie only at {killed.id}, which is gone; they are fetched again, (9|10) min"
        until(lambda: bool(re.match(lies, row_of(killed)["text"])), "what lies there is told", DEADLINE_S, ASK_EVERY_S)
        assert told()["counters"]["pages"] == pages, "they may come back"
        assert [peer["state"] for peer in asked.ask("peers") if peer["node"] == killed.id] == ["gone"]
        swarm.restart(killed)
        until(lambda: row_of(killed)["state"] == "active", "it is back", DEADLINE_S, ASK_EVERY_S)
        until(lambda: not row_of(killed)["text"].startswith(str(before)), "nothing is missing", DEADLINE_S, ASK_EVERY_S)
        assert told()["counters"]["pages"] == pages
        swarm.check()
