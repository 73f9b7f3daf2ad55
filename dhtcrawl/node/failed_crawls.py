"""Why a crawl of the swarm brought nothing: the causes of its first seeds, found out once and told again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from dhtcrawl.crawl.seed_causes import UNTOLD, seed_cause
from dhtcrawl.node.crawl_figures import CrawlFiguresAsked
from dhtcrawl.standing import crawl_standing
from dhtcrawl.storage.store.crawl_record import FAILED, CrawlRecord
from dhtcrawl.web.api import ApiError

SEEDS_ASKED_MAX: Final = 3
KEPT_MAX: Final = 256

Why = Callable[[str, bytes], Awaitable[list[dict[str, Any]]]]  # (URL, crawl)


class FiguresWithCauses:
    """The figures of crawls; how one stands that has failed says what was wrong with its seeds."""

    def __init__(self, figures: CrawlFiguresAsked, why: Why) -> None:
        self._figures = figures
        self._why = why
        self._told: dict[tuple[bytes, int], str] = {}  # by crawl and version

    async def of(self, record: CrawlRecord, *, nodes: bool) -> dict[str, Any]:
        """As `CrawlFiguresAsked.of`.

        Without `nodes` causes are told only if they are known: a list may have many crawls that failed, and seeds are
        asked about for those that a person looks at.
        """
        told = await self._figures.of(record, nodes=nodes)
        if record.ended != FAILED:
            return told
        key = record.crawl_id, record.version
        if key not in self._told and nodes:
            causes = await self._causes(record)
            if causes:
                self._told[key] = causes
                if len(self._told) > KEPT_MAX:
                    del self._told[next(iter(self._told))]
        return told | {"standing": crawl_standing(record.state, record.ended, None, because=self._told.get(key, ""))}

    async def _causes(self, record: CrawlRecord) -> str:
        """A line; "" where a node that could tell does not answer."""
        silent = False

        async def ask(url: str) -> dict[str, Any]:
            nonlocal silent
            try:
                answers = await self._why(url, record.crawl_id)
            except ApiError:
                silent = True
                return {"url": url, "state": UNTOLD}
            return answers[0] if answers else {}

        seeds = record.spec.all_seeds[:SEEDS_ASKED_MAX]
        causes = [(seed, await seed_cause(seed, ask)) for seed in seeds]
        return "" if silent else " | ".join(f"{seed}: {cause}" for seed, cause in causes if cause)
