"""What a file of task templates says: engines, groups of sites, and virtual tasks. No I/O.

`read` takes the file's text; docs/templates.md has every key. What is wrong is told with its line and key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from webencodings.labels import LABELS

from dhtcrawl.searches import (
    ENGINES_MAX,
    FIELD,
    NO_SITE,
    NUMBER_MAX,
    PAGES_MAX,
    SITE,
    TEXT_CHARS_MAX,
    SearchEngine,
    fault_of,
)
from dhtcrawl.toml_file import Table, TomlFile
from dhtcrawl.units import parse_duration

CHUNK = 20
LIST_MAX: Final = 100_000
DICTIONARY: Final = "dictionary"
# Segmenters of other packages, by what `segmenter` says, with the package that brings it.
SEGMENTERS: Final[Mapping[str, str]] = {"jieba": "rjieba"}

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class VirtualTask:
    """What to look for, and where."""

    name: str
    keywords: tuple[str, ...]  # empty: the words of the name
    sites: tuple[str, ...]  # hosts; NO_SITE: anywhere
    engines: tuple[str, ...]
    pages: int | None  # None: as many as each engine's
    place: int  # in the file, from 0 on


@dataclass(frozen=True, slots=True)
class TemplateFile:
    """The whole file."""

    engines: Mapping[str, SearchEngine]
    tasks: tuple[VirtualTask, ...]
    words: tuple[str, ...]  # of the dictionary
    words_file: str  # more of them, one a line; empty: there is none
    chunk: int  # actual tasks of a virtual one that go together
    segmenter: str = DICTIONARY  # of what is in no dictionary


def read(name: str, text: str, installed: Container[str] = ()) -> TemplateFile:
    """What the file with this name says; `installed` are the packages of `SEGMENTERS` that are there.

    Raises:
        ConfigError: it is no TOML, lacks something, or says something that makes no sense.
    """
    root = TomlFile(name, text).root
    chunk = root.read("chunk", _number(1, NUMBER_MAX), CHUNK)
    words = root.read("words", _texts, ())
    words_file = root.read("words_file", _text, "")
    segmenter = root.read("segmenter", _segmenter(installed), DICTIONARY)
    engines = {each: _engine(each, table) for each, table in _named(root.table("engines"))}
    groups = _groups(root.table("sites"))
    tasks = tuple(_task(place, table, engines, groups) for place, table in enumerate(root.tables("tasks")))
    root.done()
    _check_types(root.table("engines"), engines)
    if not engines:
        raise root.wrong("has no engine; write [engines.NAME] with its url")
    if len(engines) > ENGINES_MAX:
        raise root.wrong(f"has {len(engines)} engines; use up to {ENGINES_MAX}, and several files")
    if not tasks:
        raise root.wrong("has no task; write [[tasks]] with its name")
    return TemplateFile(engines, tasks, words, words_file, chunk, segmenter)


def _named(tables: Table) -> Iterable[tuple[str, Table]]:
    for name in tables:
        if not _NAME.fullmatch(name):
            raise tables.wrong("is no name; use up to 64 letters, digits, dots, - and _", name)
        yield name, tables.table(name)


def _engine(name: str, table: Table) -> SearchEngine:
    engine = SearchEngine(
        name,
        table.read("url", _template(("query", "page"))),
        table.read("join", _text, " "),
        table.read("site", _template(("site",)), "site:{site}"),
        table.read("extra", _texts, ()),
        table.read("encoding", _encoding, "utf-8"),
        table.read("pages", _number(1, PAGES_MAX), 1),
        table.read("first", _number(0, NUMBER_MAX), 1),
        table.read("step", _number(1, NUMBER_MAX), 1),
        table.read("type", _text, ""),
        table.read("delay", parse_duration, None),
    )
    table.done()
    fault = fault_of(engine)
    if fault is not None:
        raise table.wrong(*fault)
    if "{page}" in engine.url and engine.url_of("a", 0) == engine.url_of("a", 1):
        raise table.wrong(f"is {engine.url!r}; no engine is told what stands behind the #", "url")
    return engine


def _check_types(table: Table, engines: Mapping[str, SearchEngine]) -> None:
    """A node that may ask a host for one engine may not be kept from it for another.

    Raises:
        ConfigError: two engines of one host are of different types.
    """
    of_host: dict[str, SearchEngine] = {}
    for name, engine in engines.items():
        first = of_host.setdefault(engine.host, engine)
        if first.type != engine.type:
            raise table.wrong(f"is not the type of engine {first.name}, which has the same host; use one", name, "type")


def _groups(table: Table) -> dict[str, tuple[str, ...]]:
    """The groups of sites, by name."""
    return {name: table.read(name, _sites) for name in table}


def _task(
    place: int, table: Table, engines: Mapping[str, SearchEngine], groups: Mapping[str, tuple[str, ...]]
) -> VirtualTask:
    named = table.read("engines", _texts, tuple(engines))
    task = VirtualTask(
        table.read("name", _text),
        table.read("keywords", _texts, ()),
        table.read("sites", lambda value: _all_sites(value, groups), (NO_SITE,)),
        named,
        table.read("pages", _number(1, PAGES_MAX), None),
        place,
    )
    table.done()
    if not task.name.strip():
        raise table.wrong("is empty; give the task a name", "name")
    for name in named:
        if name not in engines:
            raise table.wrong(f"names {name!r}, and there is no [engines.{name}]", "engines")
        if (task.pages or 1) > 1 and "{page}" not in engines[name].url:
            raise table.wrong(f"asks for several pages; the url of engine {name} has no {{page}}", "pages")
    return task


# Values


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("use a text in quotes")
    if len(value) > TEXT_CHARS_MAX:
        raise ValueError(f"use up to {TEXT_CHARS_MAX} characters")
    if any(ord(char) < 32 or ord(char) == 127 for char in value):
        raise ValueError("remove the control character")
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or len(value) > LIST_MAX:
        raise ValueError('use a list of texts, such as ["a", "b"]')
    found = tuple(map(_text, value))
    if not all(each.strip() for each in found):
        raise ValueError("remove the empty text")
    return _distinct(found)


def _distinct(found: tuple[str, ...]) -> tuple[str, ...]:
    seen: set[str] = set()
    for each in found:
        if each in seen:
            raise ValueError(f"{each!r} stands there twice; say it once")
        seen.add(each)
    return found


def _number(low: int, high: int) -> Callable[[Any], int]:
    def parse(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"use a whole number from {low} to {high}")
        return value

    return parse


def _template(known: Iterable[str]) -> Callable[[Any], str]:
    def parse(value: object) -> str:
        text = _text(value)
        for field in FIELD.findall(text):
            if field not in known:
                there = " and ".join(f"{{{each}}}" for each in known)
                raise ValueError(f"{{{field}}} stands for nothing; there is {there}")
        if "{" in FIELD.sub("", text) or "}" in FIELD.sub("", text):
            raise ValueError("a brace is open, or closes nothing; write %7B and %7D for braces that are meant")
        return text

    return parse


def _encoding(value: object) -> str:
    found: str | None = LABELS.get(_text(value).strip().lower())
    if found is None:
        raise ValueError("use the name of an encoding of the web, such as utf-8, gbk or big5")
    return found


def _segmenter(installed: Container[str]) -> Callable[[Any], str]:
    def parse(value: object) -> str:
        name = _text(value)
        package = SEGMENTERS.get(name)
        if name != DICTIONARY and package is None:
            raise ValueError(f"use {DICTIONARY} or {', '.join(SEGMENTERS)}")
        if package is not None and package not in installed:
            raise ValueError(f"run 'pip install {package}' where dhtcrawl is installed, or use {DICTIONARY}")
        return name

    return parse


def _sites(value: object) -> tuple[str, ...]:
    found = _texts(value)
    for each in found:
        if not SITE.fullmatch(each):
            raise ValueError(f"{each!r} is no host; use one such as example.org")
    return found


def _all_sites(value: object, groups: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Hosts, where a group's name stands for those of the group."""
    found: list[str] = []
    for each in _texts(value):
        found += groups[each] if each in groups else _sites([each])
    return tuple(dict.fromkeys(found))
