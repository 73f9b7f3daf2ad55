"""Which of its addresses a node tells, and that it tells another one once that is where it is."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from dhtcrawl.cli.own_hosts import OwnHosts
from dhtcrawl.rpc.contact import Address
from dhtcrawl.rpc.membership.view import Member, View
from dhtcrawl.swarm.membership.own_address import LOOK_EVERY_S, OwnAddress
from dhtcrawl.swarm.membership.own_host import own_host
from swarm.fake_peers import node

V4, OTHER_V4, V6 = "192.0.2.7", "198.51.100.3", "2001:db8::7"


@pytest.mark.parametrize(
    ("current", "candidates", "others", "told"),
    [
        (V4, [V4], ["10.0.0.1"], V4),
        (V4, [], ["10.0.0.1"], V4),  # nothing is known: perhaps a cable is out
        (V4, [OTHER_V4], ["10.0.0.1"], OTHER_V4),
        (V4, [OTHER_V4, V4], ["10.0.0.1"], V4),  # of two that will do the one that is known
        (V6, [V6, V4], ["10.0.0.1", "10.0.0.2"], V4),  # none of the others has an IPv6 address
        (V4, [V6, V4], ["10.0.0.1", "2001:db8::1", "2001:db8::2"], V4),
        (OTHER_V4, [V4, V6], ["10.0.0.1", "2001:db8::1", "2001:db8::2"], V6),
        (OTHER_V4, [V6], ["10.0.0.1"], V6),  # what it has
        (OTHER_V4, [V4], [], V4),  # a name that stands for another address, and nobody there
    ],
)
def test_a_node_tells_the_address_that_the_others_can_use(
    current: str, candidates: list[str], others: list[str], told: str
) -> None:
    assert own_host(current, candidates, others) == told


class FakeGossip:
    def __init__(self) -> None:
        self.members = SimpleNamespace(me=SimpleNamespace(id=node(0), host=V4, port=8468))
        self.view = View([Member(node(0), (V4, 8468))])

    def move(self, address: Address) -> bool:
        me = self.members.me
        before, (me.host, me.port) = (me.host, me.port), address
        return before != address


async def test_an_address_that_changes_is_told_and_what_is_on_old_connections_is_given_up() -> None:
    gossip: Any = FakeGossip()
    asked: list[list[Address]] = []
    moved: list[str] = []
    hosts = [V4]

    async def own_hosts(others: Sequence[Address]) -> Sequence[str]:
        asked.append(list(others))
        return hosts

    gone = ("10.0.0.9", 9)
    own_address = OwnAddress(gossip, own_hosts, lambda: [gone], lambda: moved.append(gossip.members.me.host))
    running = asyncio.create_task(own_address.run())
    await asyncio.sleep(2 * LOOK_EVERY_S + 0.1)
    assert (asked, moved) == ([[gone], [gone]], []), "who hears nobody any more looks for the way to whom it knew"
    gossip.view = View([*gossip.view.members, Member(node(1), ("10.0.0.1", 1))])
    hosts[:] = [OTHER_V4]
    await asyncio.sleep(2 * LOOK_EVERY_S)
    running.cancel()
    assert moved == [OTHER_V4], "once"
    assert asked[-1] == [("10.0.0.1", 1)]


@pytest.mark.loops("asyncio", "uvloop")
async def test_a_name_is_looked_up_and_a_way_too() -> None:
    assert await OwnHosts("::", "localhost")(()) == [], "others do not find it there"
    assert await OwnHosts("0.0.0.0", "no-such-host.invalid")(()) == []
    assert await OwnHosts("0.0.0.0", None)([("127.0.0.1", 9), ("127.0.0.1", 10)]) == ["127.0.0.1"]


@pytest.mark.loops("asyncio")
async def test_what_a_name_stands_for_is_of_a_family_that_is_listened_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def found(*_args: object, **_options: object) -> list[Any]:
        return [(0, 0, 0, "", (host, 0)) for host in ("127.0.1.1", V6, V4, V4)]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", found)
    assert await OwnHosts("::", "node.example.org")(()) == [V6, V4]
    assert await OwnHosts("0.0.0.0", "node.example.org")(()) == [V4]
    assert await OwnHosts(V6, "node.example.org")(()) == [V6]
