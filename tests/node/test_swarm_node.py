"""A node of a swarm before it listens: what it says of itself is there, its parts are not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dhtcrawl.node.planes import NetworkConfig
from dhtcrawl.node.swarm_node import SwarmNode

PARTS = ("address", "routing", "gossip", "peers", "records", "crawls", "runs", "given_up", "join")


def made() -> SwarmNode:
    node: Any = SimpleNamespace(node_id="aa" * 20, incarnation=1)
    nothing: Any = None
    return SwarmNode(node, NetworkConfig(("127.0.0.1", 0)), outputs=nothing, disk_used=nothing)


@pytest.mark.parametrize("name", PARTS)
def test_a_part_that_is_asked_for_before_the_node_listens_is_an_error_in_words(name: str) -> None:
    node = made()
    assert not node.listening
    with pytest.raises(RuntimeError, match="does not listen yet"):
        getattr(node, name)


def test_it_is_joining_until_it_is_told_to_stop() -> None:
    node = made()
    assert (node.id, node.state) == (b"\xaa" * 20, "joining")
    node.leave()
    assert node.state == "leaving"
