"""Who leaves gives its pages away whole, and nobody's own files are touched."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from storage.stores import CRAWL, SPEC

from dhtcrawl.keyspace import url_key
from dhtcrawl.rpc.tasks.messages import Refused
from dhtcrawl.sim.committer import LoopCommitter
from dhtcrawl.sim.keys import SimKey
from dhtcrawl.storage.collect import export
from dhtcrawl.storage.store import bequests, catalog, keys
from dhtcrawl.storage.store.bequests import Bequest
from dhtcrawl.storage.store.committer import GroupRunner
from dhtcrawl.storage.store.crawl_record import CrawlRecord
from dhtcrawl.storage.store.files import MemoryDirectory
from dhtcrawl.storage.store.memory import MemoryEngine
from dhtcrawl.storage.store.records import pack, unpack
from dhtcrawl.storage.store.txn import Txn
from dhtcrawl.swarm.bodies.adopt import Adoption
from dhtcrawl.swarm.bodies.copy_service import SPARE_BYTES
from dhtcrawl.swarm.bodies.exports import counters_of
from dhtcrawl.swarm.calls.bodies import Adopt, NodeFigures
from dhtcrawl.swarm.calls.words import COUNT_MAX, WORDS_MAX, Done
from swarm.fake_peers import FakePeers, node, view_of

LEAVER, LEFT_TO = node(1), node(0)


def bequest(leaver: bytes = LEAVER, heir: bytes = LEFT_TO, crawl: bytes = CRAWL) -> Bequest:
    return bequests.made(SimKey(leaver), crawl, heir, 1)


def left(copies: bool = False, leaver: bytes = LEAVER) -> Adopt:
    return Adopt(CRAWL, bequest(leaver).packed(), copies)


def name_of(owner: bytes, number: int = 0) -> str:
    return f"{CRAWL.hex()[:12]}-{owner.hex()[:12]}-{number:05d}.warc.gz"


class Side:
    """A node's store and archive, and the nodes whose heir it said to be."""

    def __init__(self) -> None:
        self.engine, self.archive = MemoryEngine(), MemoryDirectory()
        self.told: list[Bequest] = []
        self.run: Any = None  # of the crawl
        self.limit_bytes = math.inf  # of the disk
        self.known: list[Bequest] = []  # by the crawl's record

    def adoption(self, peers: FakePeers) -> Adoption:
        committer = LoopCommitter(GroupRunner(self.engine, sync=False))
        return Adoption(peers, committer, lambda crawl: self.archive, self, self.run_of, self.disk_used)

    # What the crawl's record says

    def get(self, crawl: bytes) -> CrawlRecord:
        left = {each.name: each.packed() for each in self.known}
        return CrawlRecord(crawl, SPEC, bytes(16), bequests=left)

    async def catch_up_with(self, node: bytes, crawl: bytes) -> bool:
        return node == LEAVER or bool(self.known)

    def bequest_to(self, crawl: bytes, heir: bytes) -> Bequest | None:
        return bequest(heir=heir) if crawl == CRAWL else None

    def left_here(self, crawl: bytes, node: bytes, packed: bytes) -> Bequest | None:
        found = bequests.read(bequests.name_of(node, LEFT_TO), packed)
        assert found is not None
        return found if bequests.is_signed(found, crawl, SimKey(node)) else None

    async def bequeathed(self, crawl: bytes, bequest: Bequest) -> None:
        assert crawl == CRAWL
        self.told.append(bequest)

    async def disk_used(self, more_bytes: int = 0, /) -> bool:
        return sum(map(len, self.archive.files.values())) + more_bytes >= self.limit_bytes

    async def run_of(self, crawl: bytes) -> Any:
        return self.run

    def file(self, name: str, data: bytes) -> None:
        self.archive.files[name] = bytearray(data)
        self.engine.write({keys.ARCHIVE + CRAWL + name.encode(): pack(len(data))}, sync=False)

    def put(self, kind: bytes, suffix: bytes, value: bytes) -> None:
        self.engine.write({kind + CRAWL + suffix: value}, sync=False)

    def rows(self, kind: bytes) -> dict[bytes, bytes]:
        return {keys.suffix(key): value for key, value in self.engine.scan(*keys.bounds(kind, CRAWL))}

    def txn(self) -> Txn:
        return Txn(self.engine, {})

    def calls(self) -> dict[str, Callable[[dict[str, Any]], Any]]:
        """What a leaving node answers."""

        def rows(args: dict[str, Any]) -> Any:
            found, cursor = export.export_rows(self.txn(), CRAWL, args["kind"], args["cursor"], 1_000)
            return {"rows": tuple(found), "cursor": cursor}

        def files(args: dict[str, Any]) -> Any:
            found = export.export_files(self.txn(), CRAWL)
            return {"files": tuple(row for row in found if row[0] > args["after"])}

        def chunk(args: dict[str, Any]) -> Any:
            data = export.export_chunk(self.txn(), CRAWL, self.archive, args["name"], args["offset"], 100)
            return {"data": data}

        return {
            "export_rows": rows,
            "export_files": files,
            "export_chunk": chunk,
        }


