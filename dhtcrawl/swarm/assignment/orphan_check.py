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

log = logging.getLogger(__name__)

PAUSE_S = 1.0
# Who is dead is taken for it long before, and asked no more; who is not, and does not answer, keeps nobody waiting.
WITHIN_S = 60.0


class OrphanCheck:
    """Of one crawl."""

    def __init__(
        self,
        group: asyncio.TaskGroup,
        compare: Callable[[Sequence[bytes]], Awaitable[bool]],
        answered: Callable[[list[bytes]], Awaitable[None]],
    ) -> None:
        """`compare(keys)` makes our records and those of others the same; False: one did not answer.

        `answered(keys)` goes on with what our own records say by now.
        """
        self._group = group
        self._compare = compare
        self._answered = answered
        self._asked: dict[bytes, None] = {}

    def __len__(self) -> int:
        return len(self._asked)

    def __contains__(self, key: object) -> bool:
        return key in self._asked

    def ask(self, keys: Iterable[bytes]) -> None:
        """Nobody holds these any more."""
        new = [key for key in keys if key not in self._asked]
        if new:
            self._asked |= dict.fromkeys(new)
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
        for key in keys:
            del self._asked[key]
        await self._answered(keys)
