"""Copies of bodies in a collection: unseen where they are not needed, and in place of what is gone."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from storage.stores import CRAWL, SPEC
from storage.swarm_stores import NODES, Collection, Part
from storage.test_gather import ACTIONS, URLS, Swarm, node_of, outputs
from storage.test_outputs import lines

from dhtcrawl.storage.archive import body_copies
from dhtcrawl.storage.collect.foreign import BadRow
from dhtcrawl.storage.collect.gather import COPIES, GATHERED
from dhtcrawl.storage.outputs.outputs import PAGES_FILE
from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.records import holds_copies, pack, unpack

A, B, C, *_ = URLS


@pytest.fixture
def nodes() -> tuple[Part, Part, Part]:
    first, second, third = (Part(node) for node in NODES)
    for url in (A, B):
        first.accept(url)
        first.fetch(url, [B])
        first.settle(url)
        third.learn(first, url)
        second.copy(first, url)
    return first, second, third


def files(collection: Collection) -> list[bool]:
    return [holds_copies(name) for name in collection.directory.names()]


def test_what_is_there_needs_no_copies(nodes: tuple[Part, ...]) -> None:
    with_copies, without = Collection(), Collection()
    assert with_copies.gather(*nodes) == 0
    assert files(with_copies) == [False]
    without.gather(nodes[0], nodes[2])
    assert outputs(with_copies)[0] == outputs(without)[0]
    assert with_copies.problems() == []


def test_a_copy_stands_for_a_page_whose_node_is_gone(nodes: tuple[Part, ...]) -> None:
    _, second, third = nodes
    collection = Collection()
    assert collection.gather(second, third) == 0, "nobody fetched it twice"
    assert files(collection) == [True]
    totals, dirs = outputs(collection)
    assert (totals.pages, totals.pages_missing, totals.lost) == (2, 0, 0)
    assert [line["node"] for line in lines(dirs.pages, PAGES_FILE)] == [NODES[0]] * 2, "who fetched it"
    assert all("copy" not in line for line in lines(dirs.pages, PAGES_FILE))
    assert collection.store.engine.get(keys.LINKS + CRAWL + SPEC.key_of(A)) == SPEC.key_of(B)
    assert collection.problems() == []


def test_a_copy_stands_for_a_page_whose_file_is_gone(nodes: tuple[Part, ...]) -> None:
    first, second, third = nodes
    collection = Collection()
    for node in nodes:
        collection.take(node.pages(GATHERED + COPIES))
    collection.finish()
    assert node_of(collection, A) == first.node
    (wanted,) = collection.wanted(keys_max=1)
    assert holds_copies(wanted)
    collection.take_files(second, third)
    collection.finish()
    assert node_of(collection, A) == second.node
    assert collection.problems() == []


def test_a_copy_gives_way_when_its_node_is_reached_after_all(nodes: tuple[Part, ...]) -> None:
    first, second, third = nodes
    collection = Collection()
    collection.gather(second, third)
    assert collection.gather(first, second, third) == 0
    assert node_of(collection, A) == first.node
    once = Collection()
    once.gather(first, second, third)
    assert outputs(collection)[0] == outputs(once)[0]
    assert collection.problems() == []


def test_of_a_page_that_nobody_finished_no_copy_stands(nodes: tuple[Part, ...]) -> None:
    """Its node is gone; whoever owned it then had not heard of it, or had opened it again."""
    _, second, _ = nodes
    owner = Part(NODES[2])
    owner.accept(A, B)
    collection = Collection()
    collection.gather(second, owner)
    totals, _ = outputs(collection)
    assert (totals.pages, totals.pending, totals.lost) == (0, 2, 0)
    assert collection.problems() == []


def test_a_copy_that_stands_in_for_good_is_no_refetch_when_its_node_comes_back(nodes: tuple[Part, ...]) -> None:
    first, second, third = nodes
    keys_of = [SPEC.key_of(url) for url in (A, B)]
    found = second.store.run(partial(body_copies.stand_in, crawl=CRAWL, task_keys=keys_of, leads_here={second.node}))
    third.store.run(partial(body_copies.rehome, crawl=CRAWL, found=found, gone=first.node, mine=lambda key: True))
    for gathered, whose in (((second, third), second), ((first, second, third), first)):
        collection = Collection()
        assert collection.gather(*gathered) == 0
        assert node_of(collection, A) == whose.node, "no file of copies is brought for what is there"
        assert outputs(collection)[0].pages == 2
        assert collection.problems() == []
    everything = Collection()
    everything.gather(first, second, third)
    everything.take_files(second)
    everything.finish()
    everything.take(first.pages([keys.PAGE]))
    everything.finish()
    assert node_of(everything, A) == second.node, "with all files there, it is as the record says"


def test_link_keys_of_a_page_that_stands_in_are_not_those_of_the_copy_that_it_was(
    nodes: tuple[Part, ...],
) -> None:
    """It was looked through again since, at another depth."""
    _, second, third = nodes
    collection = Collection()
    collection.gather(second, third)
    key = SPEC.key_of(A)
    second.store.run(partial(body_copies.stand_in, crawl=CRAWL, task_keys=[key], leads_here={second.node}))
    second.store.put(keys.LINKS + CRAWL + key, SPEC.key_of(A) + SPEC.key_of(B))
    collection.gather(second, third)
    assert collection.store.engine.get(keys.LINKS + CRAWL + key) == SPEC.key_of(A) + SPEC.key_of(B)
    once = Collection()
    for kind in COPIES + GATHERED:
        once.take(nodes[1].pages([kind]) + third.pages([kind]))
    once.take([(second.node, keys.COPY_LINKS, [(key, SPEC.key_of(C))])])
    once.take_files(second)
    once.finish()
    assert once.store.engine.get(keys.LINKS + CRAWL + key) == SPEC.key_of(A) + SPEC.key_of(B)


def test_who_fetched_the_page_and_has_a_copy_too_counts_as_who_fetched_it(nodes: tuple[Part, ...]) -> None:
    first, second, third = nodes
    second.accept(A)
    second.fetch(A, [C])
    second.accept(C)
    for order in ((GATHERED + COPIES), (COPIES + GATHERED)):
        collection = Collection()
        for kind in order:
            for node in nodes:
                collection.take(node.pages([kind]))
        collection.take_files(first, second, third)
        assert collection.finish() == 1
        assert node_of(collection, A) == first.node
        alone = Collection()
        for kind in order:
            alone.take(second.pages([kind]))
        alone.take_files(second)
        assert alone.finish() == 0
        fields = unpack(alone.store.engine.get(keys.PAGE + CRAWL + SPEC.key_of(A)) or b"")
        assert not fields.get("copy")
        assert alone.store.engine.get(keys.LINKS + CRAWL + SPEC.key_of(A)) == SPEC.key_of(C)


COPY = st.tuples(st.just("copy"), st.integers(0, 2), st.integers(0, 2), st.sampled_from(URLS), st.just(list[str]()))
ANY: st.SearchStrategy[Any] = st.one_of(ACTIONS, COPY)


class Copying(Swarm):
    def do(self, what: str, a: int, b: int, url: str, links: list[str]) -> None:
        if what != "copy":
            super().do(what, a, b, url, links)
        elif a != b:
            self.nodes[a].copy(self.nodes[b], url)


@given(actions=st.lists(ANY, max_size=25), data=st.data())
def test_the_order_of_nodes_and_pages_does_not_matter(actions: list[Any], data: st.DataObject) -> None:
    swarm = Copying()
    for action in actions:
        swarm.do(*action)
    there = data.draw(st.lists(st.sampled_from(swarm.nodes), unique_by=lambda node: node.node))
    bytes_max = data.draw(st.sampled_from([1, 45, 400, 1 << 18]))
    straight, shuffled = Collection(), Collection()
    kinds = GATHERED + COPIES
    pages = [page for kind in kinds for node in there for page in node.pages([kind], bytes_max)]
    straight.take(pages)
    straight.take_files(*there)
    refetches = straight.finish()
    again = data.draw(st.lists(st.sampled_from(pages), max_size=3)) if pages else []
    shuffled.take_files(*there)
    shuffled.take(data.draw(st.permutations(pages + again)))
    assert shuffled.finish(keys_max=data.draw(st.integers(1, 4))) == refetches
    assert shuffled.content() == straight.content()
    totals, _ = outputs(straight)
    assert totals.pages_missing == totals.brought - totals.pages


NONSENSE: list[tuple[bytes, bytes, bytes]] = [
    (keys.COPY, SPEC.key_of(A), b"x"),
    (keys.COPY, SPEC.key_of(A), pack({"url": A})),
    (keys.COPY_LINKS, SPEC.key_of(A), b"odd"),
    (keys.COPY_LINKS, b"short", b""),
    (keys.HOLDERS, SPEC.key_of(A), b""),
]


@pytest.mark.parametrize(("kind", "key", "value"), NONSENSE)
def test_copies_that_make_no_sense_are_refused(kind: bytes, key: bytes, value: bytes) -> None:
    with pytest.raises(BadRow):
        Collection().take([(NODES[0], kind, [(key, value)])])


def test_a_copy_in_a_file_of_another_node_is_passed_over(nodes: tuple[Part, ...]) -> None:
    ((_, kind, rows),) = nodes[1].pages([keys.COPY])
    collection = Collection()
    collection.take([(NODES[2], kind, rows)])
    assert collection.content() == []
