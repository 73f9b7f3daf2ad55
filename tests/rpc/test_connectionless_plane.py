"""Links in a datagram, between real routing planes: what an answer may cost, and whose request it answers."""

from __future__ import annotations

import asyncio
from typing import Any

import msgpack
import pytest

from dhtcrawl.rpc.discovery.datagram import DATAGRAM_BYTES_MAX
from dhtcrawl.rpc.discovery.protocol import PING_BYTES
from dhtcrawl.rpc.membership.hello import MemberRecord
from dhtcrawl.rpc.peers.connectionless import FRAME_BYTES_MAX, RPC, Connectionless
from dhtcrawl.rpc.tasks.messages import Ack, Code, Reply, StoreTask, encode
from dhtcrawl.rpc.tasks.rows import PeerRow
from dhtcrawl.rpc.tasks.signals import Hello
from rpc.routing_swarm import PORT, Raw, request, world
from rpc.wire import CRAWL, LINK

LINKS = StoreTask(CRAWL, (LINK,))
ASKER = b"a" * 20


def frame(number: int, message: Any) -> bytes:
    return encode(number, message)[4:]


def moved(count: int) -> Ack:
    """To as many nodes as it has links."""
    peers = tuple(
        PeerRow(bytes([number]) * 20, "2001:db8:1234:5678:9abc:def0:1234:5678", 8468) for number in range(count)
    )
    return Ack(bytes([Code.MOVED]) * count, bytes(range(count)), peers)


def records(*servers: Any) -> dict[bytes, MemberRecord]:
    return {each.node.id: MemberRecord.newcomer(each.node.id, each.address, 1) for each in servers}


async def test_an_answer_that_fits_into_no_datagram_is_nil_and_no_reason_to_ping() -> None:
    async with world() as w:
        us, them = await w.swarm("ours", 2)
        known = records(us, them)
        links = StoreTask(CRAWL, (LINK._replace(url="http://a.b/", referrer=""),) * 18)
        assert len(frame(1, links)) <= FRAME_BYTES_MAX
        assert len(frame(1, moved(18))) > DATAGRAM_BYTES_MAX
        asker = Connectionless(us.node.id, us.plane, lambda hello, message: moved(18), known.get)
        Connectionless(them.node.id, them.plane, lambda hello, message: moved(18), known.get)
        began, asked = asyncio.get_running_loop().time(), them.plane.counters.calls
        assert await asker.ask(known[them.node.id], links) is None
        assert asyncio.get_running_loop().time() - began < 0.5, "it is told, and does not wait for it"
        await asyncio.sleep(60)
        assert them.plane.counters.calls - asked < 10
        assert them.plane.counters.handler_errors == 0


@pytest.mark.parametrize("longer", [0, 1])
async def test_a_frame_that_is_longer_than_any_of_ours_is_not_read(longer: int) -> None:
    async with world() as w:
        (them,) = await w.swarm("ours", 1)
        short = frame(1, StoreTask(CRAWL, (LINK._replace(url="http://a.example/" + "x" * 300),)))
        url = "http://a.example/" + "x" * (300 + FRAME_BYTES_MAX - len(short) + longer)
        links, ack = StoreTask(CRAWL, (LINK._replace(url=url),)), Ack.all(Code.ACCEPTED, 1)
        assert len(frame(1, links)) == FRAME_BYTES_MAX + longer
        raw = Raw(w, ("10.0.9.9", PORT))
        known = {ASKER: MemberRecord.newcomer(ASKER, ("10.0.9.9", PORT), 1)}
        Connectionless(them.node.id, them.plane, lambda hello, message: ack, known.get)
        head = bytes(range(20))
        asked = msgpack.packb([RPC, [ASKER, them.node.id, frame(1, links)]])
        raw.transport.sendto(b"\x00" + head + asked, them.address)
        await asyncio.sleep(1)
        answers = [msgpack.unpackb(data[21:]) for data, _ in raw.received if data[:21] == b"\x01" + head]
        assert answers == [None if longer else frame(1, ack)]


async def test_two_that_count_alike_are_answered_each() -> None:
    async with world() as w:
        one, other, them = await w.swarm("ours", 3)
        known, heard = records(one, other, them), []

        began = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:

            async def take(message: Any) -> Reply:
                await asyncio.sleep(0.5)
                return Ack.all(Code.ACCEPTED, message.items)

            def hear(hello: Hello, message: Any) -> asyncio.Future[Reply]:
                heard.append(hello.node_id)
                return group.create_task(take(message))

            Connectionless(them.node.id, them.plane, hear, known.get)
            askers = [Connectionless(each.node.id, each.plane, hear, known.get) for each in (one, other)]
            tasks = [group.create_task(each.ask(known[them.node.id], LINKS)) for each in askers]
        assert [task.result() for task in tasks] == [Ack.all(Code.ACCEPTED, 1)] * 2
        assert asyncio.get_running_loop().time() - began < 1.0, "neither had to ask again"
        assert sorted(heard) == sorted([one.node.id, other.node.id])


async def test_who_was_started_again_and_counts_from_the_beginning_is_heard() -> None:
    async with world() as w:
        us, them = await w.swarm("ours", 2)
        known, heard = records(us, them), []
        never: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

        def hear(hello: Hello, message: Any) -> asyncio.Future[Reply]:
            heard.append(hello.incarnation)
            return never

        Connectionless(them.node.id, them.plane, hear, known.get)
        for incarnation in (1, 2, 2):
            known[us.node.id] = MemberRecord.newcomer(us.node.id, us.address, incarnation)
            args = us.node.id, them.node.id, frame(1, LINKS)
            await us.plane.call(them.address, RPC, *args, tries=1, timeout_s=0.1)
        assert heard == [1, 2], "what comes twice is heard once"


async def test_who_never_answered_a_ping_gets_no_more_than_three_times_what_it_sent_however_late() -> None:
    async with world() as w:
        (node,) = await w.swarm("ours", 1)
        raw = Raw(w, ("10.0.9.9", PORT))
        node.plane.register("slow", lambda answer, sender, word: answer(b"x" * 900), 1, later=True)
        asked = request("slow", "y")
        raw.transport.sendto(asked, node.address)
        await asyncio.sleep(1)
        assert sum(len(data) for data, _ in raw.received) <= 3 * len(asked)
        assert [name for name, _ in raw.requests] == ["ping"]
        assert len(raw.received[0][0]) <= PING_BYTES
