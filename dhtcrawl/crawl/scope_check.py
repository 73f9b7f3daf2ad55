"""Makes sure of the crawl's scope before a task is taken for one that no honest node would have sent.

Links are checked by the node that finds them. A task that another node sent may be a lie, or its node may know of an
alias (the target of a seed's redirect) that this one has not heard of. So all members are asked for the crawl's record
first: nothing is given up that one of them knows to be within the scope.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from dhtcrawl.crawl.ports import SharedRecord
from dhtcrawl.crawl.scope import Scope
from dhtcrawl.loop_state import loop_state

AGAIN_S = 5.0
# Some members may be silent; a dead one is out of the view by then.
PATIENCE_S = 60.0


@loop_state
class ScopeCheck:
    """Knows what the members say of a crawl's scope; those who wait for it at once share a round of questions."""

    def __init__(self, scope: Scope, record: SharedRecord, now: Callable[[], float]) -> None:
        """`now` gives seconds."""
        self._scope = scope
        self._record = record
        self._now = now
        self._lock = asyncio.Lock()
        self._asked_at = -math.inf
        self._silent_since = math.inf
        self._sure = False
        self._room = True

    def rules_out(self, url: str) -> str | None:
        """As `Scope.rules_out`, but nothing where an alias may be missing because the record has no room for it."""
        reason = self._scope.rules_out(url)
        return reason if self._room else None

    def reaches(self, host: str) -> bool:
        """As `Scope.reaches`, or whether an alias may be missing."""
        return self._scope.reaches(host) or not self._room

    async def sure(self) -> bool:
        """Learn what the members know; whether all answered, or some are silent for longer than is waited for."""
        came_at = self._now()
        async with self._lock:
            if self._asked_at <= came_at:
                self._asked_at = self._now()
                if await self._record.catch_up():
                    self._silent_since, self._sure = math.inf, True
                else:
                    self._silent_since = min(self._silent_since, self._asked_at)
                    self._sure = self._now() - self._silent_since >= PATIENCE_S
                self._room = self._record.has_room()
            return self._sure
