"""Virtual tasks become actual ones: keywords, engines, sites and pages, each a URL to fetch. No I/O.

The same file gives the same tasks in the same order, whatever the hash seed. Each virtual task is done for each of its
engines, there for each of its sites, there page by page; chunks are counted within an engine and a site of a task.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dhtcrawl.templates.segment import Dictionary
from dhtcrawl.templates.template_file import TemplateFile, VirtualTask


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


def expand(file: TemplateFile, dictionary: Dictionary | None = None) -> Iterator[ActualTask | Skipped]:
    """The actual tasks; `dictionary` takes names apart where it is not only the file's words that do."""
    dictionary = dictionary or Dictionary(file.words)
    for task in file.tasks:
        keywords = task.keywords or tuple(dictionary.words_of(task.name))
        for name in task.engines:
            for site in task.sites:
                yield from _pages(file, task, name, site, keywords)


def count(file: TemplateFile) -> int:
    """How many actual tasks there are, those that have no URL included."""
    return sum(
        len(task.sites) * sum(task.pages or file.engines[name].pages for name in task.engines) for task in file.tasks
    )


def _pages(
    file: TemplateFile, task: VirtualTask, name: str, site: str, keywords: tuple[str, ...]
) -> Iterator[ActualTask | Skipped]:
    engine = file.engines[name]
    query = engine.query(keywords, site)
    for page in range(task.pages or engine.pages):
        url = engine.url_of(query, page)
        if url is None:
            yield Skipped(task.name, name, site, page + 1)
        else:
            yield ActualTask(url, task.name, name, site, keywords, page + 1, page // file.chunk + 1, engine.type)
