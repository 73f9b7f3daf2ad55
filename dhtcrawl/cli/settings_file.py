"""A settings file with every setting: those that differ from the default, and all others as comments."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping

from dhtcrawl.config import SECTIONS, all_settings

_WIDTH = 100
_HEAD = """\
Settings of a dhtcrawl node. Every setting stands here with its default behind a #; take the # away to change one.
Times are in seconds, or as "10s", "5m", "2h"; sizes in bytes, or as "64KiB", "20GiB".
'dhtcrawl config check FILE' says whether this file is good. The [crawl] settings are those of 'dhtcrawl crawl'
and 'dhtcrawl submit' with this file."""


def settings_file(chosen: Mapping[str, object]) -> str:
    """TOML that says what is `chosen`, `section.key` → value, and comments that say the rest."""
    known = all_settings()
    lines = [f"# {line}" for line in _HEAD.splitlines()]
    for name, section in SECTIONS.items():
        lines += ["", f"[{name}]", *_comment((section.__doc__ or "").strip().splitlines()[0])]
        for key, field in known.items():
            if key.partition(".")[0] == name:
                value = chosen.get(key, field.default)
                choices = f"; one of {', '.join(field.metadata['choices'])}" if field.metadata["choices"] else ""
                lines += ["", *_comment(field.metadata["doc"] + choices)]
                lines.append(f"{'' if key in chosen else '# '}{field.name} = {toml_value(value)}")
    return "\n".join(lines) + "\n"


def toml_value(value: object) -> str:
    """A value of a setting as TOML writes it."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    # A basic string of TOML takes what a string of JSON does.
    return json.dumps(value, ensure_ascii=False)


def _comment(text: str) -> list[str]:
    return [f"## {line}" for line in textwrap.wrap(text, _WIDTH)]
