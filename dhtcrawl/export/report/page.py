"""The report as a page: from the most telling to the detail; no script, and nothing from elsewhere. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from xml.etree.ElementTree import Element

from dhtcrawl.export.report.chart import chart
from dhtcrawl.export.report.markup import Part, classed, document, element, link
from dhtcrawl.export.report.notes import notes
from dhtcrawl.export.report.tally import Fields, Firsts, Groups, Share, Tally, count_of, seconds_of, text_of
from dhtcrawl.export.report.words import REASONS, counted, duration, many, share
from dhtcrawl.units import size
from dhtcrawl.url import host_of, hostname_of

ROWS_MAX: Final = 50  # of a table; what is more is told as one number
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_FAMILIES: Final = {"2": "good", "3": "plain", "4": "bad", "5": "bad"}  # of statuses, by their first digit


@dataclass(frozen=True, slots=True)
class Subject:
    """What a report is about, besides its lines."""

    name: str  # of the crawl's directory
    tally: Tally
    summary: Fields | None  # of summary.json; empty where the crawl has not ended, None where it is damaged
    archives: Sequence[int]  # sizes of the archive files, in bytes
    unreadable: Mapping[str, int]  # lines of a file
    made: str  # when, and by which version


def page(subject: Subject, style: str) -> bytes:
    """The whole page, in UTF-8; `style` is its CSS."""
    title = f"Crawl of {_site(subject)}"
    main = element("main", *_sections(subject))
    head = element("header", element("div", element("h1", title), classed("p", "soft", _lead(subject))))
    foot = element("footer", classed("p", "soft small", subject.made))
    return document(title, style, _POLICY, [head, main, foot])


def _sections(subject: Subject) -> Iterator[Element]:
    tally, summary = subject.tally, subject.summary or {}
    for note in notes(tally, subject.summary):
        yield classed("p", f"note {note.weight}", note.text)
    for file, count in subject.unreadable.items():
        lines = counted(count, "line", "lines")
        yield classed("p", "note bad", f"{lines} of {file} could not be read, and nothing here counts them.")
    yield _card("At a glance", _figures(subject))
    if tally.timeline.bars():
        yield _card("Pages over time", chart(tally.timeline))
    yield _two(_answers(tally), _skipped(tally, bool(summary)))
    yield from _broken(tally)
    yield from _cut(tally)
    yield _two(_hosts(tally), _types(tally))
    yield _two(_depths(tally), _large(tally))
    yield from _records(summary)
    yield from _nodes(summary)
    yield _card("Settings and files", _facts(subject))


# -- the head --


def _site(subject: Subject) -> str:
    seeds = subject.tally.seeds
    if not seeds.items:
        return subject.name
    hosts = dict.fromkeys(host_of(url) for url in seeds.items)
    first, more = hostname_of(next(iter(hosts))), len(hosts) - 1
    if seeds.total > len(seeds.items):
        return f"{first} and others"
    return f"{first} and {counted(more, 'other host', 'other hosts')}" if more else first


def _lead(subject: Subject) -> str:
    tally, summary = subject.tally, subject.summary or {}
    hosts = counted(sum(share.count > 0 for _, share in tally.hosts.by_name()), "host", "hosts")
    parts = [
        counted(tally.pages.count, "page", "pages"),
        size(tally.pages.bytes),
        f"{hosts} or more" if tally.hosts.others.count else hosts,
    ]
    nodes = count_of(summary.get("nodes"))
    if nodes:
        parts.append(counted(nodes, "node", "nodes"))
    return ", ".join(parts)


def _figures(subject: Subject) -> Element:
    tally, summary = subject.tally, subject.summary or {}
    figures = {"Pages": many(tally.pages.count), "Bytes of bodies": size(tally.pages.bytes)}
    if summary:
        figures["Failed URLs"] = many(tally.broken.total)
        seconds = seconds_of(summary.get("seconds"))
        figures["Time"] = duration(seconds)
        if seconds:
            figures["Pages a second"] = f"{tally.pages.count / seconds:,.1f}"
        figures |= {
            "Requests": many(count_of(summary.get("fetches"))),
            "URLs seen": many(count_of(summary.get("urls_seen"))),
            "Links followed": many(count_of(summary.get("links"))),
            "Links lost": many(count_of(summary.get("lost"))),
            "Bodies missing": many(count_of(summary.get("pages_missing"))),
            "Fetched twice": many(count_of(summary.get("refetches"))),
            "Requests too soon": many(count_of(summary.get("politeness_violations"))),
        }
    parts = [element("div", element("dt", name), element("dd", value)) for name, value in figures.items()]
    return classed("dl", "figures", *parts)


# -- what came of URLs --


def _answers(tally: Tally) -> Element:
    rows = [
        [_status(name), *_count_cells(group, tally.pages.count), _number(size(group.bytes)), _example(group)]
        for name, group in tally.answers.by_name()
    ]
    table = _table(["Status", "Pages", "Share", "Bytes", "Such as"], rows[:ROWS_MAX], "no page yet")
    return _card("Answers", table, *_rest(tally.answers, "status", "statuses"))


def _skipped(tally: Tally, ended: bool) -> Element:
    rows = [
        [_cell(element("code", name), element("br"), classed("span", "soft small", REASONS.get(name, ""))),
         _number(many(group.count)), _example(group)]
        for name, group in tally.skipped.largest()
    ]  # fmt: skip
    nothing = "nothing was skipped" if ended else "not known before the crawl has ended"
    table = _table(["Why", "URLs", "Such as"], rows[:ROWS_MAX], nothing)
    return _card("Not fetched", table, *_rest(tally.skipped, "reason", "reasons"))


def _broken(tally: Tally) -> Iterator[Element]:
    if not tally.broken.total:
        return
    rows = [
        [_cell(link(each.url), wide=True), _cell(each.what),
         _cell(link(each.found_on) if each.found_on else "a seed", wide=True)]
        for each in tally.broken.items
    ]  # fmt: skip
    parts: list[Part] = [_table(["URL", "Answer", "Found on"], rows, "")]
    more = tally.broken.total - len(rows)
    if more:
        parts.append(classed("p", "soft", f"And {many(more)} more."))
    parts.append(classed("p", "soft small", "dhtcrawl export DIR --format links tells every page that leads to them."))
    yield _card("Failed URLs", *parts)


def _cut(tally: Tally) -> Iterator[Element]:
    rows = [
        [_cell(name, wide=True), _number(many(group.count)), _example(group)] for name, group in tally.cut.largest()
    ]
    if rows:
        table = _table(["Why", "Pages", "Such as"], rows[:ROWS_MAX], "")
        yield _card("Pages that are not whole", table, *_rest(tally.cut, "reason", "reasons"))


# -- what there is --


def _hosts(tally: Tally) -> Element:
    ranked = tally.hosts.largest()
    rows = [
        [_cell(name, wide=True), *_count_cells(group, tally.pages.count), _number(size(group.bytes)),
         _number(many(group.failed))]
        for name, group in ranked[:ROWS_MAX]
    ]  # fmt: skip
    table = _table(["Host", "Pages", "Share", "Bytes", "Failed"], rows, "none yet")
    return _card("Hosts", table, *_rest(tally.hosts, "host", "hosts"))


def _types(tally: Tally) -> Element:
    rows = [
        [_cell(name or "none told", wide=True), *_count_cells(group, tally.pages.count), _number(size(group.bytes))]
        for name, group in tally.types.largest()[:ROWS_MAX]
    ]
    table = _table(["Type", "Pages", "Share", "Bytes"], rows, "none yet")
    return _card("Content types", table, *_rest(tally.types, "type", "types"))


def _depths(tally: Tally) -> Element:
    ranked = sorted(tally.depths.by_name(), key=lambda item: int(item[0]))
    most = max((share.count for _, share in ranked), default=0)
    rows = [[_cell(depth), _number(many(share.count)), _bar(share.count, most)] for depth, share in ranked[:ROWS_MAX]]
    table = _table(["Depth", "Pages", ""], rows, "none yet")
    return _card("Links from a seed", table, *_rest(tally.depths, "depth", "depths"))


def _large(tally: Tally) -> Element:
    rows = [
        [_cell(link(each.url), wide=True), _number(size(each.bytes)), _cell(each.content_type)]
        for each in tally.largest_pages()
    ]
    return _card("Largest pages", _table(["URL", "Bytes", "Type"], rows, "none yet"))


def _records(summary: Fields) -> Iterator[Element]:
    found = [
        *_counts(summary.get("records"), "Rule", "Records"),
        *_counts(summary.get("rejected"), "Rejected", "Times"),
    ]
    if found:
        yield _card("Records", *found)


def _nodes(summary: Fields) -> Iterator[Element]:
    told = summary.get("per_node")
    shares = [each for each in told if isinstance(each, dict)] if isinstance(told, list) else []
    pages = sum(count_of(each.get("pages")) for each in shares)
    rows = [
        [_cell(element("code", text_of(each.get("node"))[:12])), _number(many(count_of(each.get("pages")))),
         _number(share(count_of(each.get("pages")), pages)), _number(size(count_of(each.get("bytes")))),
         _number(duration(seconds_of(each.get("cpu_seconds")))), _number(size(count_of(each.get("rss_bytes_max"))))]
        for each in sorted(shares, key=lambda each: -count_of(each.get("pages")))
    ]  # fmt: skip
    if rows:
        heads = ["Node", "Pages", "Share", "Bytes", "CPU", "Memory at most"]
        yield _card("Nodes", _table(heads, rows[:ROWS_MAX], ""), *_more(len(rows) - ROWS_MAX, "node", "nodes"))


def _facts(subject: Subject) -> Element:
    summary, seeds = subject.summary or {}, subject.tally.seeds
    facts: list[tuple[str, Part]] = []
    if seeds.items:
        facts.append(("Seed" if seeds.total == 1 else "Seeds", element("span", *_linked(seeds))))
    for name, field in (("Crawl", "crawl"), ("Policy", "policy"), ("Key", "key")):
        if text_of(summary.get(field)):
            facts.append((name, element("code", text_of(summary.get(field)))))
    facts.append(("Archive", f"{counted(len(subject.archives), 'file', 'files')}, {size(sum(subject.archives))}"))
    rows = [element("div", element("dt", name), element("dd", value)) for name, value in facts]
    return classed("dl", "story", *rows)


def _linked(seeds: Firsts[str]) -> Iterator[Part]:
    for number, url in enumerate(seeds.items):
        if number:
            yield element("br")
        yield link(url)
    if seeds.total > len(seeds.items):
        yield element("br")
        yield f"and {many(seeds.total - len(seeds.items))} more"


# -- parts of tables --


def _counts(told: object, name: str, what: str) -> list[Element]:
    counts = {text_of(key): count_of(value) for key, value in told.items()} if isinstance(told, dict) else {}
    rows = [[_cell(key, wide=True), _number(many(value))] for key, value in sorted(counts.items())]
    return [_table([name, what], rows[:ROWS_MAX], ""), *_more(len(rows) - ROWS_MAX, "row", "rows")] if rows else []


def _card(title: str, *parts: Part) -> Element:
    return classed("section", "card", element("h2", title), *parts)


def _two(left: Element, right: Element) -> Element:
    return classed("div", "two", left, right)


def _table(heads: Sequence[str], rows: Sequence[Sequence[Element]], nothing: str) -> Element:
    if not rows:
        return classed("p", "soft", nothing)
    titles = [_head(title, cell) for title, cell in zip(heads, rows[0], strict=True)]
    body = [element("tr", *row) for row in rows]
    table = element("table", element("thead", element("tr", *titles)), element("tbody", *body))
    return element(
        "div", table, attributes={"class": "scroll", "tabindex": "0", "role": "group", "aria-label": heads[0]}
    )


def _head(title: str, cell: Element) -> Element:
    """The head of a column, set as the cells below it."""
    if not title:
        return element("td")
    kind = {"class": "number"} if cell.get("class") == "number" else {}
    return element("th", title, attributes={"scope": "col"} | kind)


def _cell(*parts: Part, wide: bool = False) -> Element:
    return classed("td", "wide", *parts) if wide else element("td", *parts)


def _number(text: str) -> Element:
    return classed("td", "number", text)


def _count_cells(group: Share, whole: int) -> list[Element]:
    return [_number(many(group.count)), _number(share(group.count, whole))]


def _status(name: str) -> Element:
    return _cell(classed("span", f"status {_FAMILIES.get(name[:1], 'plain')}", name if name != "0" else "none"))


def _example(group: Share) -> Element:
    return _cell(link(group.example), wide=True)


def _bar(count: int, most: int) -> Element:
    done = {"width": f"{100 * count / most:.1f}", "height": "1"}
    box = {"viewBox": "0 0 100 1", "preserveAspectRatio": "none", "class": "bar", "aria-hidden": "true"}
    return _cell(element("svg", element("rect", attributes=done), attributes=box), wide=True)


def _rest(groups: Groups, one: str, several: str) -> list[Element]:
    """What a table leaves out."""
    left = _more(len(groups) - ROWS_MAX, one, several)
    others = groups.others.count
    if others:
        left.append(classed("p", "soft", f"{many(others)} of further {several}, not told apart."))
    return left


def _more(count: int, one: str, several: str) -> list[Element]:
    return [classed("p", "soft", f"And {counted(count, one, several)} more.")] if count > 0 else []
