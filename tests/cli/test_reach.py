"""What a node reaches of private networks, before and after it meets a node of another machine."""

from __future__ import annotations

import logging

import pytest

from dhtcrawl.cli.reach import NetworkReach
from dhtcrawl.config import load
from dhtcrawl.units import Address

FAR: Address = ("192.0.2.7", 8468)
NEAR: list[Address] = [("127.0.0.1", 8468), ("::1", 8470), ("127.9.0.1", 1)]
INTRANET, LOOPBACK = "10.0.0.5", "127.0.0.1"


def reached(reach: NetworkReach) -> list[str]:
    return [ip for ip in (INTRANET, LOOPBACK) if reach.networks.have(ip)]


def test_among_nodes_of_its_machine_it_reaches_what_crawls_allow() -> None:
    reach = NetworkReach(load(environ={"DHTCRAWL_NODE_PRIVATE_NETWORKS": ""}), on_loopback=True)
    reach.met(NEAR)
    assert reached(reach) == [INTRANET, LOOPBACK]


def test_once_it_has_met_a_node_of_another_machine_it_reaches_nothing_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reach = NetworkReach(load(), on_loopback=True)
    with caplog.at_level(logging.WARNING):
        reach.met([*NEAR, FAR])
        reach.met([FAR])
    reach.met(NEAR)  # the other one has left, but its crawls are still here
    assert reached(reach) == []
    assert len(caplog.messages) == 1
    assert "192.0.2.7:8468" in caplog.text
    assert "--allow-network" in caplog.text


def test_a_node_that_others_reach_reaches_nothing_from_the_start() -> None:
    assert reached(NetworkReach(load(), on_loopback=False)) == []


@pytest.mark.parametrize("on_loopback", [True, False])
def test_what_a_setting_names_is_reached_whoever_is_met(on_loopback: bool) -> None:
    reach = NetworkReach(load(flags={"node.private_networks": ["10.0.0.0/8"]}), on_loopback=on_loopback)
    reach.met([FAR])
    assert reached(reach) == [INTRANET]
