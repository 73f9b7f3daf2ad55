"""Lets one node fetch a robots.txt for the whole swarm; without I/O.

    unknown ──ask──▶ claimed ──tell──▶ known ──ttl over──▶ unknown
                        │
                        └──failed, or 60 s without news──▶ unknown

The first node that asks fetches, the others wait for what it tells; what any other
node tells does not count. A host's gatekeeper keeps the table; times are seconds on
its clock. A host may send each agent another file, so each is known for one agent.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from dhtcrawl.fetch.host_access import RobotsAnswer, RobotsFetch, RobotsKnown, RobotsWait
from dhtcrawl.fetch.robots import RobotsVerdict
from dhtcrawl.loop_state import loop_state

CLAIM_S = 60.0  # connection, head and body of a slow robots.txt
REASK_S = 1.0
ENTRIES_MAX = 20_000
BYTES_MAX = 32 << 20


_Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _RobotsEntry:
    """A known robots.txt, or with `fetcher` one that is claimed."""

    until: float
    told_at: float = 0.0
    verdict: RobotsVerdict = RobotsVerdict.PARSE
    body: bytes = b""
    fetcher: bytes = b""
    reader: bytes = b""  # who fetched it


@loop_state
class RobotsTable:
    """Known and claimed robots.txt files, by origin and agent; the least recently asked for are forgotten."""

    def __init__(self, ttl_s: float, *, entries_max: int = ENTRIES_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._ttl_s = ttl_s
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self._entries: OrderedDict[_Key, _RobotsEntry] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def ask(self, origin: str, agent: str, node: bytes, now: float) -> RobotsAnswer:
        """What `node` is to do about the robots.txt of `scheme://host[:port]`."""
        key = (origin, agent)
        entry = self._entries.get(key)
        if entry is None or entry.until <= now or entry.fetcher == node:
            # A node that claimed it and asks again has lost the answer, or begins anew.
            self._put(key, _RobotsEntry(now + CLAIM_S, fetcher=node))
            return RobotsFetch()
        self._entries.move_to_end(key)
        if entry.fetcher:
            return RobotsWait(min(REASK_S, entry.until - now))
        return RobotsKnown(entry.verdict, entry.body, now - entry.told_at)

    def tell(
        self, origin: str, agent: str, node: bytes, verdict: RobotsVerdict | None, body: bytes, now: float
    ) -> None:
        """Note the verdict of the node that was to fetch; None: it failed, and the next node that asks fetches."""
        key = (origin, agent)
        entry = self._entries.get(key)
        if entry is None or entry.fetcher != node:
            # Anybody could say anything of any host. Where an honest node's claim was lost, another fetches once more.
            return
        if verdict is None:
            self._drop(key)
        else:
            self._put(key, _RobotsEntry(now + self._ttl_s, now, verdict, body, reader=node))

    def reader(self, origin: str, agent: str) -> bytes | None:
        """The node that has fetched a robots.txt which is known here."""
        entry = self._entries.get((origin, agent))
        return None if entry is None else entry.reader or None

    def keep_claims(self, nodes: set[bytes]) -> None:
        """Drop the claims of all other nodes, so that the next node that asks fetches."""
        for key in [key for key, entry in self._entries.items() if entry.fetcher and entry.fetcher not in nodes]:
            self._drop(key)

    def explain(self, origin: str, now: float) -> dict[str, str]:
        """For people: what is known of an origin's robots.txt, by agent."""
        return {
            agent: "being fetched" if entry.fetcher else entry.verdict.value
            for (known, agent), entry in self._entries.items()
            if known == origin and entry.until > now
        }

    def _put(self, key: _Key, entry: _RobotsEntry) -> None:
        self._drop(key)
        self._entries[key] = entry
        self._bytes += len(entry.body)
        while len(self._entries) > self._entries_max or (self._bytes > self._bytes_max and len(self._entries) > 1):
            self._drop(next(iter(self._entries)))

    def _drop(self, key: _Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= len(entry.body)
