"""The tree construction cases of html5lib-tests, with a link put in at each place: both ways to read a page find it.

Where the two differ on purpose: a tree drops what has no place in it (in a
frameset), and lexbor does not search a `<template>`; scanning finds these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

from dhtcrawl.fetch import links
from dhtcrawl.fetch.links import extract

LINK = b"<a href=put-in>"
# A place is before or after a tag, or the end.
PLACE = re.compile(rb"(?=<)|(?<=>)|\Z")
DROPPED = re.compile(rb"<(?:template|frameset)", re.IGNORECASE)
MUTANTS_MIN = 9_500


def pages(directory: Path) -> Iterator[bytes]:
    for path in sorted((directory / "html").glob("*.dat")):
        for case in re.split(rb"(?:^|\n\n)#data\n", path.read_bytes()):
            data, _, rest = case.partition(b"\n#errors")
            # A fragment is no page, and no script runs here.
            if rest and b"#document-fragment" not in rest and b"#script-on" not in rest:
                yield data


def mutants(directory: Path) -> Iterator[bytes]:
    for page in pages(directory):
        for place in PLACE.finditer(page):
            yield page[: place.start()] + LINK + page[place.start() :]


def test_a_link_at_any_place_of_a_page_is_found_both_ways(conformance_dir: Path) -> None:
    missing, invented, count = [], [], 0
    for page in mutants(conformance_dir):
        count += 1
        parsed = set(extract(page).hrefs)
        with patch.object(links, "TREE_TAGS_MAX", -1):
            scanned = set(extract(page).hrefs)
        if parsed - scanned:
            missing.append(page)
        if scanned - parsed and not DROPPED.search(page):
            invented.append(page)
    assert count >= MUTANTS_MIN
    assert missing == []
    assert invented == []
