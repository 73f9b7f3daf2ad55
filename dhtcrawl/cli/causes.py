"""Why seeds brought nothing, as commands print it: one line for each (`dhtcrawl.crawl.seed_causes`)."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from dhtcrawl.cli.client import NodeClient
from dhtcrawl.cli.store import chosen, opened
from dhtcrawl.cli.table import printable
from dhtcrawl.crawl.explain import explain
from dhtcrawl.crawl.seed_causes import UNTOLD, Answer, Ask, seed_cause
from dhtcrawl.errors import DhtcrawlError, NothingFetched
from dhtcrawl.storage.store import catalog

TOLD_MAX: Final = 3  # seeds
# Seeds that are asked about: in a swarm each asks two nodes.
ASKED_IN_STORE: Final = 1_000
ASKED_IN_SWARM: Final = 20
_WIDTH: Final = 79
_HEAD: Final = "  seed       "
_ELSEWHERE: Final = "was fetched, and lies with another node: a redirect or an error"


def in_swarm(client: NodeClient, crawl: str) -> Ask:
    """Ask the swarm through one of its nodes."""

    async def ask(url: str) -> Answer:
        try:
            answers = await client.why(url, crawl)
        except DhtcrawlError as error:
            return {"url": url, "state": UNTOLD, "detail": str(error)}
        return answers[0] if answers else {}

    return ask


@contextmanager
def in_collection(data_dir: Path, crawl: str) -> Iterator[tuple[Sequence[str], Ask]]:
    """The seeds of a gathered crawl, and how to ask its store, which is held meanwhile.

    Raises:
        StoreInUse: another process holds it.
        StorageError: it cannot be read.
    """
    with opened(data_dir) as (_, txn):
        (record,) = chosen(catalog.crawls(txn), crawl)

        async def ask(url: str) -> Answer:
            return explain(txn, record, url)

        yield record.spec.all_seeds, ask


async def first_causes(seeds: Sequence[str], ask: Ask, asked_max: int = ASKED_IN_STORE) -> list[str]:
    """Lines of the first seeds that brought no content, `TOLD_MAX` at most, among the first `asked_max` seeds."""
    told: list[str] = []
    for seed in seeds[:asked_max]:
        cause = printable(await seed_cause(seed, ask))
        if cause:
            told.append(f"{seed}: {cause}")
        if len(told) == TOLD_MAX:
            break
    return told


async def nothing_fetched(seeds: Sequence[str], ask: Ask, *, pages: int) -> NothingFetched:
    """The error for a crawl without content: the first seeds, each with its cause; `pages` are redirects and errors."""
    told = [f"{seed}: {printable(await seed_cause(seed, ask)) or _ELSEWHERE}" for seed in seeds[:TOLD_MAX]]
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
