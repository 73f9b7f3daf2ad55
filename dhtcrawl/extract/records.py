"""The records of a page, and why others are none. Pure.

`extract` never raises, whatever the page. What it costs is bounded by the page and the rules: only pages whose tree
cannot grow far beyond them get one (`fetch.tree_size`), and each selector looks at an element once (`selectors`).
Lists, records, values and the text of all values together have limits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from selectolax.lexbor import LexborHTMLParser, LexborNode

from dhtcrawl.extract.rules_file import HTML, TEXT, Field, Rule, RuleFile
from dhtcrawl.extract.selectors import Selector
from dhtcrawl.extract.values import VALUE_CHARS_MAX, VALUES_MAX, NoValue, PageAddress, RejectReason, Value
from dhtcrawl.fetch.links import utf_8
from dhtcrawl.fetch.tree_size import may_be_parsed
from dhtcrawl.url import canonicalize

RECORDS_MAX: Final = 1_000  # of a rule on a page
TEXT_CHARS_MAX: Final = 4 << 20  # of all values of a page
SHOWN_CHARS: Final = 200

Scope = LexborHTMLParser | LexborNode
Fields = dict[str, Any]


class Record(NamedTuple):
    """What a rule found: each field, None where it is not there, and a list for each that is one."""

    rule: str
    number: int  # on its page, from 1 on; rejected ones count
    fields: Fields


class Reject(NamedTuple):
    """What is no record, or has not all fields."""

    rule: str
    number: int  # 0: of the page as a whole
    field: str  # with those that it is in, such as offers.price; empty: of the record as a whole
    reason: RejectReason
    found: str  # what was there instead, cut
    kept: bool  # the record stands, without this field


class Finding(NamedTuple):
    """What the selectors of a field found, for a person to look at."""

    rule: str
    number: int
    field: str
    selector: str  # the one that counts; empty: the record itself
    elements: int
    value: Any
    reason: RejectReason | None


class Extracted(NamedTuple):
    """What a page has."""

    records: list[Record]
    rejects: list[Reject]
    findings: list[Finding]  # only where they were asked for
    follow: frozenset[str] | None = None  # the links, as written, that rules follow; None: all


def extract(rules: RuleFile, url: str, html: bytes | str, charset: str, *, findings: bool = False) -> Extracted:
    """The records of the page at a canonical URL, by the rules that apply to it. Never raises.

    Bytes are read as UTF-8. `charset` is that which the page was in, as the queries of its links are.
    """
    extracted = Extracted([], [], [])
    applying = rules.rules_of(url)
    if not applying:
        return extracted
    page = utf_8(html)
    if not may_be_parsed(page):
        extracted.rejects.extend(Reject(rule.name, 0, "", RejectReason.NO_TREE, "", False) for rule in applying)
        return extracted
    tree = LexborHTMLParser(page)
    reader = _PageReader(tree, PageAddress(_base(tree, url), charset), extracted, findings)
    for rule in applying:
        try:
            reader.read(rule)
        except _TooMuchText:
            extracted.rejects.append(Reject(rule.name, 0, "", RejectReason.TOO_MUCH_TEXT, "", False))
            break
    following = [selector for rule in applying for selector in rule.follow]
    return extracted._replace(follow=_links_in(tree, following)) if following else extracted


def _links_in(tree: LexborHTMLParser, selectors: Iterable[Selector]) -> frozenset[str]:
    """The links of what the selectors find, and of all that is in it."""
    found = set()
    for selector in selectors:
        for outer in selector.find_apart(tree):
            # What lies in it is asked for with it: `css` of an element looks at the element itself, too.
            for node in outer.css("a[href],area[href],iframe[src],frame[src]"):
                href = node.attributes.get("href" if node.tag in ("a", "area") else "src")
                found.add((href or "").strip(" \t\n\f\r"))
    return frozenset(found)


class _TooMuchText(Exception):
    """The values of the page are too long together."""


def _base(tree: LexborHTMLParser, url: str) -> str:
    base = tree.css_first("base[href]")
    href = None if base is None else base.attributes.get("href")
    return (canonicalize(href.strip(), url) if href else None) or url


class _PageReader:
    """Reads the records of one page."""

    def __init__(self, tree: LexborHTMLParser, address: PageAddress, extracted: Extracted, findings: bool) -> None:
        self._tree = tree
        self._address = address
        self._extracted = extracted
        self._findings = findings
        self._chars_left = TEXT_CHARS_MAX
        self._number = 0
        self._rule = ""

    def read(self, rule: Rule) -> None:
        self._rule = rule.name
        _, scopes = _found(rule.records, self._tree, apart=True) if rule.records else (None, [self._tree])
        if len(scopes) > RECORDS_MAX:
            self._reject(0, "", NoValue(RejectReason.TOO_MANY_RECORDS, str(len(scopes))), kept=False)
            scopes = scopes[:RECORDS_MAX]
        for scope in scopes:
            self._number += 1
            fields = self._fields(rule.fields, scope, "")
            if fields is not None:
                self._extracted.records.append(Record(rule.name, self._number, fields))

    def _fields(self, fields: Iterable[Field], scope: Scope, within: str) -> Fields | None:
        """The fields of a record; None where it lacks one that is required, which is noted."""
        found: Fields = {}
        whole = True
        for field in fields:
            name = within + field.name
            selector, nodes = _found(field.selectors, scope, apart=bool(field.fields))
            reason = None
            value: Any = [] if field.is_list else None
            try:
                value = self._value(field, nodes, name)
                if field.required and value in (None, []):
                    raise NoValue(RejectReason.MISSING)
            except NoValue as none:
                reason = none.reason
                self._reject(self._number, name, none, kept=not field.required)
                whole = whole and not field.required
            found[field.name] = value
            if self._findings:
                text = "" if selector is None else selector.text
                finding = Finding(self._rule, self._number, name, text, len(nodes), value, reason)
                self._extracted.findings.append(finding)
        return found if whole else None

    def _value(self, field: Field, nodes: list[Scope], name: str) -> Any:
        """The value of a field: None, or an empty list, where there is none."""
        if field.is_list and len(nodes) > VALUES_MAX:
            raise NoValue(RejectReason.TOO_MANY_VALUES, str(len(nodes)))
        if not field.is_list:
            nodes = nodes[:1]
        if field.fields:
            records = [self._fields(field.fields, node, f"{name}.") for node in nodes]
            values: list[Any] = [record for record in records if record is not None]
        else:
            values = [value for node in nodes for value in self._values(field, node)]
            if len(values) > VALUES_MAX:
                raise NoValue(RejectReason.TOO_MANY_VALUES, str(len(values)))
        if field.is_list:
            return values
        return values[0] if values else None

    def _values(self, field: Field, node: Scope) -> list[Value]:
        text = _taken(field.take, node)
        texts = [] if text is None else [text]
        self._chars_left -= len(text or "")
        if self._chars_left < 0:
            raise _TooMuchText
        if text is not None and len(text) > VALUE_CHARS_MAX:
            raise NoValue(RejectReason.TOO_LONG, text)
        for transform in field.transforms:
            texts = [result for each in texts for result in transform(each)]
        return [field.type.value_of(each, self._address) for each in texts if each]

    def _reject(self, number: int, field: str, none: NoValue, *, kept: bool) -> None:
        reject = Reject(self._rule, number, field, none.reason, none.shown[:SHOWN_CHARS], kept)
        self._extracted.rejects.append(reject)


def _found(selectors: tuple[Selector, ...], scope: Scope, *, apart: bool) -> tuple[Selector | None, list[Scope]]:
    """The first selector that finds something, and what it finds; without selectors the scope itself."""
    if not selectors:
        return None, [scope]
    for selector in selectors:
        nodes = selector.find_apart(scope) if apart else selector.find(scope)
        if nodes:
            return selector, list(nodes)
    return selectors[0], []


def _taken(take: str, node: Scope) -> str | None:
    if isinstance(node, LexborHTMLParser):
        root = node.root
        if root is None:
            return None
        node = root
    if take == TEXT:
        return node.text()
    if take == HTML:
        return _inner_html(node)
    return node.attributes.get(take[1:])


def _inner_html(node: LexborNode) -> str:
    parts, child = [], node.child
    while child is not None:
        parts.append(child.html or "")
        child = child.next
    return "".join(parts)
