"""Contacts that one attacker makes up, all in one network of 256 addresses, beside a swarm of the routing plane.

Used by scripts/bench_lookups.py. They introduce themselves to the nodes of the swarm, each to a few and again every few
seconds, with ids drawn at random. The silent ones answer nothing; the others answer
pings with their ids, and who is close to a key with those of the attacker's that are closest. A liar is a node of
the swarm that names such contacts, though it answers all else.
"""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random

from dhtcrawl.rpc.contact import Contact
from dhtcrawl.rpc.discovery.datagram import DatagramRequest, decode, encode_reply, encode_request
from dhtcrawl.rpc.discovery.lookup import K
from dhtcrawl.rpc.discovery.server import RoutingServer
from dhtcrawl.sim.loop import on_host

# So often each introduces itself to so many nodes.
AGAIN_S, NODES_TOLD = 10.0, 5
_HOSTS, _FIRST_PORT = 250, 8468


class MadeUpContacts:
    """So many of them, on the loop's network."""

    def __init__(self, seed: int, count: int, *, answering: bool) -> None:
        self._rng = Random(f"{seed} made up")
        self.contacts = [
            Contact(self._rng.randbytes(20), f"10.9.9.{number % _HOSTS + 1}", _FIRST_PORT + number // _HOSTS)
            for number in range(count)
        ]
        self._answering = answering
        self._ends: list[_End] = []

    async def listen(self) -> None:
        """Their addresses are there."""
        loop = asyncio.get_running_loop()
        for contact in self.contacts:
            with on_host(contact.host):
                _, end = await loop.create_datagram_endpoint(partial(_End, self, contact), local_addr=contact.address)
            self._ends.append(end)

    async def introduce(self, nodes: list[RoutingServer]) -> None:
        """They say to nodes that they are there, again and again, until they are cancelled."""
        while True:
            for end in self._ends:
                for node in self._rng.sample(nodes, NODES_TOLD):
                    end.say_hello(node.address)
            await asyncio.sleep(AGAIN_S)

    def closest(self, key: bytes) -> list[Contact]:
        """Those that are named to who asks for a key."""
        number = int.from_bytes(key, "big")
        return sorted(self.contacts, key=lambda contact: contact.number ^ number)[:K]

    def tell(self, liar: RoutingServer) -> None:
        """From here on a node names only contacts of ours."""
        liar.plane.register("find_node", lambda _sender, _id, key: self.closest(key), 2)

    def answer(self, contact: Contact, message: DatagramRequest) -> bytes | None:
        """What one of them answers."""
        if not self._answering:
            return None
        value = self.closest(message.args[1]) if message.name == "find_node" else contact.id
        return encode_reply(message.message_id, value)


class _End(asyncio.DatagramProtocol):
    """One contact."""

    transport: asyncio.DatagramTransport

    def __init__(self, all_: MadeUpContacts, contact: Contact) -> None:
        self._all = all_
        self._contact = contact

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.DatagramTransport)
        self.transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        message = decode(data)
        if isinstance(message, DatagramRequest) and (reply := self._all.answer(self._contact, message)) is not None:
            self.transport.sendto(reply, addr)

    def say_hello(self, address: tuple[str, int]) -> None:
        """Ping a node."""
        self.transport.sendto(encode_request(bytes(20), "ping", [self._contact.id]), address)
