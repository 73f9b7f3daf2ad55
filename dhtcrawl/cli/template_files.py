"""Files of task templates, as `--template FILE` and `expand FILE` take them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from dhtcrawl.cli.text_files import text_of
from dhtcrawl.config import CrawlSettings
from dhtcrawl.errors import ConfigError
from dhtcrawl.searches import Search, Searches, searches_of
from dhtcrawl.spec import CrawlSpec, make_spec
from dhtcrawl.templates.expand import ActualTask, expand
from dhtcrawl.templates.segment import Dictionary
from dhtcrawl.templates.template_file import SEGMENTERS, TemplateFile, read

FILE_BYTES_MAX: Final = 64 << 20


def with_template(seeds: Iterable[str], settings: CrawlSettings, template: Path) -> CrawlSpec:
    """A crawl of these seeds and of the pages of results of a file.

    Raises:
        UsageError: a seed is no http(s) URL.
        ConfigError: the file cannot be read, or says what makes no sense.
    """
    file, dictionary = read_template(template)
    expanded = list(expand(file, dictionary))
    tasks = [task for task in expanded if isinstance(task, ActualTask)]
    if len(tasks) < len(expanded):
        raise ConfigError(too_long(template, len(expanded) - len(tasks)))
    spec = make_spec([*seeds, *(task.url for task in tasks)], settings)
    return replace(spec, searches=_searches(spec, file, tasks))


def _searches(spec: CrawlSpec, file: TemplateFile, tasks: Iterable[ActualTask]) -> Searches:
    places = {url: place for place, url in enumerate(spec.seeds)}
    pages = ((Search(task.task, task.engine, task.site, task.type), places[task.url], task.page) for task in tasks)
    delays: dict[str, float] = {}
    for engine in file.engines.values():
        if engine.delay_s is not None:
            # One that two engines share is asked as seldom as either wants.
            delays[engine.host] = max(engine.delay_s, delays.get(engine.host, 0.0))
    return searches_of(pages, delays)


def too_long(file: object, count: int) -> str:
    """What to say of so many tasks that have no URL."""
    return f"{file}: tasks without a URL, as it would be too long: {count}; shorten their keywords"


def read_template(path: Path) -> tuple[TemplateFile, Dictionary]:
    """A file of task templates, and what takes names apart by it: its words, those of the file that it names, the rest.

    Raises:
        ConfigError: a file cannot be read, or says what makes no sense.
    """
    installed = [package for package in SEGMENTERS.values() if find_spec(package) is not None]
    template = read(str(path), text_of(path, FILE_BYTES_MAX), installed)
    words = list(template.words)
    if template.words_file:
        lines = map(str.strip, text_of(path.parent / template.words_file, FILE_BYTES_MAX).splitlines())
        words += (line for line in lines if line and not line.startswith("#"))
    package = SEGMENTERS.get(template.segmenter)
    return template, Dictionary(words, None if package is None else import_module(package).cut)
