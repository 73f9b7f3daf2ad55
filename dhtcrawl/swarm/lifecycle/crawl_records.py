"""The records of all crawls at one node, and how nodes tell each other of them.

Every node knows every crawl: a submitted one is told to all, a newcomer pulls the list, and the coordinator tells nodes
that have an older record. Records are merged by `merge_crawls`, so the order does not matter in which nodes tell each
other.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence

from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.peers.port import UNKNOWN_CRAWL, CallRegistry, Peers
from dhtcrawl.rpc.tasks.events import Failure
from dhtcrawl.rpc.tasks.messages import Refused
from dhtcrawl.rpc.tasks.schema import BadArguments
from dhtcrawl.storage.store import catalog
from dhtcrawl.storage.store.bequests import Bequest
from dhtcrawl.storage.store.committer import Committer
from dhtcrawl.storage.store.crawl_record import (
    ALIASES_MAX,
    OWN_BYTES,
    PARTICIPANTS_MAX,
    RUNNING,
    STATE_BYTES,
    STEP_MAX,
    STOPPING,
    CrawlRecord,
    NotARecord,
    changed,
    from_wire,
    has_room,
    heir_of,
    lowered,
    merge_crawls,
    to_wire,
)
from dhtcrawl.storage.store.redirect_targets import targets_of
from dhtcrawl.storage.store.txn import Txn
from dhtcrawl.swarm.calls import lifecycle as calls
from dhtcrawl.swarm.calls.words import Done
from dhtcrawl.swarm.lifecycle.crawl_authority import CrawlAuthority
from dhtcrawl.swarm.lifecycle.waves import view_fingerprint
from dhtcrawl.url import URL_CHARS_MAX

log = logging.getLogger(__name__)

CRAWLS_MAX = 10_000
TOLD_MAX = 1_000  # new ones that one node may tell at once
TOLD_AGAIN_S = 36.0  # and another one after so long: crawls are begun for as long as a swarm lives
ASKERS_MAX = 4_096  # for whom they are counted; then all counts begin again
PULLS_MAX = 16  # of one record in a row, whose version is far above the one that is known


class _Tellers:
    """How many new crawls each node has told lately."""

    def __init__(self) -> None:
        self._told: dict[bytes, tuple[float, float]] = {}  # by node: how many count, and when that was so

    def may_tell(self, asker: bytes) -> bool:
        """Whether a node may tell a new crawl, which counts then. One that begins learns what there is by asking."""
        now = asyncio.get_running_loop().time()
        told, at = self._told.get(asker, (0.0, now))
        told = max(0.0, told - (now - at) / TOLD_AGAIN_S)
        may = told + 1 <= TOLD_MAX
        self._told[asker] = told + may, now
        if len(self._told) > ASKERS_MAX:
            self._told.clear()
        return may


@loop_state
class CrawlRecords:
    """Keeps the record of each crawl, and tells it to other nodes; each of `on_change` is called with a newer one."""

    def __init__(self, peers: Peers, registry: CallRegistry, committer: Committer, authority: CrawlAuthority) -> None:
        self.on_change: list[Callable[[CrawlRecord], Awaitable[object]]] = []
        self.on_heard: list[Callable[[bytes], Awaitable[object]]] = []  # of a crawl, of which another node has told
        self.authority = authority
        self._peers = peers
        self._committer = committer
        self._records: dict[bytes, CrawlRecord] = {}
        self._named: dict[bytes, tuple[frozenset[str], CrawlRecord | None]] = {}  # who took part, by which record
        self._tellers = _Tellers()
        self._packed: tuple[CrawlRecord, bytes] | None = None  # what was told last; to pack 20,000 seeds takes 13 ms
        self._delay_s: float | None = None  # the longest of crawls that have not ended; None: to be looked up
        self.leaps = 0  # records of peers whose versions were too far ahead, and were lowered
        registry.serve(calls.TellCrawl, self._on_tell)
        registry.serve(calls.ListCrawls, self._on_list)
        registry.serve(calls.GetCrawl, self._on_get)

    def __iter__(self) -> Iterator[CrawlRecord]:
        return iter(list(self._records.values()))

    def get(self, crawl: bytes) -> CrawlRecord | None:
        """A crawl's record as this node has it."""
        return self._records.get(crawl)

    def ids(self) -> list[bytes]:
        """The crawls that are known, sorted."""
        return sorted(self._records)

    @property
    def running(self) -> bool:
        """Whether a crawl has not ended."""
        return any(not record.ended for record in self._records.values())

    @property
    def delay_s(self) -> float:
        """The longest delay, in seconds, that a crawl which has not ended keeps at any host by its user's wish."""
        if self._delay_s is None:
            delays = [delay_s for record in self._records.values() if not record.ended for delay_s in _delays(record)]
            self._delay_s = max(delays, default=0.0)
        return self._delay_s

    def heir_of(self, crawl: bytes, node: str) -> str | None:
        """The member that has the pages which `node` fetched: itself or its heir; None where neither is a member."""
        record = self._records.get(crawl)
        return None if record is None else heir_of(record, node, lambda each: bytes.fromhex(each) in self._peers.view)

    async def load(self) -> None:
        """Read the records in the store; those that came before stay."""
        for record in await self._committer.submit(catalog.crawls):
            await self.learn(self.authority.reclaimed(self._records.setdefault(record.crawl_id, record)))
        self._delay_s = None

    async def learn(self, record: CrawlRecord, *, free_bytes: int = STATE_BYTES) -> CrawlRecord:
        """Merge a record into what is known of its crawl; return the record as it is now.

        Lists take what leaves so many bytes of a record free.
        """

        def write(txn: Txn) -> CrawlRecord | None:
            if catalog.is_closed(txn, record.crawl_id):
                return None
            return catalog.merge_in(txn, record, free_bytes=free_bytes)

        known = self._records.get(record.crawl_id)
        news = record if known is None else merge_crawls(known, record)
        if news == known:
            return known
        record = self.authority.reclaimed(news)
        merged = await self._committer.submit(write)
        if merged is None:
            return record  # forgotten here
        if merge_crawls(merged, record) != merged:
            log.warning(
                "crawl %s: a change is dropped, with it the record would be too long", record.crawl_id.hex()[:12]
            )
        before = self._records.get(record.crawl_id)
        if before is not None:
            # Another change may have come while this one was being written.
            merged = merge_crawls(before, merged)
        self._records[record.crawl_id] = merged
        self._delay_s = None
        _log_change(before, merged)
        if merged != before:
            for tell in self.on_change:
                await tell(merged)
        return merged

    # To and from other nodes

    async def publish(self, record: CrawlRecord) -> CrawlRecord:
        """Sign and learn a record that was changed or made here; every member that answers knows it on return."""
        signed = self.authority.signed(record, self._records.get(record.crawl_id))
        merged = await self.learn(signed, free_bytes=OWN_BYTES)
        others = [member.id for member in self._peers.view.members if member.id != self._peers.node_id]
        async with asyncio.TaskGroup() as group:
            for node in others:
                group.create_task(self.tell(node, record.crawl_id))
        return merged

    async def announce(self, crawl: bytes, source: str, alias: str) -> None:
        """Tell every member where a seed redirects to; once this returns all know it but those that did not answer."""
        record = self._records[crawl]
        said = [target for target in targets_of(record.targets) if (target.source, target.url) == (source, alias)]
        # Who fetched the seed before may be gone, and no newcomer would believe its word then.
        again = bool(said) and all(target.node_id != self._peers.node_id for target in said)
        if alias not in record.aliases or again:
            await self.publish(self.authority.led_to(record, source, alias))

    async def catch_up(self, crawl: bytes) -> bool:
        """Learn what the record of each other member has more; whether all of them answered."""
        others = [member.id for member in self._peers.view.members if member.id != self._peers.node_id]
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(self.catch_up_with(node, crawl)) for node in others]
        return all(each.result() for each in asked)

    async def catch_up_with(self, node: bytes, crawl: bytes) -> bool:
        # A list that begins with this crawl: the digest says whether there is anything to learn.
        number = int.from_bytes(crawl, "big")
        before = (number - 1).to_bytes(len(crawl), "big") if number else b""
        reply = await self._peers.call(node, calls.ListCrawls(before))
        if isinstance(reply, Failure):
            return False
        ours = self._records.get(crawl)
        told = [digest for known, digest in reply.crawls[:1] if known == crawl]
        if all(ours is not None and ours.digest == digest for digest in told):
            answered = True
        else:
            answered = await self._pull_one(node, crawl)
        await self._heard(crawl)
        return answered

    async def _heard(self, crawl: bytes) -> None:
        for tell in self.on_heard:
            await tell(crawl)

    def is_named(self, crawl: bytes, node: str) -> bool:
        """Whether a crawl's record says that a node took part, or could not say so for want of room."""
        record = self._records[crawl]
        named, of = self._named.get(crawl, (frozenset[str](), None))
        if of is not record:
            named = frozenset((*record.participants, *record.heirs, *record.heirs.values()))
            self._named[crawl] = named, record
        return node in named or len(record.participants) >= PARTICIPANTS_MAX

    def has_room(self, crawl: bytes) -> bool:
        """Whether a crawl's record could take a further alias that is believed, however long.

        Those that this node does not believe are left out: who signs thousands would else have all taken for possible.
        """
        record = self._records[crawl]
        believed = {
            target.name: target.packed() for target in targets_of(record.targets) if target.url in record.aliases
        }
        if max(len(record.aliases), len(believed)) >= ALIASES_MAX:
            return False
        return has_room(dataclasses.replace(record, targets=believed), 2 * URL_CHARS_MAX + OWN_BYTES)

    def bequest_to(self, crawl: bytes, heir: bytes) -> Bequest | None:
        """Sign that this node's pages of a crawl are `heir`'s once it has left; None of an unknown crawl."""
        record = self._records.get(crawl)
        return None if record is None else self.authority.bequest(record, heir)

    def left_here(self, crawl: bytes, node: bytes, packed: bytes) -> Bequest | None:
        """A bequest to this node; None where the one that leaves has not signed it, or the crawl is unknown."""
        return self.authority.left_here(crawl, node, packed) if crawl in self._records else None

    async def bequeathed(self, crawl: bytes, bequest: Bequest) -> None:
        """Tell every member who has what a node had of a crawl, for when that is gone."""
        record = self._records.get(crawl)
        if record is not None and bequest.packed() > record.bequests.get(bequest.name, b""):
            bequests = {**record.bequests, bequest.name: bequest.packed()}
            await self.publish(dataclasses.replace(record, bequests=bequests))

    async def stop(self, crawl: bytes, cause: str) -> None:
        """Have a running crawl stop on every node; `cause` is the word of its end."""
        record = self._records[crawl]
        if record.state == RUNNING and not record.ended:
            await self.publish(changed(record, STOPPING, cause=cause))

    async def tell(self, node: bytes, crawl: bytes) -> None:
        """Tell one node a crawl's record."""
        record = self._records.get(crawl)
        if record is not None:
            if self._packed is None or self._packed[0] is not record:
                self._packed = record, to_wire(record)
            await self._peers.call(node, calls.TellCrawl(self._packed[1], crawl))

    async def pull(self, node: bytes) -> bool:
        """Learn the crawls that `node` knows, no more than this node keeps; whether it answered."""
        cursor, told = b"", 0
        while True:
            reply = await self._peers.call(node, calls.ListCrawls(cursor))
            if isinstance(reply, Failure):
                return False
            known = reply.crawls
            if any(crawl <= cursor for crawl, _ in known):
                return False  # a list that leads back would never end
            for crawl, digest in known:
                ours = self._records.get(crawl)
                if ours is None and len(self._records) >= CRAWLS_MAX:
                    continue
                if ours is None or ours.digest != digest:
                    await self._pull_one(node, crawl, met=True)
            told += len(known)
            if len(known) < calls.CRAWLS_A_LIST or told > CRAWLS_MAX:
                return True
            cursor = known[-1].crawl

    async def hear(self, record: CrawlRecord, teller: bytes) -> bool:
        """Learn what counts of a peer's record; False where its versions were lowered: it is to be heard again."""
        known = self._records.get(record.crawl_id)
        counts = self.authority.believed(record, known, teller)
        if counts is not record and self.authority.refused == 1:
            log_refused(record, teller)
        plausible = lowered(counts, known)
        await self.learn(plausible)
        if plausible is counts:
            return True
        self.leaps += 1
        if self.leaps == 1:
            log_leap(record)
        return False

    async def _pull_one(self, node: bytes, crawl: bytes, *, met: bool = False) -> bool:
        """Learn a crawl's record from a node; whether it gave a valid one.

        From a neighbour that is `met` a crawl is taken without an author's signature: it may be older than these.
        """
        for _ in range(PULLS_MAX):
            reply = await self._peers.call(node, calls.GetCrawl(crawl))
            record = None if isinstance(reply, Failure) else _parsed(reply.record)
            if record is not None and record.crawl_id != crawl:
                return False  # for a crawl that was not asked for no bound would hold
            if record is not None and not (met and record.author is None):
                record = self._sound(record)
            if record is None or await self.hear(record, node):
                return record is not None
        return True

    async def _on_tell(self, asker: bytes, args: calls.TellCrawl) -> Done | Refused:
        view = self._peers.view
        known = None if args.crawl is None else self._records.get(args.crawl)
        record = self._sound(_parsed(args.record, known, view.ids if args.view == view_fingerprint(view) else ()))
        if record is None:
            raise BadArguments("record")
        if record.crawl_id not in self._records and len(self._records) >= CRAWLS_MAX:
            return Refused("full", f"{CRAWLS_MAX} crawls are known here")
        if record.crawl_id not in self._records and not self._tellers.may_tell(asker):
            return Refused("full", f"one node may tell {TOLD_MAX} new crawls at once")
        await self.hear(record, asker)
        await self._heard(record.crawl_id)
        return Done()

    def _sound(self, record: CrawlRecord | None) -> CrawlRecord | None:
        """A peer's record, unless it is of a crawl that is new here and that its author has not signed."""
        if record is None or record.crawl_id in self._records or self.authority.is_authored(record):
            return record
        log.info("a crawl record from a peer: crawl %s is not signed by its author", record.crawl_id.hex()[:12])
        return None

    def _on_list(self, _asker: bytes, args: calls.ListCrawls) -> calls.KnownCrawls:
        known = sorted(crawl for crawl in self._records if crawl > args.after)[: calls.CRAWLS_A_LIST]
        digests = (self._records[crawl].digest for crawl in known)
        return calls.KnownCrawls(tuple(map(calls.ListedCrawl, known, digests)))

    def _on_get(self, _asker: bytes, args: calls.GetCrawl) -> calls.KnownRecord | Refused:
        record = self._records.get(args.crawl)
        return Refused(UNKNOWN_CRAWL) if record is None else calls.KnownRecord(to_wire(record))


