"""`dhtcrawl fsck`: does a store keep its invariants?"""

from __future__ import annotations

import dataclasses
import json
from functools import partial
from pathlib import Path

import click

from dhtcrawl.cli.options import json_option, store_options
from dhtcrawl.cli.places import find_data_dir, outputs_of
from dhtcrawl.cli.screen import shown
from dhtcrawl.cli.store import chosen, opened
from dhtcrawl.errors import Exit
from dhtcrawl.storage.outputs.outputs import ARCHIVE_DIR
from dhtcrawl.storage.store import catalog
from dhtcrawl.storage.store.files import DiskDirectory
from dhtcrawl.storage.store.fsck import Findings, check


@click.command("fsck")
@click.argument("crawl", required=False)
@store_options
@json_option
def command(crawl: str | None, out: str | None, data_dir: str | None, as_json: bool) -> int:
    """Check a node's store against what must always hold.

    CRAWL is the start of a crawl's id; without it all are checked. The node
    must not be running. Nothing is changed.
    """
    found = find_data_dir(out, data_dir)
    sound = True
    with opened(found) as (_, txn):
        crawls = chosen(catalog.crawls(txn), crawl)
        if not crawls and not as_json:
            click.echo("no crawl in this store")
        for record in crawls:
            outputs = outputs_of(out, found, record.crawl_id)
            archive = None if outputs is None else outputs / ARCHIVE_DIR
            # With its outputs elsewhere, the store is checked without them.
            directory = DiskDirectory(archive) if archive is not None and archive.is_dir() else None
            findings = Findings()
            with shown(partial(_so_far, findings)):
                check(txn, record.crawl_id, record.spec, directory, findings)
            sound = sound and not findings.problems_total
            if as_json:
                click.echo(json.dumps({"crawl": record.crawl_id.hex()} | dataclasses.asdict(findings)))
                continue
            for problem in findings.problems:
                click.echo(problem)
            click.echo(
                f"crawl {record.crawl_id.hex()[:12]}: {findings.tasks} tasks, {findings.pages} pages, "
                f"{findings.links} links: "
                + (f"{findings.problems_total} problems" if findings.problems_total else "sound")
                + ("" if directory is not None else f", without the archive: {_lacking(outputs)}")
            )
    return Exit.COMPLETE if sound else Exit.FAILURE


def _so_far(findings: Findings) -> str:
    return f"{findings.tasks} tasks, {findings.pages} pages, {findings.links} links checked"


def _lacking(outputs: Path | None) -> str:
    return "name the outputs with --out" if outputs is None else f"it is not in {outputs}"
