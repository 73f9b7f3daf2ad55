"""How a command's crawl differs from the one that its directory holds."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from dhtcrawl.cli.options import option_of
from dhtcrawl.config import CrawlSettings
from dhtcrawl.errors import UsageError
from dhtcrawl.spec import CHANGEABLE, CrawlSpec

_TOLD_MAX: Final = 3
_SHOWN_CHARS_MAX: Final = 60
_ALIKE_SHOWN_CHARS: Final = 20  # before the first character that differs


class Plain(NamedTuple):
    """A crawl as JSON has it, and as a node tells it; None where it did not."""

    seeds: object
    settings: object
    searches: object
    rules: object


def plain(spec: CrawlSpec) -> Plain:
    """What a spec says."""
    return Plain(
        list(spec.seeds), json.loads(json.dumps(dataclasses.asdict(spec.settings))), spec.searches.plain(), spec.rules
    )


def told(spec: object) -> Plain:
    """What a node tells of a crawl's spec."""
    return Plain(*map(spec.get, Plain._fields)) if isinstance(spec, Mapping) else Plain(None, None, None, None)


def refusal(out: Path, begun: Plain, spec: CrawlSpec) -> UsageError:
    """What to raise where `out` holds the crawl `begun`, as `plain` gives it, and `spec` is another one."""
    found = _differences(begun, plain(spec))
    more = f" and {len(found) - _TOLD_MAX} more" if len(found) > _TOLD_MAX else ""
    what = f": {', '.join(found[:_TOLD_MAX])}{more}" if found else ""
    return UsageError(
        f"{out} holds a crawl with other seeds or options{what}; "
        "repeat its command to go on with it, or name another directory with --out"
    )


def changes(begun: Plain, spec: CrawlSpec) -> dict[str, Any]:
    """The settings that `spec` changes of the crawl `begun`; a crawl may go on with others."""
    settings, now = begun.settings, plain(spec).settings
    if not isinstance(settings, Mapping) or not isinstance(now, Mapping):
        return {}
    return {name: now[name] for name in CHANGEABLE if settings.get(name) != now[name]}


def settings_of(begun: Plain, spec: CrawlSpec) -> CrawlSettings:
    """The settings of the crawl `begun`, which `is_like` the one of `spec`."""
    before = begun.settings if isinstance(begun.settings, Mapping) else {}
    return dataclasses.replace(spec.settings, **{name: before[name] for name in changes(begun, spec) if name in before})


def is_like(begun: Plain, spec: CrawlSpec) -> bool:
    """Whether `begun` is the crawl of `spec`, but for what may change."""
    return all(part is not None for part in begun) and not _differences(begun, plain(spec))


def changes_told(begun: Plain, spec: CrawlSpec) -> str:
    """What changes, on one line; empty if nothing does."""
    settings, told = begun.settings, []
    for name, now in changes(begun, spec).items():
        before = settings.get(name) if isinstance(settings, Mapping) else None
        told.append(f"{option_of(f'crawl.{name}')} was {_shown(before, name)}, is {_shown(now, name)}")
    return ", ".join(told)


def _differences(begun: Plain, now: Plain) -> list[str]:
    seeds, settings, seeds_now, settings_now = begun.seeds, begun.settings, now.seeds, now.settings
    told = []
    if isinstance(seeds, list) and isinstance(seeds_now, list) and Counter(map(str, seeds)) != Counter(seeds_now):
        told.append(f"the seeds were {_shown_apart(seeds, seeds_now)}")
    if isinstance(settings, Mapping) and isinstance(settings_now, Mapping):
        for name in (name for name in settings_now if name not in CHANGEABLE):
            before: Any = settings.get(name)
            if before != settings_now[name]:
                option = option_of(f"crawl.{name}")
                told.append(f"{option} was {_shown_apart(before, settings_now[name])}")
    if isinstance(begun.rules, str) and begun.rules != now.rules:
        told.append("--rules says other rules")
    if not told and isinstance(begun.searches, Mapping) and begun.searches != now.searches:
        told.append("--template says other tasks or engines")
    return told


def _shown_apart(before: object, now: object) -> str:
    """Two values that differ, each in few characters: from near where they do, if they begin alike."""
    texts = _text(before), _text(now)
    alike = next(
        (at for at, (one, other) in enumerate(zip(*texts, strict=False)) if one != other), min(map(len, texts))
    )
    begin = alike - _ALIKE_SHOWN_CHARS if alike > _SHOWN_CHARS_MAX - _ALIKE_SHOWN_CHARS else 0
    return ", not ".join(_cut(f"...{text[begin:]}" if begin else text) for text in texts)


def _shown(value: object, name: str = "") -> str:
    """A value in few characters."""
    return _cut(_text(value, name))


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS_MAX else f"{text[:_SHOWN_CHARS_MAX]}..."


def _text(value: object, name: str = "") -> str:
    """A value, printable on any terminal."""
    if isinstance(value, bool):
        text = "on" if value else "off"
    elif value == (-1 if name == "depth" else 0) and name in CHANGEABLE and name != "delay_s":
        text = "none"
    else:
        text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    return (text or "empty").encode("ascii", "backslashreplace").decode()
