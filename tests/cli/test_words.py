"""What the end of a crawl says of pages that wait for a person, and that no text moves the cursor."""

from __future__ import annotations

import json
from pathlib import Path

from dhtcrawl.cli.look import one_crawl
from dhtcrawl.cli.progress import counted
from dhtcrawl.cli.wait import describe_end
from dhtcrawl.cli.words import for_a_person

from .conftest import Here


def test_the_end_of_a_crawl_says_how_many_pages_are_a_persons_and_by_which_command() -> None:
    end = {"crawl": "0123456789abcdef", "ended": "complete", "counters": {"pages": 5, "skipped_recalled": 2}}
    *_, last = describe_end(end).splitlines()
    assert last == "  MANUAL     2 pages that no node began: decide with 'dhtcrawl crawls --manual'"
    assert "  links skipped  recalled 2" in describe_end(end)
    assert len(last) < 80


def test_what_nodes_counted_of_skipped_links_has_not_the_name_of_the_summarys_figure() -> None:
    end = {"crawl": "0123456789abcdef", "ended": "complete", "counters": {"skipped_nofollow": 40, "skipped_failed": 1}}
    assert "  links skipped  nofollow 40, failed 1" in describe_end(end)
    assert "  skipped " not in describe_end(end)
    assert "links skipped, by reason  nofollow 40, failed 1" in one_crawl(end, 200)


def test_where_none_waits_for_a_person_no_line_is_printed() -> None:
    assert for_a_person({"failed": 3}) == []
    assert for_a_person({"recalled": 1}) == [
        "  MANUAL     1 page that no node began: decide with 'dhtcrawl crawls --manual'"
    ]


def test_reasons_that_another_node_gave_move_no_cursor() -> None:
    assert counted("  skipped    ", {"depth": 2, "\x1b[2Jgone": 1}) == ["  skipped    depth 2, ?[2Jgone 1"]


def test_names_in_outputs_that_others_made_move_no_cursor(tmp_path: Path, here: Here) -> None:
    (tmp_path / "archive").mkdir()
    (tmp_path / "reports").mkdir()
    row = {"url": "http://a.example/\x1b[2J", "node": None, "file": "\x9b1m"}
    (tmp_path / "reports" / "missing.jsonl").write_text(json.dumps(row) + "\n")
    told = here("verify", tmp_path).stdout
    assert "http://a.example/?[2J was fetched, but its body is not here: look for ?1m" in told
    assert all(line.isprintable() for line in told.splitlines())
