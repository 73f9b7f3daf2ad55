"""What a file of rules says: which pages have which records, and where their fields are. No I/O.

`read` takes the file's text; docs/extraction.md has every key. What is wrong is told with its line and key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from dhtcrawl.errors import ConfigError
from dhtcrawl.extract.selectors import Selector, parse_selector
from dhtcrawl.extract.values import (
    SIMPLE,
    WITH_LITERAL,
    DateType,
    JsonType,
    NumberType,
    TextType,
    Transform,
    UrlType,
    ValueType,
    check_date_format,
    replaced,
)
from dhtcrawl.toml_file import Table, TomlFile
from dhtcrawl.url import canonicalize, host_of, hostname_of, path_of

RULES_MAX: Final = 1_000
FIELDS_MAX: Final = 100  # of a rule, those of nested records included
NESTING_MAX: Final = 4  # records within records
DOTS_MAX: Final = 400  # of a line
LIST_MAX: Final = 20  # of selectors, formats, transforms, patterns
LITERAL_CHARS_MAX: Final = 200
STARS_MAX: Final = 8  # of a pattern

TEXT, HTML = "text", "html"  # what is taken, unless it is the attribute behind an @
ANY_SITE: Final = "*"
# What a page says of itself, in the place of selectors and fields.
MAIN_TEXT, JSON_LD, MICRODATA, OPENGRAPH = "main-text", "json-ld", "microdata", "opengraph"

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_ATTRIBUTE: Final = re.compile(r"@[A-Za-z_:][A-Za-z0-9_:.-]{0,63}")
_DIGIT_OR_SIGN: Final = re.compile(r"[0-9A-Za-z+-]")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record: where it is, and what is made of it."""

    name: str
    selectors: tuple[Selector, ...]  # the first that finds something counts; none: the record itself
    take: str  # TEXT, HTML, or @ and an attribute
    type: ValueType
    transforms: tuple[Transform, ...]
    required: bool
    is_list: bool
    fields: tuple[Field, ...]  # of nested records; empty: it is a value

    @property
    def collapses(self) -> bool:
        """Whether its transforms are those that it has where a rule says nothing of them, and it is no URL."""
        return self.transforms is COLLAPSED

    @property
    def strips(self) -> bool:
        """The same of a URL."""
        return self.transforms is STRIPPED


@dataclass(frozen=True, slots=True)
class Rule:
    """Which pages have records, and of what they consist."""

    name: str
    sites: tuple[str, ...]  # hosts; with *. in front those below one; ANY_SITE
    pages: tuple[str, ...]  # patterns of paths in canonical form, where * stands for anything
    records: tuple[Selector, ...]  # the first that finds something counts; none: the page is the record
    fields: tuple[Field, ...]
    follow: tuple[Selector, ...]  # the links in what all of them find are followed; none: all of the page
    sources: tuple[str, ...]  # what the page says of itself, in the place of selectors; then the fields are fixed

    def applies_to(self, url: str) -> bool:
        """Whether the page at a canonical URL may have such records."""
        path = path_of(url)
        bare = path.partition("?")[0]
        return self.is_of_site(url) and any(_fits(path if "?" in pattern else bare, pattern) for pattern in self.pages)

    def is_of_site(self, url: str) -> bool:
        """Whether the page at a canonical URL is on one of its sites."""
        return any(_is_of_site(host_of(url), site) for site in self.sites)


@dataclass(frozen=True, slots=True)
class RuleFile:
    """The whole file."""

    rules: tuple[Rule, ...]

    def rules_of(self, url: str) -> list[Rule]:
        """The rules for the page at a canonical URL."""
        return [rule for rule in self.rules if rule.applies_to(url)]


def read(name: str, text: str) -> RuleFile:
    """What the file with this name says.

    Raises:
        ConfigError: it is no TOML, lacks something, or says something that makes no sense.
    """
    for number, line in enumerate(text.split("\n"), 1):  # TOML knows no other end of a line
        if line.count(".") > DOTS_MAX:  # keys with dots take time in proportion to the square of them
            raise ConfigError(f"{name}:{number}: has more than {DOTS_MAX} dots; break the line")
    root = TomlFile(name, text).root
    tables = root.tables("rules")
    root.done()
    if not tables:
        raise root.wrong("has no rule; write [[rules]] with its name and site")
    if len(tables) > RULES_MAX:
        raise root.wrong(f"has {len(tables)} rules; use up to {RULES_MAX}")
    rules = [_rule(table) for table in tables]
    _refuse_twice(tables, [rule.name for rule in rules], "rule")
    return RuleFile(tuple(rules))


