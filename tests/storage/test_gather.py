"""Rows of many nodes, in any order and any number of times, become one sound collection."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from storage.stores import CRAWL, SPEC
from storage.swarm_stores import NODES, Collection, Part
from storage.test_outputs import lines, skipped, write

from dhtcrawl.keyspace import url_key
from dhtcrawl.storage.archive import body_copies
from dhtcrawl.storage.collect import gather
from dhtcrawl.storage.collect.gather import GATHERED, merge_rows
from dhtcrawl.storage.collect.gather_aside import drop_aside
from dhtcrawl.storage.outputs.outputs import MISSING_FILE, PAGES_FILE, SKIPPED_FILE, OutputCounters, OutputDirs
from dhtcrawl.storage.store import catalog, keys, tasks
from dhtcrawl.storage.store.crawl_record import CrawlRecord
from dhtcrawl.storage.store.records import State, pack, unpack
from dhtcrawl.storage.store.tasks import get_page

# Records of longer URLs are compared without being read, those of short ones are not.
A, B, C, D, E = URLS = [f"http://a.example/{name}" for name in ("a", "b", "c" * 20, "d" * 20, "e" * 20)]


@pytest.fixture
def nodes() -> tuple[Part, Part, Part]:
    return Part(NODES[0]), Part(NODES[1]), Part(NODES[2])


def outputs(collection: Collection) -> tuple[OutputCounters, OutputDirs]:
    dirs = OutputDirs.in_memory()._replace(archive=collection.directory)
    return write(collection.store, dirs), dirs


def node_of(collection: Collection, url: str) -> str | None:
    """Whose copy of a page stands in the collection."""
    found = collection.store.run(partial(get_page, crawl=CRAWL, key=SPEC.key_of(url)))
    return None if found is None else found["place"].node


# Any crawl by three nodes


@dataclass
class Swarm:
    """Three nodes, and what was done so far."""

    nodes: list[Part] = field(default_factory=lambda: [Part(node) for node in NODES])
    fetches: Counter[str] = field(default_factory=Counter)  # as the web server counts them

    def do(self, what: str, a: int, b: int, url: str, links: list[str]) -> None:
        node, other = self.nodes[a], self.nodes[b]
        if what == "fetch":
            # Whoever finds links has them accepted first by their owner.
            other.accept(*links)
            self.fetches[url] += 1
            node.fetch(url, links, [(f"http://other.example/{b}", ["depth", "nofollow", "excluded"][a])])
        elif what == "learn":
            node.learn(other, url)
        elif what == "drop":
            holders = [third for third in self.nodes if third is not node and third.knows(url)]
            if holders:
                holders[0].learn(node, url)
                node.drop(url)
        elif what == "robots":
            node.robots()
        elif not node.knows(url) or what == "accept":
            node.accept(url, depth=b)
        else:
            {"settle": node.settle, "kill": node.kill}[what](url)


ACTIONS = st.tuples(
    st.sampled_from(["fetch"] * 3 + ["settle"] * 2 + ["learn"] * 2 + ["accept", "kill", "drop", "robots"]),
    st.integers(0, 2),
    st.integers(0, 2),
    st.sampled_from(URLS),
    st.lists(st.sampled_from(URLS), max_size=3, unique=True),
)


def arrived(collection: Collection) -> set[bytes]:
    tasks = collection.store.engine.scan(*keys.bounds(keys.TASK, CRAWL))
    return {keys.suffix(key) for key, value in tasks if unpack(value)[4] in (State.FETCHED, State.DONE)}


@given(actions=st.lists(ACTIONS, max_size=25), data=st.data())
def test_the_order_of_nodes_and_pages_does_not_matter(actions: list[Any], data: st.DataObject) -> None:
    swarm = Swarm()
    for action in actions:
        swarm.do(*action)
    straight, shuffled = Collection(), Collection()
    bytes_max = data.draw(st.sampled_from([1, 45, 400, 1 << 18]))
    refetches = straight.gather(*swarm.nodes, bytes_max=bytes_max)
    pages = [page for node in swarm.nodes for page in node.pages(bytes_max=bytes_max)]
    again = data.draw(st.lists(st.sampled_from(pages), max_size=3))
    shuffled.take_files(*data.draw(st.permutations(swarm.nodes)))
    shuffled.take(data.draw(st.permutations(pages + again)))
    assert shuffled.finish(keys_max=data.draw(st.integers(1, 4))) == refetches
    assert shuffled.content() == straight.content()

    assert straight.problems() == []
    rows = [suffix for node in swarm.nodes for _, _, rows in node.pages([keys.PAGE]) for suffix, _ in rows]
    served = swarm.fetches.total() - len(swarm.fetches)
    # What a node fetched twice, handed over and fetches once more it knows of only as one that it had fetched.
    assert len(rows) - len(set(rows)) <= refetches <= served
    assert refetches == served or any(what == "drop" for what, *_ in actions)
    kept = {keys.suffix(key) for key, _ in straight.store.engine.scan(*keys.bounds(keys.PAGE, CRAWL))}
    assert kept == arrived(straight)
    totals, dirs = outputs(straight)
    assert (totals.pages, totals.pages_missing, totals.lost) == (len(kept), 0, 0)
    assert len({line["url"] for line in lines(dirs.pages, PAGES_FILE)}) == len(kept)


@given(actions=st.lists(ACTIONS, max_size=25), cut=st.integers(0, 25), data=st.data())
def test_gathering_again_what_grew_meanwhile_is_gathering_once(
    actions: list[Any], cut: int, data: st.DataObject
) -> None:
    swarm, twice, once = Swarm(), Collection(), Collection()
    for action in actions[:cut]:
        swarm.do(*action)
    twice.gather(*data.draw(st.lists(st.sampled_from(swarm.nodes), unique_by=lambda node: node.node)))
    for action in actions[cut:]:
        # A record that a node let go of before it was read, or found anew, reads differently: see `Swarm.do`.
        if action[0] not in ("drop", "kill"):
            swarm.do(*action)
    for directory in (twice.directory, once.directory):
        directory.files.clear()
    assert twice.gather(*swarm.nodes) == once.gather(*swarm.nodes)
    assert twice.problems() == once.problems() == []
    assert arrived(twice) == arrived(once)
    assert outputs(twice)[0] == outputs(once)[0]


# Fetches beyond the first


def test_what_a_node_fetched_that_is_gone_counts_where_its_pages_were_opened_again(
    nodes: tuple[Part, Part, Part], collection: Collection
) -> None:
    """The owner (b) knew that a page lay at a, opened it again when a was gone, and c fetched it."""
    a, b, c = nodes
    for url in URLS[:3]:
        a.fetch(url)
        b.learn(a, url)
    b.reopen(URLS[0], URLS[1])  # the third is not missed: a has it
    c.learn(b, URLS[0])
    c.fetch(URLS[0])
    assert collection.gather(b, c) == 1
    assert collection.gather(a, b, c) == 1, "a is back: it is the same fetch"


def test_what_lost_where_two_copies_met_counts_though_its_node_is_gone(
    nodes: tuple[Part, Part, Part], collection: Collection
) -> None:
    a, b, c = nodes
    b.fetch(URLS[0])
    a.fetch(URLS[0])
    c.learn(b, URLS[0])
    c.learn(a, URLS[0])
    assert collection.gather(a, c) == 1
    assert Collection().gather(c) == 1


def test_a_page_that_stands_where_a_copy_was_found_was_not_fetched_there(
    nodes: tuple[Part, Part, Part], collection: Collection
) -> None:
    a, b, _ = nodes
    a.fetch(URLS[0])
    assert b.copy(a, URLS[0])
    b.learn(a, URLS[0])
    found = b.store.run(lambda txn: body_copies.stand_in(txn, CRAWL, [SPEC.key_of(URLS[0])], {b.node}))
    b.store.run(lambda txn: body_copies.rehome(txn, CRAWL, found, a.node, lambda _: True))
    assert collection.gather(b) == 0
    assert collection.gather(a, b) == 0


# A page that several nodes fetched


def test_a_page_of_two_nodes_stands_once_as_its_task_says(nodes: tuple[Part, ...], collection: Collection) -> None:
    first, second, third = nodes
    for node, links in ((first, [B]), (second, [C]), (third, [D])):
        node.accept(A, *links)
        node.fetch(A, links)
    second.settle(A)  # done beats fetched: its place is the one that the swarm agreed on
    assert collection.gather(third, second, first) == 2
    assert node_of(collection, A) == second.node
    assert collection.store.engine.get(keys.LINKS + CRAWL + SPEC.key_of(A)) == SPEC.key_of(C)
    assert collection.problems() == []
    totals, dirs = outputs(collection)
    assert (totals.pages, totals.pages_missing, totals.lost) == (1, 0, 0)
    assert [line["node"] for line in lines(dirs.pages, PAGES_FILE)] == [second.node]


def test_a_copy_whose_body_is_here_beats_the_one_that_the_task_names(
    nodes: tuple[Part, ...], collection: Collection
) -> None:
    first, second, _ = nodes
    for node in (first, second):
        node.accept(A)
        node.fetch(A)
        node.settle(A)
    collection.take(first.pages() + second.pages())
    collection.take_files(second)
    collection.finish()
    assert node_of(collection, A) == second.node
    assert outputs(collection)[0].pages_missing == 0
    # The file came after all: the swarm's choice is ours again.
    collection.take_files(first)
    collection.finish()
    assert node_of(collection, A) == first.node
    assert collection.problems() == []


def test_without_a_task_that_chooses_the_lowest_node_wins(nodes: tuple[Part, ...], collection: Collection) -> None:
    first, second, third = nodes
    for node in nodes:
        node.fetch(A)
        node.drop(A)
    third.accept(A)
    assert collection.gather(third, second, first) == 2
    assert node_of(collection, A) == first.node
    assert collection.problems() == []


@pytest.mark.parametrize("heir_first", [False, True])
def test_of_a_page_that_a_former_heir_has_too_the_record_counts_that_was_found_at_the_smallest_depth(
    nodes: tuple[Part, ...], heir_first: bool
) -> None:
    author, heir, _ = nodes
    key = SPEC.key_of(A)
    author.accept(A, depth=1)
    author.fetch(A, [B])
    for kind in (keys.PAGE, keys.LINKS):
        heir.store.put(kind + CRAWL + key, author.store.engine.get(kind + CRAWL + key))
    author.accept(A, depth=0)
    found = b"".join(map(SPEC.key_of, (B, C)))
    author.store.run(partial(tasks.relink, crawl=CRAWL, key=key, link_keys=found, depth=0))
    author.settle(A)
    gathered, merged = Collection(), Collection()
    for kind in GATHERED:
        for node in (heir, author) if heir_first else (author, heir):
            for _, _, rows in node.pages([kind]):
                left = (author.node,) if node is heir else ()
                add = partial(merge_rows, crawl=CRAWL, node=node.node, kind=kind, rows=rows, key_of=SPEC.key_of)
                gathered.store.run(partial(add, left=left))
    assert gathered.finish() == 0
    merged.merge(*((heir, author) if heir_first else (author, heir)))
    for collection in (gathered, merged):
        page = collection.store.run(partial(get_page, crawl=CRAWL, key=key))
        assert page is not None
        assert (page["depth"], collection.store.engine.get(keys.LINKS + CRAWL + key)) == (0, found)


def test_what_did_not_win_goes_when_no_more_will_come(nodes: tuple[Part, ...], collection: Collection) -> None:
    for node in nodes:
        node.accept(A, B)
        node.fetch(A, [B])
        node.settle(A)
    collection.gather(*nodes)
    assert list(collection.store.drop_all(partial(drop_aside, crawl=CRAWL, limit=3))) == [3, 1]
    assert {key[:1] for key, _ in collection.content()} == {b"t", b"q", b"p", b"l", b"w"}
    assert collection.problems() == []


# Tasks and pages that say different things


def test_a_page_counts_although_its_task_is_still_open(nodes: tuple[Part, ...], collection: Collection) -> None:
    first, second, _ = nodes
    first.accept(A)
    second.fetch(A)
    second.drop(A)
    collection.gather(first, second)
    task = collection.store.task(A)
    assert (task.state, task.place and task.place.node) == (State.FETCHED, second.node)
    assert collection.problems() == []
    totals, _ = outputs(collection)
    assert (totals.pages, totals.pending, totals.unsettled) == (1, 0, 1)


def test_a_page_whose_task_nobody_has_is_not_lost(nodes: tuple[Part, ...], collection: Collection) -> None:
    first, second, _ = nodes
    second.fetch(A)
    second.drop(A)
    collection.gather(first, second)
    assert (collection.store.task(A).state, collection.store.task(A).depth) == (State.FETCHED, 1)
    assert collection.problems() == []
    # The node that has it comes back.
    first.accept(A)
    collection.gather(first, second)
    assert collection.store.task(A).order < 1 << 63
    assert collection.problems() == []


def test_a_page_of_a_task_that_was_given_up_is_not_shown(nodes: tuple[Part, ...], collection: Collection) -> None:
    first, second, _ = nodes
    first.accept(A)
    first.kill(A)
    second.accept(A, B)
    second.fetch(A, [B])
    for _ in range(2):
        collection.gather(second, first)
        assert collection.problems() == []
        totals, dirs = outputs(collection)
        assert (totals.pages, totals.pages_missing, skipped(dirs)) == (0, 0, {A: "failed"})


def test_what_is_open_is_queued_once_however_often_it_was_found(
    nodes: tuple[Part, ...], collection: Collection
) -> None:
    for depth, node in enumerate(nodes):
        node.accept(A, depth=3 - depth)
    collection.gather(*nodes)
    ((queued, _),) = collection.store.engine.scan(*keys.bounds(keys.QUEUE, CRAWL))
    assert keys.queue_task(queued) == SPEC.key_of(A)
    assert collection.store.task(A).depth == 1
    assert collection.problems() == []


def test_a_done_page_whose_links_must_go_out_again_stays_marked(
    nodes: tuple[Part, ...], collection: Collection
) -> None:
    first, second, _ = nodes
    for node in (first, second):
        node.accept(A, depth=2)
        node.fetch(A)
        node.settle(A)
    mark = keys.FETCHED + CRAWL + SPEC.key_of(A)
    second.accept(A, depth=1)  # found on a shorter way, but it is not the copy that counts
    collection.gather(first, second)
    assert collection.store.engine.get(mark) is None
    first.accept(A, depth=1)
    collection.gather(first, second)
    assert collection.store.engine.get(mark) == b""
    assert collection.problems() == []


def test_a_skipped_link_has_one_reason_whoever_noted_it_first(nodes: tuple[Part, ...], collection: Collection) -> None:
    for node, reason in zip(nodes, ("nofollow", "depth", "excluded"), strict=True):
        node.store.skip((B, reason))
    collection.gather(*nodes)
    assert skipped(outputs(collection)[1]) == {B: "depth"}


def test_of_pages_with_a_skipped_link_one_is_its_referrer_whoever_noted_it_first(
    nodes: tuple[Part, ...], collection: Collection
) -> None:
    of_an_earlier_version = pack((B, "depth"))
    rows = [of_an_earlier_version, *(pack((B, "depth", referrer)) for referrer in (C, A))]
    for node, row in zip(nodes, rows, strict=True):
        node.store.put(keys.SKIPPED + CRAWL + url_key(B), row)
    collection.gather(*nodes)
    (found,) = lines(outputs(collection)[1].reports, SKIPPED_FILE)
    assert found == {"url": B, "reason": "depth", "referrer": A}


# Bodies that nobody has


def test_a_page_whose_holder_is_missing_is_counted_and_listed(nodes: tuple[Part, ...], collection: Collection) -> None:
    first, second, _ = nodes
    first.accept(A)
    first.fetch(A)
    second.accept(B, C)
    second.fetch(B, [C])
    for url, state in ((A, "done"), (B, "fetched")):
        (first if url == A else second).settle(url) if state == "done" else None
        first.learn(second, url)
        second.learn(first, url)
    first.learn(second, C)
    collection.gather(first)
    totals, dirs = outputs(collection)
    assert (totals.pages, totals.brought, totals.pages_missing) == (1, 2, 1)
    file = f"000102030405-{second.node[:12]}-00000.warc.gz"
    assert lines(dirs.reports, MISSING_FILE) == [{"url": B, "node": second.node, "file": file}]
    assert collection.problems() == [f"{B}: is fetched, but its page record, links or place say otherwise"]
    # It answers again.
    collection.gather(second)
    totals = write(collection.store, dirs)
    assert (totals.pages, totals.pages_missing) == (2, 0)
    assert MISSING_FILE not in dirs.reports.names()
    assert collection.problems() == []


def test_a_page_whose_file_did_not_come_is_listed_too(nodes: tuple[Part, ...], collection: Collection) -> None:
    first, second, _ = nodes
    for node, url in ((first, A), (second, B)):
        node.accept(url)
        node.fetch(url)
    collection.take(first.pages() + second.pages())
    collection.take_files(first)
    collection.finish()
    totals, dirs = outputs(collection)
    assert (totals.pages, totals.pages_missing) == (2, 1)
    assert [row["url"] for row in lines(dirs.reports, MISSING_FILE)] == [B]


# Parts, steps and what is left behind


def test_links_that_broke_off_are_whole_once_they_came_again(nodes: tuple[Part, ...], collection: Collection) -> None:
    first = nodes[0]
    first.accept(A, B, C, D)
    first.fetch(A, [B, C, D])
    parts = first.pages([keys.LINKS], bytes_max=25)
    assert len(parts) == 4
    collection.take([*first.pages([keys.TASK, keys.PAGE]), parts[1], parts[2]])
    collection.finish()
    assert collection.store.engine.get(keys.LINKS + CRAWL + SPEC.key_of(A)) is None
    collection.take(parts)
    collection.finish()
    whole = b"".join(map(SPEC.key_of, [B, C, D]))
    assert collection.store.engine.get(keys.LINKS + CRAWL + SPEC.key_of(A)) == whole


def test_a_step_handles_so_many_bytes_and_no_more(
    nodes: tuple[Part, ...], collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    for node in nodes[:2]:
        node.accept(*URLS)
        for url in URLS:
            node.fetch(url, URLS)
    monkeypatch.setattr(gather, "BYTES_AT_ONCE", 1)
    whole = Collection()
    assert collection.gather(nodes[1], nodes[0]) == 5
    monkeypatch.undo()
    whole.gather(*nodes[:2])
    assert collection.content() == whole.content()


def test_a_forgotten_collection_leaves_nothing(nodes: tuple[Part, ...], collection: Collection) -> None:
    for node in nodes:
        node.accept(A, B)
        node.fetch(A, [B])
        node.robots()
    collection.gather(*nodes)
    record = CrawlRecord(CRAWL, SPEC, b"")
    collection.store.run(partial(catalog.put_crawl, crawl=record))
    assert sum(collection.store.drop_all(partial(catalog.forget, crawl=CRAWL, limit=1000))) > 0
    assert collection.content() == []
