"""Bodies go to further nodes before a page is done: who gets them, by how many calls, and what is not believed."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Any

import pytest
from storage.stores import CRAWL, SPEC

from dhtcrawl.keyspace import placement
from dhtcrawl.rpc.membership.view import MemberState
from dhtcrawl.rpc.tasks.events import Failure, FailureKind
from dhtcrawl.rpc.tasks.messages import Refused
from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.records import pack, unpack
from dhtcrawl.swarm.bodies.copier import BATCH_BYTES, CALLS_MAX, INLINE_BYTES, PLACE_S
from dhtcrawl.swarm.bodies.copy_service import SPARE_BYTES
from dhtcrawl.swarm.bodies.copy_tracker import CopyCode, targets
from dhtcrawl.swarm.calls.bodies import COPIES_A_CALL, CopyPages, CopyRow
from swarm.fake_peers import node as node_id

from .copy_world import COPY, CopyNode, a_world, url

NOISE = random.Random(0)

# Who gets them


async def test_copies_go_to_the_active_members_next_to_the_key_and_never_to_oneself() -> None:
    async with a_world(6) as world:
        view = world.view
        for number in range(50):
            key = SPEC.key_of(url(number))
            for own in (node_id(0), node_id(3)):
                assert targets(view, key, [own], 2) == world.closest(placement(key), own)[:2]
        assert targets(view, key, [], 99) == world.closest(placement(key), b"")
        second = world.closest(placement(key), node_id(0))[1]
        world.become(world.closest(placement(key), node_id(0))[0], MemberState.JOINING)
        assert targets(world.view, key, [node_id(0)], 1) == [second]


@pytest.mark.parametrize("copies", [2, 3])
async def test_a_page_lies_on_as_many_nodes_as_the_crawl_wants(copies: int) -> None:
    async with a_world(5, copies=copies) as world:
        first = world.all[0]
        pages = [await first.fetch(url(n), b"<p>%d</p>" % n, (url(n + 1),)) for n in range(20)]
        found = await first.copy(*pages)
        for number, key in enumerate(pages):
            expected = world.closest(placement(key), first.id)[: copies - 1]
            assert sorted(found[key]) == sorted(expected)
            for node in world.all:
                assert (key in node.copies()) == (node.id in expected)
                if node.id in expected:
                    assert node.body(key) == b"<p>%d</p>" % number
                    assert node.links(key) == SPEC.key_of(url(number + 1))


async def test_pages_for_one_node_go_together() -> None:
    async with a_world(3) as world:
        first = world.all[0]
        pages = [await first.fetch(url(n)) for n in range(COPIES_A_CALL)]
        await first.copy(*pages)
        assert len(world.copied()) <= 4, "two other nodes; a page goes to one"
        assert world.all[1].groups <= 4


async def test_what_is_under_way_is_bounded_in_bytes() -> None:
    async with a_world(2) as world:
        first = world.all[0]
        pages = [await first.fetch(url(n), NOISE.randbytes(100_000)) for n in range(20)]
        await first.copy(*pages)
        sizes = [sum(len(row[3] or b"") for row in args["pages"]) for args in world.copied()]
        assert sum(sizes) >= 20 * 100_000
        assert max(sizes) <= BATCH_BYTES


async def test_a_page_too_big_for_a_call_is_fetched_by_whoever_gets_it() -> None:
    body, many = NOISE.randbytes(3 * INLINE_BYTES), tuple(url(n) for n in range(20_000))

    async with a_world(2) as world:
        first, second = world.all
        big = await first.fetch(url(1), body, many)
        linked = await first.fetch(url(2), b"small", many)
        small = await first.fetch(url(3))
        found = await first.copy(big, linked, small)
        assert set(found.values()) == {(second.id,)}
        assert (second.body(big), second.body(linked)) == (body, b"small")
        assert second.links(big) == second.links(linked) == b"".join(map(SPEC.key_of, many))
        assert all(len(pack(args)) < 1 << 20 for args in world.copied())
        assert len({tuple(fields["place"])[1] for fields in second.copies().values()}) == 3, "files of their own"
        await first.copy(big, again=True)
        assert len(world.calls("export_chunk")) < 10, "it is not fetched twice"


async def test_with_one_copy_wanted_nobody_is_asked() -> None:
    async with a_world(3, copies=1) as world:
        first = world.all[0]
        key = await first.fetch(url(1))
        assert await first.copy(key) == {key: ()}
        assert world.said == []


# Who does not


async def test_a_swarm_that_is_too_small_makes_fewer() -> None:
    async with a_world(2, copies=5) as world:
        first, second = world.all
        key = await first.fetch(url(1))
        assert await first.copy(key) == {key: (second.id,)}


async def test_a_full_disk_gives_its_place_to_the_next() -> None:
    async with a_world() as world:
        first = world.all[0]
        key = await first.fetch(url(1))
        full, other, *_ = (world.nodes[node] for node in world.closest(placement(key), first.id))
        full.directory.free = SPARE_BYTES
        assert await first.copy(key) == {key: (other.id,)}
        assert full.copies() == {}
        calls = len(world.copied())
        assert await first.copy(key, again=True) == {key: (other.id,)}
        assert [asked for _, asked, *_ in world.calls(COPY)[calls:]] == [other.id], "it is left alone for a while"
        full.directory.free = 1 << 40
        await asyncio.sleep(100.0)
        assert await first.copy(key, again=True) == {key: (full.id,)}


async def test_no_more_is_taken_than_there_is_room_for() -> None:
    async with a_world(2) as world:
        first, second = world.all
        pages = [await first.fetch(url(n), NOISE.randbytes(30_000)) for n in range(4)]
        second.directory.free = SPARE_BYTES + 70_000
        found = await first.copy(*pages)
        assert sorted(found.values()) == [(), (), (second.id,), (second.id,)]


async def test_a_node_that_does_not_answer_gives_its_place_to_the_next_and_holds_nobody_up_twice() -> None:
    async with a_world() as world:
        first, now = world.all[0], asyncio.get_running_loop().time
        pages = [await first.fetch(url(n)) for n in range(40)]
        world.down.add(node_id(1))
        began = now()
        found = await first.copy(*pages)
        assert all(len(holders) == 1 and node_id(1) not in holders for holders in found.values())
        assert now() - began < 20.0
        began = now()
        await first.copy(*pages, again=True)
        assert now() - began < 1.0


async def test_receivers_that_say_nothing_take_no_places_of_those_that_do() -> None:
    async with a_world(9) as world:
        first = world.all[0]
        pages = [await first.fetch(url(n)) for n in range(60)]
        silent = {node_id(n) for n in range(1, CALLS_MAX + 3)}
        world.loses_request = lambda said: said.asked in silent
        wanted = {page for page in pages if targets(world.view, page, [first.id], 1)[0] not in silent}
        assert wanted
        copying = asyncio.create_task(first.copy(*sorted(pages, key=wanted.__contains__)))
        await asyncio.sleep(3 * PLACE_S)
        assert {page for node in world.all for page in node.copies()} == wanted
        assert not copying.done()
        await copying


async def test_where_nobody_answers_the_page_has_no_copy() -> None:
    async with a_world() as world:
        first = world.all[0]
        key = await first.fetch(url(1))
        world.down.update(node.id for node in world.all[1:])
        assert await first.copy(key) == {key: ()}


async def test_a_node_that_leaves_takes_nothing_more() -> None:
    """Its heir takes what it has, and would not see what comes meanwhile."""
    async with a_world() as world:
        first = world.all[0]
        pages = [await first.fetch(url(n)) for n in range(20)]
        leaver = world.all[1]
        leaver.leaves = True
        found = await first.copy(*pages)
        assert all(len(holders) == 1 and leaver.id not in holders for holders in found.values())
        assert leaver.copies() == {}
        assert leaver.desk.busy == 0


async def test_whoever_waits_for_a_leaving_node_knows_when_it_has_taken_what_it_began() -> None:
    async with a_world(2) as world:
        first, second = world.all
        key = await first.fetch(url(1), NOISE.randbytes(4 * INLINE_BYTES))
        copying = asyncio.create_task(first.copy(key))
        while not second.desk.busy:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.001)
        second.leaves = True
        while second.desk.busy:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert key in second.copies()
        assert await copying == {key: (second.id,)}


async def test_a_node_that_has_not_heard_of_the_crawl_is_told() -> None:
    async with a_world(2) as world:
        first, second = world.all
        second.knows_crawl = False
        key = await first.fetch(url(1))
        assert await first.copy(key) == {key: (second.id,)}
        assert world.told == [second.id]


async def test_a_page_whose_file_was_taken_away_has_no_copy_and_is_no_reason_to_stop() -> None:
    async with a_world() as world:
        first = world.all[0]
        gone = await first.fetch(url(1))
        first.directory.files.clear()
        assert await first.copy(gone, b"\1" * 20) == {gone: (), b"\1" * 20: ()}
        assert world.copied() == []


@pytest.mark.parametrize(
    "answer",
    [{}, {"codes": b""}, {"codes": b"\0\0"}, {"codes": b"\x09"}, {"codes": "\0"}, Refused("failed")],
    ids=str,
)
async def test_an_answer_that_makes_no_sense_is_none(answer: Any) -> None:
    async with a_world(3) as world:
        first, second, third = world.all
        key = await first.fetch(url(1))
        liar = world.nodes[world.closest(placement(key), first.id)[0]]
        liar.handlers[COPY] = lambda asker, args: answer
        (other,) = {second.id, third.id} - {liar.id}
        assert await first.copy(key) == {key: (other,)}


# Once more


async def test_what_is_there_already_is_not_sent_again_but_for_what_is_told_of_it() -> None:
    async with a_world(2) as world:
        first, second = world.all
        key = await first.fetch(url(1))
        await first.copy(key)
        sent, file = first.copier.bytes_sent, dict(second.directory.files)
        changed = {**first.page(key), "depth": 0}
        first.engine.write({keys.PAGE + CRAWL + key: pack(changed), keys.LINKS + CRAWL + key: key}, sync=False)
        assert await first.copy(key, again=True) == {key: (second.id,)}
        assert (first.copier.bytes_sent, second.directory.files) == (sent, file)
        assert (second.copies()[key]["depth"], second.links(key)) == (0, key)


@pytest.mark.parametrize("body", [b"<p>hello</p>", NOISE.randbytes(2 * INLINE_BYTES)])
async def test_who_has_the_page_itself_takes_no_copy_of_it_from_its_heir(body: bytes) -> None:
    async with a_world(2) as world:
        heir, back = world.all
        key = await back.fetch(url(1), body)
        world.record = replace(world.record, adopted={back.id.hex(): heir.id.hex()})
        heir.engine.write(dict(back.engine.scan(b"", b"\xff")), sync=False)
        heir.directory.files |= {name: bytearray(data) for name, data in back.directory.files.items()}
        before = dict(back.engine.scan(b"", b"\xff"))
        assert await heir.copy(key, again=True) == {key: (back.id,)}
        assert await heir.copy(key) == {key: (back.id,)}
        assert dict(back.engine.scan(b"", b"\xff")) == before
        assert [len(args["pages"]) for args in world.copied()] == [1, 1]


async def test_who_was_asked_and_lacks_the_body_gets_it() -> None:
    async with a_world(2) as world:
        first, second = world.all
        key = await first.fetch(url(1), b"the body")
        assert await first.copy(key, again=True) == {key: (second.id,)}
        assert second.body(key) == b"the body"
        assert len(world.copied()) == 2


async def test_a_page_that_was_fetched_anew_replaces_the_copy_of_the_old_one() -> None:
    async with a_world(3, copies=3) as world:
        first, second, third = world.all
        key = await first.fetch(url(1), b"old")
        holder = world.nodes[world.closest(placement(key), first.id)[0]]
        author = third if holder is second else second
        await first.copy(key)
        await author.fetch(url(1), b"new")
        holders = (await author.copy(key))[key]
        for node in holders:
            assert world.nodes[node].body(key) == b"new"


async def test_a_restart_of_the_receiver_goes_on_in_a_new_file() -> None:
    async with a_world(2) as world:
        first, second = world.all
        one, two = await first.fetch(url(1), b"one"), await first.fetch(url(2), b"two")
        await first.copy(one)
        second.directory.files["noise"] = bytearray()
        (name,) = (name for name in second.directory.names() if "-c" in name)
        second.directory.files[name] += b"torn"
        second.restart()
        await first.copy(two)
        assert (second.body(one), second.body(two)) == (b"one", b"two")
        assert second.copies()[one]["place"][1] != second.copies()[two]["place"][1]


# What is not believed


async def codes(asker: CopyNode, asked: CopyNode, *rows: Any) -> Any:
    answer = await asker.call(asked.id, CopyPages(CRAWL, tuple(CopyRow(*row) for row in rows)))
    return answer if isinstance(answer, Failure) else answer.codes


async def test_pages_that_are_not_what_they_are_said_to_be_are_refused_and_others_taken() -> None:
    async with a_world(2) as world:
        first, second = world.all
        good = first.row(await first.fetch(url(1), b"good"))
        key, record, links, data, length, fetch = first.row(await first.fetch(url(2), b"bad"))
        foreign = unpack(record) | {"place": [second.id.hex(), *unpack(record)["place"][1:]]}
        bad: list[Any] = [
            (b"\1" * 20, record, links, data, length, fetch),  # not the key of its URL
            (key, b"", links, data, length, fetch),
            (key, pack(foreign), links, data, length, fetch),  # in a file of ours, it says
            (key, record, links, good[3], good[4], fetch),  # the body of another page
            (key, record, links, data[:-1], length - 1, fetch),
            (key, record, links, None, 10, fetch),
        ]
        found = await codes(first, second, *bad, good)
        assert found == bytes([CopyCode.REFUSED] * len(bad) + [CopyCode.HAS_IT])
        assert list(second.copies()) == [good[0]]
        assert await codes(first, second, good, (key, record, b"odd", data, length, fetch)) == Failure(
            FailureKind.REFUSED, "bad-args: pages"
        )


@pytest.mark.parametrize(
    "chunk",
    [
        lambda args: Refused("no-file"),
        lambda args: {"data": b""},
        lambda args: {"data": None},
        lambda args: {"data": bytes(args["limit"] + 1)},
        lambda args: {"data": bytes(args["limit"])},
    ],
    ids=["refused", "nothing", "none", "too much", "zeros"],
)
async def test_a_big_page_that_does_not_come_as_announced_leaves_nothing_behind(chunk: Any) -> None:
    async with a_world(2) as world:
        first, second = world.all
        key = await first.fetch(url(1), NOISE.randbytes(2 * INLINE_BYTES))
        first.handlers["export_chunk"] = lambda asker, args: chunk(args)
        assert await first.copy(key) == {key: ()}
        assert second.copies() == {}
        assert second.directory.names() == []


async def test_a_big_page_that_there_is_no_room_for_is_not_fetched() -> None:
    async with a_world(2) as world:
        first, second = world.all
        key = await first.fetch(url(1), NOISE.randbytes(2 * INLINE_BYTES))
        second.directory.free = SPARE_BYTES + INLINE_BYTES
        assert await first.copy(key) == {key: ()}
        assert world.calls("export_chunk") == []


@pytest.mark.parametrize(
    "rows",
    [
        lambda key: {"rows": ((key, b"odd"),), "cursor": None},
        lambda key: {"rows": ((key + bytes(4), b"odd"),), "cursor": key + bytes(4)},  # for ever the same
        lambda key: {"rows": 5, "cursor": None},
        lambda key: Refused("failed"),
    ],
    ids=["no keys", "for ever", "no rows", "refused"],
)
async def test_link_keys_that_do_not_come_as_announced_are_none(rows: Any) -> None:
    async with a_world(2) as world:
        first, second = world.all
        key = await first.fetch(url(1), b"body", tuple(url(n) for n in range(20_000)))
        first.handlers["export_rows"] = lambda asker, args: rows(key)
        await first.copy(key)
        assert not second.links(key)
