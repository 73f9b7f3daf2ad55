"""`-q`, `-v`, `--log-level` and `--log-format` of the commands that have them, alone and together."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from e2e.crawler import COMMAND, Crawler, environment
from e2e.deadline import until
from e2e.stub import Answer, StubServer

from dhtcrawl.cli import options as cli_options
from dhtcrawl.cli.logs import read_settings
from dhtcrawl.cli.main import cli
from dhtcrawl.cli.places import node_dir
from dhtcrawl.cli.stderr import STDERR
from dhtcrawl.errors import ConfigError, UsageError

from .conftest import TIMEOUT_S, Ask, Here, spawn

LOUD = ("crawl", "join", "submit", "gather")


def settings(**given: Any) -> tuple[str, str, bool]:
    """The level, the format and whether it is quiet, with these options."""
    options = {"quiet": False, "verbose": 0, "assignments": ()} | given
    config = read_settings(options)
    assert logging.getLogger().level == getattr(logging, config.node.log_level.upper())
    return config.node.log_level, config.node.log_format, STDERR.quiet


def test_every_command_that_shows_progress_has_the_four_options() -> None:
    for name in LOUD:
        command = cli.get_command(None, name)  # type: ignore[arg-type]
        assert command is not None
        assert {"quiet", "verbose", "node__log_level", "node__log_format"} <= {param.name for param in command.params}


def test_the_options_alone_set_the_level() -> None:
    assert settings() == ("warning", "text", False)
    assert settings(quiet=True) == ("error", "text", True)
    assert settings(verbose=1) == ("info", "text", False)
    assert settings(verbose=2) == ("debug", "text", False)
    assert settings(verbose=5) == ("debug", "text", False)
    assert settings(node__log_level="error") == ("error", "text", False)
    assert settings(node__log_format="json") == ("warning", "json", False)


def test_the_options_win_over_a_file_and_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text("[node]\nlog_level = 'info'\nlog_format = 'json'\n")
    assert settings(config_file=str(file)) == ("info", "json", False)
    assert settings(config_file=str(file), quiet=True) == ("error", "json", True)
    monkeypatch.setenv("DHTCRAWL_NODE_LOG_LEVEL", "error")
    monkeypatch.setenv("DHTCRAWL_NODE_LOG_FORMAT", "text")
    assert settings(config_file=str(file)) == ("error", "text", False)
    assert settings(config_file=str(file), verbose=1) == ("info", "text", False)
    monkeypatch.setenv("DHTCRAWL_NODE_LOG_LEVEL", "loud")
    with pytest.raises(ConfigError, match="use one of debug"):
        settings()


LEVEL_GIVEN: list[dict[str, Any]] = [{"node__log_level": "info"}, {"assignments": ("node.log_level=info",)}]


@pytest.mark.parametrize("given", LEVEL_GIVEN)
def test_quiet_with_a_level_hides_the_progress_and_logs_from_that_level_on(given: dict[str, Any]) -> None:
    assert settings(quiet=True, **given) == ("info", "text", True)


@pytest.mark.parametrize("given", LEVEL_GIVEN)
def test_verbose_with_a_level_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="both say what is logged"):
        settings(verbose=1, **given)


@pytest.mark.parametrize("name", LOUD)
def test_quiet_with_verbose_is_refused_by_every_command(name: str, here: Here, tmp_path: Path) -> None:
    arguments = {"crawl": ["http://a/"], "submit": ["http://a/"], "gather": ["abcd", "--out", str(tmp_path / "x")]}
    ended = here(name, *arguments.get(name, []), "-q", "-v")
    assert ended.code == 2
    assert "-q --log-level info" in ended.message()


def test_the_format_is_a_setting_like_others(here: Here) -> None:
    shown = json.loads(here("config", "show", "--log-format", "json", "--json").stdout)
    assert (shown["node.log_format"]["value"], shown["node.log_format"]["origin"]) == ("json", "flag")
    assert cli_options.option_of("node.log_format") == "--log-format"


def test_an_error_of_a_command_with_json_is_a_line_of_json(ask: Ask, tmp_path: Path) -> None:
    ended = ask("gather", "ffff", "--out", tmp_path / "x", "--log-format", "json")
    assert ended.code == 2
    (line,) = ended.stderr.splitlines()
    told = json.loads(line)
    assert (told["level"], told["logger"]) == ("error", "dhtcrawl")
    assert "ffff" in told["message"]


# -- as processes --


def crawl(stub: StubServer, *options: str) -> list[str]:
    return ["crawl", f"{stub.url}/", "--allow-private", "--delay", "0", "--out", "out", *options]


def test_quiet_says_nothing_on_stderr_and_the_result_on_stdout(tmp_path: Path) -> None:
    with StubServer() as stub:
        stub.page("/", "/a")
        stub.page("/a")
        ended = spawn(tmp_path, *crawl(stub, "-q"))
        assert (ended.code, ended.stderr) == (0, "")
        assert ended.stdout.startswith("crawl ")
        failed = spawn(tmp_path, *crawl(stub, "-q"))
        assert failed.code == 2
        assert "holds this crawl, complete" in failed.message(), "errors are told"


def test_with_json_every_line_of_a_crawl_is_json(tmp_path: Path) -> None:
    with StubServer() as stub:
        stub.page("/", "/a")
        stub.page("/a")
        ended = spawn(tmp_path, *crawl(stub, "--log-format", "json", "-vv"))
    assert ended.code == 0
    key = (node_dir(tmp_path / "out") / "identity.pem").read_text().splitlines()[1]
    assert key not in ended.stderr
    rows = [json.loads(line) for line in ended.stderr.splitlines()]
    assert rows[0].keys() >= {"ts", "level", "logger", "message"}
    assert f"crawling {stub.url}/" in [row["message"] for row in rows]


@pytest.mark.parametrize("options", [["-q"], ["-v"], ["-q", "--log-format", "json"]], ids=" ".join)
def test_ctrl_c_is_answered_once_and_twice(options: list[str], tmp_path: Path) -> None:
    with StubServer() as stub:
        stub.page("/", "/slow")
        stub.answers["/slow"] = Answer(b"<title>slow</title>", headers={"Content-Type": "text/html"}, holds=True)
        with Crawler(tmp_path).start(*crawl(stub, *options)) as running:
            until(lambda: "/slow" in stub.paths() or running.ended, "the slow page is asked for")
            running.send(signal.SIGINT)
            until(lambda: "stopping" in running.stderr or running.ended, "it answers")
            running.send(signal.SIGINT)
            forced = running.wait().ended_with(13)
        stub.release()
    assert "stopped at once" in forced.stderr
    if "json" in options:
        assert [json.loads(line)["level"] for line in forced.stderr.splitlines()] == ["info", "info"]
    elif "-q" in options:
        assert all(line.startswith("dhtcrawl: stop") for line in forced.stderr.splitlines())


@pytest.mark.parametrize("options", [["-q"], ["-v", "--log-format", "json"]], ids=" ".join)
def test_a_node_of_a_swarm_says_as_much_as_is_wanted_and_answers_to_ctrl_c(options: list[str], tmp_path: Path) -> None:
    join = ["join", "--data-dir", "data", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--json", *options]
    with Crawler(tmp_path).start(*join) as running:
        until(lambda: running.outcome().stdout.count("\n") == 1 or running.ended, "it takes part")
        running.send(signal.SIGINT)
        ended = running.wait().ended_with(0)
    lines = ended.stderr.splitlines()
    if "-q" in options:
        assert [line.partition(";")[0] for line in lines] == ["dhtcrawl: leaving"]
        return
    rows = [json.loads(line) for line in lines]
    assert {row["node"] for row in rows} == {json.loads(ended.stdout)["node"]}
    assert {"this node is active", "there is no swarm to join: this node begins one"} <= {
        row["message"] for row in rows
    }


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-", "| head -c 0", "2>&1 >out.txt | head -c 0"])
def test_a_crawl_ends_as_ever_whatever_stream_is_closed(closed: str, tmp_path: Path) -> None:
    """Closed from the start, or by its reader; no file or socket of the crawl takes the place of a stream."""
    with StubServer() as stub:
        stub.page("/", "/a")
        stub.page("/a")
        line = " ".join([*COMMAND, *crawl(stub, "-vv")])
        piped = "set -o pipefail; " if "|" in closed else ""
        ran = subprocess.run(
            ["bash", "-c", f"{piped}{line} {closed}"],
            cwd=tmp_path,
            env=environment(tmp_path),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    assert ran.returncode == 0, ran.stderr.decode()
    assert b"Traceback" not in ran.stderr
    assert json.loads((tmp_path / "out/summary.json").read_text())["complete"] is True
    assert not (node_dir(tmp_path / "out") / "store/LOG").read_bytes().count(b"DEBUG"), (
        "the log is in no file of the store"
    )


def test_seeds_from_a_closed_stdin_are_none(tmp_path: Path) -> None:
    ran = subprocess.run(
        ["bash", "-c", f"{' '.join(COMMAND)} crawl --seed-file - <&-"],
        cwd=tmp_path,
        env=environment(tmp_path) | {"HOME": os.fspath(tmp_path)},
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ran.returncode == 2
    assert b"no seed given" in ran.stderr