async def adopt(leaver: Side, heir: Side, copies: bool = False, **calls: Callable[[dict[str, Any]], Any]) -> Any:
    peers = FakePeers(view_of([0, 1]))
    peers.calls = leaver.calls() | calls
    adoption = heir.adoption(peers)
    async with asyncio.timeout(100.0):
        return await adoption.on_adopt(LEAVER, left(copies))


def url(number: int) -> str:
    return f"http://a.example/{number}"


def page(number: int, owner: bytes = LEAVER, **fields: Any) -> bytes:
    """The record of a page whose body lies in a file of `owner`."""
    found = {
        "url": url(number), "status": 200, "depth": 1, "referrer": None, "bytes": 9, "payload_digest": "sha256:0",
        "mime": "text/html", "fetched_at": "2026-11-25T12:00:00.000Z", "place": [owner.hex(), name_of(owner), 5, 90],
    }  # fmt: skip
    return pack(found | fields)


def leaving() -> Side:
    side = Side()
    side.file(name_of(LEAVER), bytes(range(250)))
    side.file(name_of(LEAVER, 1), b"more")
    side.put(keys.COUNTERS, b"", pack({"pages": 7}))
    for number in range(50):
        key = url_key(url(number))
        side.put(keys.PAGE, key, page(number))
        side.put(keys.LINKS, key, bytes(20 * number))
        side.put(keys.SKIPPED, key, pack([url(number), "robots", ""]))
    return side


async def test_files_pages_links_and_books_come_over_whole() -> None:
    leaver, heir = leaving(), Side()
    assert await adopt(leaver, heir) == Done()
    for kind in (keys.PAGE, keys.LINKS, keys.SKIPPED, keys.ARCHIVE):
        assert heir.rows(kind) == leaver.rows(kind)
    assert heir.archive.files == leaver.archive.files
    assert unpack(heir.rows(keys.COUNTERS)[LEAVER]) == {"pages": 7}
    assert heir.told == [bequest()]


async def test_copies_of_others_pages_come_over_only_where_there_are_any() -> None:
    leaver, heir, other = leaving(), Side(), Side()
    copies = f"{CRAWL.hex()[:12]}-{LEAVER.hex()[:12]}-c00000.warc.gz"
    leaver.file(copies, b"copies")
    key = url_key(url(99))
    copy = page(99, copy=True, place=[LEAVER.hex(), copies, 0, 6])
    for kind, value in zip(keys.COPIES, (copy, bytes(20 * 100), bytes(40)), strict=True):
        leaver.put(kind, key, value)
    assert await adopt(leaver, heir, copies=True) == Done()
    for kind in (*keys.COPIES, keys.ARCHIVE, keys.PAGE):
        assert heir.rows(kind) == leaver.rows(kind)
    assert heir.archive.files[copies] == b"copies"
    await adopt(leaver, other)
    assert all(other.rows(kind) == {} for kind in keys.COPIES)


