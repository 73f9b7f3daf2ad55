"""How a command ends that gathered a crawl: the summary, why seeds brought nothing, the exit code."""

from __future__ import annotations

import json
from pathlib import Path

from dhtcrawl.cli.causes import first_causes, in_collection, nothing_fetched, shown
from dhtcrawl.cli.main import print_result
from dhtcrawl.cli.places import node_dir
from dhtcrawl.cli.progress import describe
from dhtcrawl.cli.table import short
from dhtcrawl.cli.wait import exit_of, exit_with, stop_of
from dhtcrawl.errors import Exit
from dhtcrawl.storage.outputs.summary import Summary


async def tell_gathered(summary: Summary, ended: str, out: Path, *, as_json: bool, failed: bool = False) -> Exit:
    """Print what is gathered in `out` of a crawl that ended with the word `ended`; return the exit code.

    `failed` says that a node could not be asked, which was told.

    Raises:
        NothingFetched: it brought no content.
        StorageError: the collection cannot be read.
    """
    code = exit_with(ended, summary, whole=not failed)
    nothing, causes = None, ""
    if code == Exit.NOTHING_FETCHED or not as_json:  # opening a large collection takes its time
        with in_collection(node_dir(out), summary.crawl) as (seeds, ask):
            nothing = await nothing_fetched(seeds, ask, pages=summary.pages) if code == Exit.NOTHING_FETCHED else None
            causes = "" if as_json or nothing is not None else shown(await first_causes(seeds, ask))
    print_result(summary.to_json() if as_json else describe(summary, stop_of(ended), out) + causes)
    if nothing is not None:
        raise nothing
    return code


async def tell_gathered_again(summary: str, ended: str, out: Path, crawl: str, *, as_json: bool) -> Exit:
    """The same for a crawl that was gathered whole before; `summary` is its summary.json.

    Raises:
        NothingFetched: it brought no content.
        StorageError: the collection cannot be read.
    """
    print_result(summary if as_json else f"crawl {short(crawl)} is in {out}/, complete: nothing was left to gather")
    code = exit_of(ended)
    if code == Exit.NOTHING_FETCHED:
        with in_collection(node_dir(out), crawl) as (seeds, ask):
            raise await nothing_fetched(seeds, ask, pages=int(json.loads(summary).get("pages", 0)))
    return code
