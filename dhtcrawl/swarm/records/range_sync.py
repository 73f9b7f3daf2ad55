"""Makes the records of a crawl the same at two nodes that both keep them; one of the two asks.

    compare(range)   digests of 256 parts of it, ours and the peer's
        equal                    nothing moves
        few records of ours      exchange, with what lies near: the peer's page is merged
                                 in here; what it lacks, or has in an earlier state, is pushed
        many, none at the peer   pushed
        many at both             compare(part)

Both sides merge records by the lattice (I2). So records may change meanwhile,
steps may be done twice, and a sync may break off: the next one moves only what
still differs. One request is in flight at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from dhtcrawl.keyspace import KEY_BYTES, placement
from dhtcrawl.rpc.peers.port import Peers
from dhtcrawl.rpc.tasks.events import Failure, FailureKind
from dhtcrawl.rpc.tasks.messages import DIGEST_BYTES, Ack, Code, Records, RefreshTask, StoreBackup
from dhtcrawl.rpc.tasks.rows import ITEMS_MAX, RecordRow
from dhtcrawl.storage.store.ranges import Digests, Part, part_bounds
from dhtcrawl.storage.store.replicas import TaskReplica
from dhtcrawl.swarm.records.holdings import Holdings
from dhtcrawl.swarm.records.wire import RECORDS_BYTES_MAX, copies_of, in_frames, record_of
from dhtcrawl.swarm.replica_sets import Sharing, Span

BITS = 8
# A part with at most so many records of ours is exchanged: comparing it again
# would cost as much as the page, and one more round trip.
FEW = 64
BEYOND = 16  # how many records more than ours a page of a part may have
# So many equal records between two parts that differ are exchanged with them, which spares a request and a round trip.
GAP_RECORDS_MAX = 32
PAGE_BYTES_MAX = RECORDS_BYTES_MAX
# A peer scans 100,000 records for an answer, so an honest one does not send more empty pages in a row.
EMPTY_PAGES_MAX = 100


@dataclass(slots=True)
class SyncResult:
    """What a synchronisation moved."""

    digests: int = 0  # requests
    pages: int = 0  # requests
    pulled: int = 0  # records that came
    new: int = 0  # of them, those that were not here
    pushed: int = 0
    refused: int = 0  # records that the peer did not take: it has no room, or does not know the crawl


class Act(Enum):
    """What to do with a range that differs."""

    COMPARE = auto()
    EXCHANGE = auto()
    PUSH = auto()


class SyncStep(NamedTuple):
    """A range of placements, `first` to `last`, or the task keys in it after `after` and up to `until`."""

    act: Act
    first: bytes
    last: bytes
    after: bytes = b""
    until: bytes = b""  # empty: no bound
    ours: int = 0  # records of this node in it


class RangeSync:
    """Synchronises one crawl with one peer, once."""

    def __init__(
        self,
        peers: Peers,
        holdings: Holdings,
        peer: bytes,
        crawl: bytes,
        shared: Sharing,
        spans: Sequence[Span],
        result: SyncResult,
    ) -> None:
        """Covers the records that both are to keep (`shared`) within `spans`, which are in order."""
        self._peers = peers
        self._holdings = holdings
        self._peer = peer
        self._crawl = crawl
        self._shared = shared
        self._spans = spans
        self._result = result

    async def run(self) -> Failure | None:
        """Synchronise; a Failure where the peer did not answer or broke the protocol. Records moved before it stay.

        Raises:
            StorageError: the disk has failed.
        """
        terms = self._holdings.terms(self._crawl)
        if terms is None:
            return None
        self._keys = terms.keys
        steps = [SyncStep(Act.COMPARE, first, last) for first, last in reversed(self._spans)]
        while steps:
            step = steps.pop()
            if step.act is Act.COMPARE:
                further = await self._compare(step.first, step.last)
                if isinstance(further, Failure):
                    return further
                steps += reversed(further)
            else:
                failure = await self._exchange(step)
                if failure is not None:
                    return failure
        return None

    async def _compare(self, first: bytes, last: bytes) -> list[SyncStep] | Failure:
        self._result.digests += 1
        answer = await self._peers.ask(self._peer, RefreshTask(self._crawl, first, last, digest_bits=BITS))
        if isinstance(answer, Failure):
            return answer
        if not isinstance(answer, Records) or len(answer.digests) != DIGEST_BYTES << BITS:
            return _nonsense("digests were asked for, and something else came")
        # Ours are computed after the peer's: a record that changes in between differs, and is compared once more.
        ours = await self._holdings.digests(self._crawl, first, last, BITS, self._shared.covers)
        return plan(first, last, ours, answer.digests)

    async def _exchange(self, step: SyncStep) -> Failure | None:
        cursor, empty = step.after, 0
        while True:
            rows: Sequence[RecordRow] = ()
            until = step.until
            if step.act is Act.EXCHANGE:
                answer = await self._pull(step, cursor)
                if isinstance(answer, Failure):
                    return answer
                rows = [row for row in answer.records if not until or row.key <= until]
                empty = 0 if rows else empty + 1
                if empty > EMPTY_PAGES_MAX:
                    return _nonsense(f"{empty} pages without a record, and still not the end")
                if answer.cursor and (not until or answer.cursor < until):
                    until = answer.cursor
            failure = await self._meet(step, rows, cursor, until)
            if failure is not None:
                return failure
            if until == step.until:
                return None
            cursor = until

    async def _pull(self, step: SyncStep, cursor: bytes) -> Records | Failure:
        """The peer's page after `cursor`, checked to be in order and within the range."""
        self._result.pages += 1
        # The request does not say where the part ends; the peer mostly has as many records in it as we have.
        limit = min(ITEMS_MAX, step.ours + BEYOND) if step.until else ITEMS_MAX
        answer = await self._peers.ask(
            self._peer,
            RefreshTask(self._crawl, step.first, step.last, cursor, limit, reply_bytes_max=PAGE_BYTES_MAX),
        )
        if isinstance(answer, Failure):
            return answer
        if not isinstance(answer, Records):
            return _nonsense("a page was asked for, and something else came")
        before = cursor
        for row in answer.records:
            if row.key <= before or not step.first <= placement(row.key) <= step.last:
                return _nonsense("a page with records out of order, or beyond its range")
            before = row.key
        if answer.cursor and (answer.cursor < before or answer.cursor == cursor):
            return _nonsense("a page that ends before it begins")
        return answer

    async def _meet(self, step: SyncStep, rows: Sequence[RecordRow], after: bytes, until: bytes) -> Failure | None:
        """Merge a page in; push records after `after`, up to `until`, that the peer lacks or has in an older state."""
        theirs = copies_of(rows, self._keys)
        merged = await self._holdings.merge(self._crawl, theirs)
        self._result.pulled += len(theirs)
        self._result.new += merged.new
        known = {copy.key for copy in theirs}
        failure = await self._push(merged.further)
        last = placement(until) if until else step.last
        cursor = after
        while failure is None:
            page = await self._holdings.page(
                self._crawl, step.first, last, cursor, ITEMS_MAX, RECORDS_BYTES_MAX, self._shared.covers
            )
            assert page.copies or page.cursor != cursor, "any record fits into a page"
            lacking = [copy for copy in page.copies if copy.key not in known and not (until and copy.key > until)]
            failure = await self._push(lacking)
            if page.cursor is None or (until and page.cursor >= until):
                break
            cursor = page.cursor
        return failure

    async def _push(self, copies: Sequence[TaskReplica]) -> Failure | None:
        for batch in in_frames(copies):
            acked = await push(self._peers, self._holdings, self._peer, self._crawl, batch)
            if isinstance(acked, Failure):
                return acked
            self._result.pushed += len(batch)
            self._result.refused += acked.count(False)
        return None


