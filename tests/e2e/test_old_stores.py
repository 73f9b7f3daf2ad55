"""What an older version left half done is gone on with: `tests/data/README.md` says which version."""

from __future__ import annotations

import asyncio
import tarfile
from pathlib import Path

import pytest

from dhtcrawl.cli.client import NodeClient
from dhtcrawl.cli.source import gather_from
from dhtcrawl.units import parse_address

from .archive import assert_valid, read_archive
from .crawler import Crawler
from .deadline import until
from .old_stores import ASKED, NODES, PAGES, site
from .outputs import Outputs
from .stub import StubServer
from .swarm import ASK_EVERY_S, DEADLINE_S, Node, Swarm

DATA = Path(__file__).parents[1] / "data"
ENDS_WELL = {"complete": True, "lost": 0, "pages_missing": 0}


def test_a_crawl_goes_on_where_the_older_version_was_killed(tmp_path: Path, crawler: Crawler, outputs: Outputs) -> None:
    with tarfile.open(DATA / "one_node.tar.gz") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # from 3.11.4 on
        archive.extractall(tmp_path)
    had, before = bodies(outputs.out), outputs.pages()
    assert had < PAGES | ASKED, "some, not all"
    crawler.run("fsck", "--out", outputs.out).ended_with(0)
    with site() as server:
        command = ["crawl", server.url + "/", "--allow-private", "--delay", "0", "--out", str(outputs.out), "--json"]
        summary = crawler.run(*command).ended_with(0).summary
        asked_for_the_rest(server, had)
    assert {key: summary[key] for key in ENDS_WELL} == ENDS_WELL
    assert_whole(outputs, crawler)
    assert all(row in outputs.pages() for row in before), "pages of then are listed as they were"


@pytest.mark.parametrize("old", [NODES, 1])
def test_nodes_join_with_what_the_older_version_left_them(
    old: int, tmp_path: Path, crawler: Crawler, outputs: Outputs
) -> None:
    """All of the old nodes, or one of them and new ones: what only the others had is fetched again."""
    grace = ["--set", "swarm.holder_grace_s=3s"] if old < NODES else []
    with Swarm(tmp_path / "swarm", *grace) as swarm, site() as server:
        nodes = [swarm.add() for _ in range(NODES)]
        with tarfile.open(DATA / "three_nodes.tar.gz") as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)  # from 3.11.4 on
            archive.extractall(tmp_path)
        for number, node in enumerate(nodes[:old]):
            node.data_dir.parent.mkdir(parents=True)
            (tmp_path / f"node{number}").rename(node.data_dir)
            crawler.run("fsck", "--data-dir", node.data_dir).ended_with(0)
        had = {path for node in nodes[:old] for path in bodies(node.data_dir)}
        assert had < PAGES | ASKED, "some, not all"
        nodes[0].start().ready()
        swarm.restart(*nodes[1:])
        (crawl,) = nodes[0].ready().ask("crawls")
        where = f"crawls/{crawl['crawl']}"
        until(lambda: bool(nodes[0].ask(where)["ended"]), "the crawl has ended", DEADLINE_S, ASK_EVERY_S)
        assert nodes[0].ask(where)["ended"] == "complete", swarm.logs()
        asked_for_the_rest(server, had)
        asyncio.run(gathered(nodes[0], crawl["crawl"], outputs.out))
        swarm.check()
    assert {key: outputs.summary()[key] for key in ENDS_WELL} == ENDS_WELL
    assert_whole(outputs, crawler)


async def gathered(node: Node, crawl: str, out: Path) -> None:
    async with NodeClient(parse_address(node.admin)) as client:
        await gather_from(client, crawl, out)


def bodies(directory: Path) -> set[str]:
    """The paths that an archive has, below `directory`."""
    found = {record.url for record in read_archive(sorted(directory.rglob("*.warc.gz")))}
    return {"/" + url.split("/", 3)[3] for url in found} - {"/robots.txt"}


def asked_for_the_rest(server: StubServer, had: set[str]) -> None:
    """Each page that was not in the archive once, and no other; one had been given up by then."""
    assert sorted(server.paths()) == sorted(ASKED - had - {"/endless-head"})


def assert_whole(outputs: Outputs, crawler: Crawler) -> None:
    assert sorted(outputs.html()) == sorted(PAGES)
    skipped = {row["url"].split("/", 3)[3]: row["reason"] for row in outputs.skipped()}
    assert skipped == {"private/diary": "robots", "endless-head": "failed"}
    assert_valid(outputs.warcs())
    crawler.check(outputs.out)
