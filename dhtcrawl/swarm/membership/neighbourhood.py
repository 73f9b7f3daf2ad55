"""Which nodes a node has met and told while it joins, and which owners it did not see join. Pure.

What a neighbour knew when it was met holds as long as no owner vanishes. When one
vanishes, this node has a share in more of what the others know, so it meets those
again that it met while that one owned.

A neighbour that others take for alive, and that has answered none of this node's questions for `SILENT_S`,
is gone on without: it may be cut off from this node alone, or bad, and must not hold it up for good. It is asked
again in the next round, and gone on without at once if it is as silent as before. Where no owner answers, rounds
follow one another several times a second.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.membership.view import View
from dhtcrawl.swarm.replica_sets import neighbours

# Longer than members that stand still, or are cut off by a fault that passes, are silent.
SILENT_S: Final = 120.0
SAID_AGAIN_S: Final = 600.0  # as often as everything is compared, whatever happened


@loop_state
class Neighbourhood:
    """The other members that may share keys with one node."""

    def __init__(self, own: bytes, replicas: int) -> None:
        self._own = own
        self._replicas = replicas
        self._seen: View | None = None
        self._strangers: dict[bytes, None] = {}  # owners that this node did not see join
        self._met: dict[bytes, frozenset[bytes]] = {}  # whom it met while joining, and who owned then
        self._told: set[bytes] = set()  # who knows that it is active
        self._silent_since: dict[bytes, float] = {}  # who has not answered since it was met or told
        self._passed_over: set[bytes] = set()  # of these, who is gone on without for now
        self._said_at: dict[bytes, float] = {}  # of these, when that was to be said last

    def of(self, view: View) -> list[bytes]:
        """The ids of the neighbours by a view, in order."""
        return neighbours(view, self._own, self._replicas)

    def see(self, view: View) -> list[bytes] | None:
        """Take a view in; the owners that no node saw join, or None where the members and owners are as before."""
        before, self._seen = self._seen, view
        if before is not None and view.alike(before):
            return None
        # A node that was gone may come from the other side of a cut, and know more than when it was met. And an
        # owner that comes after a node was met, and vanishes, gives this one a share of what that knows as well.
        self._met = {node: owned | view.owning for node, owned in self._met.items() if node in view}
        self._told.intersection_update(view.ids)
        self._passed_over.intersection_update(view.ids)
        self._silent_since = {node: since for node, since in self._silent_since.items() if node in view}
        self._said_at = {node: at for node, at in self._said_at.items() if node in view}
        known = View(()) if before is None else before
        strangers = [node for node in view.missing_in(known) if node in view.owning]
        self._strangers.update(dict.fromkeys(strangers))
        return strangers

    def met(self, node: bytes, owners: frozenset[bytes]) -> None:
        """`node` and this one have the same records; `owners` are those who owned from when they began."""
        self._met[node] = owners
        self._answered(node)

    def told(self, node: bytes) -> None:
        """`node` knows that this one is active."""
        self._told.add(node)
        self._answered(node)

    def no_answer(self, node: bytes, now: float) -> bool:
        """`node` has not answered; whether it is to be said that it is gone on without: at first, and now and then."""
        since = self._silent_since.setdefault(node, now)
        if now - since < SILENT_S:
            return False
        self._passed_over.add(node)
        if now - self._said_at.get(node, -math.inf) < SAID_AGAIN_S:
            return False
        self._said_at[node] = now
        return True

    def is_passed_over(self, node: bytes) -> bool:
        """Whether this node goes on without `node`."""
        return node in self._passed_over

    def _answered(self, node: bytes) -> None:
        self._silent_since.pop(node, None)
        self._said_at.pop(node, None)
        self._passed_over.discard(node)

    def to_meet(self, view: View) -> list[bytes]:
        """The neighbours that were not met yet, or that are to be met again as an owner has vanished."""
        owners = view.owning
        wanted = [node for node in self.of(view) if node not in self._met or self._met[node] - owners]
        return [node for node in wanted if node not in self._passed_over]

    def to_tell(self, view: View) -> list[bytes]:
        """The neighbours that were not told yet."""
        return [node for node in self.of(view) if node not in self._told and node not in self._passed_over]

    def met_an_owner(self, view: View) -> bool:
        """Whether a node that owns by `view` was met."""
        return bool(view.owning & self._met.keys())

    def forget_met(self) -> None:
        """Every neighbour is to be met."""
        self._met = {}

    def forget_told(self) -> None:
        """Every neighbour is to be told."""
        self._told = set()

    def forget_passed_over(self) -> None:
        """Those that did not answer are asked again."""
        self._passed_over.clear()

    def forget_strangers(self) -> None:
        """Every owner has been met."""
        self._strangers.clear()

    def take_strangers(self, view: View) -> Iterator[bytes]:
        """The strangers among the neighbours by `view`; from here on none is a stranger."""
        strangers, self._strangers = self._strangers, {}
        return (node for node in (self.of(view) if strangers else ()) if node in strangers)
