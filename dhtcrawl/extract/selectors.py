"""The CSS selectors of rules, taken apart so that they are looked for in linear time. No I/O.

Lexbor looks for a selector's ancestors from each element upwards, and tries all of them again for each of theirs: with
`a b c d` that is the depth of the tree to the third power, and `~` does the same with siblings. So a selector is taken
apart at its descendant combinators. Each part is looked for below the outermost elements that the one before it has
found: these do not contain each other, so that a part looks at each element once, and `:nth-child()` and the like at
its siblings, which `records` counts. What a part could do worse is no selector here: `~`, `:has()`, and combinators
within `:not()` and `:is()`.

What a selector names lies within what it is looked for in. That is stricter than `querySelectorAll`, which takes
ancestors from anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from selectolax.lexbor import LexborHTMLParser, LexborNode, SelectolaxError

SELECTOR_CHARS_MAX: Final = 500

_NAME: Final = r"-{0,2}[A-Za-z_\x80-\U0010ffff][\w-]*+"
_VALUE: Final = rf"(?:\"[^\"\\\n\f\r]*+\"|'[^'\\\n\f\r]*+'|{_NAME})"
_ATTRIBUTE: Final = rf"\[[ \t]*+{_NAME}[ \t]*+(?:[~|^$*]?=[ \t]*+{_VALUE}[ \t]*+[is]?[ \t]*+)?\]"
_AN_B: Final = r"(?:odd|even|[+-]?[0-9]{1,6}|[+-]?[0-9]{0,6}n(?:[ \t]*+[+-][ \t]*+[0-9]{1,6})?)"
_PLACE: Final = (
    r":(?:(?:first|last|only)-(?:child|of-type)|empty|root"
    rf"|nth-(?:last-)?(?:child|of-type)\([ \t]*+{_AN_B}[ \t]*+\))"
)
_TESTS: Final = rf"(?:[#.]{_NAME}|{_ATTRIBUTE}|{_PLACE})"
_PLAIN: Final = rf"(?:(?:{_NAME}|\*){_TESTS}*+|{_TESTS}++)"
_ANY_OF: Final = rf":(?:not|is)\([ \t]*+{_PLAIN}(?:[ \t]*+,[ \t]*+{_PLAIN})*+[ \t]*+\)"
_ALL_TESTS: Final = rf"(?:{_TESTS}|{_ANY_OF})"
_COMPOUND: Final = re.compile(rf"(?:(?:{_NAME}|\*){_ALL_TESTS}*+|{_ALL_TESTS}++)")
_COMBINATOR: Final = re.compile(r"[ \t]*+([>+~,]?)[ \t]*+")


Spend = Callable[[int, int], None]


class _SelectorPart(NamedTuple):
    """What stands between two descendant combinators, and how many parents it names."""

    css: str
    parents: int


@dataclass(frozen=True, slots=True)
class Selector:
    """A selector, as it was written, and its parts."""

    text: str
    parts: tuple[_SelectorPart, ...]

    @property
    def counts_siblings(self) -> bool:
        """Whether a part looks at all siblings of each element."""
        return ":nth-" in self.text.lower()

    def find(self, scope: LexborHTMLParser | LexborNode, spend: Spend = lambda looks, found: None) -> list[LexborNode]:
        """The elements within `scope`, in the order of the document.

        `spend` is told after each part how many times one was looked for, and what was found; it may raise.
        """
        found = _within(scope, self.parts[0])
        spend(1, len(found))
        for before, part in zip(self.parts, self.parts[1:], strict=False):
            outers = list(_outermost(found, before.css))
            found = [node for outer in outers for node in _within(outer, part)]
            spend(2 * len(outers), len(found))
        return found

    def find_apart(
        self, scope: LexborHTMLParser | LexborNode, spend: Spend = lambda looks, found: None
    ) -> list[LexborNode]:
        """The same without those that lie within another one."""
        return list(_outermost(self.find(scope, spend), self.parts[-1].css))


def parse_selector(text: str) -> Selector:
    """Take a selector apart.

    Raises:
        ValueError: it is none, or would take too long; with what would be right.
    """
    if not text.strip():
        raise ValueError("use a selector such as div.price")
    if len(text) > SELECTOR_CHARS_MAX:
        raise ValueError(f"use a selector of up to {SELECTOR_CHARS_MAX} characters")
    parts = []
    for pieces in _at_descendants(text.strip(" \t")):
        css = "".join(pieces)
        try:
            LexborHTMLParser(b"").css(css)
        except SelectolaxError:
            raise ValueError(f"{css!r} is no selector") from None
        parts.append(_SelectorPart(css, pieces.count(">")))
    return Selector(text, tuple(parts))


def _at_descendants(text: str) -> Iterator[list[str]]:
    """The compounds and combinators of each part."""
    pieces: list[str] = []
    at = 0
    while True:
        compound = _COMPOUND.match(text, at)
        if compound is None:
            raise ValueError(_what_is_wrong(text, at))
        pieces.append(compound[0])
        at = compound.end()
        if at == len(text):
            yield pieces
            return
        combinator = _COMBINATOR.match(text, at)
        assert combinator is not None, "it may be empty"
        if combinator.end() == at:
            raise ValueError(_what_is_wrong(text, at))
        at = combinator.end()
        if combinator[1] == ",":
            raise ValueError('use a list of selectors instead of the comma, such as ["h1", "h2"]: the first that finds')
        if combinator[1] == "~":
            raise ValueError("use + or the parent instead of ~, which can take too long")
        if combinator[1]:
            pieces.append(combinator[1])
        else:
            yield pieces
            pieces = []


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


def _within(scope: LexborHTMLParser | LexborNode, part: _SelectorPart) -> list[LexborNode]:
    found = scope.css(part.css)
    if isinstance(scope, LexborHTMLParser):
        return found
    outside = scope.mem_id
    if not part.parents:
        return found[1:] if found and found[0].mem_id == outside else found
    return [node for node in found if _is_deeper(node, outside, part.parents)]


def _is_deeper(node: LexborNode, outside: int, steps: int) -> bool:
    """Whether neither the node nor one of so many parents is the one `outside`."""
    each: LexborNode | None = node
    for _ in range(steps + 1):
        if each is None or each.mem_id == outside:
            return False
        each = each.parent
    return True


def _outermost(found: Iterable[LexborNode], css: str) -> Iterator[LexborNode]:
    """Those that lie within no other; `css` finds all of them, and perhaps more."""
    last: LexborNode | None = None
    covered: set[int] | None = None  # what lies within the last one
    for node in found:
        if last is not None and not _are_siblings(last, node):  # which most are
            if covered is None:
                covered = {each.mem_id for each in last.css(css)}
            if node.mem_id in covered:
                continue
        yield node
        last, covered = node, None


def _are_siblings(one: LexborNode, other: LexborNode) -> bool:
    parent, others = one.parent, other.parent
    return parent is not None and others is not None and parent.mem_id == others.mem_id
