"""Options shared by commands, and how they become settings."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from dhtcrawl.cli.table import printable
from dhtcrawl.config import Config, load
from dhtcrawl.errors import ConfigError, SettingError, UsageError
from dhtcrawl.policy.registry import check as check_policy
from dhtcrawl.policy.registry import is_own
from dhtcrawl.policy.registry import names as policy_names
from dhtcrawl.spec import CHANGEABLE

AUTO: Final = 0  # of `--nodes`
NODES_MAX: Final = 256

F = TypeVar("F", bound=Callable[..., Any])


class _PolicyOption(click.Option):
    """`--policy`, whose help names all policies that this install knows; only for the help they are looked for."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        record = super().get_help_record(ctx)
        return record and (record[0], f"{record[1]} One of {printable(', '.join(policy_names()))}.")


# option → (setting, click's keyword arguments, help)
_Table = list[tuple[tuple[str, ...], str, dict[str, Any], str]]

_PATTERNS = {"multiple": True, "metavar": "REGEX"}
_PAIR = {"multiple": True, "metavar": "NAME=VALUE"}
_CRAWL: _Table = [
    (("--scope",), "crawl.scope", {"metavar": "KIND"}, "Which links to follow: page, prefix, host, domain or any."),
    (("--include",), "crawl.include", _PATTERNS, "Follow only links that match (repeatable)."),
    (("--exclude",), "crawl.exclude", _PATTERNS, "Skip links that match (repeatable)."),
    (("-d", "--depth"), "crawl.depth", {"metavar": "N"}, "How many links away from a seed to go."),
    (("--max-pages",), "crawl.max_pages", {"metavar": "N"}, "Stop after N pages."),
    (("--time-limit",), "crawl.time_limit_s", {"metavar": "TIME"}, "Stop after this time, such as 2h."),
    (("--size-limit",), "crawl.size_limit_bytes", {"metavar": "SIZE"}, "Stop after this many bytes, such as 10GiB."),
    (("--delay",), "crawl.delay_s", {"metavar": "TIME"}, "Between two requests to a host; 0 for your own hosts only."),
    (("--key",), "crawl.key", {"metavar": "KIND"}, "What places a task in the key space: url, host or search."),
    (("--policy",), "crawl.policy", {"metavar": "NAME", "cls": _PolicyOption}, "Which node fetches a task."),
    (
        ("--policy-option",),
        "crawl.policy_options",
        _PAIR,
        "What the policy is to know, such as mode=pso (repeatable).",
    ),
    (("--copies",), "crawl.copies", {"metavar": "N"}, "Nodes that keep each page's body; default: 1."),
    (("--user-agent",), "crawl.user_agent", {"metavar": "TEXT"}, "The User-Agent header."),
    (("--contact",), "crawl.contact", {"metavar": "URL"}, "Where site owners reach you; added to the User-Agent."),
    (("--allow-private",), "crawl.allow_private", {"is_flag": True}, "Allow the seeds' hosts on private addresses."),
    (("--ignore-robots",), "crawl.ignore_robots", {"is_flag": True}, "Do not obey robots.txt and nofollow."),
]
_FETCH: _Table = [(("-c", "--concurrency"), "fetch.concurrency", {"metavar": "N"}, "Requests in flight on a node.")]
_NODE: _Table = [
    (("--data-dir",), "node.data_dir", {"metavar": "DIR"}, "Where the node keeps its key and store."),
    (("--disk-limit",), "storage.disk_limit", {"metavar": "SIZE|%"}, "Stop at this much data, or this full a disk."),
]
_LOG: _Table = [
    (("--log-level",), "node.log_level", {"metavar": "LEVEL"}, "debug, info, warning or error."),
    (("--log-format",), "node.log_format", {"metavar": "FORMAT"}, "text, or json: each line on stderr is JSON."),
]
_PLACE = {"metavar": "HOST:PORT"}
_FILE = {"metavar": "FILE"}
_JOIN: _Table = [
    (("--bootstrap",), "node.bootstrap", {"multiple": True} | _PLACE, "A node to join through (repeatable)."),
    (
        ("--listen",),
        "node.listen",
        _PLACE,
        "Where other nodes reach this one; default: 127.0.0.1:8468, with a secret or --open-swarm [::]:8468.",
    ),
    (("--advertise",), "node.advertise", _PLACE, "The address that others are told, where it is another."),
    (
        ("--outbound-only",),
        "node.outbound_only",
        {"is_flag": True},
        "Take no connections, as behind a NAT: own no keys, fetch what others lend.",
    ),
    (("--admin",), "node.admin", _PLACE, "Where commands and browsers reach it; default: 127.0.0.1:8469."),
    (
        ("--admin-token-file",),
        "node.admin_token_file",
        _FILE,
        "The token that --admin asks for; made if it is not there.",
    ),
    (("--admin-cert",), "node.admin_cert", _FILE, "A certificate, PEM: --admin speaks TLS."),
    (("--admin-key",), "node.admin_key", _FILE, "Its key, where that is in another file."),
    (("--label",), "node.labels", _PAIR, "What policies may know of this node, such as type=meta (repeatable)."),
    (
        ("--allow-policy",),
        "node.allowed_policies",
        {"multiple": True, "metavar": "MODULE:CLASS"},
        "A policy of your own that crawls may name (repeatable).",
    ),
    (
        ("--allow-network",),
        "node.private_networks",
        {"multiple": True, "metavar": "CIDR"},
        "A private network that crawls may reach from here, such as loopback (repeatable).",
    ),
    (("--secret-file",), "node.secret_file", _FILE, "The secret of a closed swarm; -: standard input."),
    (("--open-swarm",), "node.open_swarm", {"is_flag": True}, "Talk with other machines, without a secret."),
]
_ADMIN: _Table = [
    (("--admin",), "node.admin", _PLACE, "The node to ask; default: 127.0.0.1:8469."),
    (("--admin-token-file",), "node.admin_token_file", _FILE, "The token that the node asks for, if it does."),
    (("--admin-cert",), "node.admin_cert", _FILE, "The certificate that the node shows, if it speaks TLS."),
]
_TABLES = (_CRAWL, _FETCH, _NODE, _LOG, _JOIN)
# Settings that are lists: several --set make one.
_LISTS = (
    "crawl.include", "crawl.exclude", "crawl.policy_options", "node.bootstrap", "node.labels", "node.allowed_policies",
    "node.private_networks",
)  # fmt: skip


