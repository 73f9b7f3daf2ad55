"""The command line: help, errors in one line, and settings from everywhere."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dhtcrawl
from dhtcrawl.cli.main import outcome
from dhtcrawl.errors import StorageError

from .conftest import Here, spawn_anew

NAMES = (
    "", "crawl", "join", "submit", "gather", "status", "peers", "crawls", "pause", "resume", "stop", "leave", "locate",
    "why", "explain-host", "policies", "verify", "fsck", "forget", "config", "config show", "config check", "sim",
)  # fmt: skip
COMMANDS: list[list[str]] = [name.split() for name in NAMES]


@pytest.mark.parametrize("columns", ["80", "300"])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_explains_itself_within_the_terminal(
    command: list[str], columns: str, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    ended = here(*command, "--help")
    assert (ended.code, ended.stderr) == (0, "")
    assert ended.stdout.startswith("Usage: dhtcrawl")
    assert max(map(len, ended.stdout.splitlines())) <= min(int(columns), 100)
    assert here(*command, "-h").stdout == ended.stdout


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_option_says_what_it_is_for(command: list[str], here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    options = [line for line in here(*command, "--help").stdout.splitlines() if line.lstrip().startswith("-")]
    assert options
    assert all(len(line.split("  ", 2)) > 2 or line.endswith(("ME", "KIND")) for line in options)


def test_the_version_is_the_packages(here: Here) -> None:
    assert here("--version").stdout == f"dhtcrawl, version {dhtcrawl.__version__}\n"


def test_without_a_command_help_goes_to_stderr(here: Here) -> None:
    ended = here()
    assert (ended.code, ended.stdout) == (2, "")
    assert "Usage: dhtcrawl" in ended.stderr


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["crwal"], 2, "No such command 'crwal'"),
        (["crawl", "--dpeth", "1", "http://a/"], 2, "No such option"),
        (["crawl", "--depth"], 2, "--depth"),
        (["crawl"], 2, "no seed given; name at least one URL"),
        (["crawl", "http://a/", "--nodes", "0"], 2, "--nodes"),
        (["crawl", "http://a/", "--nodes", "2", "--data-dir", "d"], 2, "each has its own"),
        (["crawl", "http://a/", "--set", "crawl.depth"], 2, "write it as section.key=value"),
        (["crawl", "http://a/", "--set", "crawl.dpeth=1"], 4, "did you mean crawl.depth?"),
        (["crawl", "http://a/", "--set", "=1"], 4, "is no setting"),
        (["crawl", "http://a/", "--delay", "soon"], 2, "use a duration such as"),
        (["crawl", "http://a/", "--depth", "9" * 40], 2, "use a whole number up to"),
        (["crawl", "http://a/", "--include", "("], 2, "no regular expression"),
        (["crawl", "http://a/", "--exclude", "a(?!b)"], 2, "--exclude: 'a(?!b)' has a look-ahead (?!…)"),
        (["submit", "http://a/", "--include", r"(a)\1"], 2, r"has a backreference \1"),
        (["crawl", "http://a/", "--config", "missing.toml"], 2, "--config missing.toml: cannot be read"),
        (["crawl", "http://a/", "--log-level", "loud"], 2, "use one of debug, info, warning, error"),
        (["crawl", "http://a/", "--seed-file", "missing.txt"], 2, "cannot be read (No such file or directory); check"),
        (["crawl", "http://127.0.0.1/", "--out", ""], 2, "--out is empty; name a directory, such as ./ for"),
        (["submit", "http://a/", "--wait", "--out", ""], 2, "--out is empty; name a directory"),
        (["gather", "abcd", "--out", ""], 2, "--out is empty; name a directory"),
        (["forget", "abcd", "--outputs", "--out", ""], 2, "--out is empty; name a directory"),
        (["fsck", "--data-dir", ""], 2, "--data-dir is empty; name a directory"),
        (["config", "check"], 2, "FILE"),
        (["config", "check", "missing.toml"], 4, "cannot read missing.toml"),
        (["config", "shwo"], 2, "No such command 'shwo'"),
        (["why"], 2, "URL"),
        (["why", "mailto:x"], 2, "'mailto:x' is no web address"),
        (["why", "http://a/"], 2, "no crawl here; name one with --out DIR"),
        (["why", "http://a/", "--out", "nowhere"], 2, "nowhere.node holds no store"),
        (["fsck", "--data-dir", "nowhere"], 2, "nowhere holds no store"),
        (["forget"], 2, "CRAWL"),
        (["forget", "abc"], 2, "no crawl here"),
        (["verify"], 2, "DIR"),
        (["verify", "nowhere"], 1, "nowhere holds no crawl"),
        (["verify", "a", "b"], 2, "unexpected extra argument"),
    ],
)
def test_an_error_is_one_line_with_the_remedy_and_an_exit_code(
    args: list[str], code: int, says: str, here: Here, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = here(*args)
    assert ended.code == code, ended
    assert says in ended.message()
    assert list(tmp_path.iterdir()) == [], "nothing was made for a command that cannot be"


@pytest.mark.parametrize(
    "command",
    [["fsck", "--data-dir"], ["why", "http://a/", "--data-dir"], ["verify"], ["report"], ["export", "--format", "csv"]],
    ids=lambda command: command[0],
)
def test_a_directory_of_another_user_is_named_and_is_no_bug(
    command: list[str], here: Here, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    theirs, look = tmp_path / "theirs", os.stat

    def refuse(path: Any, *args: Any, **kwargs: Any) -> os.stat_result:
        if not isinstance(path, int) and theirs in (Path(os.fsdecode(path)), *Path(os.fsdecode(path)).parents):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return look(path, *args, **kwargs)

    monkeypatch.setattr(os, "stat", refuse)
    ended = here(*command, theirs)
    assert ended.code == 1
    assert f"{theirs}" in ended.message()
    assert "permission denied; run the command as a user who may" in ended.message()


def test_an_error_of_usage_names_the_commands_help(here: Here) -> None:
    assert here("crawl", "--dpeth").message().endswith("see 'dhtcrawl crawl --help'")


def test_a_seed_file_that_is_not_utf8_is_refused(here: Here, tmp_path: Path) -> None:
    path = tmp_path / "seeds.txt"
    path.write_bytes(b"http://a/\xff\n")
    ended = here("crawl", "--seed-file", path)
    assert ended.code == 2
    assert "check the path and that it is UTF-8" in ended.message()


def test_a_seed_from_stdin_that_is_no_address_is_refused_by_name(tmp_path: Path) -> None:
    ended = spawn_anew(tmp_path, "crawl", "--seed-file", "-", stdin=b"# seeds\n\nmailto:x # mine\n")
    assert ended.code == 2
    assert "'mailto:x' is no web address" in ended.message()


def test_an_argument_that_is_not_utf8_is_told_so(tmp_path: Path) -> None:
    for option in ("--user-agent", "--include"):
        ended = spawn_anew(tmp_path, "crawl", "http://a/", option, "\udcff")
        assert ended.code == 2
        assert "is not UTF-8; check the encoding" in ended.message()


# -- config --


def test_config_show_says_what_is_in_force_and_why(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "my.toml"
    file.write_text("[crawl]\ndepth = 1\nmax_pages = 7\nexclude = ['x']\n")
    monkeypatch.setenv("DHTCRAWL_CRAWL_DEPTH", "2")
    ended = here(
        "config", "show", "--config", file, "--delay", "200ms", "--ignore-robots", "--include", "a", "--include", "b",
        "--set", "storage.sync=off", "--json",
    )  # fmt: skip
    shown = json.loads(ended.stdout)
    chosen = {key: (row["value"], row["origin"]) for key, row in shown.items() if row["origin"] != "default"}
    assert chosen == {
        "crawl.depth": (2, "DHTCRAWL_CRAWL_DEPTH"),
        "crawl.max_pages": (7, str(file)),
        "crawl.exclude": (["x"], str(file)),
        "crawl.include": (["a", "b"], "flag"),
        "crawl.delay_s": (0.2, "flag"),
        "crawl.ignore_robots": (True, "flag"),
        "storage.sync": (False, "flag"),
    }
    lines = here("config", "show", "--config", file).stdout.splitlines()
    assert len(lines) == len(shown)
    assert [line.split(" = ")[1][:5] for line in lines if line.startswith("crawl.exclude ")] == ['["x"]']


def test_the_environment_can_name_the_file(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "my.toml"
    file.write_text("[crawl]\ndepth = 1\n")
    monkeypatch.setenv("DHTCRAWL_CONFIG", str(file))
    assert json.loads(here("config", "show", "--json").stdout)["crawl.depth"] == {
        "value": 1,
        "origin": str(file),
        "doc": "how many links away from a seed a page may be; -1: any",
    }


def test_a_file_that_is_not_there_is_told_with_what_named_it(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = here("config", "check", "missing.toml")
    assert ended.message() == "dhtcrawl: config: cannot read missing.toml: No such file or directory; check the path"
    monkeypatch.setenv("DHTCRAWL_CONFIG", "missing.toml")
    ended = here("config", "show")
    assert ended.code == 4
    assert ended.message().startswith("dhtcrawl: environment: DHTCRAWL_CONFIG missing.toml: cannot be read (No such ")


def test_several_set_of_a_list_make_a_list(here: Here) -> None:
    ended = here("config", "show", "--json", "--set", "crawl.include=a", "--set", "crawl.include=b=c")
    assert json.loads(ended.stdout)["crawl.include"]["value"] == ["a", "b=c"]


def test_an_error_of_one_of_several_tasks_is_told_like_any_other(capsys: pytest.CaptureFixture[str]) -> None:
    def command() -> int:
        raise ExceptionGroup("of tasks", [ExceptionGroup("of theirs", [ValueError("a"), StorageError("b is damaged")])])

    assert outcome(command) == 1
    assert capsys.readouterr().err == "dhtcrawl: b is damaged\n"


def test_config_check_counts_what_it_found_good(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "my.toml"
    file.write_text("[crawl]\ndepth = 1\nmax_pages = 2\n")
    monkeypatch.setenv("DHTCRAWL_CRAWL_DEPTH", "2")
    ended = here("config", "check", file)
    assert (ended.code, ended.stdout) == (0, f"{file}: 2 settings, all good\n")
    file.write_text("[crawl]\ndepth = 'deep'\n")
    assert "crawl.depth" in here("config", "check", file).message(), "hidden by the variable, and wrong all the same"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('policy = "fastest"', "config: crawl.policy (settings.toml): there is no policy 'fastest'"),
        ('policy = "bp-pso"\npolicy_options = ["mode=quick"]', "config: crawl.policy_options (settings.toml): mode is"),
    ],
)
def test_config_check_refuses_a_policy_that_a_crawl_would_not_take(
    text: str, says: str, here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("settings.toml").write_text(f"[crawl]\n{text}\n")
    checked, shown = here("config", "check", "settings.toml"), here("config", "show", "--config", "settings.toml")
    assert (checked.code, checked.message()) == (4, shown.message())
    assert says in checked.message()


def test_an_unknown_variable_stops_every_command_that_reads_settings(
    here: Here, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DHTCRAWL_CRAWL_DPETH", "2")
    for args in (["crawl", "http://a/"], ["config", "show"]):
        ended = here(*args)
        assert ended.code == 4
        assert "DHTCRAWL_CRAWL_DPETH is no setting" in ended.message()


def test_a_command_looks_for_cycles_seldom_and_never_among_its_modules() -> None:
    program = """
import gc
from dhtcrawl.cli import main
from dhtcrawl.cli.runtime import run_loop
async def frozen():
    return gc.get_freeze_count()
def run():
    print(gc.get_threshold()[0], run_loop(frozen))
    return 0
main.main(run)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    threshold, frozen = map(int, ended.stdout.split())
    assert threshold >= 10 * 700, "Python's own is 700"
    assert frozen > 10_000, "the modules of the command are among these"
