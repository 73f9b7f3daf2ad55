"""A peer names an address of a family that our socket does not have: that costs a datagram, and nobody's life."""

from __future__ import annotations

import random

import pytest

from dhtcrawl.clock import SystemClock
from dhtcrawl.rpc.discovery.server import RoutingServer

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
