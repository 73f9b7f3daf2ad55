"""`dhtcrawl join`: run a node of a swarm."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import platformdirs

from dhtcrawl.cli.addresses import join_options_of
from dhtcrawl.cli.admin_token import make_missing_token
from dhtcrawl.cli.logs import read_settings
from dhtcrawl.cli.machine import usable_cores
from dhtcrawl.cli.main import nothing_held, tell
from dhtcrawl.cli.options import AUTO, config_options, join_options, log_options, node_options, nodes_option
from dhtcrawl.cli.swarm_secret import secrets_of


@click.command("join")
@nodes_option
@join_options
@node_options
@log_options
@config_options
@click.option("--json", "as_json", is_flag=True, help="Say where it listens in one line of JSON.")
def command(nodes: int, as_json: bool, **options: Any) -> int:
    """Run a node until it is stopped; without --bootstrap it begins a new swarm.

    Ctrl-C or SIGTERM hands over what it holds, a second one stops it at once.
    With --nodes several run, with ports and directories counted up.
    """
    with nothing_held():
        run = _prepared(nodes, as_json, options)
    return run()


def _prepared(nodes: int, as_json: bool, options: dict[str, Any]) -> Callable[[], int]:
    """What runs the nodes, once everything that it needs is imported.

    Raises:
        UsageError, ConfigError: an option or a setting is wrong.
        AdminRefused, SecretRefused, SwarmRefused: a secret or token is.
        StorageError: the file of a token cannot be written.
    """
    config = read_settings(options)
    made = make_missing_token(config)
    if made is not None:
        tell(f"a token for the admin port was made: {made}; commands need it, too, with --admin-token-file")
    if not config.node.data_dir:
        node = dataclasses.replace(config.node, data_dir=str(default_data_dir()))
        config = dataclasses.replace(config, node=node)
    join = join_options_of(config, as_json, secrets_of(config, os.environ, Path(config.node.data_dir)))
    if nodes == AUTO:
        nodes = usable_cores()
    # The rest needs LevelDB and the network.
    if nodes > 1:
        from dhtcrawl.cli.join_nodes import run_nodes

        return partial(run_nodes, nodes, config, join)
    from dhtcrawl.cli.swarmnode import run_node

    return partial(run_node, config, join)


def default_data_dir() -> Path:
    """Where a node of a swarm keeps its key and store unless it is told."""
    return platformdirs.user_data_path("dhtcrawl", appauthor=False)
