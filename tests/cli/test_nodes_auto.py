"""`--nodes auto`: how many processes `crawl` and `join` run."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dhtcrawl.cli import crawl, join

from .conftest import Here


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many were to be started, on a machine of three cores."""
    found: list[int] = []

    def start(number: int, *_: Any) -> int:
        found.append(number)
        return 0

    for name, function in (("local_swarm", "crawl_with"), ("join_nodes", "run_nodes")):
        module = ModuleType(name)
        setattr(module, function, start)
        monkeypatch.setitem(sys.modules, f"dhtcrawl.cli.{name}", module)
    for command in (crawl, join):
        monkeypatch.setattr(command, "usable_cores", lambda: 3)
    return found


def test_auto_is_a_node_for_each_core(here: Here, nodes: list[int], tmp_path: Path) -> None:
    here("join", "--nodes", "auto", "--data-dir", tmp_path / "node")
    here("join", "--nodes", "2", "--data-dir", tmp_path / "node")
    here("crawl", "http://127.0.0.1:9/", "--nodes", "auto", "--out", tmp_path / "out")
    assert nodes == [3, 2, 3]


def test_a_crawl_that_was_begun_goes_on_with_as_many_nodes_as_it_has(
    here: Here, nodes: list[int], tmp_path: Path
) -> None:
    for number in range(1, 6):
        (tmp_path / "out.node" / "nodes" / str(number)).mkdir(parents=True)
    here("crawl", "http://127.0.0.1:9/", "--nodes", "auto", "--out", tmp_path / "out")
    assert nodes == [5]
