"""Selectors find what another parser finds, in a time that grows with the page alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser
from turbohtml import parse

from dhtcrawl.extract.selectors import SELECTOR_CHARS_MAX, parse_selector

SIMPLE = ["p", "b", "i", "*", ".x", "p.x", "b:first-child", "i:nth-child(2n+1)", "p:not(.x, b)", ":is(i, .x)", "[a]"]
selectors = st.builds(
    lambda first, rest: first + "".join(rest),
    st.sampled_from(SIMPLE),
    st.lists(
        st.builds(lambda mark, each: mark + each, st.sampled_from([" ", " > ", "+"]), st.sampled_from(SIMPLE)),
        max_size=3,
    ),
)
pages = st.lists(
    st.sampled_from(["<div>", "</div>", "<b>", "</b>", "<i a=1>", "</i>", "<b class='y x'>", "<i class=x>", "t"]),
    max_size=24,
).map(lambda tokens: "<div id=all>" + "".join(tokens))


@given(selectors, pages)
def test_they_find_what_another_parser_finds_in_the_order_of_the_document(selector: str, page: str) -> None:
    css = selector.replace("p", "div")
    theirs = [node.html for node in LexborHTMLParser(page).css(css)]
    assert [node.html for node in parse_selector(css).find(parse(page))] == theirs


@given(selectors, pages)
def test_all_that_a_selector_names_lies_within_its_scope(selector: str, page: str) -> None:
    tree = parse(f"<p class=x><b><i a=1>{page}")
    scope = tree.select_one("#all")
    assert scope is not None
    alone = parse(f"<template></template>{scope.html}")
    outer = alone.select_one("#all")
    assert outer is not None
    parsed = parse_selector(selector)
    # Where there is nothing around it, nothing can be found around it: body and html have no such names.
    if "*" not in selector and ":" not in selector:
        assert [node.html for node in parsed.find(scope)] == [node.html for node in parsed.find(outer)]
    assert scope not in parsed.find(scope)


def test_a_record_within_another_one_is_part_of_it() -> None:
    page = "<div><p>1<i><div>2<div>3</div></div></i></div><div>4</div><span><div>5<div>6</div></div></span>"
    tree = parse(page.replace("<p>", ""))
    assert [node.text for node in parse_selector("div").find_apart(tree)] == ["123", "4", "56"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "use a selector such as"),
        (" ", "use a selector such as"),
        ("a" * (SELECTOR_CHARS_MAX + 1), "up to 500 characters"),
        ("a,b", "use a list of selectors instead of the comma"),
        ("a ~ b", "use . or the parent instead of ~"),
        ("a >", "ends with a combinator"),
        ("> a", "'> a' begins no selector"),
        ("a:has(b)", r"':has\(b\)' is not among what is taken"),
        ("a:not(b c)", r"':not\(b c\)' is not among"),
        ("a::before", "'::before' is not among"),
        ("a[href='x]", "begins no selector"),
        ("a\\:b", "begins no selector"),
        ("a:nth-child(2n+1 of b)", "is not among"),
    ],
)
def test_what_is_no_selector_or_could_take_too_long_is_told(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_selector(text)


@given(st.text("ab*#.[]='\" >+~,:()-1n", max_size=30))
def test_what_is_taken_is_a_selector(text: str) -> None:
    try:
        parsed = parse_selector(text)
    except ValueError:
        return
    parsed.find(parse("<a class=b><b id=a>"))


def test_ancestors_are_not_tried_again_and_again() -> None:
    # With one try more for each ancestor of each ancestor, this would take years.
    deep = parse("<div>" * 500)
    assert parse_selector("b" + " *" * 8).find(deep) == []
    assert len(parse_selector("div" + " div" * 8).find(deep)) == 500 - 8
