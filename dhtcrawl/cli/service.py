"""What a node tells the service manager that started it, by sd_notify(3): that it takes part, lives, and hands over.

    joining   EXTEND_TIMEOUT: a node may copy many records before it takes part
    active    READY, then WATCHDOG: who hangs is started again
    leaving   STOPPING, EXTEND_TIMEOUT: it is not killed while it hands over

Where no service manager waits for it (no `NOTIFY_SOCKET`), nothing is told.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping

log = logging.getLogger(__name__)

TELL_EVERY_S = 5.0
EXTEND_US = 60_000_000  # as long as it is told again and again

_STATUS = {"joining": "joining the swarm", "active": "takes part in the swarm", "leaving": "hands over what it holds"}


def message(state: str, before: str | None) -> str:
    """What to tell of a node that is joining, active or leaving, and was `before` when it was told last."""
    # The watchdog also of one that joins again, because the others took it for dead: it has been ready.
    lines = [f"STATUS={_STATUS[state]}", "WATCHDOG=1"]
    if state != "active":
        lines.append(f"EXTEND_TIMEOUT_USEC={EXTEND_US}")
    if state == "active" and before != "active":
        lines.append("READY=1")
    if state == "leaving" and before != "leaving":
        lines.append("STOPPING=1")
    return "\n".join(lines)


class ServiceManager:
    """Who is told; nobody, where the environment names no socket."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        self._before: str | None = None

    async def follow(self, state: Callable[[], str]) -> None:
        """Tell the state of a node as long as it runs, until cancelled."""
        while self._address:
            self.tell(state())
            # Most of a second is nothing to wait for before the next unit is started.
            await asyncio.sleep(TELL_EVERY_S if self._before == "active" else 1.0)

    def tell(self, state: str) -> None:
        """Tell it once."""
        if not self._address:
            return
        text = message(state, self._before)
        self._before = state
        # An abstract name begins with a zero byte, for which @ stands.
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to_manager:
                to_manager.setblocking(False)
                to_manager.sendto(text.encode(), address)
        except OSError as error:
            log.warning("the service manager cannot be told (%s): %s", self._address, error.strerror)
