"""Which elements are open while a page is scanned, as far as it decides what is foreign content; without I/O.

Within `<svg>` and `<math>` a title, a style or a script is an ordinary
element, may close itself, and hides nothing (HTML, 13.2.6.5). Where that
content ends depends on what is open: some start tags break out of it, an end
tag may belong to an element around it, and integration points hold HTML again.
Only `dhtcrawl.fetch.tags` and `dhtcrawl.fetch.links` call this module.

The rules are those of "in body" and "in table" for the stack of open elements.
No text and no active formatting elements are kept: they decide where a node
goes, and hardly ever whether it is foreign (`<p><a><p><svg></a>` would need
them: the second paragraph opens the link again).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

# Chromium's limit on a tree's depth, too; what is deeper is not kept.
DEPTH_MAX = 512

# What an element is: HTML, foreign, or foreign with HTML in it. An
# annotation-xml without an encoding holds an `<svg>`, but no HTML.
_HTML, _SVG, _MATH, _HTML_POINT, _TEXT_POINT, _ANNOTATION = range(6)
_TRANSPARENT = frozenset((_SVG, _MATH))  # the others end most scopes (13.2.4.2)


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_BREAKS_OUT = _names(
    "b big blockquote body br center code dd div dl dt em embed h1 h2 h3 h4 h5 h6 head hr i img li listing menu meta "
    "nobr ol p pre ruby s small span strong strike sub sup table tt u ul var"
)
_FONT_BREAKS_OUT = _names("color face size")
_SVG_POINTS = _names("foreignobject desc title")
_TEXT_POINTS = _names("mi mo mn ms mtext")
_ANNOTATED_HTML = _names("text/html application/xhtml+xml")

# Void elements, and what has its text hidden or its tag dropped: never open.
_NEVER_OPEN = _names(
    "area base basefont bgsound br col embed frame hr image img input keygen link meta param source track wbr "
    "html head body frameset script style title textarea xmp iframe noembed noframes plaintext"
)
_CLOSE_P = _names(
    "address article aside blockquote center details dialog dir div dl fieldset figcaption figure footer header hgroup "
    "hr main menu nav ol p search section summary ul h1 h2 h3 h4 h5 h6 pre listing form table xmp plaintext li dd dt"
)
_SCOPE = _names("applet caption html marquee object table td template th select")
_BUTTON_SCOPE = _SCOPE | {"button"}
_LIST_SCOPE = _SCOPE | {"ol", "ul"}
_TABLE_SCOPE = _names("html table template")
_NO_STOPS: frozenset[str] = frozenset()
_HEADINGS = _names("h1 h2 h3 h4 h5 h6")
_SPECIAL = _SCOPE | _CLOSE_P - {"dialog"} | _names("button tbody tfoot thead tr colgroup noscript")
_FORMATTING = _names("a b big code em font i nobr s small strike strong tt u")
_MARKERS = _names("applet marquee object td th caption template")
_LISTS = {"li": _names("li"), "dd": _names("dd dt"), "dt": _names("dd dt")}
_LIST_STOPS = _SPECIAL - {"address", "div", "p"}
_TABLE_PARTS = {
    name: _names(context)
    for names, context in (
        ("td th", "tr tbody thead tfoot table template"),
        ("tr", "tbody thead tfoot table template"),
        ("tbody thead tfoot caption colgroup", "table template"),
    )
    for name in names.split()
}
# How far an end tag looks for its element; the others stop at any special one.
_END_STOPS = {
    **dict.fromkeys(_CLOSE_P | _MARKERS | {"button", "select"}, _SCOPE),
    **dict.fromkeys((*_TABLE_PARTS, "table"), _TABLE_SCOPE),
    "p": _BUTTON_SCOPE,
    "li": _LIST_SCOPE,
    "template": _NO_STOPS,
}
# A drawing in a table ends with it (13.2.6.4.9): foreign elements end every scope but these.
_THROUGH_FOREIGN = (_TABLE_SCOPE, _NO_STOPS)

Attributes = Callable[[], Mapping[str, str]]


class OpenElements:
    """The stack of open elements of a page, or of one `<svg>` or `<math>` only, as long as `rooted` is false.

    Without a root no HTML is kept at the bottom, and an end tag of something
    further out sets `stray`: only who has read the page from its beginning
    knows whether it is open. With `quirks` a table ends no paragraph. At most `steps` elements are looked at in all;
    what would need more leaves the stack as it is.
    """

    __slots__ = ("_kinds", "_names", "quirks", "rooted", "steps", "stray")

    def __init__(self, *, rooted: bool, steps: int, quirks: bool = False) -> None:
        self.rooted = rooted
        self.steps = steps
        self.quirks = quirks
        self.stray = False
        self._names: list[str] = []
        self._kinds: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._kinds)

    @property
    def foreign(self) -> bool:
        """Whether CDATA sections are allowed: the innermost element is not HTML."""
        return bool(self._kinds) and self._kinds[-1] != _HTML

    def start(self, name: str, closed: bool, attributes: Attributes) -> bool:
        """Take a start tag, `closed` if it ends in `/>`; whether it begins an HTML element."""
        if not self._takes_html(name):
            if name not in _BREAKS_OUT and not (name == "font" and not _FONT_BREAKS_OUT.isdisjoint(attributes())):
                if not closed:
                    self._push(name, self._foreign_kind(name, attributes))
                return False
            self._break_out()
        self._start_html(name, closed)
        return True

    def end(self, name: str) -> bool:
        """Take an end tag; whether no foreign element ends with it."""
        if self.foreign and name in ("p", "br"):
            self._break_out()
        at = len(self._kinds) - 1
        while at >= 0 and self._kinds[at] != _HTML and self._step():
            if self._names[at] == name:
                self._cut(at)
                return False
            at -= 1
        if at >= 0:
            self._end_html(name)
        elif self._kinds and not self.rooted:
            self.stray = True
        return True

    def _takes_html(self, name: str) -> bool:
        kind = self._kinds[-1] if self._kinds else _HTML
        if kind == _TEXT_POINT:
            return name not in ("mglyph", "malignmark")
        return kind in (_HTML, _HTML_POINT) or (kind == _ANNOTATION and name == "svg")

    def _foreign_kind(self, name: str, attributes: Attributes) -> int:
        if self._kinds[-1] == _SVG:
            return _HTML_POINT if name in _SVG_POINTS else _SVG
        if name == "annotation-xml":
            return _HTML_POINT if attributes().get("encoding", "").lower() in _ANNOTATED_HTML else _ANNOTATION
        return _TEXT_POINT if name in _TEXT_POINTS else _MATH

    def _break_out(self) -> None:
        while self._kinds and self._kinds[-1] not in (_HTML, _HTML_POINT, _TEXT_POINT):
            self._cut(len(self._kinds) - 1)

    def _start_html(self, name: str, closed: bool) -> None:
        if name in ("svg", "math"):
            if not closed:
                self._push(name, _SVG if name == "svg" else _MATH)
            return
        if not self._make_room(name) or name in _NEVER_OPEN or not (self.rooted or self._kinds):
            return
        self._push(name, _HTML)

    def _make_room(self, name: str) -> bool:
        """Close what a start tag closes; False if it is dropped."""
        if name in _TABLE_PARTS:
            if self._find({"table", "template"}, _NO_STOPS) < 0:
                self.stray = not self.rooted
                return False
            self._cut(self._find(_TABLE_PARTS[name], _NO_STOPS) + 1)
        elif name in _LISTS:
            self._close(_LISTS[name], _LIST_STOPS)
        elif name == "button":
            self._close({name}, _SCOPE)
        elif name in ("a", "nobr"):
            self._end_formatting(name, _MARKERS)
        elif name in ("option", "optgroup"):
            self._close_last({"option"})
        if name in _CLOSE_P and not (self.quirks and name == "table"):
            self._close({"p"}, _BUTTON_SCOPE)
        if name in _HEADINGS:
            self._close_last(_HEADINGS)
        return True

    def _end_html(self, name: str) -> None:
        if name in _FORMATTING:
            self._end_formatting(name, _SCOPE)
        elif name == "form":
            at = self._find({name}, _SCOPE)
            if at >= 0:
                self._remove(at)
        elif name in _HEADINGS:
            self._close(_HEADINGS, _SCOPE)
        else:
            stops = _END_STOPS.get(name, _SPECIAL)
            if not self._close({name}, stops) and stops in _THROUGH_FOREIGN:
                self.stray = not self.rooted

    def _end_formatting(self, name: str, stops: frozenset[str]) -> None:
        """Adoption agency, for the stack only: blocks in the element stay open, what is in the last of them closes."""
        at = self._find({name}, stops)
        if at < 0:
            return
        inside = range(at + 1, len(self._kinds))
        self.steps -= len(inside)
        blocks = [above for above in inside if self._kinds[above] == _HTML and self._names[above] in _SPECIAL]
        if blocks:
            self._cut(blocks[-1] + 1)
            self._remove(at)
        else:
            self._cut(at)

    def _find(self, wanted: frozenset[str] | set[str], stops: frozenset[str]) -> int:
        """The index of the innermost HTML element that is `wanted`, or -1 if something stops the look first."""
        for at in range(len(self._kinds) - 1, -1, -1):
            if not self._step():
                return -1
            if self._kinds[at] == _HTML:
                if self._names[at] in wanted:
                    return at
                if self._names[at] in stops:
                    return -1
            elif self._kinds[at] not in _TRANSPARENT and stops not in _THROUGH_FOREIGN:
                return -1
        return -1

    def _close(self, wanted: frozenset[str] | set[str], stops: frozenset[str]) -> bool:
        at = self._find(wanted, stops)
        if at >= 0:
            self._cut(at)
        return at >= 0

    def _close_last(self, wanted: frozenset[str] | set[str]) -> None:
        if self._kinds and self._kinds[-1] == _HTML and self._names[-1] in wanted:
            self._cut(len(self._kinds) - 1)

    def _step(self) -> bool:
        self.steps -= 1
        return self.steps >= 0

    def _push(self, name: str, kind: int) -> None:
        if len(self._kinds) < DEPTH_MAX:
            self._names.append(name)
            self._kinds.append(kind)

    def _remove(self, at: int) -> None:
        del self._names[at], self._kinds[at]

    def _cut(self, at: int) -> None:
        del self._names[at:], self._kinds[at:]
