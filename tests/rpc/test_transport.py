"""The transport's contract, on sockets and on the virtual loop, and what hostile peers can do to it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from dhtcrawl.rpc.tasks.events import Failure, FailureKind
from dhtcrawl.rpc.tasks.frame import HEADER, Kind
from dhtcrawl.rpc.tasks.link import LinkLimits, LinkState
from dhtcrawl.rpc.tasks.messages import Ack, Code, Records, RefreshTask, Reply, Request, encode
from dhtcrawl.rpc.tasks.signals import VERSION, VERSION_MIN, WINDOW_BYTES, Hello, encode_signal
from dhtcrawl.rpc.tasks.transport import TaskTransport, TransportLimits
from dhtcrawl.sim.loop import run
from dhtcrawl.sim.streams import StreamWeather
from rpc.wire import CRAWL, KEY, answer_to, backup, hello, task
from rpc.worlds import Slow, Stranger, Wires, take_all, until

SHORT = TransportLimits(
    connect_s=0.3,
    request_s=0.3,
    close_s=0.3,
    link=LinkLimits(handshake_s=0.3, drain_s=0.3, keepalive_s=0.1, silent_s=0.3),
)


# Most run on each loop; those that have no fixture `world` say on which.
on_each = pytest.mark.loops("asyncio", "uvloop", "virtual")


@pytest.fixture
async def world() -> AsyncIterator[Wires]:
    made = Wires()
    yield made
    made.check()


def kind_of(result: object) -> FailureKind:
    assert isinstance(result, Failure), result
    return result.kind


# What it does


@on_each
async def test_a_request_is_answered_and_the_connection_used_again(world: Wires) -> None:
    async with world.node(1) as a, world.node(2) as b:
        address = await b.listen(world.host(2), 0)
        for message in (task(200), backup(3), RefreshTask(CRAWL, bytes(20), bytes(20))):
            assert await a.request(address, message) == answer_to(message)
        assert (len(a), len(b)) == (1, 1)
        assert [peer.node_id for _, peer in a.peers()] == [hello(2).node_id]


@on_each
async def test_a_handler_may_answer_later_and_in_any_order(world: Wires) -> None:
    slow = Slow()
    async with world.node(1) as a, world.node(2, slow) as b, asyncio.TaskGroup() as group:
        address = await b.listen(world.host(2), 0)
        asking = [group.create_task(a.request(address, task(size))) for size in (1, 2, 3)]
        await slow.has(3)
        slow.open.reverse()
        slow.answer_all()
        assert [await each for each in asking] == [answer_to(task(size)) for size in (1, 2, 3)]


@on_each
async def test_many_requests_at_once_are_all_answered_within_the_window(world: Wires) -> None:
    async with world.node(1) as a, world.node(2) as b, asyncio.TaskGroup() as group:
        address = await b.listen(world.host(2), 0)
        asking = [group.create_task(a.request(address, task(100, padding=200))) for _ in range(300)]
        assert {repr(await each) for each in asking} == {repr(answer_to(task(100)))}


@on_each
async def test_callers_wait_while_a_slow_peer_has_given_no_credit_and_nothing_is_lost(world: Wires) -> None:
    slow = Slow()
    async with world.node(1) as a, world.node(2, slow) as b, asyncio.TaskGroup() as group:
        address = await b.listen(world.host(2), 0)
        asking = [group.create_task(a.request(address, task(300, padding=300))) for _ in range(60)]
        await slow.has(WINDOW_BYTES // len(encode(1, task(300, padding=300))))
        # Backups pass (I13), and their answers too.
        passing = group.create_task(a.request(address, backup()))
        await until(lambda: bool(slow.open) and slow.open[-1][0] == backup())
        slow.open[-1][1].set_result(Ack(b"\0"))
        assert await passing == Ack(b"\0")
        assert 0 < len(slow.open) < 30
        await slow.answer_until(asking)
        assert all(each.result() == answer_to(task(300)) for each in asking)


@on_each
async def test_a_peer_is_asked_over_the_connection_that_it_made(world: Wires) -> None:
    async with world.node(1) as a, world.node(2) as b:
        at_a, at_b = await a.listen(world.host(1), 0), await b.listen(world.host(2), 0)
        assert await a.request(at_b, task()) == Ack(b"\0")
        assert await b.request(at_a, backup()) == Ack(b"\0")
        assert (len(a), len(b)) == (1, 1)


@on_each
async def test_a_peer_that_listens_nowhere_is_asked_over_the_latest_connection_that_it_made(world: Wires) -> None:
    async with world.node(2) as b:
        at_b, one = await b.listen(world.host(2), 0), hello(1).node_id
        assert kind_of(await b.request_back(one, backup())) is FailureKind.CONNECT
        assert b.heard_s(one) is None
        async with world.node(1) as a:
            assert await a.request(at_b, task()) == Ack(b"\0")
            assert await b.request_back(one, backup()) == Ack(b"\0")
            heard_s = b.heard_s(one)
            assert heard_s is not None
            assert heard_s < 5.0
            async with world.node(1) as again:  # it was cut off, and has come back before this end heard of it
                assert await again.request(at_b, task()) == Ack(b"\0")
                assert await b.request_back(one, backup()) == Ack(b"\0")
                assert (len(a), len(b)) == (1, 2)
            assert await b.request_back(one, backup()) == Ack(b"\0"), "the earlier one is still there"
        await until(lambda: b.heard_s(one) is None)


@on_each
async def test_of_two_connections_made_at_once_one_stays_and_no_request_fails(world: Wires) -> None:
    async with world.node(1) as a, world.node(2) as b:
        at_a, at_b = await a.listen(world.host(1), 0), await b.listen(world.host(2), 0)
        for _ in range(3):
            results = await asyncio.gather(
                *(a.request(at_b, task()) for _ in range(5)), *(b.request(at_a, backup()) for _ in range(5))
            )
            assert set(results) == {Ack(b"\0")}
        await until(lambda: (len(a), len(b)) == (1, 1))
        assert await a.request(at_b, task()) == await b.request(at_a, task()) == Ack(b"\0")


@on_each
async def test_a_cancelled_caller_leaves_the_others_alone(world: Wires) -> None:
    slow = Slow()
    async with world.node(1) as a, world.node(2, slow) as b, asyncio.TaskGroup() as group:
        address = await b.listen(world.host(2), 0)
        # The first dials; cancelled before the connection is there, and after it was asked.
        first, second, third = (group.create_task(a.request(address, task(size))) for size in (1, 2, 3))
        await asyncio.sleep(0)
        first.cancel()
        await slow.has(2)
        second.cancel()
        await asyncio.sleep(0)
        slow.answer_all()
        assert await third == answer_to(task(3))
        assert first.cancelled()
        assert second.cancelled()
        fourth = group.create_task(a.request(address, task(4)))
        await slow.has(1)
        slow.answer_all()
        assert await fourth == answer_to(task(4))


@on_each
async def test_callers_cancelled_while_they_wait_for_room_pass_their_turn_on(world: Wires) -> None:
    slow = Slow()
    async with world.node(1) as a, world.node(2, slow) as b, asyncio.TaskGroup() as group:
        address = await b.listen(world.host(2), 0)
        asking = [group.create_task(a.request(address, task(300, padding=300))) for _ in range(60)]
        await slow.has(8)
        for each in asking[1::2]:
            each.cancel()
        await slow.answer_until(asking)
        assert all(each.result() == answer_to(task(300)) for each in asking[::2])


@on_each
async def test_only_the_node_that_was_meant_is_asked(world: Wires) -> None:
    async with world.node(1) as a, world.node(2) as b:
        address = await b.listen(world.host(2), 0)
        assert kind_of(await a.request(address, task(), node_id=KEY)) is FailureKind.NODE
        assert await a.request(address, task(), node_id=hello(2).node_id) == Ack(b"\0")
        assert kind_of(await a.request(address, task(), node_id=KEY)) is FailureKind.NODE
        own = await a.listen(world.host(1), 0)
        assert kind_of(await a.request(own, task())) is FailureKind.NODE


@pytest.mark.loops("virtual")
async def test_who_says_that_it_listens_where_another_does_keeps_no_request_from_that_one(world: Wires) -> None:
    # Behind one address, each with the same port on a machine of its own.
    handler, source = Slow(), world.host(2)
    liar = TaskTransport(lambda: hello(3), take_all, source=source)
    async with world.node(1, handler) as a, world.node(2) as true, liar:
        at_a, at_true = await a.listen(world.host(1), 0), await true.listen(world.host(2), 0)
        await liar.listen(world.host(3), at_true[1])
        for _ in range(2):
            assert await a.request(at_true, task(), node_id=hello(2).node_id) == Ack(b"\0")
            asking = asyncio.ensure_future(liar.request(at_a, backup()))
            await handler.has(1)
            assert await a.request(at_true, task(), node_id=hello(2).node_id) == Ack(b"\0")
            assert await a.request(at_true, task(), node_id=hello(3).node_id) == Ack(b"\0")
            handler.answer_all()
            assert await asking == Ack(b"\0")
        assert len(a) == 2  # one with each


@on_each
async def test_nobody_there_is_a_failure(world: Wires) -> None:
    async with world.node(1) as a:
        b = world.node(2)
        async with b:
            address = await b.listen(world.host(2), 0)
            assert await a.request(address, task()) == Ack(b"\0")
        failure = await a.request(address, task())
        assert kind_of(failure) in (FailureKind.CONNECT, FailureKind.PARTED)
        failure = await a.request(address, task())
        assert isinstance(failure, Failure)
        assert (failure.kind, failure.sent) == (FailureKind.CONNECT, False)
        await until(lambda: len(a) == 0)


@pytest.mark.parametrize("host", ["a" * 70 + ".example", "..", "", "\0"])
@pytest.mark.loops("asyncio")
async def test_an_address_that_is_none_is_a_failure(host: str) -> None:
    async with TaskTransport(lambda: hello(1), take_all, limits=SHORT) as a:
        assert kind_of(await a.request((host, 1), task())) is FailureKind.CONNECT
        assert kind_of(await a.request(("127.0.0.1", 70_000), task())) is FailureKind.CONNECT


@on_each
async def test_a_port_that_is_taken_raises(world: Wires) -> None:
    async with world.node(1) as a, world.node(2) as b:
        _, port = await a.listen(world.host(1), 0)
        with pytest.raises(OSError, match="in use"):
            await b.listen(world.host(1), port)


@on_each
async def test_stopping_lets_what_was_asked_be_answered(world: Wires) -> None:
    slow = Slow()
    async with world.node(1) as a, world.node(2, slow) as b, asyncio.TaskGroup() as group:
        address = await b.listen(world.host(2), 0)
        asked = group.create_task(a.request(address, task()))
        await slow.has(1)
        closing = group.create_task(b.close())
        await until(lambda: not any(c.usable for c in a.connections))
        slow.answer_all()
        assert await asked == Ack(b"\0")
        await closing
        assert kind_of(await b.request(address, task())) is FailureKind.CLOSED


@on_each
async def test_stopping_does_not_wait_for_ever(world: Wires) -> None:
    slow = Slow()
    async with world.node(1) as a, asyncio.TaskGroup() as group:
        async with world.node(2, slow, SHORT) as b:
            address = await b.listen(world.host(2), 0)
            asked = group.create_task(a.request(address, task()))
            await slow.has(1)
        assert kind_of(await asked) is FailureKind.LOST
        slow.answer_all()


@on_each
async def test_a_node_that_is_cancelled_leaves_no_caller_waiting(world: Wires) -> None:
    slow = Slow()
    ready: asyncio.Future[tuple[str, int]] = asyncio.get_running_loop().create_future()

    async def serve() -> None:
        async with world.node(2, slow) as b:
            ready.set_result(await b.listen(world.host(2), 0))
            await asyncio.Event().wait()

    async with world.node(1) as a, asyncio.TaskGroup() as group:
        serving = group.create_task(serve())
        asked = group.create_task(a.request(await ready, task()))
        await slow.has(1)
        serving.cancel()
        assert kind_of(await asked) is FailureKind.LOST


@on_each
async def test_a_handler_that_fails_is_a_refusal_and_is_reported(world: Wires) -> None:
    def fail(peer: Hello, message: Request) -> Reply | asyncio.Future[Reply]:
        if message == task():
            raise KeyError("a bug")
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        future.set_exception(OSError("a disk"))
        return future

    async with world.node(1) as a, world.node(2, fail) as b:
        address = await b.listen(world.host(2), 0)
        for message, name in ((task(), "KeyError"), (backup(), "OSError")):
            failure = await a.request(address, message)
            assert failure == Failure(FailureKind.REFUSED, f"failed: {name}")


# Room


@on_each
async def test_the_least_recently_used_idle_connection_makes_room(world: Wires) -> None:
    limits = TransportLimits(connections_max=2)
    nodes = [world.node(number) for number in (2, 3, 4)]
    async with world.node(1, limits=limits) as a, nodes[0], nodes[1], nodes[2]:
        addresses = [await node.listen(world.host(index + 2), 0) for index, node in enumerate(nodes)]
        for index in (0, 1, 0, 2, 0):
            assert await a.request(addresses[index], task()) == Ack(b"\0")
            assert len(a) <= 2
            await until(lambda: True)
            await asyncio.sleep(0.002)
        await until(lambda: [len(node) for node in nodes] == [1, 0, 1])


@on_each
async def test_what_a_peer_asks_while_its_connection_makes_room_is_answered(world: Wires) -> None:
    """Or whoever asks more nodes than there may be connections is told of losses that are none."""
    async with contextlib.AsyncExitStack() as stack:
        a = await stack.enter_async_context(world.node(1, limits=TransportLimits(connections_max=2)))
        others = [await stack.enter_async_context(world.node(number)) for number in (2, 3, 4)]
        at_a = await a.listen(world.host(1), 0)
        addresses = [await node.listen(world.host(n + 2), 0) for n, node in enumerate(others)]
        for turn in range(12):
            for index in (0, 1):
                assert await others[(turn + index) % 3].request(at_a, task()) == Ack(b"\0")
            # The first of these two is the one that has to go.
            both = others[turn % 3].request(at_a, task()), a.request(addresses[(turn + 2) % 3], task())
            assert list(await asyncio.gather(*both)) == [Ack(b"\0")] * 2


@on_each
async def test_who_does_not_part_is_cut_once_as_many_wait_as_may_be_open(world: Wires) -> None:
    # However busy the machine is, none is cut for the time that it takes.
    patient = TransportLimits(connections_max=2, link=LinkLimits(drain_s=1_000.0))

    def all_open(count: int) -> bool:
        return [each.link.state for each in a.connections] == [LinkState.OPEN] * count

    async with world.node(1, limits=patient) as a:
        at_a = await a.listen(world.host(1), 0)
        mute = []
        for number in range(10, 17):
            mute.append(await world.stranger(at_a, encode_signal(hello(number))))
            await until(lambda: bool(mute[-1].heard) and all_open(min(len(mute), 2)))
        await until(lambda: [stranger.ended.done() for stranger in mute] == [True] * 3 + [False] * 4)
        for stranger in mute:
            stranger.transport.abort()


async def test_of_connections_used_at_the_same_moment_the_one_made_first_makes_room() -> None:
    world = Wires(StreamWeather(delay_s=(0.01, 0.01), jitter_s=0.0))
    async with world.node(1, limits=TransportLimits(connections_max=2)) as a:
        at_a = await a.listen(world.host(1), 0)
        await asyncio.gather(*[world.stranger(at_a, encode_signal(hello(number))) for number in (10, 11)])
        await until(lambda: [each.link.state for each in a.connections] == [LinkState.OPEN] * 2)
        first, second = a.connections
        assert first.link.used_at == second.link.used_at
        await world.stranger(at_a)
        await until(lambda: first not in a.connections or second not in a.connections)
        assert second in a.connections


@on_each
async def test_more_peers_than_there_may_be_connections_are_asked_one_after_the_other(world: Wires) -> None:
    numbers = range(2, 8)
    async with contextlib.AsyncExitStack() as stack:
        a = await stack.enter_async_context(world.node(1, limits=TransportLimits(connections_max=2)))
        nodes = [await stack.enter_async_context(world.node(number)) for number in numbers]
        addresses = [await node.listen(world.host(n), 0) for n, node in zip(numbers, nodes, strict=True)]
        asked = [a.request(address, task()) for address in addresses for _ in range(2)]
        assert await asyncio.gather(*asked) == [Ack(b"\0")] * 12
        assert len(a) <= 2


@on_each
async def test_when_every_connection_is_in_use_a_further_one_is_refused(world: Wires) -> None:
    slow, limits = Slow(), TransportLimits(connections_max=1, room_s=0.05)
    async with (
        world.node(1, limits=limits) as a,
        world.node(2, slow) as b,
        world.node(3) as c,
        asyncio.TaskGroup() as group,
    ):
        at_a, at_b = await a.listen(world.host(1), 0), await b.listen(world.host(2), 0)
        at_c = await c.listen(world.host(3), 0)
        using = group.create_task(a.request(at_b, task()))
        await slow.has(1)
        assert kind_of(await a.request(at_c, task())) is FailureKind.BUSY
        assert kind_of(await c.request(at_a, task())) is FailureKind.BUSY
        assert a.refused == 1
        slow.answer_all()
        assert await using == Ack(b"\0")
        assert await a.request(at_c, task()) == Ack(b"\0")


@on_each
async def test_hundreds_of_strangers_take_no_more_places_than_there_are_for_them(world: Wires) -> None:
    limits = TransportLimits(connections_max=20, greeting_max=10)
    async with world.node(1, limits=limits) as a, world.node(2) as b:
        address = await a.listen(world.host(1), 0)
        assert await b.request(address, task()) == Ack(b"\0")
        strangers = []
        for _ in range(300):
            strangers.append(await world.stranger(address))
            assert len(a) <= 12
        await until(lambda: sum(not stranger.ended.done() for stranger in strangers) <= 10)
        # The peer that was there is still there, and a new one gets in.
        assert await b.request(address, task()) == Ack(b"\0")
        async with world.node(3) as c:
            assert await c.request(address, task()) == Ack(b"\0")
        for stranger in strangers:
            stranger.transport.abort()


# Hostile peers


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"announced"),
        (HEADER.pack(2**30, Kind.STORE_TASK), b"1,073,741,824 bytes announced"),
        (HEADER.pack(5_000, Kind.HELLO), b"announced"),
        (encode_signal(hello(9)) + HEADER.pack(2**30, Kind.STORE_TASK), b"1,073,741,824 bytes announced"),
        (encode_signal(hello(9)) + HEADER.pack(4, Kind.STORE_TASK) + b"abc", b"body"),
        (encode_signal(hello(9)) + encode(1, Ack(b"\0")), b"not asked"),
        (encode_signal(replace(hello(9), version_min=7, version_max=8)), b"7 to 8 there"),
        (encode_signal(hello(9)) + encode(1, task(300, 3000)) + encode(2, task(300, 3000)), b"credit"),
    ],
    ids=["http", "gigabyte", "long-greeting", "gigabyte-later", "garbage", "unasked", "version", "credit"],
)
@on_each
async def test_a_peer_against_the_rules_is_told_why_and_hung_up_on(world: Wires, data: bytes, says: bytes) -> None:
    slow = Slow()
    async with world.node(1, slow) as a:
        address = await a.listen(world.host(1), 0)
        stranger = await world.stranger(address, data)
        await stranger.ended
        assert says in stranger.heard
        await until(lambda: len(a) == 0)
        assert sum(a.endings.values()) == 1
        slow.answer_all()


@on_each
async def test_a_peer_that_closes_in_the_middle_of_a_frame_is_forgotten(world: Wires) -> None:
    async with world.node(1) as a:
        address = await a.listen(world.host(1), 0)
        stranger = await world.stranger(address, encode_signal(hello(9)) + encode(1, task(300))[:-1])
        await until(lambda: bool(stranger.heard))
        stranger.transport.close()
        await until(lambda: sum(a.endings.values()) == 1)
        assert len(a) == 0


class _Mute(Stranger):
    """Greets, and says nothing more."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.write(encode_signal(hello(9)))


