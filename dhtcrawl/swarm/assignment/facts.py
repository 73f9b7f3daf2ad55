"""What a node has measured of a crawl, for planners.

rate     pages a second while it had something to do; 0: not known yet
batches  (pages, seconds) of such time, piece by piece, the latest last
open     tasks in its queues
finite   whether no others will come: only the seeds are fetched
vector   the machine, and the most that it has taken in: cores, mhz, memory_bytes, net_bytes_per_s, disk_bytes_per_s;
         empty where one of them is not known
labels   what its operator says of it
rtts     member → seconds there and back, as the routing plane measures them all the time
probes   host → seconds to the first byte of a small request, of the sites that it timed lately
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from dhtcrawl.config import CrawlSettings, pairs
from dhtcrawl.policy.gnp.rtt import ESTIMATORS, Estimator, lower_half
from dhtcrawl.swarm.assignment.pace import Pace

HOSTS_MAX = 500
NAMES_CHARS_MAX = 32 << 10  # of all of them: with the members and the rest they fit into a report
SAMPLES_MAX = 9
MEMBERS_MAX = 500


class NodeTraits(NamedTuple):
    """What holds for a node whatever it crawls."""

    rtts: Callable[[], Mapping[bytes, float]] = dict
    machine: Callable[[], Mapping[str, float]] = dict
    labels: Mapping[str, str] = MappingProxyType({})


class PlannerFacts:
    """Measures and reports what planners may know of a crawl at this node."""

    def __init__(
        self, about: NodeTraits, queued: Callable[[], int], *, finite: bool = False, estimate: Estimator = lower_half
    ) -> None:
        """`estimate` makes one time of several."""
        self.pace = Pace()
        self._about = about
        self._queued = queued
        self._finite = finite
        self._estimate = estimate
        self._took: OrderedDict[str, deque[float]] = OrderedDict()
        self._host_chars = 0

    def timed(self, host: str, seconds: Sequence[float]) -> None:
        """Note how long the first byte of a small request took, one for each of a few requests."""
        if host not in self._took:
            self._took[host] = deque(maxlen=SAMPLES_MAX)
            self._host_chars += len(host)
        self._took[host].extend(seconds)
        self._took.move_to_end(host)
        while len(self._took) > HOSTS_MAX or self._host_chars > NAMES_CHARS_MAX:
            self._host_chars -= len(self._took.popitem(last=False)[0])

    def report(self, wants: Iterable[str]) -> dict[str, Any]:
        """The wanted facts, by name; names that are not known are left out."""
        found: dict[str, Callable[[], Any]] = {
            "rate": lambda: self.pace.rate,
            "batches": lambda: list(self.pace.batches),
            "open": self._queued,
            "finite": lambda: self._finite,
            "vector": self._vector,
            "labels": lambda: dict(self._about.labels),
            "rtts": lambda: dict(list(self._about.rtts().items())[:MEMBERS_MAX]),
            "probes": lambda: {host: self._estimate(list(samples)) for host, samples in self._took.items()},
        }
        return {name: found[name]() for name in wants if name in found}

    def _vector(self) -> dict[str, float]:
        machine, net = self._about.machine(), self.pace.bytes_per_s
        return {**machine, "net_bytes_per_s": net} if machine and net else {}


def facts_of(settings: CrawlSettings, about: NodeTraits, queued: Callable[[], int]) -> PlannerFacts:
    """The facts of a crawl; its policy may ask for another estimate of times (`rtt`)."""
    rtt = pairs(settings.policy_options).get("rtt", "")
    return PlannerFacts(about, queued, finite=settings.depth == 0, estimate=ESTIMATORS.get(rtt, lower_half))
