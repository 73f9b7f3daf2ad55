"""Machines of a laboratory: packets that take their time, limited lines and processors, and what is made of it."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from math import dist
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
from e2e.netns import Hosts, Unavailable
from hypothesis import given
from hypothesis import strategies as st
from policy_bench import real_far, real_uneven
from policy_bench.far import Ways
from policy_bench.lab import WEB, Crawled, Lab, Machine, limits, where_possible
from policy_bench.real_far import FarHosts, places
from policy_bench.real_uneven import policies, slope, step_of, workshop
from policy_bench.report import Options, Row

OPTIONS = Options()
MANY_BYTES = 400_000
LINE_BPS = 4e6


def packet(to: int, text: bytes = b"") -> bytes:
    """An IPv4 header as far as the router reads it."""
    return bytes([0x45, *[0] * 15, 10, 77, 0, 1 + to]) + text


def crawled(seconds: float, *pages: int) -> Crawled:
    return Crawled(seconds, list(pages), {})


# The router


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.floats(0, 10)), max_size=30))
def test_every_packet_arrives_once_in_its_time_and_none_overtakes_another_on_its_way(
    sent: list[tuple[int, int, float]],
) -> None:
    delays = [[0.1 * (1 + one + 3 * other) for other in range(3)] for one in range(3)]
    ways, got = Ways(delays), []
    for number, (sender, to, at) in enumerate(sorted(sent, key=lambda each: each[2])):
        ways.send(packet(to, bytes([sender, number])), sender, at)
    while (now := ways.next_at) is not None:
        got += [(now, to, *text[20:22]) for to, text in ways.arrived(now)]
    in_order = sorted(sent, key=lambda each: each[2])
    assert sorted(number for *_, number in got) == list(range(len(sent)))
    for at, to, sender, number in got:
        assert (sender, to) == in_order[number][:2]
        assert at == in_order[number][2] + delays[sender][to]
    for sender in range(3):
        for to in range(3):
            way = [number for _, at, by, number in got if (by, at) == (sender, to)]
            assert way == sorted(way)


def test_what_is_no_packet_for_a_host_is_lost() -> None:
    ways = Ways([[0.0, 0.0], [0.0, 0.0]])
    for bad in (b"", b"\x45", packet(2), packet(-1), b"\x60" + packet(0)[1:]):
        ways.send(bad, 0, 0.0)
    assert ways.next_at is None


def answer(server: socket.socket, data: bytes) -> None:
    with server, server.accept()[0] as client:
        client.recv(1)
        client.sendall(data)


def seconds_to_fetch(hosts: Hosts, name: str, to: str, size: int) -> float:
    """One TCP connection: a byte there, and so many back."""
    with hosts.on(to):
        server = socket.create_server((hosts.address(to), 8000))
    thread = threading.Thread(target=answer, args=(server, bytes(size)))
    thread.start()
    began_at = time.monotonic()
    with hosts.on(name):
        client = socket.create_connection((hosts.address(to), 8000), timeout=30)
    with client:
        client.sendall(b"?")
        left = size
        while left:
            left -= len(client.recv(65_536))
    thread.join()
    return time.monotonic() - began_at


@pytest.mark.needs_root
def test_hosts_are_as_far_from_each_other_as_they_are_said_to_be(tmp_path: Path) -> None:
    delays = [[0.0, 0.0, 0.2], [0.0, 0.0, 0.2], [0.1, 0.1, 0.0]]
    try:
        with FarHosts(["one", "near", "far"], delays, tmp_path) as hosts:
            far_s = seconds_to_fetch(hosts, "one", "far", 1)
            near_s = seconds_to_fetch(hosts, "one", "near", 1)
    except Unavailable as error:
        print(f"not tested on this machine: {error}")
        return
    assert far_s >= 0.6, "a round trip to connect, and one for the byte"
    assert far_s > near_s


@pytest.mark.needs_root
def test_a_line_carries_no_more_than_it_is_said_to() -> None:
    try:
        with Lab([Machine(line_bps=LINE_BPS), Machine()]) as lab:
            narrow_s, wide_s = (seconds_to_fetch(lab, name, WEB, MANY_BYTES) for name in ("node0", "node1"))
    except Unavailable as error:
        print(f"not tested on this machine: {error}")
        return
    assert narrow_s >= 0.8 * 8 * MANY_BYTES / LINE_BPS
    assert narrow_s > wide_s


@pytest.mark.needs_root
def test_a_process_on_a_limited_machine_finds_its_limits_and_not_its_neighbours() -> None:
    look = "from dhtcrawl.cli.machine import cgroup_bytes, cgroup_cores; print(cgroup_cores(), cgroup_bytes())"
    machines = [Machine(cpu=0.3, memory_bytes=128 << 20), Machine(cpu=0.5, memory_bytes=192 << 20)]
    found = []
    try:
        with Lab(machines) as lab:
            for number in range(len(machines)):
                argv = [*lab.wrapper(f"node{number}"), sys.executable, "-c", look]
                found.append(
                    subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60).stdout.split()
                )
    except Unavailable as error:
        print(f"not tested on this machine: {error}")
        return
    assert found == [["0.3", str(float(128 << 20))], ["0.5", str(float(192 << 20))]]


def test_a_machine_is_limited_by_either_version_of_cgroups() -> None:
    machine = Machine(cpu=0.25, disk_bytes_per_s=5e5, memory_bytes=1 << 30)
    assert limits(machine, "8:0", unified=False) == {
        "cpu": {"cpu.cfs_period_us": "20000", "cpu.cfs_quota_us": "5000"},
        "memory": {"memory.limit_in_bytes": "1073741824"},
        "blkio": {"blkio.throttle.write_bps_device": "8:0 500000"},
    }
    files = {"cpu.max": "5000 20000", "memory.max": "1073741824", "io.max": "8:0 wbps=500000"}
    assert limits(machine, "8:0", unified=True) == {"": files}
    assert limits(Machine(line_bps=1e6), "8:0", unified=True) == {}


# What is made of it


def test_a_machine_that_does_not_allow_it_has_no_rows_and_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    def measure(options: Options) -> list[Row]:
        raise Unavailable("network namespaces need root")

    assert where_possible(measure)(OPTIONS) == []
    assert "not measured: network namespaces need root" in capsys.readouterr().err


@pytest.mark.parametrize(("error", "kept"), [(AssertionError(), True), (Unavailable("no root"), False)])
def test_what_the_nodes_said_is_kept_where_something_broke(
    error: Exception, kept: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(type(error)), workshop() as home:
        raise error
    assert home.exists() is kept
    assert (str(home) in capsys.readouterr().err) is kept
    shutil.rmtree(home, ignore_errors=True)


def test_the_equal_split_is_a_policy_as_a_package_brings_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dhtcrawl.policy import registry
    from dhtcrawl.policy.seam import Candidate, PolicyTask, Settings

    monkeypatch.syspath_prepend(str(policies(tmp_path)))
    try:
        policy = registry.load("equal")(Settings(b"o" * 20))
    finally:
        sys.modules.pop("equal_split", None)
    nodes = [Candidate(bytes([number]) * 20) for number in range(5)]
    shares = [
        policy.rank(PolicyTask(Random(task).randbytes(20), "site.test"), nodes, 0.0)[0][0] for task in range(1_000)
    ]
    assert all(150 < shares.count(number) < 250 for number in range(5))


def test_a_split_is_judged_by_its_rounds() -> None:
    equal, ours = [crawled(100.0, 5, 5)] * 3, [crawled(s, 3, 7) for s in (50.0, 70.0, 55.0)]
    rates = [crawled(s, 3, 7) for s in (60.0, 50.0, 45.0)]
    taken = {"equal": equal, "rates": rates, "net": ours, "auto": ours, "balanced": equal}
    found = {row.what.rpartition(": ")[2]: row for row in real_uneven.rows(taken, OPTIONS)}
    assert found["net over an equal split"].measured.startswith("0.55 (0.50 to 0.70; 55 s against 100 s)")
    assert (found["net over an equal split"].met, found["rates over an equal split"].met) == (True, None)
    assert (found["net over rates"].measured[:4], found["net over rates"].met) == ("1.22", False)
    better = found["auto over the better of both"].measured
    assert better.startswith("1.22 (0.83 to 1.40"), "rates are, though in one round the net was"
    assert all(row.met is None for row in real_uneven.rows(taken, Options(quick=True)))


def test_nodes_that_find_their_limits_are_told_from_one_that_does_not() -> None:
    told = [
        {"cores": each.cpu, "memory_bytes": 0.95 * each.memory_bytes, "disk_bytes_per_s": each.disk_bytes_per_s}
        for each in real_uneven.CAPPED
    ]
    assert [row.met for row in real_uneven.vector_rows(told, OPTIONS)] == [True, True, True]
    rows = real_uneven.vector_rows([*told[:-1], told[-1] | {"cores": 2.0}], OPTIONS)
    assert [row.met for row in rows] == [False, True, True]
    assert rows[0].measured == "0.5 / 0.5 / 0.3 / 1 / 2 cores"


def test_plans_say_how_far_shares_changed_and_what_made_them() -> None:
    plans = [
        {"epoch": 1, "model": "rates", "error": None, "samples": 12, "shares": {"a": 0.5, "b": 0.5}},
        {"epoch": 2, "model": "net", "error": 0.04, "samples": 30, "shares": {"a": 0.6, "b": 0.4}},
        {"epoch": 3, "model": "net", "error": 0.06, "samples": 40, "shares": {"a": 0.9}},
    ]
    assert step_of(plans) == pytest.approx(0.2), "only while the nodes are the same"
    assert step_of(plans[:1]) == 0.0
    run = Crawled(10.0, [5, 5], {}, tuple(plans))
    taken = {name: [run] for name in real_uneven.RUNS}
    row = next(row for row in real_uneven.rows(taken, OPTIONS) if "net over an equal" in row.what)
    assert row.by == "net: 1 plans by rates (12 to 12 batches), 2 plans by net (30 to 40 batches, 5 % off)"


@pytest.mark.parametrize(
    ("little", "much", "effect", "met"),
    [
        ([10.0, 11.0, 12.0], [5.0, 6.0, 9.0], "faster", True),
        ([10.0, 11.0, 12.0], [5.0, 6.0, 10.5], "no difference", False),
        ([10.0, 10.1, 10.2], [9.7, 9.8, 9.9], "no difference", False),
        ([5.0, 6.0, 7.0], [10.0, 11.0, 12.0], "slower", False),
    ],
)
def test_a_slope_needs_every_round(little: Sequence[float], much: Sequence[float], effect: str, met: bool) -> None:
    row = slope("memory", little, much, "faster", OPTIONS)
    assert row.measured.startswith(effect)
    assert row.met is met


def test_speed_far_away_is_judged_round_by_round() -> None:
    taken = {choice: [crawled(100.0)] * 3 for choice in real_far.CHOICES}
    runs = zip((50.0, 80.0, 90.0), ((3.0, 4.0), (2.5, 8.5), None), strict=True)
    taken["least loaded of three"] = [crawled(s)._replace(placed_s=placed_s) for s, placed_s in runs]
    _, ours, top3, _, over_idle, placed = real_far.rows(taken, OPTIONS)
    assert ours.measured.startswith("1.25 (1.11 to 2.00)")
    assert (ours.met, top3.met, over_idle.met) == (True, None, True)
    assert (placed.measured, placed.met) == ("3.0 s (at most 90.0); at all nodes 8.5 s", True)


def test_when_sites_have_their_places_is_read_in_the_logs_of_the_nodes() -> None:
    line = "{},250 INFO dhtcrawl.swarm.assignment.plans: plan {} of crawl 0123456789ab: {} sites have a place\n"
    first_at = time.mktime(time.strptime("2026-11-26 12:00:00", "%Y-%m-%d %H:%M:%S")) + 0.5
    one = line.format("2026-11-26 12:00:02", 1, 1) + line.format("2026-11-26 12:00:03", 2, 3)
    other = line.format("2026-11-26 12:00:05", 2, 3) + line.format("2026-11-26 12:00:09", 3, 3)
    assert real_far.placed_s([one, other], first_at) == pytest.approx((2.75, 4.75))
    assert real_far.placed_s([one, ""], first_at) is None, "one has never had them"


def test_hosts_lie_in_three_regions() -> None:
    points = places(12, Random(1))
    apart = SimpleNamespace(near=[], far=[])
    for one in range(12):
        for other in range(one):
            distance = dist(points[one], points[other])
            (apart.near if one % 3 == other % 3 else apart.far).append(distance)
    assert max(apart.near) < min(apart.far)


def test_what_no_schedule_can_beat_is_the_nearest_nodes_pages_one_after_the_other() -> None:
    ways = real_far.ways_s(1)
    sites = range(real_far.NODES, real_far.NODES + real_far.SITES)
    slowest = max(min(ways[node][site] for node in range(real_far.NODES)) for site in sites)
    assert slowest < 0.05, "a node lies in the region of each site"
    assert real_far.bound_s(1, 100, 1.0) == pytest.approx(2 * slowest + 100 * (1.0 + 4 * slowest))


def test_at_a_delay_gnp_is_judged_by_the_bound() -> None:
    taken = {"by lot": [crawled(200.0, 1)], real_far.IDLE: [crawled(99.0, 1)], real_far.OURS: [crawled(110.0, 1)]}
    lot, _, ours, over_idle, _ = real_far.polite_rows(taken, [100.0], OPTIONS)
    assert (lot.met, ours.met, ours.measured[:4]) == (None, True, "0.91")
    assert (over_idle.met, over_idle.measured[:4]) == (False, "0.90")
    assert real_far.polite_rows(taken, [98.0], OPTIONS)[2].met is False