def knows(side: Side, own: bytes, *left: tuple[bytes, bytes, int]) -> None:
    """What a node's store has of the crawl: who left its pages to whom, as the so-manieth bequest."""
    made = [bequests.made(SimKey(leaver), CRAWL, heir, number) for leaver, heir, number in left]
    writes: dict[bytes, bytes | None] = {}
    txn = Txn(side.engine, writes)
    catalog.mark_swarm(txn, own.hex())
    catalog.put_crawl(txn, CrawlRecord(CRAWL, SPEC, bytes(16), bequests={each.name: each.packed() for each in made}))
    side.engine.write(writes, sync=False)


async def test_what_a_node_counted_that_left_is_its_heirs_to_tell_until_it_is_back_or_has_another() -> None:
    leaver, heir = leaving(), Side()
    heir.put(keys.COUNTERS, b"", pack({"pages": 2}))
    await adopt(leaver, heir)
    elsewhere = (LEAVER, node(2), 2)
    for left, pages in (
        ([], 2),
        ([(LEAVER, LEFT_TO, 1)], 9),
        ([(LEAVER, LEFT_TO, 1), (LEAVER, LEAVER, 2)], 2),
        ([(LEAVER, LEFT_TO, 1), elsewhere], 2),
        ([elsewhere, (node(2), LEFT_TO, 1)], 9),
    ):
        knows(heir, LEFT_TO, *left)
        assert counters_of(heir.txn(), crawl=CRAWL) == {"pages": pages}, left


async def test_what_others_counted_comes_along_each_by_itself_and_not_what_the_heir_did_itself() -> None:
    leaver, heir, earlier = leaving(), Side(), node(3)
    heir.put(keys.COUNTERS, b"", pack({"pages": 2}))
    for other, pages in ((earlier, 5), (LEFT_TO, 1)):
        leaver.put(keys.COUNTERS, other, pack({"pages": pages}))
    await adopt(leaver, heir)
    chain = [(earlier, LEAVER, 1), (LEAVER, LEFT_TO, 1)]
    knows(heir, LEFT_TO, *chain)
    assert counters_of(heir.txn(), crawl=CRAWL) == {"pages": 2 + 7 + 5}
    knows(heir, LEFT_TO, *chain, (earlier, earlier, 2))
    assert counters_of(heir.txn(), crawl=CRAWL) == {"pages": 2 + 7}


async def test_an_heir_can_tell_what_it_counted_whatever_who_left_says_of_itself() -> None:
    """Else nobody could gather the pages of either."""
    leaver, heir = leaving(), Side()
    own = {"pages": 2, "seconds": 9.5} | {f"own{number}": 1 for number in range(50)}
    others = {"pages": COUNT_MAX, "bytes": -COUNT_MAX, "seconds": 1e18}
    heir.put(keys.COUNTERS, b"", pack(own | {"bytes": -1}))
    leaver.put(keys.COUNTERS, b"", pack(others | {f"other{number}": 1 for number in range(WORDS_MAX - 3)}))
    await adopt(leaver, heir)
    knows(heir, LEFT_TO, (LEAVER, LEFT_TO, 1))
    told = NodeFigures.parse({"counters": counters_of(heir.txn(), crawl=CRAWL)}).counters
    assert own.keys() <= told.keys()
    assert (told["pages"], told["bytes"], told["seconds"]) == (COUNT_MAX, -COUNT_MAX, 1e18)


async def test_what_there_is_no_room_for_is_refused_and_what_is_here_needs_none() -> None:
    """A disk that is full ends a node, then the next one that is asked to take the same pages."""
    leaver, heir = leaving(), Side()
    needed = sum(map(len, leaver.archive.files.values()))
    heir.archive.free = needed + SPARE_BYTES - 1
    refused = await adopt(leaver, heir)
    assert isinstance(refused, Refused)
    assert (refused.reason, heir.told, heir.archive.files) == ("not-adopted", [], {})
    heir.archive.free += 1
    assert await adopt(leaver, heir) == Done()
    heir.archive.free = SPARE_BYTES
    assert await adopt(leaver, heir) == Done()
    heir.archive.free -= 1
    assert isinstance(await adopt(leaver, heir), Refused), "nor is there room for rows"


