"""Where a node's secret comes from: a file that only its owner reads, the environment, or standard input.

The first of these that is there:

    --secret-file FILE, or DHTCRAWL_NODE_SECRET_FILE     `-`: standard input
    DHTCRAWL_SECRET                                      the secret itself
    node.secret_file in a file of settings
    DATA_DIR/secret

It is never on a command line, which other users of the machine can see.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from dhtcrawl.cli.secret_file import STDIN, read_secrets
from dhtcrawl.closed.secret import Ring, parse_ring
from dhtcrawl.config import Config

VARIABLE: Final = "DHTCRAWL_SECRET"
DEFAULT_FILE: Final = "secret"
_SETTING: Final = "node.secret_file"
_FIRST: Final = ("flag", "DHTCRAWL_NODE_SECRET_FILE")  # origins that go before the variable


class NodeSecrets(NamedTuple):
    """The secrets that a node begins with, and the file in which they may change; "" for none."""

    ring: Ring
    file: str


def secrets_of(config: Config, environ: Mapping[str, str], data_dir: Path) -> NodeSecrets | None:
    """The secrets of a node; None where there are none, and so no closed swarm.

    Raises:
        UsageError, ConfigError: the file that is named cannot be read; by whether an option named it.
        SecretRefused: others can read it, or it holds no secret.
    """
    named, held = config.node.secret_file, environ.get(VARIABLE, "")
    if held and config.origins.get(_SETTING) not in _FIRST:
        return NodeSecrets(parse_ring(held.replace(",", "\n"), VARIABLE), "")
    path = named or str(data_dir / DEFAULT_FILE)
    try:
        text = read_secrets(path)
    except FileNotFoundError as error:
        if not named:
            return None
        raise config.refusal(
            _SETTING, f" {path}: there is no such file; make it with 'dhtcrawl secret new {path}'"
        ) from error
    except OSError as error:
        raise config.refusal(_SETTING, f" {path}: cannot be read ({error.strerror}); check the path") from error
    if path == STDIN:
        return NodeSecrets(parse_ring(text, "standard input"), "")
    return NodeSecrets(parse_ring(text, path), str(Path(path).absolute()))
