"""Task templates in a swarm: each page of results once, from nodes of its type, as seldom as its engine says."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from dhtcrawl.templates.expand import ActualTask, expand
from dhtcrawl.templates.template_file import read

from .crawler import Crawler
from .deadline import until
from .outputs import Outputs
from .stub import StubServer
from .swarm import AT_ONCE, DEADLINE_S, IN_FLIGHT, Swarm, submitted

DELAY_S = 0.05
META, OTHERS = 2, 3  # nodes
TEMPLATE = """
chunk = 4
[sites]
all = ["a.example", "b.example", "c.example"]
[engines.meta]
url = "{meta}/s?q={{query}}&p={{page}}"
pages = 4
delay = "{delay}s"
type = "meta"
[engines.any]
url = "{any}/find?q={{query}}"
delay = 0
[[tasks]]
name = "light milk"
sites = ["all"]
[[tasks]]
name = "rich milk"
sites = ["all", "d.example"]
[[tasks]]
name = "milk"
"""


@pytest.fixture
def swarm(tmp_path: Path) -> Iterator[Swarm]:
    """Some nodes are of type meta, and know the others."""
    with Swarm(tmp_path / "swarm", *AT_ONCE) as swarm:
        swarm.start(OTHERS)
        swarm.start(META, "--label", "type=meta")
        swarm.meet()
        yield swarm
        swarm.check()


def tasks_for(template: Path, meta: StubServer, other: StubServer) -> list[ActualTask]:
    """Write a file of templates for these engines, which have an answer to each of its tasks, and a hit on each."""
    template.write_text(TEMPLATE.format(meta=meta.url, any=other.url, delay=DELAY_S))
    tasks = [task for task in expand(read("t.toml", template.read_text())) if isinstance(task, ActualTask)]
    for number, task in enumerate(tasks):
        server = meta if task.engine == "meta" else other
        server.page(task.url.removeprefix(server.url), f"{other.url}/hit/{number % 5}")
    for number in range(5):
        other.page(f"/hit/{number}")
    return tasks


def test_each_task_once_by_nodes_of_its_type_as_seldom_as_its_engine_says_though_one_is_killed(
    swarm: Swarm, crawler: Crawler, outputs: Outputs, tmp_path: Path
) -> None:
    template = tmp_path / "milk.toml"
    with StubServer() as meta, StubServer() as other:
        tasks = tasks_for(template, meta, other)
        options = [f"--template={template}", "--scope", "any", "--depth", "1", "--delay", "0"]
        with submitted(crawler, swarm.nodes[0], outputs, *options) as crawl:
            until(lambda: len(meta.paths()) >= 5, "some pages of results", DEADLINE_S)
            swarm.nodes[-1].kill()
            swarm.give_up(swarm.nodes[-1])
            swarm.restart(swarm.nodes[-1])
            summary = crawl.finish(swarm)
    asked = Counter(meta.paths() + other.paths())
    wanted = {task.url.removeprefix(meta.url).removeprefix(other.url) for task in tasks}
    assert asked.keys() == wanted | {f"/hit/{number}" for number in range(5)}
    assert summary["refetches"] <= sum(asked.values()) - len(asked) <= IN_FLIGHT, "what the dead node had under way"
    pages = {
        row["url"]: row for row in map(json.loads, (outputs.out / "pages" / "pages.jsonl").read_text().splitlines())
    }
    of_meta = {pages[task.url]["node"] for task in tasks if task.engine == "meta"}
    assert of_meta <= {node.id for node in swarm.nodes[OTHERS:]}
    for task in tasks:
        here = {"task": task.task, "engine": task.engine, "site": task.site, "page": task.page}
        assert pages[task.url]["searches"] == [here]
    hit = pages[f"{other.url}/hit/3"]
    assert hit["searches"] == pages[hit["referrer"]]["searches"] != []
    ended = [(each.began_at, each.ended_at) for each in meta.asked if each.ended_at is not None]
    for (_, before), (began, _) in itertools.pairwise(ended):
        assert began - before > DELAY_S - 0.005, "the engine's own delay, over all nodes together"
