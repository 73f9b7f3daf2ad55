"""Links put into the tree construction cases of html5lib-tests, and into pages of tags alone, are found both ways.

The judge is another parser, turbohtml, which builds the trees that the suite
expects. It and we differ on purpose in these:

- What a tree has no place for (a `<frame>` outside of a frameset, any other
  link within one) counts where a page is scanned, and lexbor keeps what a
  browser replaces in a `<selectedcontent>`.
- A frameset, and a `<template>` after a `<col>`, drop tags such as `<script>`;
  a scan takes what follows for their text. No other page hides a link from it.
- A scan does not move what stands between the cells of a table: on one drawn
  page of 100,000 another base counts, or a link too many.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random
from unittest.mock import patch

import turbohtml

from dhtcrawl.fetch import links
from dhtcrawl.fetch.candidates import candidates, outside
from dhtcrawl.fetch.links import PageLinks, candidate_of, extract, title_of

LINK = b"<a href=put-in>"
OTHERS = (
    LINK, LINK + b"</a>", b"<svg><a href=put-in></a></svg>", b"<area href=put-in>", b"<iframe src=put-in>",
    b"<frame src=put-in>", b"<base href=/put-in/>", b"<meta http-equiv=refresh content='0;put-in'>",
    b"<noscript><meta http-equiv=refresh content='0;put-in-too'></noscript>",
    b"<meta name=robots content=nofollow>", b"<title>put-in</title>",
)  # fmt: skip
NAMES_OF_TAGS = (
    b"svg", b"math", b"mi", b"desc", b"foreignObject", b"annotation-xml", b"title", b"style", b"script", b"textarea",
    b"xmp", b"iframe", b"noembed", b"noframes", b"noscript", b"table", b"tr", b"td", b"caption", b"select", b"option",
    b"p", b"b", b"a", b"nobr", b"div", b"li", b"button", b"form", b"object", b"h1", b"template", b"body", b"head",
    b"font",
)  # fmt: skip
TAGS = (
    *(b"<%b%b>" % (slash, name) for name in NAMES_OF_TAGS for slash in (b"", b"/")),
    b"<svg/>", b"<script/>", b"<br>", b"<plaintext>", b"<font color=a>", b"<![CDATA[", b"]]>", b"<!--", b"-->", b"x",
)  # fmt: skip
# A place is before or after a tag, or the end.
PLACE = re.compile(rb"(?=<)|(?<=>)|\Z")
PLACES_MIN = 9_500
FRAMESET = re.compile(rb"<frameset", re.IGNORECASE)
COLUMNS_IN_TEMPLATE = re.compile(rb"<template(?s:.*)<col", re.IGNORECASE)
DROPPING = re.compile(rb"<frame|<selectedcontent|" + COLUMNS_IN_TEMPLATE.pattern, re.IGNORECASE)
NAMESPACES = {"SVG": "svg ", "MATHML": "math "}


def cases(directory: Path) -> Iterator[tuple[bytes, bytes]]:
    """Each page with the tree that it makes."""
    for path in sorted((directory / "html").glob("*.dat")):
        for case in re.split(rb"(?:^|\n\n)#data\n", path.read_bytes()):
            page, _, rest = case.partition(b"\n#errors")
            # A fragment is no page, and no script runs here.
            if rest and b"#document-fragment" not in rest and b"#script-on" not in rest:
                yield page, rest.partition(b"#document\n")[2]


def places(directory: Path) -> Iterator[bytes]:
    """Each page with a link at each place."""
    for page, _ in cases(directory):
        for place in PLACE.finditer(page):
            yield page[: place.start()] + LINK + page[place.start() :]


def drawn(pages: list[bytes]) -> Iterator[bytes]:
    """Pages of tags, and of one or two of `pages`, with other tags and links within them, without end."""
    chance = Random(21)
    while True:
        page = b"".join(chance.choices(TAGS, k=chance.randint(1, 12)))
        if pages and chance.random() < 0.7:
            page = chance.choice(pages)
            at = chance.randint(0, len(page))
            page = page[:at] + chance.choice((b"", b"", *pages)) + page[at:]
        for more in (*chance.choices(TAGS, k=chance.randint(0, 2)), *chance.choices(OTHERS, k=chance.randint(1, 3))):
            at = chance.randint(0, len(page))
            page = page[:at] + more + page[at:]
        yield page + b"<area href=end>"


def parse(page: bytes) -> turbohtml.Document:
    # Without scripts, and without the tree of a shadow root: what is in a template stays in it.
    return turbohtml.parse(page.decode("utf-8", "replace"), allow_declarative_shadow_roots=False)


def judged(page: bytes) -> PageLinks:
    """What the judge's tree says of a page; links in templates count."""
    with patch.object(links, "_parsed", lambda _: list(tags_of(parse(page)))):
        return extract(b"")


def tags_of(tree: turbohtml.Document) -> Iterator[tuple[str, dict[str, str]]]:
    for element in tree.iter_elements():
        foreign = element.namespace.name in NAMESPACES
        if element.tag in ("a", "area", "frame", "iframe"):
            yield element.tag, attributes_of(element)
        elif foreign or any(is_template(around) for around in element.ancestors):
            continue
        elif element.tag == "title":
            yield "title", {"text": "".join(text.data for text in element.children if isinstance(text, turbohtml.Text))}
        elif element.tag in ("base", "meta"):
            yield element.tag, attributes_of(element)


def is_template(node: turbohtml.Node) -> bool:
    return isinstance(node, turbohtml.Element) and node.tag == "template" and node.namespace.name not in NAMESPACES


def attributes_of(element: turbohtml.Element) -> dict[str, str]:
    return {name: value if isinstance(value, str) else " ".join(value or ()) for name, value in element.attrs.items()}


