"""What each source of connections costs a node, and which of them go too far. Pure.

A source is an address, or 64 bits of IPv6. Bounded are the accepted connections and
the bytes of frames that have begun and not ended, by source and in all. A source
that breaks the protocol is let in again after a pause, which doubles each time.
Programs of this machine share one address with its nodes, so of loopback only what
all have together is bounded.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable

from dhtcrawl.rpc.contact import is_own_machine, source_of

ACCEPTED_A_SOURCE_MAX = 64
UNFINISHED_BYTES_A_SOURCE_MAX = 8 * 1024 * 1024  # eight of the largest frames
UNFINISHED_BYTES_MAX = 32 * 1024 * 1024
PAUSE_S = 1.0
PAUSE_S_MAX = 300.0
FORGOTTEN_S = 600.0  # without a further breach
BREACHES_KEPT_MAX = 1_024


class Loads:
    """Connections are told apart by any value that the caller chooses for each."""

    def __init__(self) -> None:
        self._accepted: dict[Hashable, str] = {}  # connection → source
        self._accepted_of: Counter[str] = Counter()
        self._unfinished: OrderedDict[Hashable, tuple[str, int]] = OrderedDict()  # that began first comes first
        self._unfinished_of: Counter[str] = Counter()
        self._unfinished_bytes = 0
        self._breaches: OrderedDict[str, tuple[int, float]] = OrderedDict()  # source → how many, until when it pauses

    # Connections

    def accept(self, connection: Hashable, host: str) -> bool:
        """Whether one more connection may come from a host; it counts until `close`."""
        source = source_of(host)
        if not is_own_machine(host):
            if self._accepted_of[source] >= ACCEPTED_A_SOURCE_MAX:
                return False
            self._accepted[connection] = source
            self._accepted_of[source] += 1
        return True

    def close(self, connection: Hashable) -> None:
        """A connection is gone."""
        self.unfinished(connection, "", 0)
        source = self._accepted.pop(connection, None)
        if source is not None:
            _less(self._accepted_of, source, 1)

    # Frames that have begun

    def unfinished(self, connection: Hashable, host: str, held_bytes: int) -> Hashable | None:
        """A connection holds so many bytes of a frame now; which connection is to be cut for it, if any."""
        known = self._unfinished.get(connection)
        if known is not None:
            _less(self._unfinished_of, known[0], known[1])
            self._unfinished_bytes -= known[1]
        if not held_bytes:
            self._unfinished.pop(connection, None)
            return None
        source = known[0] if known is not None else source_of(host)
        self._unfinished[connection] = source, held_bytes
        self._unfinished_of[source] += held_bytes
        self._unfinished_bytes += held_bytes
        if self._unfinished_of[source] > UNFINISHED_BYTES_A_SOURCE_MAX and not is_own_machine(host):
            return connection
        if self._unfinished_bytes <= UNFINISHED_BYTES_MAX:
            return None
        # Who holds the most makes room, with what it has held for the longest.
        heaviest = max(self._unfinished_of, key=self._unfinished_of.__getitem__)
        return next(each for each, (its, _) in self._unfinished.items() if its == heaviest)

    @property
    def unfinished_bytes(self) -> int:
        """Of frames that have begun, of all connections."""
        return self._unfinished_bytes

    # Breaches of the protocol

    def breached(self, host: str, now: float) -> None:
        """A peer at a host has broken the protocol."""
        if is_own_machine(host):
            return
        source = source_of(host)
        count, until = self._breaches.pop(source, (0, now))
        count = 1 if now - until >= FORGOTTEN_S else count + 1
        self._breaches[source] = count, now + min(PAUSE_S * 2 ** (count - 1), PAUSE_S_MAX)
        if len(self._breaches) > BREACHES_KEPT_MAX:
            self._breaches.popitem(last=False)

    def pause_s(self, host: str, now: float) -> float:
        """For how long a host is not let in; 0 where it may come."""
        known = self._breaches.get(source_of(host))
        return 0.0 if known is None else max(0.0, known[1] - now)

    def breaches(self, host: str, now: float) -> int:
        """How often a host has broken the protocol lately."""
        count, until = self._breaches.get(source_of(host), (0, now))
        return count if now - until < FORGOTTEN_S else 0


def _less(counts: Counter[str], source: str, by: int) -> None:
    counts[source] -= by
    if not counts[source]:
        del counts[source]
