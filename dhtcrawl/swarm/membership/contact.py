"""Whether a node has contact with its swarm: it knows other nodes, and perhaps none of them answers now. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.membership.view import MemberState, View


class LostContact(NamedTuple):
    """How many other nodes this one knows of its swarm, none of which answers, and for how long that was seen."""

    others: int
    for_s: float


@loop_state
class SwarmContact:
    """Says whether any other node answers; times are seconds on the caller's clock."""

    def __init__(self, own: bytes) -> None:
        self._own = own
        self._lost_at: float | None = None

    def look(self, view: View, known: Iterable[bytes], now: float) -> LostContact | None:
        """What was lost; None with contact, or where there is nobody else.

        `known` are nodes that were members and have not left, those of the view or not.
        """
        others = [member for member in view.members if member.id != self._own]
        missing = {member.id for member in others}.union(known) - {self._own}
        if not missing or any(member.state is not MemberState.SUSPECTED for member in others):
            self._lost_at = None
            return None
        if self._lost_at is None:
            self._lost_at = now
        return LostContact(len(missing), now - self._lost_at)
