"""Which robots.txt is in force for which origin, without I/O.

Bounded: the rules least recently asked for are forgotten and fetched anew when
they are needed again. Rules expire (RFC 9309, 2.4); if they cannot be fetched
again then, the crawl treats the origin as it treats any that it cannot reach.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from dhtcrawl.fetch.robots import DISALLOW_ALL, Robots
from dhtcrawl.loop_state import loop_state
from dhtcrawl.url import origin_of

_SCHEMES = ("http://", "https://")
ORIGINS_MAX = 20_000
# Of robots.txt as sent; parsed rules take some fifteen times as much memory.
BYTES_MAX = 16 << 20


@loop_state
class RobotsBook:
    """The rules one crawl goes by; times are seconds on the caller's monotonic clock."""

    def __init__(
        self,
        token: str,
        *,
        now: Callable[[], float],
        ttl_s: float,
        crawl_delay_max_s: float,
        origins_max: int = ORIGINS_MAX,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        self._token = token
        self._now = now
        self._ttl_s = ttl_s
        self._crawl_delay_max_s = crawl_delay_max_s
        self._origins_max = origins_max
        self._bytes = 0
        self._bytes_max = bytes_max
        self._rules: OrderedDict[str, tuple[Robots, float]] = OrderedDict()
        self._delays: dict[str, float] = {}  # by origin; only those with a wish

    def put(self, origin: str, rules: Robots, age_s: float = 0.0) -> None:
        before = self._rules.pop(origin, None)
        self._bytes += rules.size - (before[0].size if before is not None else 0)
        self._rules[origin] = (rules, self._now() + max(0.0, self._ttl_s - age_s))
        while len(self._rules) > self._origins_max or (self._bytes > self._bytes_max and len(self._rules) > 1):
            oldest, (gone, _) = self._rules.popitem(last=False)
            self._bytes -= gone.size
            self._delays.pop(oldest, None)
        delay_s = rules.crawl_delay_s(self._token)
        if delay_s is None:
            self._delays.pop(origin, None)
        else:
            self._delays[origin] = min(delay_s, self._crawl_delay_max_s)

    def known(self, origin: str) -> bool:
        entry = self._rules.get(origin)
        if entry is None:
            return False
        self._rules.move_to_end(origin)
        return entry[1] > self._now()

    def allows(self, origin: str, url: str) -> bool:
        """Whether a URL of `origin` may be fetched; False where no rules are known."""
        entry = self._rules.get(origin)
        return entry is not None and entry[0].allows(url, self._token)

    def unreachable(self, origin: str) -> bool:
        """Whether the rules in force stand for a robots.txt that could not be had."""
        entry = self._rules.get(origin)
        return entry is not None and entry[0] is DISALLOW_ALL

    def rules_at(self, url: str) -> Robots | None:
        """The rules in force that were fetched from `url`, for origins that share one robots.txt."""
        origin = origin_of(url)
        if url != f"{origin}/robots.txt" or not self.known(origin):
            return None
        return self._rules[origin][0]

    def crawl_delay_s(self, host: str) -> float:
        """The host's own wish, at most `crawl_delay_max_s`; 0 where it has none.

        A host is one for politeness, whatever the scheme: the longer wish counts.
        """
        if not self._delays:
            return 0.0
        return max(self._delays.get(scheme + host, 0.0) for scheme in _SCHEMES)
