"""`dhtcrawl export` on what a crawl of the demo site left."""

from __future__ import annotations

import csv
import json
import re
import signal
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from e2e.crawler import COMMAND, environment
from export.made import Made, make

from dhtcrawl.export.form import ExportFormat
from dhtcrawl.export.formats import FORMATS
from dhtcrawl.storage.outputs.outputs import PAGES_DIR, PAGES_FILE

from .conftest import TIMEOUT_S, DemoCrawl, Here

ROOT = Path(__file__).parents[2]
RULES = '[[rules]]\nname = "r"\nsite = "*"\nfields = [{ name = "f", selector = "p" }]\n'


def pages(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / PAGES_DIR / PAGES_FILE).read_text().splitlines()]


def test_csv_has_a_row_for_each_page_and_wacz_lists_the_html(demo: DemoCrawl, here: Here, tmp_path: Path) -> None:
    known = pages(demo.out)
    to = tmp_path / "pages.csv"
    ended = here("export", demo.out, "--format", "csv", "--to", to)
    assert (ended.code, ended.stdout, ended.stderr) == (0, f"wrote {to}: {len(known)} pages\n", "")
    rows = list(csv.DictReader(to.open(newline="", encoding="utf-8")))
    assert [(row["url"], row["status"], row["title"]) for row in rows] == [
        (page["url"], str(page["status"]), page["title"] or "") for page in known
    ]
    assert all(row["archive_file"] for row in rows)
    html = [page for page in known if page["charset"] is not None]
    ended = here("export", demo.out, "--format", "wacz", "--to", tmp_path / "demo.wacz")
    assert ended.stdout == f"wrote {tmp_path}/demo.wacz: {len(html)} pages\n"


def test_links_are_those_that_led_the_crawl_on(demo: DemoCrawl, here: Here) -> None:
    ended = here("export", demo.out, "--format", "links", "--to", "-")
    assert (ended.code, ended.stderr) == (0, "")
    rows = [json.loads(line) for line in ended.stdout.splitlines()]
    assert {page["referrer"] for page in pages(demo.out)} - {row["from"] for row in rows} == {None}
    for page in pages(demo.out):
        led = [row for row in rows if row["from"] == page["referrer"] and row["to"] == page["url"]]
        assert led or page["referrer"] is None
        assert {row["status"] for row in led} <= {page["status"]}


def test_the_command_of_the_docs_lists_broken_links_with_the_pages_that_have_them(demo: DemoCrawl) -> None:
    (command,) = re.findall(r"^(dhtcrawl export .* \| grep .*)$", (ROOT / "docs/outputs.md").read_text(), re.MULTILINE)
    words = command.replace("my-crawl", str(demo.out)).replace("dhtcrawl", " ".join(COMMAND), 1)
    ran = subprocess.run(
        ["bash", "-c", words], capture_output=True, check=True, env=environment(demo.out), cwd=ROOT, timeout=TIMEOUT_S
    )
    broken = {(row["from"], row["to"]) for row in map(json.loads, ran.stdout.splitlines())}
    known = pages(demo.out)
    skipped = [json.loads(line) for line in (demo.out / "reports/skipped.jsonl").read_text().splitlines()]
    wrong = {page["url"] for page in known if page["status"] >= 400}
    wrong |= {row["url"] for row in skipped if row["reason"] == "failed"}
    assert wrong
    assert {to for _, to in broken} == wrong
    assert {(page["referrer"], page["url"]) for page in known if page["status"] >= 400} <= broken


def test_by_default_the_file_lies_beside_the_directory_and_is_not_written_over(tmp_path: Path, here: Here) -> None:
    root = make(tmp_path / "a crawl", [Made("http://a.example/", b"<a href=x>")])
    for form in FORMATS.values():
        file = tmp_path / f"a crawl{form.suffix}"
        ended = here("export", f"{root}/", "--format", form.name)
        assert ended.stdout == f"wrote {file}: 1 {form.counts}\n"
        before = file.stat()
        ended = here("export", root, "--format", form.name)
        assert ended.code == 2
        assert "add --overwrite" in ended.message()
        assert file.stat() == before
        assert here("export", root, "--format", form.name, "--overwrite").code == 0
        assert file.stat().st_ino != before.st_ino
    assert len(list(tmp_path.iterdir())) == 1 + len(FORMATS)


