"""The store of a node of a swarm: what it shares with others is no fault, what is its own still has to fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from storage.stores import CRAWL, NODE, PLACE, SPEC, Store, link, page

from dhtcrawl.keyspace import host_key
from dhtcrawl.storage.archive import body_copies
from dhtcrawl.storage.store import catalog, keys
from dhtcrawl.storage.store.files import MemoryDirectory
from dhtcrawl.storage.store.records import Place, State, Task, pack

HERE, DONE_HERE, THERE, DEAD, OPEN = (
    f"http://a.example/{name}" for name in ("here", "done-here", "there", "dead", "open")
)
AWAY = Place("cd" * 20, "b.warc.gz", 0, 10)


class Swarm:
    """A sound store of a swarm's node: own pages, and copies of others' tasks."""

    def __init__(self) -> None:
        self.store = Store()
        self.store.run(lambda txn: catalog.mark_swarm(txn, NODE))
        self.store.accept(link(HERE), link(DONE_HERE))
        self.store.fetched(page(HERE, links=["http://elsewhere.example/"]))
        self.store.fetched(page(DONE_HERE, links=["http://elsewhere.example/"]))
        self.store.settle(DONE_HERE)
        self.put(THERE, state=State.DONE, place=AWAY)
        self.put(DEAD, state=State.DEAD, reason="robots")
        self.put(OPEN)

    def put(self, url: str, /, **fields: Any) -> None:
        self.store.put(self.key(keys.TASK, url), Task(url, 1, 9, "")._replace(**fields).pack())

    def change(self, url: str, /, **fields: Any) -> None:
        self.store.put(self.key(keys.TASK, url), self.store.task(url)._replace(**fields).pack())

    def key(self, kind: bytes, url: str) -> bytes:
        return keys.key(kind, CRAWL, SPEC.key_of(url))

    def remove(self, kind: bytes, url: str) -> None:
        self.store.put(self.key(kind, url), None)

    def enqueue(self, url: str) -> None:
        task = self.store.task(url)
        entry = keys.queue_key(CRAWL, host_key("a.example"), task.depth, task.order, SPEC.key_of(url))
        self.store.put(entry, b"")

    def copy(self, url: str) -> None:
        """Keep a copy of another node's page."""
        key, fields = SPEC.key_of(url), page(url, node=AWAY.node).fields
        self.store.run(lambda txn: body_copies.put_copy(txn, CRAWL, key, fields, b"", PLACE))

    def problems(self) -> list[str]:
        return self.store.fsck().problems


def nothing(_: Swarm) -> None:
    pass


def queued(swarm: Swarm) -> None:
    swarm.enqueue(OPEN)


def another_copy_won(swarm: Swarm) -> None:
    swarm.change(DONE_HERE, place=AWAY)


def another_copy_won_before_our_links_were_out(swarm: Swarm) -> None:
    swarm.change(HERE, place=AWAY)


def opened_again_while_we_were_away(swarm: Swarm) -> None:
    swarm.change(DONE_HERE, state=State.PENDING, gen=1, place=None)
    swarm.enqueue(DONE_HERE)


def given_up_elsewhere(swarm: Swarm) -> None:
    swarm.change(HERE, state=State.DEAD, reason="failed", place=None)


def task_handed_over(swarm: Swarm) -> None:
    swarm.remove(keys.TASK, DONE_HERE)


def shorter_way_to_a_page_of_ours(swarm: Swarm) -> None:
    swarm.store.put(swarm.key(keys.FETCHED, DONE_HERE), b"")


def copied(swarm: Swarm) -> None:
    swarm.store.put(swarm.key(keys.HOLDERS, DONE_HERE), b"")
    swarm.copy(THERE)


def a_copy_stands_in(swarm: Swarm) -> None:
    swarm.copy(THERE)
    key = SPEC.key_of(THERE)
    swarm.store.run(lambda txn: body_copies.stand_in(txn, CRAWL, [key], {NODE}))


@pytest.mark.parametrize(
    "happened",
    [
        nothing,
        queued,
        another_copy_won,
        another_copy_won_before_our_links_were_out,
        opened_again_while_we_were_away,
        given_up_elsewhere,
        task_handed_over,
        shorter_way_to_a_page_of_ours,
        copied,
        a_copy_stands_in,
    ],
    ids=lambda value: value.__name__,
)
def test_what_happens_in_a_swarm_is_no_fault(happened: Callable[[Swarm], None]) -> None:
    swarm = Swarm()
    happened(swarm)
    assert swarm.problems() == []


