"""Who is there, and who can hear whom: the facts that all judges of a simulated swarm look at.

A host is *up* while it runs, and *awake* while it also runs its callbacks. Two
hosts are *apart* while the network is cut between them, and after it has
healed until every host of one side has every host of the other in its view
again: what they do in between they do without knowing of one another. A *side*
is all who are awake and not apart.

Nothing here is asked of the nodes but their views and their states.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from dhtcrawl.rpc.membership.hello import NodeState
from dhtcrawl.rpc.membership.view import Member, MemberState, View
from dhtcrawl.sim.ledger import DiskBook, Ledger
from dhtcrawl.sim.swarm import SimHost, SimSwarm

# So long after a fault all nodes know of it, and have repaired what it broke.
QUIET_S = 30.0
# So long after a partition has healed, and nothing else happened, all know one another again: one of the dead is
# asked every 30 s by each node, and hears of it; gossip and an exchange take the rest.
MEET_S = 60.0
# A node that was back for no longer may not have been noticed.
UNNOTICED_S = 15.0
VIOLATIONS_MAX = 200


@dataclass(eq=False, slots=True)
class _Cut:
    """A partition: these hosts, and all others."""

    few: Mapping[SimHost, None]
    at: float
    healed_at: float | None = None
    over_at: float | None = None


class Cuts:
    """The partitions of one simulation. Times are seconds on its clock."""

    def __init__(self) -> None:
        self._cuts: list[_Cut] = []

    def add(self, few: Sequence[SimHost], now: float) -> None:
        self._cuts.append(_Cut(dict.fromkeys(few), now))

    def heal(self, now: float) -> None:
        for cut in self._cuts:
            cut.healed_at = now if cut.healed_at is None else cut.healed_at

    def healed(self) -> list[_Cut]:
        """The cuts that have healed and are not over for all."""
        return [cut for cut in self._cuts if cut.healed_at is not None and cut.over_at is None]

    @property
    def any(self) -> bool:
        return any(cut.over_at is None for cut in self._cuts)

    def side(self, host: SimHost) -> tuple[bool, ...]:
        """Equal for two hosts that no partition keeps apart now."""
        return tuple(host in cut.few for cut in self._cuts if cut.over_at is None)

    def over_since(self, now: float) -> float:
        """When the last partition was over for all, which it may not be yet."""
        return max((now if cut.over_at is None else cut.over_at for cut in self._cuts), default=-inf)

    def between(self, one: SimHost, other: SimHost) -> list[tuple[float, float | None]]:
        """When two hosts were apart: from, until."""
        return [(cut.at, cut.over_at) for cut in self._cuts if (one in cut.few) != (other in cut.few)]

    def were_apart(self, one: str, other: str, at: float, until_s: float = 0.0) -> bool:
        """Whether two hosts, by name, were out of each other's sight, or had been no longer than `until_s` ago."""
        for cut in self._cuts:
            few = {host.name for host in cut.few}
            lasted = cut.at <= at and (cut.over_at is None or at <= cut.over_at + until_s)
            if lasted and (one in few) != (other in few):
                return True
        return False

    def met_between(self, since: float, at: float, until_s: float = 0.0) -> bool:
        """Whether two sides that had parted by `since` were coming together at `at`, or had at most `until_s` before.

        From the moment that the network is whole a node that asks for a host may have heard of the other side, and be
        alone with it. What was given to it before they had met may count for `until_s`.
        """
        for cut in self._cuts:
            over_at = inf if cut.over_at is None else cut.over_at
            if cut.healed_at is not None and cut.at <= since and cut.healed_at <= at <= over_at + until_s:
                return True
        return False


class _Stopwatch:
    """Counts the seconds in which it runs."""

    def __init__(self) -> None:
        self._counted_s = 0.0
        self._since: float | None = 0.0

    def seconds(self, now: float) -> float:
        return self._counted_s + (0.0 if self._since is None else now - self._since)

    def turn(self, on: bool, now: float) -> None:
        self._counted_s = self.seconds(now)
        self._since = now if on else None


