"""A body that lies on several nodes: what a copy is, whom it is believed, and how it stands in."""

from __future__ import annotations

import io
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from storage.stores import CRAWL, SPEC, Store, archive_in, exchanges, link
from storage.swarm_stores import NODES, Part
from storage.warcs import item

from dhtcrawl.errors import StorageError
from dhtcrawl.keyspace import KEY_BYTES
from dhtcrawl.storage.archive import body_copies
from dhtcrawl.storage.archive.body_copies import Parcel, Rehomed
from dhtcrawl.storage.archive.names import COPIES
from dhtcrawl.storage.archive.warcscan import scan
from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.files import DiskDirectory, MemoryDirectory
from dhtcrawl.storage.store.records import Place, State, pack, unpack
from dhtcrawl.storage.store.tasks import get_page
from dhtcrawl.storage.store.txn import Txn

A, B = "http://a.example/a", "http://a.example/b"
KEY = SPEC.key_of(A)


@pytest.fixture
def nodes() -> tuple[Part, Part]:
    first, second = Part(NODES[0]), Part(NODES[1])
    first.accept(A, B)
    first.fetch(B)
    first.fetch(A, links=[B])
    return first, second


def parcel(node: Part, url: str = A) -> Parcel:
    found = node.store.run(partial(body_copies.parcel, crawl=CRAWL, archive=node.directory, key=SPEC.key_of(url)))
    assert found is not None
    return found


def bytes_of(node: Part, url: str = A) -> tuple[Parcel, bytes]:
    found = parcel(node, url)
    data = body_copies.members(node.directory, found)
    assert data is not None
    return found, data


def page_of(node: Part, url: str = A) -> dict[str, Any] | None:
    return node.store.run(partial(get_page, crawl=CRAWL, key=SPEC.key_of(url)))


def stand_in(node: Part, *urls: str, heir_of: Sequence[str] = ()) -> dict[bytes, Place]:
    wanted, leads_here = [SPEC.key_of(url) for url in urls], {node.node, *heir_of}
    return dict(node.store.run(partial(body_copies.stand_in, crawl=CRAWL, task_keys=wanted, leads_here=leads_here)))


# What is sent


def test_a_parcel_is_the_response_and_its_request(nodes: tuple[Part, Part]) -> None:
    sent, data = bytes_of(nodes[0])
    found = list(scan(io.BytesIO(data)))
    assert [member.type for member in found] == ["response", "request"]
    assert [member.url for member in found] == [A, A]
    assert sent.place.length == found[0].length
    assert sent.links == SPEC.key_of(B)


def test_what_is_not_here_or_cannot_be_read_is_not_sent(nodes: tuple[Part, Part]) -> None:
    first, second = nodes
    sent = parcel(first)
    assert second.store.run(partial(body_copies.parcel, crawl=CRAWL, archive=second.directory, key=KEY)) is None
    file = first.directory.files[sent.place.file]
    del file[-1:]
    assert body_copies.members(first.directory, sent) is None
    first.directory.remove(sent.place.file)
    assert first.store.run(partial(body_copies.parcel, crawl=CRAWL, archive=first.directory, key=KEY)) is None


# Whom it is believed


@pytest.mark.parametrize(
    "damage",
    [
        lambda data, fields: (data[:-1], fields),
        lambda data, fields: (b"", fields),
        lambda data, fields: (random.Random(0).randbytes(500), fields),
        lambda data, fields: (data + data, fields),
        lambda data, fields: (data + b"x", fields),
        lambda data, fields: (data[:60] + bytes([data[60] ^ 1]) + data[61:], fields),
        lambda data, fields: (data, {**fields, "url": B}),
        lambda data, fields: (data, {**fields, "payload_digest": "sha1:" + "A" * 32}),
    ],
    ids=["cut", "nothing", "noise", "twice", "more behind it", "a bit", "another URL", "another body"],
)
def test_members_that_are_not_what_the_page_record_says_are_refused(nodes: tuple[Part, Part], damage: Any) -> None:
    sent, data = bytes_of(nodes[0])
    fields = unpack(sent.record)
    assert body_copies.is_page(io.BytesIO(data), fields, sent.place.length)
    bad, claimed = damage(data, fields)
    assert not body_copies.is_page(io.BytesIO(bad), claimed, sent.place.length)
    assert not body_copies.is_page(io.BytesIO(data), fields, sent.place.length - 1)


