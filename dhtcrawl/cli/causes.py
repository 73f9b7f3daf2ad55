"""Why seeds brought nothing: one line for each, with a remedy, the same in every command.

`ask` gives where a URL stands, as `dhtcrawl.crawl.explain` says it, from a store or from the swarm. The redirects of a
seed are followed to what they end at.
"""

from __future__ import annotations

import textwrap
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from dhtcrawl.cli.client import NodeClient
from dhtcrawl.cli.store import chosen, opened
from dhtcrawl.cli.table import printable
from dhtcrawl.crawl.analysis import REDIRECTS
from dhtcrawl.crawl.explain import explain
from dhtcrawl.errors import DhtcrawlError, NothingFetched
from dhtcrawl.storage.store import catalog
from dhtcrawl.storage.store.outcomes import is_content
from dhtcrawl.storage.store.records import SkipReason

Answer = Mapping[str, Any]
Ask = Callable[[str], Awaitable[Answer]]

TOLD_MAX: Final = 3  # seeds
HOPS_MAX: Final = 20  # redirects that are followed to tell of them
# Seeds that are asked about: in a swarm each asks two nodes.
ASKED_IN_STORE: Final = 1_000
ASKED_IN_SWARM: Final = 20
_WIDTH: Final = 79
_HEAD: Final = "  seed       "
_UNTOLD: Final = "untold"  # the node that could say does not answer
_ELSEWHERE: Final = "was fetched, and lies with another node: a redirect or an error"

_REASONS: Final = {
    SkipReason.OUT_OF_SCOPE: "it is outside of the crawl's scope; see --scope",
    SkipReason.EXCLUDED: "--include or --exclude keeps the crawl from it",
    SkipReason.DEPTH: "it is deeper than --depth",
    SkipReason.NOFOLLOW: "the page that leads there says nofollow",
    SkipReason.REDIRECT_LIMIT: "it comes after too many redirects in a row; see fetch.redirects_max",
    SkipReason.NOT_A_URL: "it is no web address",
}
_REMEDIES: Final = {
    SkipReason.PRIVATE_ADDRESS: "if it is yours, use --allow-private",
    SkipReason.ROBOTS: "ask the site's owner, or use --ignore-robots on your own site",
    SkipReason.FAILED: "check the address, and whether the site is up",
}
_BUSY: Final = "try again later, or with a longer --delay"
_TROUBLE: Final = "the site has trouble: try again later"
_NOT_THERE: Final = "check the address"
_STATUS_REMEDIES: Final = {
    401: "the site wants a login, which dhtcrawl does not have: ask its owner",
    403: "the site refuses this crawler, or this address: ask its owner, and name yourself with --contact",
    404: _NOT_THERE,
    410: _NOT_THERE,
    429: _BUSY,
    503: _BUSY,
}
_CIRCLE: Final = "sites that want a cookie do that, and dhtcrawl keeps none: try a page behind the redirect"


def in_swarm(client: NodeClient, crawl: str) -> Ask:
    """Ask the swarm through one of its nodes."""

    async def ask(url: str) -> Answer:
        try:
            answers = await client.why(url, crawl)
        except DhtcrawlError as error:
            return {"url": url, "state": _UNTOLD, "detail": str(error)}
        return answers[0] if answers else {}

    return ask


@contextmanager
def in_collection(data_dir: Path, crawl: str) -> Iterator[tuple[tuple[str, ...], Ask]]:
    """The seeds of a gathered crawl, and how to ask its store, which is held meanwhile.

    Raises:
        StoreInUse: another process holds it.
        StorageError: it cannot be read.
    """
    with opened(data_dir) as (_, txn):
        (record,) = chosen(catalog.crawls(txn), crawl)

        async def ask(url: str) -> Answer:
            return explain(txn, record, url)

        yield record.spec.seeds, ask


async def first_causes(seeds: Sequence[str], ask: Ask, asked_max: int = ASKED_IN_STORE) -> list[str]:
    """Lines of the first seeds that brought no content, `TOLD_MAX` at most, among the first `asked_max` seeds."""
    told: list[str] = []
    for seed in seeds[:asked_max]:
        cause = await _cause(seed, ask)
        if cause:
            told.append(f"{seed}: {cause}")
        if len(told) == TOLD_MAX:
            break
    return told


async def nothing_fetched(seeds: Sequence[str], ask: Ask, *, pages: int) -> NothingFetched:
    """The error for a crawl without content: the first seeds, each with its cause; `pages` are redirects and errors."""
    told = [f"{seed}: {await _cause(seed, ask) or _ELSEWHERE}" for seed in seeds[:TOLD_MAX]]
    more = f" (and {len(seeds) - TOLD_MAX} more seeds)" if len(seeds) > TOLD_MAX else ""
    what = "nothing but redirects and errors was fetched" if pages else "nothing was fetched"
    return NothingFetched(f"{what}: {' | '.join(told)}{more}")


def shown(lines: Sequence[str]) -> str:
    """The lines of seeds as they stand below a crawl's summary, within 80 columns but for addresses."""
    rest = " " * len(_HEAD)
    return "".join(
        f"\n{row}"
        for line in lines
        for row in textwrap.wrap(
            line, _WIDTH, initial_indent=_HEAD, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
        )
    )


async def _cause(seed: str, ask: Ask) -> str:
    """Why a seed brought no content; "" if it did, or may yet, or that is not known here."""
    steps = [await ask(seed)]
    while (target := _target(steps[-1])) is not None and len(steps) <= HOPS_MAX:
        if any(target == step.get("url") for step in steps):
            return printable(_circle(steps, target))
        steps.append(await ask(target))
    cause = _end(steps[-1])
    led = f"redirects to {steps[-1].get('url')}: " if cause and len(steps) > 1 else ""
    return printable(led + cause)


def _target(step: Answer) -> str | None:
    """Where a redirect leads."""
    status, target = step.get("status"), step.get("final_url")
    if not isinstance(status, int) or not isinstance(target, str) or not 300 <= status < 400:
        return None
    return None if step.get("error") or (target == step.get("url") and status not in REDIRECTS) else target


def _circle(steps: Sequence[Answer], target: str) -> str:
    if len(steps) == 1:
        return f"{_answers(steps[0])} and leads back to itself; {_CIRCLE}"
    way = " > ".join([*(str(step.get("url")) for step in steps[1:]), target])
    return f"redirects in a circle: {way}; {_CIRCLE}"


def _end(step: Answer) -> str:
    state, status, reason = step.get("state"), step.get("status"), step.get("reason")
    if state == _UNTOLD:
        return f"cannot be told now: {step.get('detail')}"
    if state == "dead":
        remedy = _REMEDIES.get(str(reason), "")
        return f"{step.get('detail') or reason}" + (f"; {remedy}" if remedy else "")
    if state in ("skipped", "unknown"):
        return _REASONS.get(str(reason), str(reason)) if reason else "it was never queued"
    if not isinstance(status, int):
        return ""
    if is_content(status):
        return str(step.get("error") or "")
    remedy = _STATUS_REMEDIES.get(status, _TROUBLE if status >= 500 else "")
    return _answers(step) + (f", {step['error']}" if step.get("error") else "") + (f"; {remedy}" if remedy else "")


def _answers(step: Answer) -> str:
    status = step.get("status")
    try:
        return f"answers {status} ({HTTPStatus(int(str(status))).phrase})"
    except ValueError:
        return f"answers {status}"
