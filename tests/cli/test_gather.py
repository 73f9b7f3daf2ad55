"""What three nodes have becomes one crawl's directory, whatever breaks off on the way."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dhtcrawl.cli.gather import gather
from dhtcrawl.cli.places import node_dir
from dhtcrawl.cli.runtime import STORE_DIR
from dhtcrawl.errors import StorageFull, UsageError
from dhtcrawl.sim.keys import SimKey
from dhtcrawl.spec import make_spec
from dhtcrawl.storage.collect import gather_files
from dhtcrawl.storage.collect.export import Row
from dhtcrawl.storage.collect.facts import CrawlFacts, NodeFacts, read_facts
from dhtcrawl.storage.outputs.summary import Summary
from dhtcrawl.storage.outputs.verify import verify
from dhtcrawl.storage.store import bequests, catalog, keys
from dhtcrawl.storage.store.crawl_record import CrawlRecord
from dhtcrawl.storage.store.engine import LevelEngine
from dhtcrawl.storage.store.records import State, pack, unpack, unpack_task
from dhtcrawl.storage.store.tasks import get_page
from dhtcrawl.storage.store.txn import Txn

from .conftest import Here
from .sim_nodes import Crawled, FakeSource, Part, crawled, ended, onto_disk, outputs, owner, record

CRAWL = record().crawl_id


class Killed(Exception):
    """The gathering process is no more."""


@pytest.fixture(scope="module")
def swarm() -> Crawled:
    return crawled()


@pytest.fixture
def parts(swarm: Crawled) -> list[Part]:
    return swarm.copy()


@pytest.fixture
def source(parts: list[Part]) -> FakeSource:
    return FakeSource(parts)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def run(
    source: Any, out: Path, facts: CrawlFacts | None = None, said: list[str] | None = None, *, version: int = 1
) -> Summary:
    say = (said if said is not None else []).append
    as_known = replace(record(), ended="complete", version=version)
    summary, totals = asyncio.run(gather(source, as_known, out, node_dir(out), facts or ended(), sync=False, say=say))
    assert totals.pages == summary.pages
    assert json.loads((out / "summary.json").read_text()) == json.loads(summary.to_json())
    return summary


def pages(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "pages/pages.jsonl").read_text().splitlines()]


def page_key(part: Part) -> bytes:
    """The task key of a page that is this node's."""
    return next(keys.suffix(key) for key, _ in part.engine.scan(*keys.bounds(keys.PAGE, CRAWL)))


# The whole


def test_a_gathered_crawl_is_that_of_one_node(swarm: Crawled, source: FakeSource, out: Path, here: Here) -> None:
    summary = run(source, out)
    alone, books = swarm.alone, [part.counters for part in source.parts]
    assert summary.complete
    for name in ("crawl", "pages", "redirects", "errors", "bytes", "urls_seen", "skipped", "lost", "pages_missing"):
        assert getattr(summary, name) == getattr(alone, name), name
    assert (summary.pages_ok, summary.errors_by_kind) == (alone.pages_ok, alone.errors_by_kind)
    assert sum(summary.errors_by_kind.values()) == summary.errors > 0
    assert (summary.nodes, summary.seconds, summary.refetches) == (3, 12.5, 0)
    assert summary.fetches == sum(book["fetches"] for book in books)
    assert [(share.node, share.pages, share.cpu_seconds) for share in summary.per_node] == [
        (part.node, part.counters["pages"], 1.5) for part in source.parts
    ]
    lines = swarm.alone_outputs.pages.read("pages.jsonl", 0, 1 << 24).splitlines()
    assert sorted(page["url"] for page in pages(out)) == sorted(json.loads(line)["url"] for line in lines)
    assert {page["node"] for page in pages(out)} == {part.node for part in source.parts}
    assert verify(out).problems == []
    assert here("fsck", "--out", out).stdout.endswith("sound\n")
    assert "all its links are known" in here("why", record().spec.seeds[0], "--out", out).stdout
    assert not (out / "reports" / "missing.jsonl").exists()


def test_the_order_in_which_nodes_answer_does_not_matter(swarm: Crawled, source: FakeSource, tmp_path: Path) -> None:
    run(source, tmp_path / "one")
    source.parts.reverse()
    run(source, tmp_path / "two")
    assert outputs(tmp_path / "one") == outputs(tmp_path / "two")


