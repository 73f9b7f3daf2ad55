"""The CSS selectors of rules, taken apart so that they are looked for in linear time. No I/O.

A parser looks for a selector's ancestors from each element upwards, and may try all of them again for each of theirs:
with `a b c d` that is the depth of the tree to the third power, and `~` does the same with siblings. So a selector is
taken apart at its combinators, and the parser finds what has one compound, which looks at each element once, and with
`:nth-child()` and the like at its siblings, which `records` counts. What lies below is looked for below the outermost
elements, which do not contain each other. What a compound could do worse is no selector here: `~`, `:has()`, and
combinators within `:not()` and `:is()`.

What a selector names lies within what it is looked for in. That is stricter than `querySelectorAll`, which takes
ancestors from anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from turbohtml import Document, Element, Node, SelectorSyntaxError, parse

from dhtcrawl.possessive import compile_pattern

SELECTOR_CHARS_MAX: Final = 500

# A letter, an underscore, or beyond ASCII. As a range up to the last character it takes 25 times as long to compile.
_NAME: Final = r"-{0,2}[^\x00-@\[-^`{-\x7f][\w-]*+"
_VALUE: Final = rf"(?:\"[^\"\\\n\f\r]*+\"|'[^'\\\n\f\r]*+'|{_NAME})"
_ATTRIBUTE: Final = rf"\[[ \t]*+{_NAME}[ \t]*+(?:[~|^$*]?=[ \t]*+{_VALUE}[ \t]*+[is]?[ \t]*+)?\]"
_AN_B: Final = r"(?:odd|even|[+-]?[0-9]{1,6}|[+-]?[0-9]{0,6}n(?:[ \t]*+[+-][ \t]*+[0-9]{1,6})?)"
_PLACE: Final = (
    r":(?:(?:first|last|only)-(?:child|of-type)|empty|root"
    rf"|nth-(?:last-)?(?:child|of-type)\([ \t]*+{_AN_B}[ \t]*+\))"
)
_TESTS: Final = rf"(?:[#.]{_NAME}|{_ATTRIBUTE}|{_PLACE})"
_PLAIN: Final = rf"(?=[^ \t,)])(?:{_NAME}|\*)?+{_TESTS}*+"
_ANY_OF: Final = rf":(?:not|is)\([ \t]*+{_PLAIN}(?:[ \t]*+,[ \t]*+{_PLAIN})*+[ \t]*+\)"
_ALL_TESTS: Final = rf"(?:{_TESTS}|{_ANY_OF})"
_COMPOUND: Final = compile_pattern(rf"(?:{_NAME}|\*)?+{_ALL_TESTS}*+")  # or nothing: what is optional is compiled once
_COMBINATOR: Final = compile_pattern(r"[ \t]*+([>+~,]?)[ \t]*+")
_NOTHING: Final = parse("")


Spend = Callable[[int, int], None]
Scope = Document | Element


class _Step(NamedTuple):
    """A compound, and the combinator before it: a space, > or +."""

    combinator: str
    css: str


@dataclass(frozen=True, slots=True)
class Selector:
    """A selector, as it was written, and its steps."""

    text: str
    steps: tuple[_Step, ...]
    counts_siblings: bool  # whether a step looks at all siblings of each element

    def find(self, scope: Scope, spend: Spend = lambda looks, found: None) -> list[Element]:
        """The elements within `scope`, in the order of the document.

        `spend` is told after each step how many times one was looked for, and what was found; it may raise.
        """
        found = scope.select(self.steps[0].css)
        spend(1, len(found))
        for before, step in zip(self.steps, self.steps[1:], strict=False):
            if step.combinator == " ":
                outers = list(_outermost(found, before.css))
                found = [node for outer in outers for node in outer.select(step.css)]
                spend(2 * len(outers), len(found))
            else:
                beside = _parent if step.combinator == ">" else _element_before
                nodes, found_before = scope.select(step.css), set(found)
                found = [node for node in nodes if beside(node) in found_before]
                spend(1, len(nodes))
        return found

    def find_apart(self, scope: Scope, spend: Spend = lambda looks, found: None) -> list[Element]:
        """The same without those that lie within another one."""
        return list(_outermost(self.find(scope, spend), self.steps[-1].css))


def parse_selector(text: str) -> Selector:
    """Take a selector apart.

    Raises:
        ValueError: it is none, or would take too long; with what would be right.
    """
    if not text.strip():
        raise ValueError("use a selector such as div.price")
    if len(text) > SELECTOR_CHARS_MAX:
        raise ValueError(f"use a selector of up to {SELECTOR_CHARS_MAX} characters")
    return Selector(text, tuple(_steps(text.strip(" \t"))), ":nth-" in text.lower())


def _steps(text: str) -> Iterator[_Step]:
    """The compounds, each with the combinator before it."""
    at, before = 0, " "
    while True:
        compound = _COMPOUND.match(text, at)
        assert compound is not None, "it may be empty"
        if compound.end() == at:
            raise ValueError(_what_is_wrong(text, at))
        try:
            _NOTHING.select(compound[0])
        except SelectorSyntaxError:
            raise ValueError(f"{compound[0]!r} is no selector") from None
        yield _Step(before, compound[0])
        at = compound.end()
        if at == len(text):
            return
        combinator = _COMBINATOR.match(text, at)
        assert combinator is not None, "it may be empty"
        if combinator.end() == at:
            raise ValueError(_what_is_wrong(text, at))
        at, before = combinator.end(), combinator[1] or " "
        if before == ",":
            raise ValueError('use a list of selectors instead of the comma, such as ["h1", "h2"]: the first that finds')
        if before == "~":
            raise ValueError("use + or the parent instead of ~, which can take too long")


def _what_is_wrong(text: str, at: int) -> str:
    rest = text[at : at + 20]
    if not rest:
        return "it ends with a combinator; remove it"
    if rest.startswith(":"):
        return (
            f"{rest!r} is not among what is taken: :first-child, :last-child, :only-child, :nth-child(), the same with "
            "of-type, :empty, :root, and :not() and :is() without combinators"
        )
    return f"{rest!r} begins no selector"


def _parent(node: Element) -> Node | None:
    return node.parent


def _element_before(node: Element) -> Node | None:
    before = node.previous_sibling
    while before is not None and not isinstance(before, Element):
        before = before.previous_sibling
    return before


def _outermost(found: Iterable[Element], css: str) -> Iterator[Element]:
    """Those that lie within no other; `css` finds all of them, and perhaps more."""
    last: Element | None = None
    covered: set[Element] | None = None  # what lies within the last one
    for node in found:
        if last is not None and node.parent != last.parent:  # most are siblings
            if covered is None:
                covered = set(last.select(css))
            if node in covered:
                continue
        yield node
        last, covered = node, None
