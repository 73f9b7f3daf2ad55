"""What a swarm's nodes log while nodes come and go: enough to see what each is doing, and whole lines only."""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from functools import cache

from dhtcrawl.cli.log_lines import JsonLines, TextLines
from dhtcrawl.sim.scenario import Scenario
from dhtcrawl.sim.swarm_run import simulate_swarm

TROUBLE = Scenario(
    nodes=3,
    hosts=2,
    pages=12,
    delay_s=0.1,
    concurrency=4,
    joins=1,
    crashes=1,
    crash_every_s=1,
    away_s=-1,
    holder_grace_s=8,
)


class Lines(logging.Handler):
    """Formats each record as a command would."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[dict[str, object]] = []
        self._json, self._text = JsonLines(), TextLines()

    def emit(self, record: logging.LogRecord) -> None:
        line = self._text.format(record)
        assert line.isprintable(), line
        self.rows.append(json.loads(self._json.format(record)))


@cache
def rows_of_a_run() -> list[dict[str, object]]:
    """What all nodes log at DEBUG."""
    lines, ours = Lines(), logging.getLogger("dhtcrawl")
    before = ours.level, ours.propagate
    ours.addHandler(lines)
    ours.setLevel(logging.DEBUG)
    ours.propagate = False
    try:
        assert simulate_swarm(TROUBLE, 1).violations == []
    finally:
        ours.removeHandler(lines)
        ours.setLevel(before[0])
        ours.propagate = before[1]
    return lines.rows


def test_at_debug_leases_members_joins_calls_that_failed_requests_and_crawls_are_told() -> None:
    rows = rows_of_a_run()
    for level, logger, says in (
        ("debug", "crawl.fetcher", r"\S+ answered 200 with \d+ bytes after \S+ s, attempt 1"),
        ("debug", "swarm.hosts.gatekeeper_service", r"\S+ is leased to node \w{12} for \S+ s and \d+ requests"),
        ("debug", "swarm.hosts.gatekeeper_service", r"\S+ is not free for node \w{12}, which waits for \S+ s"),
        ("debug", "swarm.hosts.host_leases", r"\S+ goes back to its gatekeeper"),
        ("debug", "rpc.peers.task_peers", r"\w+ to node \w{12} failed, [\w-]+: .+"),
        ("info", "rpc.membership.gossip", r"node \w{12} at \S+ is a member now \(joining\)"),
        ("info", "rpc.membership.gossip", r"node \w{12} at \S+ does not answer any more"),
        ("info", "swarm.membership.join", "this node is active"),
        ("debug", "swarm.membership.join", r"node \w{12} has told what it knows of our keys"),
        ("info", "swarm.lifecycle.crawl_records", r"crawl \w{12} of \S+ is known here, running"),
        ("info", "swarm.lifecycle.coordinator", r"crawl \w{12} has ended: complete"),
        (
            "debug",
            "swarm.lifecycle.coordinator",
            r"\d of \d members told how crawl \w{12} stands with them, from which follows: .+",
        ),
        ("info", "crawl.crawler", r"crawl \w{12} has ended in the whole swarm, with 0 requests in flight"),
    ):
        found = [
            row
            for row in rows
            if (row["level"], row["logger"]) == (level, f"dhtcrawl.{logger}")
            and re.fullmatch(says, str(row["message"]))
        ]
        assert found, (level, logger, says)
    assert not [row for row in rows if row["level"] in ("warning", "error")]


def test_at_info_each_line_is_worth_reading() -> None:
    rows = [row for row in rows_of_a_run() if row["level"] == "info"]
    # Four nodes that each see three others, and one crash: no line for a page or a lease.
    assert len(rows) < 100, Counter(re.sub(r"\w{12}|\d+", "N", str(row["message"])) for row in rows).most_common(20)