async def test_what_would_reach_the_heirs_disk_limit_is_refused() -> None:
    """Who reaches it stops the crawl on all nodes, though another one may have room."""
    leaver, heir = leaving(), Side()
    heir.limit_bytes = sum(map(len, leaver.archive.files.values()))
    refused = await adopt(leaver, heir)
    assert isinstance(refused, Refused)
    assert (refused.reason, heir.told, heir.archive.files) == ("not-adopted", [], {})
    heir.limit_bytes += 1
    assert await adopt(leaver, heir) == Done()


async def test_what_the_heir_fetched_itself_stays_as_it_is() -> None:
    leaver, heir = leaving(), Side()
    key = url_key(url(3))
    heir.put(keys.PAGE, key, b"its own")
    await adopt(leaver, heir)
    assert heir.rows(keys.PAGE)[key] == b"its own"


async def test_files_that_were_the_heirs_own_are_not_touched() -> None:
    """It left once, came back, and now whoever had its pages leaves in turn."""
    leaver, heir = leaving(), Side()
    heir.known = [bequest(LEFT_TO, LEAVER)]
    leaver.file(name_of(node(0)), b"as it was")
    heir.archive.files[name_of(node(0))] = bytearray(b"as it was, and has grown since")  # not committed yet
    assert await adopt(leaver, heir) == Done()
    assert heir.archive.files[name_of(node(0))] == b"as it was, and has grown since"


async def test_to_be_left_the_same_twice_is_to_be_left_it_once() -> None:
    leaver, heir = leaving(), Side()
    await adopt(leaver, heir)
    before = dict(heir.engine.scan(b"", b"\xff")), {name: bytes(data) for name, data in heir.archive.files.items()}

    def no_chunk(args: dict[str, Any]) -> Any:
        raise AssertionError("it is here")

    assert await adopt(leaver, heir, export_chunk=no_chunk) == Done()
    assert before == (dict(heir.engine.scan(b"", b"\xff")), {n: bytes(d) for n, d in heir.archive.files.items()})


@pytest.mark.parametrize("cut", [False, True])
async def test_a_file_that_has_grown_goes_on_and_what_was_taken_of_it_stays(cut: bool) -> None:
    """The leaving node is killed while it gives the rest: records of its pages lead to what came before."""
    leaver, heir = leaving(), Side()
    await adopt(leaver, heir)
    before = bytes(heir.archive.files[name_of(LEAVER)])
    leaver.file(name_of(LEAVER), before + bytes(200))
    if cut:
        del heir.archive.files[name_of(LEAVER)][200:]  # from outside

    def gone(args: dict[str, Any]) -> Any:
        return Refused("no-file")

    assert isinstance(await adopt(leaver, heir, export_chunk=gone), Refused)
    assert (heir.archive.files[name_of(LEAVER)] == before) is not cut
    assert await adopt(leaver, heir) == Done()
    assert heir.archive.files == leaver.archive.files


@pytest.mark.parametrize("taken", [0, 120])
async def test_of_a_file_that_breaks_off_nothing_stays_that_no_record_leads_to(taken: int) -> None:
    """Another node may become the heir, and nobody would ever remove it."""
    leaver, heir = Side(), Side()
    data = bytes(range(250))
    if taken:
        leaver.file(name_of(LEAVER), data[:taken])
        assert await adopt(leaver, heir) == Done()
    leaver.file(name_of(LEAVER), data)
    chunks = iter([data[taken : taken + 100]])

    def breaks_off(args: dict[str, Any]) -> Any:
        chunk = next(chunks, None)
        return Refused("no-file") if chunk is None else {"data": chunk}

    assert isinstance(await adopt(leaver, heir, export_chunk=breaks_off), Refused)
    assert heir.archive.files == ({name_of(LEAVER): data[:taken]} if taken else {})
    assert await adopt(leaver, heir) == Done()
    assert heir.archive.files == leaver.archive.files


