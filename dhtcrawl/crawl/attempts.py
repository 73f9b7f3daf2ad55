"""The requests for a page that brought none, for people who ask why it is not there yet. In memory, and bounded."""

from __future__ import annotations

from collections import OrderedDict

from dhtcrawl.loop_state import loop_state

TASKS_MAX = 1_000  # those with the latest attempts
ATTEMPTS_MAX = 8  # of a task, the latest


@loop_state
class Attempts:
    """What came of the latest attempts at tasks of one crawl on one node, one line each."""

    def __init__(self) -> None:
        self._lines: OrderedDict[bytes, list[str]] = OrderedDict()

    def note(self, key: bytes, at: str, what: str) -> None:
        """Note an attempt; `at` is an instant of the wall clock in ISO 8601, `what` how it ended."""
        lines = self._lines.setdefault(key, [])
        lines.append(f"{at} {what}")
        del lines[:-ATTEMPTS_MAX]
        self._lines.move_to_end(key)
        if len(self._lines) > TASKS_MAX:
            self._lines.popitem(last=False)

    def of(self, key: bytes) -> list[str]:
        """The attempts that are remembered, the first one first."""
        return list(self._lines.get(key, ()))