def _name(setting: str) -> str:
    return setting.replace(".", "__")


def _add(table: _Table, command: F) -> F:
    for names, setting, extra, text in reversed(table):
        default: Any = {"default": None} if not extra.get("multiple") else {}
        command = click.option(*names, _name(setting), help=text, **default, **extra)(command)
    return command


class _NodeCount(click.ParamType[int]):
    """A number of node processes, or `AUTO`."""

    name = "nodes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value).strip().lower()
        if text == "auto":
            return AUTO
        if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= NODES_MAX):
            self.fail(f"{value} is no number of nodes; use 1 to {NODES_MAX}, or auto for one on each core", param, ctx)
        return int(text)


def nodes_option(command: F) -> F:
    """`--nodes`."""
    return click.option(
        "--nodes",
        type=_NodeCount(),
        default="1",
        show_default=True,
        metavar="N|auto",
        help="Node processes on this machine; auto: as many as it has cores for this process.",
    )(command)


def config_options(command: F) -> F:
    """`--config` and `--set`."""
    command = click.option(
        "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Any setting, such as fetch.retries_max=5."
    )(command)
    return click.option("--config", "config_file", metavar="FILE", help="Settings in TOML.")(command)


def crawl_options(command: F) -> F:
    """What a crawl is, and how many requests it has in flight."""
    return _add(_CRAWL + _FETCH, command)


def limit_options(command: F) -> F:
    """What may change of a crawl that has begun."""
    return _add([row for row in _CRAWL if row[1].removeprefix("crawl.") in CHANGEABLE], command)


def node_options(command: F) -> F:
    """What a node is."""
    return _add(_NODE, command)


def log_settings_options(command: F) -> F:
    """`--log-level` and `--log-format`."""
    return _add(_LOG, command)


def log_options(command: F) -> F:
    """What a command says on stderr besides errors; `dhtcrawl.cli.logs.read_settings` takes them."""
    command = log_settings_options(command)
    command = click.option("-v", "--verbose", count=True, help="Log what happens; -vv: every request, wait and call.")(
        command
    )
    return click.option("-q", "--quiet", is_flag=True, help="No progress and no warnings: the result and errors.")(
        command
    )


def join_options(command: F) -> F:
    """Where a node of a swarm listens, and whom it joins."""
    return _add(_JOIN + _FETCH, command)


def admin_option(command: F) -> F:
    """Which running node a command asks."""
    return _add(_ADMIN, command)


