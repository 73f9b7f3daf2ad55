"""Rules for tests: one site, one rule, the fields that a test asks for."""

from __future__ import annotations

import json
from typing import Any

from dhtcrawl.extract.records import Extracted, extract
from dhtcrawl.extract.rules_file import RuleFile, read

URL = "http://shop.example/p/1"


def toml(value: Any) -> str:
    """A value in TOML; in tables the keys are bare."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {toml(each)}" for name, each in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def rules(*fields: dict[str, Any], **keys: Any) -> RuleFile:
    """One rule with these fields."""
    rule = {"name": "r", "site": "shop.example", **keys, "fields": list(fields)}
    return read("r.toml", f"rules = [{toml(rule)}]")


def found(page: bytes | str, *fields: dict[str, Any], charset: str = "utf-8", **keys: Any) -> Extracted:
    """What such a rule finds on a page."""
    return extract(rules(*fields, **keys), URL, page, charset)


def value(page: bytes | str, **field: Any) -> Any:
    """The value of the only field of the page, which must be the only record."""
    (record,) = found(page, {"name": "f", **field}).records
    return record.fields["f"]
