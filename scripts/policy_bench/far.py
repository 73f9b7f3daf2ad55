"""Hosts that are far from each other: packets between them go through a router of ours, which keeps each for its time.

    host A ── tun ──┐                    ┌── tun ── host B
                    └── this process ────┘
                        keeps a packet for delay(A, B)

As a script it is that process: it is given the file descriptors of the tun
devices, in the order of the hosts, and a JSON list of rows of one-way delays in
seconds. A tun device stays bound to its descriptor when it is moved into
another network namespace, so the process needs none of them.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import json
import os
import select
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

PACKET_MAX = 65_536
MTU = 1_400
WAITING_MAX = 100_000  # packets; what comes then is lost, as in any router
_TUNSETIFF = 0x400454CA  # linux/if_tun.h
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000


class Ways:
    """Packets under way. Pure. Times are seconds on the caller's clock; hosts are numbers."""

    def __init__(self, delays: Sequence[Sequence[float]]) -> None:
        self._delays = delays
        self._under_way: list[tuple[float, int, int, bytes]] = []
        self._sent = 0

    def send(self, packet: bytes, sender: int, now: float) -> None:
        """An IPv4 packet sets out; the last byte of its target's address is the host's number, from 1."""
        if len(packet) < 20 or packet[0] >> 4 != 4 or len(self._under_way) >= WAITING_MAX:
            return
        to = packet[19] - 1
        if 0 <= to < len(self._delays):
            heapq.heappush(self._under_way, (now + self._delays[sender][to], self._sent, to, packet))
            self._sent += 1

    def arrived(self, now: float) -> list[tuple[int, bytes]]:
        """Those whose time has come, in the order of their times: who gets what."""
        found = []
        while self._under_way and self._under_way[0][0] <= now:
            _, _, to, packet = heapq.heappop(self._under_way)
            found.append((to, packet))
        return found

    @property
    def next_at(self) -> float | None:
        """When the next one arrives."""
        return self._under_way[0][0] if self._under_way else None


def tun(name: str) -> int:
    """A new device in this thread's network namespace; its file descriptor."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    try:
        fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def router(descriptors: Sequence[int], delays: Sequence[Sequence[float]]) -> subprocess.Popen[bytes]:
    """The process that carries packets between these devices."""
    argv = [sys.executable, __file__, json.dumps(list(descriptors)), json.dumps([list(row) for row in delays])]
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, pass_fds=list(descriptors), cwd=Path(__file__).parent)


def carry(descriptors: Sequence[int], ways: Ways) -> None:
    """Until the process is ended."""
    number_of = {descriptor: number for number, descriptor in enumerate(descriptors)}
    poll = select.epoll()
    for descriptor in descriptors:
        poll.register(descriptor, select.EPOLLIN)
    while True:
        next_at = ways.next_at
        ready = poll.poll(-1 if next_at is None else max(0.0, next_at - time.monotonic()))
        for descriptor, _ in ready:
            with contextlib.suppress(BlockingIOError):
                while True:
                    ways.send(os.read(descriptor, PACKET_MAX), number_of[descriptor], time.monotonic())
        for to, packet in ways.arrived(time.monotonic()):
            with contextlib.suppress(OSError):  # its queue is full, or the host is gone: the packet is lost
                os.write(descriptors[to], packet)


def main() -> None:
    """The command line."""
    descriptors, delays = map(json.loads, sys.argv[1:3])
    carry(descriptors, Ways(delays))


if __name__ == "__main__":
    main()
