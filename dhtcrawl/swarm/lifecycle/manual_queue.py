"""Tasks that were given up, over the whole swarm: a person looks at them, has them tried again, or drops them.

    asked node ──given_up: from a key on──▶ every member: those that it owns
               ──decide: release or drop, URLs or all──▶ every member: does so for those that it owns

Yu et al.'s (2014) manual queue, kept by nobody: it is what the records say. An
owner gives what it releases to the backups before anybody fetches it, as with
every record. A crawl that is complete goes on by itself where it is given work
(`dhtcrawl.swarm.lifecycle.reopen_check`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any, NamedTuple, TypeGuard

from dhtcrawl.keyspace import CRAWL_ID_BYTES, KEY_BYTES
from dhtcrawl.rpc.peers.port import BAD_ARGUMENTS, CallRegistry, CallValue, Peers
from dhtcrawl.rpc.tasks.events import Failure
from dhtcrawl.rpc.tasks.messages import Refused
from dhtcrawl.storage.store import given_up
from dhtcrawl.storage.store.committer import Committer
from dhtcrawl.storage.store.given_up import GivenUp
from dhtcrawl.storage.store.replicas import Merged, TaskReplica
from dhtcrawl.swarm.lifecycle.crawls import Crawls
from dhtcrawl.url import URL_CHARS_MAX, canonicalize

LIST, DECIDE = "given_up", "given_up_decide"
RELEASE, DROP = "release", "drop"

SCANNED_A_STEP = 2_000
ROWS_A_REPLY = 80
REPLY_BYTES_MAX = 1 << 20
DETAIL_CHARS_MAX = 1_000
URLS_A_CALL = 50
ROWS_MAX = 10_000  # of one node; a list that is longer is not for people
DECIDES_WITHIN_S = 60.0

Keep = Callable[[bytes, Sequence[TaskReplica], Callable[[], None]], None]


class Listed(NamedTuple):
    """What the members say."""

    tasks: list[GivenUp]  # by URL
    silent: list[bytes]  # nodes that did not answer, or not to the end
    cut: bool  # whether there are more


class Decided(NamedTuple):
    """What came of a decision."""

    tasks: int  # that it was done to
    silent: list[bytes]


class ManualQueue:
    """Of one node: what it answers, and what it asks for a person."""

    def __init__(
        self, peers: Peers, registry: CallRegistry, committer: Committer, crawls: Crawls, *, keep: Keep
    ) -> None:
        """`keep(crawl, records, then)` gives records to their backups."""
        self._peers = peers
        self._committer = committer
        self._crawls = crawls
        self._keep = keep
        registry.register(LIST, self._on_list)
        registry.register(DECIDE, self._on_decide)

    # What a person asks

    async def listed(self, crawl: bytes) -> Listed:
        """All tasks of a crawl that were given up."""
        nodes = self._members()
        async with asyncio.TaskGroup() as group:
            asking = [group.create_task(self._list_of(node, crawl)) for node in nodes]
        found = {node: task.result() for node, task in zip(nodes, asking, strict=True)}
        rows = {row.key: row for rows, _ in found.values() for row in rows}
        silent = [node for node, (_, whole) in found.items() if not whole]
        cut = any(len(rows) >= ROWS_MAX for rows, _ in found.values())
        return Listed(sorted(rows.values(), key=lambda row: row.url), silent, cut)

    async def decide(self, crawl: bytes, action: str, urls: Sequence[str] | None) -> Decided:
        """Release or drop tasks by their canonical URLs; None: all that were given up."""
        parts = [None] if urls is None else [urls[i : i + URLS_A_CALL] for i in range(0, len(urls), URLS_A_CALL)]
        nodes = self._members()
        async with asyncio.TaskGroup() as group:
            asking = [group.create_task(self._decide_at(node, crawl, action, parts)) for node in nodes]
        counts = [task.result() for task in asking]
        silent = [node for node, done in zip(nodes, counts, strict=True) if done is None]
        return Decided(sum(done or 0 for done in counts), silent)

    def _members(self) -> list[bytes]:
        return [member.id for member in self._peers.view.members]

    async def _list_of(self, node: bytes, crawl: bytes) -> tuple[list[GivenUp], bool]:
        rows: list[GivenUp] = []
        cursor: object = b""
        while isinstance(cursor, bytes) and len(rows) < ROWS_MAX:
            args = {"crawl": crawl, "cursor": cursor}
            answer = await self._peers.call(node, LIST, args, reply_bytes_max=REPLY_BYTES_MAX)
            if isinstance(answer, Failure):
                return rows, False
            before, cursor = cursor, answer.get("cursor")
            rows += _rows(answer.get("rows"))
            if isinstance(cursor, bytes) and cursor <= before:
                return rows, False  # it would never end
        return rows, True

    async def _decide_at(
        self, node: bytes, crawl: bytes, action: str, parts: Sequence[Sequence[str] | None]
    ) -> int | None:
        done = 0
        for part in parts:
            args = {"crawl": crawl, "action": action, "urls": part}
            answer = await self._peers.call(node, DECIDE, args, timeout_s=DECIDES_WITHIN_S)
            count = None if isinstance(answer, Failure) else answer.get("count")
            if type(count) is not int:
                return None
            done += count
        return done

    # What a node answers

    def _on_list(self, _asker: bytes, args: dict[str, Any]) -> Any:
        crawl, cursor = args.get("crawl"), args.get("cursor")
        if not _is_crawl(crawl) or not isinstance(cursor, bytes) or len(cursor) > 2 * KEY_BYTES:
            return BAD_ARGUMENTS
        return self._list(crawl, cursor)

    async def _list(self, crawl: bytes, cursor: bytes) -> CallValue:
        terms = self._crawls.terms(crawl, count())
        if terms is None:
            return {"rows": [], "cursor": None}
        read: Any = partial(
            given_up.given_up, crawl=crawl, cursor=cursor, scanned_max=SCANNED_A_STEP, found_max=ROWS_A_REPLY,
            mine=terms.snapshot().mine,
        )  # fmt: skip
        found, after = await self._committer.submit(read)
        return {"rows": [row._replace(detail=row.detail[:DETAIL_CHARS_MAX]) for row in found], "cursor": after}

    def _on_decide(self, _asker: bytes, args: dict[str, Any]) -> Any:
        crawl, action, urls = args.get("crawl"), args.get("action"), args.get("urls")
        if not _is_crawl(crawl) or action not in (RELEASE, DROP) or not (urls is None or _are_urls(urls)):
            return BAD_ARGUMENTS
        record = self._crawls.get(crawl)
        if record is None:
            return Refused("unknown-crawl")
        wanted = None if urls is None else [record.spec.key_of(url) for url in urls]
        return self._decide(crawl, action, wanted)

    async def _decide(self, crawl: bytes, action: str, wanted: list[bytes] | None) -> CallValue:
        run = self._crawls.run_of(crawl)
        if action == RELEASE and run is not None:
            run.parts.origins.forgive()
        done = 0
        if wanted is not None:
            return {"count": await self._change(crawl, action, wanted)}
        cursor: bytes | None = b""
        while cursor is not None:
            terms = self._crawls.terms(crawl, count())
            if terms is None:
                break
            read: Any = partial(
                given_up.given_up, crawl=crawl, cursor=cursor, scanned_max=SCANNED_A_STEP, found_max=ROWS_A_REPLY,
                mine=terms.snapshot().mine,
            )  # fmt: skip
            found, cursor = await self._committer.submit(read)
            done += await self._change(crawl, action, [row.key for row in found])
        return {"count": done}

    async def _change(self, crawl: bytes, action: str, wanted: list[bytes]) -> int:
        """Release or drop what we own of these; how many it was."""
        terms = self._crawls.terms(crawl, count())
        if terms is None:
            return 0
        now = terms.snapshot(wanted)
        ours = [key for key in wanted if now.mine(key)]
        if not ours:
            return 0
        if action == DROP:
            drop: Any = partial(given_up.drop, crawl=crawl, task_keys=ours)
            dropped: list[TaskReplica] = await self._committer.submit(drop)
            self._keep(crawl, dropped, _nothing)
            return len(dropped)
        write: Any = partial(given_up.release, crawl=crawl, task_keys=ours, mine=now.mine, held=now.held)
        opened: list[TaskReplica]
        merged: Merged
        opened, merged = await self._committer.submit(write)
        if opened:
            self._keep(crawl, opened, partial(self._crawls.merged, crawl, merged))
        return len(opened)


def _rows(value: object) -> list[GivenUp]:
    """What a node lists, as far as it is what it should be."""
    rows = value if isinstance(value, tuple) else ()
    return [GivenUp(*row) for row in rows if _is_row(row)]


def _is_row(row: object) -> bool:
    kinds = (bytes, str, int, int, str)
    return isinstance(row, tuple) and len(row) == len(kinds) and all(map(isinstance, row, kinds))


def _is_crawl(value: object) -> TypeGuard[bytes]:
    return isinstance(value, bytes) and len(value) == CRAWL_ID_BYTES


def _are_urls(value: object) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) <= URLS_A_CALL
        and all(isinstance(url, str) and len(url) <= URL_CHARS_MAX and canonicalize(url) == url for url in value)
    )


def _nothing() -> None:
    pass