class _Deaf(_Mute):
    """And does not read either."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.pause_reading()


@on_each
async def test_a_peer_that_never_answers_costs_each_request_its_deadline(world: Wires) -> None:
    async with world.node(1, limits=SHORT) as a:
        server, address = await world.strange_server(9, _Mute)
        results = await asyncio.gather(*(a.request(address, task()) for _ in range(10)))
        assert {kind_of(result) for result in results} <= {FailureKind.TIMEOUT, FailureKind.LOST}
        server.close()


@on_each
async def test_who_waits_for_a_peer_that_is_given_up_is_told_at_once_and_others_are_not(world: Wires) -> None:
    slow, other = Slow(), Slow()
    async with (
        world.node(1) as a,
        world.node(2, slow) as b,
        world.node(3, other) as c,
        asyncio.TaskGroup() as group,
    ):
        address, elsewhere = await b.listen(world.host(2), 0), await c.listen(world.host(3), 0)
        waiting = [group.create_task(a.request(address, task(size))) for size in (1, 2, 3)]
        unharmed = group.create_task(a.request(elsewhere, task(4)))
        await slow.has(3)
        await other.has(1)
        a.give_up(hello(2).node_id, address)
        assert [kind_of(await each) for each in waiting] == [FailureKind.LOST] * 3
        other.answer_all()
        assert await unharmed == answer_to(task(4))
        # It is back: a new connection is made.
        again = group.create_task(a.request(address, task(5)))
        await slow.has(4)
        slow.answer_all()
        assert await again == answer_to(task(5))


@on_each
async def test_who_waits_for_a_peer_that_begins_anew_is_told_at_once_and_its_new_connections_stay(world: Wires) -> None:
    slow = Slow()
    async with world.node(1) as a, world.node(2, slow) as b, asyncio.TaskGroup() as group:
        address = await b.listen(world.host(2), 0)
        waiting = group.create_task(a.request(address, task()))
        await slow.has(1)
        peer = hello(2)
        a.give_up(peer.node_id, address, before=peer.incarnation)
        await asyncio.sleep(0)
        assert not waiting.done()
        a.give_up(peer.node_id, address, before=peer.incarnation + 1)
        assert kind_of(await waiting) is FailureKind.LOST


@on_each
async def test_a_peer_that_is_given_up_while_we_dial_it_keeps_nobody_waiting(world: Wires) -> None:
    async with world.node(1) as a, asyncio.TaskGroup() as group:
        server, address = await world.strange_server(9, Stranger)
        waiting = group.create_task(a.request(address, task()))
        await asyncio.sleep(0)
        a.give_up(hello(9).node_id, address)
        assert kind_of(await waiting) is FailureKind.LOST
        server.close()


@on_each
async def test_a_peer_that_never_greets_is_a_failure(world: Wires) -> None:
    async with world.node(1, limits=SHORT) as a:
        server, address = await world.strange_server(9, Stranger)
        failure = await a.request(address, task(), timeout_s=5.0)
        assert isinstance(failure, Failure)
        assert (failure.kind, failure.sent) == (FailureKind.CONNECT, False)
        server.close()


@on_each
async def test_a_peer_of_another_version_is_reported_with_both_ranges(world: Wires) -> None:
    class Later(Stranger):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            self.transport.write(encode_signal(replace(hello(9), version_min=VERSION + 1, version_max=VERSION + 2)))

    async with world.node(1) as a:
        server, address = await world.strange_server(9, Later)
        failure = await a.request(address, task())
        assert failure == Failure(
            FailureKind.VERSION,
            f"versions {VERSION_MIN} to {VERSION} here, {VERSION + 1} to {VERSION + 2} there",
            sent=False,
        )
        server.close()


@on_each
async def test_a_peer_that_does_not_read_holds_up_no_more_than_our_buffers(
    world: Wires, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dhtcrawl.rpc.tasks.connection.CLOSE_S", 0.1)

    limits = replace(SHORT, request_s=2.0, link=LinkLimits(silent_s=0.3, keepalive_s=0.1))
    async with world.node(1, limits=limits) as a:
        server, address = await world.strange_server(9, _Deaf)
        asking = asyncio.gather(*(a.request(address, task(300, padding=2000)) for _ in range(40)))
        await until(lambda: len(a) == 1)
        (connection,) = a.connections
        await until(lambda: connection.link.asking.queued_bytes(task().lane) > 1_000_000)
        assert connection.link.asking.queued_bytes(task().lane) < 2_000_000
        results = await asking
        assert all(isinstance(result, Failure) for result in results)
        await until(lambda: len(a) == 0)
        server.close()


@pytest.mark.loops("asyncio", "uvloop")
async def test_a_link_that_ends_in_the_turn_in_which_its_peer_hung_up_tells_the_loop_of_no_error(
    world: Wires,
) -> None:
    """The goodbye is still taken by the socket, and answered by a reset: there is nothing left to shut down."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        async with world.node(1) as a:
            asking = asyncio.ensure_future(a.request(server.getsockname(), task()))
            peer, _ = await loop.sock_accept(server)
            peer.setblocking(False)
            await loop.sock_sendall(peer, encode_signal(hello(9)))
            await until(lambda: [c.link.state for c in a.connections] == [LinkState.OPEN])
            (connection,) = a.connections
            await until(lambda: not connection.link.asking.queued_bytes(task().lane))
            # Whoever has read everything goes with a FIN, which the other end has not noticed yet.
            with contextlib.suppress(BlockingIOError):
                while peer.recv(1 << 16):
                    pass
            peer.close()
            connection.link.lost("in the same turn", loop.time())
            connection.resume_writing()  # in the same turn the socket takes more
            assert kind_of(await asking) is FailureKind.LOST
            await until(lambda: len(a) == 0)


