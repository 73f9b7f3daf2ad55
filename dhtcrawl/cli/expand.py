"""`dhtcrawl expand FILE`: the actual tasks of a file of task templates."""

from __future__ import annotations

from pathlib import Path

import click

from dhtcrawl.cli.main import fail, json_text
from dhtcrawl.cli.template_files import read_template, too_long
from dhtcrawl.errors import Exit
from dhtcrawl.templates.expand import Skipped, count, expand


@click.command("expand")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--count", "only_count", is_flag=True, help="Print only how many tasks there are.")
def command(file: Path, only_count: bool) -> int:
    """Print the actual tasks of the task templates in FILE (TOML), one JSON object a line.

    Each has the URL of a page of results, and what it is for. Nothing is fetched.
    """
    template, dictionary = read_template(file)
    if only_count:
        click.echo(count(template))
        return Exit.COMPLETE
    skipped = 0
    for task in expand(template, dictionary):
        if isinstance(task, Skipped):
            skipped += 1
        else:
            click.echo(json_text(task._asdict()))
    if skipped:
        fail(too_long(file, skipped))
        return Exit.CONFIG
    return Exit.COMPLETE
