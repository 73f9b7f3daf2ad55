"""From fetched pages to done ones: everything of a crawl that is written, in rounds.

A round is one transaction: the bodies that arrived go into the archive, their
pages become `fetched`, the links under way are accepted, pages whose last link
was accepted in an earlier round become `done`, tasks without hope become
`dead`. While a round is being committed the next one gathers, so that the
price of an fsync and of a thread hop is paid by a round, never by a page.

    page() ─▶ fetched ─┐
              outbox ──┼─▶ round ─▶ commit ─▶ queued tasks to the frontier
    kill() ─▶ dead ────┤                      acked links to the outbox
              done ────┘                      pages without links under way: done
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, Protocol

from dhtcrawl.crawl.outbox import Outbox
from dhtcrawl.crawl.services import Services
from dhtcrawl.fetch.http import Body
from dhtcrawl.storage import keys, tasks
from dhtcrawl.storage.committer import Txn
from dhtcrawl.storage.outputs import LivePages
from dhtcrawl.storage.records import SkipReason, pack, unpack
from dhtcrawl.storage.tasks import Link, Page, Queued
from dhtcrawl.storage.warc import ArchiveItem

LINKS_A_ROUND_MAX = 4096

# A fetcher waits when this much is not on disk yet: memory stays bounded when
# the disk is slower than the web.
BACKLOG_BYTES_MAX = 64 << 20
# Links under way do not stop the parser, but the next fetch.
BACKLOG_LINKS_MAX = 200_000


@dataclass(slots=True)
class Counters:
    """What a crawl has done so far, restarts included."""

    pages: int = 0
    fetches: int = 0
    refetches: int = 0
    redirects: int = 0
    errors: int = 0
    dead: int = 0
    body_bytes: int = 0
    urls_seen: int = 0
    robots_fetches: int = 0
    politeness_violations: int = 0
    politeness_exceptions: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    def pack(self) -> bytes:
        """The stored value."""
        return pack({f.name: getattr(self, f.name) for f in fields(self)})

    @classmethod
    def unpack(cls, value: bytes | None) -> Counters:
        """The counters in a stored value; all 0 where there is none."""
        stored: dict[str, Any] = {} if value is None else unpack(value)
        return cls(**{f.name: stored[f.name] for f in fields(cls) if f.name in stored})


@dataclass(eq=False, slots=True)
class Fetched:
    """What arrived and is not written yet: a page, or `extra`, an index entry of what is none."""

    host: str
    item: ArchiveItem
    body: Body
    page: Page | None = None
    attempt: int = 0
    extra: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Kill:
    """A task that will have no page."""

    host: str
    key: bytes
    reason: str
    detail: str
    attempt: int


@dataclass(slots=True)
class Round:
    """What one transaction writes."""

    fetched: list[Fetched]
    kills: list[Kill]
    links: list[Link]
    done: list[bytes]
    aliases: list[str]
    relinked: dict[bytes, bytes]  # page → the task keys of its links
    owed: dict[str, float]  # seconds a restart must leave hosts alone; 0: no longer


@dataclass(slots=True)
class RoundResult:
    """What came of it."""

    queued: list[Queued] = field(default_factory=list)
    resend: list[bytes] = field(default_factory=list)
    refetched: set[bytes] = field(default_factory=set)
    killed: int = 0
    failed: int = 0  # of those killed: nobody answered


class Listener(Protocol):
    """Who goes on with what a round brought: the crawl."""

    def written(self, host: str, key: bytes) -> None:
        """A task's outcome is in the store."""
        ...

    def queued(self, tasks: list[Queued]) -> None:
        """New tasks are in the store."""
        ...

    def resend(self, page: bytes) -> None:
        """A page's links must go out (again)."""
        ...

    def settled(self) -> None:
        """A round is over; the crawl may be, too."""
        ...


