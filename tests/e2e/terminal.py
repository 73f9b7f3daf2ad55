"""A command on a terminal of its own: what it shows there, and keys that are pressed."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import termios
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from .crawler import COMMAND, TIMEOUT_S, environment

CTRL_C = b"\x03"


class Terminal:
    """A command whose three streams are a terminal, which is also the one that signals come from."""

    def __init__(self, home: Path, *argv: str | Path, columns: int = 80) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._main, end = os.openpty()
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self._process = subprocess.Popen(
            [*COMMAND, *map(str, argv)],
            stdin=end,
            stdout=end,
            stderr=end,
            cwd=home,
            env=environment(home) | {"TERM": "xterm"},
            start_new_session=True,
            preexec_fn=_owns_terminal,
        )
        os.close(end)
        self._shown = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)
        self._reader.join(30)
        os.close(self._main)

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def shown(self) -> str:
        """All that was written so far."""
        return self._shown.decode(errors="replace").replace("\r\n", "\n")

    @property
    def lines(self) -> list[str]:
        """What stood in the progress line, one state after the other."""
        return [line.partition("\n")[0] for line in self.shown.split("\r\x1b[K")[1:]]

    def press(self, keys: bytes) -> None:
        """Press keys; Ctrl-C reaches all processes of the command."""
        os.write(self._main, keys)

    def wait(self) -> int:
        """Let it end by itself; its exit code."""
        code = self._process.wait(TIMEOUT_S)
        self._reader.join(30)
        return code

    def _read(self) -> None:
        try:
            while chunk := os.read(self._main, 4096):
                self._shown += chunk
        except OSError:
            pass  # EIO: the other end is closed, which is how a terminal ends


def _owns_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
