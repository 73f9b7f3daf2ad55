"""The links that seeds are, in parts: a crawl may have millions of pages of results. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from dhtcrawl.spec import CrawlSpec
from dhtcrawl.storage.store.tasks import Link

LINKS_A_PART: Final = 500

T = TypeVar("T")


class SeedPart(NamedTuple):
    """Some of the seeds, and how many virtual tasks have all their pages among them and those of the parts before."""

    links: list[Link]
    tasks: int


def seed_parts(spec: CrawlSpec, first: int = 0, wanted: Callable[[bytes], bool] | None = None) -> Iterator[SeedPart]:
    """The seeds in their order, `LINKS_A_PART` at a time: those of the spec, then the pages of results.

    The latter begin with the virtual task `first`. `wanted(key)` says whether a task key, or what places it, is wanted;
    seeds that are not may be missing.
    """
    yield SeedPart([_link(spec, seed) for seed in spec.seeds], first)
    pages = spec.searches.pages(first, wanted if spec.settings.key == "search" else None)
    for part in in_lists(pages, LINKS_A_PART):
        links = [_link(spec, page.url) for page in part if page.url is not None]
        yield SeedPart(links, part[-1].task)
    if spec.searches:
        yield SeedPart([], len(spec.searches.tasks))


def in_lists(values: Iterable[T], size: int) -> Iterator[list[T]]:
    """The values in lists of at most `size`."""
    left = iter(values)
    while part := list(islice(left, size)):
        yield part


def _link(spec: CrawlSpec, url: str) -> Link:
    return Link(spec.key_of(url), url, 0, "", 0, True)