@pytest.mark.parametrize("to", ["pages/pages.jsonl", "archive/new.csv", "summary.json", "link/pages.jsonl"])
def test_no_export_takes_the_place_of_what_the_crawl_has_written(to: str, tmp_path: Path, here: Here) -> None:
    root = make(tmp_path / "c", [Made("http://a.example/")])
    (root / "link").symlink_to("pages")
    before = (root / "pages/pages.jsonl").read_bytes()
    ended = here("export", root, "--format", "csv", "--to", root / to, "--overwrite")
    assert ended.code == 2
    assert f"lies among the outputs of {root}" in ended.message()
    assert (root / "pages/pages.jsonl").read_bytes() == before
    assert here("export", root, "--format", "csv", "--to", root / "pages.csv").code == 0


@pytest.mark.parametrize("name", [".", "..", "../", "pages/.."])
def test_a_directory_without_a_name_in_the_command_has_its_own(
    name: str, tmp_path: Path, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make(tmp_path / "c", [Made("http://a.example/")])
    monkeypatch.chdir(root / "pages" if name in ("..", "../") else root)
    assert here("export", name, "--format", "csv").stdout == f"wrote {tmp_path}/c.csv: 1 pages\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c", "c.csv"]


def test_wacz_does_not_go_to_standard_output_and_has_its_suffix(tmp_path: Path, here: Here) -> None:
    root = make(tmp_path / "c", [Made("http://a.example/")])
    for to, says in (("-", "--to -: a wacz file"), ("a.zip", "--to a.zip: the name of a wacz file ends in .wacz")):
        ended = here("export", root, "--format", "wacz", "--to", to)
        assert ended.code == 2
        assert says in ended.message()


def test_what_is_missing_or_damaged_is_told(tmp_path: Path, here: Here) -> None:
    root = make(tmp_path / "c", [Made("http://a.example/", b"<a href=x>" * 99), Made("http://a.example/2")])
    archive = root / "archive/a.warc.gz"
    data = bytearray(archive.read_bytes())
    data[600] ^= 0xFF
    archive.write_bytes(data[:-700])
    with (root / "pages/pages.jsonl").open("a") as file:
        file.write("no page\n")
    ended = here("export", root, "--format", "links")
    assert ended.code == 1
    lines = ended.stderr.splitlines()
    assert lines[0] == f"dhtcrawl: 1 pages have no body in {root}; 'dhtcrawl verify {root}' names them"
    assert "is damaged" in lines[1]
    assert lines[2] == f"dhtcrawl: 1 lines of {root}/pages/pages.jsonl could not be read and were left out"


