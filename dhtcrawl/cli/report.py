"""`dhtcrawl report DIR`: one HTML page about a crawl."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from dhtcrawl import __version__
from dhtcrawl.cli.main import fail
from dhtcrawl.cli.places import check_gathered
from dhtcrawl.cli.screen import shown
from dhtcrawl.errors import Exit
from dhtcrawl.export.collection import require_collection
from dhtcrawl.export.report.report import Report
from dhtcrawl.export.report.words import counted
from dhtcrawl.export.target import check_outside, check_target, named, opened_target

_STDOUT = "-"
_SUFFIX = ".html"


@click.command("report")
@click.argument("directory", metavar="DIR")
@click.option("--to", metavar="FILE", help="Where it goes, - for stdout; default: beside DIR, named after it.")
@click.option("--overwrite", is_flag=True, help="Replace FILE if it is there.")
def command(directory: str, to: str | None, overwrite: bool) -> int:
    """Write one HTML page about a crawl.

    DIR is what the crawl or `gather` left. The page says how the crawl
    ended, what failed and where that was found, what was not fetched and
    why, and how the pages spread over time, hosts, types and nodes. It needs
    no script, no server and no network.

    FILE is there whole or not at all. The crawl may still run, or have been
    interrupted.
    """
    root = Path(directory)
    if to is None:
        _require_pages(root)  # what is wrong with DIR is wrong with the default name, too
    target = None if to == _STDOUT else named(root, _SUFFIX, to)
    if target is not None:
        check_outside(target, root)
        check_target(target, overwrite=overwrite)
    _require_pages(root)
    report = Report(root)
    with shown(lambda: f"{report.pages} pages read"):
        report.read()
    made = f"Made {datetime.now(UTC):%Y-%m-%d %H:%M} UTC by dhtcrawl {__version__}."
    page = report.page(root.resolve().name, made)
    with opened_target(target, overwrite=overwrite) as file:
        file.write(page)
    if target is not None:
        click.echo(f"wrote {target}: {report.pages} pages")
    for name, count in report.unreadable.items():
        fail(f"{counted(count, 'line', 'lines')} of {root}/{name} could not be read and were left out")
    return Exit.FAILURE if report.unreadable else Exit.COMPLETE


def _require_pages(root: Path) -> None:
    check_gathered(root)
    require_collection(root)
