"""What asks for the orderly end, and what ends the process at once."""

from __future__ import annotations

import asyncio
import importlib
import os
import pty
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from demo_site import DemoServer
from e2e.crawler import COMMAND, environment
from e2e.outputs import Outputs

from dhtcrawl.cli.main import run
from dhtcrawl.cli.signals import hang_ups, orderly_end
from dhtcrawl.errors import Exit

TIMEOUT_S = 60.0


@contextmanager
def hanging_up(handler: signal.Handlers) -> Iterator[None]:
    before = signal.signal(signal.SIGHUP, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.loops("asyncio")
async def test_a_terminal_that_goes_away_asks_once_however_often_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    with hanging_up(signal.SIG_DFL):
        with orderly_end(lambda: asked.append("end"), at_once="at once"):
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGHUP)
                await asyncio.sleep(0.05)
            assert (asked, ended) == (["end"], [])
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0.05)
            assert ended == [], "the first of those that a person sends"
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0.05)
            assert ended == [13]
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


@pytest.mark.loops("asyncio")
async def test_under_nohup_it_stays_ignored() -> None:
    with hanging_up(signal.SIG_IGN):
        assert hang_ups() == ()
        with orderly_end(lambda: pytest.fail("asked"), at_once=""):
            os.kill(os.getpid(), signal.SIGHUP)
            await asyncio.sleep(0.05)


def test_a_node_whose_terminal_is_closed_hands_over_and_ends_with_0(tmp_path: Path) -> None:
    ours, terminal = pty.openpty()
    command = [
        *COMMAND,
        "join",
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
        "--data-dir",
        str(tmp_path / "node"),
    ]
    with subprocess.Popen(
        command,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        cwd=tmp_path,
        env=environment(tmp_path),
        start_new_session=True,
        preexec_fn=_control_terminal,
    ) as node:
        os.close(terminal)
        try:
            said = b""
            while b"commands and browsers" not in said:
                said += os.read(ours, 4096)
            os.close(ours)
            assert node.wait(TIMEOUT_S) == 0
        finally:
            node.kill()


def _control_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


LATE = """
import os
from dhtcrawl.cli.main import main

class Late:
    def __del__(self, kill=os.kill, me=os.getpid()):
        kill(me, {number})

late = Late()  # until Python takes its modules down
main(lambda: 11)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_comes_once_all_is_done_changes_no_exit_code(number: signal.Signals, tmp_path: Path) -> None:
    code = LATE.format(number=int(number))
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path, timeout=TIMEOUT_S, check=False).returncode == 11


INTERRUPTED = """
import signal
from dhtcrawl.cli.main import main, nothing_held, outcome

class Named:
    def __set_name__(self, owner, name):
        signal.raise_signal(signal.SIGINT)

def command():
    {statement}

main(lambda: outcome(command))
"""
IN_A_CLASS = "type('Made', (), {'named': Named()})"
IN_CODE = "exec('signal.raise_signal(signal.SIGINT)')"  # as that of which `dataclasses` makes methods


@pytest.mark.parametrize(
    ("statement", "code", "told"),
    [
        (IN_A_CLASS, 11, "dhtcrawl: interrupted\n"),
        (IN_CODE, 11, "dhtcrawl: interrupted\n"),
        (f"with nothing_held(): {IN_CODE}", 0, "dhtcrawl: stopped before this node joined\n"),
        (f"with nothing_held(): {IN_A_CLASS}", 0, "dhtcrawl: stopped before this node joined\n"),
    ],
)
def test_a_signal_in_the_middle_of_an_import_ends_a_command_as_any_other_does(
    statement: str, code: int, told: str, tmp_path: Path
) -> None:
    """Imports make classes, as of settings, whose members have a say in it, and run code that is made for them."""
    (tmp_path / "interrupted.py").write_text(INTERRUPTED.format(statement=statement))
    ended = subprocess.run(
        [sys.executable, "-m", "interrupted"],
        cwd=tmp_path,
        timeout=TIMEOUT_S,
        check=False,
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stderr) == (code, told)


EARLY = """
import runpy, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Finder())
sys.argv[1:] = ["--version"]
{statement}
"""


@pytest.mark.parametrize("module", ["click", "dhtcrawl.errors", "dhtcrawl.loop_state"])
@pytest.mark.parametrize("entry", ["script", "module"])
def test_ctrl_c_while_the_command_itself_is_imported_ends_it_without_a_traceback(
    entry: str, module: str, tmp_path: Path
) -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    where, _, function = project["scripts"]["dhtcrawl"].partition(":")
    script = f"from {where} import {function}; {function}()"
    statement = script if entry == "script" else "runpy.run_module('dhtcrawl', run_name='__main__', alter_sys=True)"
    for ignored, code, said in ((False, Exit.INTERRUPTED, "dhtcrawl: interrupted\n"), (True, Exit.COMPLETE, "")):
        ended = subprocess.run(
            [sys.executable, "-c", EARLY.format(module=module, statement=statement)],
            cwd=tmp_path,
            timeout=TIMEOUT_S,
            check=False,
            capture_output=True,
            text=True,
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_IGN) if ignored else None,
        )
        assert (ended.returncode, ended.stderr) == (code, said), ended


# Ctrl-C comes within the transaction that writes the outputs, which waits until it was answered.
WRITING = """
import os, signal, sys, threading
import dhtcrawl.cli.crawl as command
import dhtcrawl.node.single as single
from dhtcrawl.cli.main import main

