"""`dhtcrawl extract DIR`: the records of the pages that a crawl has archived."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click

from dhtcrawl.cli.left_out import tell_left_out
from dhtcrawl.cli.machine import usable_cores
from dhtcrawl.cli.options import require_readable
from dhtcrawl.cli.places import check_gathered
from dhtcrawl.cli.rules_files import checked_rules, rules_without_pages
from dhtcrawl.cli.screen import Screen
from dhtcrawl.errors import Exit, UsageError
from dhtcrawl.export.collection import collection, require_collection
from dhtcrawl.export.extraction import ExtractReport, extract_records
from dhtcrawl.storage.outputs.outputs import PAGES_DIR, PAGES_FILE, SUMMARY_FILE


@click.command("extract")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--rules", required=True, metavar="FILE", type=click.Path(path_type=Path), help="The rules (TOML).")
@click.option("--processes", type=click.IntRange(1, 256), metavar="N", help="How many; default: one a core.")
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
def command(directory: Path, rules: Path, processes: int | None, as_json: bool) -> int:
    """Extract records from the pages that a crawl or `gather` left in DIR.

    They go to DIR/records/, a file a rule, in the place of those that are
    there. Nothing is fetched. The same command goes on where an interrupted
    one stopped.
    """
    require_readable("--rules", str(rules))
    text = checked_rules(rules)
    check_gathered(directory)
    require_collection(directory)
    screen = _PagesRead()
    if not (directory / PAGES_DIR / PAGES_FILE).stat().st_size and not (directory / SUMMARY_FILE).exists():
        raise UsageError(
            f"{directory} has no pages yet: repeat the crawl's command to go on with it, and then this one"
        )
    with collection(directory) as opened:
        report = extract_records(opened, text, processes or usable_cores(), screen.show_pages)
    screen.clear()
    if as_json:
        click.echo(json.dumps({"pages": report.pages, "records": report.records, "rejected": report.rejected}))
    else:
        _tell(directory, report)
    tell_left_out(directory, report, without_body=report.without_body, unreadable_lines=report.unreadable_lines)
    return Exit.COMPLETE if report.is_whole else Exit.FAILURE


def _tell(directory: Path, report: ExtractReport) -> None:
    for rule, count in sorted(report.records.items()):
        click.echo(f"{directory / 'records' / rule}.jsonl: {count} records")
    if report.rejected:
        reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(report.rejected.items()))
        click.echo(f"{directory / 'reports' / 'rejected.jsonl'}: {reasons}")
    unused = rules_without_pages(directory, report.records)
    if unused:
        click.echo(f"no page is of the sites of the rules {', '.join(unused)}")
    if not report.records:
        click.echo(f"no records on {report.pages} pages; 'dhtcrawl try-rules' shows what the rules find on one")


class _PagesRead(Screen):
    """Says now and then how many pages were read."""

    def __init__(self) -> None:
        self._next = 0.0

    def show_pages(self, pages: int) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + self.every_s
            self.show(f"{pages} pages read")
