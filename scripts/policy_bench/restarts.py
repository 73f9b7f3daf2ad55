"""P4 with real processes: a fifth of the nodes is killed in the middle of a crawl and started again with its disks.

The middle is when the site was asked for a third of its pages. The killed nodes
stay away until the others have given them up, so that their tasks have new
owners when they are back. *Lost* and *missing* are what the crawl's summary
says once it is gathered, and beside it the pages are counted: all of the site,
each once. *Fetched again* is by the site's own count. A request that the death
cut short is made again, and is no refetch: so many are taken off as a killed
node may have under way, as in `tests/e2e/test_swarm_churn.py`.
`scripts/bench_churn.py` has the same with 40 simulated nodes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench_tasks import RUN_MAX_S, wait_for

from policy_bench.nodes import Cluster
from policy_bench.report import Experiment, Options, Row
from policy_bench.slow_site import slow_site

LATENCY_S = 0.15
AT_ONCE = 4
AGAIN_MAX = 0.1  # % of the pages


class Case(NamedTuple):
    """A swarm, and how many of it die."""

    nodes: int
    killed: int
    pages: int


FULL = (Case(nodes=5, killed=1, pages=3_000), Case(nodes=10, killed=2, pages=3_000))
QUICK = (Case(nodes=2, killed=1, pages=60),)


class Outcome(NamedTuple):
    """What came of it."""

    complete: bool
    lost: int
    missing: int  # by the summary, and by our own count of the pages
    again: int  # requests for a page that had been asked for before
    beyond: int  # of them, more than the deaths cut short

    @property
    def whole(self) -> bool:
        return self.complete and not self.lost and not self.missing


def crash(case: Case, home: Path) -> Outcome:
    """One crawl; the last nodes die, so that the first may be asked all the time."""
    victims = range(case.nodes - case.killed, case.nodes)
    with (
        slow_site(home, LATENCY_S, case.pages) as site,
        Cluster(home / "nodes", "--concurrency", str(AT_ONCE)) as cluster,
    ):
        for _ in range(case.nodes):
            cluster.add()
        with submitted(site.url + "/0", cluster.nodes[0].admin, home / "out") as submit:
            wait_for(lambda: site.totals().pages >= case.pages // 3)
            cluster.kill(victims)
            cluster.restart(victims)
            summary = summary_of(submit)
        return outcome(case, summary, site.totals().again)


@contextmanager
def submitted(seed: str, admin: str, out: Path) -> Iterator[subprocess.Popen[str]]:
    """`dhtcrawl submit --wait --out`; killed when the block is left before its end."""
    argv = [sys.executable, "-m", "dhtcrawl", "submit", seed, "--allow-private", "--delay", "0", "--wait", "--json"]
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    with (
        out.with_suffix(".log").open("wb") as log,
        subprocess.Popen(
            [*argv, "--out", str(out), "--admin", admin], stdout=subprocess.PIPE, stderr=log, env=env, text=True
        ) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def summary_of(submit: subprocess.Popen[str]) -> dict[str, Any]:
    """The last line that it prints."""
    said, _ = submit.communicate(timeout=RUN_MAX_S)
    summary = json.loads(said.splitlines()[-1])
    assert isinstance(summary, dict), said
    return summary


def outcome(case: Case, summary: dict[str, Any], again: int) -> Outcome:
    """By the summary and the site's count."""
    missing = max(summary["pages_missing"], case.pages - summary["pages"])
    beyond = max(0, again - case.killed * AT_ONCE)
    return Outcome(summary["complete"], summary["lost"], missing, again, beyond)


def run(options: Options) -> list[Row]:
    """A row for each case."""
    rows = []
    for case in QUICK if options.quick else FULL:
        outcomes = []
        for _ in options.seeds_or(1):
            with tempfile.TemporaryDirectory(prefix="bench-policies-") as home:
                outcomes.append(crash(case, Path(home)))
        rows.append(row(case, outcomes, options))
    return rows


def row(case: Case, outcomes: list[Outcome], options: Options) -> Row:
    """All runs of one case; what was lost is the worst."""
    share = median(100 * each.beyond / case.pages for each in outcomes)
    fine = all(each.whole for each in outcomes) and share <= AGAIN_MAX
    return Row(
        "P4",
        f"{case.killed} of {case.nodes} nodes killed, back with {'its disk' if case.killed == 1 else 'their disks'}",
        "",
        f"lost 0, refetched ≤ {AGAIN_MAX:g} % of the pages",
        f"lost {max(each.lost for each in outcomes)}, missing {max(each.missing for each in outcomes)}, "
        f"refetched {share:.2f} % beyond what was under way "
        f"({max(each.again for each in outcomes)} of {case.pages:,} pages asked for again)",
        options.judged(fine),
        0,
        f"under way: {AT_ONCE} requests a killed node at most; runs: {len(outcomes)}",
        value=share,
        unit="% of the pages",
        samples=len(outcomes),
    )


EXPERIMENTS = (Experiment("p4-restarts", "P4", "a fifth of real nodes killed, and back with their disks", run),)
