"""A node asks itself as it asks others: nonsense is refused, and lists are what they are on the wire."""

import asyncio
from dataclasses import replace
from typing import Annotated, Any, NamedTuple, cast

from swarm.fake_peers import node, view_of

from dhtcrawl.rpc.discovery.protocol import RoutingProtocol
from dhtcrawl.rpc.membership.hello import MemberRecord, NodeState
from dhtcrawl.rpc.membership.view import View
from dhtcrawl.rpc.peers.port import CallRegistry
from dhtcrawl.rpc.peers.task_peers import TaskPeers
from dhtcrawl.rpc.tasks.connection import Handler
from dhtcrawl.rpc.tasks.events import Failure, FailureKind
from dhtcrawl.rpc.tasks.messages import Call, Refused, Reply, Request
from dhtcrawl.rpc.tasks.schema import BadArguments, CallArgs, WireMap, integer, rows, text
from dhtcrawl.rpc.tasks.signals import Hello
from dhtcrawl.rpc.tasks.transport import TaskTransport
from rpc.wire import backup, task

OWN, OTHER = node(0), node(1)


class Pair(NamedTuple):
    number: Annotated[int, integer(0, 9)]
    word: Annotated[str, text(9)]


class Doubled(WireMap):
    number: Annotated[int, integer(0, 100)]


class Double(CallArgs[Doubled], name="double"):
    number: Annotated[int, integer(0, 100)]
    pairs: Annotated[tuple[Pair, ...], rows(Pair, 3)] = ()