write, tell, answered, times = single.write_outputs, command.tell, threading.Event(), iter(range(1, 9))

def write_interrupted(*args, **options):
    if next(times) == {time}:
        os.kill(os.getpid(), signal.SIGINT)
        assert answered.wait({timeout})
    return write(*args, **options)

def tell_it(text):
    tell(text)
    answered.set()

single.write_outputs, command.tell = write_interrupted, tell_it
main()
"""


@pytest.mark.parametrize(
    ("time", "options", "code", "pages"),
    [
        (2, (), Exit.COMPLETE, 1),
        (2, ("--max-pages", "1"), Exit.PAGE_LIMIT, 1),
        (1, (), Exit.INTERRUPTED, 0),  # what the run before has left is brought in order first
    ],
)
def test_ctrl_c_while_the_outputs_are_written_waits_for_them_and_changes_no_exit_code(
    server: DemoServer, tmp_path: Path, time: int, options: tuple[str, ...], code: Exit, pages: int
) -> None:
    seeds = [f"{server.url}notes.txt"] + ([f"{server.url}flag.png"] if options else [])
    line = ["crawl", *seeds, "--scope", "page", "--allow-private", "--delay", "0", "--out", "out", *options]
    ended = subprocess.run(
        [sys.executable, "-c", WRITING.format(time=time, timeout=TIMEOUT_S), *line],
        cwd=tmp_path,
        env=environment(tmp_path),
        timeout=TIMEOUT_S,
        check=False,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == code, ended
    assert "stopping; waiting for the outputs to be written (again: at once)\n" in ended.stderr
    outputs = Outputs(tmp_path / "out")
    assert (outputs.summary()["pages"], len(list(outputs.pages()))) == (pages, pages)
    assert outputs.summary()["complete"] == (code == Exit.COMPLETE)


TERMINATED = """
import asyncio, os, signal
from dhtcrawl.cli.main import main, outcome

async def work():
    try:
        await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        print("put in order")
        raise

main(lambda: outcome(lambda: asyncio.run(work())))
"""


def test_sigterm_in_an_event_loop_cancels_what_runs_as_ctrl_c_does(tmp_path: Path) -> None:
    """Where it is raised in a task, others are left as they are, and asyncio tells of each."""
    for ignored in (False, True):
        ended = subprocess.run(
            [sys.executable, "-c", TERMINATED],
            cwd=tmp_path,
            timeout=TIMEOUT_S,
            check=False,
            capture_output=True,
            text=True,
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_IGN) if ignored else None,
        )
        assert (ended.returncode, ended.stderr) == (Exit.INTERRUPTED, "dhtcrawl: interrupted\n")
        assert ended.stdout == ("" if ignored else "put in order\n")


@pytest.mark.parametrize(("command", "code"), [("join", 0), ("submit", 11)])
def test_a_signal_while_the_module_of_a_command_is_imported_ends_a_node_with_0(
    command: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib, "import_module", interrupted)
    with pytest.raises(SystemExit) as ended:
        sys.exit(run([command]))
    assert ended.value.code == code