def test_of_bytes_that_are_no_members_the_first_few_are_read(nodes: tuple[Part, Part]) -> None:
    garbage = io.BytesIO(bytes(1 << 20))
    assert not body_copies.is_page(garbage, unpack(parcel(nodes[0]).record), 1 << 20)
    assert garbage.tell() <= 64 << 10


def test_a_response_alone_will_do(nodes: tuple[Part, Part]) -> None:
    sent, data = bytes_of(nodes[0])
    assert body_copies.is_page(io.BytesIO(data[: sent.place.length]), unpack(sent.record), sent.place.length)
    assert not body_copies.is_page(io.BytesIO(data[sent.place.length :]), unpack(sent.record), sent.place.length)
    twice = 2 * data[: sent.place.length]
    assert not body_copies.is_page(io.BytesIO(twice), unpack(sent.record), sent.place.length), "two of them will not"


# Where it lies


def test_copies_have_files_of_their_own_that_read_like_any(nodes: tuple[Part, Part]) -> None:
    first, second = nodes
    second.accept("http://a.example/own")
    second.fetch("http://a.example/own")
    assert second.copy(first, A)
    assert second.copy(first, B)
    own, copies = second.directory.names()
    assert own.endswith("-00000.warc.gz")
    assert copies.endswith("-c00000.warc.gz")
    found = list(scan(io.BytesIO(second.directory.files[copies])))
    assert [member.type for member in found] == ["warcinfo", *["response", "request"] * 2]
    assert not any(member.problems for member in found)
    assert found[0].headers["warc-filename"] == copies


def test_a_copy_counts_only_for_the_fetch_that_it_is_of(nodes: tuple[Part, Part]) -> None:
    first, second = nodes
    second.copy(first, A)
    fields = unpack(parcel(first).record)
    held = partial(body_copies.held, crawl=CRAWL, key=KEY, leads_here={second.node})
    assert second.store.run(partial(held, fields=fields)) is not None
    assert second.store.run(partial(held, fields=fields, leads_here={first.node})) is None
    for name in ("node", "fetched_at", "payload_digest"):
        assert second.store.run(partial(held, fields={**fields, name: "another"})) is None
    assert first.store.run(partial(held, fields=fields)) is None


def test_a_copy_that_is_not_committed_is_cut_off_at_the_next_start(tmp_path: Any) -> None:
    for directory in (MemoryDirectory(), DiskDirectory(tmp_path)):
        store, archive = Store(), archive_in(directory, series=COPIES)
        store.participants = [archive]

        def append(txn: Txn, archive: Any = archive) -> None:
            archive.append_members(b"members", 5)
            txn.put(b"x", b"")

        store.run(append)
        (name,) = directory.names()
        before = directory.read(name, 0, 1 << 20)
        archive.append_members(b"torn", 2)
        archive.begin_alone().append(b"half of something big")
        archive.close()
        again = archive_in(directory, series=COPIES)
        store.run(again.recover)
        assert directory.names() == [name]
        assert directory.read(name, 0, 1 << 20) == before


def test_something_big_lies_in_a_file_of_its_own_and_counts_when_it_is_whole() -> None:
    directory, store = MemoryDirectory(), Store()
    archive = archive_in(directory, series=COPIES)
    store.participants = [archive]

    def committed() -> dict[str, int]:
        pairs = store.engine.scan(*keys.bounds(keys.ARCHIVE, CRAWL))
        return {keys.suffix(key).decode(): unpack(value) for key, value in pairs}

    big, dropped = archive.begin_alone(), archive.begin_alone()
    big.append(b"bit by bit")

    def small(txn: Txn) -> None:
        archive.append_members(b"small", 3)
        txn.put(b"x", b"")

    def keep(txn: Txn) -> None:
        archive.keep(big)
        txn.put(b"y", b"")

    store.run(small)
    assert len(committed()) == 1, "what is not whole does not count"
    big.append(b" and whole")
    store.run(keep)
    assert committed()[big.name] == len(directory.files[big.name])
    archive.drop(dropped)
    assert dropped.name not in directory.names()
    with pytest.raises(StorageError):
        directory.read(dropped.name, 0, 1)


