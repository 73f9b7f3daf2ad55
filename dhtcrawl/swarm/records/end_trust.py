"""Whether an owner believes that a task of its own is over, told by a node that was not given it. Pure.

An owner knows who has a task: itself, or the node that it has assigned it to. Another node can know of an end all the
same, honestly: it had the task in flight when its owner changed, it was cut off and owned it meanwhile, or it was
late. So what cannot be known is bounded, by the node that tells it:

    no node has come or gone for SETTLED_S, and owners fetch their tasks    none at once
    else                                                                    BURST, and RATE_S more a second
    a node that was no member for a while                                   AWAY_RATE_S more for each second of it

What is beyond is refused, and its sender says it again; after a minute of it (`dhtcrawl.swarm.records.patience`) it is
believed, of LAST_MAX tasks at a time: else a node that is right and has nobody to tell would never be done.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.membership.view import View
from dhtcrawl.swarm.records.patience import Patience

SETTLED_S: Final = 120.0  # what a newcomer holds as in flight elsewhere it lets go of after as long
BURST: Final = 100
RATE_S: Final = 10.0
AWAY_RATE_S: Final = 100.0  # no node has fetched more while it was away
AWAY_S_MAX: Final = 3_600.0
LAST_MAX: Final = 100
NODES_MAX: Final = 8_192


@dataclass(slots=True)
class _Teller:
    """What one node may still say; `gone_at`: since when it is away."""

    credit: float = BURST
    away_credit: float = 0.0
    filled_at: float = 0.0
    gone_at: float | None = None


@loop_state
class EndTrust:
    """The credit of all nodes at one owner; times are seconds on the caller's monotonic clock."""

    def __init__(self, view: View, now: float) -> None:
        self._view = view
        self._changed_at = now
        self._tellers: OrderedDict[bytes, _Teller] = OrderedDict()
        self._patience = Patience(tasks_a_sender_max=LAST_MAX)

    def look(self, view: View, now: float) -> None:
        """Note who has come and gone since the last view; call it before a question, and when the view changes."""
        if view is self._view:
            return
        before, self._view = self._view, view
        if view.alike(before):
            return
        self._changed_at = now
        for node in before.missing_in(view):
            self._of(node, now).gone_at = now
        for node in view.missing_in(before):
            teller = self._tellers.get(node)
            if teller is not None and teller.gone_at is not None:
                teller.away_credit += AWAY_RATE_S * min(now - teller.gone_at, AWAY_S_MAX)
                teller.gone_at = None

    def believed(
        self, teller: bytes, crawl: bytes, task_keys: Iterable[bytes], now: float, *, lends: bool
    ) -> frozenset[bytes]:
        """Those of these tasks, the owner's own, that count as over now; `lends`: others fetch them as a rule."""
        keys = list(dict.fromkeys(task_keys))
        room = self._room(teller, now, settled=not lends and now - self._changed_at >= SETTLED_S)
        taken, rest = keys[:room], keys[room:]
        self._spend(teller, len(taken))
        waited = frozenset(rest) - self._patience.refused(teller, crawl, rest, now) if rest else frozenset()
        return waited.union(taken)

    def _room(self, node: bytes, now: float, *, settled: bool) -> int:
        teller = self._of(node, now)
        teller.credit = min(teller.credit + RATE_S * (now - teller.filled_at), BURST)
        teller.filled_at = now
        return int(teller.away_credit) + (0 if settled else int(teller.credit))

    def _spend(self, node: bytes, count: int) -> None:
        teller = self._tellers[node]
        away = min(count, int(teller.away_credit))
        teller.away_credit -= away
        teller.credit = max(0.0, teller.credit - (count - away))

    def _of(self, node: bytes, now: float) -> _Teller:
        teller = self._tellers.get(node)
        if teller is None:
            teller = self._tellers[node] = _Teller(filled_at=now)
            if len(self._tellers) > NODES_MAX:
                self._tellers.popitem(last=False)
        return teller