def _rule(table: Table) -> Rule:
    sources = table.read("source", _sources, ())
    rule = Rule(
        table.read("name", _name),
        table.read("site", _some(_site)),
        table.read("pages", _some(_pattern), ("*",)),
        () if sources else table.read("record", _some(parse_selector), ()),
        _fields_of(sources) if sources else _fields(table, 0),
        table.read("follow", _some(parse_selector), ()),
        sources,
    )
    table.done()
    if _count(rule.fields) > FIELDS_MAX:
        raise table.wrong(f"has {_count(rule.fields)} fields; use up to {FIELDS_MAX}")
    return rule


def _fields(table: Table, depth: int) -> tuple[Field, ...]:
    tables = table.tables("fields")
    if not tables:
        raise table.wrong("has no field; write [[…fields]] with its name and selector")
    if depth > NESTING_MAX:
        raise table.wrong(f"has records within records, more than {NESTING_MAX} deep; use fewer", "fields")
    fields = tuple(_field(each, depth) for each in tables)
    _refuse_twice(tables, [field.name for field in fields], "field")
    return fields


def _field(table: Table, depth: int) -> Field:
    name = table.read("name", _name)
    kind = table.read("type", _one_of(*_TYPES, "records"), "text")
    is_list = table.read("list", _truth, False)
    selectors = table.read("selector", _some(parse_selector), ())
    required = table.read("required", _truth, False)
    if kind == "records":
        field = Field(name, selectors, TEXT, TextType(), (), required, is_list, _fields(table, depth + 1))
        if not selectors:
            raise table.wrong("lacks 'selector'; it is required where the type is records")
    else:
        take = table.read("take", _take, TEXT)
        # In a URL two spaces are not one, and a line break is none (URL, "basic URL parser").
        transforms = table.read("transforms", _transforms, STRIPPED if kind == "url" else COLLAPSED)
        field = Field(name, selectors, take, _TYPES[kind](table), transforms, required, is_list, ())
    table.done()
    return field


def _fields_of(sources: tuple[str, ...]) -> tuple[Field, ...]:
    """The fields of what a page says of itself."""

    def field(name: str, kind: ValueType, *, is_list: bool = False) -> Field:
        return Field(name, (), TEXT, kind, (), False, is_list, ())

    if sources == (MAIN_TEXT,):
        texts = [field(name, TextType()) for name in ("title", "author", "language", "text")]
        return (*texts[:2], field("date", DateType()), *texts[2:])
    return (field("source", TextType()), field("types", TextType(), is_list=True), field("properties", JsonType()))


def _number_type(table: Table) -> NumberType:
    decimal, group = table.read("decimal", _mark, "."), table.read("group", _mark, "")
    if decimal == group or (decimal.isspace() and group.isspace()):  # spaces are all the same
        raise table.wrong(f"is {group!r}, and so is the decimal mark; use another one", "group")
    return NumberType(decimal, group)


_TYPES: Final[Mapping[str, Callable[[Table], ValueType]]] = {
    "text": lambda _: TextType(),
    "number": _number_type,
    "date": lambda table: DateType(table.read("format", _some(_date_format), ())),
    "url": lambda _: UrlType(),
}


def _refuse_twice(tables: Iterable[Table], names: list[str], what: str) -> None:
    """Names of files and columns, in which upper and lower case are the same to many."""
    lowered = [name.lower() for name in names]
    for place, (table, name) in enumerate(zip(tables, lowered, strict=True)):
        first = lowered.index(name)
        if first < place:
            same = "so is" if names[first] == names[place] else f"in small letters so is {names[first]!r},"
            raise table.wrong(f"is {names[place]!r}, and {same} that of {what} {first + 1}; use another", "name")


def _count(fields: Iterable[Field]) -> int:
    return sum(1 + _count(field.fields) for field in fields)


def _is_of_site(host: str, site: str) -> bool:
    if ":" not in site.rpartition("]")[2]:
        host = hostname_of(host)
    return host.endswith(site[1:]) if site.startswith("*") else host == site


def _fits(path: str, pattern: str) -> bool:
    """Whether a pattern fits, in linear time: what stands between two stars is taken where it comes first."""
    first, *rest = pattern.split("*")
    if not rest:
        return path == first
    *middle, last = rest
    end = len(path) - len(last)
    if not path.startswith(first) or not path.endswith(last) or end < len(first):
        return False
    at = len(first)
    for each in middle:
        at = path.find(each, at, end)
        if at < 0:
            return False
        at += len(each)
    return True


# Values


