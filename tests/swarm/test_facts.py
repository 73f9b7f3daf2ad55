"""What a node tells planners: what they ask for, and not without bounds."""

from __future__ import annotations

import msgpack

from dhtcrawl.config import CrawlSettings
from dhtcrawl.swarm.assignment.facts import HOSTS_MAX, MEMBERS_MAX, SAMPLES_MAX, NodeTraits, PlannerFacts, facts_of
from dhtcrawl.swarm.calls.assignment import PLAN_REPORT_BYTES_MAX
from dhtcrawl.url import HOST_CHARS_MAX
from swarm.fake_peers import node


def test_only_what_is_wanted_is_told() -> None:
    facts = PlannerFacts(NodeTraits(lambda: {node(1): 0.1}), lambda: 7, finite=True)
    assert facts.report(("open", "finite", "colour")) == {"open": 7, "finite": True}
    assert facts.report(("rate", "batches", "rtts", "probes")) == {
        "rate": 0.0,
        "batches": [],
        "rtts": {node(1): 0.1},
        "probes": {},
    }


def test_a_site_is_as_near_as_the_lower_half_of_the_latest_requests_says() -> None:
    facts = PlannerFacts(NodeTraits(), int)
    for seconds in (9.0, *[0.1] * SAMPLES_MAX, 0.2, 5.0):
        facts.timed("a.test", [seconds])
    assert facts.report(("probes",)) == {"probes": {"a.test": 0.1}}


def test_the_hosts_of_late_and_some_members_are_told() -> None:
    rtts = {number.to_bytes(20, "big"): 0.1 for number in range(2 * MEMBERS_MAX)}
    facts = PlannerFacts(NodeTraits(lambda: rtts), int)
    for number in range(HOSTS_MAX + 3):
        facts.timed(f"{number}.test", [0.1])
    report = facts.report(("rtts", "probes"))
    assert len(report["rtts"]) == MEMBERS_MAX
    assert len(report["probes"]) == HOSTS_MAX
    assert "2.test" not in report["probes"]


def test_a_report_can_be_sent_however_long_the_hosts_are() -> None:
    rtts = {number.to_bytes(20, "big"): 0.1 for number in range(MEMBERS_MAX)}
    facts = PlannerFacts(NodeTraits(lambda: rtts), int)
    for number in range(HOSTS_MAX):
        facts.timed(f"{number:0{HOST_CHARS_MAX}}", [0.1])
        facts.timed(f"{number:0{HOST_CHARS_MAX}}", [0.1])
    report = facts.report(("rtts", "probes", "batches", "labels"))
    assert len(msgpack.packb(report)) <= PLAN_REPORT_BYTES_MAX
    assert len(report["rtts"]) == MEMBERS_MAX
    assert len(report["probes"]) > 100
    assert f"{HOSTS_MAX - 1:0{HOST_CHARS_MAX}}" in report["probes"]


def test_a_node_says_what_it_is_made_of_once_all_of_it_is_known() -> None:
    known: dict[str, float] = {}
    facts = PlannerFacts(NodeTraits(machine=lambda: known, labels={"type": "meta"}), int)
    assert facts.report(("vector", "labels")) == {"vector": {}, "labels": {"type": "meta"}}
    known["cores"] = 2.0
    assert facts.report(("vector",)) == {"vector": {}}, "how much it takes in is not known yet"
    facts.pace.look(0, 0, True, 0.0)
    facts.pace.look(10, 5_000, True, 10.0)
    assert facts.report(("vector",)) == {"vector": {"cores": 2.0, "net_bytes_per_s": 500.0}}


def test_a_crawl_may_ask_for_another_estimate_of_times() -> None:
    settings = CrawlSettings(policy="gnp", policy_options=("rtt=median",), depth=0)
    facts = facts_of(settings, NodeTraits(), int)
    for seconds in (0.1, 0.2, 0.3, 0.9, 0.9):
        facts.timed("a.test", [seconds])
    assert facts.report(("probes", "finite")) == {"probes": {"a.test": 0.3}, "finite": True}
