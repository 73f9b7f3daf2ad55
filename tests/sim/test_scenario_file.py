"""A scenario of a file is one that can be run, or is refused with the line and the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from dhtcrawl.errors import ConfigError
from dhtcrawl.sim.chance import draw
from dhtcrawl.sim.scenario import Scenario
from dhtcrawl.sim.scenario_file import read_scenario, require_a_node_of_each_type


def _read(tmp_path: Path, said: str) -> Scenario:
    path = tmp_path / "my.toml"
    path.write_text(f"# a scenario\n{said}\n", "utf-8")
    return read_scenario(path)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("pagse = 3", "pagse is no key here; did you mean pages?"),
        ("pages = 'many'", "pages is 'many'; use a whole number from 1 on"),
        ("nodes = 0", "nodes is 0; use a whole number from 1 on"),
        ("nodes = true", "nodes is True; use a whole number from 1 on"),
        ("nodes = 2.5", "nodes is 2.5; use a whole number from 1 on"),
        ("hosts = 0", "hosts is 0; use a whole number from 1 on"),
        ("crashes = -1", "crashes is -1; use a whole number from 0 on"),
        ("depth = -2", "depth is -2; use a whole number from -1 on"),
        ("copies = 17", "copies is 17; use a whole number from 1 to 16"),
        ("broken = 1.5", "broken is 1.5; use a number from 0 to 1"),
        ("loss = 1.0", "loss is 1.0; use a number from 0 to 0.9"),
        ("loss = nan", "loss is nan; use a number from 0 to 0.9"),
        ("delay_s = -1", "delay_s is -1; use a number from 0 on"),
        ("delay_s = inf", "delay_s is inf; use a number from 0 on"),
        ("delay_s = 1" + "0" * 400, "delay_s is 1000"),
        ("away_s = nan", "away_s is nan; use a number"),
        ("crash_every_s = 0", "crash_every_s is 0; use a number above 0"),
        ("bytes_per_s = 0.0", "bytes_per_s is 0.0; use a number above 0"),
        ("trap = 1", "trap is 1; use true or false"),
        ("key = 'search'", "key is 'search'; use one of url, host"),
        ("bad_member = 'lies'", "bad_member is 'lies'; use one of drops, forgets, answers, invents"),
        ("policy = 7", "policy is 7; use a text in quotes"),
        ("policy = 'best'", "policy is 'best'; there is no policy 'best'; there are xor, "),
        ("policy_options = 'mode'", "policy_options is 'mode'; 'mode' is no NAME=VALUE; use letters, "),
        ("policy_options = 'mode=net'", "policy_options is 'mode=net'; xor has no option 'mode'; it has none"),
        ("latency_matrix = 'none.txt'", "latency_matrix is 'none.txt'; latency matrix none.txt: "),
        ("x = " + "[" * 5000, ""),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_its_line_and_key(tmp_path: Path, said: str, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        _read(tmp_path, said)
    where = f"scenario {tmp_path / 'my.toml'}"
    assert str(refused.value).startswith(f"{where}:2: {told}" if told else f"{where} is not valid TOML: ")


def test_what_the_simulator_draws_may_stand_in_a_file(tmp_path: Path) -> None:
    for seed in range(1, 20):
        drawn = draw(seed)
        names = ("nodes", "pages", "depth", "delay_s", "away_s", "loss", "copies", "partition_s", "bytes_per_s", "key")
        said = {name: getattr(drawn, name) for name in names}
        read = _read(tmp_path, "\n".join(f"{name} = {value!r}" for name, value in said.items()))
        assert {name: getattr(read, name) for name in names} == said


def test_a_policy_with_its_own_options_is_taken(tmp_path: Path) -> None:
    read = _read(tmp_path, "policy = 'bp-pso'\npolicy_options = 'mode=net'\naway_s = -1")
    assert (read.policy, read.policy_option_list, read.away_s) == ("bp-pso", ("mode=net",), -1)


def test_more_types_than_nodes_are_refused_where_there_is_a_swarm() -> None:
    require_a_node_of_each_type(Scenario(nodes=3, node_types=3))
    require_a_node_of_each_type(Scenario(nodes=1, node_types=3))
    with pytest.raises(ConfigError, match="node_types is 4, and there are 3 nodes; use as many types as nodes"):
        require_a_node_of_each_type(Scenario(nodes=3, node_types=4))
