"""What a page says of itself, without selectors: JSON-LD, Microdata, OpenGraph, and its main text. Pure.

turbohtml reads it (decision 0074) in the tree of a page; what can take long in it is counted before it is asked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dhtcrawl.extract.rules_file import JSON_LD, MAIN_TEXT, MICRODATA
from dhtcrawl.extract.values import INTEGER_MAX, DateType, NoValue, RejectReason

if TYPE_CHECKING:
    from turbohtml import Document, MicrodataItem

DEPTH_MAX: Final = 8  # of what is nested in an item
# turbohtml compares the names of an item's properties with each other, and goes through each `itemref` again in each
# item that it leads to.
NAMES_MAX: Final = 4_096
REFERENCES_MAX: Final = 8
_DIGITS_MAX: Final = 400
_CONFIDENCE_MIN: Final = 0.5  # of a language; below it stands none


class SourceRecord(NamedTuple):
    """What one source has once: the fields, those that are no value, and all texts, which are counted."""

    fields: dict[str, Any]
    none: list[tuple[str, NoValue]]
    texts: list[str]


def source_records(tree: Document, source: str, url: str) -> Iterator[SourceRecord | NoValue]:
    """What a source of the page at a canonical URL has, each thing once, and why there is none."""
    if source == MAIN_TEXT:
        yield from _main_text(tree)
    elif source == JSON_LD:
        yield from _json_ld(tree)
    elif source == MICRODATA:
        yield from _microdata(tree, url)
    else:
        yield from _opengraph(tree, url)


def _main_text(tree: Document) -> Iterator[SourceRecord | NoValue]:
    from turbohtml.detect import detect_language

    article = tree.article()
    if not article.text:
        yield NoValue(RejectReason.MISSING)
        return
    none = []
    date = None
    if article.date:
        try:
            date = DateType().date_of(article.date)
        except NoValue as no_date:
            none.append(("date", no_date))
    language = detect_language(article.text)
    fields = {
        "title": article.title,
        "author": article.byline,
        "date": date,
        "language": language.language if language.confidence >= _CONFIDENCE_MIN else None,
        "text": article.text,
    }
    yield SourceRecord(fields, none, [article.text, article.title or "", article.byline or ""])


def _json_ld(tree: Document) -> Iterator[SourceRecord | NoValue]:
    blocks = tree.json_ld()
    scripts = [script for script in tree.select("script[type]") if _is_json_ld(str(script.attrs.get("type") or ""))]
    if len(blocks) < len(scripts):
        # Many are none for a line break in a description alone, which nobody can mistake for anything else.
        blocks = [block for script in scripts for block in _lenient(script.text)]
    if len(blocks) < len(scripts):
        yield NoValue(RejectReason.NOT_JSON, f"{len(scripts) - len(blocks)} of {len(scripts)} scripts")
    for block in blocks:
        for item in _items_of(block):
            types = item.get("@type")
            named = [each for each in (types if isinstance(types, list) else [types]) if isinstance(each, str)]
            properties = {name: each for name, each in item.items() if name not in ("@context", "@type")}
            yield _described(JSON_LD, named, properties)


def _lenient(text: str) -> Iterator[Any]:
    """The value of a JSON text that may have control characters in its strings; nothing where it is none."""
    try:
        yield json.loads(text, strict=False, parse_constant=_no_constant, parse_int=_integer)
    except (ValueError, RecursionError):
        return


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _integer(digits: str) -> int | str:
    """Python makes no number of what has thousands of digits, and no record has room for it."""
    return int(digits) if len(digits) < _DIGITS_MAX else digits


def _is_json_ld(kind: str) -> bool:
    return kind.partition(";")[0].strip().lower() == "application/ld+json"


def _items_of(block: Any) -> Iterator[dict[str, Any]]:
    """The objects of a block: itself, those of a list, or those of its graph."""
    for each in block if isinstance(block, list) else [block]:
        if isinstance(each, dict):
            graph = each.get("@graph")
            if isinstance(graph, list):
                yield from (item for item in graph if isinstance(item, dict))
            else:
                yield graph if isinstance(graph, dict) else each


def _microdata(tree: Document, url: str) -> Iterator[SourceRecord | NoValue]:
    if _words(tree, "itemref") > REFERENCES_MAX or _words(tree, "itemprop") > NAMES_MAX:
        yield NoValue(RejectReason.TOO_MUCH_WORK)
        return
    for item in tree.microdata(url):
        try:
            properties = _properties(item, 0)
        except NoValue as none:
            yield none
        else:
            yield _described(MICRODATA, (item.type or "").split(), properties)


def _words(tree: Document, attribute: str) -> int:
    return sum(len(str(element.attrs[attribute]).split()) for element in tree.select(f"[{attribute}]"))


def _properties(item: MicrodataItem, depth: int) -> dict[str, Any]:
    """As JSON-LD has them: a list only where there are several.

    Raises:
        NoValue: they are nested too deep.
    """
    if depth > DEPTH_MAX:
        raise NoValue(RejectReason.TOO_DEEP)
    found: dict[str, Any] = {} if item.id is None else {"@id": item.id}
    for name, values in item.properties.items():
        plain = [each if isinstance(each, str) else _nested(each, depth + 1) for each in values]
        found[name] = plain[0] if len(plain) == 1 else plain
    return found


def _nested(item: MicrodataItem, depth: int) -> dict[str, Any]:
    types = (item.type or "").split()
    kind = {"@type": types[0] if len(types) == 1 else types} if types else {}
    return {**kind, **_properties(item, depth)}


def _opengraph(tree: Document, url: str) -> Iterator[SourceRecord | NoValue]:
    found = tree.structured_data(url).opengraph
    if found:
        kind = found.get("og:type")
        yield _described("opengraph", [kind] if kind else [], dict(found))


def _described(source: str, types: list[str], properties: dict[str, Any]) -> SourceRecord | NoValue:
    texts = list(types)
    try:
        properties = _plain(properties, 0, texts)
    except NoValue as none:
        return none
    return SourceRecord({"source": source, "types": types, "properties": properties}, [], texts)


def _plain(value: Any, depth: int, texts: list[str]) -> Any:
    """A value as records may have it; numbers that no column can hold become texts. Adds its texts to `texts`.

    Raises:
        NoValue: it is nested too deep.
    """
    if depth > DEPTH_MAX:
        raise NoValue(RejectReason.TOO_DEEP)
    if isinstance(value, dict):
        texts += value
        return {name: _plain(each, depth + 1, texts) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each, depth + 1, texts) for each in value]
    if isinstance(value, int | float) and not abs(value) <= INTEGER_MAX:  # nor is NaN
        value = str(value)
    texts.append(value if isinstance(value, str) else "")
    return value
