"""Processes that work for a command end with it, and the command ends in order when one of them is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from e2e.crawler import environment

from dhtcrawl.errors import DhtcrawlError
from dhtcrawl.export.workers import in_processes

TIMEOUT_S = 60.0
WAIT = "import signal, sys; sys.stdout.write('began\\n'); sys.stdout.flush(); signal.pause()"
BOTH_WAIT = f"""
from contextlib import ExitStack
from dhtcrawl.export.workers import in_processes
with ExitStack() as stack:
    list(in_processes(exec, iter(enumerate([{WAIT!r}] * 2)), 2, stack))
"""
DIE = f"import os; os.kill(os.getpid(), {int(signal.SIGKILL)})"


def test_what_comes_back_has_the_order_of_the_pieces() -> None:
    pieces = [(number, f"{number} + 1") for number in range(20)]
    with ExitStack() as stack:
        assert list(in_processes(eval, iter(pieces), 2, stack)) == [(number, number + 1) for number in range(20)]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_processes_end_when_the_one_that_they_work_for_is_killed_or_interrupted(
    tmp_path: Path, number: signal.Signals
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BOTH_WAIT],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=tmp_path,
        env=environment(tmp_path),
        start_new_session=True,
    ) as ran:
        assert ran.stdout is not None
        try:
            assert [ran.stdout.readline() for _ in range(2)] == [b"began\n"] * 2
            ran.send_signal(number)
            # They have its standard output, too: it ends once all of them have.
            rest, _ = ran.communicate(timeout=TIMEOUT_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(ran.pid, signal.SIGKILL)
    assert rest == b""


@pytest.mark.parametrize(("processes", "advised"), [(2, 1), (5, 2)])
def test_a_killed_process_is_told_with_the_remedy(processes: int, advised: int) -> None:
    with (
        ExitStack() as stack,
        pytest.raises(DhtcrawlError, match=f"was killed, .*; run the same command with --processes {advised}, which"),
    ):
        list(in_processes(exec, iter([(0, DIE), (1, "pass")]), processes, stack))
