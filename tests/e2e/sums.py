"""What the nodes of a swarm count, added up: the measure of every figure that people are told of a crawl."""

from __future__ import annotations

import os
import time
import urllib.request
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from .swarm import Node

GROWS = (
    "pages", "pages_ok", "fetches", "refetches", "retried", "redirects", "dead", "body_bytes", "urls_seen",
    "robots_fetches",
)  # fmt: skip
OF_NOW = ("queued", "in_flight")
NEAR_S = 1.0
_KIND = 'errors_total{kind="'


def metrics(node: Node) -> dict[str, float]:
    """What a node tells Prometheus, by the names without their prefix."""
    with urllib.request.urlopen(f"http://{node.admin}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    samples = (line.removeprefix("dhtcrawl_").rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in samples}


def sums(nodes: Sequence[Node]) -> dict[str, int]:
    """The metrics of the nodes, added up, by the names of a crawl's counters."""
    total: Counter[str] = Counter()
    for node in nodes:
        total.update({name: int(value) for name, value in metrics(node).items()})
    found = {name: total[f"{name}_total"] for name in GROWS} | {name: total[name] for name in OF_NOW}
    kinds = {name[len(_KIND) : -2]: count for name, count in total.items() if name.startswith(_KIND) and count}
    return found | {"errors": sum(kinds.values())} | {f"errors_{kind}": count for kind, count in kinds.items()}


def of(counters: Mapping[str, Any], like: Mapping[str, int]) -> dict[str, Any]:
    """Those of the counters that stand in `like`."""
    return {name: counters.get(name, 0) for name in like}


def busy() -> float:
    """How much longer all takes than on a machine that does nothing else: where more wants to run than can."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


class Watch:
    """The sums at several moments, which figures of a running crawl are held against."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._seen: list[tuple[float, dict[str, int]]] = []

    def look(self) -> dict[str, int]:
        """The sums of now."""
        found = sums(self._nodes)
        self._seen.append((time.monotonic(), found))
        return found

    def holds(self, counters: Mapping[str, Any], told_at: float, as_of_s: float = 0.0) -> None:
        """Figures that were told at `told_at`, and are `as_of_s` old, lie between the sums before and those of now.

        Before is a second earlier; where the figures say that they are older, so much.
        """
        after = self.look()
        since = told_at - max(NEAR_S * busy(), as_of_s)
        before = next((found for at, found in reversed(self._seen) if at <= since), {})
        for name in after.keys() & counters.keys() - set(OF_NOW):
            assert before.get(name, 0) <= counters[name] <= after[name], (name, before, counters, after)
