"""A signal without a value, from parts that are made early to listeners that are made later."""

from __future__ import annotations

from collections.abc import Callable


class WakeUp:
    """Calls its listeners when it is called; without listeners a call does nothing."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[], None]] = []

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` at each call from now on."""
        self._listeners.append(listener)

    def __call__(self) -> None:
        for listener in self._listeners:
            listener()
