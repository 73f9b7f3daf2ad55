"""How long to wait for a reply: RFC 6298's estimate, per address, without I/O.

A new address starts with the estimate over all addresses. A reply that came
after a retry is no sample, since it is unknown which datagram it answers (Karn
& Partridge 1987); the caller sees to that.
"""

from __future__ import annotations

from collections import OrderedDict

from dhtcrawl.rpc.contact import Address

INITIAL_S = 1.0  # RFC 6298, section 2.1
# The RFC says 1 s (2.4), for TCP. Here: longer than a page takes to parse on
# the other side, so that a busy node is not taken for a dead one.
MIN_S = 0.25
MAX_S = 2.0
ADDRESSES_MAX = 4096


class Estimator:
    """Smoothed round trip and its variation; `timeout_s` follows from both."""

    __slots__ = ("_rttvar", "_srtt")

    def __init__(self) -> None:
        self._srtt: float | None = None
        self._rttvar = 0.0

    def sample(self, rtt_s: float) -> None:
        """A round trip took `rtt_s` (RFC 6298, 2.2 and 2.3)."""
        if self._srtt is None:
            self._srtt, self._rttvar = rtt_s, rtt_s / 2
        else:
            self._rttvar += (abs(self._srtt - rtt_s) - self._rttvar) / 4
            self._srtt += (rtt_s - self._srtt) / 8

    @property
    def smoothed_s(self) -> float | None:
        return self._srtt

    @property
    def timeout_s(self) -> float:
        if self._srtt is None:
            return INITIAL_S
        return min(max(self._srtt + 4 * self._rttvar, MIN_S), MAX_S)


class RttBook:
    """An estimator an address, the least recently sampled forgotten first, and one over all."""

    def __init__(self) -> None:
        self._all = Estimator()
        self._known: OrderedDict[Address, Estimator] = OrderedDict()

    def sample(self, address: Address, rtt_s: float) -> None:
        self._all.sample(rtt_s)
        self._known.setdefault(address, Estimator()).sample(rtt_s)
        self._known.move_to_end(address)
        if len(self._known) > ADDRESSES_MAX:
            self._known.popitem(last=False)

    def measured_s(self, address: Address) -> float | None:
        """The smoothed round trip; None where nothing was measured."""
        known = self._known.get(address)
        return None if known is None else known.smoothed_s

    def timeout_s(self, address: Address) -> float:
        return self._known.get(address, self._all).timeout_s
