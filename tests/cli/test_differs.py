"""What a command says where its directory holds a crawl with other seeds or options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dhtcrawl.cli import differs
from dhtcrawl.config import CrawlSettings
from dhtcrawl.spec import make_spec

OUT = Path("crawl-1")


def refused(
    begun: dict[str, Any], now: dict[str, Any], seeds: tuple[list[str], list[str]] = (["a.example"], ["a.example"])
) -> str:
    before = make_spec(seeds[0], CrawlSettings(**begun))
    return str(differs.refusal(OUT, differs.plain(before), make_spec(seeds[1], CrawlSettings(**now))))


@pytest.mark.parametrize(
    ("begun", "now", "told"),
    [
        ({"max_pages": 10}, {"max_pages": 20}, "--max-pages was 10, not 20"),
        ({"allow_private": True}, {}, "--allow-private was on, not off"),
        ({"include": ("a", "b")}, {}, "--include was a b, not empty"),
        ({"contact": "\x1b[31mé"}, {}, "--contact was "),
    ],
)
def test_an_option_that_differs_is_named_with_both_values(
    begun: dict[str, Any], now: dict[str, Any], told: str
) -> None:
    message = refused(begun, now)
    assert told in message
    assert message.startswith("crawl-1 holds a crawl with other seeds or options: ")
    assert message.endswith("repeat its command to go on with it, or name another directory with --out")
    assert message.isascii()


def test_other_seeds_are_named_and_long_lists_are_cut() -> None:
    many = [f"host{number}.example" for number in range(1_000)]
    message = refused({}, {}, (["a.example"], many))
    assert "the seeds were http://a.example/, not http://host0.example/" in message
    assert len(message) < 400


def test_of_many_differences_three_are_told_and_the_rest_counted() -> None:
    message = refused({}, {"depth": 1, "max_pages": 2, "delay_s": 3.0, "copies": 4, "key": "host"})
    assert message.count(" was ") == 3
    assert " and 2 more;" in message


def test_a_node_that_tells_nothing_of_the_crawl_leaves_the_message_without_details() -> None:
    message = str(differs.refusal(OUT, (None, None), make_spec(["a.example"], CrawlSettings())))
    assert "other seeds or options; repeat" in message
