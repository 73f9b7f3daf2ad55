"""HTML that is built as a tree: whatever the title or the URL of a page holds, it comes out as text. Pure.

ElementTree writes it, which escapes all text and every value of an attribute.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final
from xml.etree.ElementTree import Element, SubElement, tostring

Part = Element | str

_NO_ATTRIBUTES: Final[Mapping[str, str]] = {}
_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
)  # controls, and turns of direction
_WEB: Final = ("http://", "https://")


def element(tag: str, *parts: Part, attributes: Mapping[str, str] = _NO_ATTRIBUTES) -> Element:
    """An element with these attributes, and with texts and elements in it."""
    made = Element(tag, dict(attributes))
    last: Element | None = None
    for part in parts:
        if isinstance(part, Element):
            made.append(part)
            last = part
        elif last is None:
            made.text = (made.text or "") + _seen(part)
        else:
            last.tail = (last.tail or "") + _seen(part)
    return made


def classed(tag: str, name: str, *parts: Part) -> Element:
    """An element of this class."""
    return element(tag, *parts, attributes={"class": name})


def link(url: str) -> Element:
    """A link to a web address; text where it is none, so that none runs anything."""
    if not url.startswith(_WEB):
        return element("span", url)
    return element("a", url, attributes={"href": url, "rel": "noreferrer nofollow"})


def document(title: str, style: str, policy: str, body: Iterable[Element]) -> bytes:
    """A whole page, in UTF-8. `style` is CSS, and `policy` a Content-Security-Policy."""
    root = element("html", attributes={"lang": "en"})
    head = SubElement(root, "head")
    for attributes in (
        {"charset": "utf-8"},
        {"name": "viewport", "content": "width=device-width, initial-scale=1"},
        {"http-equiv": "Content-Security-Policy", "content": policy},
        {"name": "referrer", "content": "no-referrer"},
        {"name": "robots", "content": "noindex, nofollow"},
    ):
        head.append(element("meta", attributes=attributes))
    head.append(element("title", title))
    head.append(element("style", style))
    SubElement(root, "body").extend(body)
    return b"<!doctype html>\n" + tostring(root, "unicode", method="html").encode("utf-8", "replace") + b"\n"


def _seen(text: str) -> str:
    """The text, with a mark for what no reader sees and for what turns the direction of others' texts."""
    return _UNSEEN.sub("\N{REPLACEMENT CHARACTER}", text)