async def test_a_leaver_that_sends_nonsense_is_refused_and_does_no_harm() -> None:
    names: list[Any] = ["../x", "x.warc.gz", ".hidden", 7, f"{CRAWL.hex()[:12]}-../../x-00000.warc.gz"]
    nonsense: list[dict[str, Any]] = [
        *({"export_files": lambda args, name=name: {"files": ((name, 4),)}} for name in names),
        {"export_files": lambda args: {"files": 3}},
        {"export_files": lambda args: {"files": ((name_of(LEAVER, 1), 4),)}},  # for ever
        {"export_rows": lambda args: {"rows": (), "cursor": b""}},  # for ever
        {"export_rows": lambda args: {"rows": ((1, 2),), "cursor": None}},
        *(
            {"export_rows": lambda args, row=row: {"rows": (row,) * (args["kind"] == keys.COUNTERS), "cursor": None}}
            for row in (
                (b"", pack({"pages": "7"})),
                (b"", pack({5: 7})),
                (b"", pack({"a name": 7})),
                (b"", pack({"pages": 2**63})),
                (b"", pack({"pages": math.nan})),
                (b"", pack({str(number): 1 for number in range(81)})),
                (b"short", pack({"pages": 7})),
            )
        ),
        *(
            {"export_rows": lambda args, at=at, row=row: {"rows": (row,) * (args["kind"] == at), "cursor": None}}
            for at, row in (
                (keys.PAGE, (url_key(url(1)), b"no record")),
                (keys.PAGE, (url_key(url(1)), b"")),
                (keys.PAGE, (url_key(url(2)), page(1))),
                (keys.PAGE, (url_key(url(1)), page(1, fetched_at="now"))),
                (keys.PAGE, (url_key(url(1)), pack({"url": url(1)}))),
                (keys.PAGE, (url_key(url(1)), page(1, place=[LEAVER.hex(), "../x", 0, 9]))),
                (keys.PAGE, (url_key(url(1)), page(1, title="x" * (200 << 10)))),
                (keys.LINKS, (b"short", bytes(20))),
                (keys.LINKS, (url_key(url(1)), bytes(21))),
                (keys.SKIPPED, (url_key(url(1)), b"skipped")),
                (keys.EXTRA, (b"x" * 8, page(1))),
            )
        ),
        {"export_chunk": lambda args: {"data": b""}},
        {"export_chunk": lambda args: Refused("no-file")},
    ]
    for calls in nonsense:
        heir = Side()
        heir.file(name_of(node(0)), b"own")
        assert isinstance(await adopt(leaving(), heir, **calls), Refused), calls
        assert heir.archive.files[name_of(node(0))] == b"own"
        assert heir.told == []


@pytest.mark.parametrize(
    "name", ["../x", "x.warc.gz", ".hidden", f"{CRAWL.hex()[:12]}-../../x-00000.warc.gz", f"../{name_of(LEAVER)}"]
)
async def test_a_file_whose_name_is_none_of_an_archive_file_is_not_taken(name: str) -> None:
    """It would be written, wherever that is: all else about it is as it should be."""
    heir = Side()
    said = await adopt(
        Side(),
        heir,
        export_files=lambda args: {"files": ((name, 4),) if args["after"] < name else ()},
        export_chunk=lambda args: {"data": b"evil"},
    )
    assert isinstance(said, Refused)
    assert "no name of an archive file" in said.detail
    assert heir.archive.files == {}


async def test_what_a_node_has_found_of_its_pages_since_it_left_them_before_is_taken_anew() -> None:
    leaver, heir = leaving(), Side()
    await adopt(leaver, heir)
    shorter, longer, moved, same, skipped = (url_key(url(number)) for number in range(10, 15))
    leaver.put(keys.PAGE, shorter, page(10, depth=0))
    leaver.put(keys.LINKS, shorter, bytes(20 * 11))
    leaver.put(keys.PAGE, longer, page(11, depth=2))
    leaver.put(keys.LINKS, longer, bytes(20 * 10))
    leaver.put(keys.PAGE, moved, page(12, depth=0, place=[LEAVER.hex(), name_of(LEAVER, 1), 0, 4]))
    leaver.put(keys.PAGE, same, page(13, title="another"))
    leaver.put(keys.SKIPPED, skipped, pack([url(14), "excluded", ""]))
    pages, links, others = heir.rows(keys.PAGE), heir.rows(keys.LINKS), heir.rows(keys.SKIPPED)
    assert await adopt(leaver, heir) == Done()
    assert heir.rows(keys.PAGE) == pages | {shorter: page(10, depth=0)}
    assert heir.rows(keys.LINKS) == links | {shorter: bytes(20 * 11)}
    assert heir.rows(keys.SKIPPED) == others


