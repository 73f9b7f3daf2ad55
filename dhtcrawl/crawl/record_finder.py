"""Finds the records of a crawl's pages while it runs, by the rules that its spec has."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final, TypeVar

from dhtcrawl.crawl.analysis import FindRecords, PageRecords
from dhtcrawl.errors import ConfigError
from dhtcrawl.spec import CrawlSpec
from dhtcrawl.storage.outputs.stored_records import STORED_CHARS_MAX

if TYPE_CHECKING:
    from dhtcrawl.extract.records import Extracted, Record, Reject
    from dhtcrawl.extract.rules_file import Rule, RuleFile

log = logging.getLogger(__name__)

# Of the JSON besides records and rejects, with the reject that tells what was left out.
_AROUND_CHARS_MAX: Final = 256

_json = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode


_Row = TypeVar("_Row", "Record", "Reject")
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
    text = _text(extracted)
    return text if len(text) <= STORED_CHARS_MAX else _text(_cut(extracted))


def kept(extracted: Extracted) -> Extracted:
    """What is left of the records and rejects of a page when its page record was stored: the same where all fits."""
    return extracted if len(_text(extracted)) <= STORED_CHARS_MAX else _cut(extracted)


def _text(extracted: Extracted) -> str:
    return _json({"records": extracted.records, "rejects": extracted.rejects})


def _cut(extracted: Extracted) -> Extracted:
    """The first records that fit, then the first rejects, and a reject of the page that tells of those left out."""
    from dhtcrawl.extract.records import Reject
    from dhtcrawl.extract.values import RejectReason

    records, room = _fitting(extracted.records, STORED_CHARS_MAX - _AROUND_CHARS_MAX)
    # Those of the page as a whole first: they tell what is not even tried.
    candidates = sorted(extracted.rejects, key=lambda reject: reject.number > 0)
    rejects, _ = _fitting(candidates, room)
    lost, untold = len(extracted.records) - len(records), len(candidates) - len(rejects)
    rule = (extracted.records[len(records) :] or candidates[len(rejects) :])[0].rule
    shown = f"{lost} records and {untold} rejects are left out"
    told = Reject(rule, 0, "", RejectReason.TOO_LARGE, shown, not lost)
    return extracted._replace(records=records, rejects=[*rejects, told])


def _fitting(rows: list[_Row], chars: int) -> tuple[list[_Row], int]:
    """The first rows that fit into so many characters, and how many are left."""
    for place, row in enumerate(rows):
        needs = len(_json(row)) + 1
        if needs > chars:
            return rows[:place], chars
        chars -= needs
    return rows, chars
