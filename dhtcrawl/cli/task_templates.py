"""Files of task templates, as commands take them: `--template FILE`, and `expand FILE`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from dhtcrawl.cli.options import read_seeds, require_readable
from dhtcrawl.config import Config, CrawlSettings, pairs
from dhtcrawl.errors import ConfigError
from dhtcrawl.searches import Search, Searches, searches_of
from dhtcrawl.spec import CrawlSpec, make_spec
from dhtcrawl.templates.expand import ActualTask, expand
from dhtcrawl.templates.segment import Dictionary
from dhtcrawl.templates.template_file import SEGMENTERS, TemplateFile, read

FILE_BYTES_MAX: Final = 64 << 20
# What a crawl of pages of results is, where nothing else is said: nobody looks for an engine's other pages.
_IMPLIED: Final[Mapping[str, Any]] = {"key": "search", "scope": "page"}

F = TypeVar("F", bound=Callable[..., Any])


def seed_options(command: F) -> F:
    """Where seeds come from besides the command line; `spec_of` takes them."""
    command = click.option(
        "--template", metavar="FILE", help="Task templates (TOML): their pages of results are seeds, too."
    )(command)
    return click.option("--seed-file", metavar="FILE", help="More seeds, one a line; '#' starts a comment.")(command)


def spec_of(config: Config, urls: Iterable[str], seed_file: str | None, template: str | None) -> CrawlSpec:
    """The crawl that a command asks for.

    Raises:
        UsageError: a seed is no http(s) URL, or there is none; a file cannot be read.
        ConfigError: the templates say what makes no sense.
    """
    seeds = [*urls, *read_seeds(seed_file)]
    if template is None:
        if config.crawl.key == "search":
            raise config.refusal("crawl.key", " places pages of results; add --template FILE, or use url or host")
        return make_spec(seeds, config.crawl)
    require_readable("--template", template)
    file, dictionary = read_template(Path(template))
    expanded = list(expand(file, dictionary))
    tasks = [task for task in expanded if isinstance(task, ActualTask)]
    if len(tasks) < len(expanded):
        raise ConfigError(too_long(template, len(expanded) - len(tasks)))
    spec = make_spec([*seeds, *(task.url for task in tasks)], _settings(config))
    return replace(spec, searches=_searches(spec, file, tasks))


def check_types(spec: CrawlSpec, config: Config) -> None:
    """Whether the nodes of a command of its own may ask all engines: all have the labels that it is given.

    Raises:
        ConfigError: an engine is asked by another type of nodes only.
    """
    own = pairs(config.node.labels).get("type", "")
    for host, wanted in spec.types.items():
        if wanted != own:
            raise ConfigError(
                f"--template: {host} is asked by nodes of type {wanted!r} only, and these are "
                f"{f'of type {own!r}' if own else 'of none'}; add --set node.labels=type={wanted}, or use a swarm"
            )


def _settings(config: Config) -> CrawlSettings:
    implied = {name: value for name, value in _IMPLIED.items() if f"crawl.{name}" not in config.origins}
    return replace(config.crawl, **implied)


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
    template = read(str(path), _text_of(path), installed)
    words = list(template.words)
    if template.words_file:
        lines = map(str.strip, _text_of(path.parent / template.words_file).splitlines())
        words += (line for line in lines if line and not line.startswith("#"))
    package = SEGMENTERS.get(template.segmenter)
    return template, Dictionary(words, None if package is None else import_module(package).cut)


def _text_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
        if len(data) > FILE_BYTES_MAX:
            raise ConfigError(f"{path} is larger than {FILE_BYTES_MAX >> 20} MiB; use several files")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; check the path") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8, at byte {error.start}; save it as UTF-8") from error
