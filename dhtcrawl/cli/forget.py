"""`dhtcrawl forget CRAWL`: drop what a store knows of a crawl."""

from __future__ import annotations

import click

from dhtcrawl.cli.options import store_options
from dhtcrawl.cli.places import find_data_dir, outputs_of
from dhtcrawl.cli.rules_files import files_of_rules
from dhtcrawl.cli.store import chosen, opened
from dhtcrawl.errors import Exit, UsageError
from dhtcrawl.node.single import FORGET_AT_ONCE
from dhtcrawl.storage.archive import archive
from dhtcrawl.storage.outputs.outputs import ARCHIVE_DIR, OUTPUT_FILES
from dhtcrawl.storage.store import catalog
from dhtcrawl.storage.store.crawl_record import CrawlRecord
from dhtcrawl.storage.store.files import DiskDirectory
from dhtcrawl.storage.store.txn import Txn


@click.command("forget")
@click.argument("crawl")
@store_options
@click.option("--outputs", is_flag=True, help="Remove the crawl's output files too.")
def command(crawl: str, out: str | None, data_dir: str | None, outputs: bool) -> int:
    """Drop a crawl's records and tombstones; CRAWL is the start of its id.

    Its outputs stay, unless --outputs is given. In the store of a node of a
    swarm the crawl has to have ended.
    """
    found = find_data_dir(out, data_dir)
    with opened(found) as (engine, txn):
        (record,) = chosen(catalog.crawls(txn), crawl)
        _check_over(txn, record)
        out_dir = outputs_of(out, found, record.crawl_id)
        if outputs and out_dir is None:
            raise UsageError(f"--outputs: {found} does not say where they are; name them with --out DIR")
        if outputs and out_dir is not None:
            archive.forget(DiskDirectory(out_dir / ARCHIVE_DIR), txn, record.crawl_id)
            # Those of the rules first: which they are, the rules say.
            for path in (*files_of_rules(out_dir), *(out_dir / name for name in OUTPUT_FILES)):
                path.unlink(missing_ok=True)
        writes: dict[bytes, bytes | None] = {}
        # So that no other node of a swarm brings it back (for 30 days that this one runs).
        catalog.put_closed(Txn(engine, writes), record.crawl_id)
        engine.write(writes, sync=True)
        step, dropped = catalog.DropStep(), 0
        while step.cursor is not None:
            writes = {}
            step = catalog.forget(Txn(engine, writes), record.crawl_id, FORGET_AT_ONCE, step.cursor)
            engine.write(writes, sync=True)
            dropped += step.dropped
    files = " and its output files" if outputs else ""
    click.echo(f"forgot crawl {record.crawl_id.hex()[:12]}: {dropped} records{files}")
    return Exit.COMPLETE


def _check_over(txn: Txn, record: CrawlRecord) -> None:
    """Refuse a crawl that goes on in a swarm: the other nodes would wait for what this one knew, and find no end.

    Raises:
        UsageError: so it is, as far as this node knows.
    """
    if record.ended or catalog.swarm_node(txn) is None:
        return
    crawl = record.crawl_id.hex()[:12]
    raise UsageError(
        f"crawl {crawl} has not ended, as far as this node of a swarm knows, and the others could not end it without "
        f"what it knows; start the node, end the crawl (dhtcrawl stop {crawl}), stop the node, and forget it then"
    )
