"""Which candidates are tags, beside the parsers, on pages of what hides tags."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dhtcrawl.fetch.candidates import candidates, outside
from dhtcrawl.fetch.links import candidate_of, extract

PARTS = (
    "<!--", "-->", "--!>", "<!-->", "<!--->", "--", "->", "<script>", "</script>", "<script", "</script",
    "<script src='",
    "<SCRIPT>", "</SCRIPT >", "<scripts>", "</scripts>", "<style>", "</style>", "</style\n>", "<styles>", "<title>",
    "</title>", "<textarea>", "</textarea>", "<xmp>", "</xmp>", "<iframe>", "<iframe a>", "</iframe>", "<noframes>",
    "</noframes>", "<noembed>", "</noembed>", "<svg>", "</svg>", "<p title=\"", "<p title='", "<p title = '", '"',
    "'", "=", ">", "<", "<p>", "</p ", "<!", "<?", "/", " ", "x",
)  # fmt: skip
LINKS = ("<a href=a>", '<a href="b" title="t">', "<a href='c'>", "<area href=d>")
pages = st.lists(st.sampled_from(PARTS) | st.sampled_from(LINKS), max_size=14).map("".join)


@given(pages, st.sampled_from((LINKS, LINKS[:1], LINKS[1:2])))
@example("<script><!--<script></script><a href=a></script>", LINKS)
@example("<script><!--<script></script>--></script><a href=a>", LINKS)
@example("<script></script><!--<script>--><a href=a>", LINKS)
@example("<style><styles></style><a href=a>", LINKS)
@example("<!--><a href=a>-->", LINKS)
@example("<p title='<!--'><a href=a>", LINKS)
@example("<script src='--!></script>--!><a href='c'><a href=a>", LINKS[:1])
@example("<style title='<style></style>'><a href=a>", LINKS[:1])
def test_what_is_taken_for_a_tag_is_one_and_what_is_not_is_none(page: str, wanted: tuple[str, ...]) -> None:
    html = f"<!doctype html><body>{page}".encode()
    texts = candidates(html)
    found = outside(html, texts, {text for text in map(str.encode, wanted) if text in texts})
    if found is not None:
        hrefs = {candidate.href for text in found if (candidate := candidate_of(text)) is not None}
        asked = {candidate_of(link.encode()).href for link in wanted}  # type: ignore[union-attr]
        assert hrefs == asked & {*extract(html).hrefs}


@pytest.mark.parametrize(
    "before",
    [
        "<!-- a --><script>b</script><style>c</style><title>d</title>", "<script><!-- a //--></script>",
        "<!--" * 9 + "-->", "<script></script>" * 9, "<script>'<!-- a -->'</script>", '<p title="t">',
        "<textarea></textarea>",
    ],
)  # fmt: skip
def test_a_new_tag_behind_closed_comments_and_scripts_is_clear(before: str) -> None:
    page = f"{before}<a href=a><!-- <a href=b> -->".encode()
    assert outside(page, candidates(page), {b"<a href=a>"}) == {b"<a href=a>"}
    assert outside(page, candidates(page), {b"<a href=b>"}) in (set(), None)


@pytest.mark.parametrize(
    ("page", "texts"),
    [
        (b"<a href=a><b><a href=b", [b"<a href=a>", b"<a href=b"]),
        (b"<a href='<a href=b>'>c<a href=d>", [b"<a href='", b"<a href=b>", b"<a href=d>"]),
        (b"<a href=a <!-- <script><area href=b>", [b"<a href=a ", b"<!--", b"<script", b"<area href=b>"]),
        (b"<a " * 3, [b"<a "] * 3),
    ],
)
def test_a_candidate_ends_before_the_next_tag(page: bytes, texts: list[bytes]) -> None:
    assert candidates(page) == texts


@pytest.mark.parametrize("page", [b"<a href=a><!-- <a href=a> -->", b"<!-- <a href=a> --><a href=a>"])
def test_a_tag_that_stands_there_twice_is_one_if_either_is_clear(page: bytes) -> None:
    assert outside(page, candidates(page), {b"<a href=a>"}) == {b"<a href=a>"}
