"""The process between the hosts of a lab: takes packets from each one's TUN device, and brings them to others' in time.

    python scripts/wan_lab/router.py CONFIG.json

The file names each host's namespace and address, and the distances; on stdin come lines of JSON,
{"cut": [[from, to], …]}, each in place of the one before. It says "ready" once all devices are there. Needs root.
"""

from __future__ import annotations

import fcntl
import heapq
import json
import os
import selectors
import struct
import sys
import threading
import time
from ipaddress import ip_address
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Final

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "tests")]

from e2e.netns import entered  # noqa: E402 - found on the path above

from wan_lab.ways import Distance, Way  # noqa: E402

_TUNSETIFF: Final = 0x400454CA  # linux/if_tun.h
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
DEVICE: Final = "wan0"
MTU_BYTES: Final = 1500
PACKETS_A_TURN: Final = 64  # of one host, before another's are looked at


class Router:
    """All devices, the ways between them, and the packets that are on their way."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._names = {
            ip_address(each).packed: name for name, host in config["hosts"].items() for each in host["addresses"]
        }
        self._devices = {name: _device(host["namespace"]) for name, host in config["hosts"].items()}
        self._ways = {
            (here, there): Way(Distance(**between), Random(f"{config['seed']} {here} {there}"))
            for here, there, between in config["distances"]
        }
        self._under_way: list[tuple[float, int, str, bytes]] = []
        self._numbers = count()

    def cut(self, pairs: list[tuple[str, str]]) -> None:
        """These ways are closed, all others open."""
        closed = {(here, there) for here, there in pairs}
        for pair, way in self._ways.items():
            way.cut = pair in closed

    def run(self, commands: Any) -> None:
        """Forward until `commands` ends."""
        with selectors.DefaultSelector() as ready:
            for name, device in self._devices.items():
                ready.register(device, selectors.EVENT_READ, name)
            ready.register(commands, selectors.EVENT_READ)
            while True:
                wait_s = self._under_way[0][0] - time.monotonic() if self._under_way else None
                came = ready.select(None if wait_s is None else max(0.0, wait_s))
                # Packets first: a way that opens lets through nothing that was sent before.
                for key, _ in sorted(came, key=lambda found: found[0].data is None):
                    if key.data is not None:
                        self._take(key.data)
                    elif not (line := commands.readline()):
                        return
                    else:
                        self.cut([(here, there) for here, there in json.loads(line)["cut"]])
                self._bring(time.monotonic())

    def _take(self, here: str) -> None:
        now = time.monotonic()
        for _ in range(PACKETS_A_TURN):
            try:
                packet = os.read(self._devices[here], MTU_BYTES)
            except BlockingIOError:
                return
            # The version is in the first half byte, the destination in bytes 16 to 19 (RFC 791) or 24 to 39 (RFC 8200).
            there = self._names.get(packet[16:20] if packet[0] >> 4 == 4 else packet[24:40])
            way = self._ways.get((here, there)) if there is not None else None
            at = None if way is None else way.arrival(now, len(packet))
            if at is not None and there is not None:
                heapq.heappush(self._under_way, (at, next(self._numbers), there, packet))

    def _bring(self, now: float) -> None:
        while self._under_way and self._under_way[0][0] <= now:
            _, _, there, packet = heapq.heappop(self._under_way)
            try:
                os.write(self._devices[there], packet)
            except BlockingIOError:
                continue  # its queue is full: a packet is lost


def _device(namespace: str) -> int:
    """A TUN device in a namespace, as a descriptor that is read and written a packet at a time."""
    made: list[int] = []

    def make() -> None:
        with entered(namespace):
            device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), _IFF_TUN | _IFF_NO_PI))
            made.append(device)

    # A namespace is a thread's own: one that ends takes nothing back that it may forget.
    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if not made:
        raise SystemExit(f"router: no TUN device in {namespace}")
    return made[0]


if __name__ == "__main__":
    router = Router(json.loads(Path(sys.argv[1]).read_text("utf-8")))
    print("ready", flush=True)
    router.run(sys.stdin)