@on_each
async def test_a_peer_that_asks_and_does_not_read_the_answers_is_bounded(world: Wires) -> None:
    def answer(peer: Hello, message: Request) -> Reply:
        return Records((backup().records[0]._replace(url="x" * 8000),) * 60)

    async with world.node(1, answer) as a:
        address = await a.listen(world.host(1), 0)
        stranger = await world.stranger(address, encode_signal(hello(9)))
        stranger.transport.pause_reading()
        question = RefreshTask(CRAWL, bytes(20), bytes(20), reply_bytes_max=512 * 1024)
        # Its window has room for two such answers; then it goes on as if it had been given credit.
        stranger.transport.write(b"".join(encode(number, question) for number in range(60)))
        await until(lambda: sum(a.endings.values()) == 1)
        assert a.endings[FailureKind.PROTOCOL] == 1
        stranger.transport.abort()


# In memory only: what a socket does not do on demand


async def test_a_peer_that_died_without_a_word_is_found_out_by_its_silence(world: Wires) -> None:
    loop = asyncio.get_running_loop()
    async with world.node(1) as a, world.node(2) as b:
        address = await b.listen(world.host(2), 0)
        assert await a.request(address, task()) == Ack(b"\0")
        assert world.streams is not None
        world.streams.crash(world.host(2))
        began = loop.time()
        failure = await a.request(address, task(), timeout_s=100.0)
        assert kind_of(failure) is FailureKind.LOST
        assert loop.time() - began <= 45.1
        failure = await a.request(address, task(), timeout_s=100.0)
        assert kind_of(failure) is FailureKind.CONNECT


