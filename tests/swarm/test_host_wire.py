"""Host leases on the wire: whatever a peer sends, nobody raises, and no rounding makes anybody impolite."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dhtcrawl.fetch.host_access import RobotsFetch, RobotsKnown, RobotsWait
from dhtcrawl.fetch.robots import PARSED_BYTES_MAX
from dhtcrawl.rpc.tasks.messages import Refused
from dhtcrawl.sim.loop import run
from dhtcrawl.swarm.hosts import wire
from dhtcrawl.swarm.hosts.leases import GiveBack, Granted, HostState, LeaseAsk, Wait

from .gate_swarm import Node, Swarm

A = bytes(range(20))

LEAVES = st.none() | st.booleans() | st.integers(-3, 2**40) | st.text(max_size=3) | st.binary(max_size=9)
LIKELY = st.sampled_from(["h.example", "", "a/b", "x" * 300, bytes(8), b"", 0, 1, 2, 1000, -1, None, True, "http://h"])
VALUES = st.recursive(LEAVES | LIKELY, lambda inner: st.lists(inner, max_size=6).map(tuple), max_leaves=12)
FIELDS = ["asks", "backs", "hosts", "origin", "agent", "verdict", "body", "body_bytes_max", "answers", "taken", "x"]
CALLS = ["host_ask", "host_give_back", "host_offer", "robots_ask", "robots_tell"]


@settings(max_examples=150)
@given(name=st.sampled_from(CALLS), args=st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=4))
def test_no_arguments_make_a_handler_raise(name: str, args: dict[str, Any]) -> None:
    async def main() -> None:
        swarm = Swarm()
        swarm.join(A)
        node = Node(swarm, A)
        reply = node.registry._handlers[name](A, args)
        assert isinstance(reply, dict | Refused)
        node.gate._turn(0.0)

    run(main())


@settings(max_examples=100)
@given(value=st.dictionaries(st.sampled_from([*FIELDS, "wait_ms", "size", "age_ms", "fetch"]), VALUES, max_size=4))
def test_no_answer_makes_an_asker_raise(value: dict[str, Any]) -> None:
    answers = wire.read_answers(value, 2)
    assert answers is None or len(answers) == 2
    assert len(wire.read_taken(value, 3)) == 3
    assert isinstance(wire.read_robots_answer(value), RobotsFetch | RobotsKnown | RobotsWait | int | None)
    assert isinstance(wire.read_hosts(value.get("x")), list | None)
    assert isinstance(wire.read_states(value.get("x")), list | None)


def test_values_cross_the_wire_and_are_never_rounded_to_somebodys_disadvantage() -> None:
    asks = [LeaseAsk("h", 0.2, 1.0001, bytes(8)), LeaseAsk("h:81", 0.0)]
    assert wire.read_asks(wire.asks(asks)) == [LeaseAsk("h", 0.2, 1.001, bytes(8)), LeaseAsk("h:81", 0.0)]
    lease = Granted(bytes(8), 9.9999, 64, 0.0001, 0.1)
    assert wire.read_answers(wire.answers([lease, None, Wait(2.0)]), 3) == [
        Granted(bytes(8), 9.999, 64, 0.001, 0.1),
        None,
        Wait(2.0),
    ]
    backs = [GiveBack("h", bytes(8), 10.0, 12.0), GiveBack("h", bytes(8), None, -math.inf)]
    assert wire.read_give_backs(wire.give_backs(backs, 10.9999)) == [
        ("h", bytes(8), 0.999, 1.001),
        ("h", bytes(8), None, 0.0),
    ]
    states = [HostState("h", A, bytes(8), 9.0001, 1.0, 0.5), HostState("h", b"", b"", 0.0, 1.0, 1e9)]
    assert wire.read_states(wire.states(states)) == [
        HostState("h", A, bytes(8), 9.001, 1.0, 0.5),
        HostState("h", b"", b"", 0.0, 1.0, 86_400.0),
    ]


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (wire.read_asks, {"asks": [("h", 1, 1, b"")] * (wire.ROWS_MAX + 1)}),
        (wire.read_asks, {"asks": [("h", 1, 1, bytes(7))]}),
        (wire.read_asks, {"asks": [("h", 1.0, 1, b"")]}),
        (wire.read_asks, {"asks": [("h", True, 1, b"")]}),
        (wire.read_asks, {"asks": [("h\u00fc", 1, 1, b"")]}),
        (wire.read_asks, {"asks": [("h", 86_400_001, 1, b"")]}),
        (wire.read_give_backs, {"backs": [("h", b"", 1, 1)]}),
        (wire.read_give_backs, {"backs": [("h", bytes(8), -1, 1)]}),
        (wire.robots_subject, {"origin": "ftp://h", "agent": "bot"}),
        (wire.robots_subject, {"origin": "http://h/", "agent": "bot"}),
        (wire.read_robots_told, {"verdict": "perhaps", "body": b""}),
        (wire.read_robots_told, {"verdict": "parse", "body": bytes(PARSED_BYTES_MAX + 1)}),
    ],
)
def test_what_the_protocol_does_not_allow_is_refused(read: Callable[[Any], Any], value: dict[str, Any]) -> None:
    assert read(value) is None
