"""kill -9 at any moment: the same command goes on, and nothing is lost or done twice.

Moments are drawn in requests, not seconds, so that a faster machine is killed
as often as a slow one. The seeds are fixed; how far a request has come when
the signal strikes is up to the machine, which is the point.
"""

from __future__ import annotations

import random

import pytest

from .archive import assert_valid
from .conftest import Serve
from .crawler import Crawler, Running
from .deadline import until
from .nginx import Nginx
from .outputs import Outputs
from .sites import POSTGRESQL, SQLITE, START, DocSite
from .test_real_sites import describe
from .truth import truth_of


@pytest.mark.needs_nginx
@pytest.mark.parametrize(
    ("site", "kills", "in_flight", "options"),
    [
        # As fast as it goes, four requests under way at each death.
        (POSTGRESQL, 12, 4, ["--delay", "0", "-c", "4"]),
        # Polite: one request at a time, most deaths fall between two.
        (SQLITE, 8, 1, ["--delay", "2ms", "-c", "1"]),
    ],
    ids=["in-full-swing", "between-requests"],
)
def test_a_crawl_killed_again_and_again_ends_with_the_same_pages(
    site: DocSite,
    kills: int,
    in_flight: int,
    options: list[str],
    serve: Serve,
    crawler: Crawler,
    outputs: Outputs,
) -> None:
    server = serve(site)
    truth = truth_of(site.root, START, site.encoding)
    command = ["crawl", server.url + START, "--allow-private", "--out", str(outputs.out), "--json", *options]
    chance = random.Random(20)
    for left in range(kills, 0, -1):
        remaining = max(1, len(truth.requests) - len(server.requests()))
        # On average an equal share of what remains, from "at once" to double.
        moment = server.hit_count() + chance.randrange(max(1, 2 * remaining // (left + 1)))
        with crawler.start(*command) as running:
            kill_at(running, server, moment)
    ran = crawler.run(*command).ended_with(0)

    assert ran.summary["complete"] is True, ran
    assert (ran.summary["lost"], ran.summary["pages_missing"]) == (0, 0), ran
    html = outputs.html()
    assert html.keys() == truth.pages.keys(), describe(html.keys(), truth.pages.keys())
    urls = [row["url"] for row in outputs.pages()]
    assert len(set(urls)) == len(urls), "something is twice in pages.jsonl"

    asked = server.requests()
    assert asked.keys() == truth.requests, describe(asked.keys(), truth.requests)
    refetches = sum(asked.values()) - len(asked)
    print(f"{site.package}: {kills} kills, {refetches} of {len(asked)} requests made again")
    assert refetches <= kills * in_flight
    assert_valid(outputs.warcs())
    crawler.check(outputs.out)


def kill_at(running: Running, server: Nginx, moment: int) -> None:
    """SIGKILL once the server has answered `moment` requests."""
    until(lambda: running.ended or server.hit_count() >= moment, f"request {moment}")
    assert not running.ended, f"it ended before it could be killed: {running.outcome()}"
    running.kill()
