"""The links of a page that has a tree for its rules, so that it is not read once more for them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from turbohtml import Document, Element, Namespace

from dhtcrawl.fetch.links import PageLinks, collect, collect_plain, forbids_following

_OTHER_LINKS: Final = ("area", "iframe", "frame")
_SAID_BY_META: Final = ("http-equiv", "content", "name")


def links_in(tree: Document) -> PageLinks | None:
    """What `fetch.links.extract` finds on the page; None if it has a `<template>`, which says nothing of the page."""
    if tree.select_one("template") is not None:
        return None
    if any(map(tree.select_one, _OTHER_LINKS)):
        links = tree.select("a[href],area[href],iframe[src],frame[src]")
        return collect([*_head(tree), *[(node.tag, _leading(node)) for node in links]])
    links = tree.select("a[href]")
    left = {node for node in tree.select("a[rel]") if forbids_following(node.attr("rel"))}
    if left:
        nofollow = [node.attr("href") or "" for node in links if node in left]
        return collect_plain(_head(tree), [node.attr("href") or "" for node in links if node not in left], nofollow)
    return collect_plain(_head(tree), [node.attr("href") or "" for node in links])


def _head(tree: Document) -> Iterator[tuple[str, Mapping[str, str | None]]]:
    """What a page says of itself, each kind for itself."""
    for name in ("base", "title", "meta"):
        for node in tree.select(name):
            if node.namespace is Namespace.HTML:
                yield name, {"text": node.text} if name == "title" else _attributes_of(node, name)


def _leading(node: Element) -> dict[str, str | None]:
    """The attributes of a link that count."""
    name = "href" if node.tag in ("a", "area") else "src"
    return {name: node.attr(name), "rel": node.attr("rel")}


def _attributes_of(node: Element, tag: str) -> dict[str, str | None]:
    """Those that count."""
    if tag == "meta":
        return {name: node.attr(name) for name in _SAID_BY_META}
    return {name: node.attr(name) for name in node.attrs}
