"""What happened in a simulation, as one hash: two runs are the same when their hashes are.

Each event is its virtual time in whole microseconds, a name and fields, in a
canonical encoding, fed to one SHA-256. The last events stay readable for a failure
report, or those around the first `mark`; the rest is only hashed, so a run of
any length fits.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

import msgpack

ID_DIGITS = 12
TAIL_EVENTS = 20  # that a report of a broken promise shows
_Event: TypeAlias = tuple[float, str, dict[str, object]]


class Trace:
    """A rolling hash over events; `tail` keeps that many of the last, or before the mark, and half as many after it."""

    def __init__(self, time: Callable[[], float], tail: int = 0) -> None:
        self._time = time
        self._sha = hashlib.sha256()
        self._tail: deque[_Event] = deque(maxlen=tail)
        self._around: list[_Event] = []
        self._more = 0  # events that still belong to what is around the mark
        self.events = 0

    def mark(self, what: str) -> None:
        """Something is wrong: what happens around the first of these is what `lines` shows."""
        if not self._around and self._tail.maxlen:
            self._around = [*self._tail, (self._time(), what, {})]
            self._more = self._tail.maxlen // 2

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
        if self._more:
            self._around.append((now, name, fields))
            self._more -= 1
        self.events += 1

    @property
    def hash(self) -> str:
        return self._sha.hexdigest()

    def lines(self) -> list[str]:
        """The events around the mark, or the last ones; one line each, oldest first."""
        return [
            f"{now:.6f} {name}" + "".join(f" {key}={_shown(value)}" for key, value in sorted(fields.items()))
            for now, name, fields in self._around or self._tail
        ]


def _shown(value: object) -> str:
    """A field for people: of an id its beginning."""
    if isinstance(value, bytes):
        return value.hex()[:ID_DIGITS]
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    return repr(value)
