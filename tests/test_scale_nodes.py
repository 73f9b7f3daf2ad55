"""How fast real nodes are is measured by a script: what it counts, what it makes of it, and one small swarm."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import bench_scale
import pytest
import scale_nodes
import scale_report
from scale_nodes import RealSample, Trial
from scale_site import Asked, Hosts, Web, seeds_of


def sample(nodes: int, rate: float, shares: tuple[int, ...], policy: str = "xor") -> RealSample:
    asked = Asked(at=0.0, pages=100 * nodes, again=0, too_soon=0, elsewhere=0)
    return RealSample(
        Trial(nodes, 100, policy=policy), 10.0, rate, 0.2 * nodes, 80 * nodes, 0.5, 1_000, shares, asked, 0, 0,
        (100 << 20,) * nodes,
    )  # fmt: skip


def test_the_web_counts_what_comes_again_and_what_comes_too_soon() -> None:
    web = Web(hosts=2, pages=10, places=Hosts(80), delay_s=1.0)
    assert (web.begin("/0", 0.0), web.begin("/1", 0.0)) == (0, 1), "two hosts may be asked at once"
    assert web.totals(0.0).too_soon == 0
    assert web.begin("/2", 0.1) == 2, "its host is answering page 0"
    assert web.totals(0.1).too_soon == 1
    web.end(0, 0.3)
    web.end(2, 0.4)
    assert web.begin("/4", 1.3) == 4, "less than a second after the last answer of its host"
    web.end(4, 1.5)
    assert web.begin("/0", 2.5) == 0, "a second after it, and again"
    assert web.totals(3.0) == Asked(3.0, pages=5, again=1, too_soon=2, elsewhere=0)


def test_the_web_has_no_other_pages() -> None:
    web = Web(hosts=2, pages=10, places=Hosts(80), delay_s=1.0)
    assert [web.begin(path, 0.0) for path in ("/10", "/x", "/-1", "/²", "/robots.txt")] == [None] * 5
    assert web.totals(0.0) == Asked(0.0, pages=0, again=0, too_soon=0, elsewhere=4)
    assert 'href="http://127.77.0.2:80/1"' in web.page(0), "pages lead to other hosts"


def test_hosts_are_different_loopback_addresses_and_each_has_a_seed() -> None:
    places = [Hosts(8080).place(number) for number in range(600)]
    assert len(set(places)) == 600
    assert all(address.startswith("127.77.") and port == 8080 for address, port in places)
    assert seeds_of(2, Hosts(8080)) == ["http://127.77.0.1:8080/0", "http://127.77.0.2:8080/1"]


def test_for_nodes_elsewhere_hosts_are_ports_of_one_address() -> None:
    assert seeds_of(2, Hosts(8080, "2001:db8::5")) == ["http://[2001:db8::5]:8080/0", "http://[2001:db8::5]:8081/1"]


def test_beginning_and_end_are_left_out() -> None:
    readings = [
        (done, scale_nodes.Reading(at, done, 0.0, (0.0,))) for at, done in enumerate((0, 9, 10, 50, 90, 91, 100))
    ]
    first, last = scale_nodes.middle_of(readings, 100)
    assert (first.pages, last.pages) == (10, 90)
    with pytest.raises(SystemExit, match="more pages"):
        scale_nodes.middle_of(readings[:3], 100)


def test_bytes_between_nodes_are_those_that_either_end_has_sent() -> None:
    told = """ESTAB 0 0 127.0.0.1:4001 127.0.0.1:5000 users cubic bytes_sent:100 bytes_acked:100 bytes_received:7
