"""Reads a TOML file that a person wrote, and says in one line what is wrong with it, and where. No I/O.

`tomllib` gives values without the places where they stand, so the lines of keys are found beside it. A key in an inline
table, or in a list, has the line of the key that it belongs to.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

from dhtcrawl.errors import ConfigError
from dhtcrawl.possessive import compile_pattern

KeyPath = tuple[str | int, ...]
T = TypeVar("T")

_NAME: Final = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_NAMES: Final = rf"{_NAME}(?:[ \t]*\.[ \t]*{_NAME})*+"
_HEADER: Final = compile_pattern(rf"[ \t]*(\[\[?)[ \t]*({_NAMES})[ \t]*\]")
_KEY: Final = compile_pattern(rf"[ \t]*({_NAMES})[ \t]*=")
_ONE_NAME: Final = re.compile(_NAME)
_LONG_QUOTE: Final = re.compile(r'"""|\'\'\'')
_NONE: Final = object()


class Table:
    """A table of a TOML file; what is not asked for by `done` is no key of it."""

    def __init__(self, file: TomlFile, path: KeyPath, values: Mapping[str, object]) -> None:
        self._file = file
        self._path = path
        self._values = values
        self._asked: dict[str, None] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def wrong(self, problem: str, *at: str | int) -> ConfigError:
        """The error that says what is wrong with this table, or with what stands at `at` below it."""
        return self._file.wrong(problem, (*self._path, *at))

    def read(self, key: str, parse: Callable[[Any], T], default: Any = _NONE) -> T:
        """The value of `key`, through `parse`, which raises a ValueError that says what would be right.

        Raises:
            ConfigError: it is missing and has no default, or `parse` does not take it.
        """
        self._asked[key] = None
        value = self._values.get(key, default)
        if value is _NONE:
            raise self.wrong(f"lacks {key!r}; it is required")
        if value is default:
            return value  # type: ignore[no-any-return]
        try:
            return parse(value)
        except ValueError as error:
            raise self.wrong(f"is {_shown(value)}; {error}", key) from None

    def table(self, key: str) -> Table:
        """The table below `key`; an empty one where there is none.

        Raises:
            ConfigError: it is no table.
        """
        self._asked[key] = None
        return self._below(self._values.get(key, {}), key)

    def tables(self, key: str) -> list[Table]:
        """The tables of the list below `key`; none where there is none.

        Raises:
            ConfigError: it is no list of tables.
        """
        self._asked[key] = None
        values = self._values.get(key, [])
        if not isinstance(values, list):
            raise self.wrong(f"is {_shown(values)}; write [[{key}]] for each of them", key)
        return [self._below(value, key, number) for number, value in enumerate(values)]

    def done(self) -> None:
        """Refuse keys that were not asked for.

        Raises:
            ConfigError: there is one.
        """
        for key in self._values:
            if key not in self._asked:
                near = difflib.get_close_matches(key, self._asked, n=1)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(self._asked)}"
                raise self.wrong(f"is no key here; {hint}", key)

    def _below(self, value: object, *at: str | int) -> Table:
        if not isinstance(value, dict):
            raise self.wrong(f"is {_shown(value)}; use a table", *at)
        return Table(self._file, (*self._path, *at), value)


class TomlFile:
    """A TOML file, by the name that people know it by."""

    def __init__(self, name: str, text: str) -> None:
        """Parse `text`.

        Raises:
            ConfigError: it is no TOML.
        """
        self.name = name
        self._text = text
        try:
            values = tomllib.loads(text)
        except (ValueError, RecursionError) as error:  # a number of thousands of digits is a plain ValueError
            raise ConfigError(f"{name} is not valid TOML: {error or 'too deep'}") from error
        self.root = Table(self, (), values)

    def wrong(self, problem: str, path: KeyPath) -> ConfigError:
        """The error that says what is wrong at `path`: keys, and numbers of the tables in lists, from 0 on."""
        line = _line_of(self._text, path)
        where = f"{self.name}:{line}" if line else self.name
        named = ".".join(str(each + 1) if isinstance(each, int) else each for each in path)
        return ConfigError(f"{where}: {named} {problem}" if named else f"{where} {problem}")


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:
        return "a number of thousands of digits"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _line_of(text: str, path: KeyPath) -> int:
    """The line, from 1 on, of the key or table at `path`, or of the nearest above it; 0: of none."""
    best, lines = (0, 0), {place: line for line, place in _places(text)}
    for place, line in lines.items():
        if path[: len(place)] == place and len(place) > best[0]:
            best = (len(place), line)
    return best[1]


def _places(text: str) -> Iterator[tuple[int, KeyPath]]:
    """The lines on which keys and tables begin."""
    table: KeyPath = ()
    counts: dict[KeyPath, int] = {}
    quote = ""  # of a text over several lines that is open
    for number, line in enumerate(text.split("\n"), 1):  # TOML knows no other end of a line
        if not quote:
            header, key = _HEADER.match(line), _KEY.match(line)
            if header is not None:
                table = _table_of(header[1], _split(header[2]), counts)
                if table[-1:] == (0,):
                    yield number, table[:-1]
                yield number, table
            elif key is not None:
                yield number, table + _split(key[1])
        for mark in _LONG_QUOTE.findall(line):
            quote = "" if quote == mark else quote or mark


def _table_of(bracket: str, names: KeyPath, counts: dict[KeyPath, int]) -> KeyPath:
    """The path of a header: behind the name of a list stands the number of its last table."""
    path: KeyPath = ()
    for place, name in enumerate(names):
        path += (name,)
        if bracket == "[[" and place == len(names) - 1:
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path += (counts[path],)
    return path


def _split(names: str) -> KeyPath:
    return tuple(name[1:-1] if name[0] in "\"'" else name for name in _ONE_NAME.findall(names))
