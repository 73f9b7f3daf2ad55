"""The summary's `refetches` beside the web server's own count, where nodes and their disks go for good."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import pytest

from dhtcrawl.sim import collection
from dhtcrawl.sim.scenario import Scenario
from dhtcrawl.sim.swarm_run import simulate_swarm
from dhtcrawl.sim.web import SimWeb

CONCURRENCY = 4
CHURN = Scenario(
    nodes=6, hosts=5, pages=100, delay_s=0, concurrency=CONCURRENCY, page_s=0.3, holder_grace_s=20, crash_every_s=2.0,
    faults_from_s=3,
)  # fmt: skip


def served_again(web: SimWeb) -> int:
    """How often the server gave a page that it had given before: a 503 is tried again, and what breaks off, too."""
    whole = [visit.url for visit in web.visits if visit.status not in (0, 503)]
    pages = Counter(url for url in whole if not url.endswith("/robots.txt"))
    return pages.total() - len(pages)


@pytest.mark.parametrize(
    ("faults", "disks_lost"),
    [
        ({"crashes": 3, "away_s": 40}, 0),  # away for longer than the grace: fetched anew, and then they are back
        ({"disk_losses": 2, "crashes": 2, "away_s": 8}, 2),
        ({"disk_losses": 2, "copies": 2}, 2),
        ({"disk_losses": 1, "crashes": 2, "away_s": 8, "policy": "balanced"}, 1),
    ],
    ids=["away", "disks", "copies", "balanced"],
)
def test_the_summary_counts_as_the_server_does_but_for_what_lost_nodes_had_in_flight(
    faults: dict[str, Any], disks_lost: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []
    webs: list[SimWeb] = []

    class Web(SimWeb):
        def __init__(self, *args: Any, **shape: Any) -> None:
            super().__init__(*args, **shape)
            webs.append(self)

    def collect(*args: Any) -> Any:
        found = real(*args)
        counted.append(found[2])
        return found

    real = collection.collect
    monkeypatch.setattr("dhtcrawl.sim.swarm_run.collect", collect)
    monkeypatch.setattr("dhtcrawl.sim.swarm_run.SimWeb", Web)
    result = simulate_swarm(dataclasses.replace(CHURN, **faults), seed=3)
    assert result.violations == []
    served = served_again(webs[0])
    assert served > 0, "nothing to be counted"
    # In flight is what a node was fetching, or had fetched and not told of.
    assert served - 2 * CONCURRENCY * disks_lost <= counted[0] <= served
