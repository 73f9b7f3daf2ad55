"""`dhtcrawl crawls --manual`: tasks that were given up, and what a person decides about them."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import click

from dhtcrawl.cli.client import NodeClient, asked
from dhtcrawl.cli.table import printable, short
from dhtcrawl.errors import Exit, UsageError
from dhtcrawl.spec import web_address
from dhtcrawl.web.api import Decision

ALL = "all"
_HINT = "one of 'dhtcrawl crawls --manual', or 'all'"
_DONE: Mapping[Decision, str] = {"release": "to be tried again", "drop": "dropped"}


async def given_up(client: NodeClient, crawl: str | None) -> list[dict[str, Any]]:
    """For each crawl, or the one named: its id, and what `NodeApi.given_up` says."""
    known = [str(row.get("crawl")) for row in await client.crawls()] if crawl is None else [crawl]
    return [{"crawl": each, **await client.given_up(each)} for each in known]


def list_of(answers: list[dict[str, Any]], width: int) -> str:
    """A line for each URL, whole, and below it what happened."""
    lines: list[str] = []
    for answer in answers:
        rows = [row for row in answer.get("tasks", ()) if isinstance(row, Mapping)]
        if not rows and len(answers) > 1 and not answer.get("silent"):
            continue
        count = f"{len(rows)}{' or more' * bool(answer.get('cut'))}"
        lines += [""] * bool(lines) + [f"crawl {printable(short(answer.get('crawl')))}: {count} given up"]
        for row in rows:
            tries = row.get("attempts", 0)
            text = f"{tries} {'try' if tries == 1 else 'tries'}: {row.get('detail') or 'no more is known'}"
            lines.append(f"  {printable(row.get('url', ''))}")
            lines += textwrap.wrap(printable(text), max(width, 20), initial_indent="    ", subsequent_indent="    ")
        lines += [f"  {_silent(node)}" for node in answer.get("silent", ())]
    return "\n".join(lines) or "nothing was given up"


def decide(
    crawl: str | None, release: Sequence[str], drop: Sequence[str], options: dict[str, Any], *, as_json: bool
) -> int:
    """Release and drop tasks; 1 where a node did not answer.

    Raises:
        UsageError: the crawl is not named, an address cannot be used, or 'all' is both released and dropped.
        DhtcrawlError: what `asked` raises.
    """
    if not crawl:
        raise UsageError("which crawl? give the start of its id; see 'dhtcrawl crawls --manual'")
    wanted: dict[Decision, list[str] | None] = {}
    for decision, urls in (("release", release), ("drop", drop)):
        if urls:
            wanted[decision] = None if ALL in urls else [web_address(url, _HINT) for url in urls]  # type: ignore[index]
    if None in wanted.values() and len(wanted) > 1:
        raise UsageError("--release and --drop: 'all' can only be one of them")

    async def ask(client: NodeClient) -> dict[str, dict[str, Any]]:
        return {decision: await client.decide(crawl, decision, urls) for decision, urls in wanted.items()}

    answers = asked(options, ask)
    if as_json:
        click.echo(json.dumps(answers))
    for decision, answer in answers.items():
        if not as_json:
            click.echo(f"{answer.get('count', 0)} {_DONE[decision]}")  # type: ignore[index]
        for node in answer.get("silent", ()):
            click.echo(f"dhtcrawl: {_silent(node)}", err=True)
    return Exit.FAILURE if any(answer.get("silent") for answer in answers.values()) else Exit.COMPLETE


def _silent(node: object) -> str:
    return f"node {printable(short(node))} does not answer: what it owns is not among these"
