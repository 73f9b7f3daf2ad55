"""Several nodes' stores and archives of one crawl, and a collection that their rows and files are brought into."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from storage.stores import CRAWL, SPEC, Store, archive_in, exchanges, link, page

from dhtcrawl.storage.archive import body_copies
from dhtcrawl.storage.archive.names import COPIES as COPIES_SERIES
from dhtcrawl.storage.collect.export import ROWS_BYTES, export_chunk, export_files, export_rows
from dhtcrawl.storage.collect.gather import COPIES, GATHERED, GatherProgress, Phase, finish, merge_rows, wanted_files
from dhtcrawl.storage.collect.merge_stores import MERGED, EndedStore, merge_skipped, merge_tasks
from dhtcrawl.storage.store import fsck, keys, replicas, tasks
from dhtcrawl.storage.store.files import MemoryDirectory
from dhtcrawl.storage.store.records import holds_copies, merge, pack, unpack, unpack_task
from dhtcrawl.storage.store.txn import Txn

NODES = tuple(letter * 40 for letter in "abc")
Page = tuple[str, bytes, list[tuple[bytes, bytes]]]  # node, kind, rows


class Part:
    """One node's part of the crawl."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.store = Store()
        self.directory = MemoryDirectory()
        self._archive = archive_in(self.directory, node=node)
        self.copies = archive_in(self.directory, node=node, series=COPIES_SERIES)
        self.store.participants = [self._archive, self.copies]

    def accept(self, *urls: str, depth: int = 1) -> None:
        self.store.accept(*(link(url, depth) for url in urls))

    def fetch(self, url: str, links: Iterable[str] = (), skipped: Iterable[tuple[str, str]] = ()) -> None:
        """Fetch a page, whether the task is known here or not."""
        place, digest = self._archive.append(next(exchanges(url)))
        found = page(url, links=links, skipped=skipped, payload_digest=digest, node=self.node, referrer=None)
        self.store.run(lambda txn: tasks.fetched(txn, CRAWL, found, place, 0))

    def copy(self, other: Part, url: str) -> bool:
        """Take a copy of a page that another node has; whether it has one."""
        key = SPEC.key_of(url)
        sent = other.store.run(partial(body_copies.parcel, crawl=CRAWL, archive=other.directory, key=key))
        data = None if sent is None else body_copies.members(other.directory, sent)
        if sent is None or data is None:
            return False
        fields = unpack(sent.record)
        assert body_copies.is_page(io.BytesIO(data), fields, sent.place.length)

        def write(txn: Txn) -> None:
            place = self.copies.append_members(data, sent.place.length)
            body_copies.put_copy(txn, CRAWL, key, fields, sent.links, place)

        self.store.run(write)
        return True

    def robots(self) -> None:
        """Archive a robots.txt."""
        url = "http://a.example/robots.txt"
        place, digest = self._archive.append(next(exchanges(url)))
        fields = {k: v for k, v in page(url).fields.items() if k in ("url", "status", "fetched_at", "mime")}
        entry = pack({**fields, "payload_digest": digest, "place": place})
        self.store.run(lambda txn: txn.put(keys.extra_key(CRAWL, place.file, place.offset), entry))

    def settle(self, url: str) -> None:
        self.store.run(lambda txn: tasks.settle(txn, CRAWL, SPEC.key_of(url)))

    def kill(self, url: str, reason: str = "failed") -> None:
        self.store.run(lambda txn: tasks.kill(txn, CRAWL, SPEC.key_of(url), reason, "", 1))

    def learn(self, other: Part, url: str) -> None:
        """Take over another node's record of a task, as a backup does."""
        key = keys.TASK + CRAWL + SPEC.key_of(url)
        theirs, ours = other.store.engine.get(key), self.store.engine.get(key)
        if theirs is not None:
            self.store.put(key, theirs if ours is None else merge(unpack_task(ours), unpack_task(theirs)).pack())

    def reopen(self, *urls: str) -> None:
        """Open pages again, as their owner does when nobody has their bodies."""
        self.store.run(
            lambda txn: replicas.reopen(
                txn, CRAWL, map(SPEC.key_of, urls), when=lambda _: True, mine=lambda _: True, held=lambda _: False
            )
        )

    def drop(self, url: str) -> None:
        """Let go of a task's record, as after a hand-over; page and links stay."""
        self.store.put(keys.TASK + CRAWL + SPEC.key_of(url), None)

    def knows(self, url: str) -> bool:
        return self.store.engine.get(keys.TASK + CRAWL + SPEC.key_of(url)) is not None

    def pages(self, kinds: Sequence[bytes] = GATHERED, bytes_max: int = ROWS_BYTES) -> list[Page]:
        """All that it hands out."""
        found: list[Page] = []
        for kind in kinds:
            cursor: bytes | None = b""
            while cursor is not None:
                rows, cursor = self.store.run(
                    partial(export_rows, crawl=CRAWL, kind=kind, cursor=cursor, bytes_max=bytes_max)
                )
                found.append((self.node, kind, rows))
        return found


