"""Addresses of both families, and names that stand for some or for none."""

from __future__ import annotations

import random
from functools import partial

import pytest

from dhtcrawl.clock import SystemClock
from dhtcrawl.errors import BootstrapUnreachable
from dhtcrawl.rpc.discovery.server import RoutingServer, hosts_of, unreachable
from dhtcrawl.rpc.tasks.transport import TaskTransport
from rpc.routing_swarm import PORT, world
from rpc.wire import answer_to, hello, task

ELSEWHERE = ("2001:db8::1", 8468)


@pytest.mark.loops("asyncio", "uvloop")
async def test_who_listens_on_ipv4_gets_no_answer_from_ipv6_and_goes_on() -> None:
    one, other = (RoutingServer(bytes([n]) * 20, clock=SystemClock(), rng=random.Random(n)) for n in (1, 2))
    try:
        for server in (one, other):
            await server.listen(0, "127.0.0.1")
        assert await one.plane.call(ELSEWHERE, "ping", one.node.id, tries=2, timeout_s=0.05) == (False, None)
        assert await one.nodes_at(ELSEWHERE) == []
        assert [contact.id for contact in await one.nodes_at(other.address)] == [other.node.id]
    finally:
        for server in (one, other):
            server.stop()


async def test_who_listens_on_ipv4_asks_of_a_name_the_addresses_that_it_can_reach(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world() as w:
        await w.node("ours", "10.0.0.9", b"9" * 20)
        asker = await w.node("ours", "10.0.0.1")
        none, both = [None] * 4, list[tuple[object, ...]]()
        both += [(*none, (f"2001:db8::{n}", PORT, 0, 0)) for n in range(1, 6)]
        both += [(*none, ("10.0.0.9", PORT))]

        async def getaddrinfo(*_asked: object) -> list[tuple[object, ...]]:
            return both

        monkeypatch.setattr(w.loop, "getaddrinfo", getaddrinfo)
        began_at = w.loop.time()
        assert [contact.id for contact in await asker.bootstrap([("node.example", PORT)])] == [b"9" * 20]
        assert w.loop.time() - began_at < 1.0  # and waits for none of the others
        assert await hosts_of(("node.example", PORT)) == [f"2001:db8::{n}" for n in range(1, 5)]
        del both[-1]
        assert await hosts_of(("node.example", PORT), ipv6=False) == [f"2001:db8::{n}" for n in range(1, 5)]


@pytest.mark.loops("asyncio", "uvloop")
async def test_who_listens_on_every_address_takes_connections_of_both_families() -> None:
    async with TaskTransport(lambda: hello(1), lambda _, message: answer_to(message)) as listening:
        _, port = await listening.listen("::", 0)
        for number, host in enumerate(("127.0.0.1", "::1"), 2):
            async with TaskTransport(partial(hello, number), lambda _, message: answer_to(message)) as dialing:
                assert await dialing.request((host, port), task(1)) == answer_to(task(1))
                assert listening.connections[-1].remote_host == host, "and sees each as it is"


@pytest.mark.loops("asyncio", "uvloop")
async def test_a_name_that_is_unknown_is_told_as_that_and_another_will_do(caplog: pytest.LogCaptureFixture) -> None:
    one, other = (RoutingServer(bytes([n]) * 20, clock=SystemClock(), rng=random.Random(n)) for n in (1, 2))
    try:
        for server in (one, other):
            await server.listen(0, "127.0.0.1")
        with pytest.raises(BootstrapUnreachable) as caught:
            await one.bootstrap([("no-such-host.invalid", 8468)])
        assert str(caught.value).startswith("bootstrap: the name no-such-host.invalid was not found (")
        assert "no answer" not in str(caught.value)
        found = await one.bootstrap([("no-such-host.invalid", 8468), ("localhost", other.address[1])])
        assert [contact.id for contact in found] == [other.node.id]
        assert "the name no-such-host.invalid was not found" in caplog.text
    finally:
        for server in (one, other):
            server.stop()


def test_of_several_nodes_each_is_told_for_what_it_is() -> None:
    silent, nowhere = ("192.0.2.7", 8468), ("a.invalid", 1)
    error = unreachable([silent, nowhere], {nowhere: "Name or service not known"})
    assert str(error) == (
        "bootstrap: no answer from 192.0.2.7:8468; is a node listening there, and does UDP get through? "
        "the name a.invalid was not found (Name or service not known); "
        "check how it is written, and that the name server knows it"
    )
