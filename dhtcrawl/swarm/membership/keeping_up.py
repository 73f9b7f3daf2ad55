"""What an active node has to compare to be in line with the view, and when it looks again. Pure.

Times are seconds on the caller's monotonic clock.
"""

from __future__ import annotations

from collections.abc import Sequence

from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.membership.view import View
from dhtcrawl.swarm.membership.join_steps import JoinSettings, Meet
from dhtcrawl.swarm.membership.repairs import Repairs
from dhtcrawl.swarm.replica_sets import EVERYTHING, Sharing, Span

PAUSE_S = 0.2
# Records that were handed over and are still needed here are let go of when they are not.
NEEDED_PAUSE_S = 1.5
NEEDED_PAUSE_MAX_S = 60.0
OWED_PAUSE_MAX_S = 5.0  # as long as a dead node is taken for a member
AT_ONCE = 8


@loop_state
class KeepingUp:
    """One node's comparisons with its neighbours, one view after the other."""

    def __init__(self, settings: JoinSettings, now: float) -> None:
        self._settings = settings
        self._repairs = Repairs(settings.replicas)
        self._repaired_at = now
        self._repair = False  # everything is compared this time
        self._in_line_with: View | None = None
        self._view = View(())  # what this node is to be in line with
        self._began_at = now
        self._ranges: list[tuple[View | None, Sequence[Span]]] = []  # to be compared with who shares them by a view
        self._meetings: list[Meet] = []
        self._needed_s = 0.0  # when to look again for what was still needed here; 0: nothing
        self._owed_s = 0.0  # how long to wait before what was not taken is offered again; 0: all was taken

    @property
    def view(self) -> View:
        """The view that this node is, or is to be, in line with."""
        return self._view

    @property
    def owed_s(self) -> float:
        """How long to wait before what was not taken is offered again; 0: all was taken."""
        return self._owed_s

    def joined(self, view: View) -> None:
        """Everything was compared with every neighbour."""
        self._view = self._in_line_with = view
        self._repairs.forget()

    def saw(self, view: View) -> None:
        """The view is this one now, and may be another in a moment."""
        if self._in_line_with is not None:
            self._repairs.saw(self._in_line_with, view)

    def wait_s(self, now: float) -> float:
        """After how long to look again, whatever happens."""
        return min(self._needed_s or self._settings.repair_s, self._repairs.wait_s(now))

    def begin(self, view: View, strangers: Sequence[bytes], timed_out: bool, now: float) -> None:
        """Get in line with `view`; `strangers` are met first. Without any change, from time to time, repair."""
        self._repair = timed_out and not self._settings.outbound and now - self._repaired_at >= self._settings.repair_s
        self._view = view
        self._ranges = []
        self._meetings = _meetings(strangers, () if self._settings.outbound else (EVERYTHING,))

    def compare(self, now: float) -> None:
        """Compare what is due, now that the strangers were met."""
        self._began_at = now
        if self._settings.outbound:
            self._ranges = []
        elif self._repair:
            self._ranges = [(self._view, (EVERYTHING,))]
        else:
            due = self._repairs.due(self._in_line_with, self._view, self._settings.own, now)
            self._ranges = [(self._view, due.copies), (self._in_line_with, due.owned)]

    def next_meeting(self, neighbours: Sequence[bytes]) -> Meet | None:
        """The nodes to meet next, and in which ranges; None when all that was due has been compared."""
        while not self._meetings and self._ranges:
            view, within = self._ranges.pop(0)
            if view is not None and within:
                own, replicas = self._settings.own, self._settings.replicas
                share = [node for node in neighbours if Sharing(view, own, node, replicas).within(within)]
                self._meetings = _meetings(share, within)
        return self._meetings.pop(0) if self._meetings else None

    def compared(self, view: View, now: float) -> bool:
        """Whether this node is in line with `view`, now that all that was due has been compared."""
        if self._repair:
            self._repaired_at = now
        if not view.alike(self._view):
            return False
        self._repairs.done(self._in_line_with, self._view, self._began_at)
        self._in_line_with = self._view
        return True

    def handed_over(self, *, needed: bool, refused: bool) -> None:
        """What others are to keep was offered: some is `needed` here still, some was `refused`.

        A node that took its part is sent it again each time, so the pauses grow.
        """
        self._needed_s = min(max(2 * self._needed_s, NEEDED_PAUSE_S), NEEDED_PAUSE_MAX_S) if needed else 0.0
        self._owed_s = min(max(2 * self._owed_s, PAUSE_S), OWED_PAUSE_MAX_S) if refused else 0.0


def _meetings(nodes: Sequence[bytes], within: Sequence[Span]) -> list[Meet]:
    return [Meet(nodes[first : first + AT_ONCE], within) for first in range(0, len(nodes), AT_ONCE)]