def test_a_page_that_two_nodes_fetched_stands_once_and_counts_as_a_refetch(
    swarm: Crawled, source: FakeSource, out: Path
) -> None:
    first, second, _ = source.parts
    key = page_key(first)
    for kind in (keys.PAGE, keys.LINKS):
        # What the second one fetched as well: the same record, of its own archive.
        theirs = first.engine.get(kind + CRAWL + key)
        assert theirs is not None
        second.put(kind + CRAWL + key, theirs)
    place = second.engine.get(keys.PAGE + CRAWL + page_key(second))
    assert place is not None
    fields = {**_page(first, key), "node": second.node, "place": _page(second, page_key(second))["place"]}
    second.put(keys.PAGE + CRAWL + key, pack(fields))
    summary = run(source, out)
    assert (summary.refetches, summary.pages, summary.complete) == (1, swarm.alone.pages, True)
    assert [page["node"] for page in pages(out) if page["url"] == fields["url"]] == [first.node]
    assert verify(out).problems == []


def _page(part: Part, key: bytes) -> dict[str, Any]:
    found = get_page(part.txn(), CRAWL, key)
    assert found is not None
    return found


def test_pages_are_missing_only_from_a_summary_that_is_not_complete(source: FakeSource, out: Path) -> None:
    first = source.parts[0]
    key = page_key(first)
    first.put(keys.PAGE + CRAWL + key, None)
    summary = run(source, out)
    assert (summary.pages_missing, summary.complete) == (1, False)
    (problem,) = verify(out).problems
    assert problem.startswith("reports/missing.jsonl:1: ")
    assert first.node in problem
    (out / "reports/missing.jsonl").unlink()
    assert verify(out).problems == ["summary.json: pages_missing is 1, but reports/ lists 0"]


def test_a_limit_that_ended_the_crawl_is_why_the_rest_is_skipped(source: FakeSource, out: Path) -> None:
    for number, part in enumerate(source.parts):
        for full, value in list(part.engine.scan(*keys.bounds(keys.TASK, CRAWL))):
            if owner(keys.suffix(full)) == 0:
                part.put(full, _pending(value))
                if number == 0:
                    part.put(keys.PAGE + full[1:], None)
                    part.put(keys.LINKS + full[1:], None)
    summary = run(source, out, ended(complete=False, pending_reason="page-limit"))
    assert summary.skipped["page-limit"] > 3
    assert (summary.complete, summary.pages_missing, summary.lost) == (False, 0, 0)
    assert verify(out).problems == []
    run(source, out)  # it may go on, and be gathered anew


def _pending(value: bytes) -> bytes:
    return unpack_task(value)._replace(state=State.PENDING, place=None, reason="", detail="").pack()


# Nodes that are away


def test_a_node_that_is_away_is_named_and_gathered_when_it_is_back(
    source: FakeSource, out: Path, tmp_path: Path, here: Here
) -> None:
    away, said = source.parts[1].node, list[str]()
    source.down = {away}
    partial = run(source, out, said=said)
    assert not partial.complete
    assert partial.pages_missing == sum(1 for _ in source.parts[1].engine.scan(*keys.bounds(keys.PAGE, CRAWL)))
    assert said == [
        f"node {away[:12]} does not answer; {out} lacks what only it holds: repeat the command when it is back"
    ]
    assert {problem.split(":")[0] for problem in verify(out).problems} == {"reports/missing.jsonl"}
    assert here("fsck", "--out", out).code == 1
    source.down = set()
    assert run(source, out).complete
    run(source, tmp_path / "at once")
    assert outputs(out) == outputs(tmp_path / "at once")
    assert verify(out).problems == []


def test_a_node_that_goes_away_in_the_middle_stops_nobody(source: FakeSource, out: Path) -> None:
    away, said = source.parts[2].node, list[str]()

    def leave(node: str, what: str) -> None:
        if node == away and what.startswith("chunk"):
            source.down.add(away)

    source.on_ask = leave
    summary = run(source, out, said=said)
    assert (summary.complete, len(said)) == (False, 1)
    # Its rows had come: the pages are known, their bodies are not here.
    assert summary.pages_missing == len((out / "reports/missing.jsonl").read_text().splitlines()) > 0
    assert summary.per_node[2].pages == source.parts[2].counters["pages"]