async def test_links_of_a_page_that_the_heir_fetched_itself_stay_as_they_are() -> None:
    leaver, heir = leaving(), Side()
    key = url_key(url(3))
    heir.put(keys.PAGE, key, page(3, owner=LEFT_TO, depth=4))
    heir.put(keys.LINKS, key, bytes(20))
    await adopt(leaver, heir)
    assert (heir.rows(keys.PAGE)[key], heir.rows(keys.LINKS)[key]) == (page(3, owner=LEFT_TO, depth=4), bytes(20))


@pytest.mark.parametrize("rows", [((b"short", b""),), ((bytes(20), bytes(21)),), ((bytes(20), bytes(20 * 65)),)])
async def test_a_list_of_copies_that_is_none_is_refused(rows: tuple[tuple[bytes, bytes], ...]) -> None:
    calls = {"export_rows": lambda args: {"rows": rows if args["kind"] == keys.HOLDERS else (), "cursor": None}}
    heir = Side()
    assert isinstance(await adopt(Side(), heir, copies=True, **calls), Refused)
    assert heir.rows(keys.HOLDERS) == {}


async def test_of_a_node_that_did_not_leave_it_its_pages_the_leaver_gives_none() -> None:
    """Else it could put any bytes where the heir will look for the pages of a third node, or of its own."""
    leaver, heir, other = leaving(), Side(), node(3)
    left = Side()
    left.known = [bequest(other, LEAVER)]
    leaver.file(name_of(other), b"any bytes")
    stray = {kind: url_key(url(70 + number)) for number, kind in enumerate((keys.PAGE, keys.COPY))}
    for number, (kind, key) in enumerate(stray.items()):
        leaver.put(kind, key, page(70 + number, other))
        leaver.put(keys.LINKS if kind == keys.PAGE else keys.COPY_LINKS, key, bytes(40))
    for side in (heir, left):
        assert await adopt(leaver, side, copies=True) == Done()
        is_left = side is left
        assert (name_of(other) in side.archive.files) is is_left
        for kind, key in stray.items():
            assert (key in side.rows(kind)) is is_left
            assert (key in side.rows(keys.LINKS if kind == keys.PAGE else keys.COPY_LINKS)) is is_left
        assert len(side.rows(keys.PAGE)) == 50 + is_left


async def test_nothing_is_taken_from_a_leaver_that_does_not_tell_who_left_it_what() -> None:
    heir, peers = Side(), FakePeers(view_of([0, 1, 2]))
    peers.calls = leaving().calls()
    refused = await heir.adoption(peers).on_adopt(node(2), left(leaver=node(2)))
    assert isinstance(refused, Refused)
    assert (refused.reason, heir.archive.files, heir.told) == ("not-adopted", {}, [])


@pytest.mark.parametrize(
    "said",
    [left(leaver=node(2)), Adopt(CRAWL, bequest(crawl=bytes(16)).packed())],
    ids=["of another node", "of another crawl"],
)
async def test_what_the_leaving_node_has_not_signed_is_not_taken(said: Adopt) -> None:
    heir, peers = Side(), FakePeers(view_of([0, 1]))
    refused = await heir.adoption(peers).on_adopt(LEAVER, said)
    assert isinstance(refused, Refused)
    assert (refused.reason, peers.called, heir.told) == ("not-adopted", [], [])


async def test_a_leaver_sends_what_it_has_signed_for_each_heir_and_none_of_a_crawl_that_is_forgotten() -> None:
    leaver = Side()
    peers = FakePeers(view_of([0, 1, 2]))
    peers.calls["adopt"] = lambda args: {}
    adoption = leaver.adoption(peers)
    for heir in (node(1), node(2)):
        assert await adoption.give(heir, CRAWL)
    assert await adoption.give(node(1), bytes(16)) is False
    assert [args["bequest"] for _, _, args in peers.called] == [bequest(heir=node(n)).packed() for n in (1, 2)]
    await adoption.keep(CRAWL)
    await adoption.keep(bytes(16))
    assert leaver.told == [bequest(heir=node(0))], "nobody has its pages but itself"


