"""Three parts of what a node knows of the others, without I/O: whom to ask next, what the view shows, time lived.

`dhtcrawl.rpc.membership.members` puts them together.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Collection, Container, Mapping
from operator import attrgetter
from typing import TypeVar

from dhtcrawl.chance import Chance
from dhtcrawl.rpc.membership.health import LocalHealth
from dhtcrawl.rpc.membership.view import Member, View

T = TypeVar("T")

_id_of = attrgetter("id")
MET_MAX = 8_192  # all members of the largest swarm, twice


class AskingOrder:
    """Says which member to ask next: each once in a shuffled round (SWIM, section 4.3), or some at random."""

    def __init__(self, rng: Chance) -> None:
        self._rng = rng
        self._ids: list[bytes] = []  # of those that can be reached, in the order in which they came
        self._round: list[bytes] = []  # the last is next; some may have gone
        self._new: OrderedDict[bytes, None] = OrderedDict()  # that have come and were not asked yet
        self._unmet: dict[bytes, None] = {}  # that have come and have not answered yet
        self._met: OrderedDict[bytes, None] = OrderedDict()  # that ever answered, here or not, the last to do so last
        self._unreachable: set[bytes] = set()  # whose turn comes like the others'; never iterated

    def __len__(self) -> int:
        """Places left in the round, also of those that have gone."""
        return len(self._round)

    def comes(self, node_id: bytes, *, reachable: bool = True) -> None:
        """A newcomer gets a random place in the round; one that cannot be reached is among no `some`."""
        # One that comes and goes waits for the next round, or its places would pile up in this one.
        if len(self._round) <= len(self._ids) + len(self._unreachable):
            self._round.insert(self._rng.randrange(len(self._round) + 1), node_id)
        if reachable:
            self._ids.append(node_id)
        else:
            self._unreachable.add(node_id)
        self._new[node_id] = None
        self._unmet[node_id] = None

    def goes(self, node_id: bytes) -> None:
        """Ask a member no more.

        Raises:
            ValueError: it has not come.
        """
        if node_id in self._unreachable:
            self._unreachable.remove(node_id)
        else:
            self._ids.remove(node_id)
        self._new.pop(node_id, None)
        self._unmet.pop(node_id, None)

    def met(self, node_id: bytes) -> None:
        """A member has answered."""
        self._unmet.pop(node_id, None)
        self._met[node_id] = None
        self._met.move_to_end(node_id)
        if len(self._met) > MET_MAX:
            self._met.popitem(last=False)

    def has_met(self, node_id: bytes) -> bool:
        """Whether a node, here or not, has ever answered."""
        return node_id in self._met

    @property
    def unmet(self) -> Collection[bytes]:
        """Those that have come and have not answered yet."""
        return self._unmet.keys()

    def has_place(self, node_id: bytes, hearsay_max: int) -> bool:
        """Whether a node may come by others' word: it has answered once, or few of those that are there have not."""
        unmet, there = len(self._unmet), len(self._ids) + len(self._unreachable)
        return node_id in self._met or unmet < max(hearsay_max, there - unmet)

    def counted(self, gone: Collection[bytes], hearsay_max: int) -> int:
        """How many of those that are gone count: who has answered once, and so many as may be there by others' word."""
        met, there = sum(node_id in self._met for node_id in gone), len(self._ids) + len(self._unreachable)
        return met + min(len(gone) - met, max(hearsay_max, there - len(self._unmet)))

    def next(self, live: Mapping[bytes, T], busy: Container[bytes]) -> T | None:
        """The next of the round among the `live`, which have come and not gone; None where all are `busy`."""
        for _ in range(len(live) + len(self._round) + 1):
            if not self._round:
                self._round = sorted(live)
                self._rng.shuffle(self._round)
            target = self._round.pop() if self._round else b""
            if target in live and target not in busy:
                self._new.pop(target, None)
                return live[target]
        return None

    def next_new(self, live: Mapping[bytes, T], busy: Container[bytes]) -> T | None:
        """The one that came first of those that were not asked yet, out of turn; None where there is none."""
        while self._new:
            target, _ = self._new.popitem(last=False)
            if target in live and target not in busy:
                return live[target]
        return None

    def some(self, n: int, without: Container[bytes | None]) -> list[bytes]:
        """Up to `n` at random, those in `without` left out; of those that have answered, where there are any."""
        ids = [node_id for node_id in self._ids if node_id not in without] if without else self._ids
        if self._unmet:
            ids = [node_id for node_id in ids if node_id not in self._unmet] or ids
        return self._rng.sample(ids, min(n, len(ids)))


class ShownMembers:
    """The members that the view has, by id, and the view of them."""

    def __init__(self) -> None:
        self._members: list[Member] = []
        self._view: View | None = None

    def put(self, node_id: bytes, face: Member | None) -> None:
        """Show this node so, or not at all: there is a new view."""
        self._view = None
        place = bisect_left(self._members, node_id, key=_id_of)
        known = place < len(self._members) and self._members[place].id == node_id
        self._members[place : place + known] = [] if face is None else [face]

    def view(self) -> View:
        if self._view is None:
            self._view = View(self._members)
        return self._view


class LivedClock:
    """Seconds in which we ran, and could have heard a suspected member refute; slower while we are unwell."""

    def __init__(self, health: LocalHealth, tick_s_max: float) -> None:
        self.ticked_s = 0.0  # lived until the last tick
        self._health = health
        self._tick_s_max = tick_s_max
        self._ticked_at: float | None = None

    def at(self, now: float) -> float:
        """Seconds lived until `now`, on the caller's clock; a gap without ticks counts as one."""
        gap_s = 0.0 if self._ticked_at is None else now - self._ticked_at
        return self.ticked_s + min(gap_s, self._tick_s_max) / self._health.factor

    def tick(self, now: float) -> float:
        """Let time pass: what `at` says from here on begins here."""
        self.ticked_s, self._ticked_at = self.at(now), now
        return self.ticked_s
