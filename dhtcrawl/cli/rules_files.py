"""Files of rules, as `--rules FILE` takes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from dhtcrawl.cli.text_files import text_of
from dhtcrawl.errors import ConfigError
from dhtcrawl.extract.rules_file import Rule, RuleFile, read
from dhtcrawl.spec import RULES_CHARS_MAX
from dhtcrawl.storage.outputs.outputs import PAGES_DIR, PAGES_FILE
from dhtcrawl.storage.outputs.record_files import (
    RECORDS_DIR,
    RULES_FILE,
    begins_as_records,
    file_of_rule,
    record_files,
)


def checked_rules(path: Path) -> str:
    """The text of a file of rules, which travels with a crawl.

    Raises:
        ConfigError: it cannot be read, or says what makes no sense.
    """
    text = text_of(path, 4 * RULES_CHARS_MAX)
    read(str(path), text)
    if len(text) > RULES_CHARS_MAX:
        raise ConfigError(f"{path} has more than {RULES_CHARS_MAX >> 10} Ki characters; use fewer rules")
    return text


def rules_without_pages(out: Path, records: Mapping[str, int]) -> list[str]:
    """The rules of what lies in `out` for sites that no page is of; `records` counts theirs, by rule."""
    try:
        waiting = [rule for rule in _rules_beside(out) if rule.name not in records]
        with (out / PAGES_DIR / PAGES_FILE).open("rb") as pages:
            for line in pages:
                if not waiting:
                    break
                try:
                    url = json.loads(line)["url"]
                    waiting = [rule for rule in waiting if not rule.is_of_site(url)]
                except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
                    continue  # it is no page, which the commands that read it tell
    except (OSError, ConfigError):
        return []  # there are none, or another command tells what is wrong with them
    return [rule.name for rule in waiting]


def files_of_rules(out: Path) -> list[Path]:
    """The files of records in `out` that its rules are for; a person may have made others of them, by grep or jq."""
    try:
        names = {file_of_rule(rule.name) for rule in _rules_beside(out)}
    except (OSError, ConfigError):
        names = None  # there are none any more, or a later version wrote them
    return [path for path in record_files(out) if (names is None or path.name in names) and begins_as_records(path)]


def _rules_beside(out: Path) -> tuple[Rule, ...]:
    path = out / RECORDS_DIR / RULES_FILE
    return read(str(path), path.read_text("utf-8", "replace")).rules


def rules_in(path: Path) -> RuleFile:
    """What a file of rules says.

    Raises:
        ConfigError: it cannot be read, or says what makes no sense.
    """
    return read(str(path), checked_rules(path))
