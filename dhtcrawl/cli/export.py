"""`dhtcrawl export`: a collection in another format."""

from __future__ import annotations

from pathlib import Path

import click

from dhtcrawl.cli.left_out import tell_left_out
from dhtcrawl.cli.main import fail
from dhtcrawl.cli.places import check_gathered
from dhtcrawl.cli.screen import shown
from dhtcrawl.errors import Exit, UsageError
from dhtcrawl.export.collection import Collection, collection, has_ended, require_collection
from dhtcrawl.export.form import ExportFormat, ExportReport
from dhtcrawl.export.formats import FORMATS
from dhtcrawl.export.record_formats import RECORD_FORMATS, RecordFormat
from dhtcrawl.export.record_tables import tables
from dhtcrawl.export.target import check_outside, check_target, named, opened_target
from dhtcrawl.storage.outputs.outputs import PAGES_DIR, PAGES_FILE
from dhtcrawl.storage.outputs.record_files import RECORDS_DIR, RULES_FILE, record_files

_STDOUT = "-"


@click.command("export")
@click.argument("directory", metavar="DIR")
@click.option(
    "--format",
    "name",
    type=click.Choice(list(dict.fromkeys((*FORMATS, *RECORD_FORMATS)))),
    required=True,
    help="The format to write.",
)
@click.option("--rule", metavar="NAME", help="The records of this rule: csv, parquet, sqlite.")
@click.option(
    "--to", metavar="FILE", help="Where it goes, - for stdout (not wacz); default: beside DIR, named after it."
)
@click.option("--overwrite", is_flag=True, help="Replace FILE if it is there.")
def command(directory: str, name: str, rule: str | None, to: str | None, overwrite: bool) -> int:
    """Write what a crawl or `gather` left in DIR in another format.

    wacz: one file to replay the pages from. csv: a row a page, for
    spreadsheets. links: every link of every page, with its target's status,
    as JSON Lines. sqlite: the records of all rules, a table a rule. parquet,
    and csv with --rule: the records of one.

    FILE is there whole or not at all. DIR may be that of a crawl that was
    interrupted.
    """
    root = Path(directory)
    if name in RECORD_FORMATS and (rule is not None or name not in FORMATS):
        return _export_records(RECORD_FORMATS[name], root, rule, to, overwrite)
    if rule is not None:
        raise UsageError(f"--rule: a {name} file has pages, no records; leave it out")
    form = FORMATS[name]
    target = None if to == _STDOUT else _target(root, form, to)
    if to is None:
        _require_pages(root)  # what is wrong with DIR is wrong with the default name, too
    if target is not None:
        check_outside(target, root)
        check_target(target, overwrite=overwrite)
    elif not form.streams:
        raise UsageError(f"--to {to}: a {name} file is not written from front to back; name a file")
    _require_pages(root)
    report = ExportReport()
    with (
        shown(lambda: f"{report.written} {form.counts} written"),
        collection(root) as opened,
        opened_target(target, overwrite=overwrite) as file,
    ):
        form.write(opened, file, report)
    if target is not None:
        click.echo(f"wrote {target}: {report.written} {form.counts}")
    return _tell(root, opened, report)


def _export_records(form: RecordFormat, root: Path, rule: str | None, to: str | None, overwrite: bool) -> int:
    form.check()
    _require_records(root)
    target = None if to == _STDOUT else named(root, f".{rule}{form.suffix}" if rule else form.suffix, to)
    if target is not None:
        check_outside(target, root)
        check_target(target, overwrite=overwrite)
    elif not form.streams:
        raise UsageError(f"--to {to}: a {form.name} file is not written from front to back; name a file")
    chosen = tables(root, rule)
    if len(chosen) > 1 and not form.several:
        names = ", ".join(table.name for table in chosen[:10])
        raise UsageError(f"--format {form.name} takes the records of one rule; add --rule NAME: {names}")
    report = ExportReport()
    with shown(lambda: f"{report.written} records written"), opened_target(target, overwrite=overwrite) as file:
        form.write(chosen, file, report)
    if target is not None:
        click.echo(f"wrote {target}: {report.written} records")
    if (root / PAGES_DIR / PAGES_FILE).is_file() and not has_ended(root):
        fail(f"the crawl of {root} has not ended, and records of its last pages may be lacking: {_remedy(root)}")
    for problem in report.problems:
        fail(problem)
    return Exit.FAILURE if report.problems else Exit.COMPLETE


def _require_records(root: Path) -> None:
    """Refuse a directory in which there are no records yet; of one that never has any, `tables` tells."""
    if (root / RECORDS_DIR / RULES_FILE).is_file() and (record_files(root) or has_ended(root)):
        return
    _require_pages(root)
    if not has_ended(root):
        raise UsageError(f"{root} has no records yet: {_remedy(root)}")


def _remedy(root: Path) -> str:
    return (
        "they are written when a crawl ends; let it end (the same command goes on with one that was stopped), or take "
        f"those of the pages that are there by 'dhtcrawl extract --rules FILE {root}'"
    )


def _require_pages(root: Path) -> None:
    check_gathered(root)
    require_collection(root)


def _target(root: Path, form: ExportFormat, to: str | None) -> Path:
    if to is None:
        return named(root, form.suffix, to)
    if form.suffix_matters and not to.endswith(form.suffix):
        raise UsageError(f"--to {to}: the name of a {form.name} file ends in {form.suffix}")
    return Path(to)


def _tell(root: Path, opened: Collection, report: ExportReport) -> Exit:
    """Say on stderr what is missing or damaged; what a crawl or gathering told already is no failure."""
    tell_left_out(root, report, without_body=opened.without_body, unreadable_lines=opened.unreadable_lines)
    return Exit.FAILURE if report.problems_total or opened.unreadable_lines else Exit.COMPLETE
