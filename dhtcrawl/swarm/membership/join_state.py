"""How a node comes to own, and keeps up with the view: what it does next (design invariants I4, I5, I12). Pure.

    JOINING ──▶ WAITING ──▶ SYNCING ──▶ TELLING ──▶ CHECKING ──▶ ACTIVE
       ▲                       │                                 │    ▲
       ├── no owner was met ◀──┘      the view changed, or time ─┘    │
       │                                                ▼             │
       │                        STRANGERS ──▶ COMPARING ──▶ HANDING_OVER ──▶ OWING
       │
       └── from everywhere: declared dead, or did not run for a while        LEAVING: from everywhere, for good

    JOINING       begins, or begins again: what is under way ends
    WAITING       for an owner; without any the lowest id of those that are there begins
    SYNCING       meets every neighbour: the owners copy their writes here, and it pulls what they had before
    TELLING       is active for the others, takes links, and says so to every neighbour; each starts no more tasks that
                  are the newcomer's, and names those that it has in flight
    CHECKING      meets those that came, and all again where an owner vanished meanwhile, or where all this took so long
                  that the others may have taken this node for dead
    ACTIVE        fetches, in line with the view
    STRANGERS     meets owners that it did not see join (two swarms have met, or two parts of one), and fetches nothing
                  before
    COMPARING     syncs the ranges that a vanished owner kept; from time to time everything
    HANDING_OVER  gives away what others are to keep; a change of the view ends it
    OWING         waits before it offers again what another did not take

A node that no other can reach goes from SYNCING to ACTIVE: it meets its neighbours to
learn of the crawls, copies nothing of theirs, and fetches what owners lend to it.

The shell asks `next` what to do, does it, reports how it went, and asks again;
`next` returns None once the node leaves. What happens at any moment (a view, a
declaration) has a method that returns effects. Each call brings the view and
`now`, in seconds on the caller's monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import ClassVar, Final

from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.membership.view import MemberState, View
from dhtcrawl.swarm.membership.join_steps import (
    AwaitChange,
    Become,
    Effects,
    EndLeases,
    HandOver,
    Hold,
    JoinSettings,
    Meet,
    Own,
    Pause,
    Settle,
    Step,
    Tell,
)
from dhtcrawl.swarm.membership.keeping_up import AT_ONCE, PAUSE_S, KeepingUp
from dhtcrawl.swarm.membership.neighbourhood import Neighbourhood
from dhtcrawl.swarm.replica_sets import EVERYTHING

# In a swarm whose nodes all start at once: how long one waits for a node that is active already.
NO_OWNER_S = 2.0
# Another took this node for dead, and by its view no node is there. That other is, and tells of the rest sooner.
ALONE_S = 10.0


class JoinPhase(Enum):
    """What a node is at; the diagram of this module says what each means."""

    JOINING = "joining"
    WAITING = "waiting"
    SYNCING = "syncing"
    TELLING = "telling"
    CHECKING = "checking"
    ACTIVE = "active"
    STRANGERS = "strangers"
    COMPARING = "comparing"
    HANDING_OVER = "handing over"
    OWING = "owing"
    LEAVING = "leaving"


_P = JoinPhase
# The arrows of the diagram; those to JOINING and LEAVING go out from everywhere but LEAVING.
_AFTER: Final[Mapping[JoinPhase, frozenset[JoinPhase]]] = {
    _P.JOINING: frozenset({_P.WAITING}),
    _P.WAITING: frozenset({_P.SYNCING}),
    _P.SYNCING: frozenset({_P.TELLING, _P.ACTIVE}),
    _P.TELLING: frozenset({_P.CHECKING}),
    _P.CHECKING: frozenset({_P.ACTIVE}),
    _P.ACTIVE: frozenset({_P.STRANGERS}),
    _P.STRANGERS: frozenset({_P.COMPARING}),
    _P.COMPARING: frozenset({_P.HANDING_OVER, _P.ACTIVE}),
    _P.HANDING_OVER: frozenset({_P.OWING, _P.ACTIVE}),
    _P.OWING: frozenset({_P.ACTIVE}),
    _P.LEAVING: frozenset(),
}
_OWNING: Final = frozenset({_P.ACTIVE, _P.STRANGERS, _P.COMPARING, _P.HANDING_OVER, _P.OWING})
_ENDING: Final = frozenset({_P.JOINING, _P.LEAVING})


@loop_state
class JoinState:
    """One node's way into the swarm."""

    def __init__(self, settings: JoinSettings, now: float) -> None:
        self._own = settings.own
        self._outbound = settings.outbound
        self._phase = JoinPhase.JOINING
        self._changed = False
        self._first = False  # no node was active, and it is on this one to begin
        self._alone_after_s = NO_OWNER_S
        self._started_at = now
        self._suspicion_s = settings.suspicion_s
        self._meets_since = now
        self._may_take_s = settings.suspicion_s
        self._around = Neighbourhood(settings.own, settings.replicas)
        self._keeping = KeepingUp(settings, now)

    @property
    def phase(self) -> JoinPhase:
        """What the node is at."""
        return self._phase

    @property
    def active(self) -> bool:
        """Whether the node fetches what it owns."""
        return self._phase in _OWNING

    @property
    def changed(self) -> bool:
        """Whether something happened that was not looked at: it ends what waits for a change."""
        return self._changed

    @property
    def busy(self) -> bool:
        """Whether this node is not yet where the view wants it."""
        return self._phase is not JoinPhase.ACTIVE or self._changed

    def wants(self, node: bytes, view: View) -> bool:
        """Whether `node` is still to be met or told."""
        return self._phase not in _ENDING and node in self._around.of(view) and not self._around.is_passed_over(node)

    # What happens at any moment

    def begin_alone(self) -> None:
        """Start a new swarm: wait for no other node."""
        self._alone_after_s = 0.0

    def view_changed(self, view: View) -> Effects:
        """The view is another one, perhaps only in who answered lately."""
        strangers = self._around.see(view)
        if strangers is None:
            return ()
        self._keeping.saw(view)
        self._changed = True
        if strangers and self.active and not set(strangers).isdisjoint(self._around.of(view)):
            # At once: what is under way may wait for a node that hangs. A stranger owned on the other side of a cut, so
            # that side has leased hosts, too. The gossip notices that only where nodes come back that were taken for
            # dead, and this node need not have known any of them.
            return Settle(None), EndLeases()
        return ()

    def rejoin(self, now: float) -> Effects:
        """The others have taken over, or may have: own nothing until it is known again what happened."""
        if self._phase is JoinPhase.LEAVING:
            return ()
        self._move(JoinPhase.JOINING)
        self._alone_after_s = ALONE_S
        self._started_at = now
        self._changed = True
        return Own(False), Hold(True), Settle(None)

    def leave(self) -> Effects:
        """Own nothing any more."""
        self._move(JoinPhase.LEAVING)
        self._changed = True
        return Hold(True), Own(False), Become(MemberState.JOINING)

    # How that went which `next` asked for

    def met(self, node: bytes, began: View, view: View) -> None:
        """`node` knows this one, which has what `node` had for it; the view was `began` before the two spoke."""
        self._around.met(node, began.owning | view.owning)

    def no_answer(self, node: bytes, now: float) -> bool:
        """`node` has not answered; whether it is to be said that this one goes on without it."""
        return self._around.no_answer(node, now)

    def told(self, node: bytes) -> None:
        """`node` knows that this one is active, and starts none of its tasks."""
        self._around.told(node)

    def waited(self, timed_out: bool, view: View, now: float) -> Effects:
        """Something changed, or the time is over."""
        if self._phase is JoinPhase.OWING:
            self._changed = True
            self._move(JoinPhase.ACTIVE)
        elif self._phase is JoinPhase.ACTIVE:
            self._changed = False
            self._around.forget_passed_over()
            near = list(self._around.take_strangers(view))
            self._keeping.begin(view, near, timed_out, now)
            self._move(JoinPhase.STRANGERS)
            # What is this node's to fetch may have been fetched on their side.
            return (Settle(None),) if near else ()
        return ()

    def handed_over(self, *, needed: bool, refused: bool) -> None:
        """Others were offered what they are to keep: some is `needed` here still, some was `refused`.

        What is needed is offered again in a while. Those that are to have it have it, so no node waits for that.
        """
        self._keeping.handed_over(needed=needed, refused=refused)
        if self._phase is JoinPhase.HANDING_OVER:
            self._move(JoinPhase.OWING if refused else JoinPhase.ACTIVE)

    def interrupted(self) -> None:
        """Something changed before all was handed over. What was taken so far is taken."""
        if self._phase is JoinPhase.HANDING_OVER:
            self._move(JoinPhase.ACTIVE)

    # What to do next

    def next(self, view: View, now: float) -> Step | None:
        """What the shell does next, by the view of the moment; None: the node leaves."""
        step = None
        while step is None and self._phase is not JoinPhase.LEAVING:
            step = self._NEXT[self._phase](self, view, now)
        return step

    def _move(self, phase: JoinPhase) -> None:
        known = _ENDING if self._phase is not JoinPhase.LEAVING else {JoinPhase.LEAVING}
        assert phase in _AFTER[self._phase] or phase in known, f"{self._phase} to {phase}"
        self._phase = phase

    def _begin(self, view: View, now: float) -> None:
        self._changed = False
        self._move(JoinPhase.WAITING)

    def _look_for_an_owner(self, view: View, now: float) -> Step | None:
        self._first = self._first_of_all(view, now)
        if not self._first and not view.owning - {self._own}:
            return Step(then=Pause(PAUSE_S))
        self._meet_all(now, self._suspicion_s)
        self._around.forget_passed_over()
        self._move(JoinPhase.SYNCING)
        return None

    def _first_of_all(self, view: View, now: float) -> bool:
        """Whether no node is active, and it is on this one to begin: the lowest id of those that are there."""
        if len(view) or self._outbound:
            return False
        waits_s = self._alone_after_s if len(view.eligible) <= 1 else NO_OWNER_S
        return now - self._started_at >= waits_s and min(view.eligible, default=self._own) == self._own

    def _sync(self, view: View, now: float) -> Step:
        if todo := self._around.to_meet(view):
            return Step(then=Meet(todo[:AT_ONCE], () if self._outbound else (EVERYTHING,)))
        if not self._first and not self._around.met_an_owner(view):
            # Those who own are gone again, or were only heard of: none has told this node anything.
            self._move(JoinPhase.JOINING)
            return Step(then=Pause(PAUSE_S))
        if self._outbound:
            return self._begin_to_fetch(view)
        # From here on links come to this node; nothing is fetched before every neighbour knows.
        self._around.forget_told()
        self._move(JoinPhase.TELLING)
        return Step((Become(MemberState.ACTIVE), Own(True)))

    def _tell(self, view: View, now: float) -> Step | None:
        if todo := self._around.to_tell(view):
            return Step(then=Tell(todo[:AT_ONCE]))
        self._move(JoinPhase.CHECKING)
        return None

    def _check(self, view: View, now: float) -> Step:
        # An owner that vanished meanwhile leaves this node keys that it has not asked for.
        todo = self._around.to_meet(view)
        if not todo and now - self._meets_since > self._may_take_s:
            # Nobody heard it, perhaps: who took it for dead has copied no write here since, and takes it for a member
            # again at its first word. A slow store takes long each time, and must not keep it from fetching for ever.
            self._meet_all(now, 2 * self._may_take_s)
            todo = self._around.to_meet(view)
        if todo:
            return Step(then=Meet(todo[:AT_ONCE], (EVERYTHING,)))
        return self._begin_to_fetch(view)

    def _meet_all(self, now: float, may_take_s: float) -> None:
        """Every neighbour is to be met from now on, and again where that takes longer."""
        self._around.forget_met()
        self._meets_since, self._may_take_s = now, may_take_s

    def _begin_to_fetch(self, view: View) -> Step:
        self._around.forget_met()
        self._around.forget_told()
        self._around.forget_strangers()
        self._keeping.joined(view)
        self._move(JoinPhase.ACTIVE)
        return Step((Settle(view), Hold(False)))

    def _stay(self, view: View, now: float) -> Step:
        return Step(then=AwaitChange(self._keeping.wait_s(now)))

    def _meet_strangers(self, view: View, now: float) -> Step | None:
        if meeting := self._keeping.next_meeting(()):
            return Step(then=meeting)
        self._keeping.compare(now)
        self._move(JoinPhase.COMPARING)
        return None

    def _compare(self, view: View, now: float) -> Step | None:
        if meeting := self._keeping.next_meeting(self._around.of(view)):
            return Step(then=meeting)
        if self._keeping.compared(view, now):
            self._move(JoinPhase.HANDING_OVER)
        else:
            self._changed = True
            self._move(JoinPhase.ACTIVE)
        return None

    def _hand_over(self, view: View, now: float) -> Step:
        return Step((Settle(self._keeping.view),), HandOver())

    def _owe(self, view: View, now: float) -> Step:
        return Step(then=AwaitChange(self._keeping.owed_s))

    _NEXT: ClassVar[Mapping[JoinPhase, Callable[[JoinState, View, float], Step | None]]] = {
        _P.JOINING: _begin,
        _P.WAITING: _look_for_an_owner,
        _P.SYNCING: _sync,
        _P.TELLING: _tell,
        _P.CHECKING: _check,
        _P.ACTIVE: _stay,
        _P.STRANGERS: _meet_strangers,
        _P.COMPARING: _compare,
        _P.HANDING_OVER: _hand_over,
        _P.OWING: _owe,
    }
