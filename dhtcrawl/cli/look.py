"""`dhtcrawl status`, `peers`, `crawls`, `locate`, `explain-host`: the swarm as a running node sees it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import click

from dhtcrawl.cli.client import NodeClient, admin_access
from dhtcrawl.cli.main import json_text
from dhtcrawl.cli.manual import decide, given_up, list_of
from dhtcrawl.cli.options import F, admin_option, json_option
from dhtcrawl.cli.table import Column, columns_there, fields, short, table, wrapped
from dhtcrawl.cli.words import clock, some, tally
from dhtcrawl.errors import Exit, UsageError
from dhtcrawl.spec import typed_url, web_address
from dhtcrawl.standing import span
from dhtcrawl.storage.store.outcomes import counts_a_kind, errors_by_kind, skipped_by_reason
from dhtcrawl.storage.store.plan_counters import by_model, counts_plans, in_words
from dhtcrawl.units import size
from dhtcrawl.url import host_of

WATCH_EVERY_S = 2.0
_CLEAR = "\x1b[H\x1b[2J"

Question = Callable[[NodeClient], Awaitable[Any]]
Words = Callable[[Any, int], str]


def look_options(command: F) -> F:
    """`--admin`, `--json` and `--watch`."""
    command = click.option("--watch", is_flag=True, help="Again every 2 seconds, until Ctrl-C.")(command)
    return json_option(admin_option(command))


def look(options: dict[str, Any], question: Question, words: Words, *, as_json: bool, watch: bool = False) -> int:
    """Ask a node and print the answer, with `watch` again and again.

    Raises:
        ConfigError, UsageError, AdminRefused: what `admin_access` raises.
        DhtcrawlError: what `NodeClient` raises.
    """
    access = admin_access(options)

    async def main() -> None:
        async with access.client() as client:
            while True:
                answer = await question(client)
                text = json_text(answer) if as_json else words(answer, columns_there())
                clears = watch and sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and not as_json
                # Without colours click would leave that out, too.
                click.echo(f"{_CLEAR}{text}" if clears else text, color=True if clears else None)
                if not watch:
                    return
                await asyncio.sleep(WATCH_EVERY_S)

    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        if not watch:
            raise
    return Exit.COMPLETE


@click.command("status")
@look_options
def status(as_json: bool, watch: bool, **options: Any) -> int:
    """The node that answers, and how the swarm looks from it."""
    return look(options, lambda client: client.status(), _status, as_json=as_json, watch=watch)


def _status(answer: Mapping[str, Any], width: int) -> str:
    waiting = answer.get("waiting")
    shown = {name: value for name, value in answer.items() if name != "waiting"}
    lines = [fields(shown, width)]
    for row in waiting if isinstance(waiting, list) else ():
        lines.append(wrapped(f"{short(row.get('crawl'))} waits: ", str(row.get("text")), width))
    return "\n".join(lines)


_PEERS = [
    Column("node", lambda row: short(row.get("node")) + (" *" if row.get("self") else "")),
    Column("address", lambda row: str(row.get("address", "")), cut=True),
    Column("state", lambda row: _state_of(row)),
    Column("round trip", lambda row: _milliseconds(row.get("rtt_s")), right=True, spare=1),
]


_SECRET = Column("secret", lambda row: str(row.get("secret") or ""))


@click.command("peers")
@look_options
def peers(as_json: bool, watch: bool, **options: Any) -> int:
    """All members of the swarm; the node that answers has a star."""
    return look(
        options,
        lambda client: client.peers(),
        lambda rows, width: table(
            rows, [*_PEERS, *([_SECRET] if any(row.get("secret") for row in rows) else [])], width
        ),
        as_json=as_json,
        watch=watch,
    )


def _state_of(row: Mapping[str, Any]) -> str:
    gone_s = row.get("gone_s")
    state = str(row.get("state", ""))
    if isinstance(gone_s, int | float):
        state = f"{state} {span(gone_s)} ago"
    breaches = row.get("breaches")
    return f"{state}, broke the protocol {breaches} times" if isinstance(breaches, int) and breaches else state


def _counter(name: str) -> Callable[[Mapping[str, Any]], Any]:
    return lambda row: _counters(row).get(name, 0)


def _counters(row: Mapping[str, Any]) -> Mapping[str, Any]:
    counters = row.get("counters")
    return counters if isinstance(counters, Mapping) else {}


_COUNTS = [
    Column("pages", lambda row: str(_counter("pages")(row)), right=True),
    Column("queued", lambda row: str(_counter("queued")(row)), right=True, spare=2),
    Column("errors", lambda row: str(_counter("errors")(row)), right=True, spare=3),
    Column("bytes", lambda row: size(int(_counter("body_bytes")(row))), right=True, spare=5),
]
_CRAWLS = [
    Column("crawl", lambda row: short(row.get("crawl"))),
    Column("state", lambda row: str(row.get("ended") or _standing(row).get("state") or row.get("state", ""))),
    *_COUNTS,
    Column("time", lambda row: clock(float(_counter("seconds")(row))), right=True, spare=4),
    Column("seeds", lambda row: some(row.get("seeds", []), row.get("seeds_total")), cut=True, spare=1),
]
_SHARES = [
    Column("node", lambda row: short(row.get("node"))),
    Column("state", lambda row: _share_state(row)),
    *_COUNTS,
]


def _standing(row: Mapping[str, Any]) -> Mapping[str, Any]:
    standing = row.get("standing")
    return standing if isinstance(standing, Mapping) else {}


def _share_state(row: Mapping[str, Any]) -> str:
    state, heard_s = str(row.get("state", "")), row.get("heard_s")
    return state if state == "active" or not isinstance(heard_s, int | float) else f"{state} {span(heard_s)}"


@click.command("crawls")
@click.argument("crawl", required=False)
@click.option("--manual", is_flag=True, help="The tasks that were given up, and why: for a person to look at.")
@click.option("--release", multiple=True, metavar="URL|all", help="Have such a task tried again; CRAWL is needed.")
@click.option("--drop", multiple=True, metavar="URL|all", help="Take such a task off the list; CRAWL is needed.")
@look_options
def crawls(
    crawl: str | None,
    manual: bool,
    release: tuple[str, ...],
    drop: tuple[str, ...],
    as_json: bool,
    watch: bool,
    **options: Any,
) -> int:
    """All crawls that the node knows, or one, by the start of its id, with what each node did."""
    if release or drop:
        return decide(crawl, release, drop, options, as_json=as_json)
    if manual:
        return look(options, lambda client: given_up(client, crawl), list_of, as_json=as_json, watch=watch)
    if crawl is None:
        return look(options, lambda client: client.crawls(), _all_crawls, as_json=as_json, watch=watch)
    return look(options, lambda client: client.crawl(crawl), one_crawl, as_json=as_json, watch=watch)


def _all_crawls(rows: list[dict[str, Any]], width: int) -> str:
    if not rows:
        return "no crawls; 'dhtcrawl submit URL' begins one"
    running = [row for row in rows if not row.get("ended")]
    ended = [row for row in rows if row.get("ended")]
    lines = [table([*running, *ended], _CRAWLS, width)]
    for row in running:
        text = _standing(row).get("text")
        if text:
            lines.append(wrapped(f"{short(row.get('crawl'))} waits: ", str(text), width))
        if row.get("counters_of") not in ("swarm", None):
            said = "the figures are this node's share; the coordinator does not answer"
            lines.append(wrapped(f"{short(row.get('crawl'))}: ", said, width))
    return "\n".join(lines)


def one_crawl(crawl: Mapping[str, Any], width: int) -> str:
    """A crawl over the whole swarm: its figures, what it waits for, what each node did."""
    counters = _counters(crawl)
    shown = {
        "crawl": crawl.get("crawl"),
        "state": crawl.get("ended") or _standing(crawl).get("state") or crawl.get("state"),
        "because": _standing(crawl).get("text"),
        "seeds": some(crawl.get("seeds", []), crawl.get("seeds_total")),
        "coordinator": crawl.get("coordinator"),
        "figures of": None if crawl.get("counters_of") == "swarm" else crawl.get("counters_of"),
        "waiting for": crawl.get("waiting_for"),
    }
    kinds = errors_by_kind({name: value for name, value in counters.items() if isinstance(value, int | float)})
    told = {
        name: value for name, value in counters.items() if value and not counts_a_kind(name) and not counts_plans(name)
    }
    skipped = skipped_by_reason({name: value for name, value in counters.items() if isinstance(value, int | float)})
    told |= {"errors by kind": ", ".join(tally(kinds)), "links skipped, by reason": ", ".join(tally(skipped))}
    plans = by_model({name: value for name, value in counters.items() if isinstance(value, int | float)})
    told |= {"plans": ", ".join(in_words(plans))}
    text = fields(shown | told, width)
    shares = crawl.get("per_node")
    if not isinstance(shares, list) or not shares:
        return text
    said = [wrapped(f"{short(row.get('node'))}: ", str(row["text"]), width) for row in shares if row.get("text")]
    return "\n".join([text, "", table(shares, _SHARES, width), *said])


@click.command("locate")
@click.argument("url")
@click.option("--crawl", "crawl_prefix", metavar="CRAWL", help="Only this crawl, by the start of its id.")
@json_option
@admin_option
def locate(url: str, crawl_prefix: str | None, as_json: bool, **options: Any) -> int:
    """Which node owns URL, and which have backups of its record."""
    web_address(url)
    return look(options, lambda client: client.locate(url, crawl_prefix), _places, as_json=as_json)


_PLACES = [
    Column("role", lambda row: str(row.get("role", ""))),
    Column("node", lambda row: short(row.get("node"))),
    Column("address", lambda row: str(row.get("address", "")), cut=True),
    Column("state", lambda row: str(row.get("state", ""))),
]


def _places(answers: list[dict[str, Any]], width: int) -> str:
    texts = []
    for answer in answers:
        owner = answer.get("owner")
        rows = [{"role": "owner", **owner}] if isinstance(owner, Mapping) else []
        rows += [{"role": "backup", **backup} for backup in answer.get("backups", ())]
        head = fields({"crawl": short(answer.get("crawl")), "key": answer.get("key")}, width)
        texts.append(f"{head}\n{table(rows, _PLACES, width)}")
    return "\n\n".join(texts) or "no crawls; 'dhtcrawl submit URL' begins one"


@click.command("explain-host")
@click.argument("host")
@json_option
@admin_option
def explain_host(host: str, as_json: bool, **options: Any) -> int:
    """What the swarm knows of HOST: its gatekeeper, robots.txt, clock, queue and failures."""
    url = typed_url(host)
    if url is None:
        raise UsageError(f"{host!r} is no host; use something like example.org or example.org:8080")
    return look(options, lambda client: client.explain_host(host_of(url)), host_in_words, as_json=as_json)


# What the verdict on a robots.txt, as the API names it, means for the pages of its site.
_ROBOTS = {
    "parse": "there is one, and its rules count",
    "unavailable": "there is none, so all pages are allowed",
    "unreachable": "the site does not give it, so no page is fetched for now",
}


def host_in_words(answer: Mapping[str, Any], width: int) -> str:
    """What a node says of a host, without the words that only programs need."""
    shown = dict(answer)
    robots = answer.get("robots")
    if isinstance(robots, Mapping):
        shown["robots"] = {
            origin: {agent: _ROBOTS.get(str(verdict), verdict) for agent, verdict in known.items()}
            if isinstance(known, Mapping)
            else known
            for origin, known in robots.items()
            if known not in ({}, None)
        }
    lease = answer.get("as_gatekeeper")
    if isinstance(lease, Mapping):
        shown["as_gatekeeper"] = {
            name: "no node" if value is None or value == [] else value for name, value in lease.items()
        }
    nodes = answer.get("nodes")
    said = nodes if isinstance(nodes, Mapping) else {}
    shown["nodes"] = [f"{short(node)} {_at_node(told)}" for node, told in said.items() if isinstance(told, Mapping)]
    return fields(shown, width)


def _at_node(told: Mapping[str, Any]) -> str:
    """How a host stands with one node."""
    named = (("queued", "queued"), ("in_flight", "in flight"))
    counts = [f"{told[name]} {words}" for name, words in named if name in told]
    return f"{told.get('state')} ({', '.join(counts)})" if counts else str(told.get("state"))


def _milliseconds(value: object) -> str:
    return f"{value * 1000:.1f} ms" if isinstance(value, int | float) else ""