class Collection:
    """Where it all comes together."""

    def __init__(self) -> None:
        self.store = Store()
        self.directory = MemoryDirectory()

    def take(self, pages: Iterable[Page]) -> None:
        for node, kind, rows in pages:
            self.store.run(partial(merge_rows, crawl=CRAWL, node=node, kind=kind, rows=rows, key_of=SPEC.key_of))

    def take_files(self, *nodes: Part, copies: Callable[[str], bool] = lambda name: True) -> None:
        """The files of some nodes; of those with copies the ones that `copies` says."""
        for node in nodes:
            for name, length in node.store.run(lambda txn: export_files(txn, CRAWL)):
                if holds_copies(name) and not copies(name):
                    continue
                chunk = node.store.run(
                    partial(export_chunk, crawl=CRAWL, archive=node.directory, name=name, offset=0, limit=1 << 20)
                )
                assert len(chunk) == length
                self.directory.open(name, 0).append(chunk)
                self.store.put(keys.ARCHIVE + CRAWL + name.encode(), pack(length))

    def finish(self, keys_max: int = 1000) -> int:
        """How many page rows there were beyond one a key."""
        at = GatherProgress()
        while at.phase != Phase.OVER:
            at = self.store.run(partial(finish, crawl=CRAWL, at=at, keys_max=keys_max))
        return at.refetches

    def gather(self, *nodes: Part, bytes_max: int = ROWS_BYTES) -> int:
        for kinds in (GATHERED, COPIES):
            for node in nodes:
                self.take(node.pages(kinds, bytes_max=bytes_max))
        self.take_files(*nodes, copies=lambda name: False)
        self.finish()
        wanted = self.wanted()
        self.take_files(*nodes, copies=lambda name: name in wanted)
        return self.finish()

    def merge(self, *nodes: Part, keys_max: int = 1000) -> int:
        """What `gather` does, with stores that lie open."""
        unsettled = False
        stores = [EndedStore(node.node, Txn(node.store.engine, {}), lambda: None) for node in nodes]
        for step in (merge_tasks, merge_skipped):
            cursor: bytes | None = b""
            while cursor is not None:
                done = self.store.run(partial(step, crawl=CRAWL, stores=stores, cursor=cursor, keys_max=keys_max))
                cursor, unsettled = done.cursor, unsettled or done.unsettled
        for node in nodes:
            rest = node.pages([kind for kind in (*GATHERED, *COPIES) if kind not in MERGED])
            self.take(rest)
            unsettled |= any(rows for _, kind, rows in rest if kind != keys.EXTRA)
        self.take_files(*nodes, copies=lambda name: False)
        return self.finish() if unsettled else 0

    def wanted(self, keys_max: int = 1000) -> set[str]:
        """The files of copies that are needed."""
        found: set[str] = set()
        cursor: bytes | None = b""
        while cursor is not None:
            some, cursor = self.store.run(partial(wanted_files, crawl=CRAWL, cursor=cursor, keys_max=keys_max))
            found |= some
        return found

    def content(self) -> list[tuple[bytes, bytes]]:
        return list(self.store.engine.scan(b"", b"\xff"))

    def problems(self) -> list[str]:
        return self.store.run(lambda txn: fsck.check(txn, CRAWL, SPEC, self.directory)).problems
