"""`dhtcrawl` as a process: its exit code, what it printed, its signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from .deadline import until
from .fork_server import CHECKOUT, COMMAND, start

__all__ = ["CHECKOUT", "COMMAND", "Crawler", "Outcome", "Running", "environment"]

TIMEOUT_S = 120.0
SECRET = {"identity.pem", "store", "lock", "nodes"}  # what goes on with a crawl; it lies beside the outputs


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended."""

    argv: Sequence[str]
    code: int
    stdout: str
    stderr: str

    def __str__(self) -> str:
        return f"{' '.join(self.argv)}\nexit {self.code}\n{self.stdout[-2000:]}\n--- stderr\n{self.stderr[-6000:]}"

    @property
    def summary(self) -> dict[str, Any]:
        """The last line of stdout under `--json`."""
        lines = self.stdout.splitlines()
        assert lines, f"nothing on stdout: {self}"
        summary = json.loads(lines[-1])
        assert isinstance(summary, dict), self
        return summary

    def ended_with(self, code: int) -> Outcome:
        """Itself, once the exit code was the expected one and no traceback was printed."""
        assert "Traceback" not in self.stderr, self
        assert self.code == code, self
        return self

    def one_line(self) -> str:
        """The message: the last line on stderr, the only one that is not progress."""
        lines = self.stderr.strip().splitlines()
        assert [line for line in lines if line.startswith("dhtcrawl: ")] == lines[-1:], self
        return lines[-1]


class Running:
    """A command under way; leaving the context kills whatever is left of it."""

    def __init__(
        self,
        argv: Sequence[str],
        home: Path,
        env: Mapping[str, str],
        wrapper: Sequence[str] = (),
        namespace: Path | None = None,
    ) -> None:
        self._argv = [*wrapper, "dhtcrawl", *argv]
        home.mkdir(parents=True, exist_ok=True)
        number = len(list(home.glob("*.out")))
        self._out, self._err = home / f"{number}.out", home / f"{number}.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = start(
                argv,
                stdout=out.fileno(),
                stderr=err.fileno(),
                cwd=home,
                env=environment(home) | dict(env),
                wrapper=wrapper,
                namespace=namespace,
            )
        self._status = Path(f"/proc/{self._process.pid}/status")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def stderr(self) -> str:
        return self._err.read_text(errors="replace")

    def send(self, number: signal.Signals, *, to_all: bool = False) -> None:
        """To the command alone, as `kill` would, or to all its processes, as a terminal; returns once it was delivered.

        Two signals that are pending together are one to the kernel.
        """
        if to_all:
            os.killpg(self._process.pid, number)
        else:
            self._process.send_signal(number)
        until(lambda: self.ended or not self._pending(number), f"{number.name} is delivered")

    def _pending(self, number: signal.Signals) -> bool:
        fields = dict(line.split(":", 1) for line in self._status.read_text().splitlines())
        pending = int(fields["ShdPnd"], 16) | int(fields["SigPnd"], 16)  # proc(5)
        return bool(pending >> (number - 1) & 1)

    def kill(self) -> None:
        """SIGKILL to all its processes, and wait for them to be gone."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)

    def wait(self, timeout_s: float = TIMEOUT_S) -> Outcome:
        """Let it end by itself.

        Raises:
            AssertionError: it did not; it has been killed.
        """
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"still running after {timeout_s:g} s: {self.outcome()}") from None
        return self.outcome()

    def outcome(self) -> Outcome:
        """What there is of it: whole once it has ended."""
        code = self._process.poll()
        stdout = self._out.read_text(errors="replace")
        return Outcome(self._argv, -1000 if code is None else code, stdout, self.stderr)


def environment(home: Path) -> dict[str, str]:
    """An environment in which nothing of the user's reaches the command."""
    ours = {key: value for key, value in os.environ.items() if not key.startswith(("DHTCRAWL_", "XDG_"))}
    return ours | {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_DATA_HOME": str(home / "data"),
        "XDG_STATE_HOME": str(home / "state"),
        "XDG_CACHE_HOME": str(home / "cache"),
        "PYTHONPATH": str(CHECKOUT),
    }


class Crawler:
    """Runs commands whose files all lie under `home`."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def start(self, *argv: str | Path, env: Mapping[str, str] | None = None, wrapper: Sequence[str] = ()) -> Running:
        return Running([str(word) for word in argv], self.home, env or {}, wrapper)

    def run(
        self,
        *argv: str | Path,
        env: Mapping[str, str] | None = None,
        wrapper: Sequence[str] = (),
        timeout_s: float = TIMEOUT_S,
    ) -> Outcome:
        with self.start(*argv, env=env, wrapper=wrapper) as running:
            return running.wait(timeout_s)

    def check(self, out: Path) -> None:
        """`verify` and `fsck` have nothing to say against `out`, and nothing in it is secret."""
        begun_before = out / "node"  # by an earlier version, which kept it there
        assert begun_before.is_dir() or not [path for path in out.rglob("*") if path.name in SECRET]
        self.run("verify", out).ended_with(0)
        self.run("fsck", "--out", out).ended_with(0)
