"""How much one peer may ask of a node: links and records a second, and requests that wait for their answer. Pure.

Links and records are counted by buckets that fill at a steady rate. The rates are far above
what a node can write, let alone find: an honest peer meets them never, and one that floods
leaves time for the others. What is beyond is answered with FULL; its sender keeps it.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Final

from dhtcrawl.rpc.tasks.messages import DeleteBackup, Request, StoreBackup, StoreTask

LINKS_PER_S: Final = 20_000
RECORDS_PER_S: Final = 50_000
BURST_S: Final = 5.0  # what a full bucket holds
OPEN_MAX: Final = 1_024
PEERS_MAX: Final = 4_096  # whose buckets are kept; of one that was silent the longest a new one begins full

_RATES: Final[dict[type[Request], int]] = {
    StoreTask: LINKS_PER_S,
    StoreBackup: RECORDS_PER_S,
    DeleteBackup: RECORDS_PER_S,
}


class PeerQuotas:
    """The quotas of all peers of a node; `refused` counts the requests that were beyond them, by peer."""

    def __init__(self) -> None:
        self.refused: Counter[bytes] = Counter()
        self._open: Counter[bytes] = Counter()
        self._buckets: OrderedDict[tuple[bytes, int], tuple[float, float]] = OrderedDict()  # what it holds, and when

    def take(self, peer: bytes, message: Request, now: float) -> bool:
        """Whether a peer may ask this; what it may is counted, and open until `end`."""
        rate = _RATES.get(type(message))
        if self._open[peer] >= OPEN_MAX or (rate is not None and not self._pour(peer, rate, message.items, now)):
            self.refused[peer] += 1
            if len(self.refused) > PEERS_MAX:
                self.refused.clear()
            return False
        self._open[peer] += 1
        return True

    def end(self, peer: bytes) -> None:
        """A request of a peer is answered."""
        self._open[peer] -= 1
        if not self._open[peer]:
            del self._open[peer]

    def _pour(self, peer: bytes, rate: int, items: int, now: float) -> bool:
        most = rate * BURST_S
        held, at = self._buckets.pop((peer, rate), (most, now))
        held = min(most, held + rate * (now - at))
        enough = held >= items
        self._buckets[peer, rate] = held - items * enough, now
        if len(self._buckets) > PEERS_MAX:
            self._buckets.popitem(last=False)
        return enough
