"""`dhtcrawl policies`, and the names at `--policy`."""

from __future__ import annotations

import json

import pytest
from harness.policies import Install

from dhtcrawl.policy.registry import OURS

from .conftest import Here

MINE = """
from dhtcrawl.policy.xor import Xor

class Mine(Xor):
    name, about, needs, options = "mine", "by\\x1b[2J hand", ("no_such_thing",), {"hand": ("left", "right")}
"""


@pytest.fixture
def _mine(installed: Install) -> None:
    installed("some_policies", MINE, mine="some_policies:Mine", broken="some_policies:NotThere")


@pytest.mark.usefixtures("_mine")
def test_all_policies_are_told_with_what_they_do_take_and_need(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    ended = here("policies")
    assert (ended.code, ended.stderr) == (0, "")
    lines = ended.stdout.splitlines()
    assert max(map(len, lines)) <= 120
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == [*OURS, "broken", "mine"]
    assert lines[0] == "xor       its owner fetches a task; where it cannot connect, the next nodes to the key do"
    assert lines[1] == "          planned by each owner; needs nothing"
    assert "          planned by the coordinator; needs numpy, scipy, psutil" in lines
    assert "          mode=auto (or rates, net, paper, exact, pso)" in lines
    assert "          mode=mended (or paper), type=… (not set by default)" in lines
    mine = "planned by each owner; needs no_such_thing (not installed here: no_such_thing); from some_policies:Mine"
    assert lines[-3:] == ["mine      by?[2J hand", f"          {mine}", "          hand=left (or right)"]
    assert lines[-4].startswith("broken    broken (some_policies:NotThere) cannot be loaded: ")


@pytest.mark.usefixtures("_mine")
def test_programs_read_the_same_as_json(here: Here) -> None:
    ended = here("policies", "--json")
    rows = {row["name"]: row for row in json.loads(ended.stdout)}
    assert list(rows) == [*OURS, "broken", "mine"]
    assert rows["gnp"] == {
        "name": "gnp",
        "about": "of the three nodes nearest to a site, the one with the least to do fetches",
        "options": {
            "choice": ["least-loaded", "top3", "top1"],
            "space": ["vivaldi", "landmarks"],
            "rtt": ["lower-half", "median", "swa"],
        },
        "needs": ["numpy"],
        "missing": [],
        "planned_by": "coordinator",
        "source": "dhtcrawl.policy.gnp.policy:Gnp",
        "problem": "",
    }
    assert rows["mine"]["missing"] == ["no_such_thing"]
    assert "cannot be loaded" in rows["broken"]["problem"]


@pytest.mark.usefixtures("_mine")
@pytest.mark.parametrize("command", ["crawl", "submit"])
def test_the_help_of_a_crawl_names_all_policies(command: str, here: Here) -> None:
    text = " ".join(here(command, "--help").stdout.split())
    assert f"Which node fetches a task. One of {', '.join(OURS)}, broken, mine." in text


@pytest.mark.parametrize(("label", "are"), [("", "of none"), ("blog", "of type 'blog'")])
def test_a_crawl_that_no_node_of_its_command_may_fetch_is_refused(label: str, are: str, here: Here) -> None:
    labels = ["--set", f"node.labels=type={label}"] if label else []
    typed = ["--policy", "dynamic", "--policy-option", "type=meta"]
    ended = here("crawl", "https://a.example/", "--nodes", "2", *typed, *labels)
    said = (
        f"nodes of type 'meta' only are to fetch, and these are {are}; add --set node.labels=type=meta, or use a swarm"
    )
    assert (ended.code, ended.stderr) == (2, f"dhtcrawl: --policy-option: {said}\n")
