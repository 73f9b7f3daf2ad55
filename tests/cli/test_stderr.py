"""What stands on stderr when log lines, messages and a progress line are written to it by turns."""

from __future__ import annotations

import errno
import io
import json
import logging
import os
import sys
import threading

import pytest

from dhtcrawl.cli.main import fail, tell
from dhtcrawl.cli.screen import PIPE_EVERY_S, TERMINAL_EVERY_S, Screen
from dhtcrawl.cli.stderr import STDERR

from .terminal import on_screen

log = logging.getLogger("dhtcrawl.a_part")


class Terminal(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True

    @property
    def lines(self) -> list[str]:
        """What a person sees."""
        return on_screen(self.getvalue())


# Not fixtures: pytest puts a stream of its own in the place of stderr between a fixture and its test.


def a_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    terminal = Terminal()
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("TERM", raising=False)
    monkeypatch.setattr(sys, "stderr", terminal)
    return terminal


def a_pipe(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stderr", pipe)
    return pipe


def test_on_a_terminal_a_log_line_comes_above_the_progress_line_and_tears_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = a_terminal(monkeypatch)
    STDERR.set_up("info", "text", quiet=False)
    screen = Screen()
    screen.say("crawling http://a/")
    screen.show("0.2 s  1 pages  a rather long line")
    log.info("a member came")
    fail("the disk is slow")
    assert terminal.lines[0] == "crawling http://a/"
    assert terminal.lines[1].endswith("INFO dhtcrawl.a_part: a member came")
    assert terminal.lines[2:] == ["dhtcrawl: the disk is slow", "0.2 s  1 pages  a rather long line"]
    screen.show("0.4 s  2 pages")
    tell("stopping")
    screen.clear()
    log.info("it ended")
    assert terminal.lines[3] == "dhtcrawl: stopping"
    assert terminal.lines[4].endswith("it ended")
    assert terminal.lines[5:] == [""]


def test_on_a_terminal_the_progress_line_is_never_wider_than_it_nor_moves_the_cursor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = a_terminal(monkeypatch)
    for columns in (80, 44):
        monkeypatch.setenv("COLUMNS", str(columns))
        Screen().show("x\n\x1b[2J" + "y" * 200)
        assert len(terminal.lines) == 1
        assert len(terminal.lines[0]) == columns - 1
        assert "\x1b" not in terminal.lines[0]
    monkeypatch.delenv("COLUMNS")
    Screen().show("z" * 200)
    assert len(terminal.lines[0]) == 79, "80 columns where nothing says how many"


def test_a_terminal_is_told_often_and_a_pipe_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    a_terminal(monkeypatch)
    monkeypatch.delenv("TERM", raising=False)
    assert Screen().every_s == TERMINAL_EVERY_S
    monkeypatch.setenv("TERM", "dumb")
    assert Screen().every_s == PIPE_EVERY_S, "it cannot clear a line"
    monkeypatch.delenv("TERM")
    STDERR.set_up("info", "json", quiet=False)
    assert Screen().every_s == PIPE_EVERY_S, "lines of JSON are for a program"
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    STDERR.reset()
    assert Screen().every_s == PIPE_EVERY_S


def test_piped_every_line_stays_and_none_has_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = a_pipe(monkeypatch)
    STDERR.set_up("warning", "text", quiet=False)
    screen = Screen()
    screen.say("crawling http://a/")
    screen.show("10.0 s  9 pages")
    log.warning("a policy failed")
    log.info("nothing to see")
    screen.clear()
    lines = pipe.getvalue().splitlines()
    assert lines[:2] == ["crawling http://a/", "10.0 s  9 pages"]
    assert lines[2].endswith("WARNING dhtcrawl.a_part: a policy failed")
    assert len(lines) == 3


def test_with_json_every_line_is_json_progress_and_messages_too(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = a_pipe(monkeypatch)
    STDERR.set_up("info", "json", quiet=False)
    STDERR.name_node("ab12")
    screen = Screen()
    screen.say("crawling http://a/")
    screen.show("10.0 s  9 pages")
    log.info("a member\ncame")
    fail("the disk\n  is full")
    tell("stopping")
    rows = [json.loads(line) for line in pipe.getvalue().splitlines()]
    assert [(row["level"], row["message"], row["node"]) for row in rows] == [
        ("info", "crawling http://a/", "ab12"),
        ("info", "10.0 s  9 pages", "ab12"),
        ("info", "a member\\ncame", "ab12"),
        ("error", "the disk is full", "ab12"),
        ("info", "stopping", "ab12"),
    ]


@pytest.mark.parametrize("form", ["text", "json"])
def test_quiet_leaves_errors_and_answers_to_the_user(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch)
    STDERR.set_up("error", form, quiet=True)
    screen = Screen()
    screen.say("crawling http://a/")
    screen.show("0.2 s  1 pages")
    log.warning("a policy failed")
    screen.clear()
    assert terminal.getvalue() == ""
    tell("stopping")
    log.error("a listener failed")
    fail("the disk is full")
    assert len(terminal.lines) == 4


class Closed(io.StringIO):
    """A pipe whose reader went away."""

    written = 0

    def write(self, _text: str) -> int:
        self.written += 1
        raise BrokenPipeError(32, "Broken pipe")


def test_a_reader_that_goes_away_ends_nothing_and_is_not_written_to_again(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = Closed()
    monkeypatch.setattr(sys, "stderr", closed)
    STDERR.set_up("debug", "text", quiet=False)
    log.info("one")
    fail("two")
    Screen().say("three")
    assert closed.written == 1
    monkeypatch.setattr(sys, "stderr", None)
    STDERR.set_up("debug", "text", quiet=False)
    log.info("one")
    Screen().show("two")


def test_a_call_of_a_logger_that_is_wrong_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = a_pipe(monkeypatch)
    STDERR.set_up("info", "text", quiet=False)
    (ours,) = (handler for handler in logging.getLogger().handlers if type(handler).__module__.startswith("dhtcrawl"))
    ours.handle(logging.LogRecord(log.name, logging.INFO, __file__, 1, "%d pages", ("many",), None))
    assert pipe.getvalue() == "a log line of dhtcrawl.a_part cannot be formatted: TypeError\n"


def test_lines_of_several_threads_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch)
    STDERR.set_up("info", "text", quiet=False)
    Screen().show("progress")

    def write(name: str) -> None:
        for number in range(50):
            log.info("%s says %d", name, number)

    threads = [threading.Thread(target=write, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    *said, last = terminal.lines
    assert last == "progress"
    assert sorted(line.partition("a_part: ")[2] for line in said) == sorted(
        f"{name} says {number}" for name in "abc" for number in range(50)
    )


def test_asyncio_is_heard_at_debug_only(monkeypatch: pytest.MonkeyPatch) -> None:
    a_pipe(monkeypatch)
    for level, heard in (("debug", True), ("info", False), ("debug", True)):
        STDERR.set_up(level, "text", quiet=False)
        assert logging.getLogger("asyncio").isEnabledFor(logging.ERROR) == heard


def test_setting_up_again_does_not_write_lines_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = a_pipe(monkeypatch)
    STDERR.set_up("info", "text", quiet=False)
    STDERR.set_up("info", "text", quiet=False)
    log.info("once")
    assert pipe.getvalue().count("once") == 1


def test_a_disk_that_was_full_for_a_moment_costs_the_lines_of_that_moment_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Filling(io.StringIO):
        full = False

        def flush(self) -> None:
            if self.full:
                self.truncate(0)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    disk = Filling()
    monkeypatch.setattr(sys, "stderr", disk)
    for disk.full, text in ((False, "before"), (True, "meanwhile"), (False, "after")):
        tell(text)
    assert disk.getvalue().endswith("dhtcrawl: after\n")