ESTAB 0 0 127.0.0.1:5000 127.0.0.1:4001 cubic bytes_sent:7 bytes_received:100
ESTAB 0 0 127.0.0.1:6000 127.0.0.1:80 cubic bytes_sent:9999
LISTEN 0 512 127.0.0.1:4001 0.0.0.0:*
"""
    assert scale_nodes.bytes_between(told, {"127.0.0.1:4001"}) == 107


def test_the_machine_and_processes_are_read() -> None:
    import os

    assert scale_nodes.machine_busy_s() > 0
    assert scale_nodes.peak_bytes(os.getpid()) > 10 << 20


def test_speed_is_judged_at_eight_nodes_and_xor_by_what_its_shares_allow() -> None:
    one = [sample(1, 10.0, (100,))]
    eight = [sample(8, 44.0, (200, *[86] * 6, 84))]  # E 0.55, and its shares allow 0.5
    samples = {("xor", "url", 1): one, ("xor", "url", 8): eight}
    rows = {row["name"]: row for row in scale_report.rows_of(samples)}
    assert rows["xor, by url, 8 nodes: E"]["measured"] == 0.55
    judged = rows["xor, by url, 8 nodes: E over what the shares allow, judged"]
    assert (judged["measured"], judged["target"], judged["ok"]) == (1.1, 0.9, True)

    even = {("balanced", "url", 1): one, ("balanced", "url", 8): [sample(8, 44.0, (100,) * 8, "balanced")]}
    judged = {row["name"]: row for row in scale_report.rows_of(even)}["balanced, by url, 8 nodes: E, judged"]
    assert (judged["measured"], judged["ok"]) == (0.55, False)

    busy = {**even, ("balanced", "url", 8): [replace(sample(8, 44.0, (100,) * 8, "balanced"), busy=0.8)]}
    judged = {row["name"]: row for row in scale_report.rows_of(busy)}["balanced, by url, 8 nodes: E, judged"]
    assert (judged["target"], judged["ok"]) == (None, True), "a full machine says nothing about the crawler"


def test_what_must_not_happen_is_judged_everywhere() -> None:
    bad = replace(sample(2, 20.0, (100, 100)), lost=1, asked=Asked(0.0, 200, 1, 3, 0))
    rows = {row["name"]: row for row in scale_report.rows_of({("xor", "url", 2): [bad]})}
    for what in ("again", "lost", "too soon"):
        assert not rows[f"xor, by url, 2 nodes: {what}"]["ok"], what
    assert rows["xor, by url, 2 nodes: again"]["measured"] == 5_000


def test_a_line_is_drawn_through_the_speeds() -> None:
    samples = {("xor", "url", n): [sample(n, 10.0 * n, (100,) * n)] for n in (1, 2, 4)}
    assert scale_report.r2(scale_report.speeds(samples, "xor", "url")) == pytest.approx(1.0)
    drawn = scale_report.plot(samples)
    ElementTree.fromstring(drawn)
    assert "R² 1.0000" in drawn
    assert scale_report.r2([(1.0, 5.0), (2.0, 5.0)]) == 0.0


def test_a_small_swarm_is_measured(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    table, plot = tmp_path / "real.csv", tmp_path / "real.svg"
    argv = ["--quick", "--real", "1", "--policies", "xor", "--csv", str(table), "--plot", str(plot), "--json", "-"]
    assert bench_scale.main(argv) == 0
    rows = {row["name"]: row for row in json.loads(capfd.readouterr().out)["rows"]}
    assert rows["xor, by url, 1 node: lost"]["measured"] == 0
    assert rows["xor, by url, 1 node: too soon"]["measured"] == 0
    assert rows["xor, by url, 1 node: speed"]["measured"] > 0
    (line,) = csv.DictReader(table.open())
    assert (line["pages"], line["efficiency"]) == ("40", "1.0000")
    ElementTree.fromstring(plot.read_text())


def test_nodes_with_a_share_of_a_core_are_judged_by_speed_and_price_at_any_size() -> None:
    def small(nodes: int, rate: float, cpu_ms: float) -> RealSample:
        made = sample(nodes, rate, (100,) * nodes)
        return replace(made, trial=replace(made.trial, share=0.05), cpu_s=0.001 * cpu_ms * made.middle_pages)

    for cpu_ms, cheap in ((13.0, True), (14.0, False)):
        rows = {
            row["name"]: row
            for row in scale_report.rows_of(
                {
                    ("xor", "url", 1): [small(1, 10.0, 10.0)],
                    ("xor", "url", 4): [small(4, 33.0, cpu_ms)],
                }
            )
        }
        judged = rows["xor, by url, 4 nodes: E, judged"]
        assert (judged["measured"], judged["target"], judged["ok"]) == (0.825, 0.8, True)
        assert rows["xor, by url, 4 nodes: dearer"]["ok"] is cheap
