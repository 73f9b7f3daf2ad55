"""A crawl that was told when to stop stops there, and says which limit it was."""

from __future__ import annotations

from typing import Any

import pytest

from .crawler import Crawler
from .deadline import until
from .outputs import Outputs
from .stub import Answer, StubServer
from .swarm import DEADLINE_S


@pytest.fixture
def chain(stub: StubServer) -> StubServer:
    """A site of 60 pages of 10 kB; `/` links to the first half, each of those to one more."""
    stub.page("/", *(f"/a{number}" for number in range(30)))
    for number in range(30):
        stub.page(f"/a{number}", "/", f"/b{number}")
        stub.page(f"/b{number}", "/")
    for path, answer in stub.answers.items():
        assert isinstance(answer, Answer)
        stub.answers[path] = Answer(answer.body + b" " * 10_000, headers=answer.headers)
    return stub


def test_a_page_limit_is_reached_exactly(chain: StubServer, crawler: Crawler, outputs: Outputs) -> None:
    summary = crawl(chain, crawler, outputs, 21, "--max-pages", "10", "--delay", "0")
    assert summary["pages"] == len(outputs.pages()) == len(chain.paths()) == 10
    assert summary["lost"] == 0
    assert summary["skipped"]["page-limit"] == len(outputs.skipped()) > 0


def test_a_time_limit_ends_the_crawl(chain: StubServer, crawler: Crawler, outputs: Outputs) -> None:
    summary = crawl(chain, crawler, outputs, 15, "--time-limit", "500ms", "--delay", "100ms")
    assert 0 < len(outputs.pages()) < 61
    assert (summary["complete"], summary["lost"]) == (False, 0)


def test_a_size_limit_ends_the_crawl(chain: StubServer, crawler: Crawler, outputs: Outputs) -> None:
    summary = crawl(chain, crawler, outputs, 14, "--size-limit", "100kB", "--delay", "0", "-c", "1")
    # What is in flight when the limit is reached is still kept.
    assert 100_000 <= summary["bytes"] < 150_000
    assert (summary["complete"], summary["lost"]) == (False, 0)


@pytest.mark.parametrize(("depth", "pages"), [(0, 1), (1, 31), (2, 61)])
def test_depth_counts_links_from_the_seed(
    depth: int, pages: int, chain: StubServer, crawler: Crawler, outputs: Outputs
) -> None:
    summary = crawl(chain, crawler, outputs, 0, "--depth", str(depth), "--delay", "0")
    assert len(outputs.pages()) == summary["pages"] == pages
    assert {row["depth"] for row in outputs.pages()} == set(range(depth + 1))
    assert (summary["complete"], summary["lost"]) == (True, 0)


@pytest.mark.parametrize(
    ("first", "code", "then"),
    [
        (("--max-pages", "10"), 21, ("--max-pages", "30")),
        (("--disk-limit", "1B", "--delay", "100ms"), 16, ("--max-pages", "20")),
    ],
    ids=["pages", "disk"],
)
def test_a_crawl_that_a_limit_ended_goes_on_when_it_is_raised_and_asks_for_nothing_twice(
    first: tuple[str, ...], code: int, then: tuple[str, ...], chain: StubServer, crawler: Crawler, outputs: Outputs
) -> None:
    options = ("--delay", "0") if "--delay" not in first else ()
    command = ["crawl", f"{chain.url}/", "--allow-private", "--out", str(outputs.out), "--json"]
    some = crawler.run(*command, *options, *first).ended_with(code).summary
    more = crawler.run(*command, "--delay", "0", *then).ended_with(21).summary
    assert some["pages"] < more["pages"] < 61
    whole = crawl(chain, crawler, outputs, 0, "--delay", "0")
    assert (whole["crawl"], whole["pages"], whole["complete"], whole["refetches"]) == (some["crawl"], 61, True, 0)
    assert sorted(chain.paths()) == sorted(chain.answers), "each page once"


def test_what_changes_is_said_and_what_may_not_change_is_named(
    chain: StubServer, crawler: Crawler, outputs: Outputs
) -> None:
    command = ["crawl", f"{chain.url}/", "--allow-private", "--delay", "0", "--out", str(outputs.out)]
    crawler.run(*command, "--max-pages", "3").ended_with(21)
    goes_on = crawler.run(*command, "--max-pages", "2", "--time-limit", "1h").ended_with(21)
    assert "other limits from here on: --max-pages was 3, is 2, --time-limit was none, is 3600.0" in goes_on.stderr
    assert len(chain.paths()) == 3
    refused = crawler.run(*command, "--scope", "page").ended_with(2).one_line()
    assert "--scope was host, not page" in refused
    assert "--max-pages" not in refused


