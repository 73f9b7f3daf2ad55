"""How far a command is, while it works without an event loop."""

from __future__ import annotations

import threading

import pytest

from dhtcrawl.cli import screen
from dhtcrawl.cli.screen import shown
from dhtcrawl.cli.stderr import STDERR

TIMEOUT_S = 30.0


def test_what_is_shown_is_asked_for_again_and_again_until_the_work_is_over(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(screen, "PIPE_EVERY_S", 0.001)
    STDERR.reset()
    asked, twice = [0], threading.Event()

    def line() -> str:
        asked[0] += 1
        if asked[0] == 2:
            twice.set()
        return f"{asked[0]} times"

    with shown(line):
        assert twice.wait(TIMEOUT_S)
    told = asked[0]
    assert capsys.readouterr().err.splitlines() == [f"{number} times" for number in range(1, told + 1)]
    assert "progress" not in [thread.name for thread in threading.enumerate()]


def test_a_thread_that_shows_ends_with_work_that_fails() -> None:
    with pytest.raises(OSError, match="full"), shown(lambda: "never"):
        raise OSError("full")
    assert "progress" not in [thread.name for thread in threading.enumerate()]