def test_a_node_that_was_gathered_whole_may_be_gone_the_next_time(source: FakeSource, out: Path) -> None:
    first, second, _ = (part.node for part in source.parts)
    source.down = {second}
    run(source, out)
    source.down = {first}
    said: list[str] = []
    summary = run(source, out, said=said)
    assert (summary.complete, said) == (True, [])
    assert summary.per_node[0].pages == source.parts[0].counters["pages"]


def test_a_node_that_has_left_is_named_where_pages_are_lacking_that_only_it_has(source: FakeSource, out: Path) -> None:
    nodes, said = [part.node for part in source.parts], list[str]()
    known = replace(record(), ended="complete", participants=[*nodes, "ab" * 20])
    source.left = {nodes[2]}
    assert gather_as(known, source, out, said).pages_missing > 0
    told = f"{out} lacks what only it holds: repeat the command when it is back"
    assert said == [f"node {nodes[2][:12]} has left or is gone; {told}"]
    source.left = set()
    assert gather_as(known, source, out, said).complete
    assert len(said) == 1


def test_what_a_node_did_that_left_since_it_was_gathered_counts_as_before(source: FakeSource, out: Path) -> None:
    first, second, third = (part.node for part in source.parts)
    known, said = replace(record(), ended="complete", participants=[first, second, third]), list[str]()
    source.left = {second}
    gather_as(known, source, out, said)
    source.left, said = {first}, []
    summary = gather_as(known, source, out, said)
    assert (summary.complete, said) == (True, [])
    assert summary.fetches == sum(part.counters["fetches"] for part in source.parts)
    assert [share.node for share in summary.per_node] == [first, second, third]


def test_what_was_gathered_before_the_crawl_went_on_is_not_the_whole(source: FakeSource, out: Path) -> None:
    first, second, _ = (part.node for part in source.parts)
    source.down = {second}
    run(source, out, ended(ended=False, complete=False))
    source.down = {first}
    said: list[str] = []
    assert not run(source, out, said=said).complete
    assert len(said) == 1


@pytest.mark.parametrize(
    "lie",
    [
        lambda rows, after: ([*rows, (b"k", b"v")], after),
        lambda rows, after: (rows, b""),
        lambda rows, after: (rows, "more"),
        lambda rows, after: ([None], None),
    ],
)
def test_a_node_that_sends_nonsense_is_named_and_the_others_are_gathered(
    source: FakeSource, out: Path, lie: Callable[[list[Row], bytes | None], tuple[list[Row], bytes | None]]
) -> None:
    bad, honest, said = source.parts[0].node, source.rows, list[str]()

    async def rows(node: str, kind: bytes, cursor: bytes) -> tuple[list[Row], bytes | None]:
        page = await honest(node, kind, cursor)
        return lie(*page) if node == bad and kind == keys.PAGE and cursor else page

    source.rows = rows  # type: ignore[method-assign]
    summary = run(source, out, said=said)
    assert len(said) == 1
    assert said[0].startswith(f"node {bad[:12]} sent ")
    assert not summary.complete
    assert {page["node"] for page in pages(out)} >= {part.node for part in source.parts[1:]}


@pytest.mark.parametrize(
    "name", ["../../node/store/CURRENT", "a.warc.gz", "", f"{'0' * 12}-{'0' * 12}-00000.warc.gz", None, 5]
)
def test_a_node_writes_only_its_own_archive_files(source: FakeSource, out: Path, name: Any) -> None:
    honest, bad, said = source.files, source.parts[0].node, list[str]()

    async def files(node: str) -> list[tuple[str, int]]:
        return [*await honest(node), (name, 10)] if node == bad else await honest(node)

    source.files = files  # type: ignore[method-assign]
    run(source, out, said=said)
    assert "cannot be" in said[0]
    assert not any(bad[:12] in path.name for path in (out / "archive").iterdir())


