"""`dspider`: whose a host is, and when another node gets it."""

from __future__ import annotations

from collections import Counter

from dhtcrawl.keyspace import distance, host_key
from dhtcrawl.policy.contract import OWN, node, nodes
from dhtcrawl.policy.dspider import FORGIVEN_S, DSpider
from dhtcrawl.policy.seam import Outcome, PolicyTask, Settings, TaskResult

HOSTS = [f"host-{number}.test" for number in range(600)]
SIX = nodes(6)
IDS = [each.node for each in SIX]


def rank(policy: DSpider, host: str, now: float = 0.0, failed: tuple[bytes, ...] = ()) -> list[bytes]:
    return policy.rank(PolicyTask(host_key(host), host, failed), SIX, now)


def say(policy: DSpider, node: bytes, host: str, result: TaskResult, now: float = 0.0) -> None:
    policy.heard(Outcome(node, host, result, 1.0), now)


def test_a_host_is_its_owners_but_for_what_is_more_than_a_share() -> None:
    policy = DSpider(Settings(OWN))
    owners = {host: min(IDS, key=lambda each: distance(each, host_key(host))) for host in HOSTS}
    firsts = {host: rank(policy, host)[0] for host in HOSTS}
    owned, has = Counter(owners.values()), Counter(firsts.values())
    assert max(owned.values()) > 1.4 * len(HOSTS) / len(IDS), "or the test shows nothing"
    assert max(has.values()) < 1.25 * len(HOSTS) / len(IDS)
    kept = sum(owners[host] == first for host, first in firsts.items())
    assert kept > 0.6 * len(HOSTS)


def test_fast_nodes_have_more_hosts_and_one_that_was_begun_stays() -> None:
    policy = DSpider(Settings(OWN))
    before = {host: rank(policy, host)[0] for host in HOSTS}
    for host in HOSTS[:50]:
        say(policy, before[host], host, TaskResult.PAGE)
    policy.adopt({"weights": {each: 4.0 if each == node(0) else 1.0 for each in IDS}})
    after = {host: rank(policy, host)[0] for host in HOSTS}
    assert Counter(after.values())[node(0)] > 2 * Counter(before.values())[node(0)]
    assert all(after[host] == before[host] for host in HOSTS[:50])


def test_who_cannot_connect_or_takes_and_does_not_begin_is_passed_over_for_a_while() -> None:
    for result in (TaskResult.UNREACHABLE, TaskResult.RECALLED):
        policy = DSpider(Settings(OWN))
        first, second, *_ = rank(policy, HOSTS[0])
        say(policy, first, HOSTS[0], result)
        assert rank(policy, HOSTS[0])[0] == second
        assert rank(policy, HOSTS[0])[-1] == first
        assert rank(policy, HOSTS[0], now=FORGIVEN_S)[0] == first


def test_a_node_that_has_begun_a_host_keeps_it_though_it_is_slow_and_not_if_it_cannot_connect_any_more() -> None:
    policy = DSpider(Settings(OWN))
    first = rank(policy, HOSTS[0])[0]
    say(policy, first, HOSTS[0], TaskResult.PAGE)
    say(policy, first, HOSTS[0], TaskResult.RECALLED)
    assert rank(policy, HOSTS[0])[0] == first
    say(policy, first, HOSTS[0], TaskResult.UNREACHABLE)
    assert rank(policy, HOSTS[0])[-1] == first


def test_a_page_pardons_its_node() -> None:
    policy = DSpider(Settings(OWN))
    first, second, *_ = rank(policy, HOSTS[0])
    for each in (first, second):
        say(policy, each, HOSTS[0], TaskResult.UNREACHABLE)
    say(policy, second, HOSTS[0], TaskResult.PAGE)
    assert rank(policy, HOSTS[0])[0] == second
    assert rank(policy, HOSTS[0])[-1] == first


def test_once_all_were_passed_over_the_first_that_was_has_its_turn_again() -> None:
    policy = DSpider(Settings(OWN))
    for each in IDS:
        say(policy, each, HOSTS[0], TaskResult.RECALLED)
    assert rank(policy, HOSTS[0]) == IDS
