"""Finds the records of a crawl's pages while it runs, by the rules that its spec has."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final

from dhtcrawl.crawl.analysis import FindRecords, PageRecords
from dhtcrawl.errors import ConfigError
from dhtcrawl.spec import CrawlSpec

if TYPE_CHECKING:
    from dhtcrawl.extract.records import Extracted
    from dhtcrawl.extract.rules_file import Rule, RuleFile

log = logging.getLogger(__name__)

# Of what a page record has of its records: page records travel between nodes in frames of 1 MiB, some in each.
STORED_CHARS_MAX: Final = 192 << 10

_json = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode


Finder = Callable[[str], FindRecords | None]


def finder_of(spec: CrawlSpec) -> Finder | None:
    """What finds the records of the page at a URL, if it may have some; None where the crawl has no rules."""
    rules = _rules_in(spec.rules) if spec.rules else None
    if rules is None:
        return None

    def finder(url: str) -> FindRecords | None:
        applying = rules.rules_of(url)
        return partial(found_on, applying, url) if applying else None

    return finder


def rule_names(spec: CrawlSpec) -> frozenset[str] | None:
    """The names of a crawl's rules; None where it has none, or none that can be read here."""
    rules = _rules_in(spec.rules) if spec.rules else None
    return None if rules is None else frozenset(rule.name for rule in rules.rules)


@lru_cache(maxsize=8)
def _rules_in(text: str) -> RuleFile | None:
    from dhtcrawl.extract.rules_file import read  # few crawls have rules

    try:
        return read("--rules", text)
    except ConfigError as error:
        # They were checked where the crawl was begun: by a version that knew more, or by nobody.
        log.warning("the rules of the crawl cannot be used here (%s); nothing is extracted on this node", error)
        return None


def found_on(applying: list[Rule], url: str, html: bytes, charset: str) -> PageRecords:
    """What the page at a canonical URL has by the rules for it, as its page record keeps it; `html` is in UTF-8."""
    from dhtcrawl.extract.records import extract_by

    extracted = extract_by(applying, url, html, charset)
    return PageRecords(stored(extracted), extracted.follow, extracted.links)


def stored(extracted: Extracted) -> str:
    """What a page record keeps of the records of its page: JSON, of `STORED_CHARS_MAX` characters at most."""
    from dhtcrawl.extract.records import Reject
    from dhtcrawl.extract.values import RejectReason

    rejects = [list(reject) for reject in extracted.rejects]
    records = [list(record) for record in extracted.records]
    text = _json({"records": records, "rejects": rejects})
    while len(text) > STORED_CHARS_MAX:
        # Half of them, and so on; that some are left out is a reject of the page, which has to name a rule.
        rule = (extracted.records or extracted.rejects)[0].rule
        records, rejects = records[: len(records) // 2], rejects[: len(rejects) // 2]
        text = _json(
            {"records": records, "rejects": [*rejects, list(Reject(rule, 0, "", RejectReason.TOO_LARGE, "", False))]}
        )
    return text
