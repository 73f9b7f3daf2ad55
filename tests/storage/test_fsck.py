"""Each fault that is planted is named, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from storage.stores import CRAWL, SPEC, Store, archive_in, exchanges, link, page

from dhtcrawl.keyspace import host_key
from dhtcrawl.storage.store import fsck, keys
from dhtcrawl.storage.store.files import MemoryDirectory
from dhtcrawl.storage.store.records import pack, unpack

PENDING, FETCHED, DONE, DEAD = (f"http://a.example/{name}" for name in ("pending", "fetched", "done", "dead"))
FILE = "000102030405-abababababab-00000.warc.gz"


@dataclass
class Planted:
    """A sound store with a task in each state, and its archive."""

    store: Store
    archive: MemoryDirectory

    def key(self, kind: bytes, url: str) -> bytes:
        return keys.key(kind, CRAWL, SPEC.key_of(url))

    def remove(self, kind: bytes, url: str) -> None:
        assert self.store.engine.get(self.key(kind, url)) is not None
        self.store.put(self.key(kind, url), None)

    def add(self, kind: bytes, url: str, value: bytes = b"") -> None:
        self.store.put(self.key(kind, url), value)

    def change(self, url: str, /, **fields: Any) -> None:
        self.add(keys.TASK, url, self.store.task(url)._replace(**fields).pack())

    def queue_entry(self, url: str, *, depth: int = 1, host: str = "a.example") -> bytes:
        return keys.queue_key(CRAWL, host_key(host), depth, self.store.task(url).order, SPEC.key_of(url))

    def problems(self) -> list[str]:
        return self.store.fsck(self.archive).problems


@pytest.fixture
def planted() -> Planted:
    store, directory, items = Store(), MemoryDirectory(), exchanges()
    archive = archive_in(directory)
    store.participants = [archive]
    store.accept(*(link(url) for url in (PENDING, FETCHED, DONE, DEAD)))
    for url in (FETCHED, DONE):
        store.fetched(page(url, links=[PENDING, DEAD]), archive.append(next(items))[0])
    store.settle(DONE)
    store.kill(DEAD)
    place, digest = archive.append(next(items))
    entry = page("http://a.example/robots.txt").fields | {"place": place, "payload_digest": digest}
    store.run(lambda txn: txn.put(keys.extra_key(CRAWL, place.file, place.offset), pack(entry)))
    return Planted(store, directory)


def test_a_sound_store_has_no_problems(planted: Planted) -> None:
    findings = planted.store.fsck(planted.archive)
    assert (findings.problems, findings.problems_total) == ([], 0)
    assert (findings.tasks, findings.pages, findings.links) == (4, 2, 2)


def undecodable(planted: Planted) -> None:
    planted.add(keys.TASK, PENDING, b"\1\xc1")


def newer(planted: Planted) -> None:
    planted.add(keys.TASK, DONE, b"\2")


def wrong_shape(planted: Planted) -> None:
    planted.add(keys.TASK, DONE, pack(["too", "short"]))


def no_url(planted: Planted) -> None:
    planted.change(DONE, url="no URL")


def other_key(planted: Planted) -> None:
    planted.change(DEAD, url="http://a.example/other")


def not_queued(planted: Planted) -> None:
    planted.store.put(planted.queue_entry(PENDING), None)


def queued_at_another_depth(planted: Planted) -> None:
    planted.store.put(planted.queue_entry(PENDING, depth=2), b"")


def queued_with_another_host(planted: Planted) -> None:
    planted.store.put(planted.queue_entry(PENDING, host="b.example"), b"")


def done_and_queued(planted: Planted) -> None:
    planted.store.put(planted.queue_entry(DONE), b"")


def done_and_queued_at_another_depth(planted: Planted) -> None:
    planted.store.put(planted.queue_entry(DONE, depth=9), b"")


def dead_and_queued(planted: Planted) -> None:
    planted.store.put(planted.queue_entry(DEAD), b"")


def queue_without_task(planted: Planted) -> None:
    planted.remove(keys.TASK, PENDING)


def no_page(planted: Planted) -> None:
    planted.remove(keys.PAGE, DONE)


def no_links(planted: Planted) -> None:
    planted.remove(keys.LINKS, FETCHED)


def no_place(planted: Planted) -> None:
    planted.change(DONE, place=None)


def dead_with_page(planted: Planted) -> None:
    planted.add(keys.PAGE, DEAD, planted.store.engine.get(planted.key(keys.PAGE, DONE)) or b"")


def no_mark(planted: Planted) -> None:
    planted.remove(keys.FETCHED, FETCHED)


def pending_and_marked(planted: Planted) -> None:
    planted.add(keys.FETCHED, PENDING)


def dead_and_marked(planted: Planted) -> None:
    planted.add(keys.FETCHED, DEAD)


def no_reason(planted: Planted) -> None:
    planted.change(DEAD, reason="")


def lost_link(planted: Planted) -> None:
    planted.add(keys.LINKS, DONE, SPEC.key_of("http://a.example/lost"))


def torn_links(planted: Planted) -> None:
    planted.add(keys.LINKS, DONE, SPEC.key_of(PENDING)[:-1])


def orphans(planted: Planted) -> None:
    for kind in (keys.PAGE, keys.LINKS, keys.FETCHED):
        value = planted.store.engine.get(planted.key(kind, FETCHED))
        planted.add(kind, "http://a.example/nobody", value or b"")


def file_gone(planted: Planted) -> None:
    planted.archive.remove(FILE)


def file_short(planted: Planted) -> None:
    planted.archive.files[FILE].pop()


def committed_unreadable(planted: Planted) -> None:
    planted.store.put(keys.ARCHIVE + CRAWL + FILE.encode(), b"\1\xc1")


def behind_the_end(planted: Planted) -> None:
    value = unpack(planted.store.engine.get(planted.key(keys.PAGE, DONE)) or b"")
    node, file, offset, length = value["place"]
    planted.add(keys.PAGE, DONE, pack({**value, "place": (node, file, offset + 1_000_000, length)}))


def page_unreadable(planted: Planted) -> None:
    planted.add(keys.PAGE, DONE, b"\1\xc1")


def page_without_place(planted: Planted) -> None:
    planted.add(keys.PAGE, DONE, pack({"url": DONE}))


def index_behind_the_end(planted: Planted) -> None:
    ((key, value),) = planted.store.engine.scan(*keys.bounds(keys.EXTRA, CRAWL))
    planted.store.put(key, pack({**unpack(value), "place": ("n", "gone.warc.gz", 0, 1)}))


@pytest.mark.parametrize(
    ("plant", "named"),
    [
        (undecodable, ["task {PENDING:key}: unreadable record"]),
        (newer, ["task {DONE:key}: unreadable record"]),
        (wrong_shape, ["task {DONE:key}: unreadable record"]),
        (no_url, ["task {DONE:key}: unreadable record"]),
        (other_key, ["http://a.example/other: lies under the key of another URL"]),
        (not_queued, [f"{PENDING}: is pending, but not in its host's queue"]),
        (queued_at_another_depth, [f"{PENDING}: has a stray entry in its host's queue"]),
        (queued_with_another_host, [f"{PENDING}: has a stray entry in its host's queue"]),
        (done_and_queued, [f"{DONE}: is done, but still in its host's queue"]),
        (done_and_queued_at_another_depth, [f"{DONE}: has a stray entry in its host's queue"]),
        (dead_and_queued, [f"{DEAD}: is dead, but still in its host's queue"]),
        (
            queue_without_task,
            [
                f"{DONE}: is done, but its link {{PENDING:key}} has no record",
                "queue entry of {PENDING:key}: there is no such task",
            ],
        ),
        (no_page, [f"{DONE}: is done, but its page record, links or place say otherwise"]),
        (no_links, [f"{FETCHED}: is fetched, but its page record, links or place say otherwise"]),
        (no_place, [f"{DONE}: is done, but its page record, links or place say otherwise"]),
        (dead_with_page, [f"{DEAD}: is dead, but its page record, links or place say otherwise"]),
        (no_mark, [f"{FETCHED}: is fetched, but a restart would not go on with it"]),
        (pending_and_marked, [f"{PENDING}: is pending, but a restart would take it for fetched"]),
        (dead_and_marked, [f"{DEAD}: is dead, but a restart would take it for fetched"]),
        (no_reason, [f"{DEAD}: is dead without a reason"]),
        (lost_link, [f"{DONE}: is done, but its link {SPEC.key_of('http://a.example/lost').hex()} has no record"]),
        (torn_links, [f"{DONE}: is done, but its link {SPEC.key_of(PENDING)[:-1].hex()} has no record"]),
        (
            orphans,
            [
                f"{what} of {SPEC.key_of('http://a.example/nobody').hex()}: there is no such task"
                for what in ("page record", "link keys", "mark")
            ],
        ),
        (file_gone, [f"{FILE}: {{SIZE}} bytes are committed, but the file is gone"]),
        (file_short, [f"{FILE}: is shorter than the {{SIZE}} bytes that are committed"]),
        (
            committed_unreadable,
            [
                f"{FILE}: unreadable record of how much is committed",
                f"{FETCHED}: its body would lie behind the end of {FILE}",
                f"{DONE}: its body would lie behind the end of {FILE}",
                f"http://a.example/robots.txt: its body would lie behind the end of {FILE}",
            ],
        ),
        (behind_the_end, [f"{DONE}: its body would lie behind the end of {FILE}"]),
        (page_unreadable, ["page record of {DONE:key}: unreadable"]),
        (page_without_place, ["page record of {DONE:key}: unreadable"]),
        (index_behind_the_end, ["http://a.example/robots.txt: its body would lie behind the end of gone.warc.gz"]),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_planted_fault_is_named_and_nothing_else_is(
    planted: Planted, plant: Callable[[Planted], None], named: list[str]
) -> None:
    size = str(len(planted.archive.files[FILE]))
    plant(planted)
    expected = [
        text.replace("{PENDING:key}", SPEC.key_of(PENDING).hex())
        .replace("{DONE:key}", SPEC.key_of(DONE).hex())
        .replace("{SIZE}", size)
        for text in named
    ]
    assert sorted(planted.problems()) == sorted(expected)


def test_a_page_that_must_send_its_links_again_may_miss_some_until_then(planted: Planted) -> None:
    planted.store.accept(link(DONE, 0))
    planted.add(keys.LINKS, DONE, SPEC.key_of("http://a.example/not yet"))
    assert planted.problems() == []


def test_without_an_archive_the_files_are_left_out(planted: Planted) -> None:
    pages = planted.store.fsck(planted.archive).pages
    planted.archive.remove(FILE)
    findings = planted.store.fsck(None)
    assert (findings.problems, findings.pages) == ([], pages)
    assert pages


def test_a_problem_too_many_is_counted_but_not_kept(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fsck, "PROBLEMS_KEPT_MAX", 2)
    orphans(planted)
    findings = planted.store.fsck(planted.archive)
    assert (len(findings.problems), findings.problems_total) == (2, 3)


def test_fsck_writes_nothing(planted: Planted) -> None:
    orphans(planted)
    before = dict(planted.store.engine.scan(b"", b"\xff"))
    planted.problems()
    assert dict(planted.store.engine.scan(b"", b"\xff")) == before


KINDS = [keys.TASK, keys.PAGE, keys.LINKS, keys.ARCHIVE, keys.EXTRA, keys.QUEUE]


@given(kind=st.sampled_from(KINDS), value=st.binary(max_size=30), version=st.booleans())
def test_whatever_a_record_holds_fsck_goes_on(kind: bytes, value: bytes, version: bool) -> None:
    store = Store()
    store.accept(link(PENDING), link(DONE))
    store.fetched(page(DONE))
    rest = {keys.ARCHIVE: FILE.encode(), keys.EXTRA: b"f" + bytes(8), keys.QUEUE: value}.get(kind, SPEC.key_of(DONE))
    store.put(keys.key(kind, CRAWL, rest), b"\1" + value if version else value)
    directory = MemoryDirectory()
    directory.open(FILE, 0).append(b"12345")
    store.fsck(directory)
