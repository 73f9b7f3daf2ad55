"""Which connections may begin a TLS handshake, and which one is cut for another. Pure.

A handshake costs a node a millisecond, whoever is at the other end, and that it is a
member shows at the end only. So each takes a token from buckets that fill slowly, and
gets it back if it was a member's:

    the other end           buckets                                  cut where too many are under way
    ──────────────────────  ───────────────────────────────────────  ────────────────────────────────────
    a stranger              its address, its network, all strangers  the first of the address with most
    where a member was met  its address, a larger one                only for another such, and never for
                                                                     a stranger

A member was met at an address where a handshake of either direction has shown one. Programs of this machine count
as met: they share an address with its nodes. Addresses are as in `source_of`.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable
from typing import Final, NamedTuple

from dhtcrawl.rpc.contact import canonical_host, is_own_machine, network_of, source_of


class Allowance(NamedTuple):
    """Of handshakes: how many a second, and how many at once after a while without."""

    per_s: float
    burst: int


# As many at once as may be under way; then those of one address take half a percent of a processor, all of them six.
SOURCE: Final = Allowance(4, 64)
NETWORK: Final = Allowance(16, 128)
STRANGERS: Final = Allowance(48, 256)
MET_SOURCE: Final = Allowance(64, 256)
KEPT_MAX: Final = 4_096  # buckets, and addresses where a member was met; the least used give way

_ALL: Final = "strangers"


class Entrance(NamedTuple):
    """Whether a handshake may begin, and which one that is under way is cut for it."""

    open: bool
    cut: Hashable | None = None


class _UnderWay(NamedTuple):
    source: str
    met: bool
    buckets: tuple[tuple[str, Allowance], ...]


class HandshakeGate:
    """The handshakes that others began with one node. `most` of them are under way at once. Times in seconds."""

    def __init__(self, most: int) -> None:
        self.turned_away = 0
        self._most = most
        self._under_way: OrderedDict[Hashable, _UnderWay] = OrderedDict()  # that began first comes first
        self._met: OrderedDict[str, None] = OrderedDict()
        self._buckets: OrderedDict[tuple[str, Allowance], tuple[float, float]] = OrderedDict()  # it holds, since

    def begin(self, handshake: Hashable, host: str, now: float) -> Entrance:
        """One is about to begin from a host; it counts until `end`, unless it is turned away or cut."""
        host = canonical_host(host) or host
        source, met = source_of(host), self._is_met(host)
        buckets = ((source, MET_SOURCE),) if met else ((source, SOURCE), (network_of(host), NETWORK), (_ALL, STRANGERS))
        cut = self._in_the_way(met) if len(self._under_way) >= self._most else None
        if (len(self._under_way) >= self._most and cut is None) or any(self._held(it, now) < 1 for it in buckets):
            self.turned_away += 1
            return Entrance(open=False)
        for bucket in buckets:
            self._pour(bucket, -1.0, now)
        if cut is not None:
            del self._under_way[cut]
        self._under_way[handshake] = _UnderWay(source, met, buckets)
        return Entrance(True, cut)

    def end(self, handshake: Hashable, host: str, now: float, *, member: bool) -> None:
        """One is over, and the other end was a member or not. Also for one that was cut."""
        known = self._under_way.pop(handshake, None)
        if member:
            self.meet(host)
            for bucket in () if known is None else known.buckets:
                self._pour(bucket, 1.0, now)

    def meet(self, host: str) -> None:
        """A member was reached at a host."""
        source = source_of(host)
        self._met[source] = None
        self._met.move_to_end(source)
        if len(self._met) > KEPT_MAX:
            self._met.popitem(last=False)

    def __len__(self) -> int:
        return len(self._under_way)

    @property
    def kept(self) -> int:
        """Buckets, or addresses where a member was met: which there are more of."""
        return max(len(self._buckets), len(self._met))

    def _is_met(self, host: str) -> bool:
        return source_of(host) in self._met or is_own_machine(host)

    def _in_the_way(self, met: bool) -> Hashable | None:
        """The first to come of those whose address has most under way, of strangers while there are any."""
        strangers = [(handshake, each.source) for handshake, each in self._under_way.items() if not each.met]
        if not strangers and not met:
            return None
        candidates = strangers or [(handshake, each.source) for handshake, each in self._under_way.items()]
        (heaviest, _), *_ = Counter(source for _, source in candidates).most_common(1)
        return next(handshake for handshake, source in candidates if source == heaviest)

    def _held(self, bucket: tuple[str, Allowance], now: float) -> float:
        allowance = bucket[1]
        held, since = self._buckets.get(bucket, (float(allowance.burst), now))
        return min(float(allowance.burst), held + allowance.per_s * (now - since))

    def _pour(self, bucket: tuple[str, Allowance], tokens: float, now: float) -> None:
        self._buckets[bucket] = min(float(bucket[1].burst), self._held(bucket, now) + tokens), now
        self._buckets.move_to_end(bucket)
        if len(self._buckets) > KEPT_MAX:
            self._buckets.popitem(last=False)