class _Absences:
    """Which hosts are out of sight, for whatever reason but a partition, and when they were: from, until."""

    def __init__(self) -> None:
        self.gone: dict[SimHost, int] = {}  # crashed, or about to: in which of its lives
        self.paused: dict[SimHost, int] = {}  # likewise
        self.resumed_at: dict[SimHost, float] = {}
        self._spans: dict[SimHost, list[tuple[float, float | None]]] = {}

    def of(self, host: SimHost) -> list[tuple[float, float | None]]:
        return list(self._spans.get(host, ()))

    def begin(self, host: SimHost, now: float) -> None:
        spans = self._spans.setdefault(host, [])
        if not spans or spans[-1][1] is not None:
            spans.append((now, None))

    def end(self, host: SimHost, now: float) -> float:
        """How long it was away; 0 where it was there."""
        spans = self._spans.get(host)
        if not spans or spans[-1][1] is not None:
            return 0.0
        since = spans[-1][0]
        spans[-1] = (since, now)
        return now - since


class Scene:
    """The hosts of one simulation as its judges see them. `violations` grows."""

    def __init__(self, swarm: SimSwarm, ledger: Ledger, time: Callable[[], float], *, replicas: int, acks: int) -> None:
        self.violations: list[str] = []
        self.swarm = swarm
        self.ledger = ledger
        self.time = time
        self.replicas = replicas
        self.acks = acks
        self.numbers: dict[SimHost, int] = {}  # of its disk
        self.befell_at = 0.0  # when the last fault happened, or was over
        self.cuts = Cuts()
        self.judged: tuple[str, ...] | None = None  # which promises are; None: all
        self._away = _Absences()
        self._peace = _Stopwatch()

    def broken(self, invariant: str, text: str) -> None:
        if self.judged is not None and invariant not in self.judged:
            return
        trace = self.swarm.trace
        trace.mark(f"{invariant} is broken")
        if len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(f"{invariant}: {text} (at {self.time():.3f} s, event {trace.events})")

    # Who is there

    @property
    def up(self) -> list[SimHost]:
        return [
            host for host in self.swarm.hosts if host.swarm is not None and self._away.gone.get(host) != host.starts
        ]

    @property
    def awake(self) -> list[SimHost]:
        """The hosts that do not stand still."""
        return [host for host in self.up if self._away.paused.get(host) != host.starts]

    def sides(self, plus: Sequence[SimHost] = ()) -> list[list[SimHost]]:
        """The hosts that are awake, and `plus`, grouped by which can hear each other."""
        found: dict[tuple[bool, ...], list[SimHost]] = {}
        for host in dict.fromkeys([*self.awake, *plus]):
            found.setdefault(self.cuts.side(host), []).append(host)
        return list(found.values())

    def side_of(self, host: SimHost) -> list[SimHost]:
        """The hosts that a host can hear, itself first, whether it is awake or not."""
        side = self.cuts.side(host)
        return [host, *(other for other in self.awake if other is not host and self.cuts.side(other) == side)]

    def disk(self, host: SimHost) -> DiskBook:
        return self.ledger.disks[self.numbers[host]]

    def is_back(self, host: SimHost) -> bool:
        """Whether it went on a moment ago, so that others may take it for dead, and it does not know that yet."""
        return self.time() - self._away.resumed_at.get(host, -QUIET_S) < QUIET_S

    @property
    def troubled(self) -> bool:
        """Whether a host stands still, or is out of another's sight."""
        return self.cuts.any or any(map(self._is_paused, self._away.paused))

    @property
    def peace_s(self) -> float:
        """Seconds in which there was no such trouble."""
        return self._peace.seconds(self.time())

    def away_since(self, seen_from: SimHost, number: int) -> float | None:
        """Since when a host cannot have read a disk; None where it can."""
        disk, now = self.ledger.disks[number], self.time()
        host = next((host for host in self.swarm.hosts if host.name == disk.name), None)
        at = now if disk.lost_at is None else disk.lost_at
        causes = [] if host is None else self._away.of(host) + self.cuts.between(host, seen_from)
        earlier = True
        while earlier:
            earlier = False
            for start, end in causes:
                if start < at and (end is None or end >= at - UNNOTICED_S):
                    at, earlier = start, True
        return None if at == now else at

    # What happens

    def befell(self) -> None:
        self.befell_at = self.time()

    def leaves_sight(self, host: SimHost) -> None:
        self._count_peace()
        self._away.gone[host] = host.starts
        self._away.paused.pop(host, None)
        self._absent(host)

    def pauses(self, host: SimHost) -> None:
        self._count_peace()
        self._away.paused[host] = host.starts
        self._absent(host)

    def resumes(self, host: SimHost) -> float:
        """Note that it goes on; how long it stood still."""
        self._count_peace()
        self._away.paused.pop(host, None)
        self._away.resumed_at[host] = self.time()
        return self.returns(host)

    def returns(self, host: SimHost) -> float:
        """Note that it is there again; how long it was not."""
        self.befell()
        return self._away.end(host, self.time())

    def is_cut(self, sides: Sequence[Sequence[SimHost]]) -> None:
        self._count_peace()
        self.cuts.add(sides[0], self.time())
        self.befell()

    def heals(self) -> None:
        self.cuts.heal(self.time())
        self.befell()

    def look(self) -> None:
        for host, starts in list(self._away.gone.items()):
            if host.swarm is not None and host.starts != starts:
                del self._away.gone[host]
                self.returns(host)
        for cut in self.cuts.healed():
            if self._have_met(cut):
                self._count_peace()
                cut.over_at = self.time()
                self.befell()
        self._count_peace()

    def _have_met(self, cut: _Cut) -> bool:
        assert cut.healed_at is not None
        views = {host: known(host) for host in self.awake}
        few = [host for host in views if host in cut.few]
        many = [host for host in views if host not in cut.few]
        for one, other in ((one, other) for one in few for other in many):
            if other.id in views[one] and one.id in views[other]:
                continue
            late = self.time() - max(cut.healed_at, self.befell_at) > MEET_S
            if late and is_owner(one) and is_owner(other):
                self.broken("I13", f"{one.name} and {other.name} do not know each other {MEET_S:.0f} s after healing")
                return True
            return False
        return True

    def _is_paused(self, host: SimHost) -> bool:
        return self._away.paused[host] == host.starts and host.swarm is not None

    def _absent(self, host: SimHost) -> None:
        self._away.begin(host, self.time())
        self.befell()

    def _count_peace(self) -> None:
        self._peace.turn(not self.troubled, self.time())


def is_active(host: SimHost) -> bool:
    """Whether it takes itself for one that owns, and all who have to know it do."""
    swarm = host.swarm
    return swarm is not None and not host.hidden and swarm.ready.is_set() and swarm.join.state.active


def is_owner(host: SimHost) -> bool:
    """Whether it has told the others that it owns, though it may not fetch yet."""
    swarm = host.swarm
    return swarm is not None and swarm.listening and swarm.gossip.members.me.state is NodeState.ACTIVE


def view_of(host: SimHost) -> View:
    """The members that are there, as the host believes."""
    return host.swarm.gossip.view if host.swarm is not None and host.swarm.listening else View(())


def known(host: SimHost) -> dict[bytes, None]:
    """The nodes that the host has heard of lately."""
    return {member.id: None for member in view_of(host).members if member.state is not MemberState.SUSPECTED}


def view_from(hosts: Sequence[SimHost]) -> View:
    """These, as the owners: what no node can know."""
    return View(Member(host.id, (host.address, 0)) for host in hosts)
