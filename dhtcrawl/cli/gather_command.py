"""`dhtcrawl gather`: what all nodes have of a crawl, in one directory, as often as one likes."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import click

from dhtcrawl.cli.client import NodeClient, admin_of, asked_at
from dhtcrawl.cli.collected import tell_gathered, tell_gathered_again
from dhtcrawl.cli.logs import read_settings
from dhtcrawl.cli.main import fail, tell
from dhtcrawl.cli.options import admin_option, directory_option, json_option, log_options
from dhtcrawl.cli.places import node_dir
from dhtcrawl.cli.progress import describe
from dhtcrawl.cli.runtime import STORE_DIR
from dhtcrawl.cli.source import gather_from, record_of
from dhtcrawl.cli.store import opened
from dhtcrawl.cli.table import short
from dhtcrawl.errors import Exit
from dhtcrawl.storage.outputs.outputs import SUMMARY_FILE
from dhtcrawl.storage.store import catalog
from dhtcrawl.storage.store.crawl_record import FINAL, CrawlRecord


@click.command("gather")
@click.argument("crawl")
@directory_option("--out", "Where the outputs of all nodes go.", required=True)
@json_option
@admin_option
@log_options
def command(crawl: str, out: str, as_json: bool, **options: Any) -> int:
    """Bring together in DIR what all nodes have of CRAWL, by the start of its id.

    The same command goes on where it was interrupted, and later brings what
    was missing. Of a crawl that still runs it brings what is there so far.
    Once the crawl has ended, the exit status is the crawl's; it is 1 when a
    node could not be asked.
    """
    admin = admin_of(read_settings(options))
    return int(asked_at(admin, partial(_gather, prefix=crawl, out=Path(out), as_json=as_json)))


async def _gather(client: NodeClient, prefix: str, out: Path, *, as_json: bool) -> Exit:
    known = await client.crawl(prefix)
    crawl, ended = str(known.get("crawl", "")), str(known.get("ended", ""))
    if known.get("state") == "ended":
        text = _complete_at(out, crawl)
        if text is not None and _is_last(out, await record_of(client, crawl)):
            return await tell_gathered_again(text, ended, out, crawl, as_json=as_json)
    failures: list[str] = []
    summary, _ = await gather_from(client, crawl, out, say=failures.append)
    for failure in failures:
        fail(failure)
    if known.get("state") != "ended":
        click.echo(summary.to_json() if as_json else describe(summary, None, out))
        tell(f"crawl {short(crawl)} goes on; the same command brings what it fetches from here on")
        return Exit.FAILURE if failures else Exit.COMPLETE
    return await tell_gathered(summary, ended, out, as_json=as_json, failed=bool(failures))


def _complete_at(out: Path, crawl: str) -> str | None:
    """The summary in `out`, on one line, if it holds this crawl and nothing was missing when that was written."""
    try:
        summary = json.loads((out / SUMMARY_FILE).read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(summary, dict) or summary.get("crawl") != crawl or summary.get("complete") is not True:
        return None
    return json.dumps(summary)


def _is_last(out: Path, record: CrawlRecord) -> bool:
    """Whether the complete collection in `out` is of the end that the crawl has now, and not of an earlier one.

    Raises:
        UsageError: a process holds the collection.
        StorageError: it cannot be read.
    """
    # Each end, and each release that had the crawl go on, is a version of the record: version 1 is the first end. Then
    # nothing has to be opened, and a collection may lie where nothing can be written.
    if record.version <= 1 or not (node_dir(out) / STORE_DIR).is_dir():
        return True
    with opened(node_dir(out)) as (_, txn):
        held = [crawl for crawl in catalog.crawls(txn) if crawl.crawl_id == record.crawl_id]
    # Without an end it was being gathered anew, and that broke off.
    return all(crawl.ended in FINAL and crawl.version >= record.version for crawl in held)
