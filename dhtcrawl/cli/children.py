"""Processes that wait to be told which node to run; `crawl --nodes` and `join --nodes` start theirs here.

Where the system allows, they are forked from the command once everything that a node needs is imported: that is half of
what the start of a node costs, and the memory of it is shared. A fork copies only the thread that calls it, and a lock
that another thread holds stays locked in the copy for ever. So it happens before the command has an event loop, an open
store or a second thread, and where there is one after all, or the system is not Linux (what macOS's libraries do behind
our back breaks in a fork), new interpreters are started instead. `dhtcrawl.cli.child` is what runs in both.

    stdin    a line of JSON, what to run; later `leave`. When it closes, the process ends: its parent is gone
    stdout   what `dhtcrawl join --json` prints; its end is the end of the process
    stderr   the command's own, or a log file
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NoReturn

from dhtcrawl.cli.child import LEAVE, SIGNALS, attend
from dhtcrawl.errors import DhtcrawlError

_THREADS: Final = Path("/proc/self/task")


class Child:
    """A process that was started."""

    def __init__(self, pid: int, words: int, said: int) -> None:
        """`words` is the end of a pipe that becomes its stdin; `said` that of its stdout."""
        self.pid = pid
        self.exit_code: int | None = None  # once it has ended; below 0: the signal that killed it
        self._words, self._said = os.fdopen(words, "wb", buffering=0), os.fdopen(said, "rb", buffering=0)
        self._heard: _Heard | None = None
        self._reaping = threading.Lock()

    def run(self, order: Mapping[str, Any]) -> None:
        """Tell it what to run, as `dhtcrawl.cli.child` takes it."""
        self._write(json.dumps(order).encode() + b"\n")

    def leave(self) -> None:
        """Ask for what the first SIGTERM asks for; more than once is the same."""
        self._write(LEAVE + b"\n")

    def dismiss(self) -> None:
        """Have it end at once."""
        self._words.close()

    async def next_line(self) -> str:
        """What it prints next, as soon as that is there; "" if it ended instead."""
        heard = await self._listen()
        return "" if heard.ended.is_set() and heard.lines.empty() else await heard.lines.get()

    async def wait(self) -> int:
        """Its exit code, once it has ended."""
        await (await self._listen()).ended.wait()
        # Its stdout closes an instant before the system has its exit code.
        return await asyncio.to_thread(self._reap)

    def kill(self) -> None:
        if self.exit_code is None:
            os.kill(self.pid, signal.SIGKILL)

    def end(self) -> None:
        """Kill it if it still runs, and leave nothing of it."""
        self.kill()
        self._reap()
        self._words.close()
        self._said.close()

    def let_go(self) -> None:
        """Close our ends of its pipes in a process that was forked for another child."""
        self._words.close()
        self._said.close()

    async def _listen(self) -> _Heard:
        if self._heard is None:
            self._heard = _Heard()
            heard = self._heard
            await asyncio.get_running_loop().connect_read_pipe(lambda: heard, self._said)
        return self._heard

    def _reap(self) -> int:
        with self._reaping:
            if self.exit_code is None:
                self.exit_code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.exit_code

    def _write(self, data: bytes) -> None:
        with suppress(BrokenPipeError, ValueError):  # it has ended, which `wait` tells, or was dismissed
            self._words.write(data)


class _Heard(asyncio.Protocol):
    """What a child prints: a line or two, and its end."""

    def __init__(self) -> None:
        self.lines: asyncio.Queue[str] = asyncio.Queue()
        self.ended = asyncio.Event()
        self._began = b""

    def data_received(self, data: bytes) -> None:
        *lines, self._began = (self._began + data).split(b"\n")
        for line in lines:
            self.lines.put_nowait(line.decode("utf-8", "replace"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.lines.put_nowait("")
        self.ended.set()


@contextmanager
def started(count: int, *, closed: bool = False, fork: bool | None = None) -> Iterator[list[Child]]:
    """So many children, which wait to be told what to run and are gone in the end.

    `closed` says that they will be nodes of a closed swarm; `fork` whether they are forked; None: where that works.

    Raises:
        DhtcrawlError: the system does not allow so many.
    """
    children: list[Child] = []
    forking = may_fork() if fork is None else fork
    if forking:
        _make_ready(closed=closed)
    try:
        # No signal may reach a child before it is ready for one.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            for _ in range(count):
                children.append(_start(children, fork=forking))
        except OSError as error:
            raise DhtcrawlError(
                f"process {len(children) + 1} of {count} cannot be started ({error.strerror}); use fewer with --nodes"
            ) from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        yield children
    finally:
        for child in children:
            child.end()


def may_fork() -> bool:
    """Whether a process that is forked from this one works: so it is on Linux, and where no other thread runs."""
    try:
        return sys.platform == "linux" and len(list(_THREADS.iterdir())) == 1
    except OSError:
        return False


def _start(others: Sequence[Child], *, fork: bool) -> Child:
    (stdin, words), (said, stdout) = os.pipe(), os.pipe()
    try:
        if fork:
            pid = os.fork()
            if pid == 0:
                _be_child(stdin, stdout, (words, said), others)
        else:
            pid = _spawn(stdin, stdout)
        return Child(pid, words, said)
    except OSError:
        os.close(words)
        os.close(said)
        raise
    finally:
        os.close(stdin)
        os.close(stdout)


def _spawn(stdin: int, stdout: int) -> int:
    command = [sys.executable, "-m", "dhtcrawl.cli.child"]
    streams = [(os.POSIX_SPAWN_DUP2, stdin, 0), (os.POSIX_SPAWN_DUP2, stdout, 1)]
    return os.posix_spawn(command[0], command, os.environ, file_actions=streams, setsigmask=SIGNALS)


def _make_ready(*, closed: bool) -> None:
    """Import what a node needs, and leave nothing behind that only one of two processes should have."""
    import encodings.idna  # noqa: F401 - which names of hosts are looked up by

    import uvloop  # noqa: F401

    import dhtcrawl.cli.swarmnode

    if closed:
        import dhtcrawl.cli.secret_watch
        import dhtcrawl.closed.tls  # noqa: F401

    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()  # what is buffered would be written by both
    gc.freeze()  # a collection in a child would touch, and so copy, every page


def _be_child(stdin: int, stdout: int, parents: Sequence[int], others: Sequence[Child]) -> NoReturn:
    """What a forked process does. It never returns into what the command was at."""
    code: object = 1
    try:
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)
        # A pipe that another process held, too, would not close with the command.
        for fd in (stdin, stdout, *parents):
            os.close(fd)
        for child in others:
            child.let_go()
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
        attend()
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code if isinstance(code, int) else 1)
