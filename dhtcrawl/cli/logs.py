"""`-q`, `-v`, `--log-level` and `--log-format`: what a command says on stderr.

    -q   no progress; records from `error` on
    -v   records from `info` on; -vv: from `debug` on

They stand for `node.log_level` and win over a file and the environment. A level
that the command line names goes with `-q`, which is about the progress then; with
`-v` it is refused, since both say the same, and so is `-q` with `-v`.
"""

from __future__ import annotations

from typing import Any

from dhtcrawl.cli.options import is_named, load_config
from dhtcrawl.cli.stderr import STDERR
from dhtcrawl.config import Config
from dhtcrawl.errors import UsageError

_VERBOSE = ("", "info", "debug")
_LEVEL = "node.log_level"


def read_settings(options: dict[str, Any]) -> Config:
    """The effective configuration of a command with `log_options`; stderr is set up as it says.

    Raises:
        ConfigError: a setting is unknown or out of range.
        UsageError: an option has a wrong value, or two contradict each other.
    """
    quiet, verbose = bool(options.pop("quiet")), int(options.pop("verbose"))
    if quiet and verbose:
        raise UsageError("-q and -v contradict each other; for log lines without progress use -q --log-level info")
    if verbose and is_named(options, _LEVEL):
        raise UsageError("-v and --log-level both say what is logged; use one of them")
    level = "error" if quiet else _VERBOSE[min(verbose, 2)]
    config = load_config(options, {_LEVEL: level} if level else {})
    STDERR.set_up(config.node.log_level, config.node.log_format, quiet=quiet)
    return config