def done_and_queued(swarm: Swarm) -> None:
    swarm.enqueue(THERE)


def queued_twice(swarm: Swarm) -> None:
    swarm.enqueue(OPEN)
    swarm.change(OPEN, depth=0)


def no_place(swarm: Swarm) -> None:
    swarm.change(THERE, place=None)


def open_with_a_place(swarm: Swarm) -> None:
    swarm.change(OPEN, place=AWAY)


def our_page_is_gone(swarm: Swarm) -> None:
    swarm.remove(keys.PAGE, DONE_HERE)
    swarm.remove(keys.LINKS, DONE_HERE)


def our_links_are_gone(swarm: Swarm) -> None:
    swarm.remove(keys.LINKS, DONE_HERE)


def mark_is_gone(swarm: Swarm) -> None:
    swarm.remove(keys.FETCHED, HERE)


def mark_without_a_page(swarm: Swarm) -> None:
    swarm.store.put(swarm.key(keys.FETCHED, THERE), b"")


def mark_without_a_task(swarm: Swarm) -> None:
    swarm.remove(keys.TASK, HERE)


def dead_without_a_reason(swarm: Swarm) -> None:
    swarm.change(DEAD, reason="")


def copy_without_links(swarm: Swarm) -> None:
    swarm.copy(THERE)
    swarm.remove(keys.COPY_LINKS, THERE)


def copies_of_nothing(swarm: Swarm) -> None:
    swarm.store.put(swarm.key(keys.HOLDERS, THERE), b"")


@pytest.mark.parametrize(
    ("plant", "named"),
    [
        (done_and_queued, f"{THERE}: is done, but still in its host's queue"),
        (queued_twice, f"{OPEN}: has a stray entry in its host's queue"),
        (no_place, f"{THERE}: is done, but its page record, links or place say otherwise"),
        (open_with_a_place, f"{OPEN}: is pending, but its page record, links or place say otherwise"),
        (our_page_is_gone, f"{DONE_HERE}: is done, but its page record, links or place say otherwise"),
        (our_links_are_gone, f"page record of {SPEC.key_of(DONE_HERE).hex()}: there are no such link keys"),
        (mark_is_gone, f"{HERE}: is fetched, but a restart would not go on with it"),
        (mark_without_a_page, f"{THERE}: is done, but a restart would take it for fetched"),
        (mark_without_a_task, f"mark of {SPEC.key_of(HERE).hex()}: there is no such task"),
        (dead_without_a_reason, f"{DEAD}: is dead without a reason"),
        (copy_without_links, f"copied page of {SPEC.key_of(THERE).hex()}: there are no such link keys of a copy"),
        (copies_of_nothing, f"list of copies of {SPEC.key_of(THERE).hex()}: there is no such page record"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_planted_fault_is_named_and_nothing_else_is(plant: Callable[[Swarm], None], named: str) -> None:
    swarm = Swarm()
    plant(swarm)
    assert swarm.problems() == [named]


def test_without_the_mark_copies_are_faults() -> None:
    swarm = Swarm()
    swarm.store.put(keys.SWARM_KEY, None)
    assert f"{OPEN}: is pending, but not in its host's queue" in swarm.problems()
    assert f"{THERE}: is done, but its page record, links or place say otherwise" in swarm.problems()


def test_the_mark_is_written_once_and_read_back() -> None:
    store = Store()
    assert store.run(catalog.swarm_node) is None
    store.run(lambda txn: catalog.mark_swarm(txn, NODE))
    assert store.run(catalog.swarm_node) == NODE
    before = dict(store.engine.scan(b"", b"\xff"))
    store.run(lambda txn: catalog.mark_swarm(txn, NODE))
    assert dict(store.engine.scan(b"", b"\xff")) == before


def test_a_copy_beyond_the_end_of_its_file_is_a_fault() -> None:
    swarm, directory = Swarm(), MemoryDirectory()
    directory.open(PLACE.file, 0).append(bytes(PLACE.length))
    swarm.store.put(keys.ARCHIVE + CRAWL + PLACE.file.encode(), pack(PLACE.length))
    swarm.copy(THERE)
    assert swarm.store.fsck(directory).problems == []
    swarm.store.put(keys.ARCHIVE + CRAWL + PLACE.file.encode(), pack(PLACE.length - 1))
    assert f"{THERE}: its body would lie behind the end of {PLACE.file}" in swarm.store.fsck(directory).problems
