"""How a node leaves: what it does next, and for how long it waits (design invariants I4, I5, I11). Pure.

    DRAINING ──▶ STAYING ──▶ BEQUEATHING ──▶ DISOWNING ──▶ HANDING_OVER ──▶ ENDING ──▶ UPDATING ──▶ GONE

    DRAINING      starts nothing more, and waits until what was begun is over and its backups know
    STAYING       waits, where all others are joining, until one of them owns: with the last owner gone they would
                  become active with what their disks had, and fetch the rest again
    BEQUEATHING   takes no more pages as an heir; gives those of each crawl that goes on to the closest node that takes
                  them, which then tells the others what this one has signed; once more after a while, where one did not
                  answer; where all refuse, it signs that no node has them
    DISOWNING     owns nothing from here on, and tells every neighbour so
    HANDING_OVER  pushes each record to the nodes that are to keep it; once more after a while, where one did not answer
                  (it may be dead, and its place another's in a moment) or a record still has to send its links; where
                  no other member owns any more, as all of them leave at once, the records stay here
    ENDING        where draining ended in vain: ends what is under way, so that no page comes from here on
    UPDATING      gives the heirs the shorter ways to pages that were found meanwhile, and pages that came after
                  draining had ended in vain; where the heir is gone, or leaves in turn and has given on what it had,
                  all goes to another one, if it takes it; then says LEFT
    GONE          asks for nothing more

Each phase that waits begins no pause after `drain_s`, nor when the node was asked once more to leave (`hasten`). Then
it takes nothing more as an heir, and offers no further estate; one that an heir has is still brought up to date, since
its record names the heir. What is being given ends by itself, and records are pushed at least once. Times are seconds
on the caller's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import ClassVar, TypeAlias

from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.membership.view import View
from dhtcrawl.swarm.membership.join_steps import Pause
from dhtcrawl.swarm.membership.keeping_up import AT_ONCE, NEEDED_PAUSE_S
from dhtcrawl.swarm.replica_sets import neighbours

LOOK_S = 0.05  # between two looks at what a phase waits for
HEIRS_TRIED = 3
OWNER_BEGINS_S = 2 * NEEDED_PAUSE_S  # longer than a joining node waits for an owner before it begins without


@dataclass(frozen=True)
class LeaveSettings:
    """What a node's leaving is judged by."""

    own: bytes  # the node's id
    replicas: int
    drain_s: float  # how long each phase may wait


@dataclass(frozen=True)
class Situation:
    """What the shell sees when it asks what to do next."""

    view: View
    unfinished: bool  # something that was begun is not over, or its backups do not know
    needed: bool  # this node is active, and a crawl goes on


@dataclass(frozen=True)
class Estate:
    """The pages that a node has of a crawl."""

    crawl: bytes
    copies: bool  # those of others' pages go along
    depth_matters: bool


@dataclass(frozen=True)
class StartNothing:
    """Begin no further request, whatever comes: also when this node was taken for dead, and joins once more."""


@dataclass(frozen=True)
class Notice:
    """Write a line to the log."""

    text: str
    warning: bool = True


@dataclass(frozen=True)
class StopAdopting:
    """Become no node's heir any more; once what is being taken is here, or `wait_s` are over, call `bequeath`."""

    wait_s: float


@dataclass(frozen=True)
class Bequeath:
    """Give an estate to `heir`, or with `again` bring it up to date; then call `given`."""

    estate: Estate
    heir: bytes
    again: bool = False


@dataclass(frozen=True)
class KeepPages:
    """Tell the others that no node has this estate: those that were asked may say so, and have refused."""

    estate: Estate


@dataclass(frozen=True)
class Disown:
    """Own nothing any more."""


@dataclass(frozen=True)
class Greet:
    """Exchange member records with these nodes, all at once."""

    nodes: list[bytes]


@dataclass(frozen=True)
class PushRecords:
    """Offer each record to the nodes that are to keep it, and drop what they have; then call `pushed`."""


@dataclass(frozen=True)
class KeepRecords:
    """Count no record as refused: no other member owns, so that none is to have any, and all stay here."""


@dataclass(frozen=True)
class EndRuns:
    """End all crawls here: they write what they have, and give up the rest."""


@dataclass(frozen=True)
class SayGoodbye:
    """Tell the others that this node has left."""


LeaveStep: TypeAlias = (
    StartNothing
    | Pause
    | Notice
    | StopAdopting
    | Bequeath
    | KeepPages
    | Disown
    | Greet
    | PushRecords
    | KeepRecords
    | EndRuns
    | SayGoodbye
)


