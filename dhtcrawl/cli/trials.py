"""When a rate that is measured by trying is known: once the latest tries agree, or enough was spent. Pure."""

from __future__ import annotations

AGREEING, WITHIN = 3, 0.1  # so many of the latest tries, each so near to their median
TRIES_MAX = 8
SPENT_S_MAX = 4.0


class Trials:
    """The tries of one thing."""

    def __init__(self) -> None:
        self._rates: list[float] = []
        self._spent_s = 0.0

    def tried(self, amount: float, took_s: float) -> None:
        """Note a try that moved a positive `amount` in `took_s`."""
        self._rates.append(amount / max(took_s, 1e-6))
        self._spent_s += took_s

    @property
    def over(self) -> bool:
        """Whether another try would tell little, or cost too much."""
        latest, middle = self._rates[-AGREEING:], self.rate
        agree = len(latest) == AGREEING and all(abs(each - middle) <= WITHIN * middle for each in latest)
        return agree or len(self._rates) >= TRIES_MAX or self._spent_s >= SPENT_S_MAX

    @property
    def rate(self) -> float:
        """The amount a second: the median of the latest tries; 0 before the first."""
        from statistics import median  # here: only nodes of a swarm try what they can do

        return median(self._rates[-AGREEING:]) if self._rates else 0.0
