"""docs/configuration.md and the settings say the same."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from dhtcrawl.config import SECTIONS, all_settings, load

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"


def rows() -> dict[str, tuple[str, str, str]]:
    """key → (default, unit, what for), of every table."""
    lines = re.findall(r"^\| `([a-z_.]+)` \| (.*?) \| (.*?) \| (.*) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert len({line[0] for line in lines}) == len(lines), "a setting stands there twice"
    return {key: (default, unit, doc) for key, default, unit, doc in lines}


def test_every_setting_stands_in_the_documentation_and_nothing_else() -> None:
    assert list(rows()) == list(all_settings())


@pytest.mark.parametrize("key", all_settings())
def test_a_documented_default_is_the_default(key: str) -> None:
    shown = rows()[key][0]
    default = all_settings()[key].default
    if shown == "none":
        assert default in ("", ())
        return
    section, _, name = key.partition(".")
    assert getattr(getattr(load(flags={key: shown.strip("`")}), section), name) == default


@pytest.mark.parametrize("key", all_settings())
def test_a_documented_setting_says_what_the_program_says(key: str) -> None:
    field = all_settings()[key]
    _, unit, doc = rows()[key]
    assert doc.startswith(field.metadata["doc"])
    assert [choice.strip("` ") for choice in unit.split(",")] == list(field.metadata["choices"]) or not field.metadata[
        "choices"
    ]
    if field.metadata["kind"] in ("duration", "size"):
        assert unit == field.metadata["kind"]


def test_every_section_has_a_heading() -> None:
    assert re.findall(r"^## \[(\w+)\]$", PAGE.read_text("utf-8"), re.MULTILINE) == list(SECTIONS)


def test_the_example_is_a_file_that_works(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    file = tmp_path / "example.toml"
    file.write_text(example, "utf-8")
    config = load(file=file)
    assert len(config.origins) == sum(len(section) for section in tomllib.loads(example).values())
