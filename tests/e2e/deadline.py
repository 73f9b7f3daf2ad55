"""Waiting for another process, with a bound.

Another process has no virtual clock, so here and nowhere else a test polls.
The deadline only ends a test that would hang; no test measures time by it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

POLL_S = 0.005  # less would take the processor from whom the test waits for
DEADLINE_S = 60.0


def until(happened: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S, poll_s: float = POLL_S) -> None:
    """Return as soon as `happened()`; `poll_s` is longer where asking costs the one who is asked.

    Raises:
        AssertionError: it did not happen in `deadline_s`; `what` names it.
    """
    end = time.monotonic() + deadline_s
    while not happened():
        assert time.monotonic() < end, f"{what}: not within {deadline_s:g} s"
        time.sleep(poll_s)
