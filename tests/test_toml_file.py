"""What is wrong with a file that a person wrote is told with its line and its key."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.errors import ConfigError
from dhtcrawl.toml_file import TomlFile

TEXT = '''\
top = 1
text = """
not = "a key"
[nor.a.table]
"""

[a]
"key with.dot" = 2
b.c = 3

[[list]]
name = "first"

  [list.of]
  x = 4

[[list]]
name = "second"
inline = { y = 5 }

[a.'d']
'''


def line(*path: str | int) -> int:
    text = str(TomlFile("f.toml", TEXT).wrong("is wrong", path))
    where = text.split(" ")[0].rstrip(":")
    return int(where.partition(":")[2] or 0)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (("top",), 1),
        (("text",), 2),
        (("a",), 7),
        (("a", "key with.dot"), 8),
        (("a", "b", "c"), 9),
        (("a", "b"), 7),
        (("list",), 11),
        (("list", 0), 11),
        (("list", 0, "name"), 12),
        (("list", 0, "of", "x"), 15),
        (("list", 1), 17),
        (("list", 1, "name"), 18),
        (("list", 1, "inline", "y"), 19),
        (("a", "d"), 21),
        (("missing",), 0),
        ((), 0),
    ],
)
def test_the_line_is_that_of_the_key_or_of_what_is_around_it(path: tuple[str | int, ...], expected: int) -> None:
    assert line(*path) == expected


def test_people_count_the_tables_of_a_list_from_one() -> None:
    assert str(TomlFile("f.toml", TEXT).wrong("is wrong", ("list", 1, "name"))) == "f.toml:18: list.2.name is wrong"


def test_a_key_that_nobody_asked_for_is_refused_with_the_nearest() -> None:
    root = TomlFile("f.toml", "chunks = 3").root
    root.read("chunk", int, 1)
    with pytest.raises(ConfigError, match=r"f\.toml:1: chunks is no key here; did you mean chunk\?"):
        root.done()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a = ", "f.toml is not valid TOML: Invalid value"),
        ("a = 1", "f.toml:1: a is 1; use a table"),
        ("[[a]]", "f.toml:1: a is [{}]; use a table"),
        ("[b]\nc = 1", "f.toml lacks 'x'; it is required"),
    ],
)
def test_what_is_no_table_or_lacks_a_key_is_refused(text: str, told: str) -> None:
    def read() -> None:
        root = TomlFile("f.toml", text).root
        root.table("a")
        root.read("x", str)

    with pytest.raises(ConfigError) as error:
        read()
    assert str(error.value).startswith(told)


def test_a_list_of_tables_may_be_missing_but_is_nothing_else() -> None:
    assert TomlFile("f.toml", "").root.tables("a") == []
    for text in ("a = 1", "a = [1]", "[a]"):
        with pytest.raises(ConfigError, match=r"f\.toml:1: a"):
            TomlFile("f.toml", text).root.tables("a")


@given(st.text("ab.\"'[]= \n#\\{}", max_size=60), st.lists(st.sampled_from(["a", "b", 0, 1]), max_size=3))
def test_any_text_is_refused_or_has_lines(text: str, path: list[Any]) -> None:
    try:
        file = TomlFile("f.toml", text)
    except ConfigError:
        return
    told = str(file.wrong("is wrong", tuple(path)))
    assert re.fullmatch(r"f\.toml(:[0-9]+:)? .*is wrong|f\.toml: .*is wrong", told)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_lines_end_as_toml_says_and_nowhere_else(end: str) -> None:
    text = end.join(["# a\u2028b\x85c", "a = 1", "b = 2"])
    assert str(TomlFile("f.toml", text).wrong("is wrong", ("b",))).startswith("f.toml:3: ")
