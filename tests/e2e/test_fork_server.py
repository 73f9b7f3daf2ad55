"""A command that is forked is the process that a new interpreter would have been."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from .crawler import Crawler
from .deadline import until
from .stub import Answer, StubServer

NEW = {"PYTHONHASHSEED": "1"}  # asks for an interpreter of its own


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["--version"], 0),
        (["crawl", "--help"], 0),
        (["config", "show"], 0),
        (["crawl"], 2),
        (["crawl", "ftp://example.com/"], 2),
        (["crawl", "http://example.com/", "--set", "fetch.concurrency=0"], 4),
        (["verify", "nowhere"], 1),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_it_says_and_ends_as_a_new_interpreter_does(argv: list[str], code: int, crawler: Crawler) -> None:
    forked, new = crawler.run(*argv).ended_with(code), crawler.run(*argv, env=NEW).ended_with(code)
    assert (forked.stdout, forked.stderr) == (new.stdout, new.stderr)
    assert forked.stdout + forked.stderr


def test_it_has_a_session_and_a_directory_of_its_own_and_shares_no_file_with_the_server(
    stub: StubServer, crawler: Crawler
) -> None:
    stub.answers["/"] = Answer(holds=True)
    command = ["crawl", f"{stub.url}/", "--allow-private", "--delay", "0", "--out", "out"]
    with crawler.start(*command) as forked, crawler.start(*command[:-1], "new", env=NEW) as new:
        until(lambda: stub.paths().count("/") == 2 or forked.ended or new.ended, "both wait for a page")
        pids = [running.pid for running in (forked, new)]
        assert [words_of(pid)[1:3] == ["-m", "dhtcrawl"] for pid in pids] == [False, True]
        for pid in pids:
            assert (os.getsid(pid), os.getpgid(pid)) == (pid, pid)
            assert Path(f"/proc/{pid}/cwd").readlink() == crawler.home
        server = parent_of(pids[0])
        assert server not in (os.getpid(), parent_of(pids[1]))
        assert files_of(server) & files_of(pids[0]) == set()
        forked.send(signal.SIGKILL)
        assert forked.wait().code == -signal.SIGKILL
        until(lambda: not Path(f"/proc/{pids[0]}").exists(), "nothing is left of it")


def words_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])  # proc(5), field 4


def files_of(pid: int) -> set[str]:
    """What its descriptors are, its own streams aside."""
    links = (path for path in Path(f"/proc/{pid}/fd").iterdir() if int(path.name) > 2)
    return {str(path.readlink()) for path in links} - {"anon_inode:[eventpoll]"}
