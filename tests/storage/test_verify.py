"""A sound crawl's outputs pass; each thing broken on purpose is named with its place."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from storage.warcs import DATE, NAME, archive, item

from dhtcrawl.errors import StorageError
from dhtcrawl.storage.outputs.cdxj import line
from dhtcrawl.storage.outputs.verify import (
    PAGE_FIELDS,
    PROBLEMS_KEPT_MAX,
    SUMMARY_FIELDS,
    VerifyCounters,
    VerifyReport,
    verify,
)

URLS = [f"http://example.org/{n}" for n in range(4)]
PAGES = "pages/a.jsonl"
INDEX = "indexes/a.cdxj"
ARCHIVE = f"archive/{NAME}"
SKIPPED = "reports/skipped.jsonl"
RECORDS, RULES = "records/r.jsonl", "records/rules.toml"
REJECTED = "reports/rejected.jsonl"
SUMMARY = "summary.json"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """What a crawl of four pages leaves; one more URL failed, two were skipped."""
    directory, written = archive(*[item(url, b"body %d" % n, number=n) for n, url in enumerate(URLS)])
    pages = [
        dict.fromkeys(PAGE_FIELDS) | {"url": url, "status": 200, "bytes": 6} for url in [*URLS, "http://down.example/"]
    ]
    index = []
    for page, where in zip(pages, written, strict=False):
        page["payload_digest"] = where.payload_digest
        index.append(
            line(
                url=str(page["url"]),
                date=DATE,
                content_type="text/html",
                status=200,
                digest=where.payload_digest,
                length=where.length,
                offset=where.offset,
                filename=NAME,
            )
        )
    pages[-1]["error"] = "connect"
    skipped = [{"url": f"http://example.org/private/{n}", "reason": "robots"} for n in range(2)]
    summary = dict.fromkeys(SUMMARY_FIELDS, 0) | {"pages": 5, "skipped": {"robots": 2, "depth": 0}}
    summary |= {"pages_ok": 5, "bytes": 30}
    for name in (PAGES, INDEX, ARCHIVE, SKIPPED):
        (tmp_path / name).parent.mkdir()
    (tmp_path / ARCHIVE).write_bytes(directory.files[NAME])
    (tmp_path / PAGES).write_text("".join(json.dumps(page) + "\n" for page in pages))
    (tmp_path / INDEX).write_text("".join(sorted(index)))
    (tmp_path / SKIPPED).write_text("".join(json.dumps(row) + "\n" for row in skipped))
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    return tmp_path


def change(path: Path, how: Callable[[list[bytes]], object]) -> None:
    """Apply `how` to the lines of a file."""
    lines = path.read_bytes().splitlines(keepends=True)
    how(lines)
    path.write_bytes(b"".join(lines))


def test_a_sound_crawl_passes_and_is_counted(out: Path) -> None:
    report = verify(out)
    counters = VerifyCounters(archives=1, records=9, responses=4, payload_bytes=24, index_lines=4, pages=5, skipped=2)
    assert report == VerifyReport(counters)
    assert report.ok


def test_a_flipped_byte_in_a_payload_is_named_with_the_page_and_line_it_takes_along(out: Path) -> None:
    fields = json.loads((out / INDEX).read_text().splitlines()[2].split(" ", 2)[2])
    offset = int(fields["offset"])
    data = bytearray((out / ARCHIVE).read_bytes())
    data[offset + int(fields["length"]) // 2] ^= 0x10
    (out / ARCHIVE).write_bytes(data)
    archived, page, index = verify(out).problems
    assert archived.startswith(f"{ARCHIVE} at {offset}: unreadable: ")
    assert page == f"{PAGES}:3: {URLS[2]} with {fields['digest']} is not in the archive"
    assert index == f"{INDEX}:3: no record of that URL, time and digest lies where it points"


def test_a_cut_tail_is_named(out: Path) -> None:
    data = (out / ARCHIVE).read_bytes()
    (out / ARCHIVE).write_bytes(data[:-1])
    [problem] = verify(out).problems
    assert problem.endswith("unreadable: cut off, the file ends inside the member")


def test_an_archive_without_warcinfo_is_named(out: Path) -> None:
    data = (out / ARCHIVE).read_bytes()
    start = data.index(b"\x1f\x8b\x08", 1)
    (out / "archive/b.warc.gz").write_bytes(data[start:])
    assert verify(out).problems == ["archive/b.warc.gz at 0: the file does not begin with a warcinfo record"]


def edit(line: int, **fields: Any) -> Callable[[list[bytes]], object]:
    """Set fields of the JSON object in a line."""

    def how(lines: list[bytes]) -> None:
        lines[line] = json.dumps(json.loads(lines[line]) | fields).encode() + b"\n"

    return how


def replace(line: int, old: bytes, new: bytes) -> Callable[[list[bytes]], object]:
    def how(lines: list[bytes]) -> None:
        assert old in lines[line]
        lines[line] = lines[line].replace(old, new)

    return how


@pytest.mark.parametrize(
    ("name", "how", "told"),
    [
        (PAGES, lambda lines: lines.append(lines[1]), f"{PAGES}:6: {URLS[1]} is there twice"),
        (PAGES, replace(0, b'"title"', b'"titel"'), f"{PAGES}:1: no field title"),
        (PAGES, replace(0, b"{", b"["), f"{PAGES}:1: not a JSON object"),
        (PAGES, edit(0, depth=float("nan")), f"{PAGES}:1: not a JSON object"),
        (PAGES, replace(4, b"}\n", b"}"), f"{PAGES}:5: cut off"),
        (PAGES, edit(0, url=7), f"{PAGES}:1: url is not a string"),
        (PAGES, edit(0, payload_digest=None), f"{PAGES}:1: {URLS[0]} has neither a payload_digest nor an error"),
        (PAGES, edit(0, payload_digest="sha1:X"), f"{PAGES}:1: {URLS[0]} with sha1:X is not in the archive"),
        (INDEX, lambda lines: lines.insert(1, lines[0]), f"{INDEX}:2: the same line twice"),
        (INDEX, lambda lines: lines.reverse(), f"{INDEX}:2: not sorted"),
        (INDEX, replace(1, b'"status": "200", ', b""), f"{INDEX}:2: not a CDXJ line with url, status, digest"),
        (INDEX, replace(1, b"org,example)/1", b"org,example)/11"), f"{INDEX}:2: its key is not that of {URLS[1]}"),
        (INDEX, replace(1, b'"offset": "', b'"offset": "1'), f"{INDEX}:2: no record of that URL"),
        (INDEX, replace(1, b'"digest": "sha1:', b'"digest": "sha1:A'), f"{INDEX}:2: no record of that URL"),
        (INDEX, replace(1, b" 2026", b" 2025"), f"{INDEX}:2: no record of that URL"),
        (SKIPPED, edit(1, reason=""), f"{SKIPPED}:2: needs a url and a reason"),
        (SKIPPED, lambda lines: lines.pop(), "summary.json: skipped is {'robots': 2, 'depth': 0}, but"),
        ("summary.json", edit(0, pages=4), "summary.json: pages is 4, but pages/ has 5 lines"),
        (PAGES, edit(0, status=404), "summary.json: errors is 0, but those of pages/ and of reports/skipped.jsonl"),
        (PAGES, edit(0, status=404), "summary.json: pages_ok is 5, but the lines of pages/ come to 4"),
        (PAGES, edit(0, status=301), "summary.json: redirects is 0, but the lines of pages/ come to 1"),
        (PAGES, edit(0, bytes=1 << 40), "summary.json: bytes is"),
        (SKIPPED, edit(0, reason="failed"), "summary.json: errors is 0, but"),
        ("summary.json", replace(0, b'"lost"', b'"last"'), "summary.json: no field lost"),
        ("summary.json", replace(0, b"{", b""), "summary.json: not a JSON object"),
    ],
)
def test_what_is_broken_is_named(out: Path, name: str, how: Callable[[list[bytes]], object], told: str) -> None:
    change(out / name, how)
    problems = verify(out).problems
    assert any(problem.startswith(told) for problem in problems), problems


def test_a_record_indexed_in_two_files_is_named(out: Path) -> None:
    (out / "indexes/b.cdxj").write_bytes((out / INDEX).read_bytes().splitlines(keepends=True)[0])
    assert verify(out).problems == ["indexes/b.cdxj:1: its record is indexed twice"]


def test_pages_that_the_index_lacks_are_named(out: Path) -> None:
    change(out / INDEX, lambda lines: lines.pop(1))
    assert verify(out).problems == [f"{PAGES}:2: {URLS[1]} has no line in indexes/"]
    (out / INDEX).unlink()
    assert len(verify(out).problems) == len(URLS)


def test_pages_of_a_run_that_was_killed_are_not_in_the_index_which_is_one_problem(out: Path) -> None:
    (out / INDEX).unlink()
    change(out / "summary.json", edit(0, pages=1))
    without_line, summary = verify(out).problems
    assert without_line == "indexes/: 4 pages have no line: they came after it was written"
    assert summary.startswith("summary.json: pages is 1")


def test_a_page_in_two_files_is_named(out: Path) -> None:
    (out / "pages/b.jsonl").write_bytes((out / PAGES).read_bytes().splitlines(keepends=True)[0])
    assert f"pages/b.jsonl:1: {URLS[0]} is there twice" in verify(out).problems


def test_a_crawl_that_was_killed_lacks_its_summary(out: Path) -> None:
    (out / "summary.json").unlink()
    assert verify(out).problems == ["summary.json: missing: the crawl has not ended; run the same command again"]


def test_a_directory_without_a_crawl_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="holds no crawl"):
        verify(tmp_path)


def test_an_endless_line_is_skipped_in_bounded_pieces(out: Path) -> None:
    change(out / SKIPPED, lambda lines: lines.insert(0, b"x" * 3_000_000 + b"\n"))
    report = verify(out)
    assert report.problems == [f"{SKIPPED}:1: over 1048576 bytes"]
    assert report.counters.skipped == 2


def test_problems_are_counted_beyond_those_kept(out: Path) -> None:
    change(out / SKIPPED, lambda lines: lines.extend([b"{}\n"] * (PROBLEMS_KEPT_MAX + 50)))
    report = verify(out)
    assert (len(report.problems), report.problems_total) == (PROBLEMS_KEPT_MAX, PROBLEMS_KEPT_MAX + 50)


def test_the_same_payload_under_another_url_does_not_count(out: Path) -> None:
    digest = json.loads((out / PAGES).read_text().splitlines()[0])["payload_digest"]
    change(out / PAGES, edit(4, error=None, payload_digest=digest))
    [problem] = verify(out).problems
    assert problem == f"{PAGES}:5: http://down.example/ with {digest} is not in the archive"


# Records and rejects


def with_records(out: Path) -> Path:
    """Two records of a rule, of which the crawl rejected two more for one reason."""
    (out / "records").mkdir()
    (out / RULES).write_text('[[rules]]\nname = "r"\n')
    (out / RECORDS).write_text("".join(f'{{"_url":"{url}","_record":1}}\n' for url in URLS[:2]))
    (out / REJECTED).write_text("".join(json.dumps({"url": url, "reason": "missing"}) + "\n" for url in URLS[2:]))
    summary = json.loads((out / "summary.json").read_text())
    (out / "summary.json").write_text(json.dumps(summary | {"records": {"r": 2}, "rejected": {"missing": 2}}))
    return out


def test_records_and_rejects_that_the_summary_counts_are_sound(out: Path) -> None:
    assert verify(with_records(out)).problems == []


def test_what_a_person_has_put_among_the_records_is_no_problem(out: Path) -> None:
    (with_records(out) / "records/customers.jsonl").write_text('{"name": "Li"}\n')
    assert verify(out).problems == []


@pytest.mark.parametrize(
    ("damaged", "told"),
    [
        (b"", "no rule r, of which there are records"),
        (b'[[rules]]\nname = "s"\n', "no rule r, of which there are records"),
        (b"[[rules]]\n", "no rules: the file:1: rules.1 lacks 'name'; it is required"),
        (b"\0\n", "no rules: the file is not valid TOML: "),
        (None, "missing: put the file of rules there, or take the records anew by 'dhtcrawl extract'"),
    ],
)
def test_records_without_their_rules_are_a_problem(out: Path, damaged: bytes | None, told: str) -> None:
    with_records(out)
    if damaged is None:
        (out / RULES).unlink()
    else:
        (out / RULES).write_bytes(damaged)
    [problem] = verify(out).problems
    assert problem.startswith(f"{RULES}: {told}")


def test_rules_that_cannot_be_read_are_a_problem(out: Path) -> None:
    (with_records(out) / RULES).unlink()
    (out / RULES).mkdir()
    assert verify(out).problems == [f"{RULES}: cannot be read: Is a directory"]


@pytest.mark.parametrize("damaged", [b"", b"\0\0\0\n"])
def test_records_of_which_none_is_left_are_a_problem(out: Path, damaged: bytes) -> None:
    (with_records(out) / RECORDS).write_bytes(damaged)
    assert any("records is {'r': 2}" in problem for problem in verify(out).problems)


@pytest.mark.parametrize(
    ("how", "told"),
    [
        (lambda lines: lines.pop(), f"{SUMMARY}: rejected is {{'missing': 2}}, but {REJECTED} has {{'missing': 1}}"),
        (lambda lines: lines.insert(1, b"\0\n"), f"{REJECTED}:2: not a JSON object"),
        (lambda lines: lines.insert(1, b'{"reason": 5}\n'), f"{REJECTED}:2: needs a url and a reason"),
        (lambda lines: lines.append(b'{"url'), f"{REJECTED}:3: cut off"),
    ],
)
def test_rejects_that_are_damaged_are_named(out: Path, how: Callable[[list[bytes]], object], told: str) -> None:
    change(with_records(out) / REJECTED, how)
    assert verify(out).problems == [told]


def test_a_summary_of_a_version_that_did_not_count_rejects_is_no_problem(out: Path) -> None:
    summary = json.loads((with_records(out) / SUMMARY).read_text())
    del summary["rejected"]
    (out / SUMMARY).write_text(json.dumps(summary))
    assert verify(out).problems == []
