"""A crawl of several nodes whose limits change: after one of them has ended it, and while it runs."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from .crawler import Crawler
from .deadline import until
from .outputs import Outputs
from .stub import Answer, StubServer
from .swarm import ASK_EVERY_S, DEADLINE_S, Swarm

PAGES = 61


def tree(stub: StubServer) -> StubServer:
    """A site of 61 pages: `/` links to half of them, and each of those to one more."""
    stub.page("/", *(f"/a{number}" for number in range(30)))
    for number in range(30):
        stub.page(f"/a{number}", "/", f"/b{number}")
        stub.page(f"/b{number}", "/")
    return stub


def assert_whole(stub: StubServer, summary: dict[str, Any]) -> None:
    assert (summary["complete"], summary["pages"], summary["lost"], summary["refetches"]) == (True, PAGES, 0, 0)
    assert sorted(stub.paths()) == sorted(stub.answers), "each page once"


def test_a_crawl_of_several_processes_goes_on_when_its_limit_is_raised(
    stub: StubServer, crawler: Crawler, outputs: Outputs
) -> None:
    seed = tree(stub).url + "/"
    command = ["crawl", seed, "--allow-private", "--nodes", "2", "--delay", "0", "--json", "--out", str(outputs.out)]
    some = crawler.run(*command, "--max-pages", "20").ended_with(21).summary
    assert some["pages"] == len(stub.paths()) == 20
    whole = crawler.run(*command).ended_with(0)
    assert "other limits from here on: --max-pages was 20, is none" in whole.stderr
    assert whole.summary["crawl"] == some["crawl"]
    assert_whole(stub, whole.summary)
    crawler.check(outputs.out)


def test_a_complete_crawl_of_several_processes_goes_deeper_with_one(
    stub: StubServer, crawler: Crawler, outputs: Outputs
) -> None:
    seed = tree(stub).url + "/"
    command = ["crawl", seed, "--allow-private", "--delay", "0", "--json", "--out", str(outputs.out)]
    some = crawler.run(*command, "--depth", "1", "--nodes", "2").ended_with(0).summary
    assert (some["pages"], some["skipped"]) == (31, {"depth": 30})
    refused = crawler.run(*command, "--nodes", "2").ended_with(2).one_line()
    assert refused.endswith("leave out --nodes: one node goes on to this --depth")
    assert "leave out --nodes" not in crawler.run(*command, "--depth", "1", "--nodes", "2").ended_with(2).one_line()
    whole = crawler.run(*command).ended_with(0)
    assert "other limits from here on: --depth was 1, is none" in whole.stderr
    assert (whole.summary["crawl"], whole.summary["fetches"], whole.summary["links"]) == (some["crawl"], PAGES, 120)
    assert_whole(stub, whole.summary)
    crawler.check(outputs.out)


def test_a_swarms_complete_crawl_goes_deeper_by_resume(
    stub: StubServer, crawler: Crawler, outputs: Outputs, tmp_path: Path
) -> None:
    seed = tree(stub).url + "/"
    with Swarm(tmp_path / "swarm") as swarm:
        first, _ = swarm.start(2)
        swarm.meet()
        out = ["--out", str(outputs.out), "--json", "--admin", first.admin]
        submit = ["submit", seed, "--allow-private", "--delay", "0", "--depth", "1", "--wait", *out]
        some = crawler.run(*submit).ended_with(0).summary
        assert (some["pages"], some["complete"]) == (31, True)
        resume = ["resume", some["crawl"][:12], "--admin", first.admin, "--depth"]
        refused = crawler.run(*resume, "1").ended_with(2).one_line()
        assert refused.endswith("has ended: complete within --depth 1; raise it to go on")
        crawler.run(*resume, "2").ended_with(0)
        shown = f"crawls/{some['crawl']}"
        until(lambda: first.ask(shown)["ended"] == "complete", "it is two links deep", DEADLINE_S, ASK_EVERY_S)
        whole = crawler.run("gather", some["crawl"][:12], *out).ended_with(0).summary
        assert_whole(stub, whole)
        assert whole["skipped"] == {}
        crawler.check(outputs.out)
        swarm.check()


def test_a_swarms_crawl_goes_on_by_resume_and_every_node_acts_by_what_was_changed(
    stub: StubServer, crawler: Crawler, outputs: Outputs, tmp_path: Path
) -> None:
    seed = tree(stub).url + "/"
    with Swarm(tmp_path / "swarm") as swarm:
        first, last = swarm.start(2)
        swarm.meet()
        argv = ["submit", seed, "--allow-private", "--wait", "--json", "--delay", "0", "--max-pages", "10"]
        crawl = crawler.run(*argv, "--admin", first.admin).ended_with(21).summary["crawl"]
        assert len(stub.paths()) == 10

        def resume(*options: str) -> list[str]:
            return ["resume", crawl[:12], "--admin", first.admin, *options]

        def stands() -> dict[str, Any]:
            shown: dict[str, Any] = first.ask(f"crawls/{crawl}")
            return shown

        for options in ((), ("--max-pages", "10"), ("--delay", "1s")):
            assert "has ended: page limit" in crawler.run(*resume(*options)).ended_with(2).one_line()
        elsewhere = ["resume", crawl[:12], "--admin", last.admin, "--max-pages", "25"]
        crawler.run(*elsewhere).ended_with(0)  # on one machine any of its nodes will do
        until(lambda: stands()["ended"] == "page limit", "the higher limit is reached", DEADLINE_S, ASK_EVERY_S)
        assert len(stub.paths()) == 25

        # While it runs: without a limit, then slowly, then quickly; a wait that has begun is kept.
        crawler.run(*resume("--max-pages", "0", "--delay", "3s")).ended_with(0)
        until(lambda: stands()["state"] == "running", "it runs", DEADLINE_S, ASK_EVERY_S)
        assert stands()["spec"]["settings"]["delay_s"] == 3.0
        assert len(stub.paths()) < PAGES
        crawler.run(*resume("--delay", "0")).ended_with(0)
        until(lambda: stands()["ended"] == "complete", "all pages are there", DEADLINE_S, ASK_EVERY_S)
        gather = ["gather", crawl[:12], "--out", str(outputs.out), "--json", "--admin", last.admin]
        assert_whole(stub, crawler.run(*gather).ended_with(0).summary)
        crawler.check(outputs.out)
        swarm.check()


def test_a_disk_limit_ends_a_crawl_of_several_processes_and_it_goes_on_later(
    stub: StubServer, crawler: Crawler, outputs: Outputs
) -> None:
    seed = tree(stub).url + "/"
    command = ["crawl", seed, "--allow-private", "--nodes", "2", "--json", "--out", str(outputs.out)]
    some = crawler.run(*command, "--delay", "100ms", "--disk-limit", "1B").ended_with(16).summary
    assert some["pages"] < PAGES
    shutil.rmtree(outputs.out)  # the nodes have all of it
    assert_whole(stub, crawler.run(*command, "--delay", "0").ended_with(0).summary)


def test_a_disk_limit_is_for_all_processes_together(stub: StubServer, crawler: Crawler, outputs: Outputs) -> None:
    tree(stub)
    for path, answer in list(stub.answers.items()):
        assert isinstance(answer, Answer)
        large = answer.body + f"<!--{random.Random(path).randbytes(25_000).hex()}-->".encode()
        stub.answers[path] = replace(answer, body=large)
    command = ["crawl", f"{stub.url}/", "--allow-private", "--nodes", "2", "--json", "--out", str(outputs.out)]
    # Each of the two nodes has about half of some 1.6 MB.
    some = crawler.run(*command, "--delay", "100ms", "--disk-limit", "1200kB").ended_with(16).summary
    assert 20 < some["pages"] < PAGES
