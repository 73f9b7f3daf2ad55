"""A wrong value of an option is wrong usage (2); one in a file, a variable or by --set is bad configuration (4)."""

from __future__ import annotations

import resource
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from dhtcrawl.cli import options as cli_options
from dhtcrawl.cli import runtime
from dhtcrawl.cli.main import cli
from dhtcrawl.config import load
from dhtcrawl.errors import ConfigError, UsageError
from dhtcrawl.sim.scenario import Scenario, ScenarioResult

from .conftest import Here

# setting → a value that is none, what its writer is told
WRONG = {
    "crawl.scope": ("galaxy", "use one of page, prefix, host, domain, any"),
    "crawl.include": ("(", "no regular expression"),
    "crawl.exclude": ("[", "no regular expression"),
    "crawl.depth": ("deep", "use a whole number"),
    "crawl.max_pages": ("-1", "use 0 or more"),
    "crawl.time_limit_s": ("late", "use a duration such as"),
    "crawl.size_limit_bytes": ("huge", "use a size such as"),
    "crawl.delay_s": ("soon", "use a duration such as"),
    "crawl.key": ("path", "use one of url, host"),
    "crawl.policy": ("nearest", "there is no policy 'nearest'; there are xor, balanced"),
    "crawl.policy_options": ("speed=9", "xor has no option 'speed'"),
    "crawl.copies": ("17", "use 16 or less"),
    "crawl.user_agent": ("a\nb", "has a control character; remove it"),
    "crawl.contact": ("a\x7fb", "has a control character; remove it"),
    "fetch.concurrency": ("0", "use 1 or more"),
    "node.data_dir": ("a\nb", "has a control character; remove it"),
    "storage.disk_limit": ("101%", "use a share such as"),
    "node.log_level": ("loud", "use one of debug, info, warning, error"),
    "node.log_format": ("xml", "use one of text, json"),
    "node.bootstrap": ("8468", "use HOST:PORT"),
    "node.listen": ("8468", "use HOST:PORT"),
    "node.advertise": ("8468", "use HOST:PORT"),
    "node.admin": ("8469", "use HOST:PORT"),
    "node.admin_token_file": ("a\nb", "has a control character; remove it"),
    "node.admin_cert": ("a\nb", "has a control character; remove it"),
    "node.admin_key": ("a\nb", "has a control character; remove it"),
    "node.secret_file": ("a\nb", "has a control character; remove it"),
    "node.labels": ("fast", "is no NAME=VALUE"),
    "node.allowed_policies": ("os", "'os' is no module:Class; write it as in my_policies:Nearest"),
    "node.private_networks": ("10.1.2.3/8", 'an address inside of a network; use "10.0.0.0/8" for the network'),
}
# (command, option) → the same, of options that are no settings
OTHERS = {
    ("crawl", "nodes"): ("0", "0 is no number of nodes; use 1 to 256, or auto"),
    ("join", "nodes"): ("x", "x is no number of nodes; use 1 to 256, or auto"),
    ("crawl", "seed_file"): ("missing.txt", "--seed-file missing.txt: cannot be read"),
    ("submit", "seed_file"): ("missing.txt", "--seed-file missing.txt: cannot be read"),
    ("crawl", "template"): ("missing.toml", "--template missing.toml: cannot be read"),
    ("submit", "template"): ("missing.toml", "--template missing.toml: cannot be read"),
    ("crawl", "rules"): ("missing.toml", "--rules missing.toml: cannot be read"),
    ("submit", "rules"): ("missing.toml", "--rules missing.toml: cannot be read"),
    ("try-rules", "rules"): ("missing.toml", "--rules missing.toml: cannot be read"),
    ("try-rules", "url"): ("mailto:x", "--url mailto:x is no http(s) URL"),
    ("extract", "rules"): ("missing.toml", "--rules missing.toml: cannot be read"),
    ("extract", "processes"): ("0", "--processes"),
    ("init", "user"): ("Root User", "is no name of a user"),
    ("sim", "nodes"): ("none", "--nodes"),
    ("sim", "seed"): ("x", "--seed"),
    ("sim", "seeds"): ("0", "--seeds"),
    ("sim", "scenario_file"): ("missing.toml", "--scenario missing.toml: cannot be read"),
    ("sim", "duration"): ("0", "--duration"),
    ("sim", "jobs"): ("0", "--jobs"),
    ("crawls", "release"): ("mailto:x", "'mailto:x' is no web address"),
    ("crawls", "drop"): ("mailto:x", "'mailto:x' is no web address"),
    ("why", "data_dir"): ("missing", "missing holds no store"),
    ("why", "out"): ("missing", "missing.node holds no store"),
    ("fsck", "data_dir"): ("missing", "missing holds no store"),
    ("fsck", "out"): ("missing", "missing.node holds no store"),
    ("forget", "data_dir"): ("missing", "missing holds no store"),
    ("forget", "out"): ("missing", "missing.node holds no store"),
    ("ban", "secret_file"): ("missing", "missing: cannot be read"),
    ("export", "name"): ("pdf", "--format"),
    ("report", "to"): ("missing/r.html", "--to missing/r.html: there is no directory missing"),
    ("export", "rule"): ("none", "holds no crawl"),
    ("export", "to"): ("missing/pages.csv", "--to missing/pages.csv: there is no directory missing"),
}  # fmt: skip
EVERYWHERE = {
    "assignments": ("crawl.depth", "write it as section.key=value"),
    "config_file": ("missing.toml", "--config missing.toml: cannot be read"),
}
# Any text is one, or it is for the store or the node to say whether there is such a thing.
UNCHECKED = {
    ("crawl", "out"), ("submit", "out"), ("gather", "out"), ("why", "crawl_prefix"), ("locate", "crawl_prefix"),
}  # fmt: skip
ARGUMENTS = {
    "urls": ["http://a.example/"], "url": ["http://a.example/"], "crawl": ["abc"], "crawl_prefix": ["abc"],
    "host": ["a.example"], "directory": ["."], "file": ["a.toml"], "page": ["http://a.example/"],
    "node": ["0" * 40],
}  # fmt: skip
REQUIRED = {"name": "csv", "rules": "r.toml"}  # of an option that has to be there, a right value; others take any