def plan(first: bytes, last: bytes, ours: Digests, theirs: bytes) -> list[SyncStep]:
    """What to do in the parts of a range whose digests differ, in key order.

    Parts with few records that are neighbours, or nearly, are exchanged together.
    """
    packed = ours.pack(BITS)
    if packed == theirs:
        return []
    planner = _Planner(first, last)
    for number in range(1 << BITS):
        bounds = slice(number * DIGEST_BYTES, (number + 1) * DIGEST_BYTES)
        part = ours.parts.get(number)
        if theirs[bounds] != packed[bounds]:
            planner.differs(number, part, empty_there=theirs[bounds] == bytes(DIGEST_BYTES))
        elif part is not None:
            planner.equals(number, part)
    planner.close()
    return planner.steps


class _Planner:
    """Builds the steps for one range, part by part."""

    def __init__(self, first: bytes, last: bytes) -> None:
        self.steps: list[SyncStep] = []
        self._first = first
        self._last = last
        self._small: list[tuple[int, int, int]] = []  # (low, high, count) of parts that are exchanged together
        self._gap: list[tuple[int, int, int]] = []  # of equal ones behind these, which move if another comes near

    def differs(self, number: int, part: Part | None, *, empty_there: bool) -> None:
        """A part has other records at the peer than here; `part` is None where none are here."""
        low, high = part_bounds(self._first, self._last, BITS, number)
        if part is None or part.count <= FEW:
            self._exchange(low, high, part.count if part is not None else 0)
            return
        if empty_there or self._first == self._last:
            self._add(Act.PUSH if empty_there else Act.EXCHANGE, low, high, part.count)
            return
        alone, to = (int.from_bytes(placement(key), "big") for key in (part.lowest, part.highest))
        if alone != to:
            self._add(Act.COMPARE, low, high, part.count)
            return
        # All of ours belong to one host: no smaller range of placements would divide them.
        self._exchange(low, alone - 1, 0)
        self._add(Act.COMPARE, alone, alone, part.count)
        self._exchange(alone + 1, high, 0)

    def equals(self, number: int, part: Part) -> None:
        """A part has the same records at both: it moves where few of these lie between two that do."""
        if self._small:
            low, high = part_bounds(self._first, self._last, BITS, number)
            self._gap.append((low, high, part.count))
            if _records(self._gap) > GAP_RECORDS_MAX:
                self.close()

    def close(self) -> None:
        """Exchange the small parts gathered so far, without the parts to come."""
        self._gap.clear()
        if self._small:
            count = _records(self._small)
            self.steps.append(self._step(Act.EXCHANGE, self._small[0][0], self._small[-1][1], count))
            self._small.clear()

    def _add(self, act: Act, low: int, high: int, count: int) -> None:
        self.close()
        self.steps.append(self._step(act, low, high, count))

    def _exchange(self, low: int, high: int, count: int) -> None:
        if _records(self._small) + _records(self._gap) + count > ITEMS_MAX:
            self.close()
        if low <= high:
            self._small += [*self._gap, (low, high, count)]
            self._gap.clear()

    def _step(self, act: Act, low: int, high: int, count: int) -> SyncStep:
        if self._first != self._last:
            return SyncStep(act, _number(low), _number(high), ours=count)
        # Parts of one placement are divided by what follows it in the key. The cursor is
        # the key before the part, or the placement itself, which comes before all its keys.
        after = self._first if low == 0 else self._first + _number(low - 1)
        return SyncStep(act, self._first, self._last, after, self._first + _number(high), count)


def _records(parts: list[tuple[int, int, int]]) -> int:
    return sum(count for _, _, count in parts)


async def push(
    peers: Peers,
    holdings: Holdings,
    node: bytes,
    crawl: bytes,
    copies: Sequence[TaskReplica],
    *,
    hand_over: bool = False,
) -> list[bool] | Failure:
    """Send records to a node, and merge in those that it knows better.

    Returns:
        For each record whether the node has it on disk now, or a Failure.

    Raises:
        StorageError: the disk has failed.
    """
    answer = await peers.ask(node, StoreBackup(crawl, tuple(map(record_of, copies)), hand_over))
    if isinstance(answer, Failure):
        return answer
    if not isinstance(answer, Ack) or len(answer.codes) != len(copies):
        return _nonsense("records were sent, and something else than an answer for each came")
    terms = holdings.terms(crawl)
    if terms is not None:
        await holdings.merge(crawl, copies_of(answer.records, terms.keys))
    return [code in (Code.ACCEPTED, Code.KNOWN) for code in answer.codes]


def _number(value: int) -> bytes:
    return value.to_bytes(KEY_BYTES, "big")


def _nonsense(what: str) -> Failure:
    return Failure(FailureKind.PROTOCOL, what)
