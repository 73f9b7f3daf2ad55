"""Synchronises records both ways with other nodes, and hands records over (design invariants I4, I5, I12).

    sync        makes all records that this node and a peer both keep the same
                at both: for a joining node, or one that lost sight of the peer
    on_refresh  answers the peer's REFRESH_TASK, for its share only
    hand_over   gives records that this node is not to keep any more to all
                nodes that are, and drops what each of them has on disk
    compare     makes some records the same here and at the nodes that keep them

Each node computes from its own view which records two nodes share. While views
differ, a few records more or fewer move; none is lost, and the next sync moves
the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.membership.view import View
from dhtcrawl.rpc.peers.port import NOT_A_MEMBER, Peers
from dhtcrawl.rpc.tasks.events import Failure
from dhtcrawl.rpc.tasks.messages import DIGEST_BYTES, Records, RefreshTask, Refused
from dhtcrawl.rpc.tasks.rows import ITEMS_MAX
from dhtcrawl.rpc.tasks.schema import BadArguments
from dhtcrawl.storage.store.ranges import FIRST, LAST, record_hash
from dhtcrawl.storage.store.replicas import Merged, TaskReplica
from dhtcrawl.swarm.calls import records as calls
from dhtcrawl.swarm.records.holdings import Holdings, RecordTerms, Submit
from dhtcrawl.swarm.records.range_sync import RangeSync, SyncResult, push
from dhtcrawl.swarm.records.wire import RECORDS_BYTES_MAX, in_frames, record_of
from dhtcrawl.swarm.replica_sets import EVERYTHING, Keeping, Sharing, Span, replica_set

# Bounds of answering REFRESH_TASK: how many at once, the rest wait; how many
# transactions for a page in which no record is the asker's.
REFRESHES_MAX = 4
SCANS_A_PAGE_MAX = 50
SHARINGS_KEPT_MAX = 256
# A newcomer's peers mostly keep the same records. In syncs one after the other
# only the first sends them all; two at once, so that a silent peer blocks one.
SYNCS_MAX = 2
_ENVELOPE_BYTES = 256


@dataclass(slots=True)
class HandedOver:
    """Counts of records that this node is not to keep; true if all nodes that are to keep them have them."""

    pushed: int = 0  # records, counted once for each node that they were sent to because it lacked them
    dropped: int = 0
    needed: int = 0  # handed over, but in flight here, or with links to send: to be dropped later
    refused: int = 0  # not on all nodes that are to keep them: to be handed over again

    def __bool__(self) -> bool:
        return not self.refused


@loop_state
class Syncer:
    """Synchronises and hands over the records of one node, for all its crawls.

    Raises:
        StorageError: from every method that uses the store, once the disk has failed.
    """

    def __init__(
        self,
        peers: Peers,
        submit: Submit,
        crawl_ids: Callable[[], list[bytes]],
        replicas: int,
        merged: Callable[[bytes, Merged], None],
        terms: Callable[[bytes], RecordTerms | None],
    ) -> None:
        """`replicas` is R. `merged(crawl, …)` is called on the loop after each change to a crawl's queues."""
        self._peers = peers
        self._crawl_ids = crawl_ids
        self._replicas = replicas
        self._holdings = Holdings(submit, terms, merged)
        self._serving = asyncio.Semaphore(REFRESHES_MAX)
        self._syncing = asyncio.Semaphore(SYNCS_MAX)
        self._sharings: dict[bytes, tuple[View, Sharing]] = {}

    async def sync(
        self, peer: bytes, as_owner_set: View, within: Sequence[Span] = (EVERYTHING,)
    ) -> SyncResult | Failure:
        """Make all records that this node and `peer` both keep the same at both.

        `as_owner_set` is the view that says which; both nodes count as active in
        it, whatever they are. `within`: only keys in these ranges, which are
        disjoint. May be cancelled, and done again.
        """
        shared = Sharing(as_owner_set, self._peers.node_id, peer, self._replicas)
        spans = shared.within(within)
        result = SyncResult()
        async with self._syncing:
            for crawl in self._crawl_ids() if spans else ():
                failure = await RangeSync(self._peers, self._holdings, peer, crawl, shared, spans, result).run()
                if failure is not None:
                    return failure
        return result

    async def on_refresh(self, asker: bytes, message: RefreshTask) -> Records | Refused:
        """The answer to REFRESH_TASK: digests or a page of the records that the asker keeps, too."""
        shared = self._shared_with(asker)
        if shared is None:
            return Refused(NOT_A_MEMBER, "this node does not know the asker as a member")
        async with self._serving:
            if message.digest_bits:
                return await self._digests(shared, message)
            return await self._page(shared, message)

    async def hand_over(self, view: View | None = None) -> HandedOver:
        """Give records that this node is not to keep to all nodes that are, and drop those that each of them has.

        Keepers are computed from the present view, or from `view`: one without
        this node hands over everything, before it leaves.
        """
        result = HandedOver()
        unreachable: dict[bytes, None] = {}
        for crawl in self._crawl_ids():
            cursor: bytes | None = b""
            while cursor is not None:
                now = self._peers.view if view is None else view
                if view is None and self._peers.node_id not in now.owning and self._peers.node_id not in now.outbound:
                    return result  # it is joining, perhaps again: it has to get records, not to give them away
                strays = Keeping(now, self._peers.node_id, self._replicas).strays
                page = await self._holdings.page(crawl, FIRST, LAST, cursor, ITEMS_MAX, RECORDS_BYTES_MAX, strays)
                assert page.copies or page.cursor != cursor, "any record fits into a page"
                keepers = partial(self._keepers, now)
                acked = await self._give(crawl, page.copies, keepers, unreachable, result, hand_over=True)
                safe = [copy for copy in page.copies if _all_have(acked[copy.key], self._keepers(now, copy))]
                dropped = await self._let_go(crawl, safe, now)
                result.dropped += dropped
                result.needed += len(safe) - dropped
                result.refused += len(page.copies) - len(safe)
                cursor = page.cursor
        return result

    async def compare(self, crawl: bytes, task_keys: Sequence[bytes], keepers: Callable[[bytes], list[bytes]]) -> bool:
        """Exchange some records with the nodes `keepers(key)`; whether all of these answered."""
        unreachable: dict[bytes, None] = {}
        for first in range(0, len(task_keys), ITEMS_MAX):
            copies = await self._holdings.some(crawl, task_keys[first : first + ITEMS_MAX])
            await self._give(crawl, copies, lambda copy: keepers(copy.key), unreachable, HandedOver(), hand_over=False)
        return not unreachable

    async def _give(
        self,
        crawl: bytes,
        copies: Sequence[TaskReplica],
        keepers: Callable[[TaskReplica], list[bytes]],
        unreachable: dict[bytes, None],
        result: HandedOver,
        *,
        hand_over: bool,
    ) -> dict[bytes, set[bytes]]:
        """Push records to all nodes that are to keep them, and merge in those that these know better.

        Returns:
            For each task key the nodes that have the record on disk now.
        """
        by_node: dict[bytes, list[TaskReplica]] = {}
        for copy in copies:
            for node in keepers(copy):
                if node not in unreachable:
                    by_node.setdefault(node, []).append(copy)
        acked: dict[bytes, set[bytes]] = {copy.key: set() for copy in copies}

        async def give(node: bytes, theirs: list[TaskReplica]) -> None:
            if not await self._give_node(node, crawl, theirs, acked, result, hand_over=hand_over):
                unreachable[node] = None

        async with asyncio.TaskGroup() as group:
            for node, theirs in by_node.items():
                group.create_task(give(node, theirs))
        return acked

    async def _give_node(
        self,
        node: bytes,
        crawl: bytes,
        copies: list[TaskReplica],
        acked: dict[bytes, set[bytes]],
        result: HandedOver,
        *,
        hand_over: bool,
    ) -> bool:
        """Push the records that a node lacks, and note in `acked` which it has; whether it answered."""
        there = await self._same_at(node, crawl, copies)
        if there is None:
            return False
        _note(acked, node, copies, there)
        for batch in in_frames([copy for copy, has_it in zip(copies, there, strict=True) if not has_it]):
            flags = await push(self._peers, self._holdings, node, crawl, batch, hand_over=hand_over)
            if isinstance(flags, Failure):
                return False
            result.pushed += len(batch)
            _note(acked, node, batch, flags)
        return True

    async def _same_at(self, node: bytes, crawl: bytes, copies: Sequence[TaskReplica]) -> list[bool] | None:
        """Which of these records a node has on disk, in the state they have here; None: it does not answer.

        Asking costs 28 bytes a record, a key and a hash; most records that are handed over are there already.
        """
        hashes = b"".join(record_hash(copy).to_bytes(DIGEST_BYTES, "big") for copy in copies)
        answer = await self._peers.call(node, calls.Have(crawl, b"".join(copy.key for copy in copies), hashes))
        return None if isinstance(answer, Failure) else [bool(each) for each in answer.have]

    async def on_have(self, _asker: bytes, args: calls.Have) -> calls.HaveAnswer:
        """The answer to `have`: a byte for each record, 1 where it is on disk here with that hash.

        Raises:
            BadArguments: the keys are not as long as those of the crawl.
        """
        terms, width = self._holdings.terms(args.crawl), len(args.keys) // args.count
        if terms is not None and terms.keys.width != width:
            raise BadArguments("keys")
        wanted = [int.from_bytes(each, "big") for each in _pieces(args.hashes, DIGEST_BYTES)]
        async with self._serving:
            same = await self._holdings.same(args.crawl, list(zip(_pieces(args.keys, width), wanted, strict=True)))
        return calls.HaveAnswer(bytes(same))

    async def _let_go(self, crawl: bytes, copies: Sequence[TaskReplica], view: View) -> int:
        # The present view counts, too: by it this node may have to keep them after all.
        before, now = (Keeping(each, self._peers.node_id, self._replicas) for each in (view, self._peers.view))
        return await self._holdings.drop(crawl, copies, lambda key: before.covers(key) or now.covers(key))

    def _keepers(self, view: View, copy: TaskReplica) -> list[bytes]:
        """The nodes that are to keep a record, without this one."""
        return [node for node in replica_set(view, copy.key, self._replicas) if node != self._peers.node_id]

    async def _digests(self, shared: Sharing, message: RefreshTask) -> Records | Refused:
        bits = message.digest_bits
        if DIGEST_BYTES << bits > message.reply_bytes_max - _ENVELOPE_BYTES:
            return Refused("too-long", "the digests do not fit into reply_bytes_max")
        digests = await self._holdings.digests(message.crawl, message.first, message.last, bits, shared.covers)
        return Records(digests=digests.pack(bits))

    async def _page(self, shared: Sharing, message: RefreshTask) -> Records | Refused:
        bytes_max = message.reply_bytes_max - _ENVELOPE_BYTES
        copies: list[TaskReplica] = []
        cursor: bytes | None = message.cursor
        for _ in range(SCANS_A_PAGE_MAX):
            before = cursor
            assert before is not None
            copies, cursor = await self._holdings.page(
                message.crawl, message.first, message.last, before, message.limit, bytes_max, shared.covers
            )
            if copies or cursor is None:
                break
            if cursor == before:
                return Refused("too-long", "a record does not fit into reply_bytes_max")
        return Records(tuple(map(record_of, copies)), cursor or b"")

    def _shared_with(self, asker: bytes) -> Sharing | None:
        view = self._peers.view
        known = self._sharings.get(asker)
        if known is not None and known[0] is view:
            return known[1]
        if asker not in view:
            return None
        if len(self._sharings) >= SHARINGS_KEPT_MAX:
            self._sharings.clear()
        shared = Sharing(view, self._peers.node_id, asker, self._replicas)
        self._sharings[asker] = view, shared
        return shared


def _note(acked: dict[bytes, set[bytes]], node: bytes, copies: Sequence[TaskReplica], flags: Sequence[bool]) -> None:
    """Note which of these records a node has on its disk."""
    for copy, has_it in zip(copies, flags, strict=True):
        if has_it:
            acked[copy.key].add(node)


def _pieces(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


def _all_have(acked: set[bytes], keepers: list[bytes]) -> bool:
    """Whether all nodes that are to keep a record acknowledged it; False where there are none."""
    return bool(keepers) and acked.issuperset(keepers)
