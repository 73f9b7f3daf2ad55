"""Nodes of the routing plane find a key's owner, and find it again when a fifth of them is gone.

The run is one of scripts/bench_lookups.py, with one datagram of a hundred lost;
there a thousand nodes join, which takes a minute.
"""

from __future__ import annotations

import pytest
from bench_lookups import MADE_UP_RIGHT_MIN, MEDIAN_S_MAX, RIGHT_MIN, RPCS_MAX, WEATHER, experiment, made_up_experiment

NODES = 250
# What a join may cost: an introduction to each contact of the table, both ways, and a few questions.
DATAGRAMS_A_JOIN = 330


def test_look_ups_are_right_within_ten_seconds_of_a_fifth_of_all_nodes_dying() -> None:
    joining, phases = experiment(NODES, seed=1, weather=WEATHER, look_ups=1000)
    assert joining.datagrams <= DATAGRAMS_A_JOIN
    assert [phase.name for phase in phases] == ["before", "0-10 s after", "10-20 s after"]
    for phase in phases:
        assert phase.right >= RIGHT_MIN
        assert phase.median_s < MEDIAN_S_MAX
        assert phase.rpcs <= RPCS_MAX


@pytest.mark.parametrize(
    ("answering", "liars"), [(False, 1), (True, 0)], ids=["silent, and a node names them", "answering"]
)
def test_contacts_that_somebody_makes_up_in_one_network_lead_no_look_up_astray(answering: bool, liars: int) -> None:
    _, phases = made_up_experiment(40, 400, seed=1, look_ups=200, answering=answering, liars=liars)
    assert [phase.right >= MADE_UP_RIGHT_MIN for phase in phases] == [True] * 3
