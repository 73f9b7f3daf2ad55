"""What seeds of a crawl are for, where task templates made them. No I/O.

A *search* is what one virtual task wants of one engine about one site (`dhtcrawl.templates`): some pages of results,
each a seed. A crawl's spec carries its searches beside the seeds, so that every node knows them:

    {"searches": [[task, engine, site, type, [[seed, page, count], …]], …], "delays": {host: seconds, …}}

where `seed` counts the crawl's seeds from 0 on, `page` the pages of results from 1 on, and `count` says how many of
both follow one another. One seed may be in several searches: two tasks may ask the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from dhtcrawl.keyspace import search_key

TEXT_CHARS_MAX: Final = 500
PAGES_MAX: Final = 1_000_000  # of results, in all searches
DELAY_MAX_S: Final = 1e9


class Search(NamedTuple):
    """What one virtual task wants of one engine about one site."""

    task: str  # the name of the virtual task
    engine: str
    site: str  # empty: any
    type: str = ""  # of the nodes that may ask the engine; empty: any
    runs: tuple[tuple[int, int, int], ...] = ()  # seed, page and count of pages that follow one another

    def pages(self) -> Iterator[tuple[int, int]]:
        """Each page of results: the place of its seed, and its number."""
        for seed, page, count in self.runs:
            yield from zip(range(seed, seed + count), range(page, page + count), strict=True)


@dataclass(frozen=True, slots=True)
class Searches:
    """All searches of a crawl; most crawls have none."""

    searches: tuple[Search, ...] = ()
    delays: Mapping[str, float] = field(default_factory=dict)  # by the host of an engine, in seconds

    def __bool__(self) -> bool:
        return bool(self.searches)

    def plain(self) -> dict[str, Any]:
        """As it is packed, or written as JSON; empty where there are none."""
        if not self.searches:
            return {}
        rows = [[*search[:4], [list(run) for run in search.runs]] for search in self.searches]
        return {"searches": rows, "delays": dict(sorted(self.delays.items()))}

    def by_seed(self) -> dict[int, list[tuple[Search, int]]]:
        """The searches of each seed, by its place, each with the number of the page."""
        found: dict[int, list[tuple[Search, int]]] = {}
        for search in self.searches:
            for seed, page in search.pages():
                found.setdefault(seed, []).append((search, page))
        return found

    def placements(self, seeds: tuple[str, ...]) -> dict[str, bytes]:
        """The 20 bytes that place each seed of a search: one node has all pages of an engine about a site."""
        found: dict[str, bytes] = {}
        for search in self.searches:
            key = search_key(search.engine, search.site)
            for seed, _ in search.pages():
                found.setdefault(seeds[seed], key)
        return found


def named(search: Search, page: int) -> dict[str, Any]:
    """A page of results as outputs and answers have it."""
    return {"task": search.task, "engine": search.engine, "site": search.site, "page": page}


def searches_of(pages: Iterable[tuple[Search, int, int]], delays: Mapping[str, float]) -> Searches:
    """Searches from their pages, each with the place of its seed and its number, in the order of the file."""
    found: dict[Search, list[tuple[int, int, int]]] = {}
    for search, seed, page in pages:
        runs = found.setdefault(search, [])
        if runs and (seed, page) == (runs[-1][0] + runs[-1][2], runs[-1][1] + runs[-1][2]):
            runs[-1] = (*runs[-1][:2], runs[-1][2] + 1)
        else:
            runs.append((seed, page, 1))
    return Searches(tuple(search._replace(runs=tuple(runs)) for search, runs in found.items()), delays)


def read_searches(plain: object, seeds: int) -> Searches:
    """What `Searches.plain` gave, from a client or another node: anything may be wrong in it.

    Raises:
        ValueError: what is wrong with it.
    """
    if plain == {}:
        return Searches()
    if not isinstance(plain, Mapping) or plain.keys() != {"searches", "delays"}:
        raise ValueError("searches: not as this version writes them")
    rows, delays = plain["searches"], plain["delays"]
    if not isinstance(rows, list) or not rows or not isinstance(delays, Mapping):
        raise ValueError("searches: not as this version writes them")
    searches, pages = [], 0
    for row in rows:
        search = _search(row, seeds)
        pages += sum(count for _, _, count in search.runs)
        if pages > PAGES_MAX:
            raise ValueError(f"searches: more than {PAGES_MAX} pages")
        searches.append(search)
    return Searches(tuple(searches), {_text(host): _delay(delay) for host, delay in delays.items()})


def _search(row: object, seeds: int) -> Search:
    if not isinstance(row, list) or len(row) != len(Search._fields) or not isinstance(row[-1], list) or not row[-1]:
        raise ValueError("searches: one is no search")
    task, engine, site, node_type, runs = row
    return Search(_text(task), _text(engine), _text(site), _text(node_type), tuple(_run(run, seeds) for run in runs))


def _run(run: object, seeds: int) -> tuple[int, int, int]:
    if not isinstance(run, list) or len(run) != 3 or not all(type(each) is int for each in run):
        raise ValueError("searches: pages are no three numbers")
    seed, page, count = run
    if not (0 <= seed < seed + count <= seeds and 1 <= page <= PAGES_MAX):
        raise ValueError("searches: pages of seeds that are not there")
    return seed, page, count


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > TEXT_CHARS_MAX:
        raise ValueError("searches: a name is no text, or too long")
    return value


def _delay(value: object) -> float:
    if type(value) not in (int, float) or not 0 <= value <= DELAY_MAX_S:  # type: ignore[operator]
        raise ValueError("searches: a delay is no number of seconds")
    return float(value)  # type: ignore[arg-type]
