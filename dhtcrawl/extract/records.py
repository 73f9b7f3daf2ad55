"""The records of a page, and why others are none. Pure.

`extract` never raises, whatever the page. What it costs is bounded by the page and the rules: only pages whose tree
cannot grow far beyond them get one (`page_tree`), and each selector looks at an element once (`selectors`).
Lists, records, values and the text of all values together have limits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from turbohtml import Document, Element, Namespace

from dhtcrawl.extract.page_sources import SourceRecord, source_records
from dhtcrawl.extract.page_tree import NODES_MAX, tree_of
from dhtcrawl.extract.rules_file import HTML, TEXT, Field, Rule, RuleFile
from dhtcrawl.extract.selectors import Scope, Selector, parse_selector
from dhtcrawl.extract.tree_links import links_in
from dhtcrawl.extract.values import VALUE_CHARS_MAX, VALUES_MAX, DateType, NoValue, PageAddress, RejectReason, Value
from dhtcrawl.fetch.links import PageLinks, utf_8
from dhtcrawl.fetch.plain_links import PlainLinks
from dhtcrawl.url import canonicalize

RECORDS_MAX: Final = 1_000  # of a rule on a page
TEXT_CHARS_MAX: Final = 4 << 20  # of all values of a page, before and after each transform
REJECTS_MAX: Final = 1_000  # of a page
# What a page may cost, in looks: a selector that finds nothing in a small element takes one, some 4 us.
LOOKS_MAX: Final = 100_000
_ELEMENTS_A_LOOK: Final = 400
_FOUND_A_LOOK: Final = 10
_SIBLINGS_A_LOOK: Final = 1_200  # pairs of them
_LOOKS_A_FORMAT: Final = 4  # that a date is tried with
_LISTED_APART: Final = 16  # values of a list of which no one asks whether they lie within each other
SHOWN_CHARS: Final = 200
_IN_TEMPLATES: Final = parse_selector("template base[href]")
_LEADS_IN: Final = {"a": "href", "area": "href", "iframe": "src", "frame": "src"}

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
    links: PageLinks | None = None  # None: the page has no tree that tells them


def extract(rules: RuleFile, url: str, html: bytes | str, charset: str, *, findings: bool = False) -> Extracted:
    """The records of the page at a canonical URL, by the rules that apply to it. Never raises.

    Bytes are read as UTF-8. `charset` is that which the page was in, as the queries of its links are.
    """
    return extract_by(rules.rules_of(url), url, utf_8(html), charset, findings=findings)


def extract_by(applying: list[Rule], url: str, page: bytes, charset: str, *, findings: bool = False) -> Extracted:
    """The same of a page in UTF-8, by rules of which it is known that they apply to it."""
    extracted = Extracted([], [], [])
    if not applying:
        return extracted
    tree = tree_of(page, page.count(b"<"))
    if tree is None:
        extracted.rejects.extend(Reject(rule.name, 0, "", RejectReason.NO_TREE, "", False) for rule in applying)
        return extracted
    budget = _Budget(tree)
    base = _base(tree, url)
    address = PageAddress(base, charset, _plain_links(base[: base.partition("?")[0].rindex("/") + 1]))
    reader = _PageReader(tree, address, extracted, findings, budget)
    follow = None
    rule = applying[0]
    try:
        follow = _links_in(tree, [selector for rule in applying for selector in rule.follow], budget)
        for rule in applying:
            if rule.sources:
                for source in rule.sources:
                    reader.take(rule, source, source_records(tree, source, url))
            else:
                reader.read(rule)
    except _TooMuch as much:
        extracted.rejects.append(Reject(rule.name, 0, "", much.reason, "", False))
    return extracted._replace(follow=follow, links=links_in(tree))


class _TooMuch(Exception):
    """The page costs more than it may; what was found so far stands."""

    def __init__(self, reason: RejectReason) -> None:
        super().__init__(reason)
        self.reason = reason


class _Budget:
    """What a page may still cost, in looks, some of which depend on how many elements it has.

    These are counted only where there may be too many: few pages are that dear.
    """

    def __init__(self, tree: Document) -> None:
        self._tree = tree
        self._looks = 0.0
        self._readings = 0.0  # of the whole tree
        self._elements = float(NODES_MAX)  # at most
        self._counted = False
        self._siblings: int | None = None

    def spend(self, looks: float, readings: float = 0.0) -> None:
        self._looks += looks
        self._readings += readings
        if self._looks + self._readings * self._elements / _ELEMENTS_A_LOOK > LOOKS_MAX and (
            self._counted or self._looks + self._readings * self._count() / _ELEMENTS_A_LOOK > LOOKS_MAX
        ):
            raise _TooMuch(RejectReason.TOO_MUCH_WORK)

    def find(self, selector: Selector, scope: Scope, share: float, *, apart: bool) -> list[Element]:
        """What a selector finds in a scope that is about this share of the tree."""
        steps = len(selector.steps)
        pairs = self._count() * self._most_siblings() if selector.counts_siblings else 0.0
        if steps > 1 or apart:
            self.spend(steps * share * pairs / _SIBLINGS_A_LOOK, steps * share)
            find = selector.find_apart if apart else selector.find
            return find(scope, lambda looks, found: self.spend(looks + found / _FOUND_A_LOOK))
        self.spend(1 + share * pairs / _SIBLINGS_A_LOOK, share)
        found = scope.select(selector.steps[0].css)
        self.spend(len(found) / _FOUND_A_LOOK)
        return found

    def _count(self) -> float:
        if not self._counted:
            counted = self._tree.xpath("count(//*)")
            assert isinstance(counted, float), "a count is one"
            self._elements, self._counted = counted, True
        return self._elements

    def _most_siblings(self) -> int:
        if self._siblings is None:
            nodes = self._tree.select("*")
            self.spend(len(nodes) / _FOUND_A_LOOK)
            parents = Counter(node.parent for node in nodes)
            self._siblings = max(parents.values(), default=0)
        return self._siblings


def _links_in(tree: Document, selectors: Iterable[Selector], budget: _Budget) -> frozenset[str] | None:
    """The links of what the selectors find, and of all that is in it; None without selectors."""
    if not selectors:
        return None
    found = set()
    for selector in selectors:
        outers = budget.find(selector, tree, 1.0, apart=True)
        budget.spend(len(outers), 1.0)
        for outer in outers:
            for node in (outer, *outer.select("a[href],area[href],iframe[src],frame[src]")):
                href = node.attr(_LEADS_IN[node.tag]) if node.tag in _LEADS_IN else None
                if href is not None:
                    found.add(href.strip(" \t\n\f\r"))
    return frozenset(found)


def _base(tree: Document, url: str) -> str:
    """Its first base, but for those of drawings, and of templates, which say nothing of the page."""
    bases = tree.select("base[href]")
    inert = set(_IN_TEMPLATES.find(tree)) if bases else set()
    base = next((each for each in bases if each.namespace is Namespace.HTML and each not in inert), None)
    href = None if base is None else base.attr("href")
    return (canonicalize(href.strip(), url) if href else None) or url


@lru_cache(maxsize=64)
def _plain_links(directory: str) -> PlainLinks:
    """Those of the pages in a directory, of which a site has many."""
    return PlainLinks(directory)


class _PageReader:
    """Reads the records of one page."""

    def __init__(
        self, tree: Document, address: PageAddress, extracted: Extracted, findings: bool, budget: _Budget
    ) -> None:
        self._tree = tree
        self._budget = budget
        self._address = address
        self._extracted = extracted
        self._findings = findings
        self._chars_left = TEXT_CHARS_MAX
        self._number = 0
        self._rule = ""

    def read(self, rule: Rule) -> None:
        self._rule = rule.name
        _, scopes = self._found(rule.records, self._tree, 1.0, apart=True)
        if len(scopes) > RECORDS_MAX:
            self._reject(0, "", NoValue(RejectReason.TOO_MANY_RECORDS, str(len(scopes))), kept=False)
            scopes = scopes[:RECORDS_MAX]
        for scope in scopes:
            self._number += 1
            fields = self._fields(rule.fields, scope, 1 / len(scopes), "")
            if fields is not None:
                self._extracted.records.append(Record(rule.name, self._number, fields))

    def take(self, rule: Rule, source: str, found: Iterable[SourceRecord | NoValue]) -> None:
        """Take what the page says of itself."""
        self._rule = rule.name
        for place, each in enumerate(found):
            if place >= RECORDS_MAX:
                self._reject(0, source, NoValue(RejectReason.TOO_MANY_RECORDS), kept=False)
                return
            if isinstance(each, NoValue):
                self._reject(0, source, each, kept=False)
                continue
            self._number += 1
            try:
                self._take(each.texts, sum(map(len, each.texts)))
            except NoValue as none:
                self._reject(self._number, source, none, kept=False)
                continue
            for name, lack in each.none:
                self._reject(self._number, name, lack, kept=True)
            self._extracted.records.append(Record(rule.name, self._number, each.fields))
            if self._findings:
                reasons = {name: lack.reason for name, lack in each.none}
                self._extracted.findings.extend(
                    Finding(rule.name, self._number, name, source, 1, value, reasons.get(name))
                    for name, value in each.fields.items()
                )

    def _fields(self, fields: Iterable[Field], scope: Scope, share: float, within: str) -> Fields | None:
        """The fields of a record; None where it lacks one that is required, which is noted.

        The scope is about this share of the tree: scopes lie apart, so that what is too little for one is too much for
        another.
        """
        found: Fields = {}
        whole = True
        for field in fields:
            name = within + field.name
            selector, nodes = self._found(field.selectors, scope, share, apart=bool(field.fields))
            reason = None
            value: Any = [] if field.is_list else None
            try:
                value = self._value(field, nodes, share, name)
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

    def _value(self, field: Field, nodes: list[Scope], share: float, name: str) -> Any:
        """The value of a field: None, or an empty list, where there is none."""
        if field.is_list and len(nodes) > VALUES_MAX:
            raise NoValue(RejectReason.TOO_MANY_VALUES, str(len(nodes)))
        if not field.is_list:
            nodes = nodes[:1]
        values: list[Any] = []
        if field.fields:
            records = [self._fields(field.fields, node, share / len(nodes), f"{name}.") for node in nodes]
            values = [record for record in records if record is not None]
        elif nodes:
            values = self._plain_values(field, nodes, share, name)
        if field.is_list:
            return values
        return values[0] if values else None

    def _plain_values(self, field: Field, nodes: list[Scope], share: float, name: str) -> list[Value]:
        """The values of a field without fields of its own; what is none in a list is noted, and the others stay."""
        # What an attribute costs is its text. Elements that may lie within each other may each have the text of
        # all that follow.
        within = share if len(nodes) > _LISTED_APART else share / len(nodes)
        reads = field.take in (TEXT, HTML)
        values: list[Value] = []
        count = 0  # with those that are none, which cost as much
        for node in nodes:
            self._budget.spend(0.1, within if reads and _has_elements(node) else 0.0)
            try:
                texts = self._texts(field, node)
            except NoValue as none:
                self._pass_over(none, field, name)
                continue
            count += len(texts)
            if count > VALUES_MAX:
                raise NoValue(RejectReason.TOO_MANY_VALUES, str(count))
            values += self._typed(field, texts, name)
        return values

    def _typed(self, field: Field, texts: list[str], name: str) -> list[Value]:
        if isinstance(field.type, DateType) and field.type.formats:
            self._budget.spend(_LOOKS_A_FORMAT * len(field.type.formats) * len(texts))
        values = []
        for text in texts:
            try:
                values.append(field.type.value_of(text, self._address))
            except NoValue as none:
                self._pass_over(none, field, name)
        return values

    def _pass_over(self, none: NoValue, field: Field, name: str) -> None:
        """Note what is no value in a list.

        Raises:
            NoValue: it is the field that has none.
        """
        if not field.is_list or none.reason is RejectReason.TOO_MANY_VALUES:
            raise none
        self._reject(self._number, name, none, kept=True)

    def _texts(self, field: Field, node: Scope) -> list[str]:
        """What the values of a node are made of: what is taken of it, transformed; none is empty."""
        text = _taken(field.take, node)
        if text is None:
            return []
        self._take((text,), len(text))
        if field.collapses or field.strips:
            text = " ".join(text.split()) if field.collapses else text.strip()
            self._chars_left -= len(text) + 1  # it is no longer than before
            return [text] if text else []
        texts = [text]
        for transform in field.transforms:
            texts = [result for each in texts for result in transform(each)]
            self._take(texts, sum(map(len, texts)))
        return [each for each in texts if each]

    def _take(self, texts: Sequence[str], chars: int) -> None:
        # What has no text costs time all the same.
        self._chars_left -= chars + len(texts)
        if self._chars_left < 0:
            raise _TooMuch(RejectReason.TOO_MUCH_TEXT)
        if chars > VALUE_CHARS_MAX:
            raise NoValue(RejectReason.TOO_LONG, max(texts, key=len))
        if len(texts) > VALUES_MAX:
            raise NoValue(RejectReason.TOO_MANY_VALUES, str(len(texts)))

    def _found(
        self, selectors: tuple[Selector, ...], scope: Scope, share: float, *, apart: bool
    ) -> tuple[Selector | None, list[Scope]]:
        """The first selector that finds something, and what it finds; without selectors the scope itself."""
        if not selectors:
            return None, [scope]
        for selector in selectors:
            nodes: list[Scope] = [*self._budget.find(selector, scope, share, apart=apart)]
            if nodes:
                return selector, nodes
        return selectors[0], []

    def _reject(self, number: int, field: str, none: NoValue, *, kept: bool) -> None:
        reject = Reject(self._rule, number, field, none.reason, none.shown[:SHOWN_CHARS], kept)
        rejects = self._extracted.rejects
        if len(rejects) < REJECTS_MAX:
            rejects.append(reject)
        elif len(rejects) == REJECTS_MAX:
            rejects.append(Reject(self._rule, 0, "", RejectReason.TOO_MANY_REJECTS, "", True))


def _has_elements(node: Scope) -> bool:
    """Whether a node has more in it than a text."""
    return len(node) > 1 or (len(node) == 1 and isinstance(node[0], Element))


def _taken(take: str, node: Scope) -> str | None:
    if isinstance(node, Document):
        root = node.root
        if root is None:
            return None
        node = root
    if take == TEXT:
        return node.text
    if take == HTML:
        return node.inner_html
    return node.attr(take[1:])
