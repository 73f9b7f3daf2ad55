"""`dhtcrawl crawl`: one crawl from this machine, from start to outputs."""

from __future__ import annotations

import asyncio
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import click

from dhtcrawl.cli import differs
from dhtcrawl.cli.causes import first_causes, nothing_fetched, shown
from dhtcrawl.cli.default_out import new_out, nodes_begun, unfinished
from dhtcrawl.cli.disk import disk_watch
from dhtcrawl.cli.earlier import keep_outputs
from dhtcrawl.cli.logs import read_settings
from dhtcrawl.cli.machine import usable_cores
from dhtcrawl.cli.main import print_result, tell
from dhtcrawl.cli.options import (
    AUTO,
    allow_named,
    config_options,
    crawl_options,
    directory_option,
    log_options,
    node_options,
    nodes_option,
)
from dhtcrawl.cli.places import check_no_pages, check_whole, gone, node_dir, nodes_dir, remove_unbegun
from dhtcrawl.cli.progress import CrawlProgress, describe
from dhtcrawl.cli.runtime import locked, real_node, run_loop
from dhtcrawl.cli.screen import Screen
from dhtcrawl.cli.seeds import check_types, seed_options, spec_of
from dhtcrawl.cli.signals import orderly_end
from dhtcrawl.config import Config
from dhtcrawl.crawl.budget import Stop, is_raised
from dhtcrawl.crawl.explain import explain
from dhtcrawl.errors import Exit, UsageError
from dhtcrawl.node.single import Node, RunningCrawl
from dhtcrawl.policy.registry import check_needs
from dhtcrawl.spec import CrawlSpec
from dhtcrawl.storage.outputs.outputs import ARCHIVE_DIR, OutputDirs
from dhtcrawl.storage.outputs.summary import Summary
from dhtcrawl.storage.store.crawl_record import COMPLETE, FAILED, CrawlRecord


@click.command("crawl")
@click.argument("urls", nargs=-1, metavar="URL...")
@seed_options
@nodes_option
@directory_option("--out", "Where the outputs go; default: ./crawl-SITE-DATE.")
@crawl_options
@node_options
@log_options
@config_options
@click.option("--json", "as_json", is_flag=True, help="Print summary.json as the last line of stdout.")
def command(urls: tuple[str, ...], nodes: int, out: str | None, as_json: bool, **options: Any) -> int:
    """Crawl from URL... to the end and write WARC, CDXJ and JSONL files.

    The same command in the same directory goes on where an interrupted crawl
    stopped. Without --out it goes on with the newest such crawl that is here.
    """
    config = read_settings(options)
    config = allow_named(config)
    check_needs(config.crawl.policy, config.crawl.policy_options, config.node.allowed_policies)
    spec = spec_of(config, urls, options.pop("seed_file"), options.pop("template"), options.pop("rules"))
    check_types(spec, config)
    out_dir = Path(out) if out is not None else _default_out(spec, nodes, config)
    if nodes == AUTO:
        nodes = nodes_begun(out_dir) or usable_cores()
    if nodes > 1:
        if config.node.data_dir:
            raise config.refusal("node.data_dir", ": with several nodes each has its own, beside --out; leave it out")
        from dhtcrawl.cli.local_swarm import crawl_with

        return crawl_with(nodes, config, spec, out_dir, as_json)
    remove_unbegun(out_dir)
    if nodes_dir(out_dir).exists():
        raise UsageError(f"{out_dir} holds a crawl with several nodes; repeat its command to go on with it")
    data_dir = Path(config.node.data_dir) if config.node.data_dir else node_dir(out_dir)
    check_whole(out_dir, data_dir)
    with locked(data_dir):
        return run_loop(lambda: _crawl(config, spec, out_dir, data_dir, as_json))


def _default_out(spec: CrawlSpec, nodes: int, config: Config) -> Path:
    # A store that is named has the crawl, or has none.
    begun = unfinished(Path(), spec, nodes) if not config.node.data_dir else None
    if begun is None:
        return new_out(spec, date.today())
    Screen().say(f"a crawl of these seeds was begun in {begun}/ and goes on there; name another with --out")
    return begun


