"""Five nodes: what commands, API, progress line and Prometheus tell of a crawl is what the nodes add up to."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest

from .crawler import Crawler
from .deadline import until
from .outputs import Outputs
from .stub import StubServer
from .sums import GROWS, Watch, of, sums
from .swarm import ASK_EVERY_S, DEADLINE_S, Node, Swarm
from .terminal import Terminal

COLUMNS = 80
LOOKS = 3
LINKS = [f"/{number}" for number in range(70)]
PROGRESS = re.compile(
    r"\S+(?: s)?  (?P<pages>\d+) pages  \S+  [\d.]+ k?B  (?P<queued>\d+) queued  (?P<in_flight>\d+) in flight"
)


@pytest.fixture
def nodes(swarm: Swarm) -> list[Node]:
    """Five that know each other."""
    nodes = swarm.start(5)
    swarm.meet()
    return nodes


class Teller:
    """Everything that tells figures of a crawl, by way of one node."""

    def __init__(self, crawler: Crawler, node: Node, crawl: str) -> None:
        self.crawler, self.node, self.crawl = crawler, node, crawl

    def command(self, *argv: str) -> str:
        """What a command prints, no line of it wider than a terminal."""
        stdout = self.crawler.run(*argv, "--admin", self.node.admin).ended_with(0).stdout
        assert "--json" in argv or max(map(len, stdout.splitlines())) <= COLUMNS, stdout
        return stdout

    def rows(self) -> dict[str, dict[str, Any]]:
        """How the crawl stands, by who told it."""
        (listed,) = json.loads(self.command("crawls", "--json"))
        (asked,) = self.node.ask("crawls")
        shown = json.loads(self.command("crawls", self.crawl[:12], "--json"))
        return {
            "crawls": listed,
            "crawls CRAWL": shown,
            "API": asked,
            "API of one": self.node.ask(f"crawls/{self.crawl}"),
        }

    def exactly(self, expected: dict[str, int]) -> None:
        """All figures are these."""
        rows = self.rows()
        for who, row in rows.items():
            assert of(row["counters"], expected) == expected, who
        shares = [of(row["counters"], expected) for row in rows["API of one"]["per_node"]]
        assert len(shares) == 5
        assert {name: sum(share[name] for share in shares) for name in expected} == expected
        kinds = {name for name in rows["API"]["counters"] if name.startswith("errors_")}
        assert kinds <= expected.keys(), "no errors that no node counts"
        # The same for people: a line of the list; a table with a row for each node.
        cells = dict(zip(*(re.split(r"  +", line) for line in self.command("crawls").splitlines()[:2]), strict=False))
        shown = self.command("crawls", self.crawl[:12])
        table = [re.split(r"  +", line) for line in shown.partition("\n\n")[2].splitlines()[1:6]]
        for name, column in (("pages", 2), ("queued", 3), ("errors", 4)):
            assert int(cells[name]) == expected[name]
            assert sum(int(row[column]) for row in table) == expected[name]
            if expected[name]:
                assert re.search(rf"^{name} +{expected[name]}$", shown, re.MULTILINE)


def settled(nodes: list[Node]) -> dict[str, int]:
    """The sums, once nothing is under way and nothing changes any more."""
    seen: list[dict[str, int]] = [{}]

    def still() -> bool:
        seen.append(sums(nodes))
        return seen[-1] == seen[-2] and not seen[-1]["in_flight"]

    until(still, "no figure changes any more", DEADLINE_S, 0.5)
    return seen[-1]


def progress(terminal: Terminal) -> dict[str, int]:
    """The figures of the next progress line."""
    count = len(terminal.lines)
    until(lambda: len(terminal.lines) > count + 1 or terminal.ended, "a progress line is written", DEADLINE_S)
    line = terminal.lines[count]
    found = PROGRESS.match(line)
    assert found is not None, line
    assert len(line) < COLUMNS
    return {name: int(value) for name, value in found.groupdict().items()}


def test_every_figure_is_the_sum_over_five_nodes_while_paused_and_at_the_end_and_near_it_meanwhile(
    nodes: list[Node], swarm: Swarm, stub: StubServer, crawler: Crawler, outputs: Outputs
) -> None:
    stub.page("/", *LINKS)
    for number, path in enumerate(LINKS):
        if number % 7:
            stub.page(path)
    # One server under two names is two hosts, so that two nodes can have one at the same time.
    seeds = [f"{stub.url}/", f"http://localhost:{stub.port}/"]
    asked = nodes[-1]
    argv = ["submit", *seeds, "--allow-private", "--delay", "0.1", "--wait", "--admin", asked.admin]
    with Terminal(crawler.home, *argv, "--out", outputs.out) as terminal:
        until(lambda: bool(asked.ask("crawls")), "the crawl is known", DEADLINE_S, ASK_EVERY_S)
        tell = Teller(crawler, asked, asked.ask("crawls")[0]["crawl"])
        watch = Watch(nodes)
        until(lambda: watch.look()["pages"] > 8, "pages are counted", DEADLINE_S, ASK_EVERY_S)
        for _ in range(LOOKS):
            for node in nodes:
                told_at = time.monotonic()
                row = node.ask(f"crawls/{tell.crawl}")
                watch.holds(of(row["counters"], dict.fromkeys(GROWS, 0)), told_at, row["as_of_s"])
            figures = progress(terminal)
            watch.holds({"pages": figures["pages"]}, time.monotonic())

        tell.command("pause", tell.crawl[:12])
        paused = settled(nodes)
        assert paused["queued"] > 0
        assert paused["pages"] > 8
        until(lambda: asked.ask("crawls")[0]["counters"]["pages"] == paused["pages"], "it is told", DEADLINE_S, 0.2)
        tell.exactly(paused)
        assert "it is paused" in tell.command("status")
        until(lambda: f"  {paused['pages']} pages  " in terminal.lines[-1], "the progress line has it", DEADLINE_S)
        assert "waiting: it is paused" in terminal.lines[-1]

        tell.command("resume", tell.crawl[:12])
        assert terminal.wait() == 0, terminal.shown

    ended = settled(nodes)
    tell.exactly(ended)
    summary = outputs.summary()
    assert summary["complete"] is True
    for name in ("pages", "pages_ok", "fetches", "refetches", "redirects", "errors", "urls_seen"):
        assert summary[name] == ended[name], name
    assert summary["bytes"] == ended["body_bytes"]
    assert {f"errors_{kind}": count for kind, count in summary["errors_by_kind"].items()} == {
        name: count for name, count in ended.items() if name.startswith("errors_")
    }
    assert sum(node["pages"] for node in summary["per_node"]) == ended["pages"]
    assert re.search(rf"^  pages      {ended['pages']}  ", terminal.shown, re.MULTILINE)
