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
        ({"copies": 1}, {"copies": 2}, "--copies was 1, not 2"),
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


def test_a_crawl_is_like_another_whatever_its_limits_and_what_changes_is_told() -> None:
    begun = differs.plain(make_spec(["a.example"], CrawlSettings(max_pages=10, delay_s=1.0)))
    wanted = make_spec(["a.example"], CrawlSettings(time_limit_s=60.0, delay_s=0.0, depth=0))
    assert differs.is_like(begun, wanted)
    assert differs.changes(begun, wanted) == {"delay_s": 0.0, "max_pages": 0, "time_limit_s": 60.0, "depth": 0}
    assert differs.changes_told(begun, wanted) == (
        "--delay was 1.0, is 0.0, --max-pages was 10, is none, --time-limit was none, is 60.0, --depth was none, is 0"
    )
    assert differs.settings_of(begun, wanted) == CrawlSettings(max_pages=10, delay_s=1.0)
    assert differs.changes_told(begun, make_spec(["a.example"], CrawlSettings(max_pages=10))) == ""


def test_the_order_of_the_seeds_makes_no_other_crawl() -> None:
    begun, now = (
        make_spec(seeds, CrawlSettings()) for seeds in (["a.example", "b.example"], ["b.example", "a.example"])
    )
    assert begun.is_like(now)
    assert differs.is_like(differs.plain(begun), now)


@pytest.mark.parametrize("seeds", [["b.example"], ["a.example", "b.example"]])
def test_a_crawl_of_other_seeds_or_options_is_not_like_it(seeds: list[str]) -> None:
    begun = differs.plain(make_spec(["a.example"], CrawlSettings()))
    assert not differs.is_like(begun, make_spec(seeds, CrawlSettings()))
    assert not differs.is_like(begun, make_spec(["a.example"], CrawlSettings(copies=2)))
    assert not differs.is_like(differs.told(None), make_spec(["a.example"], CrawlSettings()))


def test_other_seeds_are_named_and_long_lists_are_cut() -> None:
    many = [f"host{number}.example" for number in range(1_000)]
    message = refused({}, {}, (["a.example"], many))
    assert "the seeds were http://a.example/, not http://host0.example/" in message
    assert len(message) < 400


@pytest.mark.parametrize(
    ("begun", "now"), [(["last.example"], ["other.example"]), ([], ["other.example"]), (["last.example"], [])]
)
def test_of_long_lists_what_differs_is_told(begun: list[str], now: list[str]) -> None:
    same = [f"host{number}.example" for number in range(1_000)]
    message = refused({}, {}, ([*same, *begun], [*same, *now]))
    assert all(f"http://{host}/" in message for host in begun + now)
    assert "the seeds were ..." in message
    assert len(message) < 400


def test_of_long_values_what_differs_is_told() -> None:
    message = refused({"user_agent": "bot/" + "1" * 200 + "2"}, {"user_agent": "bot/" + "1" * 200 + "3"})
    assert "12, not ..." in message
    assert "13; " in message


def test_of_many_differences_three_are_told_and_the_rest_counted() -> None:
    message = refused({}, {"user_agent": "me", "scope": "any", "contact": "x", "copies": 4, "key": "host"})
    assert message.count(" was ") == 3
    assert " and 2 more;" in message


def test_a_node_that_tells_nothing_of_the_crawl_leaves_the_message_without_details() -> None:
    message = str(differs.refusal(OUT, differs.told(None), make_spec(["a.example"], CrawlSettings())))
    assert "other seeds or options; repeat" in message