def judge(page: bytes) -> bool:
    """Both ways find every link that the judge has found; whether they find no more, and say the same of the page."""
    expected, parsed = judged(page), extract(page)
    with patch.object(links, "TREE_TAGS_MAX", -1):
        scanned = extract(page)
    same = True
    for found in (parsed, scanned):
        wanted = {*expected.hrefs, *expected.nofollow}
        links_found = {*found.hrefs, *found.nofollow}
        if not COLUMNS_IN_TEMPLATE.search(page) and (found is parsed or not FRAMESET.search(page)):
            assert wanted <= links_found, (page, wanted - links_found)
        same = same and wanted == links_found and told(found) == told(expected)
    return same or DROPPING.search(page) is not None


def told(found: PageLinks) -> tuple[str | None, set[str], str | None, frozenset[str]]:
    return found.base, set(found.refreshes), found.title, found.nofollow_for


def test_the_judge_builds_the_trees_of_the_suite(conformance_dir: Path) -> None:
    count = 0
    for page, tree in cases(conformance_dir):
        count += 1
        expected = re.findall(r"^\| +<([^!?>\"][^>\"]*)>$", tree.decode("utf-8", "replace"), re.MULTILINE)
        elements = parse(page).iter_elements()
        found = [NAMESPACES.get(element.namespace.name, "") + element.tag for element in elements]
        assert found == expected, page
    assert count >= 1_500


def test_a_link_at_any_place_of_a_page_is_found_both_ways(conformance_dir: Path) -> None:
    count = 0
    for page in places(conformance_dir):
        count += 1
        assert judge(page), page
    assert count >= PLACES_MIN


def test_links_anywhere_in_any_pages_are_found_both_ways(conformance_dir: Path, mutants: int) -> None:
    pages = [page for page, _ in cases(conformance_dir)]
    differing = [page for page in islice(drawn(pages), mutants) if not judge(page)]
    assert len(differing) <= mutants // 20_000, differing


def test_links_anywhere_in_any_tags_are_found_both_ways(mutants: int) -> None:
    differing = [page for page in islice(drawn([]), mutants) if not judge(page)]
    assert len(differing) <= mutants // 20_000, differing


VALUES = (
    b"&", b"&#", b"&#x", b"0", b"1", b"9", b"128", b";", b"amp", b"&amp", b"&lt;", b"&copy", b"&notit;", b"&not", b"=",
    b"x", b'"', b"'", b"`", b" ", b"\t", b"\n", b"\x0c", b"\0", b"/", b">", b"<", b"D800", b"110000", b"fffe", b"&#1;",
    b"&#x7f", b"&#x80;", b"&#xfdd0;", b"\x01", b"\xc3\xa9", b"\xff", b"href", b"&Aacute", b"&nvlt;", b"&fjlig;",
    b"&CounterClockwiseContourIntegral;", b"&gt", b"&gtx", b"a=", b"?",
)  # fmt: skip
NAMES = (b"href", b"HREF", b"hRef", b"src", b"x", b"h\0ref", b"rel", b"href2")


def odd_tag(chance: Random) -> bytes:
    """A tag with attributes as nobody should write them."""
    parts = [b"<" + chance.choice((b"a", b"A", b"area", b"iframe", b"base", b"title", b"/a", b"a\0", b"p"))]
    for _ in range(chance.randint(0, 3)):
        quote = chance.choice((b'"', b"'", b""))
        parts += (
            chance.choice((b" ", b"/", b"\n", b"\x0c", b" / ", b"")), chance.choice(NAMES),
            chance.choice((b"=", b" = ", b"=\n", b"", b"==")), quote, *chance.choices(VALUES, k=chance.randint(0, 5)),
            chance.choice((quote, quote, quote, b"")),
        )  # fmt: skip
    return b"".join(parts) + chance.choice((b">", b">", b">", b"/>", b"", b" >"))


def test_values_are_read_as_browsers_read_them_both_ways(mutants: int) -> None:
    chance = Random(22)
    for _ in range(mutants):
        page = b"".join(odd_tag(chance) for _ in range(chance.randint(1, 4))) + b"<a href=end>"
        assert judge(page), page


def look_like_links(page: bytes) -> dict[bytes, str | None] | None:
    """All that may be a tag, with its href; None if a parser has to say what there is."""
    found = {}
    for text in candidates(page):
        candidate = candidate_of(text)
        if candidate is None:
            return None
        found[text] = candidate.href
    return found


def missed(page: bytes) -> bool:
    """Whether the candidates lack something that a parser finds, or are taken for tags where it finds none."""
    candidate, parsed = look_like_links(page), extract(page)
    if candidate is None:
        return False
    links_found = {*parsed.hrefs, *parsed.nofollow}
    assert links_found <= {*candidate.values()}, page
    assert (parsed.base, parsed.refreshes, "robots" in parsed.nofollow_for) == (None, [], False), page
    assert title_of(page) == parsed.title or DROPPING.search(page), page
    tags = outside(page, candidates(page), {text for text, href in candidate.items() if href is not None})
    return tags is not None and links_found != {candidate[text] for text in tags}


def test_no_link_is_missed_without_a_parser(conformance_dir: Path, mutants: int) -> None:
    pages = [page for page, _ in cases(conformance_dir)]
    chance = Random(23)
    odd = (b"".join(odd_tag(chance) for _ in range(chance.randint(1, 4))) for _ in range(mutants))
    for page in (*islice(drawn(pages), mutants), *islice(drawn([]), mutants), *odd, *places(conformance_dir)):
        assert not missed(page) or DROPPING.search(page), page