def test_a_part_of_a_file_reads_as_a_stream() -> None:
    directory = MemoryDirectory()
    directory.files["f"] = bytearray(b"0123456789")
    stream = io.BufferedReader(body_copies.Stored(directory, "f", 2, 5), buffer_size=2)
    assert stream.read() == b"23456"
    assert stream.seek(1) == 1
    assert stream.read(2) == b"34"
    assert stream.seek(99) == 5
    assert stream.read(1) == b""


# Standing in


def test_a_copy_that_stands_in_is_a_page_of_this_node_and_no_copy_any_more(
    nodes: tuple[Part, Part],
) -> None:
    first, second = nodes
    second.copy(first, A)
    (place,) = stand_in(second, A, B).values()
    assert place.node == second.node
    fields = page_of(second)
    assert fields is not None
    assert fields["place"] == place
    assert fields["node"] == first.node, "who fetched it stays"
    assert second.store.engine.get(keys.LINKS + CRAWL + KEY) == SPEC.key_of(B)
    for kind in keys.COPIES:
        assert second.store.engine.get(kind + CRAWL + KEY) is None
    assert stand_in(second, A) == {KEY: place}, "asked again, the same"


def test_who_fetched_the_page_as_well_says_so(nodes: tuple[Part, Part]) -> None:
    first, second = nodes
    second.copy(first, A)
    second.accept(A)
    second.fetch(A)
    (place,) = stand_in(second, A).values()
    assert place.file.endswith("-00000.warc.gz")
    assert COPIES not in place.file.rpartition("-")[2][:1]


@pytest.mark.parametrize("page", [False, True])
def test_what_another_node_is_the_heir_of_does_not_stand_in_here(page: bool, nodes: tuple[Part, Part]) -> None:
    """It took rows of a node that left, and failed before it had all: records that name that node lead to its heir."""
    first, second = nodes
    second.copy(first, A)
    if page:
        stand_in(second, A)
    third, kinds = Part(NODES[2]), (keys.PAGE, keys.LINKS) if page else keys.COPIES[:2]
    for kind in kinds:
        third.store.put(kind + CRAWL + KEY, second.store.engine.get(kind + CRAWL + KEY))
    assert stand_in(third, A) == {}
    assert [third.store.engine.get(kind + CRAWL + KEY) is None for kind in kinds] == [False, False]
    (place,) = stand_in(third, A, heir_of=[second.node]).values()
    assert place.node == second.node
    third.copy(first, B)
    assert [each.node for each in stand_in(third, B).values()] == [third.node]


def test_a_page_of_its_own_stands_in_for_one_of_a_node_that_left_to_another(nodes: tuple[Part, Part]) -> None:
    first, second = nodes
    second.copy(first, A)
    stand_in(second, A)
    third = Part(NODES[2])
    for kind in (keys.PAGE, keys.LINKS):
        third.store.put(kind + CRAWL + KEY, second.store.engine.get(kind + CRAWL + KEY))
    third.copy(first, A)
    assert [each.node for each in stand_in(third, A).values()] == [third.node]


@dataclass
class Owner:
    """A node with the task records, and a page that lay at `NODES[0]`."""

    store: Store

    def rehome(self, place: Place, *, mine: bool = True) -> Rehomed:
        write = partial(body_copies.rehome, crawl=CRAWL, gone=NODES[0], mine=lambda key: mine)
        return self.store.run(partial(write, found=[(KEY, place)]))


@pytest.fixture
def owner(nodes: tuple[Part, Part]) -> Owner:
    nodes[0].settle(A)
    third = Part(NODES[2])
    third.learn(nodes[0], A)
    return Owner(third.store)


def test_a_page_at_another_place_is_of_a_new_generation_and_not_done_before_its_links_are(owner: Owner) -> None:
    place = Place(NODES[1], "f", 3, 4)
    before = owner.store.task(A)
    rehomed = owner.rehome(place)
    after = owner.store.task(A)
    assert (after.state, after.gen, after.place) == (State.FETCHED, before.gen + 1, place)
    assert [copy.task for copy in rehomed.records] == [after]
    assert rehomed.resend == [], "it lies elsewhere"
    assert owner.store.engine.get(keys.FETCHED + CRAWL + KEY) is None


