"""`dhtcrawl submit`: give a crawl to a running swarm, and wait for it and gather it where that is wanted."""

from __future__ import annotations

import asyncio
import json
import logging
import shlex
from pathlib import Path
from typing import Any

import aiohttp
import click

from dhtcrawl.cli.causes import ASKED_IN_SWARM, first_causes, in_swarm, nothing_fetched, shown
from dhtcrawl.cli.client import NodeAccess, NodeClient, admin_of
from dhtcrawl.cli.collected import tell_gathered
from dhtcrawl.cli.logs import read_settings
from dhtcrawl.cli.main import fail, print_result, tell
from dhtcrawl.cli.options import admin_option, config_options, crawl_options, directory_option, json_option, log_options
from dhtcrawl.cli.places import node_dir
from dhtcrawl.cli.runtime import STORE_DIR
from dhtcrawl.cli.screen import Screen
from dhtcrawl.cli.seeds import seed_options, spec_of
from dhtcrawl.cli.signals import orderly_end
from dhtcrawl.cli.source import gather_from
from dhtcrawl.cli.table import short
from dhtcrawl.cli.wait import Interrupted, count_of, describe_end, exit_of, follow
from dhtcrawl.cli.words import some
from dhtcrawl.errors import DhtcrawlError, Exit, NodeUnreachable, UsageError
from dhtcrawl.node.stopping import Stopping
from dhtcrawl.spec import CrawlSpec
from dhtcrawl.storage.outputs.outputs import SUMMARY_FILE
from dhtcrawl.storage.outputs.summary import Summary

log = logging.getLogger(__name__)


@click.command("submit")
@click.argument("urls", nargs=-1, metavar="URL...")
@seed_options
@click.option("--wait", is_flag=True, help="Wait for its end; progress goes to stderr.")
@directory_option("--out", "With --wait: gather the outputs of all nodes here.")
@json_option
@admin_option
@crawl_options
@log_options
@config_options
def command(urls: tuple[str, ...], wait: bool, out: str | None, as_json: bool, **options: Any) -> int:
    """Give a crawl of URL... to a running swarm, and print its id.

    With --wait the exit status is the crawl's.
    """
    if out is not None and not wait:
        raise UsageError("--out: there is nothing to gather before the crawl has ended; add --wait")
    config = read_settings(options)
    spec = spec_of(config, urls, options.pop("seed_file"), options.pop("template"), options.pop("rules"))
    if config.origins.get("fetch.concurrency") == "flag":
        tell("--concurrency is each node's own, set where it is started; this crawl takes the nodes as they are")
    admin = admin_of(config)
    out_dir = None if out is None else Path(out)
    if out_dir is not None and ((out_dir / SUMMARY_FILE).exists() or (node_dir(out_dir) / STORE_DIR).exists()):
        raise UsageError(f"--out {out}: it holds another crawl; name another directory")
    return asyncio.run(_submit(admin, spec, wait=wait, out=out_dir, as_json=as_json))


async def _submit(access: NodeAccess, spec: CrawlSpec, *, wait: bool, out: Path | None, as_json: bool) -> int:
    async with access.client() as client:
        crawl = await _submitted(client, spec)
        log.info("the node at %s has taken crawl %s", client.name, short(crawl), extra={"crawl": crawl})
        if not (wait and as_json):
            print_result(json.dumps({"crawl": crawl}) if as_json else crawl, otherwise=_has_it(crawl))
        if not wait:
            return Exit.COMPLETE
        screen = Screen()
        screen.say(f"crawl {short(crawl)}: {some(spec.all_seeds)}")
        try:
            end = await follow(client, crawl, screen)
        except Interrupted:
            tell(
                f"the crawl goes on; see 'dhtcrawl crawls {short(crawl)}', end it with 'dhtcrawl stop {short(crawl)}', "
                f"have its pages with '{_gather_again(crawl, out)}'"
            )
            return Exit.INTERRUPTED
        ended = str(end.get("ended", ""))
        if out is None:
            return await _told(client, crawl, spec, end, as_json=as_json)
        failures: list[str] = []
        summary = await _gather(client, crawl, out, failures)
        if summary is None:
            return Exit.INTERRUPTED
    for failure in failures:
        fail(failure)
    return await tell_gathered(summary, ended, out, as_json=as_json, failed=bool(failures))


async def _submitted(client: NodeClient, spec: CrawlSpec) -> str:
    """Give the node the crawl; its id. Who has no answer is told that the node may have the crawl all the same.

    Raises:
        DhtcrawlError: what `NodeClient` raises.
    """
    unsure = "it may have taken the crawl: see 'dhtcrawl crawls' before you submit it again"
    try:
        return str((await client.submit(spec)).get("crawl", ""))
    except asyncio.CancelledError:  # by Ctrl-C
        tell(f"the node at {client.name} has not answered; {unsure}")
        raise
    except NodeUnreachable as error:
        if isinstance(error.__cause__, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
            raise  # it was not asked
        raise NodeUnreachable(f"{error}; {unsure}") from error


async def _told(client: NodeClient, crawl: str, spec: CrawlSpec, end: dict[str, Any], *, as_json: bool) -> Exit:
    """Print the end of a crawl whose outputs stay with the nodes, and why seeds brought nothing."""
    code, ask = exit_of(str(end.get("ended", ""))), in_swarm(client, crawl)
    nothing = code == Exit.NOTHING_FETCHED
    causes = "" if as_json or nothing else shown(await first_causes(spec.all_seeds, ask, ASKED_IN_SWARM))
    print_result(json.dumps(end) if as_json else describe_end(end) + causes, otherwise=_has_it(crawl))
    if nothing:
        raise await nothing_fetched(spec.all_seeds, ask, pages=count_of(end, "pages"))
    return code


async def _gather(client: NodeClient, crawl: str, out: Path, failures: list[str]) -> Summary | None:
    """The summary of what was gathered; None where the user wants no more. `failures` gets a line a node."""
    stopping, remedy = Stopping(), f"'{_gather_again(crawl, out)}' goes on"
    with orderly_end(stopping.ask, at_once=f"stopped at once; {remedy}"):
        async with stopping.breaks_off():
            try:
                summary, _ = await gather_from(client, crawl, out, say=failures.append)
            except DhtcrawlError as error:
                raise type(error)(f"{error}; the crawl has ended; {remedy}") from error
            return summary
    tell(f"interrupted; the crawl has ended; {remedy}")
    return None


def _has_it(crawl: str) -> str:
    """What to say where its id, or its end, cannot be printed."""
    return f"the swarm has this crawl, so do not submit it again: see 'dhtcrawl crawls {short(crawl)}'"


def _gather_again(crawl: str, out: Path | None) -> str:
    return f"dhtcrawl gather {short(crawl)} --out {'DIR' if out is None else shlex.quote(str(out))}"
