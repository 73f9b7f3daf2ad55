"""A newcomer that the others do not reach is told so, and what to do; nobody is tried but at its own address."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest
from rpc.wire import hello

from dhtcrawl.clock import SystemClock
from dhtcrawl.closed.secret import Ring
from dhtcrawl.errors import NotReachable
from dhtcrawl.node.try_address import try_address
from dhtcrawl.rpc.contact import Address
from dhtcrawl.rpc.discovery.server import RoutingServer
from dhtcrawl.rpc.peers.port import CallRegistry
from dhtcrawl.rpc.tasks.events import Failure, FailureKind
from dhtcrawl.rpc.tasks.messages import Call, Refused, Reply, Request
from dhtcrawl.rpc.tasks.signals import Hello
from dhtcrawl.rpc.tasks.transport import TaskTransport, TransportLimits
from dhtcrawl.swarm.calls.membership import Here, TriedAddress, TryMe
from dhtcrawl.swarm.membership.reach_check import HERE, ReachCheck, Tried
from dhtcrawl.swarm.membership.reached import Attempt, unreached
from swarm.fake_peers import node

OWN: Address = ("192.0.2.7", 8468)
FAILS = "do not reach this node at 192.0.2.7:8468"


@pytest.mark.parametrize(
    ("attempts", "says"),
    [
        ([Attempt(True, True)], None),
        ([Attempt(False, False), Attempt(True, True)], None),  # the other one's own network may be cut off
        (
            [Attempt(False, False), Attempt(False, False, OWN[0])],
            f"2 nodes tried and {FAILS}, neither by UDP nor TCP: open TCP and UDP port 8468 in the firewalls "
            "on the way, name another address with --advertise, or take part with --outbound-only",
        ),
        (
            [Attempt(False, False, "203.0.113.9")] * 3,
            f"3 nodes tried and {FAILS}, neither by UDP nor TCP, but see it at 203.0.113.9: name that with --advertise "
            "203.0.113.9:8468, and where it is a router's, have that pass TCP and UDP port 8468 on to this machine, "
            "or take part with --outbound-only",
        ),
        (
            [Attempt(True, False, "203.0.113.9")],
            "one node tried and does not reach this node at 192.0.2.7:8468, by TCP: open TCP port 8468 in the "
            "firewalls on the way, name another address with --advertise, or take part with --outbound-only",
        ),
        (
            [Attempt(False, True)] * 2,
            f"2 nodes tried and {FAILS}, by UDP: open UDP port 8468 in the firewalls on the way, "
            "name another address with --advertise, or take part with --outbound-only",
        ),
        (
            [Attempt(False, True, "192.0.2.6")] * 2,
            f"2 nodes tried and {FAILS}, by UDP: open UDP port 8468 in the firewalls on the way, or, as its datagrams "
            "come from 192.0.2.6 and an answer has to come from the address that was asked, listen on that alone, with "
            "--listen 192.0.2.7:8468",
        ),
    ],
)
def test_what_the_others_found_is_told_with_its_remedy(attempts: list[Attempt], says: str | None) -> None:
    assert unreached(OWN, attempts) == says


class Swarm:
    """Everything that a `ReachCheck` asks: members 1 to 4, of which 4 is on our own machine."""

    node_id = node(0)

    def __init__(self, *answers: TriedAddress | Failure) -> None:
        self.answers = list(answers)
        self.asked: list[bytes] = []
        self.left = False
        self.members: Any = self
        self.me = SimpleNamespace(address=OWN, host=OWN[0])
        self.others = [SimpleNamespace(id=node(n), host=f"10.0.0.{n}", address=(f"10.0.0.{n}", n)) for n in (1, 2, 3)]
        self.others.append(SimpleNamespace(id=node(4), host=OWN[0], address=(OWN[0], 9)))

    def __len__(self) -> int:
        return len(self.others) + 1

    def some(self, n: int) -> list[Any]:
        return self.others[-n:]

    def get(self, node_id: bytes) -> Any:
        return next((other for other in self.others if other.id == node_id), None)

    async def exchange(self, node_id: bytes) -> bool:
        return node_id != node(3)

    async def leave(self) -> None:
        self.left = True

    async def call(self, where: Any, what: Any) -> Any:
        if what == "stun":
            return True, ["203.0.113.9", 4]
        assert what == TryMe(*OWN)
        self.asked.append(where)
        return self.answers.pop(0)

    def check(self, tried: Tried = Tried(True, True)) -> ReachCheck:  # noqa: B008
        self.tried: list[tuple[Address, bytes]] = []

        async def try_it(address: Address, node_id: bytes) -> Tried:
            self.tried.append((address, node_id))
            await asyncio.sleep(1)
            return tried

        swarm: Any = self
        return ReachCheck(swarm, swarm, swarm, try_it)


NOBODY = Failure(FailureKind.CONNECT, "nobody", sent=False)


async def test_a_node_that_one_of_the_others_reaches_may_join() -> None:
    swarm = Swarm(TriedAddress(False, False), TriedAddress(True, True))
    await swarm.check().require()
    assert swarm.asked == [node(1), node(2)], "who did not hear of us cannot try, and our own machine says nothing"
    assert not swarm.left


async def test_where_none_can_say_nothing_is_refused() -> None:
    swarm = Swarm(NOBODY, NOBODY)
    await swarm.check().require()
    swarm.others = []
    await swarm.check().require()


async def test_a_node_that_nobody_reaches_three_times_leaves_and_says_what_to_do() -> None:
    nothing = TriedAddress(False, False)
    swarm = Swarm(*[nothing] * 5, TriedAddress(True, True))
    await swarm.check().require()
    swarm = Swarm(*[nothing] * 6)
    with pytest.raises(NotReachable, match=r"^join: 2 nodes tried .* --advertise 203\.0\.113\.9:8468, and") as caught:
        await swarm.check().require()
    assert caught.value.exit_code == 33
    assert swarm.left


async def test_a_member_tries_no_address_but_that_of_the_asker_and_once_at_a_time() -> None:
    swarm = Swarm()
    check = swarm.check(Tried(True, False))
    assert await check.on_try_me(node(9), TryMe("10.0.0.9", 9)) == Refused("not-a-member", "tell members first")
    assert await check.on_try_me(node(1), TryMe("10.0.0.99", 1)) == Refused("not-a-member", "tell members first")
    both = await asyncio.gather(*(check.on_try_me(node(1), TryMe("10.0.0.1", 1)) for _ in range(2)))
    assert both == [TriedAddress(True, False), Refused("busy")]
    assert await check.on_try_me(node(1), TryMe("10.0.0.1", 1)) == TriedAddress(True, False)
    assert swarm.tried == [(("10.0.0.1", 1), node(1))] * 2


@pytest.mark.loops("asyncio", "uvloop")
@pytest.mark.parametrize("ring", [None, Ring.of((bytes(32),))], ids=["open", "closed"])
async def test_an_address_is_tried_by_both_planes_and_only_the_right_node_counts(ring: Ring | None) -> None:
    there = hello(1).node_id

    def server(node_id: bytes) -> RoutingServer:
        return RoutingServer(node_id, clock=SystemClock(), rng=random.Random(node_id), ring=ring)

    async def tried(address: Address, node_id: bytes) -> Tried:
        def transport(limits: TransportLimits) -> TaskTransport:
            return TaskTransport(lambda: hello(2), refuse, limits=limits)

        return await try_address(address, node_id, transport, server, random.Random(2))

    async with TaskTransport(lambda: hello(1), refuse) as transport:
        address = await transport.listen("127.0.0.1", 0)
        assert await tried(address, there) == Tried(False, True), "without datagrams"
        routing = server(there)
        try:
            await routing.listen(address[1], "127.0.0.1")
            routing.plane.register(HERE, lambda _: there, 0)
            assert await tried(address, there) == Tried(True, True)
            assert await tried(address, node(9)) == Tried(False, False), "another node has its place"
        finally:
            routing.stop()
    assert await tried(address, there) == Tried(False, False)


def refuse(_hello: Hello, message: Request) -> Reply:
    assert isinstance(message, Call)
    assert message.name == Here.terms.name
    return Refused("closing")


async def test_others_are_answered_from_the_moment_that_they_may_ask() -> None:
    served: list[str] = []
    registry = CallRegistry()
    swarm: Any = Swarm()
    swarm.register = lambda name, handler, arguments: served.append(name)
    ReachCheck(swarm, swarm, swarm, None).serve(registry)  # type: ignore[arg-type]
    assert (served, sorted(registry.served())) == ([HERE], ["here", "try_me"])
