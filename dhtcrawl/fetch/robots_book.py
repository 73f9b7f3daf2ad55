"""Which robots.txt is in force for which origin, without I/O.

Bounded: the rules least recently asked for are forgotten and fetched anew when
they are needed again. Rules expire (RFC 9309, 2.4); where robots.txt answers with
errors then, those of before are in force again, which the RFC allows. What this node
has read counts for one task at least, however long the host has it wait for its turn:
else a host whose turns are further apart than rules last would be asked for nothing
but its robots.txt.

Rules that another node told are in force as those that this node has read, until
a page would be passed over for them: then the crawl doubts them, and they are
unknown until this node has read robots.txt itself, or could not (2.4).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from dhtcrawl.fetch.robots import DISALLOW_ALL, Robots
from dhtcrawl.loop_state import loop_state
from dhtcrawl.url import origin_of

_SCHEMES = ("http://", "https://")
ORIGINS_MAX = 20_000
# Of robots.txt as sent; parsed rules take some fifteen times as much memory.
BYTES_MAX = 16 << 20
# A turn that comes later than this has robots.txt read anew all the same (RFC 9309, 2.4).
UNUSED_S = 86_400.0


class _Known(NamedTuple):
    """An origin's rules, until when they count, and whether another node told them."""

    rules: Robots
    until: float
    unused_until: float  # the same while no task was decided by them
    told: bool


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
        self._rules: OrderedDict[str, _Known] = OrderedDict()
        self._doubted: OrderedDict[str, None] = OrderedDict()
        self._unused: set[str] = set()  # origins by whose rules no task was decided since they came
        self._delays: dict[str, float] = {}  # by origin; only those with a wish

    def put(self, origin: str, rules: Robots, age_s: float = 0.0, *, told: bool = False) -> Robots:
        """Put rules in force; `told` by another node, which ends no doubt, and changes nothing that was read here.

        Returns those that are in force now: with `DISALLOW_ALL`, as there are none, those that had expired or were in
        doubt.
        """
        if told and self.known(origin) and not self._rules[origin].told:
            return self._rules[origin].rules
        former = self.former(origin) if rules is DISALLOW_ALL else None
        rules = rules if former is None else former
        before = self._rules.pop(origin, None)
        self._bytes += rules.size - (before.rules.size if before is not None else 0)
        until = self._now() + max(0.0, self._ttl_s - age_s)
        self._rules[origin] = _Known(rules, until, until if told else max(until, self._now() + UNUSED_S), told)
        self._unused.add(origin)
        if not told:
            self._doubted.pop(origin, None)
        while len(self._rules) > self._origins_max or (self._bytes > self._bytes_max and len(self._rules) > 1):
            oldest, gone = self._rules.popitem(last=False)
            self._bytes -= gone.rules.size
            self._delays.pop(oldest, None)
            self._unused.discard(oldest)
        delay_s = rules.crawl_delay_s(self._token)
        if delay_s is None:
            self._delays.pop(origin, None)
        else:
            self._delays[origin] = min(delay_s, self._crawl_delay_max_s)
        return rules

    def known(self, origin: str) -> bool:
        entry = self._rules.get(origin)
        if entry is None:
            return False
        self._rules.move_to_end(origin)
        until = entry.unused_until if origin in self._unused else entry.until
        return until > self._now() and origin not in self._doubted

    def doubt(self, origin: str) -> bool:
        """Doubt an origin's rules if another node told them; False where this node has read them itself."""
        entry = self._rules.get(origin)
        if entry is None or not entry.told:
            return False
        self._doubted[origin] = None
        if len(self._doubted) > self._origins_max:
            self._doubted.popitem(last=False)
        return True

    def doubted(self, origin: str) -> bool:
        """Whether this node is to read an origin's robots.txt itself, whatever others tell."""
        return origin in self._doubted

    def former(self, origin: str) -> Robots | None:
        """The rules that expired or are doubted, if they are not forgotten: all that is known where none can be had."""
        return self._rules[origin].rules if origin in self._rules and not self.known(origin) else None

    def allows(self, origin: str, url: str) -> bool:
        """Whether a URL of `origin` may be fetched, which decides its task; False where no rules are known."""
        entry = self._rules.get(origin)
        self._unused.discard(origin)
        return entry is not None and entry.rules.allows(url, self._token)

    def unreachable(self, origin: str) -> bool:
        """Whether the rules in force stand for a robots.txt that could not be had."""
        entry = self._rules.get(origin)
        return entry is not None and entry.rules is DISALLOW_ALL

    def rules_at(self, url: str) -> Robots | None:
        """The rules in force that this node has read at `url`, for origins that share one robots.txt."""
        origin = origin_of(url)
        if url != f"{origin}/robots.txt" or not self.known(origin) or self._rules[origin].told:
            return None
        return self._rules[origin].rules

    def crawl_delay_s(self, host: str) -> float:
        """The host's own wish, at most `crawl_delay_max_s`; 0 where it has none.

        A host is one for politeness, whatever the scheme: the longer wish counts.
        """
        if not self._delays:
            return 0.0
        return max(self._delays.get(scheme + host, 0.0) for scheme in _SCHEMES)
