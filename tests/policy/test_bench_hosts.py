"""The world of hosts that `dspider` is measured in, and its protocols, in cases small enough to check by eye."""

from __future__ import annotations

from pathlib import Path
from statistics import mean

import pytest
from policy_bench import hosts
from policy_bench.hosts_protocols import PROTOCOLS, ByOwners, ControlUnit, HandedOn
from policy_bench.hosts_world import LAN_F_PER_T, WAN_F_PER_T, Crawl, Line, World, draw
from policy_bench.report import Options

EACH = pytest.mark.parametrize("protocol", [ControlUnit, HandedOn, ByOwners])


def world(latency: list[list[float]], first: list[list[int]], lan: bool = True, files: int = 4) -> World:
    """Files of 5f; every host's first file leads to the next host."""
    count = len(latency[0])
    links = [{0: [(host + 1) % count]} for host in range(count)]
    return World(lan, len(latency), [[5] * files for _ in range(count)], links, latency, first)


def test_a_world_is_the_papers() -> None:
    drawn = draw(1, True, 3)
    assert (drawn.files, len(drawn.sizes), [len(hosts) for hosts in drawn.first]) == (200_000, 400, [3, 3, 3])
    sizes = [size for of in drawn.sizes for size in of]
    assert (min(sizes), max(sizes)) == (1, 10)
    away = sum(len(others) for of in drawn.links for others in of.values())
    assert away / (10 * drawn.files) == pytest.approx(0.01, rel=0.05)
    assert all(host not in others for host, of in enumerate(drawn.links) for others in of.values())


def test_a_latency_is_a_hosts_in_a_lan_and_a_pairs_in_a_wan() -> None:
    lan, wan = draw(1, True, 3, 4_000), draw(1, False, 3, 4_000)
    assert lan.latency[0] == lan.latency[1] == lan.latency[2]
    assert wan.latency[0] != wan.latency[1]
    assert (lan.sizes, lan.links, lan.first) == (wan.sizes, wan.links, wan.first)
    assert all(1 <= latency <= 9 for of in wan.latency for latency in of)


def test_a_line_carries_one_file_after_the_other() -> None:
    line = Line(5.0)
    assert [line.through(10, 0.0), line.through(5, 0.0), line.through(5, 7.0)] == [2.0, 3.0, 8.0]


def test_a_lan_is_shared_and_a_wan_is_not() -> None:
    lan, wan = (ControlUnit(draw(1, net, 3, 4_000), 5.0) for net in (True, False))
    assert len({id(node.line) for node in lan.nodes}) == 1
    assert len({id(node.line) for node in wan.nodes}) == 3
    assert (lan.nodes[0].line.f_per_t, wan.nodes[0].line.f_per_t) == (LAN_F_PER_T, WAN_F_PER_T) == (25.0, 5.0)


@EACH
def test_one_node_needs_a_latency_to_connect_and_one_for_each_file(protocol: type[Crawl]) -> None:
    run = protocol(world([[2.0, 9.0]], [[0]]), 5.0).play()
    # 2T to connect, then four times 2T and 5f at 25 f/T; the other host is too far.
    assert run.ended_t == pytest.approx(2 + 4 * (2 + 0.2))
    assert (run.files, run.brought_f, run.duplicates) == (4, 20, 0)


@EACH
def test_a_host_that_one_node_cannot_reach_is_fetched_by_another(protocol: type[Crawl]) -> None:
    for far in (0, 1):
        latency = [[2.0] * 4, [2.0] * 4]
        latency[far] = [9.0] * 4
        run = protocol(world(latency, [[0], [1]], lan=False), 5.0).play()
        assert (run.files, run.duplicates) == (16, 0)


@EACH
@pytest.mark.parametrize("lan", [True, False])
def test_every_host_that_is_reached_by_links_and_not_too_far_is_fetched(protocol: type[Crawl], lan: bool) -> None:
    drawn = draw(2, lan, 4, 20_000)
    reached = dict.fromkeys(host for first in drawn.first for host in first if near(drawn, host))
    left = list(reached)
    while left:
        for others in drawn.links[left.pop()].values():
            fresh = dict.fromkeys(other for other in others if other not in reached and near(drawn, other))
            reached |= fresh
            left += fresh
    assert protocol(drawn, 5.0).play().files == 50 * len(reached)


def near(drawn: World, host: int) -> bool:
    """Whether anybody can connect to it within 5T."""
    return min(latency[host] for latency in drawn.latency) <= 5.0