class FakePlane:
    """The routing plane: what is asked there, and answered with nil."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def register(self, name: str, handler: object, arguments: int, *, later: bool) -> None: ...

    async def call(self, address: Any, name: str, *args: object, **how: object) -> tuple[bool, Any]:
        self.asked.append((address, name))
        return True, None


class FakeTransport:
    def __init__(self) -> None:
        self.asked: list[tuple[Any, bytes | None]] = []
        self.given_up: list[tuple[bytes, Any]] = []
        self.anew: list[tuple[bytes, int]] = []
        self.connections_max = 1
        self.connected = False

    def is_connected(self, address: Any) -> bool:
        return self.connected

    def give_up(self, node_id: bytes, address: Any, *, before: int | None = None) -> None:
        if before is None:
            self.given_up.append((node_id, address))
        else:
            self.anew.append((node_id, before))

    async def request(self, address: Any, message: Request, *, node_id: bytes | None, timeout_s: float | None) -> Any:
        self.asked.append((address, node_id))
        return Failure(FailureKind.TIMEOUT, "no answer")


def peers_of(
    registry: CallRegistry,
    group: asyncio.TaskGroup,
    transport: FakeTransport,
    state: NodeState = NodeState.ACTIVE,
    plane: FakePlane | None = None,
) -> TaskPeers:
    """`state` is what is known of the only other member."""
    record = replace(MemberRecord.newcomer(OTHER, ("10.0.0.2", 2), 1, ()), state=state)

    def handle(hello: Hello, message: Request) -> Reply | asyncio.Future[Reply]:
        assert isinstance(message, Call)
        return registry.answer(hello.node_id, message, group)

    return TaskPeers(
        OWN,
        cast(TaskTransport, transport),
        cast(Handler, handle),
        lambda: Hello(OWN, 1, "active", ()),
        lambda: view_of([0, 1]),
        lambda asked: record if asked == OTHER else None,
        cast(RoutingProtocol, plane),
    )


async def test_a_call_of_ourselves_is_answered_without_a_network_and_as_by_another() -> None:
    async with asyncio.TaskGroup() as group:
        registry, transport = CallRegistry(), FakeTransport()

        async def double(asker: bytes, args: Double) -> Doubled:
            assert asker == OWN
            assert args == Double(3, (Pair(4, "x"),))
            assert type(args.pairs[0]) is Pair
            await asyncio.sleep(0.1)
            return Doubled.parse({"number": 6, "list": [[4], 5]})

        registry.serve(Double, double)
        peers = peers_of(registry, group, transport)
        assert await peers.call(OWN, Double(3, (Pair(4, "x"),))) == Doubled.parse({"number": 6, "list": ((4,), 5)})
        assert transport.asked == []


async def test_a_handler_of_ours_that_fails_or_refuses_is_a_failure_and_no_exception() -> None:
    def broken(asker: bytes, args: Double) -> Doubled:
        raise ValueError("ours")

    def doubtful(asker: bytes, args: Double) -> Doubled:
        raise BadArguments("pairs")

    async def later(asker: bytes, args: Double) -> Doubled:
        raise BadArguments("pairs")

    async with asyncio.TaskGroup() as group:
        for handler, said in (
            (lambda asker, args: Refused("busy", "today"), "busy: today"),
            (broken, "failed: double"),
            (doubtful, "bad-args: pairs"),
            (later, "bad-args: pairs"),
            (None, "unknown-call: double"),
        ):
            registry = CallRegistry()
            if handler is not None:
                registry.serve(Double, handler)
            peers = peers_of(registry, group, FakeTransport())
            assert await peers.call(OWN, Double(1)) == Failure(FailureKind.REFUSED, said)


async def test_what_is_out_of_bounds_reaches_neither_a_handler_nor_the_asker() -> None:
    async with asyncio.TaskGroup() as group:
        registry = CallRegistry()
        registry.serve(Double, lambda asker, args: Doubled(args.number + 90))
        peers = peers_of(registry, group, FakeTransport())
        assert await peers.call(OWN, Double(101)) == Failure(FailureKind.REFUSED, "bad-args: number")
        assert await peers.call(OWN, Double(50)) == Failure(
            FailureKind.PROTOCOL, "an answer to double with a bad number"
        )
        assert await peers.call(OWN, Double(0)) == Doubled(90)


async def test_another_is_asked_at_its_address_and_a_stranger_not_at_all() -> None:
    async with asyncio.TaskGroup() as group:
        transport = FakeTransport()
        peers = peers_of(CallRegistry(), group, transport)
        assert isinstance(await peers.call(OTHER, Double(1)), Failure)
        assert transport.asked == [(("10.0.0.2", 2), OTHER)]
        answer = await peers.call(node(2), Double(1))
        assert isinstance(answer, Failure)
        assert (answer.kind, answer.sent) == (FailureKind.CONNECT, False)


async def test_who_was_declared_dead_is_waited_for_no_longer_nor_asked_again() -> None:
    async with asyncio.TaskGroup() as group:
        transport = FakeTransport()
        peers = peers_of(CallRegistry(), group, transport, NodeState.DEAD)
        peers.view_changed(view_of([0, 1]))
        assert transport.given_up == []
        peers.view_changed(view_of([0]))
        peers.view_changed(view_of([0]))
        assert transport.given_up == [(OTHER, ("10.0.0.2", 2))], "once"
        answer = await peers.call(OTHER, Double(1))
        assert isinstance(answer, Failure)
        assert (answer.kind, transport.asked) == (FailureKind.CONNECT, [])


async def test_what_was_asked_of_a_member_where_it_is_no_more_fails_at_once() -> None:
    async with asyncio.TaskGroup() as group:
        transport = FakeTransport()
        peers = peers_of(CallRegistry(), group, transport)
        peers.view_changed(view_of([0, 1]))
        moved = [replace(member, address=("10.0.0.9", 2)) for member in view_of([1]).members]
        peers.view_changed(View([*view_of([0]).members, *moved]))
        peers.view_changed(View([*view_of([0]).members, *moved]))
        assert transport.given_up == [(OTHER, view_of([1]).members[0].address)], "once"


async def test_what_was_asked_of_a_member_before_it_joins_anew_fails_at_once() -> None:
    async with asyncio.TaskGroup() as group:
        transport = FakeTransport()
        peers = peers_of(CallRegistry(), group, transport, NodeState.JOINING)
        peers.view_changed(view_of([0], joining=[1]))
        assert transport.anew == [], "a newcomer has been asked nothing"
        peers.view_changed(view_of([0, 1]))
        peers.view_changed(view_of([0], joining=[1]))
        peers.view_changed(view_of([0], joining=[1]))
        assert transport.anew == [(OTHER, 1)], "once"
        assert transport.given_up == []


async def test_who_left_in_order_may_finish_what_it_has_begun() -> None:
    async with asyncio.TaskGroup() as group:
        transport = FakeTransport()
        peers = peers_of(CallRegistry(), group, transport, NodeState.LEFT)
        peers.view_changed(view_of([0, 1]))
        peers.view_changed(view_of([0]))
        assert transport.given_up == []


async def test_links_go_without_a_connection_where_there_are_too_few_for_all() -> None:
    async with asyncio.TaskGroup() as group:
        transport, plane = FakeTransport(), FakePlane()
        peers = peers_of(CallRegistry(), group, transport, plane=plane)
        links = task()
        await peers.ask(OTHER, links)
        assert plane.asked == [(("10.0.0.2", 2), "store_task")]
        assert transport.asked == [(("10.0.0.2", 2), OTHER)], "nil: a connection is made"
        transport.connected = True
        await peers.ask(OTHER, links)
        transport.connected, transport.connections_max = False, 2
        await peers.ask(OTHER, links)
        transport.connections_max = 1
        await peers.ask(OTHER, backup())
        await peers.call(OTHER, Double(1))
        await peers.ask(node(5), links)
        assert len(plane.asked) == 1
        assert len(transport.asked) == 5
