"""A whole scenario drawn from a seed: a swarm, a web, a network and what befalls them.

Swarms of 5 to 15 nodes crawl 200 to 500 pages. Each kind of fault happens in
about half of the scenarios, so that in a thousand of them most combinations
occur. What is drawn keeps to what the design promises to survive: two disks at
most are lost while copies are made again (`Faults` sees to that), and no node is
away, paused or cut off for as long as `holder_grace_s`.
"""

from __future__ import annotations

import dataclasses
from random import Random

from dhtcrawl.sim.scenario import Manner, Scenario

HOLDER_GRACE_S = 90.0
WITH_A_BAD_MEMBER_MIN = 10  # nodes


def draw(seed: int) -> Scenario:
    """The scenario of a seed."""
    rng = Random(f"{seed} scenario")

    def some(most: int) -> int:
        """0 in half of all cases."""
        return rng.randint(1, most) if rng.random() < 0.5 else 0

    def sometimes(share: float, value: float) -> float:
        return value if rng.random() < share else 0.0

    depth = rng.choice((-1, -1, -1, 3, 5))
    return Scenario(
        nodes=rng.randint(5, 15),
        hosts=rng.randint(2, 12),
        pages=rng.randint(200, 500),
        delay_s=sometimes(0.3, rng.uniform(0.01, 0.1)),
        key=rng.choice(("url", "url", "host")),
        depth=depth,
        page_s=rng.choice((0.05, 0.3, 1.0)),
        flaky=rng.choice((0.0, 0.03, 0.1)),
        breaks=sometimes(0.3, rng.uniform(0.01, 0.1)),
        slow_hosts=rng.random() < 0.2,
        trap=depth >= 0 and rng.random() < 0.5,
        concurrency=rng.choice((1, 4, 8, 16)),
        commit_s=rng.choice((0.001, 0.005, 0.05)),
        crashes=some(4),
        crash_every_s=rng.choice((1.0, 3.0, 6.0)),
        crash_at_once=rng.choice((1, 1, 2, 3)),
        away_s=rng.choice((0.5, 3.0, 10.0, 20.0)),
        disk_losses=some(2),
        joins=some(4),
        leaves=some(2),
        partitions=some(2),
        one_way=some(2),
        partition_s=rng.choice((2.0, 8.0, 20.0)),
        pauses=some(3),
        pause_s=rng.choice((2.0, 8.0, 20.0)),
        disk_errors=some(2),
        slow_nodes=some(1),
        skew_s=sometimes(0.3, 100_000.0),
        copies=rng.choice((1, 1, 2)),
        holder_grace_s=HOLDER_GRACE_S,
        latency_s=rng.choice((0.02, 0.08, 0.15)),
        loss=sometimes(0.5, rng.uniform(0.0, 0.03)),
        duplication=sometimes(0.3, 0.02),
        late_s=sometimes(0.3, rng.uniform(0.0, 1.0)),
        bytes_per_s=rng.choice((125_000.0, 12_500_000.0)),
    )


def draw_with_bad_member(seed: int) -> Scenario:
    """The scenario of a seed with ten nodes or more, of which one is bad.

    No disk is lost: with it may go what only the bad member was to keep besides.
    """
    drawn, rng = draw(seed), Random(f"{seed} bad member's manner")
    nodes = max(drawn.nodes, WITH_A_BAD_MEMBER_MIN)
    return dataclasses.replace(drawn, nodes=nodes, disk_losses=0, bad_member=rng.choice(list(Manner)))