def test_two_nodes_that_begin_with_a_host_at_once_fetch_some_of_it_twice_until_the_control_unit_tells_them() -> None:
    small = world([[1.0] * 2] * 2, [[0], [0]], lan=False, files=100)
    run = ControlUnit(small, 5.0).play()
    assert run.files == 200
    assert 0 < run.duplicates < 20
    assert HandedOn(small, 5.0).play().duplicates == ByOwners(small, 5.0).play().duplicates == 0


def test_messages_of_the_control_unit_by_hand() -> None:
    # One node: it asks about both hosts, and is told twice; a link to a host of its own is nobody's business.
    assert ControlUnit(world([[1.0, 1.0]], [[0]]), 5.0).play().messages == 4
    # It cannot reach the other and says so; there is nobody to offer it to.
    assert ControlUnit(world([[1.0, 9.0]], [[0]]), 5.0).play().messages == 5
    # Alone, nobody needs to be told anything.
    assert HandedOn(world([[1.0, 9.0]], [[0]]), 5.0).play().messages == 0
    assert ByOwners(world([[1.0, 9.0]], [[0]]), 5.0).play().messages == 0


def test_without_a_master_a_host_that_nobody_reaches_goes_round_once() -> None:
    small = world([[9.0]] * 4, [[0], [], [], []])
    run = HandedOn(small, 5.0).play()
    # To the first, unless node 0 is; then three times to the next.
    assert (run.files, run.messages) in [(0, 3), (0, 4)]
    assert run.in_vain == run.messages
    run = ByOwners(small, 5.0).play()
    # To the owner, unless node 0 is; then to each of the other three, and back.
    assert (run.files, run.messages) in [(0, 6), (0, 7)]


def test_who_owns_the_tasks_of_a_host_lends_them_by_the_batch() -> None:
    drawn = draw(1, True, 3, 40_000)
    run = ByOwners(drawn, 5.0).play()
    # Two batches of 50 a host, two messages each, where the owner does not fetch: for what is more than its share.
    assert run.loans % 4 == 0
    assert 0 < run.loans < 4 * run.files / 100 / 3
    assert ControlUnit(drawn, 5.0).play().loans == HandedOn(drawn, 5.0).play().loans == 0


@EACH
def test_a_run_is_the_same_every_time(protocol: type[Crawl]) -> None:
    drawn = draw(3, False, 3, 8_000)
    assert protocol(drawn, 5.0).play() == protocol(drawn, 5.0).play()


def test_a_longer_timeout_brings_more_hosts() -> None:
    drawn = draw(1, True, 3, 8_000)
    for protocol in PROTOCOLS.values():
        brought = [protocol(drawn, timeout_t).play().files for timeout_t in (3.0, 5.0, 7.0)]
        assert brought == sorted(brought)
        assert brought[0] < 0.5 * brought[2]
    assert mean(latency <= 7 for latency in drawn.latency[0]) == pytest.approx(0.75, abs=0.06)


@pytest.mark.parametrize(
    ("judge", "as_said", "not_so"),
    [
        (hosts.grows_steeper, ([1, 2], [1, 3]), ([1, 3], [1, 2])),
        (hosts.parts, ([2, 1], [1, 2]), ([2, 1], [2, 1])),
        (hosts.wan_more, ([1, 2], [3, 4]), ([1, 2], [3, 2])),
        (hosts.falls, ([2, 1], [2, 1]), ([2, 1], [1, 2])),
    ],
)
def test_a_trend_that_is_not_the_papers_is_said(
    judge: hosts.Judge, as_said: tuple[list[float], list[float]], not_so: tuple[list[float], list[float]]
) -> None:
    assert judge(*as_said) == ""
    assert judge(*not_so)


def test_the_quick_run_has_every_row_and_no_verdict(tmp_path: Path) -> None:
    rows = hosts.dspider(Options(quick=True, plots=tmp_path))
    assert {(row.paper, row.met, row.seeds) for row in rows} == {("P5", None, 1)}
    assert [row.target for row in rows if row.target][:4] == ["0", "at most 1", "at most 0.5", "none"]
    assert sum(row.target == "the same trend" for row in rows) == 6
    assert sum(row.what.startswith("coverage") for row in rows) == 2
    assert rows[0].measured == "0"
    assert len(list(tmp_path.iterdir())) == 10
