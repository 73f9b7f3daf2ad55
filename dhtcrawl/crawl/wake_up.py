"""Says that something may have changed, to whoever listens by then."""

from __future__ import annotations

from collections.abc import Callable


class WakeUp:
    """Made before those who call it and those who listen; a call that nobody listens to does nothing."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[], None]] = []

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` each time from now on."""
        self._listeners.append(listener)

    def __call__(self) -> None:
        for listener in self._listeners:
            listener()
