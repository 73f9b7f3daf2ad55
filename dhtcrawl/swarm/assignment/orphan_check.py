"""Asks other nodes about tasks of ours whose holder will not report any more, before they are fetched again.

The holder is gone, was restarted, or is silent for too long. It may have fetched the page and told all others but us,
who were still joining, or did not answer for a moment. Until all who keep the record have said what they know, no node
fetches the task.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

from dhtcrawl.loop_state import loop_state
from dhtcrawl.swarm.assignment.ownership import KeySet

log = logging.getLogger(__name__)

PAUSE_S = 1.0
# A dead node is known as dead long before, and not asked; a live one that does not answer delays tasks no longer.
WITHIN_S = 60.0


@loop_state
class OrphanCheck:
    """Asks about the orphaned tasks of a crawl."""

    def __init__(
        self,
        group: asyncio.TaskGroup,
        asked: KeySet,
        compare: Callable[[Sequence[bytes]], Awaitable[bool]],
        answered: Callable[[list[bytes]], Awaitable[None]],
    ) -> None:
        """`asked` has the keys that others are being asked about.

        `compare(keys)` makes our records and those of others the same; False: one did not answer.

        `answered(keys)` goes on with what our own records say then.
        """
        self._group = group
        self._compare = compare
        self._answered = answered
        self._asked = asked

    def ask(self, keys: Iterable[bytes]) -> None:
        """Ask about these, which no node holds any more."""
        new = [key for key in dict.fromkeys(keys) if key not in self._asked]
        if new:
            self._asked.add(new)
            self._group.create_task(self._ask(new))

    async def _ask(self, keys: list[bytes]) -> None:
        try:
            async with asyncio.timeout(WITHIN_S):
                while True:
                    if await self._compare(keys):
                        break
                    await asyncio.sleep(PAUSE_S)
        except TimeoutError:
            log.info("not all nodes have said what they know of %d tasks; they are ours again", len(keys))
        self._asked.remove(keys)
        await self._answered(keys)