class LeavePhase(Enum):
    """What a leaving node is at; the diagram of this module says what each means."""

    DRAINING = "draining"
    STAYING = "staying"
    BEQUEATHING = "bequeathing"
    DISOWNING = "disowning"
    HANDING_OVER = "handing over"
    ENDING = "ending"
    UPDATING = "updating"
    GONE = "gone"


@loop_state
class LeaveState:
    """One node's way out of its swarm: the shell does what `next` says, reports how it went, and asks again."""

    def __init__(self, settings: LeaveSettings) -> None:
        self.phase = LeavePhase.DRAINING
        self.drained = True  # False: DRAINING ended before what it waited for
        self._settings = settings
        self._hastened = False
        self._until: float | None = None  # when this phase stops waiting; None: it has not begun
        self._estates: list[Estate] | None = None  # still to be given
        self._heirs: list[bytes] | None = None  # still to be asked to take the first of them
        self._unanswered: bool | None = None  # whether one of them did not answer; None: none was asked
        self._given: dict[Bequeath, None] = {}  # to those that took it, or may have; of a crawl the surest is the last
        self._refused: list[Estate] = []  # by all that were asked, which the others are to hear
        self._greet: list[bytes] | None = None
        self._left_over: bool | None = None  # whether records are to be pushed again; None: they are to be pushed now

    def hasten(self) -> None:
        """Begin no further pause, and offer no further estate."""
        self._hastened = True

    # How that went which `next` asked for

    def bequeath(self, estates: Iterable[Estate]) -> None:
        """Note the pages that are to be given: no more come."""
        self._estates = list(estates)

    def given(self, gift: Bequeath, taken: bool | None) -> None:
        """An heir was asked; whether it has all of the estate on its disk. None: it did not answer."""
        if self.phase is LeavePhase.UPDATING:
            self._given_late(gift, taken=bool(taken))
            return
        if taken is not False:
            # The bequest that is signed last counts.
            self._given.pop(gift, None)
            self._given[gift] = None
        if taken:
            self._next_estate()
        else:
            self._unanswered = taken is None or bool(self._unanswered)

    def _given_late(self, gift: Bequeath, *, taken: bool) -> None:
        """What an heir does not take once more is offered to others, once to each."""
        if taken or gift.again:
            others = [estate for estate in self._estates or [] if estate != gift.estate]
            self._estates = others if taken else [*others, gift.estate]
            self._heirs = None

    def pushed(self, *, left_over: bool) -> None:
        """All records were offered; whether some have to be offered again."""
        self._left_over = left_over

    # What to do next

    def next(self, seen: Situation, now: float) -> LeaveStep | None:
        """What the shell does next; None: the node has left."""
        step = None
        while step is None and self.phase is not LeavePhase.GONE:
            step = self._NEXT[self.phase](self, seen, now)
        return step

    def _enter(self, phase: LeavePhase) -> None:
        self.phase = phase
        self._until = None

    def _wait(self, now: float, pause_s: float = LOOK_S) -> Pause | None:
        """The next pause of a phase that waits; None once its time is over."""
        over = self._hastened or self._until is None or now >= self._until
        return None if over else Pause(pause_s)

    def _drain(self, seen: Situation, now: float) -> LeaveStep | None:
        if self._until is None:
            self._until = now + self._settings.drain_s
            return StartNothing()
        pause = self._wait(now) if seen.unfinished else None
        if pause is None:
            self._enter(LeavePhase.STAYING)
            self.drained = not seen.unfinished
            if seen.unfinished:
                return Notice("requests in flight did not end in time; others will fetch these pages again")
        return pause

    def _stay(self, seen: Situation, now: float) -> LeaveStep | None:
        others_own = seen.view.owning != {self._settings.own} or seen.view.eligible == (self._settings.own,)
        if self._until is None and seen.needed and not others_own:
            self._until = now + self._settings.drain_s
            text = "all other members are still joining; this node goes on until one of them is active"
            return Notice(text, warning=False)
        pause = None if others_own else self._wait(now)
        if pause is None:
            waited_in_vain = self._until is not None and not others_own
            self._enter(LeavePhase.BEQUEATHING)
            if waited_in_vain:
                return Notice("no other node became active in time; what this node knows stays in its store")
        return pause

    def _bequeath(self, seen: Situation, now: float) -> LeaveStep | None:
        if self._estates is None:
            return StopAdopting(0.0 if self._hastened else self._settings.drain_s)
        if self._refused:
            return KeepPages(self._refused.pop())
        if self._estates and self._hastened:
            left = len(self._estates)
            self._next_estate()
            self._estates = []
            return Notice(
                f"told again to leave: the pages of {left} crawls are not given to another node; they stay here"
            )
        if not self._estates:
            self._enter(LeavePhase.DISOWNING)
            return Disown()
        if self._heirs is None:
            self._heirs = self._closest(seen.view)
            # Those that did not answer may have started anew, and be active again in a moment.
            pause = self._wait(now, NEEDED_PAUSE_S) if not self._heirs else None
            if pause is not None:
                self._heirs = None
                return pause
        estate = self._estates[0]
        if self._heirs:
            return Bequeath(estate, self._heirs.pop(0))
        if self._unanswered:
            # An heir whose connection was lost may go on taking, and only its word tells us that it has all.
            self._until = now + self._settings.drain_s if self._until is None else self._until
            if pause := self._wait(now, NEEDED_PAUSE_S):
                self._heirs, self._unanswered = None, False
                return pause
        asked = self._unanswered is not None
        self._next_estate()
        return Notice(f"no node took the pages of crawl {estate.crawl.hex()[:12]}; they stay here") if asked else None

    def _closest(self, view: View) -> list[bytes]:
        members = view.closest_active(self._settings.own, HEIRS_TRIED + 1)
        return [member.id for member in members if member.id != self._settings.own]

    def _next_estate(self) -> None:
        estate, *others = self._estates or []
        if self._unanswered is not None and not any(gift.estate == estate for gift in self._given):
            self._refused.append(estate)
        self._estates, self._heirs, self._unanswered = others, None, None

    def _disown(self, seen: Situation, now: float) -> LeaveStep | None:
        if not len(seen.view):
            self._enter(LeavePhase.UPDATING)  # no node is there to take anything: this one keeps its store
            return None
        if self._greet is None:
            self._greet = neighbours(seen.view, self._settings.own, self._settings.replicas)
        if self._greet:
            nodes, self._greet = self._greet[:AT_ONCE], self._greet[AT_ONCE:]
            return Greet(nodes)
        self._enter(LeavePhase.HANDING_OVER)
        return None

    def _hand_over(self, seen: Situation, now: float) -> LeaveStep | None:
        if self._until is None:
            self._until = now + self._settings.drain_s
        if self._left_over and not len(seen.view):
            # Nobody owns: the others left or died meanwhile, or leave, too, and would wait for this node as it does for
            # them. One that is joining begins soon, and then takes the records.
            self._until = min(self._until, now + OWNER_BEGINS_S)
            others = set(seen.view.eligible).difference({self._settings.own})
            if not others or self._wait(now) is None:
                self._enter(LeavePhase.ENDING)
                return KeepRecords()
        if self._left_over is None:
            return PushRecords()
        pause = self._wait(now, NEEDED_PAUSE_S) if self._left_over else None
        if pause is None:
            self._enter(LeavePhase.ENDING)
        self._left_over = None
        return pause

    def _end(self, seen: Situation, now: float) -> LeaveStep | None:
        self._enter(LeavePhase.UPDATING)
        return None if self.drained else EndRuns()

    def _update(self, seen: Situation, now: float) -> LeaveStep | None:
        while self._given:
            gift = next(iter(self._given))
            del self._given[gift]
            last = all(other.estate != gift.estate for other in self._given)
            # What did not end while draining may have ended since, as a page that the heir has not.
            if gift.estate.depth_matters or not self.drained or (last and gift.heir not in seen.view):
                return replace(gift, again=True)
        if self._estates and not self._hastened:
            return self._offer_late(self._estates, seen)
        self._enter(LeavePhase.GONE)
        return SayGoodbye()

    def _offer_late(self, estates: list[Estate], seen: Situation) -> LeaveStep:
        if self._heirs is None:
            self._heirs = self._closest(seen.view)
        if self._heirs:
            return Bequeath(estates[0], self._heirs.pop(0))
        self._estates, self._heirs = estates[1:], None
        return Notice(
            f"no node took what has come of crawl {estates[0].crawl.hex()[:12]} since its heir did; it stays here"
        )

    _NEXT: ClassVar[Mapping[LeavePhase, Callable[[LeaveState, Situation, float], LeaveStep | None]]] = {
        LeavePhase.DRAINING: _drain,
        LeavePhase.STAYING: _stay,
        LeavePhase.BEQUEATHING: _bequeath,
        LeavePhase.DISOWNING: _disown,
        LeavePhase.HANDING_OVER: _hand_over,
        LeavePhase.ENDING: _end,
        LeavePhase.UPDATING: _update,
    }