async def test_a_peer_that_came_back_resets_the_connection_of_before(world: Wires) -> None:
    loop = asyncio.get_running_loop()
    async with world.node(1) as a, world.node(2) as b, asyncio.TaskGroup() as group:
        _, port = address = await b.listen(world.host(2), 0)
        assert await a.request(address, task()) == Ack(b"\0")
        assert world.streams is not None
        world.streams.crash(world.host(2))
        asking = group.create_task(a.request(address, task(), timeout_s=100.0))
        await asyncio.sleep(1.0)
        world.streams.restart(world.host(2))
        async with world.node(3) as c:
            await c.listen(world.host(2), port)
            assert kind_of(await asking) is FailureKind.LOST
            assert loop.time() < 3.0
            assert await a.request(address, task()) == Ack(b"\0")
            assert [peer.node_id for _, peer in a.peers()] == [hello(3).node_id]


async def test_a_short_partition_delays_and_loses_nothing(world: Wires) -> None:
    loop = asyncio.get_running_loop()
    async with world.node(1) as a, world.node(2) as b, asyncio.TaskGroup() as group:
        address = await b.listen(world.host(2), 0)
        assert await a.request(address, task()) == Ack(b"\0")
        assert world.streams is not None
        world.streams.wires.partition([world.host(1)])
        asking = [group.create_task(a.request(address, task())) for _ in range(10)]
        await asyncio.sleep(8.0)
        assert not any(each.done() for each in asking)
        world.streams.heal()
        assert {await each for each in asking} == {Ack(b"\0")}
        assert loop.time() < 10.0
        assert len(a) == 1


