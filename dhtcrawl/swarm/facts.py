"""What a node has measured that planners may want to know, of one crawl.

rate     pages a second while it had something to do; 0: not known yet
batches  (pages, seconds) of such time, piece by piece, the latest last
open     tasks in its queues
finite   whether there will be no others: only the seeds are fetched
rtts     member → seconds there and back, as the routing plane measures them all the time
probes   host → seconds for a request and its response, of the sites that it fetched from lately
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dhtcrawl.crawl.pace import Pace
from dhtcrawl.policy.gnp.rtt import lower_half

HOSTS_MAX = 500
SAMPLES_MAX = 9
MEMBERS_MAX = 500


class Facts:
    """Of one crawl on one node."""

    def __init__(
        self, rtts: Callable[[], Mapping[bytes, float]], queued: Callable[[], int], *, finite: bool = False
    ) -> None:
        self.pace = Pace()
        self._rtts = rtts
        self._queued = queued
        self._finite = finite
        self._took: OrderedDict[str, deque[float]] = OrderedDict()

    def answered(self, host: str, seconds: float) -> None:
        """A request to a host and its response took so long."""
        self._took.setdefault(host, deque(maxlen=SAMPLES_MAX)).append(seconds)
        self._took.move_to_end(host)
        if len(self._took) > HOSTS_MAX:
            self._took.popitem(last=False)

    def report(self, wants: Iterable[str]) -> dict[str, Any]:
        """Those of them that are wanted."""
        found: dict[str, Callable[[], Any]] = {
            "rate": lambda: self.pace.rate,
            "batches": lambda: list(self.pace.batches),
            "open": self._queued,
            "finite": lambda: self._finite,
            "rtts": lambda: dict(list(self._rtts().items())[:MEMBERS_MAX]),
            "probes": lambda: {host: lower_half(list(samples)) for host, samples in self._took.items()},
        }
        return {name: found[name]() for name in wants if name in found}