def _delays(record: CrawlRecord) -> list[float]:
    return [record.settings.delay_s, *record.spec.searches.delays.values()]


def log_leap(record: CrawlRecord) -> None:
    """Log that a peer's record was lowered, for the first of them."""
    crawl = record.crawl_id.hex()
    log.warning(
        "crawl %s is told with version %d, far beyond what is known here; versions of others are taken in steps of %d,"
        " and from now on this is only counted",
        crawl[:12],
        record.version,
        STEP_MAX,
        extra={"crawl": crawl},
    )


def log_refused(record: CrawlRecord, teller: bytes) -> None:
    """Log that a peer told a change that does not count, for the first of them."""
    crawl, maker = record.crawl_id.hex(), record.maker
    log.warning(
        "node %s tells a change of crawl %s, signed by %s, that neither the author of the crawl nor its coordinator has"
        " made; it does not count, and from now on this is only counted",
        teller.hex()[:12],
        crawl[:12],
        "nobody" if maker is None else maker.node_id.hex()[:12],
        extra={"crawl": crawl, "peer": teller.hex()},
    )


def _log_change(before: CrawlRecord | None, now: CrawlRecord) -> None:
    crawl, fields = now.crawl_id.hex()[:12], {"crawl": now.crawl_id.hex()}
    if before is None:
        log.info("crawl %s of %s is known here, %s", crawl, now.spec.all_seeds[0], now.ended or now.state, extra=fields)
    elif before.ended != now.ended or before.state != now.state:
        log.info("crawl %s is %s", crawl, f"over: {now.ended}" if now.ended else now.state, extra=fields)


def _parsed(data: bytes, known: CrawlRecord | None = None, among: Sequence[bytes] = ()) -> CrawlRecord | None:
    """A record that a peer sent, whole or as changes of the `known` one; None where it is invalid."""
    try:
        return from_wire(data, known, among)
    except NotARecord as error:
        log.info("a crawl record from a peer: %s", error)
        return None
