"""`dhtcrawl why URL`: where a URL stands, and why."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import click

from dhtcrawl.cli.client import ADMIN_FILE, NodeClient, asked
from dhtcrawl.cli.main import json_text
from dhtcrawl.cli.options import admin_option, json_option, store_options
from dhtcrawl.cli.places import find_data_dir
from dhtcrawl.cli.store import chosen, opened
from dhtcrawl.cli.table import printable
from dhtcrawl.crawl.explain import explain
from dhtcrawl.crawl.url_story import url_story
from dhtcrawl.errors import AdminRefused, DhtcrawlError, Exit, NodeUnreachable, StoreInUse, UsageError
from dhtcrawl.identity import load_or_create
from dhtcrawl.spec import web_address
from dhtcrawl.storage.store import catalog


@click.command("why")
@click.argument("url")
@click.option("--crawl", "crawl_prefix", metavar="CRAWL", help="Only this crawl, by the start of its id.")
@store_options
@json_option
@admin_option
def command(
    url: str, crawl_prefix: str | None, out: str | None, data_dir: str | None, as_json: bool, **options: Any
) -> int:
    """Say where URL stands in a crawl, and why: fetched, queued, skipped or never seen.

    Looks into the store of a crawl or a node. With --admin, when that node is
    running, or when there is no crawl here, the swarm is asked.
    """
    canonical = web_address(url)
    named = out is not None or data_dir is not None
    if options["node__admin"] is not None:
        if named:
            raise UsageError("--admin asks a running node, --out and --data-dir a store; leave one of them out")
        answers = asked(options, lambda client: client.why(canonical, crawl_prefix))
    else:
        try:
            found = find_data_dir(out, data_dir)
        except UsageError as nothing:
            if named:
                raise
            answers = _from_any_node(canonical, crawl_prefix, options, nothing)
        else:
            answers = _in_store(found, canonical, crawl_prefix, options)
    if as_json:
        click.echo(json_text(answers))
    else:
        click.echo("\n\n".join(map(_in_words, answers)) or "no crawl in this store")
    return Exit.COMPLETE


def _in_store(data_dir: Path, url: str, crawl_prefix: str | None, options: dict[str, Any]) -> list[dict[str, Any]]:
    try:
        with opened(data_dir) as (_, txn):
            return [
                explain(txn, crawl, url) | {"running": False} for crawl in chosen(catalog.crawls(txn), crawl_prefix)
            ]
    except StoreInUse as in_use:
        answers = _from_holder(data_dir, url, crawl_prefix, options)
        if answers is None:
            raise in_use from None
        return answers


def _from_any_node(
    url: str, crawl_prefix: str | None, options: dict[str, Any], otherwise: UsageError
) -> list[dict[str, Any]]:
    try:
        return asked(options, lambda client: client.why(url, crawl_prefix))
    except NodeUnreachable:
        raise otherwise from None


def _from_holder(
    data_dir: Path, url: str, crawl_prefix: str | None, options: dict[str, Any]
) -> list[dict[str, Any]] | None:
    """The answer of the process that holds `data_dir`; None where it is no node of a swarm that we can reach."""

    async def ask(client: NodeClient) -> list[dict[str, Any]] | None:
        try:
            # Another node may listen where we look, and knows other crawls.
            if (await client.status()).get("node") != load_or_create(data_dir).hex():
                return None
        except AdminRefused:
            raise
        except DhtcrawlError:
            return None
        return await client.why(url, crawl_prefix)

    with contextlib.suppress(OSError, UnicodeError):
        options = options | {"node__admin": (data_dir / ADMIN_FILE).read_text("ascii").strip()}
    return asked(options, ask)


def _in_words(answer: dict[str, Any]) -> str:
    story = url_story(answer)
    return "\n".join(map(printable, [f"{answer.get('url')} {story[0]}", *(f"  {line}" for line in story[1:])]))
