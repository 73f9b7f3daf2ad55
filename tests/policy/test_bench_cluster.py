"""What is measured with real processes: the site that they crawl, what is read of them, and what is made of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from policy_bench import cluster, restarts
from policy_bench.cluster import Growth, Level, cluster_rows, flat_out_row, line_through, saturation_row, shares, speeds
from policy_bench.nodes import Reading, Sample, between
from policy_bench.report import Options, Row
from policy_bench.slow_site import LINKS, NEW, PAGE_BYTES, TOTALS_PATH, Site, children_of, links_of, page

QUICK = Options(quick=True)


def sample(pages: int, *cpu_s: float, seconds: float = 20.0) -> Sample:
    return Sample(seconds, pages, 8 * pages, cpu_s)


def verdicts(rows: list[Row]) -> list[bool | None]:
    return [row.met for row in rows]


# The site


def test_every_page_of_a_finite_site_has_one_parent_above_it() -> None:
    pages = 100
    assert sorted(child for number in range(pages) for child in children_of(number, pages)) == list(range(1, pages))


def test_a_page_leads_to_its_children_and_to_what_is_known() -> None:
    assert links_of(0)[:9] == [1, 2, 3, 4, 5, 6, 7, 8, 0]
    links = links_of(9)
    assert links[:NEW] == [73, 74, 75, 76, 77, 78, 79, 80]
    assert set(links[NEW:]) == {1, *range(9, 17), 0, *range(1, 9)}, "its parent, and that one's, each with its children"
    assert {len(links_of(number)) for number in (0, 9, 10**9)} == {LINKS}
    assert max(links_of(90, pages=100)) < 100


def test_a_page_has_as_many_links_as_it_says_and_the_usual_size() -> None:
    html = page(9)
    assert html.count("<a href=") == LINKS
    assert len(html) == pytest.approx(PAGE_BYTES, rel=0.02)


def test_the_site_counts_pages_and_those_asked_for_again() -> None:
    site = Site(5.0, pages=2)
    answers = [site.answer(path) for path in ("/0", "/1", "/0", "/2", "/robots.txt")]
    assert [delay_s for _, delay_s in answers] == [5.0, 5.0, 5.0, 0.0, 0.0]
    assert [response[9:12] for response, _ in answers] == [b"200", b"200", b"200", b"404", b"404"]
    assert site.totals[:2] == (3, 1)
    assert b'"again": 1' in site.answer(TOTALS_PATH)[0]
    assert site.totals[:2] == (3, 1), "to be asked how many is not counted"


# What is made of what was read


def test_a_sample_is_what_lies_between_two_readings() -> None:
    found = between(Reading(10.0, 5, 40, (1.0, 2.0)), Reading(30.0, 9, 70, (1.5, 2.2)))
    assert found[:3] == (20.0, 4, 30)
    assert found.pages_per_s == 0.2
    assert found.cpu_shares == pytest.approx([2.5, 1.0])


def test_a_cluster_that_grows_linearly_at_the_same_cpu_a_node_meets_both_targets() -> None:
    noisy = {n: [sample(4 * n, *[share] * n) for share in (0.20, 0.21, 0.19)] for n in range(1, 9)}
    assert line_through(speeds(noisy)) == pytest.approx((0.2, 1.0, 0.0), abs=1e-9)
    assert line_through(shares(noisy)) == pytest.approx((0.0, 0.0, 0.041), abs=1e-3)
    assert verdicts(cluster_rows(cluster.PUBLISHED, noisy, Options())) == [True, True, None]


def test_a_cluster_that_stops_growing_and_one_whose_nodes_cost_ever_more_do_not() -> None:
    bent = {n: [sample(4 * min(n, 5), *[0.2] * n) for _ in range(3)] for n in range(1, 9)}
    assert verdicts(cluster_rows(cluster.PUBLISHED, bent, Options())) == [False, True, None]
    dear = {n: [sample(4 * n, *[0.2 * n + spare] * n) for spare in (0.0, 0.01)] for n in range(1, 9)}
    assert verdicts(cluster_rows(cluster.PUBLISHED, dear, Options())) == [True, False, None]
    assert verdicts(cluster_rows(cluster.PUBLISHED, dear, QUICK)) == [None, None, None]


def test_a_node_is_saturated_when_more_requests_bring_no_more() -> None:
    def levels(*pages: int, wanted: float = 95.0) -> list[Level]:
        return [Level(c, sample(p, 1.0, seconds=1.0), 1e6, wanted) for c, p in zip((1, 8, 64), pages, strict=True)]

    assert saturation_row(levels(20, 150, 300), Options()).met
    assert saturation_row(levels(20, 160, 1280), Options()).met is False, "it could do more"
    assert saturation_row(levels(20, 150, 300, wanted=30.0), Options()).met is False, "it is not the CPU"
    assert saturation_row(levels(5, 6, 5), Options()).met is False, "it never grew"


def test_cpu_a_page_is_that_of_all_nodes() -> None:
    assert "7.0 ms" in flat_out_row(2, [sample(100, 0.3, 0.4)]).measured


def test_what_a_death_cut_short_is_no_refetch() -> None:
    case = restarts.Case(nodes=10, killed=2, pages=100)
    summary = {"complete": True, "lost": 0, "pages_missing": 0, "pages": 100}
    assert restarts.outcome(case, summary, again=8) == (True, 0, 0, 8, 0)
    assert restarts.outcome(case, summary, again=9).beyond == 1
    assert not restarts.outcome(case, summary | {"pages": 99}, again=0).whole
    (worse,) = [restarts.row(case, [restarts.outcome(case, summary, again=9)], Options())]
    assert worse.met is False, "1 % of the pages"


# Real processes


def test_a_killed_node_comes_back_and_nothing_is_lost() -> None:
    (row,) = restarts.run(QUICK)
    assert row.what == "1 of 2 nodes killed, back with its disk"
    assert row.measured.startswith("lost 0, missing 0, refetched 0.00 %")
    assert row.met is None


def test_a_real_node_is_measured_while_it_crawls(tmp_path: Path) -> None:
    level = cluster.one_node(2, 0.5, tmp_path)
    assert 0 < level.sample.pages_per_s <= 1.5 * level.possible
    assert 0 < level.wanted < 150, "there is one event loop"
    assert level.network_bytes_per_s > PAGE_BYTES * level.sample.pages_per_s / 2


def test_the_quick_runs_have_their_rows_and_judge_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def growing(growth: Growth, home: Path) -> dict[int, list[Sample]]:
        return {n: [sample(n, *[0.1] * n), sample(2 * n, *[0.2] * n)] for n in range(1, growth.nodes + 1)}

    monkeypatch.setattr(cluster, "grow", growing)
    monkeypatch.setattr(cluster, "one_node", lambda count, seconds, home: Level(count, sample(9, 0.1), 1e5, 9.0))
    rows = [row for experiment in cluster.EXPERIMENTS for row in experiment.run(QUICK)]
    assert [row.what for row in rows] == [
        "one node, 1 at once",
        "one node, 4 at once",
        "one node, ever more requests at once",
        "speed, 1 to 2 nodes, a call every 0.1 s",
        "CPU a node, 1 to 2 nodes, a call every 0.1 s",
        "without the sleep, 1 node",
        "without the sleep, 2 nodes",
    ]
    assert {row.met for row in rows} == {None}
    assert {row.paper for row in rows} == {"P4"}
