"""The outputs of a crawl against the web, which knows better."""

from __future__ import annotations

import io
import json
from collections.abc import Callable

from dhtcrawl.sim.web import SimWeb
from dhtcrawl.storage.archive.warcscan import scan
from dhtcrawl.storage.outputs.outputs import PAGES_FILE, OutputDirs
from dhtcrawl.storage.store.files import MemoryDirectory


def check_outputs(web: SimWeb, dirs: OutputDirs, depth: int) -> list[str]:
    """Each page once, those that a right crawl finds and no others, and an archive that reads."""
    problems = []
    pages = [json.loads(line) for line in bytes(_file(dirs.pages, PAGES_FILE)).decode().splitlines()]
    urls = [page["url"] for page in pages]
    if len(urls) != len(set(urls)):
        problems.append("I8: a page stands twice in pages.jsonl")
    found = {page["url"]: page["depth"] for page in pages if page["status"] == 200}
    truth = web.truth(depth=depth)
    problems += [f"I3: {url} was not fetched" for url in sorted(truth.keys() - found.keys())]
    problems += [f"robots: {url} should not have been fetched" for url in sorted(found.keys() - truth.keys())]
    if depth >= 0:
        problems += [f"I2: {url} is said to be at depth {found[url]}" for url in found if found[url] != truth.get(url)]
    for name in dirs.archive.names():
        for member in scan(io.BytesIO(bytes(_file(dirs.archive, name)))):
            problems += [f"I8: {name} at {member.offset}: {problem}" for problem in member.problems]
    return problems


def check_lacking(web: SimWeb, dirs: OutputDirs, depth: int, may_be_lost: Callable[[str], bool]) -> list[str]:
    """Pages that are not there, though a right crawl finds them on a way that leads over nothing that may be lost."""
    rows = bytes(_file(dirs.pages, PAGES_FILE)).decode().splitlines()
    found = {page["url"] for page in map(json.loads, rows) if page["status"] == 200}
    truth = web.truth(depth=depth, without=may_be_lost)
    return sorted(truth.keys() - found)


def check_haste(web: SimWeb, delay_s: float) -> list[str]:
    """No request began sooner than the delay after the last byte before."""
    hasty = web.violations(delay_s) if delay_s else []
    return [f"I9: {late.url} began {late.gap:.3f} s after the response before" for late in hasty]


def brings(web: SimWeb, url: str, attempt: int) -> bool:
    """Whether the n-th request for a URL brings a page."""
    if url.endswith("/robots.txt") or web.breaks_off(url, attempt):
        return False
    return web.respond(url, attempt).status == 200


def _file(directory: object, name: str) -> bytearray:
    assert isinstance(directory, MemoryDirectory), "simulated outputs"
    return directory.files[name]
