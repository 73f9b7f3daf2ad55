"""Commands as processes that are forked from one which has imported them all: that is most of what a start costs.

    test    ── words, directory, environment, files ──▶  server  ── fork ──▶  command
            ◀── its number; how it ended ──

A command that is forked has a session, files and a directory of its own, and is
told and killed like any other. What it does not have is the start of an
interpreter; `tests/cli` and whatever is run on a terminal or by another command
have that. The server is a process of its own, with one thread, and runs no
command itself: nothing of a test, nor of a command before, is in the next one.
Whoever asks for another interpreter (`PYTHONHASHSEED`), locale or time zone than
the server's own gets a new one. A command that is to run in a network namespace
enters it before it does anything.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
CHECKOUT = TESTS.parent
COMMAND = [sys.executable, "-m", "dhtcrawl"]
ORDER_BYTES_MAX = 100_000  # Linux takes as much in one message
ANSWER_MAX_S = 60.0  # a server has to import everything before it forks the first
# What an interpreter or the C library reads when a process begins, by the beginning of its name.
_READ_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "TZ")
_CLONE_NEWNET = 0x40000000


def start(
    argv: Sequence[str],
    *,
    stdout: int,
    stderr: int,
    cwd: Path,
    env: Mapping[str, str],
    wrapper: Sequence[str] = (),
    namespace: Path | None = None,
) -> subprocess.Popen[bytes] | Forked:
    """`dhtcrawl ARGV` in a session of its own, without input; `wrapper` stands before a command that is not forked.

    `namespace` is the file of a network namespace, for a command without a wrapper.
    """
    if wrapper or "sim" in argv[:1] or not _same_start(env):  # `sim` marks classes before they are imported
        return subprocess.Popen(
            [*wrapper, *COMMAND, *argv],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            cwd=cwd,
            env=env,
            start_new_session=True,
        )
    order = {"argv": list(argv), "cwd": str(cwd), "env": dict(env), "namespace": str(namespace or "")}
    return _server().fork(order, stdout, stderr)


def _same_start(env: Mapping[str, str]) -> bool:
    return _start_of(env) == _start_of(_environment())


def _start_of(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(_READ_AT_START)}


def _environment() -> dict[str, str]:
    """The server's own: nothing of ours is set, as in `crawler.environment`."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("DHTCRAWL_")}
    return ours | {"PYTHONPATH": str(CHECKOUT)}


class Forked:
    """What is used of `subprocess.Popen`, for a command that the server has forked."""

    def __init__(self, pid: int, ended: int) -> None:
        """`ended` is the end of a pipe that brings the exit code."""
        self.pid = pid
        self.returncode: int | None = None  # below 0: the signal that ended it
        self._ended = ended
        self._poll = select.poll()
        self._poll.register(ended, select.POLLIN)

    def poll(self) -> int | None:
        return self._look(0.0)

    def wait(self, timeout: float) -> int:
        """Its exit code.

        Raises:
            subprocess.TimeoutExpired: it still runs.
        """
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(["dhtcrawl"], timeout)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def _look(self, timeout_s: float) -> int | None:
        if self.returncode is None and self._poll.poll(timeout_s * 1000):
            said = os.read(self._ended, 16)
            assert said, "the server has ended before the command"
            self.returncode = int(said)
            os.close(self._ended)
        return self.returncode


class _Server:
    """The process that forks, as the tests see it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__)), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd=CHECKOUT,
                env=_environment(),
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is for the tests
            )
        self._connection = ours
        self._connection.settimeout(ANSWER_MAX_S)
        self._asking = threading.Lock()
        atexit.register(self.close)

    def fork(self, order: Mapping[str, Any], stdout: int, stderr: int) -> Forked:
        ended, tell = os.pipe()
        try:
            message = json.dumps(order).encode()
            assert len(message) <= ORDER_BYTES_MAX, "the environment is too long"
            with self._asking:
                socket.send_fds(self._connection, [message], [stdout, stderr, tell])
                pid = int(self._connection.recv(16))
        except BaseException:
            os.close(ended)
            raise
        finally:
            os.close(tell)
        return Forked(pid, ended)

    def close(self) -> None:
        """Without a test there is nothing to fork."""
        self._connection.close()
        self._process.wait()


@cache
def _server() -> _Server:
    return _Server()


# What follows runs in the server.


def _make_ready() -> None:
    """Import what commands do, and leave nothing to do twice."""
    import click

    from dhtcrawl.cli.main import cli

    context = click.Context(cli)
    for name in cli.list_commands(context):
        if name != "sim":
            cli.get_command(context, name)
    for name in ("uvloop", "dhtcrawl.cli.swarmnode"):  # they import it when they run
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a command would touch, and so copy, every page


def _serve(connection: socket.socket) -> dict[str, Any] | None:
    """Fork until nobody is left to ask for it; in a process that was forked, what it is to run."""
    with selectors.DefaultSelector() as waiting:
        waiting.register(connection, selectors.EVENT_READ)
        while True:
            for key, _ in waiting.select():
                if key.data is not None:
                    waiting.unregister(key.fd)
                    os.close(key.fd)
                    key.data()
                    continue
                message, files, _, _ = socket.recv_fds(connection, ORDER_BYTES_MAX, 3)
                if not message:
                    _end_all(waiting)
                    return None
                pid = os.fork()
                if pid == 0:
                    return {**json.loads(message), "files": files}
                stdout, stderr, tell = files
                os.close(stdout)
                os.close(stderr)
                waiting.register(os.pidfd_open(pid), selectors.EVENT_READ, partial(_tell, waiting, pid, tell))


def _end_all(waiting: selectors.BaseSelector) -> None:
    """A run of tests that was killed leaves no command behind."""
    for key in waiting.get_map().values():
        if key.data is not None and key.data.func is _tell:
            os.killpg(key.data.args[1], signal.SIGKILL)


def _tell(waiting: selectors.BaseSelector, pid: int, tell: int) -> None:
    """Say how a command has ended, and let its number go once that was heard: until then it is no other process's."""
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert ended is not None
    code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
    with suppress(BrokenPipeError):  # the test has ended before it
        os.write(tell, b"%d" % code)
    # Readable is what a pipe is to its writer when nobody reads any more.
    waiting.register(tell, selectors.EVENT_READ, partial(os.waitpid, pid, 0))


def _become(order: Mapping[str, Any], connection: socket.socket) -> None:
    """Be the process that `python -m dhtcrawl` would be, and say so."""
    os.setsid()
    stdout, stderr, _ = order["files"]
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    connection.send(b"%d" % os.getpid())
    connection.detach()
    if order["namespace"]:
        _enter(order["namespace"])
    os.closerange(3, 1 + max(int(each.name) for each in Path("/proc/self/fd").iterdir()))
    os.environ.clear()
    os.environ.update(order["env"])
    os.chdir(order["cwd"])
    sys.path[0] = order["cwd"]
    sys.argv = [str(CHECKOUT / "dhtcrawl" / "__main__.py"), *order["argv"]]


def _enter(namespace: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    with Path(namespace).open() as there:
        if libc.setns(there.fileno(), _CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), namespace)


def main() -> None:
    connection = socket.socket(fileno=int(sys.argv[1]))
    _make_ready()
    order = _serve(connection)
    if order is not None:
        from dhtcrawl.cli.main import main as run

        _become(order, connection)
        run()


if __name__ == "__main__":
    main()
