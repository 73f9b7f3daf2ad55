"""The values of STORE and FIND_VALUE: bounded in number and bytes, in all and by sender, in memory.

Tasks are kept elsewhere (`dhtcrawl.storage`); this is for stock nodes and for
small things that a swarm wants to find by key. Times are on the caller's clock.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator
from typing import Any, NamedTuple

from kademlia.storage import IStorage

from dhtcrawl.clock import Clock
from dhtcrawl.rpc.discovery.datagram import packed_bytes

TTL_S = 604_800.0  # a week, as the library
VALUES_MAX = 65_536  # the one stored longest ago gives way
VALUE_BYTES_TOTAL = 16 * 1024 * 1024  # likewise
# What one sender may have here: an address, or a network of 64 bits of IPv6. Beyond it, its values are refused.
SENDER_VALUES_MAX = 4_096
SENDER_BYTES_MAX = 2 * 1024 * 1024
_ENTRY_BYTES = 256  # of a value besides itself, about
OURSELVES = ""


class _Stored(NamedTuple):
    at: float
    value: Any
    sender: str
    bytes: int


class ValueStore(IStorage):  # type: ignore[misc]  # the library has no types
    """Key to value, oldest first."""

    def __init__(self, clock: Clock, values_max: int = VALUES_MAX, bytes_max: int = VALUE_BYTES_TOTAL) -> None:
        self.bytes = 0
        self._clock = clock
        self._values_max = values_max
        self._bytes_max = bytes_max
        self._stored: OrderedDict[bytes, _Stored] = OrderedDict()
        self._values_of: Counter[str] = Counter()
        self._bytes_of: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._stored)

    def __setitem__(self, key: bytes, value: Any) -> None:
        """Store a value of our own, or store one again that is here: it stays its sender's."""
        known = self._stored.get(key)
        self._put(key, value, OURSELVES if known is None else known.sender)

    def put(self, key: bytes, value: Any, sender: str) -> bool:
        """Store what a sender brought; False where it has as much here as it may."""
        self._cull()
        size = packed_bytes(value) + _ENTRY_BYTES
        known = self._stored.get(key)
        freed = (1, known.bytes) if known is not None and known.sender == sender else (0, 0)
        if (
            self._values_of[sender] - freed[0] >= SENDER_VALUES_MAX
            or self._bytes_of[sender] - freed[1] + size > SENDER_BYTES_MAX
        ):
            return False
        self._put(key, value, sender)
        return True

    def _put(self, key: bytes, value: Any, sender: str) -> None:
        if key in self._stored:
            self._drop(key)
        size = packed_bytes(value) + _ENTRY_BYTES
        self._stored[key] = _Stored(self._clock.monotonic(), value, sender, size)
        self.bytes += size
        self._values_of[sender] += 1
        self._bytes_of[sender] += size
        self._cull()

    def _drop(self, key: bytes) -> None:
        stored = self._stored.pop(key)
        self.bytes -= stored.bytes
        self._values_of[stored.sender] -= 1
        self._bytes_of[stored.sender] -= stored.bytes
        if not self._values_of[stored.sender]:
            del self._values_of[stored.sender], self._bytes_of[stored.sender]

    def __getitem__(self, key: bytes) -> Any:
        self._cull()
        return self._stored[key].value

    def get(self, key: bytes, default: Any = None) -> Any:
        self._cull()
        return self._stored[key].value if key in self._stored else default

    def iter_older_than(self, seconds_old: float) -> Iterator[tuple[bytes, Any]]:
        """What was stored that long ago; a copy, so that storing may go on."""
        until = self._clock.monotonic() - seconds_old
        return iter([(key, stored.value) for key, stored in self._stored.items() if stored.at <= until])

    def __iter__(self) -> Iterator[tuple[bytes, Any]]:
        self._cull()
        return iter([(key, stored.value) for key, stored in self._stored.items()])

    def _cull(self) -> None:
        until = self._clock.monotonic() - TTL_S
        while self._stored:
            key, oldest = next(iter(self._stored.items()))
            if oldest.at > until and len(self._stored) <= self._values_max and self.bytes <= self._bytes_max:
                return
            self._drop(key)