async def times(seed: int) -> list[float]:
    """When each of two nodes' requests to the other was answered."""
    world, moments = Wires(seed=seed), []
    loop = asyncio.get_running_loop()

    async def ask(transport: TaskTransport, address: tuple[str, int]) -> None:
        for size in range(1, 40):
            await transport.request(address, task(size, padding=500))
            moments.append(loop.time())

    async with world.node(1) as a, world.node(2) as b:
        at_a, at_b = await a.listen(world.host(1), 0), await b.listen(world.host(2), 0)
        async with asyncio.TaskGroup() as group:
            group.create_task(ask(a, at_b))
            group.create_task(ask(b, at_a))
    return moments


def test_the_same_seed_brings_the_same_times() -> None:
    assert run(times(1)) == run(times(1))
    assert run(times(1)) != run(times(2))


async def test_an_idle_connection_is_given_up_by_itself(world: Wires) -> None:
    async with world.node(1) as a, world.node(2) as b:
        address = await b.listen(world.host(2), 0)
        assert await a.request(address, task()) == Ack(bytes([Code.ACCEPTED]))
        await asyncio.sleep(299.0)
        assert (len(a), len(b)) == (1, 1)
        await asyncio.sleep(2.0)
        assert (len(a), len(b)) == (0, 0)
