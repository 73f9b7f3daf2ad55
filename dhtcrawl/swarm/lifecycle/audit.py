"""Checks that all links of our pages have records at their owners: counted, not assumed (design, `lost` and I10).

The keys of a page's links lie with the page. Before a crawl is said to be complete, every node asks the owners of these
keys which of them they have no record of; pages with such a link send their links again.

A record that was acked lies on the disk of a member. So a node has something to look for only if an owner has gone from
its view since it has pages, whether it crashed or left, or if the node itself has been away: a swarm that no node left
asks nothing, however large it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import Any

from dhtcrawl.crawl.next_round import NextRound
from dhtcrawl.crawl.seed_links import in_lists
from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.membership.view import View
from dhtcrawl.rpc.peers.ask_all import call_all
from dhtcrawl.rpc.peers.port import Peers
from dhtcrawl.storage.store import keys, tasks
from dhtcrawl.storage.store.committer import Committer
from dhtcrawl.storage.store.crawl_record import CrawlRecord
from dhtcrawl.storage.store.tasks import link_keys_of
from dhtcrawl.storage.store.txn import Txn
from dhtcrawl.swarm.calls import lifecycle as calls
from dhtcrawl.swarm.calls.words import KEYS_MAX
from dhtcrawl.swarm.replica_sets import NO_OWNER, by_owner, in_parts

PAGES_A_READ = 500
SEEDS_A_READ = 500
KEYS_A_CALL = KEYS_MAX
# A node that asks a thousand others must not connect to all of them at once. On average as many ask it, so this is a
# small part of the connections that a node may have.
CALLS_AT_ONCE = 32
# Keys that were found are not asked for again; beyond this many some are asked for twice.
KNOWN_MAX = 500_000


@loop_state
class Auditor:
    """Finds the links without a record, for all crawls of one node."""

    def __init__(self, peers: Peers, committer: Committer) -> None:
        self._peers = peers
        self._committer = committer

    async def on_audit_keys(self, _asker: bytes, args: calls.AuditKeys) -> calls.MissingKeys:
        """The handler of the call `audit_keys`: those of the keys that have no record here."""
        read: Any = partial(tasks.first_missing, crawl=args.crawl, task_keys=args.keys)
        return calls.MissingKeys(tuple(await self._committer.submit(read)))

    async def audit(
        self, crawl: bytes, key_bytes: int, seeds: Iterable[bytes], resend: Callable[[bytes, set[bytes]], None]
    ) -> int:
        """How many links of our pages, and seeds, have no record; `resend(page, links)` for each page with such links.

        A link whose owner did not answer counts as missing.
        """
        known: set[bytes] = set()
        missing = 0
        for part in in_lists(seeds, SEEDS_A_READ):
            missing += len(await self._missing(crawl, dict.fromkeys(part)))
        cursor: bytes | None = b""
        while cursor is not None:
            rows, cursor = await self._committer.submit(partial(_links, crawl=crawl, cursor=cursor))
            links = {page: set(link_keys_of(value, key_bytes)) for page, value in rows}
            # Sorted: what is asked, and in which order, must not depend on a hash.
            wanted = sorted(set().union(*links.values()) - known)
            lost = await self._missing(crawl, dict.fromkeys(wanted))
            missing += len(lost)
            for page, keys_of_page in links.items():
                if lost and (again := keys_of_page & lost.keys()):
                    resend(page, again)
            if len(known) < KNOWN_MAX:
                known.update(key for key in wanted if key not in lost)
        return missing

    async def _missing(self, crawl: bytes, wanted: dict[bytes, None]) -> dict[bytes, None]:
        owned = by_owner(self._peers.view, wanted, lambda key: key)
        missing = dict.fromkeys(owned.pop(NO_OWNER, ()))
        parts = [(node, part) for node, theirs in owned.items() for part in in_parts(theirs, KEYS_A_CALL)]
        asking = ((node, calls.AuditKeys(crawl, part)) for node, part in parts)
        answers = await call_all(self._peers, asking, at_once=CALLS_AT_ONCE)
        for (_, asked), answer in zip(parts, answers, strict=True):
            missing.update(dict.fromkeys(asked if answer is None else answer.missing))
        return missing


@loop_state
class CrawlAudit:
    """Audits one crawl on one node."""

    def __init__(
        self,
        auditor: Auditor,
        record: CrawlRecord,
        next_round: NextRound,
        scope_settled: Callable[[bytes], Awaitable[bool]],
        *,
        doubt: bool,
    ) -> None:
        """`scope_settled(crawl)`: whether it is known here which targets of redirects count.

        `doubt`: this node has pages from an earlier run, when others may have gone.
        """
        self._auditor = auditor
        self._record = record
        self._next = next_round
        self._scope_settled = scope_settled
        self._doubt = doubt

    def view_changed(self, before: View, view: View) -> None:
        """Note whether an owner has gone: records that only it and earlier ones had are gone, too."""
        self._doubt = self._doubt or not before.owning <= view.owning

    async def run(self) -> tuple[int, int]:
        """How many links of our pages, and seeds, no owner has a record of; how many of our pages send links again.

        What died here as out of scope counts as one link, while it is not known whether it was within the scope.
        """
        unsettled = int(not await self._scope_settled(self._record.crawl_id))
        if not self._doubt:
            return unsettled, 0
        resent = 0

        def resend(page: bytes, links: set[bytes]) -> None:
            nonlocal resent
            resent += 1
            self._next.lost(page, links)

        spec = self._record.spec
        seeds = map(spec.key_of, spec.all_seeds)
        key_bytes = spec.keys.width
        missing = await self._auditor.audit(self._record.crawl_id, key_bytes, seeds, resend)
        return missing + unsettled, resent


@loop_state
class AskedAudit:
    """Runs this node's audit when the coordinator asks for it, once for each state of stillness."""

    def __init__(self, audit: Callable[[], Coroutine[Any, Any, tuple[int, int]]], answer_s: float) -> None:
        """An audit that takes longer than `answer_s` is asked after again."""
        self._audit = audit
        self._answer_s = answer_s
        self._still = b""
        self._task: asyncio.Task[tuple[int, int]] | None = None

    async def result(self, still: bytes, group: asyncio.TaskGroup) -> calls.AuditResult:
        """The result of the audit of this state, which runs in `group`, or that it still runs."""
        if self._task is None or self._still != still:
            self.cancel()
            self._still, self._task = still, group.create_task(self._audit())
        task = self._task
        await asyncio.wait([task], timeout=self._answer_s)
        if not task.done() or task.cancelled():
            return calls.AuditResult(running=True)
        missing, resent = task.result()
        if (missing or resent) and self._task is task:
            self._task = None  # the next call audits again
        return calls.AuditResult(missing, resent)

    def cancel(self) -> None:
        """End an audit that runs."""
        if self._task is not None:
            self._task.cancel()


def _links(txn: Txn, *, crawl: bytes, cursor: bytes) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
    rows: list[tuple[bytes, bytes]] = []
    _, stop = keys.bounds(keys.LINKS, crawl)
    for full, value in txn.scan(keys.LINKS + crawl + cursor, stop):
        if len(rows) == PAGES_A_READ:
            return rows, keys.suffix(full)
        rows.append((keys.suffix(full), value))
    return rows, None