@pytest.mark.parametrize("form", FORMATS.values(), ids=list(FORMATS))
def test_ctrl_c_leaves_no_file(
    form: ExportFormat, tmp_path: Path, here: Here, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    root = make(tmp_path / "c", [Made("http://a.example/", b"<a href=x>")])

    def write(*args: Any) -> None:
        form.write(*args)
        signal.raise_signal(signal.SIGINT)

    # A process that was started in the background may ignore it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(partial(signal.signal, signal.SIGINT, before))
    monkeypatch.setitem(FORMATS, form.name, form._replace(write=write))
    ended = here("export", root, "--format", form.name)
    assert (ended.code, ended.stderr.strip()) == (11, "dhtcrawl: interrupted")
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


@pytest.mark.parametrize("name", [name for name, form in FORMATS.items() if form.streams])
def test_a_full_disk_behind_standard_output_is_told(name: str, tmp_path: Path) -> None:
    root = make(tmp_path / "c", [Made("http://a.example/", b"<a href=x>")])
    with Path("/dev/full").open("wb") as full:
        ran = subprocess.run(
            [*COMMAND, "export", str(root), "--format", name, "--to", "-"],
            stdout=full,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            env=environment(tmp_path),
            timeout=TIMEOUT_S,
            check=False,
        )
    assert ran.returncode == 3, ran.stderr
    assert ran.stderr.startswith(b"dhtcrawl: cannot write to standard output: no space left")


@pytest.mark.parametrize("nodes", ["c.node/nodes/1", "c/nodes/1"], ids=["now", "of an earlier version"])
def test_a_crawl_in_processes_that_was_killed_has_nothing_to_export_yet(tmp_path: Path, here: Here, nodes: str) -> None:
    (tmp_path / nodes).mkdir(parents=True)
    ended = here("export", tmp_path / "c", "--format", "csv")
    assert ended.code == 2
    assert "repeat the crawl's command to go on with it" in ended.message()
    assert here("export", tmp_path / "c", "--format", "sqlite").message() == ended.message()


RECORD = '{"_url": "http://a.example/", "_record": 1, "_fetched_at": "2026-01-31T12:00:00.123Z", "f": "x"}\n'


@pytest.mark.parametrize("begun", [True, False], ids=["its first run", "before"])
def test_a_crawl_that_has_not_ended_says_when_records_come_and_how_to_have_some(
    tmp_path: Path, here: Here, begun: bool
) -> None:
    root = make(tmp_path / "c", [Made("http://a.example/"), Made("http://a.example/2")], indexed=0)
    if begun:
        (root / "records").mkdir()
        (root / "records/rules.toml").write_text(RULES)
    ended = here("export", root, "--format", "sqlite")
    assert ended.code == 2
    assert f"{root} has no records yet: they are written when a crawl ends; let it end (the same" in ended.message()
    assert f"take those of the pages that are there by 'dhtcrawl extract --rules FILE {root}'" in ended.message()
    assert not (tmp_path / "c.sqlite").exists()


def test_records_whose_rules_are_gone_are_said_to_lack_their_rules(tmp_path: Path, here: Here) -> None:
    root = make(tmp_path / "c", [Made("http://a.example/")])
    (root / "summary.json").write_text('{"pages": 1}')
    assert "it was crawled without --rules" in here("export", root, "--format", "sqlite").message()
    (root / "records").mkdir()
    (root / "records/r.jsonl").write_text(RECORD)
    ended = here("export", root, "--format", "sqlite")
    assert ended.code == 2
    assert f"{root}/records/rules.toml is missing, which says what is in the records: put the file" in ended.message()


@pytest.mark.parametrize("summary", ['{"pages": 1}', ""], ids=["a run before has ended", "none has"])
def test_records_of_a_crawl_that_has_not_ended_are_exported_with_a_note(
    tmp_path: Path, here: Here, summary: str
) -> None:
    root = make(tmp_path / "c", [Made("http://a.example/"), Made("http://a.example/2")])
    (root / "records").mkdir()
    (root / "records/rules.toml").write_text(RULES)
    (root / "records/r.jsonl").write_text(RECORD)
    args = ["export", str(root), "--format", "csv", "--rule", "r", "--to", "-"]
    (root / "summary.json").write_text('{"pages": 2}')
    assert here(*args).stderr == ""
    (root / "summary.json").write_text(summary)
    ended = here(*args)
    assert (ended.code, len(ended.stdout.splitlines())) == (0, 2)
    assert f"the crawl of {root} has not ended, and records of its last pages may be lacking: they" in ended.stderr


def test_of_a_crawl_that_ended_it_is_told_that_it_had_no_rules(tmp_path: Path, here: Here) -> None:
    root = make(tmp_path / "c", [Made("http://a.example/")])
    assert "it was crawled without --rules" in here("export", root, "--format", "sqlite").message()
    assert "holds no crawl" in here("export", tmp_path / "d", "--format", "sqlite").message()
