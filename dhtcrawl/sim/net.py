"""UDP in memory: seeded delay, loss, reordering and duplication, partitions and crashes, the same twice.

    weather = Weather(delay_s=(0.01, 0.08), loss=0.01)
    network = Network(loop, seed=1, weather=weather)
    loop.network = network
    with on_host("10.0.0.1"):
        ... code that binds 0.0.0.0 gets 10.0.0.1, and so do the tasks it makes ...

What it promises is what UDP promises: a datagram arrives whole, late, twice,
after later ones, or never. A datagram to an address without a socket vanishes. Every sender has a
generator of its own, so that another node does not reshuffle the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from errno import EADDRINUSE
from random import Random
from typing import Any

from dhtcrawl.sim.loop import current_host
from dhtcrawl.sim.trace import Trace
from dhtcrawl.sim.wires import Wires

Address = tuple[str, int]

# What IP allows; more is an error to a sender here as it is there.
DATAGRAM_BYTES_MAX = 65_507
_FIRST_EPHEMERAL_PORT = 49_152
# Of those that are late, this share of all.
_LATE = 0.1


@dataclass(frozen=True, slots=True)
class Weather:
    """What the network does to datagrams."""

    delay_s: tuple[float, float] = (0.010, 0.080)  # one way, drawn once for each pair of hosts
    jitter_s: float = 0.005  # up to this much is added to each datagram
    loss: float = 0.0
    duplication: float = 0.0
    late_s: float = 0.0  # one in ten is late by up to this much, and others overtake it


class DatagramNetwork:
    """All hosts of a simulation."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        seed: object,
        weather: Weather | None = None,
        trace: Trace | None = None,
        wires: Wires | None = None,
    ) -> None:
        """`wires` count instead of the weather's `delay_s`, where they are given."""
        self.weather = weather or Weather()
        self.wires = wires or Wires(seed, self.weather.delay_s)
        self.sent = self.bytes_sent = 0
        self.delivered = 0
        self.largest_bytes = 0
        self._loop = loop
        self._seed = seed
        self._trace = trace
        self._endpoints: dict[Address, _Endpoint] = {}
        self._senders: dict[str, Random] = {}

    def open_datagram(
        self, factory: Callable[[], asyncio.DatagramProtocol], local_addr: Address
    ) -> tuple[asyncio.DatagramTransport, asyncio.DatagramProtocol]:
        """Bind an endpoint: what the loop's `create_datagram_endpoint` does.

        Raises:
            OSError: the address is taken.
        """
        host, port = local_addr[:2]
        if host in ("0.0.0.0", "::", ""):
            host = current_host.get()
        if port == 0:
            port = next(p for p in range(_FIRST_EPHEMERAL_PORT, 65_536) if (host, p) not in self._endpoints)
        if (host, port) in self._endpoints:
            raise OSError(EADDRINUSE, f"{host}:{port} is in use")
        protocol = factory()
        endpoint = _Endpoint(self, (host, port), protocol)
        self._endpoints[host, port] = endpoint
        protocol.connection_made(endpoint)
        return endpoint, protocol

    def crash(self, host: str) -> None:
        """The host is gone: it neither sends nor receives, and the node on it is not told."""
        for address in [address for address in self._endpoints if address[0] == host]:
            self._endpoints.pop(address).crashed = True

    def send(self, data: bytes, source: Address, target: Address) -> None:
        rng = self._rng(source[0])
        # All draws are made for every datagram, so that one that is lost does not shift the next.
        lost, twice = rng.random() < self.weather.loss, rng.random() < self.weather.duplication
        way_s = self.wires.delay(source[0], target[0])
        delays = [way_s + rng.random() * self.weather.jitter_s for _ in range(2)]
        if self.weather.late_s and rng.random() < _LATE:
            delays[0] += rng.random() * self.weather.late_s
        self.sent += 1
        self.bytes_sent += len(data)
        self.largest_bytes = max(self.largest_bytes, len(data))
        if self._trace is not None:
            self._trace.event("datagram", source=list(source), target=list(target), data=data, lost=lost)
        self.wires.sends(source, target)
        if lost:
            return
        context = self.wires.context(target[0])
        for delay_s in delays[: 1 + twice]:
            self._loop.call_later(delay_s, self._deliver, data, source, target, context=context)

    def release(self, endpoint: _Endpoint) -> None:
        if self._endpoints.get(endpoint.address) is endpoint:
            del self._endpoints[endpoint.address]

    def _deliver(self, data: bytes, source: Address, target: Address) -> None:
        endpoint = self._endpoints.get(target)
        if endpoint is None or self.wires.cut(source[0], target[0]) or not self.wires.lets_in(source, target):
            return
        self.delivered += 1
        endpoint.protocol.datagram_received(data, source)

    def _rng(self, host: str) -> Random:
        if host not in self._senders:
            self._senders[host] = Random(f"{self._seed} net {host}")
        return self._senders[host]


class _Endpoint(asyncio.DatagramTransport):
    """One bound address, as asyncio's transport."""

    def __init__(self, network: DatagramNetwork, address: Address, protocol: asyncio.DatagramProtocol) -> None:
        super().__init__({"sockname": address})
        self.address = address
        self.protocol = protocol
        self.crashed = False
        self._network = network
        self._closing = False

    def sendto(self, data: Any, addr: Any = None) -> None:
        if self._closing or self.crashed:
            return
        if len(data) > DATAGRAM_BYTES_MAX:
            self.protocol.error_received(OSError("message too long"))
            return
        self._network.send(bytes(data), self.address, (addr[0], addr[1]))

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._network.release(self)
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()
