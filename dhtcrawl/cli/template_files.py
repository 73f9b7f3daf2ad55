"""Files of task templates, as `--template FILE` and `expand FILE` take them."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from dhtcrawl.cli.text_files import text_of
from dhtcrawl.config import CrawlSettings
from dhtcrawl.errors import ConfigError
from dhtcrawl.searches import RESULTS_MAX
from dhtcrawl.spec import CrawlSpec, make_spec
from dhtcrawl.templates.expand import searches_of
from dhtcrawl.templates.segment import Dictionary
from dhtcrawl.templates.template_file import SEGMENTERS, TemplateFile, read
from dhtcrawl.toml_file import TomlFile

FILE_BYTES_MAX: Final = 64 << 20


def with_template(seeds: Iterable[str], settings: CrawlSettings, template: Path) -> CrawlSpec:
    """A crawl of these seeds and of the pages of results of a file.

    Raises:
        UsageError: a seed is no http(s) URL.
        ConfigError: the file cannot be read, or says what makes no sense.
    """
    searches = searches_of(*read_template(template))
    if len(searches) > RESULTS_MAX:
        raise ConfigError(f"{template}: has {len(searches)} tasks; a crawl takes up to {RESULTS_MAX}, split the file")
    skipped = searches.without_url()
    if skipped:
        raise ConfigError(too_long(template, skipped))
    return make_spec(seeds, settings, searches)


def too_long(file: object, count: int) -> str:
    """What to say of so many tasks that have no URL."""
    return f"{file}: tasks without a URL, as it would be too long or another page's: {count}; change their keywords"


def read_template(path: Path) -> tuple[TemplateFile, Dictionary]:
    """A file of task templates, and what takes names apart by it: its words, those of the file that it names, the rest.

    Raises:
        ConfigError: a file cannot be read, or says what makes no sense.
    """
    installed = [package for package in SEGMENTERS.values() if find_spec(package) is not None]
    text = text_of(path, FILE_BYTES_MAX)
    template = read(str(path), text, installed)
    words = list(template.words)
    if template.words_file:
        try:
            lines = map(str.strip, text_of(path.parent / template.words_file, FILE_BYTES_MAX).splitlines())
        except ConfigError as error:
            raise TomlFile(str(path), text).root.wrong(f"is {template.words_file!r}: {error}", "words_file") from error
        words += (line for line in lines if line and not line.startswith("#"))
    package = SEGMENTERS.get(template.segmenter)
    return template, Dictionary(words, None if package is None else import_module(package).cut)
