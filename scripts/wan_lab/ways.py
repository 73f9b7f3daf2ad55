"""When a packet arrives over a distance, or that it does not. Without I/O: the caller brings the time and the chance.

rate     a packet leaves once those before it have: they queue, and for longer than `QUEUE_S` none does
loss     each packet by itself
delay    one way; jitter adds up to that much, and no packet overtakes another, as on one line
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

QUEUE_S = 0.5  # what would wait for longer is dropped, as a modem does


@dataclass(frozen=True, slots=True)
class Distance:
    """What lies between two places, one way."""

    delay_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0  # of 1
    rate_bps: float = 0.0  # bits a second; 0: no limit


class Way:
    """One direction between two hosts. Times are seconds on one clock that does not go back."""

    def __init__(self, distance: Distance, rng: Random) -> None:
        self._distance = distance
        self._rng = rng
        self._free_at = 0.0  # when the last bit of what was sent has left
        self._last_at = 0.0  # when it arrives
        self.cut = False
        self.dropped = 0

    def arrival(self, now: float, size_bytes: int) -> float | None:
        """When a packet that is sent now arrives; None: never."""
        distance = self._distance
        # Drawn for every packet, so that a cut does not change what becomes of the others.
        lost, jitter_s = self._rng.random() < distance.loss, distance.jitter_s * self._rng.random()
        left_at = max(now, self._free_at)
        if self.cut or lost or left_at - now > QUEUE_S:
            self.dropped += 1
            return None
        if distance.rate_bps:
            left_at += 8 * size_bytes / distance.rate_bps
            self._free_at = left_at
        self._last_at = max(self._last_at, left_at + distance.delay_s + jitter_s)
        return self._last_at
