"""`dhtcrawl fsck`: does a store keep its invariants?"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click

from dhtcrawl.cli.options import json_option, store_options
from dhtcrawl.cli.runtime import NODE_DIR, find_data_dir
from dhtcrawl.cli.store import chosen, opened
from dhtcrawl.errors import Exit
from dhtcrawl.storage.store import catalog
from dhtcrawl.storage.store.files import DiskDirectory
from dhtcrawl.storage.store.fsck import check


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
    archive = (Path(out) if out is not None else found.parent) / "archive"
    sound = True
    with opened(found) as (_, txn):
        for record in chosen(catalog.crawls(txn), crawl):
            # With its outputs elsewhere, the store is checked without them.
            directory = DiskDirectory(archive) if found.name == NODE_DIR and archive.is_dir() else None
            findings = check(txn, record.crawl_id, record.spec, directory)
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
            )
    return Exit.COMPLETE if sound else Exit.FAILURE
