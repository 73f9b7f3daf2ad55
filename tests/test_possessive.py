"""Possessive repetitions match the same under each version of Python, and are compiled in one place."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.possessive import compile_pattern, with_atomic_groups

ROOT = Path(__file__).parents[1]
# A system's own Python may be one that reads them wrongly, as that of Debian 12.
PYTHONS = [sys.executable, *(path for path in ("/usr/bin/python3",) if Path(path).exists())]

# Imports the package, uses what is compiled late, and prints who has compiled what.
RECORD = r"""
import importlib, json, pkgutil, re, sys
import dhtcrawl
from dhtcrawl import possessive
plain, ours, seen = re.compile, possessive.compile_pattern, []
def record(who, pattern, flags):
    is_bytes = isinstance(pattern, bytes)
    seen.append((who, is_bytes, pattern.decode("latin-1") if is_bytes else pattern, int(flags)))
def elsewhere(pattern, flags=0):
    who = sys._getframe(1).f_globals["__name__"]
    if who.startswith("dhtcrawl") and who != possessive.__name__ and not isinstance(pattern, re.Pattern):
        record(who, pattern, flags)
    return plain(pattern, flags)
def here(pattern, flags=0):
    record(possessive.__name__, pattern, flags)
    return ours(pattern, flags)
re.compile, possessive.compile_pattern = elsewhere, here
for module in pkgutil.walk_packages(dhtcrawl.__path__, "dhtcrawl."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
from dhtcrawl.fetch.links import extract
from dhtcrawl.patterns import Patterns
extract(b"<svg><a href=x></svg><b>" * 2000)
extract(b"<a href='x'/>", xhtml=True)
Patterns(["a[bc]+"])
json.dump(seen, sys.stdout)
"""
MATCH = r"""
import json, sys
from dhtcrawl.possessive import compile_pattern
patterns, texts = json.load(sys.stdin)
found = []
for is_bytes, pattern, flags in patterns:
    compiled = compile_pattern(pattern.encode("latin-1") if is_bytes else pattern, flags)
    found.append([[match.span() for match in compiled.finditer(text.encode() if is_bytes else text)] for text in texts])
json.dump(found, sys.stdout)
"""


class Compiled(NamedTuple):
    who: str
    is_bytes: bool
    pattern: str
    flags: int

    @property
    def text(self) -> Any:
        return self.pattern.encode("latin-1") if self.is_bytes else self.pattern

    def told(self, text: str) -> bytes | str:
        return text.encode() if self.is_bytes else text

    @property
    def plain(self) -> re.Pattern[Any]:
        return compile_pattern(self.text, self.flags)


@cache
def all_compiled() -> list[Compiled]:
    argv = [sys.executable, "-c", RECORD]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True)
    return [Compiled(*each) for each in json.loads(done.stdout)]


def has_possessive_group(pattern: bytes | str, flags: int) -> bool:
    """Whether a group is repeated possessively: then the two ways to compile it differ."""
    found: list[str] = []

    def look(part: object) -> None:
        if isinstance(part, tuple | list):
            for each in part:
                look(each)
        elif hasattr(part, "data"):
            for operation, argument in part.data:
                simple = {"LITERAL", "NOT_LITERAL", "IN", "ANY"}
                if str(operation) == "POSSESSIVE_REPEAT" and str(argument[2].data[0][0]) not in simple:
                    found.append(str(operation))
                look(argument)

    look(re._parser.parse(pattern, flags))  # type: ignore[attr-defined]  # noqa: SLF001 - nothing public tells
    return bool(found)


def test_patterns_with_possessive_groups_are_compiled_in_one_place() -> None:
    elsewhere = [
        (each.who, each.pattern[:60])
        for each in all_compiled()
        if each.who != "dhtcrawl.possessive" and has_possessive_group(each.text, each.flags)
    ]
    assert elsewhere == []
    assert sum(each.who == "dhtcrawl.possessive" for each in all_compiled()) > 20


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        (r"(?:ab?c)*+d", "abcacd", True),
        (r"(?:a|ab)*+c", "abc", False),  # nothing is given back
        (r"(?:ab?)++c", "abaabc", True),
        (r"(?:ab)?+abc", "abc", False),
        (r"(?:a[^b]*b|c){2,3}+d", "axxbcd", True),
        (r"(?:a|b){1,2}+b", "ab", False),
        (r"(?:(?:a|b)*+c)*+(d)", "abcbcd", True),
        (r"(?P<x>a|b)*+(?P=x)c", "abbc", False),
    ],
)
def test_both_ways_match_the_same(pattern: str, text: str, matches: bool) -> None:
    for compiled in (compile_pattern(pattern), with_atomic_groups(pattern)):
        assert (compiled.fullmatch(text) is not None) is matches


PIECES = [
    "<a href=",
    "x",
    '"',
    "'",
    ">",
    "<",
    "/",
    " ",
    "\n",
    "<!--",
    "-->",
    "<script>",
    "</script>",
    "<title>",
    "</title>",
]
PIECES += [
    "<svg>",
    "</svg>",
    "<meta charset=utf-8>",
    "<b>",
    "é",
    "&amp;",
    "=",
    "-",
    "1",
    ",",
    ".",
    "http://a/",
    "text/html",
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)


def spans(pattern: re.Pattern[Any], text: bytes | str) -> list[list[int]]:
    return [list(match.span()) for match in pattern.finditer(text)]


@cache
def of_the_house() -> list[tuple[Compiled, re.Pattern[Any]]]:
    """Each pattern, and the same with atomic groups."""
    ours = [each for each in all_compiled() if each.who == "dhtcrawl.possessive"]
    return [(each, with_atomic_groups(each.text, each.flags)) for each in ours]


@given(TEXTS)
def test_each_pattern_of_the_house_matches_the_same_with_atomic_groups(text: str) -> None:
    for each, atomic in of_the_house():
        assert spans(atomic, each.told(text)) == spans(each.plain, each.told(text)), each.pattern


@pytest.mark.parametrize("python", PYTHONS)
def test_each_pattern_of_the_house_matches_the_same_under_other_pythons(python: str) -> None:
    patterns = [each[1:] for each in all_compiled() if each.who == "dhtcrawl.possessive"]
    texts = ["".join(PIECES[(place * step) % len(PIECES)] for place in range(80)) for step in range(1, 40)]
    done = subprocess.run(
        [python, "-c", MATCH], input=json.dumps([patterns, texts]), cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [
        [spans(each.plain, each.told(text)) for text in texts] for each, _ in of_the_house()
    ]


def test_a_repetition_of_millions_of_times_takes_little_memory() -> None:
    # In one group each time would be kept until its end: a hundred bytes and more for each.
    script = (
        "import resource; from dhtcrawl.possessive import with_atomic_groups\n"
        "text = b'<b>' * 3_000_000\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "assert with_atomic_groups(rb'(?:<b>|<[a-z]>)*+').fullmatch(text)\n"
        "assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)