@pytest.mark.parametrize("data_of", [lambda _: b"", lambda limit: bytes(limit + 1), lambda _: None, lambda _: "text"])
def test_a_node_that_sends_too_little_or_too_much_of_a_file_is_named(
    source: FakeSource, out: Path, data_of: Callable[[int], Any]
) -> None:
    honest, bad, said = source.chunk, source.parts[0].node, list[str]()

    async def chunk(node: str, name: str, offset: int, limit: int) -> bytes:
        return await honest(node, name, offset, limit) if node != bad or offset == 0 else data_of(limit)

    source.chunk = chunk  # type: ignore[method-assign]
    assert run(source, out, said=said).pages_missing > 0
    assert "sent no bytes of" in said[0]


def test_a_node_without_an_id_is_told_of(source: FakeSource, out: Path) -> None:
    source.parts.append(Part("../x", source.parts[0].engine, source.parts[0].archive))
    said: list[str] = []
    assert not run(source, out, said=said).complete
    assert said[0].startswith("node ../x is no node's id; ")


def test_a_nodes_books_are_read_with_care() -> None:
    facts = read_facts(
        {"node": "ab" * 20, "counters": {"pages": 3, "fetches": -1, "bytes": "x", 5: 1e400}, "reachable": 1}
    )
    assert facts.counters == {"pages": 3, "fetches": 0, "bytes": 0, "5": 0}
    assert facts.failure == "does not answer"
    facts = read_facts({"node": "ab" * 20, "cpu_seconds": float("nan"), "rss_bytes_max": True, "reachable": True})
    assert (facts.cpu_seconds, facts.rss_bytes_max, facts.failure) == (0, 0, "")


