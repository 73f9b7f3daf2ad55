"""`dhtcrawl verify DIR`: are a crawl's outputs sound?"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click

from dhtcrawl.errors import Exit
from dhtcrawl.storage.outputs.verify import verify


@click.command("verify")
@click.argument("directory", metavar="DIR")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(directory: str, as_json: bool) -> int:
    """Read everything a crawl wrote to DIR and check that it is sound and agrees.

    Exit status 0 only without a problem.
    """
    report = verify(Path(directory))
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(report)))
    else:
        for problem in report.problems:
            click.echo(problem)
        if report.problems_total > len(report.problems):
            click.echo(f"… and {report.problems_total - len(report.problems)} more")
        click.echo(
            f"{report.records} records in {report.archives} archive files, {report.index_lines} index lines, "
            f"{report.pages} pages, {report.skipped} skipped: "
            + ("sound" if report.ok else f"{report.problems_total} problems")
        )
    return Exit.COMPLETE if report.ok else Exit.FAILURE
