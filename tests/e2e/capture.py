"""What goes over loopback to and from some ports, as somebody hears it who sees every packet (Linux, root)."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import struct
import threading
from collections.abc import Iterable
from types import TracebackType
from typing import Self

_ETH_P_IP = 0x0800
_BUFFER_BYTES = 32 * 1024 * 1024
_PORTS = struct.Struct(">HH")
_TCP, _UDP = 6, 17
_UDP_HEAD_BYTES = 8

Address = tuple[str, int]


class Capture:
    """Keeps what is sent to these addresses, or from them, while its block lasts: by flow, as it came."""

    def __init__(self, addresses: Iterable[Address]) -> None:
        self._ends = {(ipaddress.ip_address(host).packed, port) for host, port in addresses}
        self._flows: dict[tuple[int, bytes, bytes, bytes], bytearray] = {}
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ETH_P_IP))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        self._socket.bind(("lo", _ETH_P_IP))
        self._socket.settimeout(0.1)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._hear, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self._socket.close()

    def bytes_of(self, protocol: int) -> int:
        """How much was heard by UDP (17) or TCP (6)."""
        return sum(len(flow) for (kind, *_), flow in self._flows.items() if kind == protocol)

    def has(self, what: bytes) -> bool:
        """Whether these bytes went over any of the flows."""
        return any(what in flow for flow in self._flows.values())

    def _hear(self) -> None:
        while not self._over.is_set():
            with contextlib.suppress(TimeoutError):
                packet, (_, _, kind, *_) = self._socket.recvfrom(65_536)
                if kind != socket.PACKET_OUTGOING:  # on loopback each comes twice
                    self._keep(packet)

    def _keep(self, packet: bytes) -> None:
        head, protocol = 4 * (packet[0] & 15), packet[9]
        if protocol not in (_TCP, _UDP):
            return
        source, target = packet[12:16], packet[16:20]
        ports = _PORTS.unpack_from(packet, head)
        if not {(source, ports[0]), (target, ports[1])} & self._ends:
            return
        behind = head + (_UDP_HEAD_BYTES if protocol == _UDP else 4 * (packet[head + 12] >> 4))
        flow = protocol, source, target, packet[head : head + 4]
        self._flows.setdefault(flow, bytearray()).extend(packet[behind:])
