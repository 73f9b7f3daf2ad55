"""`dhtcrawl pause`, `resume`, `stop`, `leave`: what can be done to a crawl, and to a node."""

from __future__ import annotations

import json
from typing import Any

import click

from dhtcrawl.cli.client import NodeClient, asked
from dhtcrawl.cli.options import admin_option, json_option, limit_options, load_config
from dhtcrawl.cli.table import printable, short
from dhtcrawl.errors import Exit, LeftWork
from dhtcrawl.spec import CHANGEABLE
from dhtcrawl.web.api import Action


def _control(action: Action, text: str) -> click.Command:
    @click.command(action, help=text)
    @click.argument("crawl")
    @json_option
    @admin_option
    def command(crawl: str, as_json: bool, **options: Any) -> int:
        return _say(crawl, asked(options, lambda client: client.control(crawl, action)), as_json)

    return command


def _say(crawl: str, answer: dict[str, Any], as_json: bool) -> int:
    if as_json:
        click.echo(json.dumps(answer))
    else:
        click.echo(f"crawl {printable(short(answer.get('crawl') or crawl))}: {printable(answer.get('state', ''))}")
    return Exit.COMPLETE


pause = _control("pause", "Start no more requests of CRAWL, by the start of its id, until it is resumed.")
stop = _control("stop", "End CRAWL: what was fetched stays, what is queued is not fetched.")


@click.command("resume")
@click.argument("crawl")
@limit_options
@json_option
@admin_option
def resume(crawl: str, as_json: bool, **options: Any) -> int:
    """Go on with CRAWL, which was paused.

    With other limits, or another delay, it goes on with those, and so does a
    crawl that a limit ended once that limit is higher, and one that is complete
    once its depth is. What is not given stays.
    """
    config = load_config(dict(options))
    given = [name for name in CHANGEABLE if config.origins.get(f"crawl.{name}") == "flag"]
    settings = {name: getattr(config.crawl, name) for name in given}
    options = {name: value for name, value in options.items() if not name.startswith("crawl__")}

    async def ask(client: NodeClient) -> dict[str, Any]:
        return await client.control(crawl, "resume", settings)

    return _say(crawl, asked(options, ask), as_json)


@click.command("leave")
@json_option
@admin_option
def leave(as_json: bool, **options: Any) -> int:
    """Hand over all that the node holds, then stop it.

    Ends with 31 when something it held is on no other node. Asked again while it leaves, the node waits for nothing.
    """
    answer = asked(options, lambda client: client.leave())
    left = int(answer.get("left") or 0)
    if as_json:
        click.echo(json.dumps(answer))
        return Exit.LEFT_WORK if left else Exit.COMPLETE
    if left:
        raise LeftWork(f"the node left with {left} records that no other node has; start it again to bring them back")
    if answer.get("alone"):
        click.echo("the node has stopped; it was the last one, and keeps what it has")
    else:
        sent = answer.get("handed_over", 0)
        click.echo(f"the node has left; its records are with the others, to which it sent {sent} that they lacked")
    return Exit.COMPLETE
