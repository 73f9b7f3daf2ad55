"""Following a crawl of the swarm from a command, until it ends or the user has seen enough."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from dhtcrawl.cli.client import NodeClient
from dhtcrawl.cli.progress import counted
from dhtcrawl.cli.rate import Rate, Used, a_second, rough_end
from dhtcrawl.cli.screen import Screen
from dhtcrawl.cli.signals import ENDING, hang_ups
from dhtcrawl.cli.table import printable, short
from dhtcrawl.cli.words import clock, fitting, for_a_person, with_reason
from dhtcrawl.crawl.budget import LIMIT_OF, Stop
from dhtcrawl.errors import Exit, NodeUnreachable, NotNow
from dhtcrawl.node.stopping import Stopping
from dhtcrawl.storage.outputs.summary import Summary
from dhtcrawl.storage.store.outcomes import end_of, errors_by_kind, skipped_by_reason
from dhtcrawl.units import size

POLL_S = 0.5
SILENCE_MAX_S = 15.0  # a busy node; one that is started anew takes less

_WORDS = {"complete": Exit.COMPLETE, "failed": Exit.NOTHING_FETCHED, "stopped": Exit.INTERRUPTED}
_WORDS |= {stop.word: stop.exit_code for stop in Stop}


class Interrupted(Exception):
    """SIGINT, SIGTERM or SIGHUP while waiting; the crawl goes on."""


def stop_of(ended: str) -> Stop | None:
    """What ended a crawl early, from the word in its record."""
    word = ended.replace("-", " ")
    return next((stop for stop in Stop if stop.word == word), Stop.INTERRUPTED if word == "stopped" else None)


def exit_of(ended: str) -> Exit:
    """The exit code of a command that waited for a crawl."""
    return _WORDS.get(ended.replace("-", " "), Exit.FAILURE)


def exit_with(ended: str, summary: Summary, *, whole: bool = True) -> Exit:
    """The exit code of a command that also gathered the crawl, `whole` where all nodes could be asked."""
    if not whole:
        return Exit.FAILURE
    code = exit_of(ended)
    if code not in (Exit.COMPLETE, Exit.NOTHING_FETCHED):
        return code
    if summary.complete:
        return exit_of(end_of(summary.pages_ok))
    # A node that could not be asked was named on stderr.
    return Exit.FAILURE if code == Exit.COMPLETE else code


async def follow(client: NodeClient, crawl: str, screen: Screen) -> dict[str, Any]:
    """The crawl as it was in the end; what it is at shows on `screen` until then.

    Raises:
        Interrupted: the user wants no more of it.
        NodeUnreachable, NotNow: the node told nothing of it for `SILENCE_MAX_S`.
    """
    stopping = Stopping()
    # Also in the middle of a question: a node that hangs does not answer for a minute.
    with _interrupts(stopping.ask):
        async with stopping.breaks_off():
            return await _followed(client, crawl, screen)
    screen.clear()
    raise Interrupted


async def _followed(client: NodeClient, crawl: str, screen: Screen) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    heard_at = shown_at = loop.time()
    rate: Rate | None = None
    while True:
        try:
            now_at = await client.crawl(crawl)
            heard_at = loop.time()
        except (NodeUnreachable, NotNow):
            if loop.time() - heard_at > SILENCE_MAX_S:
                raise
            now_at = {}
        if now_at.get("state") == "ended":
            screen.clear()
            return now_at
        if now_at and rate is None:
            rate = Rate(loop.time(), count_of(now_at, "pages"))
        if rate is not None and now_at and loop.time() - shown_at >= screen.every_s:
            shown_at = loop.time()
            screen.show(_line(now_at, rate.after(shown_at, count_of(now_at, "pages")), screen.columns))
        await asyncio.sleep(POLL_S)


@contextmanager
def _interrupts(ask: Callable[[], None]) -> Iterator[None]:
    """Call `ask` at each signal that ends a command."""
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in (*ENDING, *hang_ups())}
    for number in before:
        loop.add_signal_handler(number, ask)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            # Not the system's default: what comes after is ended by a signal in order, too.
            signal.signal(number, handler)


def count_of(crawl: Mapping[str, Any], name: str) -> int:
    """A counter of a crawl, as a node tells it; 0 where it is missing."""
    return int(_counters(crawl).get(name, 0))


def _counters(crawl: Mapping[str, Any]) -> dict[str, int | float]:
    counters = crawl.get("counters")
    found = counters if isinstance(counters, Mapping) else {}
    return {str(name): count for name, count in found.items() if isinstance(count, int | float)}


def _line(crawl: Mapping[str, Any], rate: float, columns: int) -> str:
    rows = crawl.get("per_node")
    shares = [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []
    gone = sum(row.get("state") == "gone" for row in shares)
    nodes = f"{len(shares) - gone} nodes" + (f", {gone} gone" if gone else "")
    state = "" if crawl.get("state") == "running" else f"  {printable(crawl.get('state', ''))}"
    standing = crawl.get("standing")
    reason = printable(standing.get("text") or "") if isinstance(standing, Mapping) else ""
    whose = "" if crawl.get("counters_of") == "swarm" else "  (this node's share: the coordinator does not answer)"
    figures = (
        f"{clock(count_of(crawl, 'seconds'))}  {count_of(crawl, 'pages')} pages  {a_second(rate)}  "
        f"{size(count_of(crawl, 'body_bytes'))}  {count_of(crawl, 'queued')} queued  "
        f"{count_of(crawl, 'in_flight')} in flight  {count_of(crawl, 'errors')} errors  {nodes}{state}{whose}"
    )
    if reason:
        return with_reason(figures, reason, columns)
    used = Used(count_of(crawl, "pages"), count_of(crawl, "seconds"), count_of(crawl, "body_bytes"))
    end = rough_end(count_of(crawl, "queued"), rate, used, _limits_of(crawl))
    return fitting(f"{figures}  {end}" if end else figures, columns)


def _limits_of(crawl: Mapping[str, Any]) -> Used:
    """The limits of a crawl, as a node tells them; 0 where they are missing."""
    spec = crawl.get("spec")
    settings = spec.get("settings") if isinstance(spec, Mapping) else None
    limits = [settings.get(name) if isinstance(settings, Mapping) else 0 for name in LIMIT_OF.values()]
    return Used(*[limit if isinstance(limit, int | float) else 0 for limit in limits])


def describe_end(crawl: Mapping[str, Any]) -> str:
    """The end of a crawl whose outputs stay with the nodes, in a few lines."""
    ended, skipped = str(crawl.get("ended", "")), skipped_by_reason(_counters(crawl))
    retried = f", {count_of(crawl, 'retried')} tried again" if count_of(crawl, "retried") else ""
    word = ended if ended == "complete" else f"stopped: {ended}" if stop_of(ended) else ended or "incomplete"
    return "\n".join(
        [
            f"crawl {printable(short(crawl.get('crawl')))}  {printable(word)}  in {clock(count_of(crawl, 'seconds'))}",
            f"  pages      {count_of(crawl, 'pages')}  ({size(count_of(crawl, 'body_bytes'))})",
            f"  requests   {count_of(crawl, 'fetches')}  ({count_of(crawl, 'redirects')} redirects, "
            f"{count_of(crawl, 'errors')} errors{retried})",
            f"  urls seen  {count_of(crawl, 'urls_seen')}  ({count_of(crawl, 'links')} links lead there; "
            f"fetched twice: {count_of(crawl, 'refetches')})",
            *counted("  errors     ", errors_by_kind(_counters(crawl))),
            # Not "skipped", as the summary has: that is what is left over in the end, each URL once.
            *counted("  links skipped  ", skipped),
            *for_a_person(skipped),
        ]
    )
