"""Stores that lie open become the collection that their rows become one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from storage.stores import CRAWL, SPEC
from storage.swarm_stores import NODES, Collection, Part
from storage.test_gather import ACTIONS, URLS, Swarm, outputs

from dhtcrawl.errors import StorageError
from dhtcrawl.keyspace import url_key
from dhtcrawl.storage.collect import gather, merge_stores
from dhtcrawl.storage.collect.merge_stores import is_empty
from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.records import ShownTask, pack, shown_task

A, B, C, *_ = URLS


@pytest.fixture
def nodes() -> tuple[Part, Part, Part]:
    """A crawl as it is at its end: each page is at one node, and its task at that and another one."""
    parts = first, second, third = Part(NODES[0]), Part(NODES[1]), Part(NODES[2])
    for url, node, backup in ((A, first, second), (B, second, third), (C, third, first)):
        node.accept(url)
        node.fetch(url, [A, C], [(f"http://other.example/{node.node[0]}", "out-of-scope")])
        node.settle(url)
        backup.learn(node, url)
    first.robots()
    return parts


@given(actions=st.lists(ACTIONS, max_size=25), copies=st.lists(st.sampled_from(URLS), max_size=2), data=st.data())
def test_whatever_nodes_did_their_stores_merge_to_what_their_rows_do(
    actions: list[Any], copies: list[str], data: st.DataObject
) -> None:
    swarm, merged, gathered = Swarm(), Collection(), Collection()
    for action in actions:
        swarm.do(*action)
    for url in copies:
        swarm.nodes[2].copy(swarm.nodes[0], url)
    refetches = gathered.gather(*swarm.nodes)
    some = data.draw(st.permutations(swarm.nodes))
    assert merged.merge(*some, keys_max=data.draw(st.integers(1, 4))) == refetches
    assert merged.content() == gathered.content()


def test_a_crawl_that_went_well_is_settled_by_one_pass_over_its_stores(
    nodes: tuple[Part, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    gathered, merged = Collection(), Collection()
    gathered.gather(*nodes)
    monkeypatch.setattr(Collection, "finish", None)
    assert merged.merge(*nodes) == 0
    assert merged.content() == gathered.content()
    assert merged.problems() == []
    totals, _ = outputs(merged)
    assert (totals.pages, totals.lost, totals.skipped["out-of-scope"]) == (3, 0, 3)


def test_a_row_of_the_store_is_not_read_once_more_for_each_backup(
    nodes: tuple[Part, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for backup in nodes:
        for node in nodes:
            backup.learn(node, C)  # a URL of ordinary length: of a short one records are read
    read: list[bytes] = []

    def note(value: bytes) -> ShownTask:
        read.append(value)
        return shown_task(value)

    monkeypatch.setattr(merge_stores, "shown_task", note)
    Collection().merge(*nodes)
    assert len(read) == len(set(read)) == 3


def test_a_step_ends_after_so_many_bytes(nodes: tuple[Part, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    whole, cut = Collection(), Collection()
    whole.merge(*nodes)
    monkeypatch.setattr(merge_stores, "BYTES_AT_ONCE", 1)
    cut.merge(*nodes)
    assert cut.content() == whole.content()
    assert gather.BYTES_AT_ONCE > 1


def test_of_rows_that_are_long_few_are_read_ahead() -> None:
    read: list[bytes] = []

    class LongRows:
        def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
            for number in range(64 if start.startswith(keys.LINKS) else 0):
                read.append(start)
                yield start + url_key(str(number)), b"x" * merge_stores.ROW_BYTES_AT_ONCE

    rows: Any = LongRows()
    ended = merge_stores.EndedStore("ab" * 20, rows, lambda: None)
    step = Collection().store.run(lambda txn: merge_stores.merge_tasks(txn, CRAWL, [ended], b"", keys_max=1))
    assert step.cursor is not None
    assert len(read) <= 3


def test_rows_of_an_earlier_gathering_make_a_collection_one_to_be_merged_with(nodes: tuple[Part, ...]) -> None:
    collection = Collection()
    assert collection.store.run(lambda txn: is_empty(txn, CRAWL))
    collection.take(nodes[0].pages([keys.EXTRA]))
    assert not collection.store.run(lambda txn: is_empty(txn, CRAWL))


def test_a_damaged_record_is_told_of(nodes: tuple[Part, ...]) -> None:
    nodes[1].store.put(keys.TASK + CRAWL + SPEC.key_of(B), b"\x01\xc1")
    with pytest.raises(StorageError, match="damaged"):
        Collection().merge(*nodes)


def test_the_smallest_reason_of_a_skipped_link_stands(nodes: tuple[Part, ...]) -> None:
    collection = Collection()
    key = keys.SKIPPED + CRAWL + url_key("http://other.example/x")
    rows = [pack(("http://other.example/x", *rest)) for rest in (("depth", B), ("depth",), ("depth", A))]
    for node, row in zip(nodes, rows, strict=True):
        node.store.put(key, row)
    collection.merge(*nodes)
    assert collection.store.engine.get(key) == rows[2]