def commands(group: click.Group, before: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*before, name))
        else:
            yield (*before, name), command


def wrong_value(name: str, option: str) -> tuple[str, str] | None:
    setting = option.replace("__", ".")
    return WRONG.get(setting) or EVERYWHERE.get(option) or OTHERS.get((name, option))


def valued() -> list[Any]:
    """Every option of every command that takes a value."""
    return [
        pytest.param(words, command, option, id=f"{' '.join(words)} {option.opts[-1]}")
        for words, command in commands(cli)
        for option in command.params
        if isinstance(option, click.Option) and not option.is_flag and not option.count
    ]


@pytest.mark.parametrize(("words", "command", "option"), valued())
def test_a_wrong_value_of_an_option_is_wrong_usage_and_names_it(
    words: tuple[str, ...],
    command: click.Command,
    option: click.Option,
    here: Here,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert option.name is not None
    wrong = wrong_value(words[-1], option.name)
    if wrong is None:
        assert (words[-1], option.name) in UNCHECKED, "a new option: say above what a wrong value of it is"
        return
    value, says = wrong
    monkeypatch.chdir(tmp_path)
    arguments = [
        text
        for argument in command.params
        if isinstance(argument, click.Argument) and (argument.required or argument.name == "urls")
        for text in ARGUMENTS[str(argument.name)]
    ]
    arguments += [
        text
        for other in command.params
        if isinstance(other, click.Option) and other.required and other is not option
        for text in (other.opts[-1], REQUIRED.get(str(other.name), "there"))
    ]
    crawls = ["abc"] if words == ("crawls",) else []
    for name in option.opts:
        ended = here(*words, *arguments, *crawls, name, value)
        assert ended.code == 2, ended
        assert says in ended.message()
        if option.name.replace("__", ".") in WRONG:
            assert ended.message().startswith(f"dhtcrawl: {option.opts[-1]}")
    assert list(tmp_path.iterdir()) == [], "nothing was made for a command that cannot be"


@pytest.mark.parametrize("setting", WRONG)
@pytest.mark.parametrize("by", ["--set", "variable", "file"])
def test_the_same_value_from_elsewhere_is_bad_configuration_and_names_the_setting(
    setting: str, by: str, here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    value, says = WRONG[setting]
    args = []
    if by == "--set":
        args = ["--set", f"{setting}={value}"]
    elif by == "variable":
        monkeypatch.setenv(f"DHTCRAWL_{setting.replace('.', '_').upper()}", value)
    else:
        section, _, key = setting.partition(".")
        quoted = "".join(f"\\u{ord(char):04x}" if ord(char) < 32 or ord(char) == 127 else char for char in value)
        (tmp_path / "my.toml").write_text(f'[{section}]\n{key} = "{quoted}"\n')
        args = ["--config", str(tmp_path / "my.toml")]
    ended = here("config", "show", *args)
    assert ended.code == 4, ended
    assert says in ended.message()
    assert ended.message().startswith(f"dhtcrawl: config: {setting}")


@pytest.mark.parametrize("setting", ["crawl.policy", "crawl.depth"])
def test_an_option_hides_what_is_wrong_elsewhere(setting: str, here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"DHTCRAWL_{setting.replace('.', '_').upper()}", WRONG[setting][0])
    good = {"crawl.policy": ("--policy", "xor"), "crawl.depth": ("--depth", "1")}[setting]
    assert here("config", "show", "--set", f"{setting}={WRONG[setting][0]}", *good).code == 0


def test_a_policys_option_is_blamed_where_it_was_given(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DHTCRAWL_CRAWL_POLICY_OPTIONS", "mode=pso")
    ended = here("config", "show", "--policy", "xor")
    assert ended.code == 4
    assert "crawl.policy_options (DHTCRAWL_CRAWL_POLICY_OPTIONS): xor has no option 'mode'" in ended.message()
    ended = here("config", "show", "--policy", "bp-pso", "--policy-option", "mode=fast")
    assert ended.code == 2
    assert "--policy-option: mode is 'fast'; with bp-pso use one of" in ended.message()


def test_a_file_that_cannot_be_read_is_to_blame_on_who_named_it(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    assert here("config", "show", "--config", "missing.toml").code == 2
    monkeypatch.setenv("DHTCRAWL_CONFIG", "missing.toml")
    ended = here("config", "show")
    assert ended.code == 4
    assert "DHTCRAWL_CONFIG missing.toml: cannot be read" in ended.message()


def test_what_a_scenario_says_is_configuration(here: Here, tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text("nodes = 'many'\n")
    assert here("sim", "--scenario", tmp_path / "my.toml").code == 4
    (tmp_path / "my.toml").write_text("bad_member = 'lies'\n")
    ended = here("sim", "--scenario", tmp_path / "my.toml")
    assert ended.code == 4
    assert "bad_member is 'lies'; use one of drops, forgets, answers, invents" in ended.message()
    (tmp_path / "my.toml").write_text("nodes = 5\nnode_types = 3\n")
    ended = here("sim", "--scenario", tmp_path / "my.toml", "--nodes", "2")
    assert ended.code == 4
    assert "node_types is 3, and there are 2 nodes" in ended.message()


@pytest.mark.parametrize("command", ["join", "init"])
def test_help_says_where_a_node_listens_with_a_secret_which_init_makes(here: Here, command: str) -> None:
    said = " ".join(here(command, "--help").stdout.split())
    assert "default: 127.0.0.1:8468, with a secret or --open-swarm [::]:8468." in said


def test_a_simulation_ends_after_a_number_of_seconds(here: Here) -> None:
    ended = here("sim", "--duration", "nan")
    assert ended.code == 2
    assert "--duration is nan; use a number of seconds above 0" in ended.message()


@pytest.mark.parametrize(
    "options", ["--nodes 7", "--random --bad-member --nodes 12 --duration 2.5", "--scenario 'my own.toml'"]
)
def test_the_command_that_repeats_a_broken_run_has_the_options_of_the_run(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str
) -> None:
    def broken(scenario: Scenario, seed: int) -> ScenarioResult:
        return ScenarioResult(scenario.nodes, seed, 0, 0, 0, ["I13: all stand still"], 0.0, 1.0, "")

    monkeypatch.setattr("dhtcrawl.cli.sim.simulate", broken)
    monkeypatch.chdir(tmp_path)
    Path("my own.toml").write_text("pages = 3\n")
    ended = here("sim", *shlex.split(options), "--seed", "4")
    assert ended.code == 1
    assert f"  again   dhtcrawl sim {options} --seed 4\n" in ended.stdout


def test_a_bad_member_is_drawn_with_the_rest_of_a_random_scenario(here: Here) -> None:
    ended = here("sim", "--bad-member")
    assert ended.code == 2
    assert "use it with --random" in ended.message()


ADDRESSES = [
    ("listen", "node.example.org:8468", "a name may mean several addresses"),
    ("listen", "[::]:8468", "is every address of this machine"),
    ("advertise", "0.0.0.0:8468", "others cannot reach that"),
    ("bootstrap", "127.0.0.1:0", "nobody can be reached there"),
    ("admin", "", "a node needs an address for commands"),
]


@pytest.mark.parametrize(("name", "value", "says"), ADDRESSES)
def test_an_address_that_cannot_be_used_so_is_blamed_where_it_was_given(
    name: str, value: str, says: str, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [] if name == "listen" else ["--listen", "127.0.0.1:0"]
    ended = here("join", "--open-swarm", *others, f"--{name}", value)
    assert ended.code == 2, ended
    assert ended.message().startswith(f"dhtcrawl: --{name}")
    assert says in ended.message()
    monkeypatch.setenv(f"DHTCRAWL_NODE_{name.upper()}", value)
    ended = here("join", "--open-swarm", *others)
    assert ended.code == 4, ended
    assert ended.message().startswith(f"dhtcrawl: config: node.{name} (DHTCRAWL_NODE_{name.upper()})")
    assert says in ended.message()


@pytest.mark.parametrize("args", [["status"], ["stop", "abc"], ["submit", "http://a.example/"]])
def test_no_node_to_ask_is_blamed_where_it_was_named(
    args: list[str], here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = here(*args, "--admin", "")
    assert ended.code == 2
    assert ended.message() == "dhtcrawl: --admin is empty; name a running node with --admin HOST:PORT"
    monkeypatch.setenv("DHTCRAWL_NODE_ADMIN", "")
    ended = here(*args)
    assert ended.code == 4
    assert ended.message().startswith("dhtcrawl: config: node.admin (DHTCRAWL_NODE_ADMIN) is empty")


@pytest.mark.parametrize(
    ("soft", "hard", "bound", "taken"),
    [
        (1024, 4096, 1 << 30, 4096),
        (1024, 1 << 20, 1 << 30, runtime.FILES_WANTED),
        (256, resource.RLIM_INFINITY, 1 << 30, runtime.FILES_WANTED),
        (256, resource.RLIM_INFINITY, 10_240, 800),  # where the system refuses more
        (1024, resource.RLIM_INFINITY, 10_240, 1024),
        (1 << 20, 1 << 20, 1 << 30, 1 << 20),
    ],
)
def test_a_process_may_open_as_many_files_as_the_system_allows(
    soft: int, hard: int, bound: int, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections and archives come on top of what is needed in any case: `fetch.concurrency` and 300."""
    now = [soft]

    def setrlimit(_: int, limits: tuple[int, int]) -> None:
        assert limits[1] == hard
        if limits[0] > bound:
            raise ValueError("current limit exceeds maximum limit")
        now[0] = limits[0]

    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", setrlimit)
    runtime.raise_file_limit(load(flags={"fetch.concurrency": 500}))
    assert now == [taken]


def test_more_requests_than_files_are_blamed_where_they_were_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 1024))
    with pytest.raises(ConfigError, match=r"config: fetch\.concurrency \(command line\) is 4000, which needs"):
        runtime.raise_file_limit(load(flags={"fetch.concurrency": 4000}))
    with pytest.raises(UsageError, match="--concurrency is 4000, which needs"):
        runtime.raise_file_limit(cli_options.load_config({"fetch__concurrency": "4000"}))
