"""Takes copies of pages that other nodes fetched, and lets them stand in (`--copies`, design invariant I11).

    copy_pages       pages of the asker → one `CopyCode` a page, once they are on our disk
    stand_in_pages   keys of pages whose node is gone → places of those that are here, as our own pages from now on

A page's archive members are read to their end and checked against its record before it counts as a copy: it would pass
`dhtcrawl verify`. A page too big for a call is fetched in chunks into a file of its own.

A node that leaves takes nothing more and lets nothing stand in: its heir is to have all of it.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, BinaryIO, Final, NamedTuple, cast

from dhtcrawl.keyspace import KEY_BYTES
from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.peers.port import Peers
from dhtcrawl.rpc.tasks.messages import Refused
from dhtcrawl.storage.archive import body_copies
from dhtcrawl.storage.archive.archive import Archive
from dhtcrawl.storage.collect.facts import Unreachable
from dhtcrawl.storage.collect.foreign import BadRow, Origin, read_page
from dhtcrawl.storage.collect.transfer import bring_bytes, whole_rows
from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.committer import Committer
from dhtcrawl.storage.store.crawl_record import CrawlRecord, left_to, nodes_of
from dhtcrawl.storage.store.files import Directory
from dhtcrawl.storage.store.records import Place
from dhtcrawl.storage.store.txn import Txn
from dhtcrawl.swarm.bodies.copy_tracker import CopyCode
from dhtcrawl.swarm.bodies.peer_source import PeerSource
from dhtcrawl.swarm.calls import bodies as calls

# What copies, and pages of nodes that leave, leave free on the disk, for this node's own pages and its store.
SPARE_BYTES: Final = 64 << 20
FETCHES_MAX: Final = 2
TIMEOUT_S: Final = 30.0

Offload = Callable[[Callable[[], Any]], Awaitable[Any]]


class _Sent(NamedTuple):
    """A page of a call, parsed."""

    row: calls.CopyRow
    fields: dict[str, Any]
    place: Place  # at the asker


@loop_state
class CopyService:
    """Answers the calls about copies for one crawl on one node."""

    def __init__(
        self,
        peers: Peers,
        committer: Committer,
        record: Callable[[], CrawlRecord],
        directory: Directory,
        make_archive: Callable[[], Awaitable[Archive]],
        offload: Offload,
        is_open: Callable[[], bool],
    ) -> None:
        """Copies go into `make_archive()`, whose files are in `directory`; it is made when the first one comes.

        `is_open()`: whether this node takes part, and is not about to leave.
        """
        self.busy = 0  # calls that are being answered
        self._peers = peers
        self._committer = committer
        self._record = record
        self._directory = directory
        self._make_archive = make_archive
        self._made: Archive | None = None
        self._making = asyncio.Lock()
        self._offload = offload
        self._is_open = is_open
        self._fetching = asyncio.Semaphore(FETCHES_MAX)

    async def on_stand_in(self, _asker: bytes, args: calls.StandIn) -> calls.PagesFound | Refused:
        """The handler of `stand_in_pages`."""
        if not self._is_open():
            return Refused("leaving")
        self.busy += 1
        try:
            write: Any = partial(
                body_copies.stand_in,
                crawl=self._record().crawl_id,
                task_keys=args.keys,
                leads_here=self._leads_here(),
            )
            found = await self._committer.submit(write)
            return calls.PagesFound(tuple(calls.FoundRow(key, calls.BodyPlace(*place)) for key, place in found))
        finally:
            self.busy -= 1

    def _leads_here(self) -> frozenset[str]:
        """The nodes, in hex, whose places mean this one."""
        view = self._peers.view
        return nodes_of(self._record(), self._peers.node_id.hex(), lambda node: bytes.fromhex(node) in view)

    async def on_copy(self, asker: bytes, args: calls.CopyPages) -> calls.CopyCodes | Refused:
        """The handler of `copy_pages`."""
        if not self._is_open():
            return Refused("leaving")
        self.busy += 1
        try:
            return calls.CopyCodes(bytes(await self._take(asker, args.pages)))
        finally:
            self.busy -= 1

    async def _take(self, asker: bytes, pages: tuple[calls.CopyRow, ...]) -> list[CopyCode]:
        """Take the pages of a call; a code for each."""
        record, node = self._record(), asker.hex()
        origin = Origin(record.crawl_id, node, record.spec.key_of, left_to(record, node))
        sent = [_parsed(origin, page) for page in pages]
        sound = await self._offload(partial(_sound, sent))
        archive = await self._archive()
        write: Any = partial(
            _write,
            crawl=record.crawl_id,
            archive=archive,
            directory=self._directory,
            sent=sent,
            sound=sound,
            leads_here=self._leads_here(),
        )
        codes: list[CopyCode | None] = await self._committer.submit(write)
        found = []
        for page, code in zip(sent, codes, strict=True):
            if code is None:
                assert page is not None, "it was refused"
                code = await self._fetch(asker, page, archive)
            found.append(code)
        return found

    async def _archive(self) -> Archive:
        async with self._making:
            if self._made is None:
                self._made = await self._make_archive()
        return self._made

    # A page that does not fit into a call

    async def _fetch(self, asker: bytes, page: _Sent, archive: Archive) -> CopyCode:
        async with self._fetching:
            try:
                return await self._fetch_now(asker, page, archive)
            except (Unreachable, BadRow):
                return CopyCode.REFUSED

    async def _fetch_now(self, asker: bytes, page: _Sent, archive: Archive) -> CopyCode:
        crawl, row, fields = self._record().crawl_id, page.row, page.fields
        source = PeerSource(self._peers, crawl, TIMEOUT_S)
        links = row.links if row.links is not None else await self._fetch_links(source, asker, row.key)
        put = partial(body_copies.put_copy, crawl=crawl, key=row.key, fields=fields, links=links)
        held: Any = partial(body_copies.held, crawl=crawl, key=row.key, fields=fields, leads_here=self._leads_here())
        place: Place | None = await self._committer.submit(held)
        if place is not None:
            there = place
            await self._committer.submit(lambda txn: put(txn, place=there))
            return CopyCode.HAS_IT
        directory = self._directory
        if await self._committer.submit(lambda _: directory.free_bytes()) < row.length + SPARE_BYTES:
            return CopyCode.FULL
        file = await self._committer.submit(lambda _: archive.begin_alone())
        start, kept = file.size, False
        try:
            begin, chunk = page.place.offset, partial(source.chunk, asker)
            await bring_bytes(
                self._committer, chunk, page.place.file, begin, begin + row.length, lambda _, data: file.append(data)
            )
            stream = body_copies.Stored(directory, file.name, start, row.length)
            look = partial(body_copies.is_page, cast(BinaryIO, io.BufferedReader(stream)), fields, page.place.length)
            if not await self._offload(look):
                return CopyCode.REFUSED

            here = Place(self._peers.node_id.hex(), file.name, start, page.place.length)

            def keep(txn: Txn) -> None:
                archive.keep(file)
                put(txn, place=here)

            await self._committer.submit(keep)
            kept = True
            return CopyCode.HAS_IT
        finally:
            if not kept:
                await self._committer.submit(lambda _: archive.drop(file))

    async def _fetch_links(self, source: PeerSource, asker: bytes, key: bytes) -> bytes:
        """The link keys of one page."""
        ask = partial(source.rows, asker, keys.LINKS)
        async with aclosing(whole_rows(ask, keys.LINKS, key)) as pages:
            async for rows in pages:
                found, links = rows[0]
                if len(links) % KEY_BYTES:
                    raise BadRow("sent link keys that are none")
                return links if found == key else b""
        return b""


def _parsed(origin: Origin, row: calls.CopyRow) -> _Sent | None:
    """A page of a call; None where the asker cannot have such a page."""
    try:
        fields = read_page(origin, row.key, row.record)
    except BadRow:
        return None
    place = Place(*fields["place"])
    fits = 0 < place.length <= row.length <= place.length + body_copies.REQUEST_BYTES_MAX
    return _Sent(row, fields, place) if fits else None


def _first_look(page: _Sent | None, held: bool, sound: bool, room: int) -> CopyCode | None:
    """The code for a page of a call; None where it, or its links, are to be fetched."""
    if page is None:
        return CopyCode.REFUSED
    row = page.row
    if row.links is None or (row.fetch and not held):
        return None
    if held:
        return CopyCode.HAS_IT
    if row.data is None:
        return CopyCode.LACKS_IT
    if not sound:
        return CopyCode.REFUSED
    return CopyCode.HAS_IT if row.length <= room else CopyCode.FULL


def _sound(sent: Sequence[_Sent | None]) -> list[bool]:
    return [
        page is not None
        and page.row.data is not None
        and body_copies.is_page(io.BytesIO(page.row.data), page.fields, page.place.length)
        for page in sent
    ]


def _write(
    txn: Txn,
    crawl: bytes,
    archive: Archive,
    directory: Directory,
    sent: Sequence[_Sent | None],
    sound: Sequence[bool],
    leads_here: frozenset[str],
) -> list[CopyCode | None]:
    """Write what there is room for; a code for each page, None for one that has to be fetched."""
    room = directory.free_bytes() - SPARE_BYTES
    codes: list[CopyCode | None] = []
    for page, is_sound in zip(sent, sound, strict=True):
        if page is not None and body_copies.is_own(txn, crawl, page.row.key, page.fields, leads_here):
            codes.append(CopyCode.HAS_IT)  # it was gone, and its heir has the page, too
            continue
        place = None if page is None else body_copies.held(txn, crawl, page.row.key, page.fields, leads_here)
        code = _first_look(page, place is not None, is_sound, room)
        if code is CopyCode.HAS_IT:
            assert page is not None
            assert page.row.links is not None
            if place is None:
                assert page.row.data is not None
                room -= page.row.length
                place = archive.append_members(page.row.data, page.place.length)
            body_copies.put_copy(txn, crawl, page.row.key, page.fields, page.row.links, place)
        codes.append(code)
    return codes
