"""`dhtcrawl pause`, `resume`, `stop`, `leave`: what can be done to a crawl, and to a node."""

from __future__ import annotations

import json
from typing import Any

import click

from dhtcrawl.cli.client import asked
from dhtcrawl.cli.options import admin_option, json_option
from dhtcrawl.cli.table import printable, short
from dhtcrawl.errors import Exit, LeftWork
from dhtcrawl.web.api import Action


def _control(action: Action, text: str) -> click.Command:
    @click.command(action, help=text)
    @click.argument("crawl")
    @json_option
    @admin_option
    def command(crawl: str, as_json: bool, **options: Any) -> int:
        answer = asked(options, lambda client: client.control(crawl, action))
        if as_json:
            click.echo(json.dumps(answer))
        else:
            click.echo(f"crawl {printable(short(answer.get('crawl') or crawl))}: {printable(answer.get('state', ''))}")
        return Exit.COMPLETE

    return command


pause = _control("pause", "Start no more requests of CRAWL, by the start of its id, until it is resumed.")
resume = _control("resume", "Go on with CRAWL, which was paused.")
stop = _control("stop", "End CRAWL: what was fetched stays, what is queued is not fetched.")


@click.command("leave")
@json_option
@admin_option
def leave(as_json: bool, **options: Any) -> int:
    """Hand over all that the node holds, then stop it.

    Ends with 31 when something it held is on no other node.
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
        click.echo(f"the node has left; {answer.get('handed_over', 0)} records are with the others")
    return Exit.COMPLETE