def _text(value: object, chars_max: int = LITERAL_CHARS_MAX) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("use a text in quotes")
    if len(value) > chars_max:
        raise ValueError(f"use up to {chars_max} characters")
    return value


def _some(parse: Callable[[str], T]) -> Callable[[Any], tuple[T, ...]]:
    """One or a list of them."""

    def parse_some(value: object) -> tuple[T, ...]:
        values = value if isinstance(value, list) else [value]
        if not 0 < len(values) <= LIST_MAX:
            raise ValueError(f"use one text, or a list of up to {LIST_MAX}")
        return tuple(parse(_text(each, 10 * LITERAL_CHARS_MAX)) for each in values)

    return parse_some


def _name(value: object) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError("use up to 64 letters, digits, - and _, a letter first")
    if value.lower().startswith("sqlite_"):
        raise ValueError("use another beginning: names that begin with sqlite_ are SQLite's own")
    return value


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("use true or false")
    return value


def _one_of(*known: str) -> Callable[[Any], str]:
    def parse(value: object) -> str:
        if value not in known:
            raise ValueError(f"use one of {', '.join(known)}")
        return str(value)

    return parse


def _sources(value: object) -> tuple[str, ...]:
    described = _some(_one_of(JSON_LD, MICRODATA, OPENGRAPH, f"or {MAIN_TEXT} alone"))
    found = (MAIN_TEXT,) if value == MAIN_TEXT else described(value)
    if len(set(found)) < len(found):
        raise ValueError("name each once")
    return found


def _site(value: str) -> str:
    if value == ANY_SITE:
        return value
    below = value.startswith("*.")
    host = value[2:] if below else value
    url = canonicalize(f"http://{host}/")
    if url is None or url.count("/") != 3 or path_of(url) != "/" or "@" in host or "*" in host:
        raise ValueError("use a host such as example.org, *.example.org for all below one, or * for any")
    return f"*.{host_of(url)}" if below else host_of(url)


def _pattern(value: str) -> str:
    if not value.startswith(("/", "*")):
        raise ValueError('use a path such as "/product/*"')
    if value.count("*") > STARS_MAX:
        raise ValueError(f"use up to {STARS_MAX} *")
    # As paths are in canonical URLs, which no star changes; a # that is meant is no fragment.
    slash = "" if value.startswith("/") else "/"
    url = canonicalize(f"http://a{slash}{value.replace('#', '%23')}")
    if url is None:
        raise ValueError("it is longer than any path")
    return path_of(url).removeprefix(slash)


def _take(value: object) -> str:
    if value not in (TEXT, HTML) and not (isinstance(value, str) and _ATTRIBUTE.fullmatch(value)):
        raise ValueError('use text, html, or an attribute such as "@href"')
    return str(value).lower()


def _mark(value: object) -> str:
    if not isinstance(value, str) or len(value) != 1 or _DIGIT_OR_SIGN.fullmatch(value):
        raise ValueError('use one character such as "," or "."')
    return value


def _date_format(value: str) -> str:
    check_date_format(_text(value))
    return value


def _transforms(value: object) -> tuple[Transform, ...]:
    if not isinstance(value, list) or len(value) > LIST_MAX:
        raise ValueError(f'use a list of up to {LIST_MAX}, such as ["collapse", {{ after = ":" }}]')
    return tuple(map(_transform, value))


def _transform(value: object) -> Transform:
    if isinstance(value, str) and value in SIMPLE:
        return _of_simple(value)
    if isinstance(value, dict) and len(value) == 1:
        ((name, argument),) = value.items()
        if name in WITH_LITERAL:
            return partial(_with_literal, WITH_LITERAL[name], _text(argument))
        if name == "replace":
            if not (isinstance(argument, list) and len(argument) == 2 and isinstance(argument[1], str)):
                raise ValueError('replace takes two texts, such as { replace = ["old", "new"] }')
            new = _text(argument[1]) if argument[1] else ""
            return partial(_replace, _text(argument[0]), new)
    known = ", ".join((*SIMPLE, *WITH_LITERAL, "replace"))
    raise ValueError(f"{str(value)[:60]!r} is no transform; there are {known}")


def _of_simple(name: str) -> Transform:
    return partial(_as_list, SIMPLE[name])


def _as_list(function: Callable[[str], str], text: str) -> list[str]:
    return [function(text)]


COLLAPSED: Final = (_of_simple("collapse"),)
STRIPPED: Final = (_of_simple("strip"),)


def _with_literal(function: Callable[[str, str], list[str]], literal: str, text: str) -> list[str]:
    return function(text, literal)


def _replace(old: str, new: str, text: str) -> list[str]:
    return [replaced(text, old, new)]
