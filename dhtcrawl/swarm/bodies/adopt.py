"""A node that leaves gives its pages to another one: bodies, page records, link keys (design invariants I5, I11).

    leaving node ──adopt──▶ heir ──export_rows, export_files, export_chunk──▶ leaving node
                 ◀── done, once everything is on the heir's disk, and the crawl's record names the heir ──

The heir tells the others: its answer may not reach the leaving node, which then asks again, or is gone. What it tells
is the leaving node's bequest, which that has signed and sent with its call: nobody becomes an heir by its own word.

Files keep their names, which begin with the id of the node that wrote them, and records still name that node as the one
that fetched them; the crawl's record says which node has them now. So nothing that points at a body has to change.

What comes is checked as by who gathers (`dhtcrawl.storage.collect.foreign`), since a record that cannot be read ends
the node that has it. What the leaving node has of others that did not leave it their pages is passed over.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from dhtcrawl.crawl.budget import DiskLimit
from dhtcrawl.crawl.rounds import CrawlCounters
from dhtcrawl.errors import StorageError
from dhtcrawl.keyspace import KEY_BYTES
from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.peers.port import Peers
from dhtcrawl.rpc.tasks.events import Failure, FailureKind
from dhtcrawl.rpc.tasks.messages import Refused
from dhtcrawl.rpc.tasks.schema import BadArguments
from dhtcrawl.storage.archive.archive import lengths
from dhtcrawl.storage.collect import foreign
from dhtcrawl.storage.collect.export import Row
from dhtcrawl.storage.collect.facts import Unreachable
from dhtcrawl.storage.collect.foreign import BadRow, NotLeft, Origin
from dhtcrawl.storage.collect.transfer import bring_bytes, whole_rows
from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.bequests import Bequest
from dhtcrawl.storage.store.committer import Committer
from dhtcrawl.storage.store.counters import told
from dhtcrawl.storage.store.crawl_record import CrawlRecord, left_to
from dhtcrawl.storage.store.files import AppendFile, Directory
from dhtcrawl.storage.store.records import pack, unpack
from dhtcrawl.storage.store.txn import Txn
from dhtcrawl.swarm.bodies.copy_service import SPARE_BYTES
from dhtcrawl.swarm.bodies.copying import BodyCopies
from dhtcrawl.swarm.bodies.peer_source import PeerSource
from dhtcrawl.swarm.calls import bodies as calls
from dhtcrawl.swarm.calls.words import Done

# In this order: what refers to a body comes after the body.
KINDS = (keys.SKIPPED, keys.EXTRA, keys.LINKS, keys.PAGE)
KINDS_OF_COPIES = (keys.COPY_LINKS, keys.COPY)  # where a crawl makes copies; after them, who has those of the pages
HOLDERS_MAX = 64  # of a page; a crawl makes 16 copies at most
_LINKS_OF = {keys.PAGE: keys.LINKS, keys.COPY: keys.COPY_LINKS}


class _NoRoom(Exception):
    """The disk has no room for what another node leaves; one line that says so."""


class _Missing(NamedTuple):
    """What is to be taken of a file."""

    name: str
    begin: int
    length: int  # of the file


class _Leaver(NamedTuple):
    """The node that leaves, and how long the task keys of the crawl are."""

    node: bytes
    origin: Origin
    key_width: int


class Bequests(Protocol):
    """Who is whose heir, by the records of crawls."""

    def get(self, crawl: bytes) -> CrawlRecord | None: ...

    async def catch_up_with(self, node: bytes, crawl: bytes) -> bool:
        """Learn what the record of another node has more; whether it answered."""
        ...

    def bequest_to(self, crawl: bytes, heir: bytes) -> Bequest | None: ...

    def left_here(self, crawl: bytes, node: bytes, packed: bytes) -> Bequest | None: ...

    async def bequeathed(self, crawl: bytes, bequest: Bequest) -> None: ...


class AdoptingRun(Protocol):
    """A crawl that runs here, and counts its pages that have too few copies."""

    @property
    def counters(self) -> CrawlCounters: ...

    @property
    def copying(self) -> BodyCopies: ...


@loop_state
class Adoption:
    """Gives one node's pages to an heir, and takes those of others as their heir."""

    def __init__(
        self,
        peers: Peers,
        committer: Committer,
        archive_of: Callable[[bytes], Directory],
        bequests: Bequests,
        run_of: Callable[[bytes], Awaitable[AdoptingRun | None]],
        disk_used: DiskLimit,
    ) -> None:
        """`run_of(crawl)` is the run here, once it is made; None where the crawl does not run."""
        self._peers = peers
        self._committer = committer
        self._archive_of = archive_of
        self._bequests = bequests
        self._run_of = run_of
        self._disk_used = disk_used
        # Two that give the same file at once would both write to it: who asks again, or who was another's heir.
        self._one_by_one: dict[bytes, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._taking: list[asyncio.Timeout] = []
        self._closed = False
        self._taken = asyncio.Event()

    async def close(self, wait_s: float) -> None:
        """Become no node's heir any more; what is being taken is here once this returns, or was broken off."""
        self._closed = True
        breaking = asyncio.get_running_loop().call_later(wait_s, self.break_off)
        while self._taking:
            self._taken.clear()
            await self._taken.wait()
        breaking.cancel()

    def break_off(self) -> None:
        """Become no node's heir any more, and refuse what is being taken: its node tries the next heir."""
        self._closed = True
        for end in self._taking:
            if not end.expired():
                end.reschedule(asyncio.get_running_loop().time())

    async def give(self, heir: bytes, crawl: bytes, *, copies: bool = False) -> bool | None:
        """Let `heir` take a crawl's pages, with `copies` those copied here too; whether all is on its disk.

        None: no answer came.
        """
        bequest = self._bequests.bequest_to(crawl, heir)
        if bequest is None:
            return False  # forgotten here
        answer = await self._peers.call(heir, calls.Adopt(crawl, bequest.packed(), copies))
        if not isinstance(answer, Failure):
            return True
        return False if answer.kind is FailureKind.REFUSED else None

    async def keep(self, crawl: bytes) -> None:
        """Tell the others that no node has this one's pages of a crawl: those that were asked have not taken them."""
        bequest = self._bequests.bequest_to(crawl, self._peers.node_id)
        if bequest is not None:
            await self._bequests.bequeathed(crawl, bequest)

    async def on_adopt(self, node: bytes, args: calls.Adopt) -> Done | Refused:
        """The handler of the call `adopt`."""
        crawl, kinds = args.crawl, KINDS + (KINDS_OF_COPIES if args.copies else ())
        if self._closed:
            # What we took now would not reach our own heir.
            return Refused("leaving", "this node leaves, too")
        bequest = self._bequests.left_here(crawl, node, args.bequest)
        if bequest is None:
            return Refused("not-adopted", "no bequest to this node that the leaving one has signed, of a known crawl")
        source = PeerSource(self._peers, crawl)
        end = asyncio.timeout(None)
        self._taking.append(end)
        try:
            async with end, self._one_by_one[crawl]:
                leaver = await self._leaver(node, crawl)
                await self._take_files(leaver, source, crawl)
                for kind in kinds:
                    await self._take_rows(leaver, source, crawl, kind)
                if args.copies:
                    await self._take_holders(node, source, crawl)
                await self._take_counters(node, source, crawl)
                await self._bequests.bequeathed(crawl, bequest)
        except (Unreachable, BadRow, _NoRoom) as error:
            return Refused("not-adopted", str(error))
        except TimeoutError:
            return Refused("not-adopted", "this node leaves, too")
        finally:
            self._taking.remove(end)
            self._taken.set()
        return Done()

    async def _leaver(self, node: bytes, crawl: bytes) -> _Leaver:
        """Whose pages may come from a node: it knows best who left it theirs, and has their signed words."""
        answered, record = await self._bequests.catch_up_with(node, crawl), self._bequests.get(crawl)
        if not answered or record is None:
            raise BadRow("does not tell the crawl's record")
        origin = Origin(crawl, node.hex(), record.spec.key_of, left_to(record, node.hex()))
        return _Leaver(node, origin, record.spec.keys.width)

    async def _take_files(self, leaver: _Leaver, source: PeerSource, crawl: bytes) -> None:
        node, origin, _ = leaver
        files = [file for file in await source.files(node) if not foreign.is_file_not_left(origin, file[0])]
        for name, _ in files:
            if not foreign.is_archive_file(origin, name):
                raise BadRow(f"{name[:80]!r} is no name of an archive file")
        own = f"{crawl.hex()[:12]}-{self._peers.node_id.hex()[:12]}-"
        # Our own, which `node` took once as our heir, are no shorter here, and open.
        files = [file for file in files if not file[0].startswith(own)]
        find: Any = partial(_missing, crawl=crawl, archive=self._archive_of(crawl), files=files)
        missing: list[_Missing] = await self._committer.submit(find)
        needed = sum(file.length - file.begin for file in missing)
        for file in missing:
            await self._need_room(crawl, needed)
            await self._take_file(node, source, crawl, file)
            needed -= file.length - file.begin

    async def _need_room(self, crawl: bytes, needed: int = 0) -> None:
        """Go on only where so much fits on the disk: one that is full ends a node, and the next heir may have room.

        A node that reaches its disk limit stops the crawl on all nodes.
        """
        if await self._disk_used(needed):
            raise _NoRoom("there is no room below this node's disk limit")
        archive = self._archive_of(crawl)
        if await self._committer.submit(lambda _: archive.free_bytes()) < needed + SPARE_BYTES:
            raise _NoRoom("there is no room on this node's disk")

    async def _take_file(self, node: bytes, source: PeerSource, crawl: bytes, missing: _Missing) -> None:
        archive, (name, begin, length) = self._archive_of(crawl), missing
        file: AppendFile = await self._committer.submit(lambda _: archive.open(name, begin))
        try:
            chunk = partial(source.chunk, node)
            await bring_bytes(self._committer, chunk, name, begin, length, lambda _, data: file.append(data))
            await self._committer.submit(partial(_finish, file=file, crawl=crawl, length=length))
        finally:
            await self._committer.submit(partial(_put_away, file=file, crawl=crawl, archive=archive))

    async def _take_rows(self, leaver: _Leaver, source: PeerSource, crawl: bytes, kind: bytes) -> None:
        async for rows in whole_rows(partial(source.rows, leaver.node, kind), kind):
            await self._need_room(crawl)
            await self._committer.submit(partial(_put, crawl=crawl, kind=kind, rows=rows, leaver=leaver))

    async def _take_holders(self, node: bytes, source: PeerSource, crawl: bytes) -> None:
        """Take the lists of who has copies of the pages: what has too few of them is this node's to copy, and to count.

        A run that is made meanwhile counts those that are in the store.
        """
        run = await self._run_of(crawl)
        wanted = 0 if run is None else run.copying.further
        async for rows in whole_rows(partial(source.rows, node, keys.HOLDERS), keys.HOLDERS):
            grew = await self._committer.submit(partial(_put_holders, crawl=crawl, rows=rows, wanted=wanted))
            if run is not None:
                run.counters.pages_undercopied += grew

    async def _take_counters(self, node: bytes, source: PeerSource, crawl: bytes) -> None:
        """Take what the node counted, and those whose heir it is, each by itself: one that comes back tells its own."""
        async for rows in whole_rows(partial(source.rows, node, keys.COUNTERS), keys.COUNTERS):
            counted = {suffix or node: _counters(suffix or node, value) for suffix, value in rows}
            counted.pop(self._peers.node_id, None)  # ours, which `node` took once as our heir
            await self._committer.submit(partial(_put_counters, crawl=crawl, counted=counted))


def _missing(txn: Txn, *, crawl: bytes, archive: Directory, files: Sequence[tuple[str, int]]) -> list[_Missing]:
    """Those of a node's files that are to be taken; one that has grown goes on, as rows here lead to what was taken."""
    here = lengths(txn, crawl)
    wanted = [(name, here.get(name, -1), length) for name, length in files]
    return [_Missing(name, _whole(archive, name, taken), length) for name, taken, length in wanted if taken < length]


def _whole(archive: Directory, name: str, taken: int) -> int:
    """How much was taken of a file; 0 of one that is cut or away since, so that it is taken anew."""
    try:
        return taken if taken > 0 and archive.read(name, taken - 1, 1) else 0
    except StorageError:
        return 0


def _finish(txn: Txn, *, file: AppendFile, crawl: bytes, length: int) -> None:
    file.sync()
    txn.put(keys.ARCHIVE + crawl + file.name.encode(), pack(length))


def _put_away(txn: Txn, *, file: AppendFile, crawl: bytes, archive: Directory) -> None:
    """Close a file; what came of one that broke off goes, as no record leads there, and nobody would remove it."""
    committed = txn.get(keys.ARCHIVE + crawl + file.name.encode())
    length = 0 if committed is None else unpack(committed)
    if file.size > length:
        file.truncate(length)
    file.close()
    if committed is None:
        archive.remove(file.name)


def _put(txn: Txn, *, crawl: bytes, kind: bytes, rows: Sequence[Row], leaver: _Leaver) -> None:
    for suffix, value in rows:
        full = kind + crawl + suffix
        held = txn.get(full)
        try:
            _check(leaver, kind, suffix, value)
        except NotLeft:
            if held is None:
                txn.delete(_LINKS_OF.get(kind, kind) + crawl + suffix)  # which came before
            continue
        # What this node fetched itself is not overwritten.
        if held is None or (held != value and _is_news(txn, crawl, kind, suffix, value, leaver.node)):
            txn.put(full, value)


def _check(leaver: _Leaver, kind: bytes, suffix: bytes, value: bytes) -> None:
    """Check that a row is one that the outputs of a crawl, and other nodes, can have.

    Raises:
        BadRow: it is not; `NotLeft` where it is of a node that did not leave it to the sender.
    """
    match kind:
        case keys.PAGE | keys.COPY:
            foreign.read_page(leaver.origin, suffix, value)
        case keys.EXTRA:
            foreign.read_extra(leaver.origin, suffix, value)
        case keys.SKIPPED:
            foreign.read_skipped(suffix, value)
        case _:
            foreign.read_task_key(suffix)
            if len(value) % leaver.key_width:
                raise BadRow("sent link keys that are none")


def _put_holders(txn: Txn, crawl: bytes, rows: Sequence[Row], wanted: int) -> int:
    """Note who has copies of pages that are new here; by how much the number of those with too few grew.

    Raises:
        BadRow: a row is none.
    """
    for suffix, value in rows:
        foreign.read_task_key(suffix)
        if len(value) % KEY_BYTES or len(value) > HOLDERS_MAX * KEY_BYTES:
            raise BadRow("sent a list of copies that is none")
    new = [(suffix, value) for suffix, value in rows if txn.get(keys.HOLDERS + crawl + suffix) is None]
    for suffix, value in new:
        txn.put(keys.HOLDERS + crawl + suffix, value)
    return sum(len(value) // KEY_BYTES < wanted for _, value in new)


def _counters(node: bytes, value: bytes) -> dict[str, int | float]:
    """What a node counted, from its store; what has too few copies is counted at its heir from then on.

    Raises:
        BadRow: these are no counters.
    """
    counters = _fields(value)
    sound = all(type(name) is str and type(count) in (int, float) for name, count in counters.items())
    if len(node) != KEY_BYTES or not sound:
        raise BadRow("sent counters that are none")
    try:
        counted = dict(calls.NodeFigures.parse({"counters": told(counters)}).counters)
    except BadArguments as error:
        raise BadRow(f"sent counters that are none ({error.field})") from error
    return counted | ({"pages_undercopied": 0} if "pages_undercopied" in counted else {})


def _put_counters(txn: Txn, *, crawl: bytes, counted: Mapping[bytes, Mapping[str, int | float]]) -> None:
    for node, counters in counted.items():
        txn.put(keys.key(keys.COUNTERS, crawl, node), pack(dict(counters)))


def _is_news(txn: Txn, crawl: bytes, kind: bytes, suffix: bytes, value: bytes, node: bytes) -> bool:
    """Whether `node` has found a shorter way to a page of its own since we took it: more of its links count."""
    page = _fields(txn.get(keys.PAGE + crawl + suffix)) if kind in (keys.PAGE, keys.LINKS) else {}
    place = page.get("place")
    if not isinstance(place, list | tuple) or not place or place[0] != node.hex():
        return False
    if kind == keys.LINKS:
        return len(value) > len(txn.get(keys.LINKS + crawl + suffix) or b"")
    came, ours = (fields.get("depth") for fields in (_fields(value), page))
    return _fields(value).get("place") == place and type(came) is int and type(ours) is int and came < ours


def _fields(page: bytes | None) -> dict[str, Any]:
    try:
        fields = unpack(page or b"")
    except StorageError:
        return {}
    return fields if isinstance(fields, dict) else {}
