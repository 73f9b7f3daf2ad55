"""Files of rules, as `--rules FILE` takes them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from dhtcrawl.cli.text_files import text_of
from dhtcrawl.errors import ConfigError
from dhtcrawl.extract.rules_file import SOURCES_NEED, RuleFile, read
from dhtcrawl.spec import RULES_CHARS_MAX


def checked_rules(path: Path) -> str:
    """The text of a file of rules, which travels with a crawl.

    Raises:
        ConfigError: it cannot be read, or says what makes no sense.
    """
    text = text_of(path, 4 * RULES_CHARS_MAX)
    read(str(path), text, {SOURCES_NEED} if find_spec(SOURCES_NEED) else ())
    if len(text) > RULES_CHARS_MAX:
        raise ConfigError(f"{path} has more than {RULES_CHARS_MAX >> 10} Ki characters; use fewer rules")
    return text


def rules_in(path: Path) -> RuleFile:
    """What a file of rules says.

    Raises:
        ConfigError: it cannot be read, or says what makes no sense.
    """
    return read(str(path), checked_rules(path))
