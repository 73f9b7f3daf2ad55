"""A crawl is gathered from the directories of nodes that have ended, and comes out as if they had been asked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dhtcrawl.cli import gather as gather_module
from dhtcrawl.cli.ended_nodes import ended_nodes
from dhtcrawl.cli.gather import gather
from dhtcrawl.cli.places import node_dir
from dhtcrawl.cli.runtime import locked
from dhtcrawl.errors import StorageError, StoreInUse
from dhtcrawl.storage.collect.facts import NodeFacts
from dhtcrawl.storage.collect.gather import GatherProgress, finish
from dhtcrawl.storage.collect.merge_stores import merge_tasks
from dhtcrawl.storage.outputs.summary import Summary
from dhtcrawl.storage.outputs.verify import verify
from dhtcrawl.storage.store import keys

from .conftest import Here
from .sim_nodes import Crawled, FakeSource, Part, crawled, ended, outputs, record, whole_onto_disk

CRAWL = record().crawl_id


class Killed(Exception):
    """The gathering process is no more."""


AS_KNOWN = replace(record(), ended="complete")


@pytest.fixture(scope="module")
def swarm() -> Crawled:
    return crawled()


@pytest.fixture
def data_dirs(swarm: Crawled, tmp_path: Path) -> dict[str, Path]:
    """What three nodes have left: a data directory each."""
    return {part.node: whole_onto_disk(part, tmp_path / part.node[:4]) for part in swarm.copy()}


def run(source: Any, out: Path, said: list[str] | None = None, **facts: object) -> Summary:
    say = (said if said is not None else []).append
    gathering = gather(source, AS_KNOWN, out, node_dir(out), ended(**facts), sync=False, say=say)
    return asyncio.run(gathering)[0]


def read(data_dirs: dict[str, Path], out: Path, said: list[str] | None = None, **facts: object) -> Summary:
    asked = [NodeFacts(node, rss_bytes_max=7) for node in data_dirs]
    with ended_nodes(CRAWL, asked, data_dirs) as source:
        return run(source, out, said, **facts)


def by_rows(swarm: Crawled, out: Path) -> dict[str, bytes]:
    """The outputs as they are where the nodes are asked."""
    assert run(FakeSource(swarm.copy()), out).complete
    return outputs(out)


def test_it_is_the_crawl_that_the_nodes_would_have_sent(
    swarm: Crawled, data_dirs: dict[str, Path], tmp_path: Path, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = by_rows(swarm, tmp_path / "asked")
    out = tmp_path / "out"
    monkeypatch.setattr(gather_module, "finish", None)  # nothing is left for it
    monkeypatch.setattr(gather_module, "LET_GO_EVERY_STEPS", 1)
    summary = read(data_dirs, out)
    assert summary.complete
    assert outputs(out) == wanted
    assert [(share.node, share.rss_bytes_max) for share in summary.per_node] == [(node, 7) for node in data_dirs]
    assert [share.pages for share in summary.per_node] == [part.counters["pages"] for part in swarm.parts]
    assert summary.fetches == sum(part.counters["fetches"] for part in swarm.parts)
    assert verify(out).problems == []
    assert here("fsck", "--out", out).stdout.endswith("sound\n")
    for node, data_dir in data_dirs.items():
        (first, *_) = data_dir.glob("crawls/*/archive/*")
        assert (out / "archive" / first.name).samefile(first), node


@pytest.mark.parametrize("steps", [1, 3])
def test_a_command_that_was_killed_amid_it_is_repeated(
    swarm: Crawled, data_dirs: dict[str, Path], tmp_path: Path, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, done = by_rows(swarm, tmp_path / "asked"), list[int]()

    def killed(*args: Any, step: Any, **named: Any) -> Any:
        done.append(1)
        if len(done) > steps:
            raise Killed
        return step(*args, keys_max=40, **named)

    with monkeypatch.context() as patch:
        for step in ("merge_tasks", "merge_skipped"):
            patch.setattr(gather_module, step, partial(killed, step=getattr(gather_module, step)))
        with pytest.raises(Killed):
            read(data_dirs, tmp_path / "out")
    finished: list[object] = []

    def count(*args: Any, **named: Any) -> GatherProgress:
        finished.append(1)
        return finish(*args, **named)

    monkeypatch.setattr(gather_module, "finish", count)
    assert read(data_dirs, tmp_path / "out").complete
    assert finished, "what had come was merged with"
    assert outputs(tmp_path / "out") == wanted


def test_what_was_gathered_before_the_crawl_went_on_is_merged_with(
    swarm: Crawled, data_dirs: dict[str, Path], tmp_path: Path
) -> None:
    wanted, out, (first, *others) = by_rows(swarm, tmp_path / "asked"), tmp_path / "out", data_dirs
    assert not read({node: data_dirs[node] for node in others}, out, complete=False).complete
    assert not read(data_dirs, out, ended=False, complete=False).complete
    assert read(data_dirs, out).complete
    assert outputs(out) == wanted
    assert first in data_dirs


def test_a_node_that_took_part_and_is_not_here_is_told_of(data_dirs: dict[str, Path], tmp_path: Path) -> None:
    away, said = next(iter(data_dirs)), list[str]()
    asked = [NodeFacts(node, failure="does not answer" if node == away else "") for node in data_dirs]
    here = {node: path for node, path in data_dirs.items() if node != away}
    with ended_nodes(CRAWL, asked, here) as source:
        summary = run(source, tmp_path / "out", said)
    assert (summary.complete, len(said)) == (False, 1)
    assert said[0].startswith(f"node {away[:12]} does not answer; ")
    # One that did not answer, and is here, is read all the same.
    with ended_nodes(CRAWL, asked, data_dirs) as source:
        assert run(source, tmp_path / "out", said).complete
    assert len(said) == 1


def test_without_links_files_are_copied_and_one_that_is_gone_is_told_of(
    data_dirs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, (node, data_dir) = list[str](), next(iter(data_dirs.items()))
    monkeypatch.setattr("os.link", _no_links)
    lost, *_ = sorted(data_dir.glob("crawls/*/archive/*"))
    kept = lost.read_bytes()
    lost.unlink()
    summary = read(data_dirs, tmp_path / "out", said)
    assert summary.pages_missing > 0
    assert len(said) == 1
    assert said[0].startswith(f"node {node[:12]} has not all of its files (cannot read {lost}: ")
    lost.write_bytes(kept)
    assert read(data_dirs, tmp_path / "out").complete
    assert verify(tmp_path / "out").problems == []


def _no_links(*_: object, **__: object) -> None:
    raise OSError(18, "Invalid cross-device link")


def test_a_directory_that_a_node_works_in_is_not_read(data_dirs: dict[str, Path]) -> None:
    node, data_dir = next(iter(data_dirs.items()))
    with locked(data_dir), pytest.raises(StoreInUse), ended_nodes(CRAWL, [NodeFacts(node)], data_dirs):
        pass
    with ended_nodes(CRAWL, [NodeFacts(node)], data_dirs), pytest.raises(StoreInUse), locked(data_dir):
        pass


def test_a_store_that_is_not_there_is_not_taken_for_an_empty_one(data_dirs: dict[str, Path], tmp_path: Path) -> None:
    away = {next(iter(data_dirs)): tmp_path / "elsewhere"}
    with pytest.raises(StorageError, match="cannot open the store"), ended_nodes(CRAWL, [], away):
        pass


def test_every_row_of_a_page_is_read_once_though_three_nodes_know_its_task(
    swarm: Crawled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = FakeSource(_known_to_all(swarm.copy()), open_stores=True)
    merged: list[int] = []

    def count(txn: Any, **named: Any) -> Any:
        step = merge_tasks(txn, **named)
        merged.append(sum(1 for _ in txn.rows(keys.TASK, CRAWL)))
        return step

    monkeypatch.setattr(gather_module, "merge_tasks", count)
    summary = run(source, tmp_path / "out")
    assert merged == [summary.urls_seen]
    assert not [what for what in source.asked if what in ("rows t", "rows p", "rows l", "rows s")]


def _known_to_all(parts: Sequence[Part]) -> list[Part]:
    tasks = dict(row for part in parts for row in part.engine.scan(*keys.bounds(keys.TASK, CRAWL)))
    for part in parts:
        part.engine.write(dict(tasks), sync=False)
    return list(parts)
