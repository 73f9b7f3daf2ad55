"""Tasks of ours whose holder will not tell any more what came of them: others may know, so they are asked first.

Whoever held a task is gone, started anew, or silent for too long. It may have
brought the page and told everybody but us, who were still joining, or did not
answer for a moment. Until all who keep the record have said what they know, the
task is nobody's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

from dhtcrawl.loop_state import loop_state

log = logging.getLogger(__name__)

PAUSE_S = 1.0
# Who is dead is taken for it long before, and asked no more; who is not, and does not answer, keeps nobody waiting.
WITHIN_S = 60.0


class AskedKeys(Protocol):
    """A set of task keys."""

    def __contains__(self, key: object) -> bool: ...

    def add(self, keys: Iterable[bytes], /) -> None: ...

    def remove(self, keys: Iterable[bytes], /) -> None: ...


@loop_state
class OrphanCheck:
    """Asks for the orphans of one crawl."""

    def __init__(
        self,
        group: asyncio.TaskGroup,
        asked: AskedKeys,
        compare: Callable[[Sequence[bytes]], Awaitable[bool]],
        answered: Callable[[list[bytes]], Awaitable[None]],
    ) -> None:
        """`asked` has the keys of which others are being asked.

        `compare(keys)` makes our records and those of others the same; False: one did not answer.

        `answered(keys)` goes on with what our own records say by now.
        """
        self._group = group
        self._compare = compare
        self._answered = answered
        self._asked = asked

    def ask(self, keys: Iterable[bytes]) -> None:
        """Nobody holds these any more."""
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
            log.info("what became of %d tasks has not been told by everybody; they are ours again", len(keys))
        self._asked.remove(keys)
        await self._answered(keys)
