"""What the comparison with other crawlers counts, and what the guard of a page's cost lets pass. No crawl is made."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import asdict, replace
from pathlib import Path

import bench_peers
import bench_smoke
import pytest
from peer_bench import crawlers, measure, sites
from peer_bench.report import STARTUP, US, Run, Runs, Target, judged, markdown, plot, rows_of

OURS = Run("site", US, 1.0, 1.5, 2.0, 100 << 20, 1_000, 0, 1, 0, 0)
THEIRS = replace(OURS, crawler="wget", cpu_s=1.0)


def test_a_page_is_html_that_was_given_away() -> None:
    lines = [
        "200 127.0.1.1:8000 /a.html text/html; charset=utf-8",
        "200 127.0.1.2:8000 /a.html text/html",
        "404 127.0.1.1:8000 /robots.txt text/html",
        "200 127.0.1.1:8000 /logo.png image/png",
        "304 127.0.1.1:8000 /b.html -",
    ]
    answers = sites.read_log(lines)
    assert answers == sites.Answers(frozenset({"127.0.1.1/a.html", "127.0.1.2/a.html"}), 0, 3)


def test_two_spellings_of_a_path_are_one_page_that_was_asked_for_again() -> None:
    lines = ["200 h:1 /operator%3d.html text/html", "200 h:1 /operator=.html text/html", "200 h:1 /%E5%B3%B6 text/html"]
    assert sites.read_log(lines) == sites.Answers(frozenset({"h/operator=.html", "h/島"}), 1, 0)


def test_each_page_of_a_made_up_host_is_found_without_leaving_it(tmp_path: Path) -> None:
    site = sites.generated(tmp_path / "web", hosts=2, pages=20, port=8000)
    assert site.hosts == ("127.0.1.1", "127.0.1.2")
    for host, other in (site.hosts, site.hosts[::-1]):
        found, new = {"index.html"}, ["index.html"]
        for name in new:
            page = (site.root / host / name).read_text()
            links = re.findall(r'<a href="([^"#]+)', page)
            assert len(links) == sites.LINKS
            assert 24_000 < len(page) < 27_000
            assert sum(link.startswith(f"http://{other}:8000/") for link in links) == sites.LINKS_TO_OTHERS
            inside = {link for link in links if ":" not in link} - found
            found |= inside
            new += sorted(inside)
        assert found == {path.name for path in (site.root / host).iterdir()}
        assert len(found) == 20


def test_a_command_is_charged_for_the_processes_that_it_starts(tmp_path: Path) -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    large = f"x = bytearray(64 << 20)\n{busy}"
    shell = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {large!r}])"
    spent = measure.run([sys.executable, "-c", shell], cwd=tmp_path, env=os.environ)
    assert spent.cpu_s >= 0.3
    assert spent.peak_bytes >= 64 << 20


def test_a_command_that_fails_says_its_last_words(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", "import sys; sys.exit('no such host')"]
    with pytest.raises(measure.CommandFailed, match="ended with 1:\nno such host"):
        measure.run(argv, cwd=tmp_path, env=os.environ)
    measure.run(argv, cwd=tmp_path, env=os.environ, codes={1})


def test_a_command_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with pytest.raises(measure.CommandFailed, match="ended with -9"):
        measure.run(["sleep", "60"], cwd=tmp_path, env=os.environ, limit_s=0.05)


def test_whoever_interrupts_the_measuring_ends_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(pid: int, options: int) -> None:
        raise KeyboardInterrupt

    before = measure.descendants(os.getpid())
    monkeypatch.setattr(os, "wait4", interrupted)
    with pytest.raises(KeyboardInterrupt):
        measure.run(["sleep", "60"], cwd=tmp_path, env=os.environ)
    assert measure.descendants(os.getpid()) == before


def test_after_an_interruption_what_was_measured_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    spent, answers = measure.Spent(1.5, 2.0, 100 << 20), sites.Answers(frozenset({"h/a"}), 0, 1)
    results = iter([(spent, answers)])

    def crawl(*_: object) -> tuple[measure.Spent, sites.Answers]:
        if (result := next(results, None)) is None:
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(bench_peers.Lab, "crawl", crawl)
    server = sites.SiteServer(sites.Site("site", tmp_path), 80, tmp_path / "log")
    lab = bench_peers.Lab(tmp_path, 1, None)
    (run,) = bench_peers.compare(lab, [crawlers.ours(1)], [server], rounds=2, slow_rounds=2)
    assert replace(run, turn=1.0) == replace(OURS, pages=1)


def test_a_peer_that_is_not_installed_is_missing_and_no_failure(tmp_path: Path) -> None:
    missing = {crawler.name: crawler.missing for crawler in crawlers.all_of(tmp_path)}
    assert missing["scrapy"] == "scrapy is not installed"
    assert missing["crawlee"] == "crawlee is not installed"
    assert missing["spider"]
    assert not missing["dhtcrawl"]
    assert not missing["dhtcrawl-5-balanced"]


def test_runs_are_compared_within_their_round() -> None:
    ours = [replace(OURS, turn=turn, cpu_s=cpu_s) for turn, cpu_s in ((1.0, 1.0), (2.0, 2.0), (3.0, 4.0))]
    theirs = [replace(THEIRS, turn=turn, cpu_s=cpu_s) for turn, cpu_s in ((3.0, 2.0), (1.0, 0.5))]
    assert Runs([*ours, *theirs]).ratios("site", US, "wget") == [2.0, 2.0]


def test_what_starting_up_costs_is_taken_off() -> None:
    startup = replace(OURS, site=STARTUP, cpu_s=0.5, pages=1)
    runs = Runs([OURS, THEIRS, startup])
    assert runs.cpu("site", US) == [1.5]
    assert runs.cpu("site", US, warm=True) == [1.0]
    assert runs.cpu("site", "wget", warm=True) == [1.0]
    assert runs.sites == ["site"]


@pytest.mark.parametrize(("missing", "extra"), [(0, 0), (1, 0), (0, 1)])
def test_whoever_had_other_pages_is_not_compared_in_silence(missing: int, extra: int) -> None:
    runs = Runs([OURS, replace(THEIRS, missing=missing, extra=extra)])
    rows = {row["name"]: row for row in rows_of(runs, ())}
    assert rows["site: wget pages"]["ok"] is (missing == extra == 0)
    assert (f"(−{missing} +{extra})" in markdown(runs, {})) is bool(missing or extra)


@pytest.mark.parametrize(
    ("target", "ok"),
    [
        (Target("site", US, "wget", 1.5), True),
        (Target("site", US, "wget", 1.4), False),
        (Target("site", US, "wget", 1.4, goal=True), True),
        (Target("site", US, "wget", 1.4, ms_more=0.5), True),
        (Target("site", US, "wget", 1.4, ms_more=0.4), False),
        (Target("site", "wget", US, 0.7), True),
        (Target("site", "wget", US, 0.6), False),
    ],
)
def test_a_target_is_missed_by_more_than_it_allows(target: Target, ok: bool) -> None:
    (row,) = judged(Runs([OURS, THEIRS]), target)
    assert (row["measured"], row["ok"]) == (1.5 if target.of == US else 0.667, ok)


def test_a_target_without_its_crawler_has_no_row() -> None:
    assert judged(Runs([OURS]), Target("site", US, "wget", 1.5)) == []


def test_runs_of_several_files_become_one_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, run in (("a", OURS), ("b", THEIRS)):
        (tmp_path / name).write_text(json.dumps({"runs": [asdict(run)]}))
    added = [word for name in "ab" for word in ("--add", str(tmp_path / name))]
    out, picture = tmp_path / "all.json", tmp_path / "plot.svg"
    assert bench_peers.main(["--rounds", "0", *added, "--json", str(out), "--plot", str(picture)]) == 0
    assert len(json.loads(out.read_text())["runs"]) == 2
    table = capsys.readouterr().err
    assert "| wget | files | 1 |  | 0.667 | 500 | 100 | 1,000 | 1 |" in table
    assert picture.read_text().count("<rect") == 3


def test_the_plot_has_a_bar_for_each_crawler() -> None:
    assert plot(Runs([OURS, THEIRS, replace(OURS, site="b", cpu_s=0.02)])).count('height="12"') == 3


@pytest.mark.parametrize(("times", "ok"), [(0.5, True), (1.0, True), (1.9, True), (3.0, False)])
def test_the_guard_lets_noise_pass_and_no_slowdown(times: float, ok: bool) -> None:
    rounds = [bench_smoke.Round(0.001, 0.001 * bench_smoke.EXPECTED * times)] * 3
    row = bench_smoke.rows_of(rounds)[-1]
    assert (row["name"], row["ok"]) == ("page / reference", ok)
