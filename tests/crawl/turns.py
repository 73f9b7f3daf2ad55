"""Runs what gives the loop a turn now and then, where there is no loop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def at_once(work: Coroutine[Any, Any, T], turn: Callable[[], object] = int) -> T:
    """What it returns; `turn` is called wherever others have theirs."""
    while True:
        try:
            work.send(None)
        except StopIteration as end:
            result: T = end.value
            return result
        turn()