@pytest.fixture
def tree(stub: StubServer) -> StubServer:
    """31 pages: `/` and every other one but the last 16 link to two more and to `/`; the last ones lie at depth 4."""
    for number in range(31):
        more = [f"/{child}" for child in (2 * number + 1, 2 * number + 2) if child < 31]
        stub.page(f"/{number}" if number else "/", "/", *more)
    return stub


def test_a_complete_crawl_goes_deeper_and_asks_for_nothing_twice(
    tree: StubServer, crawler: Crawler, outputs: Outputs
) -> None:
    first = crawl(tree, crawler, outputs, 0, "--depth", "1", "--delay", "0")
    assert (first["pages"], first["links"], first["skipped"]) == (3, 3, {"depth": 4})
    command = ["crawl", f"{tree.url}/", "--allow-private", "--delay", "0", "--out", str(outputs.out)]
    for depth in ("0", "1"):
        refused = crawler.run(*command, "--depth", depth).ended_with(2).one_line()
        assert "holds this crawl, complete" in refused
        assert refused.endswith("or a higher --depth to go on")
    deeper = crawl(tree, crawler, outputs, 0, "--depth", "3", "--delay", "0")
    assert (deeper["crawl"], deeper["pages"], deeper["fetches"], deeper["lost"]) == (first["crawl"], 15, 15, 0)
    assert (deeper["links"], deeper["skipped"], len(outputs.skipped())) == (21, {"depth": 16}, 16)
    whole = crawl(tree, crawler, outputs, 0, "--delay", "0")
    assert (whole["pages"], whole["refetches"], whole["skipped"]) == (31, 0, {})
    assert {row["depth"] for row in outputs.pages()} == {0, 1, 2, 3, 4}
    assert sorted(tree.paths()) == sorted(tree.answers), "each page once"


def test_what_is_queued_beyond_a_lower_limit_is_skipped_and_comes_once_that_is_raised(
    tree: StubServer, crawler: Crawler, outputs: Outputs
) -> None:
    crawl(tree, crawler, outputs, 21, "--max-pages", "5", "--delay", "0")
    lower = crawl(tree, crawler, outputs, 0, "--depth", "2", "--delay", "0")
    assert (lower["complete"], lower["pages"], lower["skipped"]) == (True, 7, {"depth": 8})
    assert len(outputs.skipped()) == 8
    details = [row.get("detail") for row in outputs.skipped()]
    assert any(details), "some were queued already"
    again = crawl(tree, crawler, outputs, 0, "--depth", "3", "--delay", "0")
    assert (again["pages"], again["skipped"], again["lost"], again["refetches"]) == (15, {"depth": 16}, 0, 0)
    assert sorted(tree.paths()) == sorted(set(tree.paths())), "each page once"


def test_a_crawl_that_is_killed_as_it_goes_deeper_goes_on(tree: StubServer, crawler: Crawler, outputs: Outputs) -> None:
    crawl(tree, crawler, outputs, 0, "--depth", "2", "--delay", "0")
    command = ["crawl", f"{tree.url}/", "--allow-private", "--delay", "20ms", "--out", str(outputs.out), "-c", "1"]
    for asked in (8, 16):
        running = crawler.start(*command)
        until(lambda: len(tree.paths()) >= asked, "it goes deeper", DEADLINE_S, 0.005)  # noqa: B023 - at once
        running.kill()
    whole = crawl(tree, crawler, outputs, 0, "--delay", "0", "-c", "1")
    assert (whole["pages"], whole["lost"], whole["complete"]) == (31, 0, True)
    assert len(tree.paths()) <= 31 + 2 * 2, "of each kill the request it cut short, and a page that was not yet on disk"


def crawl(stub: StubServer, crawler: Crawler, outputs: Outputs, code: int, *options: str) -> dict[str, Any]:
    seed = f"{stub.url}/"
    ran = crawler.run("crawl", seed, "--allow-private", "--out", outputs.out, "--json", *options).ended_with(code)
    crawler.check(outputs.out)
    return ran.summary