async def _crawl(config: Config, spec: CrawlSpec, out_dir: Path, data_dir: Path, as_json: bool) -> int:
    async with real_node(config, data_dir) as node:
        await _check_outputs(node, out_dir, data_dir)
        dirs = OutputDirs.on_disk(out_dir)
        record, resumed = await _find_or_create(node, spec, out_dir, dirs)
        paths = [out_dir] if data_dir.is_relative_to(out_dir) else [out_dir, data_dir]
        running = await node.prepare(record, dirs, disk_used=disk_watch(config.storage.disk_limit, paths))
        signals = orderly_end(
            partial(_stop, running), at_once="stopped at once; the same command goes on from what was written"
        )
        with signals, CrawlProgress(running, resumed=resumed, sync=config.storage.sync) as progress:
            summary, exit_code = await _run(running, progress)
        ask = partial(_explained, node, record)
        nothing = exit_code == Exit.NOTHING_FETCHED
        causes = "" if as_json or nothing else shown(await first_causes(spec.all_seeds, ask))
        text = describe(summary, running.crawl.stopped, out_dir) + causes
        print_result(summary.to_json() if as_json else text)
        if nothing:
            raise await nothing_fetched(spec.all_seeds, ask, pages=summary.pages)
    return exit_code


async def _explained(node: Node, record: CrawlRecord, url: str) -> dict[str, Any]:
    return await node.committer.submit(partial(explain, crawl=record, url=url))


async def _check_outputs(node: Node, out_dir: Path, data_dir: Path) -> None:
    """Refuse to go on without the outputs that the store knows of, and to write over others.

    Raises:
        UsageError: they are not there, or the store knows nothing of those that are.
    """
    crawls = await node.crawls()
    if not (out_dir / ARCHIVE_DIR).is_dir() and any(crawl.ended != FAILED for crawl in crawls):
        raise gone(out_dir, data_dir)
    if not crawls:
        check_no_pages(out_dir, data_dir)


async def _run(running: RunningCrawl, progress: CrawlProgress) -> tuple[Summary, Exit]:
    async with asyncio.TaskGroup() as group:
        ticking = group.create_task(progress.tick())
        try:
            return await running.run()
        finally:
            ticking.cancel()


async def _find_or_create(node: Node, spec: CrawlSpec, out_dir: Path, dirs: OutputDirs) -> tuple[CrawlRecord, bool]:
    """The crawl of this directory: a new one, or the one that the same command began, whatever its limits were.

    One that brought nothing is dropped: most likely an option was missing. Its outputs are kept if it has pages.

    Raises:
        UsageError: the directory holds another crawl, or this one complete.
        StorageError: the outputs of an earlier one cannot be kept.
    """
    crawls = await node.crawls()
    for crawl in [crawl for crawl in crawls if crawl.ended == FAILED]:
        keep_outputs(out_dir, crawl.crawl_id)
        await node.forget(crawl.crawl_id, dirs)
        crawls.remove(crawl)
    for crawl in crawls:
        if not crawl.spec.is_like(spec):
            continue
        if crawl.ended == COMPLETE and not is_raised(COMPLETE, crawl.settings, spec.settings):
            deeper = ", or a higher --depth to go on" if crawl.settings.depth >= 0 else ""
            raise UsageError(
                f"{out_dir} holds this crawl, complete; name another directory with --out to crawl anew{deeper}"
            )
        told = differs.changes_told(differs.plain(crawl.spec_now), spec)
        if told:
            Screen().say(f"other limits from here on: {told}")
        return await node.change(crawl, spec.settings), True
    if crawls:
        raise differs.refusal(out_dir, differs.plain(crawls[0].spec), spec)
    return await node.create_crawl(spec), False


def _stop(running: RunningCrawl) -> None:
    crawl = running.crawl
    if running.writing:
        tell("stopping; waiting for the outputs to be written (again: at once)")
    else:
        tell(f"stopping; waiting for {crawl.parts.frontier.in_flight} requests in flight (again: at once)")
    crawl.stop(Stop.INTERRUPTED)