def is_named(options: Mapping[str, Any], setting: str) -> bool:
    """Whether the command line names a setting, by its option or by `--set`."""
    assigned = (assignment.partition("=")[0] for assignment in options.get("assignments", ()))
    return options.get(_name(setting)) not in (None, ()) or setting in assigned


def load_config(options: dict[str, Any], implied: Mapping[str, str] | None = None) -> Config:
    """The effective configuration of a command.

    `implied` are settings that other options stand for, such as `-v`; one that the command line names is not taken.

    Raises:
        ConfigError: a setting is unknown or out of range.
        UsageError: `--set` without a value, or a wrong value of another option.
    """
    flags: dict[str, object] = {key: value for key, value in (implied or {}).items() if not is_named(options, key)}
    given: dict[str, str] = {}  # setting → its option
    for assignment in options.pop("assignments", ()):
        key, equals, value = assignment.partition("=")
        if not equals:
            raise UsageError(f"--set {assignment}: write it as section.key=value")
        if key in _LISTS:
            value = (*flags.get(key, ()), value)  # type: ignore[misc]
        flags[key] = value
    for names, setting, _, _ in (row for table in _TABLES for row in table):
        value = options.pop(_name(setting), None)
        if value is not None and value != ():
            flags[setting] = list(value) if isinstance(value, tuple) else value
            given[setting] = names[-1]
    file = options.pop("config_file", None)
    if file:
        require_readable("--config", file)
    else:
        file = _file_of_variable()
    return with_policy(load(file=Path(file) if file else None, environ=os.environ, flags=flags, options=given))


def _file_of_variable() -> str | None:
    """The settings file that DHTCRAWL_CONFIG names, if it does.

    Raises:
        ConfigError: it cannot be opened.
    """
    file = os.environ.get("DHTCRAWL_CONFIG")
    if not file:
        return None
    try:
        require_readable("DHTCRAWL_CONFIG", file)
    except UsageError as error:
        raise ConfigError(f"environment: {error}") from error
    return file


def with_policy(config: Config) -> Config:
    """Settings whose policy is there, with its options.

    Raises:
        ConfigError, UsageError: it is not; by whether an option named it.
    """
    try:
        check_policy(config.crawl.policy, config.crawl.policy_options, config.node.allowed_policies)
    except SettingError as error:
        raise config.refusal(error.key, error.problem) from error
    return config


def allow_named(config: Config) -> Config:
    """Let the nodes that a command starts import the policy that it names as module:Class: whoever names it allows it.

    Raises:
        ConfigError: it cannot be imported, or has not such an option.
    """
    name, allowed = config.crawl.policy, config.node.allowed_policies
    if not is_own(name) or name in allowed:
        return config
    return with_policy(replace(config, node=replace(config.node, allowed_policies=(*allowed, name))))


def option_of(setting: str) -> str:
    """The option for a setting; without one, the setting's own name."""
    return next((names[-1] for table in _TABLES for names, key, _, _ in table if key == setting), setting)


def require_readable(option: str, path: str) -> None:
    """Refuse a file that an option names and that is not there; what it says is not looked at.

    Raises:
        UsageError: it cannot be opened.
    """
    try:
        with Path(path).open("rb"):
            pass
    except OSError as error:
        raise UsageError(f"{option} {path}: cannot be read ({error.strerror}); check the path") from error


def read_seeds(path: str | None) -> list[str]:
    """The lines of a file (`-`: stdin; None: there are none) without comments and blank ones.

    Raises:
        UsageError: it cannot be read, or is not UTF-8.
    """
    if path is None:
        return []
    try:
        text = (sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()).decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"--seed-file {path}: cannot be read ({error.strerror}); check the path") from error
    except UnicodeDecodeError as error:
        raise UsageError(
            f"--seed-file {path}: cannot be read ({error}); check the path and that it is UTF-8"
        ) from error
    lines = (line.split(" #", 1)[0].strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def json_option(command: F) -> F:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="As JSON.")(command)


def _named(_: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """The name of a directory, which is not empty, as an unset variable of a script: that would be the working one."""
    if value == "":
        raise UsageError(f"{param.opts[0]} is empty; name a directory, such as ./ for the one that you are in")
    return value


def directory_option(name: str, text: str, *, required: bool = False) -> Callable[[F], F]:
    """An option that names a directory."""
    return click.option(name, metavar="DIR", callback=_named, required=required, help=text)


def store_options(command: F) -> F:
    """Which node's store a command looks at."""
    command = directory_option("--data-dir", "The node's data directory.")(command)
    return directory_option("--out", "A crawl's output directory; default: the newest one here.")(command)
