"""What happened in a simulation, as one hash: two runs are the same when their hashes are.

Each event is its virtual time in whole microseconds, a name and fields, in a
canonical encoding, fed to one SHA-256. The last events stay readable for a
failure report; the rest is only hashed, so a run of any length fits.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable

import msgpack


class Trace:
    """A rolling hash over events; `tail` keeps that many of the last."""

    def __init__(self, time: Callable[[], float], tail: int = 0) -> None:
        self._time = time
        self._sha = hashlib.sha256()
        self._tail: deque[tuple[float, str, dict[str, object]]] = deque(maxlen=tail)
        self.events = 0

    def event(self, name: str, **fields: object) -> None:
        """Something happened now.

        Fields are what msgpack encodes: None, numbers, text, bytes, lists and
        mappings of these. A set has no order, so it raises TypeError.
        """
        now = self._time()
        # Rounded: the same sum of floats in another order may differ in the last bit.
        record = [round(now * 1_000_000), name, sorted(fields.items())]
        self._sha.update(msgpack.packb(record))
        self._tail.append((now, name, fields))
        self.events += 1

    @property
    def hash(self) -> str:
        """The hash of all events so far, in hex."""
        return self._sha.hexdigest()

    def lines(self) -> list[str]:
        """The last events, one line each, oldest first."""
        return [
            f"{now:.6f} {name}" + "".join(f" {key}={value!r}" for key, value in sorted(fields.items()))
            for now, name, fields in self._tail
        ]
