"""The values of STORE and FIND_VALUE: bounded, in memory, on the caller's clock.

Tasks are kept elsewhere (`dhtcrawl.storage`); this is for stock nodes and for
small things that a swarm wants to find by key.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from kademlia.storage import IStorage

from dhtcrawl.clock import Clock

TTL_S = 604_800.0  # a week, as the library
VALUES_MAX = 65_536  # of about a kilobyte at most; the one stored longest ago gives way


class ValueStore(IStorage):  # type: ignore[misc]  # the library has no types
    """Key to value, oldest first."""

    def __init__(self, clock: Clock, values_max: int = VALUES_MAX) -> None:
        self._clock = clock
        self._values_max = values_max
        self._stored: OrderedDict[bytes, tuple[float, Any]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._stored)

    def __setitem__(self, key: bytes, value: Any) -> None:
        self._stored[key] = (self._clock.monotonic(), value)
        self._stored.move_to_end(key)
        self._cull()

    def __getitem__(self, key: bytes) -> Any:
        self._cull()
        return self._stored[key][1]

    def get(self, key: bytes, default: Any = None) -> Any:
        self._cull()
        return self._stored[key][1] if key in self._stored else default

    def iter_older_than(self, seconds_old: float) -> Iterator[tuple[bytes, Any]]:
        """What was stored that long ago; a copy, so that storing may go on."""
        until = self._clock.monotonic() - seconds_old
        return iter([(key, value) for key, (stored_at, value) in self._stored.items() if stored_at <= until])

    def __iter__(self) -> Iterator[tuple[bytes, Any]]:
        self._cull()
        return iter([(key, value) for key, (_, value) in self._stored.items()])

    def _cull(self) -> None:
        until = self._clock.monotonic() - TTL_S
        while self._stored:
            stored_at, _ = next(iter(self._stored.values()))
            if stored_at > until and len(self._stored) <= self._values_max:
                return
            self._stored.popitem(last=False)
