"""The transaction that writes a round, on the committer's thread.

It takes values (`Round`) and returns what it found and changed (`RoundResult`); it
neither reads nor writes state that the event loop changes. The archive and the
order numbers of tasks belong to the thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from dhtcrawl.crawl.rounds import Fetched, Kill, Round, RoundResult
from dhtcrawl.storage.archive import body_copies
from dhtcrawl.storage.archive.item import ArchiveItem
from dhtcrawl.storage.store import counters, keys, outcomes, tasks
from dhtcrawl.storage.store.records import Place, SkipReason, State, pack, unpack
from dhtcrawl.storage.store.replicas import TaskReplica
from dhtcrawl.storage.store.tasks import FetchedPage
from dhtcrawl.storage.store.txn import Txn


class Appendable(Protocol):
    """The part of the archive that a round uses."""

    def append(self, item: ArchiveItem, /) -> tuple[Place, str]:
        """Append an item; return its place and its payload digest.

        Raises:
            StorageFull: no space left.
        """
        ...


class RoundTransaction(NamedTuple):
    """Writes a round of a crawl: a function of a `Txn` for the committer's thread."""

    crawl: bytes
    archive: Appendable
    orders: Iterator[int]  # drawn by the committer's thread only
    depth_matters: bool
    further: int  # copies of each body to have besides the one here

    def write(self, txn: Txn, round_: Round) -> RoundResult:
        """Write a round.

        Raises:
            StorageError: the archive's disk failed, or a record is damaged.
        """
        result = RoundResult()
        self._note(txn, round_, result)
        for page_key in round_.done:
            # Before the links are accepted: that may mark a page whose own links must go out again.
            settled = tasks.settle(txn, self.crawl, page_key, depth_matters=self.depth_matters)
            if settled is not None:
                result.over.append(TaskReplica(page_key, settled))
        for page_key, holders in round_.copied.items():
            result.counted["pages_undercopied"] += body_copies.note_holders(
                txn, self.crawl, page_key, holders, self.further
            )
        for fetched in round_.fetched:
            self._archive(txn, fetched, round_.settled, result)
        for kill in round_.kills:
            self._kill(txn, kill, result)
        if round_.links:
            self._accept(txn, round_, result)
        counters.put_counters(txn, self.crawl, round_.counters, result.counted)
        return result

    def _note(self, txn: Txn, round_: Round, result: RoundResult) -> None:
        if round_.aliases is not None:
            key = keys.key(keys.CRAWL, self.crawl)
            record = unpack(txn.get(key) or pack({}))
            txn.put(key, pack({**record, "aliases": round_.aliases}))
        for host, wait_s in round_.owed.items():
            tasks.owe(txn, self.crawl, host, wait_s)
        for page_key, found in round_.relinked.items():
            linked = tasks.relink(
                txn, self.crawl, page_key, found.link_keys, found.depth, found.skipped, found.depth_limit
            )
            result.counted["links"] += linked.links
            self._skipped(result, linked.skipped)

    def _archive(self, txn: Txn, fetched: Fetched, settled: frozenset[bytes], result: RoundResult) -> None:
        place, digest = self.archive.append(fetched.item)
        if fetched.page is not None:
            page = fetched.page._replace(fields={**fetched.page.fields, "payload_digest": digest})
            arrival = tasks.fetched(txn, self.crawl, page, place, fetched.attempt, settled=page.key in settled)
            self._arrive(fetched, page, arrival, result)
        elif fetched.extra is not None:
            entry = {**fetched.extra, "payload_digest": digest, "place": place}
            txn.put(keys.extra_key(self.crawl, place.file, place.offset), pack(entry))

    def _arrive(self, fetched: Fetched, page: FetchedPage, arrival: tasks.Arrival, result: RoundResult) -> None:
        replica = TaskReplica(page.key, arrival.task)
        result.arrived.append(replica)
        if arrival.resend:
            result.resend.append(page.key)
        result.counted["refetches"] += bool(arrival.task.others)
        if arrival.again:
            result.refetched.add(page.key)
            return
        if arrival.task.state == State.DONE:
            result.over.append(replica)
        status = page.fields["status"]
        result.counted["pages"] += 1
        result.counted["links"] += len(page.link_keys) // len(page.key)
        self._skipped(result, arrival.skipped)
        result.counted["body_bytes"] += fetched.body.size
        result.counted["redirects"] += 300 <= status < 400
        result.counted["pages_ok"] += outcomes.is_content(status)
        if status >= 400:
            self._error(result, outcomes.kind_of_status(status))
        result.lines.append(page.fields)

    def _kill(self, txn: Txn, kill: Kill, result: RoundResult) -> None:
        dead = tasks.kill(txn, self.crawl, kill.key, kill.reason, kill.detail, kill.attempt, kill.depth)
        if dead is not None:
            result.counted.update(counters.of_dead(kill.reason, kill.detail))
            result.over.append(TaskReplica(kill.key, dead))
        elif kill.reason == SkipReason.DEPTH:
            result.spared.append(kill.key)

    @staticmethod
    def _skipped(result: RoundResult, by_reason: Mapping[str, int]) -> None:
        for reason, count in by_reason.items():
            result.counted[outcomes.skip_counter_of(reason)] += count

    @staticmethod
    def _error(result: RoundResult, kind: str) -> None:
        result.counted["errors"] += 1
        result.counted[outcomes.counter_of(kind)] += 1

    def _accept(self, txn: Txn, round_: Round, result: RoundResult) -> None:
        accepted = tasks.accept(
            txn, self.crawl, round_.links, self.orders, depth_matters=self.depth_matters, safe=round_.ownership.mine
        )
        result.queued.extend(accepted.queued)
        result.changed.extend(TaskReplica(*changed) for changed in accepted.changed)
        result.resend.extend(accepted.resend)
        result.counted["urls_seen"] += accepted.new
        result.counted.update(accepted.reopened)