@pytest.mark.parametrize("heir", [False, True])
def test_a_page_that_comes_to_lie_here_sends_its_links_also_after_a_restart(
    heir: bool, nodes: tuple[Part, Part], owner: Owner
) -> None:
    """Its own copy, or one that a node which left had."""
    holder = nodes[1] if heir else Part(NODES[2])
    holder.copy(nodes[0], A)
    for kind in keys.COPIES[:2]:
        owner.store.put(kind + CRAWL + KEY, holder.store.engine.get(kind + CRAWL + KEY))
    (found,) = owner.store.run(partial(body_copies.stand_in, crawl=CRAWL, task_keys=[KEY], leads_here=NODES[1:]))
    assert owner.rehome(found[1]).resend == [KEY]
    assert owner.store.engine.get(keys.FETCHED + CRAWL + KEY) is not None


def test_what_became_something_else_meanwhile_stays_so(owner: Owner) -> None:
    elsewhere = Place(NODES[1], "f", 3, 4)
    assert owner.rehome(elsewhere, mine=False) == Rehomed([], [])
    assert owner.rehome(Place(NODES[0], "f", 3, 4)) == Rehomed([], [])
    owner.rehome(elsewhere)
    assert owner.rehome(Place(NODES[1], "g", 3, 4)) == Rehomed([], []), "it does not lie where it lay"


# Who has copies


def test_pages_with_too_few_copies_are_found_whoever_is_gone() -> None:
    store = Store()
    x, y, z = (bytes([n]) * KEY_BYTES for n in (1, 2, 3))
    holders = {b"a" * 20: (x, y), b"b" * 20: (y, z), b"c" * 20: (z,), b"d" * 20: ()}
    for key, nodes in holders.items():
        assert store.run(partial(body_copies.put_holders, crawl=CRAWL, key=key, holders=nodes)) is None
    standing = {x: x, y: None, z: x}  # y is gone, z left to x

    def short(limit: int = 10) -> dict[bytes, tuple[bytes, ...]]:
        found: dict[bytes, tuple[bytes, ...]] = {}
        cursor: bytes | None = b""
        while cursor is not None:
            look = partial(body_copies.too_few, crawl=CRAWL, cursor=cursor, limit=limit, wanted=2)
            some, cursor = store.run(partial(look, standing=standing.__getitem__))
            found |= {page.key: page.holders for page in some}
        return found

    expected = {b"a" * 20: (x,), b"b" * 20: (x,), b"c" * 20: (x,), b"d" * 20: ()}
    assert short() == short(limit=1) == expected
    assert store.run(partial(body_copies.put_holders, crawl=CRAWL, key=b"d" * 20, holders=(x, z))) == 0
    assert short() == expected | {b"d" * 20: (x,)}, "two that are one are one"


def test_what_is_noted_adds_up_to_the_pages_with_too_few_copies() -> None:
    store = Store()
    x, y = (bytes([n]) * KEY_BYTES for n in (1, 2))
    note = partial(body_copies.note_holders, crawl=CRAWL, wanted=2)
    story = [(b"a", (x, y)), (b"b", (x,)), (b"c", ()), (b"b", (x, y)), (b"a", (y,)), (b"c", (x,))]
    grew = [store.run(partial(note, key=page * 20, holders=holders)) for page, holders in story]
    assert grew == [0, 1, 1, -1, 1, 0]
    assert store.run(partial(body_copies.undercopied, crawl=CRAWL, wanted=2)) == sum(grew)


def test_a_request_that_is_long_is_found_to_its_end() -> None:
    node, (url, head) = (
        Part(NODES[0]),
        (A, b"GET / HTTP/1.1\r\nCookie: " + random.Random(0).randbytes(9000).hex().encode()),
    )
    archive = archive_in(node.directory, node=node.node)
    place, digest = archive.append(item(url, b"body", request=head + b"\r\n\r\n"))
    archive.append(next(exchanges(B)))
    node.store.put(keys.PAGE + CRAWL + KEY, pack({"url": url, "payload_digest": digest, "place": place}))
    node.store.put(keys.LINKS + CRAWL + KEY, b"")
    _, data = bytes_of(node)
    assert [member.type for member in scan(io.BytesIO(data))] == ["response", "request"]


def test_links_to_pages_are_accepted_before_they_are_copied(nodes: tuple[Part, Part]) -> None:
    """The fixture is sound: what the tests above copy is what a crawl makes."""
    nodes[0].settle(A)
    nodes[0].settle(B)
    nodes[0].store.accept(link(A))
    assert nodes[0].store.fsck(nodes[0].directory).problems == []