class Corridor:
    """Writes one crawl's progress."""

    def __init__(
        self,
        services: Services,
        crawl: bytes,
        counters: Counters,
        listener: Listener,
        *,
        depth_matters: bool,
        orders: Iterator[int],
        aliases: list[str],
        live: LivePages,
    ) -> None:
        self.counters = counters
        self.outbox = Outbox(depth_matters=depth_matters)
        self._services = services
        self._crawl = crawl
        self._listener = listener
        self._depth_matters = depth_matters
        self.orders = orders
        self._aliases = aliases
        self._new_aliases: list[str] = []
        self._live = live
        self._lines: list[dict[str, Any]] = []
        self._owed: dict[str, float] = {}
        self._fetched: list[Fetched] = []
        self._kills: list[Kill] = []
        self._done: list[bytes] = []
        self._relinked: dict[bytes, bytes] = {}
        self._owing: set[bytes] = set()  # pages whose links are to be sent again
        self._backlog_bytes = 0
        self._pages_unwritten = 0
        self._busy = False
        self._closing = False
        self._work = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    @property
    def idle(self) -> bool:
        """Everything that was handed in is on disk."""
        return not (self._busy or self._fetched or self._kills or self._done or len(self.outbox) or self._new_aliases)

    @property
    def unwritten_pages(self) -> int:
        """Pages that arrived and are not counted yet."""
        return self._pages_unwritten

    def page(self, fetched: Fetched, links: list[Link], alias: str | None) -> None:
        """A page arrived, with the links to send."""
        assert fetched.page is not None
        if alias is not None:
            self._new_aliases.append(alias)
        self.outbox.add(fetched.page.key, links)
        self._pages_unwritten += 1
        self.archive(fetched)

    def archive(self, fetched: Fetched) -> None:
        """Something arrived that is to be archived."""
        self._fetched.append(fetched)
        self._backlog_bytes += 0 if fetched.body.spooled else fetched.body.size
        if self._overfull():
            self._room.clear()
        self._work.set()

    def kill(self, kill: Kill) -> None:
        """A task has no hope."""
        self._kills.append(kill)
        self._work.set()

    def send_again(self, page: bytes, links: list[Link], link_keys: bytes) -> None:
        """The links of a page that is fetched but not done, and all its task keys."""
        self._owing.discard(page)
        self._relinked[page] = link_keys
        if self.outbox.add(page, links):
            self._done.append(page)
        self._work.set()

    def owe(self, host: str, wait_s: float) -> None:
        """A restart is to leave `host` alone for `wait_s`; 0 takes that back."""
        self._owed[host] = wait_s
        self._work.set()

    async def room(self) -> None:
        """Return once a fetcher may bring more."""
        await self._room.wait()

    async def run(self) -> None:
        """Commit rounds until `close`, and what is left then."""
        while True:
            await self._work.wait()
            self._work.clear()
            while (round_ := self._gather()) is not None:
                self._busy = True
                result = await self._services.committer.submit(partial(self._write, round_))
                self._busy = False
                self._after(round_, result)
                # Writes no record, so costs no fsync.
                await self._services.committer.submit(partial(self._show, self._lines))
                self._lines = []
            self._listener.settled()
            if self._closing:
                return

    def close(self) -> None:
        """No more will be handed in."""
        self._closing = True
        self._work.set()

    def _overfull(self) -> bool:
        return self._backlog_bytes >= BACKLOG_BYTES_MAX or len(self.outbox) >= BACKLOG_LINKS_MAX

    def _gather(self) -> Round | None:
        links = self.outbox.take(LINKS_A_ROUND_MAX)
        if not (self._fetched or self._kills or self._done or links or self._new_aliases or self._owed):
            return None
        done = [page for page in self._done if page not in self._owing]
        round_ = Round(self._fetched, self._kills, links, done, self._new_aliases, self._relinked, self._owed)
        self._fetched, self._kills, self._done, self._new_aliases = [], [], [], []
        self._relinked, self._owed = {}, {}
        self._backlog_bytes = 0
        return round_

    def _write(self, round_: Round, txn: Txn) -> RoundResult:
        """The round's transaction; runs on the committer's thread."""
        crawl, archive, result = self._crawl, self._services.archive, RoundResult()
        if round_.aliases:
            self._aliases.extend(round_.aliases)
            key = keys.key(keys.CRAWL, crawl)
            record = unpack(txn.get(key) or pack({}))
            txn.put(key, pack({**record, "aliases": self._aliases}))
        for host, wait_s in round_.owed.items():
            tasks.owe(txn, crawl, host, wait_s)
        for page_key, link_keys in round_.relinked.items():
            tasks.relink(txn, crawl, page_key, link_keys)
        # Before `accept`, which may mark a page that must send its links again.
        for page_key in round_.done:
            tasks.settle(txn, crawl, page_key)
        for fetched in round_.fetched:
            place, digest = archive.append(fetched.item)
            page = fetched.page
            if page is None:
                if fetched.extra is not None:
                    entry = {**fetched.extra, "payload_digest": digest, "place": place}
                    txn.put(keys.extra_key(crawl, place.file, place.offset), pack(entry))
                continue
            page.fields["payload_digest"] = digest
            again, resend = tasks.fetched(txn, crawl, page, place, fetched.attempt)
            if again:
                result.refetched.add(page.key)
            if resend:
                result.resend.append(page.key)
        for kill in round_.kills:
            killed = tasks.kill(txn, crawl, kill.key, kill.reason, kill.detail, kill.attempt)
            result.killed += killed
            result.failed += killed and kill.reason == SkipReason.FAILED
        if round_.links:
            accepted = tasks.accept(txn, crawl, round_.links, self.orders, depth_matters=self._depth_matters)
            result.queued = accepted.queued
            result.resend += accepted.resend
            self.counters.urls_seen += accepted.new
        self._count(round_, result)
        txn.put(keys.key(keys.COUNTERS, crawl), self.counters.pack())
        return result

    def _show(self, lines: list[dict[str, Any]], _: Txn) -> None:
        """Let whoever watches pages.jsonl see the pages of a round."""
        if lines:
            self._live.append(lines)

    def _count(self, round_: Round, result: RoundResult) -> None:
        counters = self.counters
        for fetched in round_.fetched:
            if fetched.page is None:
                continue
            if fetched.page.key in result.refetched:
                counters.refetches += 1
                continue
            status = fetched.page.fields["status"]
            counters.pages += 1
            counters.body_bytes += fetched.body.size
            counters.redirects += 300 <= status < 400
            counters.errors += status >= 400
        counters.dead += result.killed
        counters.errors += result.failed

    def _after(self, round_: Round, result: RoundResult) -> None:
        # A page's links were handed in together with it, so that whatever is
        # acked now belongs to a page that is written by now.
        done = dict.fromkeys(self.outbox.acked(round_.links))
        for fetched in round_.fetched:
            fetched.body.close()
            if fetched.page is not None:
                self._pages_unwritten -= 1
                if fetched.page.key not in result.refetched:
                    self._lines.append(fetched.page.fields)
                self._listener.written(fetched.host, fetched.page.key)
                if not self.outbox.waits(fetched.page.key):
                    done[fetched.page.key] = None
        for kill in round_.kills:
            self._listener.written(kill.host, kill.key)
        # Until a page's links are out again, those that went out before do not
        # make it done: the mark would be gone, and a crash would lose the rest.
        self._owing.update(result.resend)
        for page in self._owing:
            done.pop(page, None)
        self._done.extend(done)
        self._listener.queued(result.queued)
        for page in result.resend:
            self._listener.resend(page)
        if not self._overfull():
            self._room.set()
