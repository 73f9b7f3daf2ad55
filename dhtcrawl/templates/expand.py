"""Virtual tasks become actual ones: keywords, engines, sites and pages, each a URL to fetch. No I/O.

The same file gives the same tasks in the same order, whatever the hash seed. Each virtual task is done for each of its
engines, there for each of its sites, there page by page; chunks are counted within an engine and a site of a task.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dhtcrawl.searches import Searches, Wanted
from dhtcrawl.templates.segment import Dictionary
from dhtcrawl.templates.template_file import TemplateFile


class ActualTask(NamedTuple):
    """One page of results to fetch."""

    url: str  # canonical
    task: str  # the name of the virtual task
    engine: str
    site: str  # the host that results are asked from; empty: any
    keywords: tuple[str, ...]
    page: int  # from 1 on
    chunk: int  # from 1 on
    type: str  # of the nodes that may fetch it; empty: any


class Skipped(NamedTuple):
    """A page that has no URL: with it the URL would be too long."""

    task: str
    engine: str
    site: str
    page: int


def searches_of(file: TemplateFile, dictionary: Dictionary | None = None) -> Searches:
    """What a crawl carries of a file; `dictionary` takes names apart where it is not only the file's words that do."""
    dictionary = dictionary or Dictionary(file.words)
    engines = {name: place for place, name in enumerate(file.engines)}
    sites: dict[tuple[str, ...], int] = {}
    tasks = tuple(
        Wanted(
            task.name,
            task.keywords or tuple(dictionary.words_of(task.name)),
            sites.setdefault(task.sites, len(sites)),
            tuple(engines[name] for name in task.engines),
            task.pages or 0,
        )
        for task in file.tasks
    )
    return Searches(tuple(file.engines.values()), tuple(sites), tasks)


def expand(file: TemplateFile, dictionary: Dictionary | None = None) -> Iterator[ActualTask | Skipped]:
    """The actual tasks; `dictionary` takes names apart where it is not only the file's words that do."""
    searches = searches_of(file, dictionary)
    for url, number, place, site, page in searches.pages():
        task, engine = searches.tasks[number], searches.engines[place]
        if url is None:
            yield Skipped(task.name, engine.name, site, page + 1)
        else:
            chunk = page // file.chunk + 1
            yield ActualTask(url, task.name, engine.name, site, task.keywords, page + 1, chunk, engine.type)


def count(file: TemplateFile) -> int:
    """How many actual tasks there are, those that have no URL included."""
    return sum(
        len(task.sites) * sum(task.pages or file.engines[name].pages for name in task.engines) for task in file.tasks
    )
