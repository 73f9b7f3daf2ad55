"""What the end of a crawl says of pages that wait for a person."""

from __future__ import annotations

from dhtcrawl.cli.look import one_crawl
from dhtcrawl.cli.wait import describe_end
from dhtcrawl.cli.words import for_a_person


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
