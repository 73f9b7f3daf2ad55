"""`dhtcrawl config show` and `config check`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from dhtcrawl.cli.options import (
    config_options,
    crawl_options,
    json_option,
    load_config,
    log_settings_options,
    node_options,
    with_policy,
)
from dhtcrawl.config import all_settings, load
from dhtcrawl.errors import Exit


@click.group("config")
def command() -> None:
    """Show or check settings."""


@command.command("show")
@json_option
@crawl_options
@node_options
@log_settings_options
@config_options
def show(as_json: bool, **options: Any) -> int:
    """The effective value of every setting, and where it came from if it is not the default.

    What each is for: --json, or docs/configuration.md.
    """
    config = load_config(options)
    rows = {}
    for key, field in all_settings().items():
        section, _, name = key.partition(".")
        value = getattr(getattr(config, section), name)
        rows[key] = {"value": value, "origin": config.origins.get(key, "default"), "doc": field.metadata["doc"]}
    if as_json:
        click.echo(json.dumps(rows))
        return Exit.COMPLETE
    width = max(map(len, rows))
    for key, row in rows.items():
        origin = "" if row["origin"] == "default" else f"  # {row['origin']}"
        click.echo(f"{key.ljust(width)} = {json.dumps(row['value'])}{origin}")
    return Exit.COMPLETE


@command.command("check")
@click.argument("file")
def check(file: str) -> int:
    """Check FILE (TOML), and the environment with it."""
    # Alone first: a variable would hide what it overrides.
    count = len(load(file=Path(file)).origins)
    with_policy(load(file=Path(file), environ=os.environ))
    click.echo(f"{file}: {count} {'setting' if count == 1 else 'settings'}, all good")
    return Exit.COMPLETE
