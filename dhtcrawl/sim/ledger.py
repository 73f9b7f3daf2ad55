"""What is on all disks of a simulated swarm, kept up with every write, from outside the nodes.

A disk reports what it writes through `WatchedEngine`; the ledger keeps a rank
for each task record on each disk, which bodies lie there, and remembers who
ever had a record. Ranks are written down here anew, from invariant I2, not
taken from the code that merges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.bequests import last_of
from dhtcrawl.storage.store.memory import MemoryEngine
from dhtcrawl.storage.store.records import Place, State, unpack, unpack_task
from dhtcrawl.storage.store.tasks import link_keys_of
from dhtcrawl.storage.store.txn import Batch

# A disk that was lost a moment ago counts for what was decided while it was there.
LOST_LATELY_S = 30.0


class WatchedEngine(MemoryEngine):
    """A disk that says what is written to it."""

    def __init__(self, wrote: Callable[[Mapping[bytes, bytes | None]], None]) -> None:
        super().__init__()
        self._wrote = wrote

    def write(self, batch: Batch, *, sync: bool) -> None:
        super().write(batch, sync=sync)
        self._wrote(batch)


class Rank(NamedTuple):
    """How far a record is, as I2 orders copies of it."""

    gen: int
    settled: int  # done, then dead, beats any attempt
    attempt: int
    state: int

    @property
    def over(self) -> bool:
        """Done or dead: a tombstone."""
        return self.settled > 0

    @property
    def arrived(self) -> bool:
        """Whether no node has reason to fetch it."""
        return self.state >= State.FETCHED

    def beyond(self, other: Rank) -> bool:
        """Whether it is further. Of two that are done in one generation neither is: they merge to the lower attempt."""
        both_done = self.gen == other.gen and self.state == other.state == State.DONE
        return self > other and not both_done

    @property
    def words(self) -> str:
        if self.gen < 0:
            return "nothing"
        return f"{State(self.state).name.lower()}, generation {self.gen}, attempt {self.attempt}"


def rank_of(state: int, gen: int, attempt: int) -> Rank:
    """How far a record is that says this."""
    return Rank(gen, int(state) if state >= State.DEAD else 0, attempt, int(state))


NOTHING = Rank(-1, 0, 0, 0)


@dataclass(eq=False, slots=True)
class DiskBook:
    """One disk."""

    name: str
    node: bytes
    tasks: dict[bytes, Rank] = field(default_factory=dict, init=False)
    since: dict[bytes, float] = field(default_factory=dict, init=False)  # when a record there last got further
    # What the disk numbers a record with when it comes there, and where the body of its page lies, as it says there.
    orders: dict[bytes, int] = field(default_factory=dict, init=False)
    places: dict[bytes, Place] = field(default_factory=dict, init=False)
    files: dict[str, int] = field(default_factory=dict, init=False)  # archive file → how much of it is committed
    copies: dict[bytes, Place] = field(default_factory=dict, init=False)  # bodies of other nodes' pages, by task
    pages: dict[bytes, None] = field(default_factory=dict, init=False)  # tasks whose page record is here
    unsent: dict[bytes, None] = field(default_factory=dict, init=False)  # tasks whose links are still to be told
    crawl: CrawlBook | None = field(default=None, init=False)
    lost_at: float | None = field(default=None, init=False)

    def bodies(self, key: bytes, place: Place) -> Iterator[Place]:
        """Where the body of a page may lie here: in the file that its record names, or as a copy."""
        copied = self.copies.get(key)
        # An heir has it with its page record, which comes last.
        here = place.node == self.node.hex() or key in self.pages
        for each in (place if here else None, copied):
            if each is not None and self.files.get(each.file, -1) >= each.offset + each.length:
                yield each


class CrawlBook(NamedTuple):
    """What a crawl's record says of its end; of two the one with the higher version counts."""

    version: int
    ended: str


