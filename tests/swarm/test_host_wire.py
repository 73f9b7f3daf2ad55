"""Rows of the calls about hosts: no rounding makes anybody impolite."""

from __future__ import annotations

import math

from dhtcrawl.config import load
from dhtcrawl.errors import ConfigError
from dhtcrawl.fetch.host_access import RobotsFetch, RobotsKnown, RobotsWait
from dhtcrawl.fetch.robots import RobotsVerdict
from dhtcrawl.rpc.peers.task_peers import as_received
from dhtcrawl.swarm.calls.hosts import AskHosts, AskRobots, AskRow, HostAnswers, RobotsAnswered
from dhtcrawl.swarm.hosts import wire
from dhtcrawl.swarm.hosts.leases import GiveBack, Granted, HostState, LeaseAsk, Wait
from dhtcrawl.url import canonicalize

A = bytes(range(20))


def test_values_cross_the_wire_and_are_never_rounded_to_somebodys_disadvantage() -> None:
    asks = [LeaseAsk("h", 0.2, 1.0001, bytes(8)), LeaseAsk("h:81", 0.0)]
    assert wire.asks_of(wire.ask_rows(asks)) == [LeaseAsk("h", 0.2, 1.001, bytes(8)), LeaseAsk("h:81", 0.0)]
    lease = Granted(bytes(8), 9.9999, 64, 0.0001, 0.1)
    answers = [wire.answer_of(wire.answer_row(answer)) for answer in (lease, None, Wait(2.0))]
    assert answers == [Granted(bytes(8), 9.999, 64, 0.001, 0.1), None, Wait(2.0)]
    backs = [GiveBack("h", bytes(8), 10.0, 12.0), GiveBack("h", bytes(8), None, -math.inf)]
    assert wire.back_rows(backs, 10.9999) == (("h", bytes(8), 999, 1001), ("h", bytes(8), None, 0))
    states = [HostState("h", A, bytes(8), 9.0001, 1.0, 0.5), HostState("h", b"", b"", 0.0, 1.0, 1e9)]
    assert wire.states_of(wire.state_rows(states)) == [
        HostState("h", A, bytes(8), 9.001, 1.0, 0.5),
        HostState("h", b"", b"", 0.0, 1.0, 86_400.0),
    ]


def test_a_robots_file_is_sent_where_there_is_room_for_it() -> None:
    known = RobotsKnown(RobotsVerdict.PARSE, b"abc", 1.5)
    for answer in (RobotsFetch(), RobotsWait(0.5), known):
        assert wire.robots_answer_of(wire.robots_answered(answer, 3)) == answer
    assert wire.robots_answer_of(wire.robots_answered(known, 2)) == 3
    assert wire.robots_answer_of(RobotsAnswered(moved=True)) is None


def test_the_longest_host_that_a_url_may_have_can_be_asked_for() -> None:
    # One that could not would be asked for again and again, and with it all that are asked for beside it.
    host = max(("a" * chars for chars in range(200, 400) if canonicalize(f"http://{'a' * chars}/")), key=len)
    for args in (AskHosts((AskRow(host, 1, 0, b""),)), AskRobots(f"https://{host}", "agent", 0)):
        assert type(args).parse(as_received(args.to_map())) == args


def test_whatever_lease_the_settings_allow_can_be_granted() -> None:
    ask = AskHosts((AskRow("h", 1, 0, b""),))
    # Of what is out of range the asker would understand nothing, and ask again for ever.
    for lease_s in ("0.1", "1h", "61m"):
        for requests in ("1", "1000000", "1000001"):
            try:
                swarm = load(flags={"swarm.lease_s": lease_s, "swarm.lease_requests": requests}).swarm
            except ConfigError:
                continue
            granted = Granted(bytes(8), swarm.lease_s, swarm.lease_requests, 0.0, 1.0)
            answers = HostAnswers((wire.answer_row(granted),))
            assert ask.answered(as_received(answers.to_map())) == answers
