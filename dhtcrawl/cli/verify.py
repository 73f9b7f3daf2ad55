"""`dhtcrawl verify DIR`: are a crawl's outputs sound?"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click

from dhtcrawl.cli.options import json_option
from dhtcrawl.cli.places import check_gathered
from dhtcrawl.cli.screen import shown
from dhtcrawl.cli.table import printable
from dhtcrawl.errors import Exit
from dhtcrawl.storage.outputs.verify import VerifyReport, verify


@click.command("verify")
@click.argument("directory", metavar="DIR")
@json_option
def command(directory: str, as_json: bool) -> int:
    """Read everything a crawl wrote to DIR and check that it is sound and agrees.

    Exit status 0 only without a problem.
    """
    check_gathered(Path(directory))
    report = VerifyReport()
    counted = report.counters
    with shown(lambda: f"{counted.pages} pages, {counted.index_lines} index lines, {counted.records} records read"):
        verify(Path(directory), report)
    if as_json:
        found = {"problems": report.problems, "problems_total": report.problems_total}
        click.echo(json.dumps(dataclasses.asdict(counted) | found))
    else:
        for problem in report.problems:
            click.echo(printable(problem))  # whoever made the files chose the names in them
        if report.problems_total > len(report.problems):
            click.echo(f"… and {report.problems_total - len(report.problems)} more")
        click.echo(
            f"{counted.records} records in {counted.archives} archive files, {counted.index_lines} index lines, "
            f"{counted.pages} pages, {counted.skipped} skipped: "
            + ("sound" if report.ok else f"{report.problems_total} problems")
        )
    return Exit.COMPLETE if report.ok else Exit.FAILURE