class Deleted(NamedTuple):
    """A record left a disk."""

    key: bytes
    rank: Rank


class Reopened(NamedTuple):
    """A record is of a later generation than before, and to be fetched; where its body lay."""

    key: bytes
    gen: int
    place: Place | None


class Finished(NamedTuple):
    """A page is done where it lies, and what its node found on it is no longer to be sent: its links, by task key.

    The word of another node that fetched it, too, makes a page done sooner than that.
    """

    key: bytes
    links: list[bytes]


class Changes(NamedTuple):
    """What one write amounts to, for who judges it."""

    backwards: list[tuple[bytes, Rank, Rank]]
    deleted: list[Deleted]
    finished: list[Finished]
    reopened: list[Reopened]
    crawl: CrawlBook | None  # the crawl's record was written


class Ledger:
    """Holds the rank of each task of a crawl on each disk."""

    def __init__(self, time: Callable[[], float], key_bytes: int) -> None:
        self.disks: list[DiskBook] = []
        self.ever: dict[bytes, dict[int, None]] = {}  # task → numbers of the disks that had its record
        self.best: dict[bytes, Rank] = {}  # the furthest that any disk has seen
        self.over_at: dict[bytes, float] = {}  # when it became a tombstone somewhere
        self.url: dict[bytes, str] = {}
        self.moved_at = 0.0  # when anything last got further
        self._bequests: dict[str, tuple[int, str]] = {}  # node that left → number of what it signed last, and its heir
        self._time = time
        self._key_bytes = key_bytes

    def open(self, name: str, node: bytes) -> int:
        self.disks.append(DiskBook(name, node))
        return len(self.disks) - 1

    def wrote(self, number: int, batch: Mapping[bytes, bytes | None], get: Callable[[bytes], bytes | None]) -> Changes:
        """A disk has written; `get` reads from it."""
        changes, disk = Changes([], [], [], [], None), self.disks[number]
        for full, value in batch.items():
            kind = full[:1]
            if kind == keys.TASK:
                self._task(number, full, value, get, changes)
            elif kind == keys.FETCHED and value is not None:
                disk.unsent[keys.suffix(full)] = None
            elif kind == keys.FETCHED:
                disk.unsent.pop(keys.suffix(full), None)
                self._finished(number, full, get, changes)
            elif kind == keys.ARCHIVE and value is not None:
                disk.files[keys.suffix(full).decode()] = unpack(value)
            elif kind == keys.PAGE and value is not None:
                disk.pages[keys.suffix(full)] = None
            elif kind == keys.COPY:
                _note_copy(disk, keys.suffix(full), value)
            elif kind == keys.CRAWL and value is not None:
                record = unpack(value)
                self._note_bequests(record.get("bequests", {}))
                disk.crawl = CrawlBook(record.get("version", 0), record.get("ended", ""))
                changes = changes._replace(crawl=disk.crawl)
        return changes

    @property
    def waiting(self) -> set[str]:
        """The URLs that a disk has a record of, and no disk one that says how its page ended."""
        return {self.url[key] for key, best in self.best.items() if best is not NOTHING and not best.arrived}

    @property
    def unsent(self) -> set[str]:
        """The URLs of pages that are there, and of whose links some wait to be acknowledged."""
        return {self.url[key] for disk in self.disks if disk.lost_at is None for key in disk.unsent}

    def with_body(self, key: bytes, place: Place) -> Iterator[tuple[int, DiskBook]]:
        """The disks where the body of a page lies, with their numbers.

        A node that was to be the heir of another, and did not become it, may have rows of that: no record leads there.
        """
        for number, disk in enumerate(self.disks):
            if any(self._leads_to(each.node, disk.node.hex()) for each in disk.bodies(key, place)):
                yield number, disk

    def name(self, key: bytes) -> str:
        return self.url.get(key, key.hex())

    def copies(self, key: bytes, at_least: Rank, besides: int | None = None) -> int:
        """Disks that have a record at least so far, those lost a moment ago included."""
        now = self._time()
        return sum(
            1
            for number, disk in enumerate(self.disks)
            if number != besides
            and (disk.lost_at is None or now - disk.lost_at < LOST_LATELY_S)
            and not at_least.beyond(disk.tasks.get(key, NOTHING))
        )

    def remains(self, key: bytes) -> bool:
        return any(disk.lost_at is None and key in disk.tasks for disk in self.disks)

    def lose(self, number: int) -> None:
        lost = self.disks[number]
        lost.lost_at = self._time()
        left = [disk.tasks for disk in self.disks if disk.lost_at is None]
        for key, rank in lost.tasks.items():
            if rank == self.best[key]:
                self.best[key] = max((tasks[key] for tasks in left if key in tasks), default=NOTHING)
                if not self.best[key].over:
                    self.over_at.pop(key, None)

    def _task(
        self, number: int, full: bytes, value: bytes | None, get: Callable[[bytes], bytes | None], changes: Changes
    ) -> None:
        disk, key = self.disks[number], keys.suffix(full)
        before = disk.tasks.get(key)
        task = None if value is None else unpack_task(value)
        if before is not None and (task is None or task.order != disk.orders[key]):
            # Gone; and come again, if need be: one batch has what happened a moment after the other.
            del disk.tasks[key], disk.since[key], disk.orders[key]
            disk.places.pop(key, None)
            changes.deleted.append(Deleted(key, before))
            before = None
        if task is None:
            return
        disk.orders[key] = task.order
        rank = rank_of(task.state, task.gen, task.attempt)
        disk.tasks[key] = rank
        if rank != before:
            disk.since[key] = self._time()
        if before is not None and rank.gen > before.gen and not rank.arrived:
            changes.reopened.append(Reopened(key, rank.gen, disk.places.get(key)))
        if before is not None and before.beyond(rank):
            changes.backwards.append((key, before, rank))
        if rank > self.best.get(key, NOTHING):
            self._further(key, rank)
        if task.place is not None:
            disk.places[key] = task.place
        if key not in self.ever:
            self.ever[key] = {}
            self.url[key] = task.url
        self.ever[key][number] = None
        if rank.state == State.DONE and (before is None or before.state != State.DONE):
            self._finished(number, full, get, changes)

    def _finished(self, number: int, full: bytes, get: Callable[[bytes], bytes | None], changes: Changes) -> None:
        disk, key = self.disks[number], keys.suffix(full)
        rank, place, links = disk.tasks.get(key, NOTHING), disk.places.get(key), get(keys.LINKS + full[1:])
        here = place is not None and place.node == disk.node.hex()
        told = any(page.key == key for page in changes.finished)
        if (
            links is not None
            and here
            and rank.state == State.DONE
            and not told
            and get(keys.FETCHED + full[1:]) is None
        ):
            changes.finished.append(Finished(key, link_keys_of(links, self._key_bytes)))

    def _note_bequests(self, packed: Mapping[str, bytes]) -> None:
        for node, bequest in last_of(packed).items():
            self._bequests[node] = max(self._bequests.get(node, (-1, "")), (bequest.number, bequest.heir.hex()))

    def _leads_to(self, node: str, other: str) -> bool:
        """Whether a place at a node means another one: that node itself, its heir, or the heir's heir."""
        met = set[str]()
        while node != other and node not in met:
            met.add(node)
            node = self._bequests.get(node, (0, node))[1]
        return node == other

    def _further(self, key: bytes, rank: Rank) -> None:
        self.best[key] = rank
        self.moved_at = now = self._time()
        if rank.over:
            self.over_at.setdefault(key, now)
        else:
            self.over_at.pop(key, None)


def _note_copy(disk: DiskBook, key: bytes, value: bytes | None) -> None:
    if value is None:
        disk.copies.pop(key, None)
    else:
        disk.copies[key] = Place(*unpack(value)["place"])