@pytest.mark.parametrize("said", [9.2e18, 2**63 - 1, 2**54, float("inf"), -1, "x"])
def test_a_node_that_says_it_took_longer_than_the_world_is_old_stops_nobody(
    source: FakeSource, out: Path, said: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = source.nodes

    async def nodes() -> list[NodeFacts]:
        first, *others = await asked()
        return [replace(first, cpu_seconds=said, rss_bytes_max=said, seconds=said), *others]

    monkeypatch.setattr(source, "nodes", nodes)
    summary = run(source, out)
    assert summary.complete
    assert {share.cpu_seconds for share in summary.per_node} == {0, 1.5}


# Broken off, and done again


@pytest.mark.parametrize("percent", range(0, 100, 12))
def test_a_gathering_that_broke_off_is_finished_by_the_same_command(
    swarm: Crawled, source: FakeSource, out: Path, tmp_path: Path, percent: int
) -> None:
    uncut = FakeSource(swarm.copy())
    run(uncut, tmp_path / "at once")

    def die(node: str, what: str) -> None:
        if len(source.asked) > len(uncut.asked) * percent // 100:
            raise Killed

    source.on_ask = die
    with pytest.raises(Killed):
        run(source, out)
    for path in (out / "archive").iterdir():
        # What was appended and not synced: a part of it, or anything.
        path.write_bytes(path.read_bytes() + b"torn")
    source.on_ask = lambda node, what: None
    assert run(source, out).complete
    assert outputs(out) == outputs(tmp_path / "at once")
    assert verify(out).problems == []


def test_a_file_goes_on_where_it_was_last_synced(
    source: FakeSource, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gather_files, "SYNC_EVERY_BYTES", 20_000)
    source.parts = source.parts[:1]

    def die(node: str, what: str) -> None:
        if what.startswith("chunk") and what.endswith(" 50000"):
            raise Killed

    source.on_ask = die
    with pytest.raises(Killed):
        run(source, out)
    source.asked.clear()
    source.on_ask = lambda node, what: None
    run(source, out)
    assert next(what for what in source.asked if what.startswith("chunk")).endswith("-00000.warc.gz 40000")


def test_a_file_that_was_taken_away_is_brought_again(source: FakeSource, out: Path) -> None:
    facts = ended(complete=False)
    run(source, out, facts)
    before = outputs(out)
    first, second, *_ = sorted((out / "archive").iterdir())
    first.unlink()
    second.write_bytes(second.read_bytes()[:100])
    run(source, out, facts)
    assert outputs(out) == before

    def leave(node: str, what: str) -> None:
        source.down |= {node} if what.startswith("chunk") else set()

    source.on_ask = leave
    second.write_bytes(second.read_bytes()[:100])
    assert run(source, out, facts).pages_missing > 0


def test_a_full_disk_is_told_of_and_the_same_command_goes_on(
    source: FakeSource, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: object, txn: Txn, data: bytes) -> int:
        raise StorageFull("cannot write: no space left on the disk; free some and run the same command again")

    with monkeypatch.context() as patch:
        patch.setattr(gather_files.IncomingFile, "append", full)
        with pytest.raises(StorageFull):
            run(source, out)
    assert run(source, out).complete


# Directories that hold something already


def test_a_complete_collection_is_not_gathered_again(source: FakeSource, out: Path) -> None:
    run(source, out)
    before = outputs(out)
    with pytest.raises(UsageError, match="holds this crawl, complete; name another directory"):
        run(source, out)
    assert outputs(out) == before


def test_a_collection_gets_what_was_released_after_it_was_complete(
    swarm: Crawled, source: FakeSource, out: Path
) -> None:
    first, key = source.parts[0], page_key(source.parts[0])
    rows = {kind: first.engine.get(kind + CRAWL + key) for kind in (keys.PAGE, keys.LINKS)}
    holders = [part for part in source.parts if part.engine.get(keys.TASK + CRAWL + key) is not None]
    (task,) = {unpack_task(part.engine.get(keys.TASK + CRAWL + key) or b"") for part in holders[:1]}
    failed = task._replace(state=State.DEAD, reason="failed", detail="timeout: 30 s", place=None)
    for part in holders:
        part.put(keys.TASK + CRAWL + key, failed.pack())
    for kind in rows:
        first.put(kind + CRAWL + key, None)
    before = run(source, out)
    assert (before.pages, before.complete, before.errors_by_kind["timeout"]) == (swarm.alone.pages - 1, True, 1)
    for part in holders:
        part.put(keys.TASK + CRAWL + key, task._replace(gen=1).pack())
    for kind, value in rows.items():
        first.put(kind + CRAWL + key, value)
    after = run(source, out, version=3)
    assert (after.pages, after.errors, after.errors_by_kind) == (
        swarm.alone.pages, swarm.alone.errors, swarm.alone.errors_by_kind,
    )  # fmt: skip
    assert after.complete
    assert verify(out).problems == []
    with pytest.raises(UsageError, match="holds this crawl, complete; name another directory"):
        run(source, out, version=3)


def test_another_crawls_directory_is_refused(source: FakeSource, out: Path) -> None:
    spec = make_spec(["http://other.example/"], record().spec.settings)
    _put(out, CrawlRecord(bytes(16), spec, b""))
    with pytest.raises(UsageError, match=r"holds another crawl, of http://other\.example/"):
        run(source, out)


def test_a_crawl_that_brought_nothing_makes_room(source: FakeSource, out: Path) -> None:
    spec = make_spec(["http://other.example/"], record().spec.settings)
    _put(out, CrawlRecord(bytes(16), spec, b"", ended="failed"))
    assert run(source, out).complete


def test_the_pages_of_a_crawl_that_failed_are_kept_when_another_takes_its_place(source: FakeSource, out: Path) -> None:
    spec = make_spec(["http://other.example/"], record().spec.settings)
    _put(out, CrawlRecord(bytes(16), spec, b"", ended="failed"))
    files = ("archive/000000000000-n-00000.warc.gz", "pages/pages.jsonl", "summary.json")
    for name in files:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text("of the crawl that failed")
    assert run(source, out).complete
    kept = out / "earlier" / "000000000000"
    assert {(kept / name).read_text() for name in files} == {"of the crawl that failed"}
    assert verify(out).problems == []


def test_a_crawl_of_errors_alone_has_failed_and_is_gathered_again_without_a_loss(source: FakeSource, out: Path) -> None:
    for part in source.parts:
        for full, value in list(part.engine.scan(*keys.bounds(keys.PAGE, CRAWL))):
            part.put(full, pack(unpack(value) | {"status": 403}))
    first = run(source, out)
    assert (first.complete, first.pages_ok, first.errors_by_kind["403"]) == (True, 0, first.pages)
    assert run(source, out).pages == first.pages
    assert not (out / "earlier").exists()


def test_a_crawl_without_a_page_is_failed(source: FakeSource, out: Path) -> None:
    for part in source.parts:
        for full, _ in list(part.engine.scan(b"", b"\xff")):
            part.put(full, None)
    assert run(source, out).pages == 0
    assert run(source, out).pages == 0  # and not refused


def _put(out: Path, crawl: CrawlRecord) -> None:
    engine = LevelEngine(node_dir(out) / STORE_DIR)
    writes: dict[bytes, bytes | None] = {}
    catalog.check_format(Txn(engine, writes))
    catalog.put_crawl(Txn(engine, writes), crawl)
    engine.write(writes, sync=False)
    engine.close()


# Nodes on this machine


@pytest.fixture
def local(source: FakeSource, tmp_path: Path) -> Path:
    """The first node's archive directory."""
    part = source.parts[0]
    source.dirs = {part.node: onto_disk(part, tmp_path / "node 0")}
    assert len(part.archive.names()) > 2
    return source.dirs[part.node]


def linked(out: Path, local: Path) -> list[bool]:
    """Which of the node's files, in their order, the collection shares."""
    return [(out / "archive" / path.name).samefile(path) for path in sorted(local.iterdir())]


def test_files_of_an_ended_crawl_on_this_machine_are_linked(source: FakeSource, out: Path, local: Path) -> None:
    assert run(source, out).complete
    assert all(linked(out, local))
    assert verify(out).problems == []
    assert not any(path.name.startswith(".") for path in (out / "archive").iterdir())


def test_a_file_that_may_still_grow_is_copied(source: FakeSource, out: Path, local: Path) -> None:
    run(source, out, ended(ended=False, complete=False))
    *older, newest = linked(out, local)
    assert all(older)
    assert not newest


def test_only_what_is_committed_is_taken_and_the_nodes_file_is_left_alone(
    source: FakeSource, out: Path, local: Path
) -> None:
    torn = sorted(local.iterdir())[0]
    whole = torn.read_bytes()
    torn.write_bytes(whole + b"half a record")
    assert run(source, out).complete
    assert linked(out, local)[0] is False
    assert (out / "archive" / torn.name).read_bytes() == whole
    assert torn.read_bytes() == whole + b"half a record"


def test_a_linked_file_that_grew_after_all_is_a_copy_from_then_on(source: FakeSource, out: Path, local: Path) -> None:
    facts = ended(complete=False)
    newest = sorted(local.iterdir())[-1]
    whole, key = newest.read_bytes(), keys.ARCHIVE + CRAWL + newest.name.encode()
    newest.write_bytes(whole[:-700])
    source.parts[0].put(key, pack(len(whole) - 700))
    run(source, out, facts)
    assert all(linked(out, local))
    # The crawl goes on, and the node appends.
    with newest.open("ab") as file:
        file.write(whole[-700:] + b"not committed")
    source.parts[0].put(key, pack(len(whole)))
    run(source, out, facts)
    assert not linked(out, local)[-1]
    assert (out / "archive" / newest.name).read_bytes() == whole
    assert newest.read_bytes() == whole + b"not committed"
    # And is at its end once more.
    newest.write_bytes(whole)
    assert run(source, out).complete
    assert all(linked(out, local))


def test_without_hard_links_files_are_copied(
    source: FakeSource, out: Path, local: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object, **__: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", no_links)
    assert run(source, out).complete
    assert not any(linked(out, local))
    assert verify(out).problems == []


def test_a_collection_outlives_its_nodes(source: FakeSource, out: Path, local: Path) -> None:
    run(source, out)
    shutil.rmtree(local)
    assert verify(out).problems == []


# A node that left its pages to another


def leave(parts: list[Part], leaver: int, heir: int) -> CrawlRecord:
    """What `heir` has once `leaver` has left, and the crawl's record then."""
    gone, there = parts[leaver], parts[heir]
    for kind in (keys.PAGE, keys.LINKS, keys.EXTRA, keys.SKIPPED, keys.ARCHIVE):
        for full, value in list(gone.engine.scan(*keys.bounds(kind, CRAWL))):
            if there.engine.get(full) is None:
                there.put(full, value)
    for name in gone.archive.names():
        there.archive.open(name, 0).append(bytes(gone.file(name)))
    bequest = bequests.made(SimKey(bytes.fromhex(gone.node)), CRAWL, bytes.fromhex(there.node), 1)
    return replace(record(), ended="complete", bequests={bequest.name: bequest.packed()})


def link_keys(out: Path) -> list[tuple[bytes, bytes]]:
    engine = LevelEngine(node_dir(out) / STORE_DIR)
    try:
        return list(engine.scan(*keys.bounds(keys.LINKS, CRAWL)))
    finally:
        engine.close()


def gather_as(known: CrawlRecord, source: Any, out: Path, said: list[str]) -> Summary:
    summary, _ = asyncio.run(gather(source, known, out, node_dir(out), ended(), sync=False, say=said.append))
    return summary


def test_pages_of_a_node_that_left_are_had_from_whom_it_left_them_to(
    swarm: Crawled, source: FakeSource, tmp_path: Path
) -> None:
    run(source, tmp_path / "all")
    parts, said = swarm.copy(), list[str]()
    known = leave(parts, 0, 1)
    left = FakeSource([parts[1], parts[2]])
    # Its task records went to those who keep them now.
    for full, value in list(parts[0].engine.scan(*keys.bounds(keys.TASK, CRAWL))):
        parts[2].put(full, value)
    summary = gather_as(known, left, tmp_path / "left", said)
    assert said == []
    assert summary.complete
    assert outputs(tmp_path / "left") == outputs(tmp_path / "all")
    assert link_keys(tmp_path / "left") == link_keys(tmp_path / "all")
    assert verify(tmp_path / "left").problems == []


@pytest.mark.parametrize("order", [1, -1])
def test_of_a_file_that_has_grown_since_an_heir_took_it_all_is_gathered(
    swarm: Crawled, source: FakeSource, tmp_path: Path, order: int
) -> None:
    run(source, tmp_path / "all")
    parts, said = swarm.copy(), list[str]()
    known = leave(parts, 0, 1)
    name = max(each for each in parts[1].archive.names() if parts[0].node[:12] in each)
    length = len(parts[1].file(name)) - 100
    del parts[1].file(name)[length:]
    parts[1].put(keys.ARCHIVE + CRAWL + name.encode(), pack(length))
    both = FakeSource(parts[::order])
    both.dirs = {part.node: onto_disk(part, tmp_path / part.node[:4]) for part in parts}
    summary = gather_as(known, both, tmp_path / "out", said)
    assert (said, summary.complete) == ([], True)
    assert outputs(tmp_path / "out") == outputs(tmp_path / "all")


def test_a_node_that_came_back_and_its_heir_both_have_its_pages(
    swarm: Crawled, source: FakeSource, tmp_path: Path
) -> None:
    run(source, tmp_path / "all")
    parts, said = swarm.copy(), list[str]()
    known = leave(parts, 0, 1)
    summary = gather_as(known, FakeSource(parts, chunk_max=500), tmp_path / "both", said)
    assert said == []
    assert summary.complete
    assert summary.refetches == 0
    assert outputs(tmp_path / "both") == outputs(tmp_path / "all")


def test_pages_of_a_node_that_left_them_to_nobody_are_not_taken_from_another(swarm: Crawled, tmp_path: Path) -> None:
    parts, said, out = swarm.copy(), list[str](), tmp_path / "out"
    known = replace(leave(parts, 0, 1), bequests={})
    summary = gather_as(known, FakeSource([parts[1], parts[2]]), out, said)
    assert not summary.complete
    assert {page["node"] for page in pages(out)} == {parts[1].node, parts[2].node}
    assert not any(parts[0].node[:12] in path.name for path in (out / "archive").iterdir())


@pytest.mark.parametrize("open_stores", [False, True])
def test_a_node_that_began_to_take_what_another_was_to_leave_is_gathered_whole(
    swarm: Crawled, source: FakeSource, tmp_path: Path, open_stores: bool
) -> None:
    """That one was killed before all was taken, and came back: the files and rows that had come are nothing to tell."""
    run(source, tmp_path / "all")
    parts, said = swarm.copy(), list[str]()
    known = replace(leave(parts, 0, 1), bequests={})
    for kind in (keys.PAGE, keys.SKIPPED):
        parts[1].put(kind + CRAWL + page_key(parts[0]), None)
    summary = gather_as(known, FakeSource(parts, open_stores=open_stores), tmp_path / "out", said)
    assert said == []
    assert (summary.complete, summary.refetches) == (True, 0)
    assert outputs(tmp_path / "out") == outputs(tmp_path / "all")
