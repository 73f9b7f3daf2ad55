"""`dhtcrawl report` on what a crawl of the demo site left."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from e2e import browser as chrome
from e2e.crawler import COMMAND, environment
from export.made import Made, make

from .conftest import TIMEOUT_S, DemoCrawl, Here


def test_the_report_has_the_figures_of_the_summary(demo: DemoCrawl, here: Here, tmp_path: Path) -> None:
    summary = json.loads((demo.out / "summary.json").read_text())
    to = tmp_path / "demo.html"
    ended = here("report", demo.out, "--to", to)
    assert (ended.code, ended.stdout, ended.stderr) == (0, f"wrote {to}: {summary['pages']} pages\n", "")
    text = to.read_text("utf-8")
    assert "The crawl is complete" in text
    assert f"<dt>Failed URLs</dt><dd>{summary['errors']}</dd>" in text
    for status in summary["errors_by_kind"]:
        assert f">{status}</" in text
    assert all(f"<code>{reason}</code>" in text for reason in summary["skipped"])


def test_it_lies_beside_the_directory_and_replaces_nothing_unasked(
    tmp_path: Path, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make(tmp_path / "c", [Made("http://a.example/")])
    assert here("report", f"{root}/").stdout == f"wrote {root}.html: 1 pages\n"
    ended = here("report", root)
    assert (ended.code, f"{root}.html is there already" in ended.message()) == (2, True)
    assert here("report", root, "--overwrite").code == 0
    assert "lies among the outputs" in here("report", root, "--to", root / "pages/r.html").message()
    (tmp_path / "c.html").unlink()
    monkeypatch.chdir(root)
    assert here("report", ".").stdout == f"wrote {tmp_path}/c.html: 1 pages\n"
    assert "<title>Crawl of a.example</title>" in (tmp_path / "c.html").read_text()


def test_lines_that_cannot_be_read_are_told_and_the_rest_is_written(tmp_path: Path, here: Here) -> None:
    root = make(tmp_path / "c", [Made("http://a.example/")])
    with (root / "pages/pages.jsonl").open("a") as file:
        file.write("{}\n")
    ended = here("report", root)
    assert ended.code == 1
    assert ended.stderr == f"dhtcrawl: 1 line of {root}/pages/pages.jsonl could not be read and were left out\n"
    assert (tmp_path / "c.html").exists()


def test_a_directory_without_a_crawl_is_refused(tmp_path: Path, here: Here) -> None:
    ended = here("report", tmp_path)
    assert (ended.code, f"{tmp_path} holds no crawl" in ended.message()) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_it_goes_to_standard_output_and_nothing_else_does(tmp_path: Path) -> None:
    root = make(tmp_path / "c", [Made("http://a.example/")])
    done = subprocess.run(
        [*COMMAND, "report", str(root), "--to", "-"],
        capture_output=True,
        env=environment(tmp_path),
        timeout=TIMEOUT_S,
        check=True,
    )
    assert done.stdout.startswith(b"<!doctype html>\n<html")
    assert done.stdout.endswith(b"</html>\n")
    assert done.stderr == b""


@pytest.mark.skipif(chrome.CHROMIUM is None, reason="Chromium is missing: apt-get install chromium-headless-shell")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nobody_is_kept_out_and_nothing_sticks_out(demo: DemoCrawl, here: Here, tmp_path: Path, scheme: str) -> None:
    to = tmp_path / "demo.html"
    assert here("report", demo.out, "--to", to).code == 0
    with chrome.chromium() as browser:
        for width in (1200, 400):
            size = {"width": width, "height": 900}
            with chrome.looking(browser, to.as_uri(), viewport=size, color_scheme=scheme) as page:
                assert page.evaluate("document.documentElement.scrollWidth") <= width
                if width == 1200:
                    assert chrome.hurdles(page) == []
                    chrome.shot(page, f"report-{scheme}")