async def test_who_is_asked_again_while_it_takes_has_everything_once() -> None:
    """The leaver lost its connection and does not know; and another that leaves was heir to the same files."""
    leaver, heir = leaving(), Side()
    heir.known = [bequest(heir=node(2))]
    peers = FakePeers(view_of([0, 1, 2]))
    peers.calls = leaver.calls()
    adoption = heir.adoption(peers)
    async with asyncio.timeout(100.0):
        answers = await asyncio.gather(
            *(adoption.on_adopt(each, left(leaver=each)) for each in (LEAVER, LEAVER, node(2)))
        )
    assert answers == [Done()] * 3
    assert heir.archive.files == leaver.archive.files
    assert sorted(each.node_id for each in heir.told) == [LEAVER, LEAVER, node(2)]


async def test_who_leaves_becomes_nobodys_heir_and_waits_for_what_it_is_taking() -> None:
    """What came after it had given its own pages away would have left with it."""
    leaver, heir = leaving(), Side()

    async with asyncio.TaskGroup() as group:
        peers = FakePeers(view_of([0, 1]))
        peers.calls = leaver.calls()
        adoption = heir.adoption(peers)
        taking = group.create_task(adoption.on_adopt(LEAVER, left()))
        await asyncio.sleep(0)
        await adoption.close(1000.0)
        assert taking.done()
        assert heir.rows(keys.PAGE) == leaver.rows(keys.PAGE)
        refused = await adoption.on_adopt(LEAVER, left())
        assert isinstance(refused, Refused)


@pytest.mark.parametrize("hasten_at", [None, 3.0])
async def test_who_leaves_waits_for_no_leaver_that_gives_for_ever(hasten_at: float | None) -> None:
    heir = Side()
    peers = FakePeers(view_of([0, 1]))
    endless = {
        "export_files": lambda args: {"files": () if args["after"] else ((name_of(LEAVER), 2**40),)},
        "export_chunk": lambda args: {"data": b"x"},
    }
    peers.calls = leaving().calls() | endless
    adoption = heir.adoption(peers)
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group, asyncio.timeout(100.0):
        taking = group.create_task(adoption.on_adopt(LEAVER, left()))
        await asyncio.sleep(1.0)
        if hasten_at is not None:
            loop.call_at(loop.time() - 1.0 + hasten_at, adoption.break_off)
        began_at = loop.time()
        await adoption.close(10.0)
        assert loop.time() - began_at == pytest.approx(10.0 if hasten_at is None else hasten_at - 1.0, abs=0.2)
        refused = await taking
        assert isinstance(refused, Refused)


async def test_pages_with_too_few_copies_are_the_heirs_to_count_and_once() -> None:
    """Of what it does not count it would count one less than none, once it has made the copies."""
    leaver, heir = Side(), Side()
    counters = SimpleNamespace(pages_undercopied=1)
    heir.run = SimpleNamespace(copying=SimpleNamespace(further=2), counters=counters)
    heir.put(keys.HOLDERS, b"o" * 20, node(3))  # it counts that one
    for key, holders in ((b"a", b""), (b"b", node(2)), (b"c", node(2) + node(3)), (b"o", b"")):
        leaver.put(keys.HOLDERS, key * 20, holders)
    leaver.put(keys.COUNTERS, b"", pack({"pages": 7, "pages_undercopied": 3}))
    for _ in range(2):
        assert await adopt(leaver, heir, copies=True) == Done()
        assert counters.pages_undercopied == 1 + 2
    assert heir.rows(keys.HOLDERS) == leaver.rows(keys.HOLDERS) | {b"o" * 20: node(3)}
    assert unpack(heir.rows(keys.COUNTERS)[LEAVER]) == {"pages": 7, "pages_undercopied": 0}


async def test_where_the_crawl_does_not_run_the_run_to_come_counts() -> None:
    leaver, heir = Side(), Side()
    leaver.put(keys.HOLDERS, b"a" * 20, b"")
    assert await adopt(leaver, heir, copies=True) == Done()
    assert heir.rows(keys.HOLDERS) == {b"a" * 20: b""}
