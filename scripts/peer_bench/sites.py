"""The sites that crawlers are compared on, and which pages a server gave away.

A generated site has hosts 127.0.1.1, 127.0.1.2 and so on, all on one port, so that no crawler needs names. Each host's
pages are a ring with chords: whoever follows links within a host finds all of them, and the few links from host to host
add nothing.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from loopback import free_port
from web_server import Nginx

LINKS = 65
LINKS_TO_OTHERS = 5
WORDS = 3_000  # some 25 KB with the links
PARAGRAPH_WORDS = 60
PARAGRAPHS = 600

# What no crawler of a site can need more than once: asked for, and no content.
LOG_FORMAT = "log_format pages '$status $http_host $request_uri $sent_http_content_type';"


@dataclass(frozen=True, slots=True)
class Site:
    """Files to be crawled. With several hosts each has a directory of its name below `root`."""

    name: str
    root: Path
    start: str = "/index.html"
    hosts: tuple[str, ...] = ("127.0.0.1",)


@dataclass(frozen=True, slots=True)
class Answers:
    """What a server answered between two moments."""

    pages: frozenset[str]  # host and path of HTML that was asked for with success
    pages_again: int  # how often one of them was asked for once more
    others: int  # requests for what is no page, such as pictures and what is missing


class SiteServer:
    """A running server of one site."""

    def __init__(self, site: Site, port: int, log: Path) -> None:
        self.site = site
        self.seeds = tuple(f"http://{host}:{port}{site.start}" for host in site.hosts)
        self._log = log
        self._read_to = 0

    def answers(self) -> Answers:
        """What was answered since this was asked for the last time."""
        with self._log.open("rb") as log:
            log.seek(self._read_to)
            lines = log.read().decode("utf-8", "replace").splitlines()
            self._read_to = log.tell()
        return read_log(lines)


def read_log(lines: Sequence[str]) -> Answers:
    """The answers that lines of `LOG_FORMAT` tell of. Spellings of one path are one page."""
    pages: set[str] = set()
    count = 0
    for line in lines:
        status, host, uri, kind = line.split(" ", 3)
        if status == "200" and kind.startswith("text/html"):
            count += 1
            pages.add(host.partition(":")[0] + unquote(uri, errors="replace"))
    return Answers(frozenset(pages), count - len(pages), len(lines) - count)


@contextmanager
def serve(site: Site, home: Path, port: int | None = None) -> Iterator[SiteServer]:
    """The site on nginx, in the directory `home`, which must not exist.

    Raises:
        RuntimeError: nginx is missing, or does not start.
    """
    port = port or free_port()
    log = home / "pages.log"
    extra = [f"access_log {log} pages;"]
    several = len(site.hosts) > 1
    extra += [f"listen {host}:{port};" for host in site.hosts if host != "127.0.0.1"]
    root = site.root / "$server_addr" if several else site.root
    with Nginx(home, root, "\n".join(extra), LOG_FORMAT, port=port):
        yield SiteServer(site, port, log)


def generated(root: Path, hosts: int, pages: int, port: int) -> Site:
    """A site of `hosts` times `pages` pages of 25 KB and 65 links, written below `root`, which must not exist."""
    names = tuple(f"127.0.1.{number + 1}" for number in range(hosts))
    for number, name in enumerate(names):
        others = [f"http://{other}:{port}/" for other in names if other != name]
        write_pages(root / name, pages, seed=number, others=others)
    return Site("generated", root, hosts=names)


def one_page(root: Path) -> Site:
    """A page without links: what a crawl of it costs is starting up and ending."""
    root.mkdir(parents=True)
    (root / "index.html").write_text("<!doctype html><title>One</title><p>This is all there is.\n")
    return Site("start-up", root)


def write_pages(root: Path, pages: int, seed: int = 0, others: Sequence[str] = ()) -> None:
    """Static pages of one host, the same for the same arguments: a ring with chords, and links to `others`."""
    chance = random.Random(seed)
    words = ["".join(chance.choices("abcdefghijklmnoprstuvw", k=chance.randint(2, 11))) for _ in range(4_000)]
    paragraphs = [" ".join(chance.choices(words, k=PARAGRAPH_WORDS)) for _ in range(PARAGRAPHS)]
    root.mkdir(parents=True)
    own = LINKS - 1 - (LINKS_TO_OTHERS if others else 0)
    for number in range(pages):
        targets = [_name((number + 1) % pages), *(_name(chance.randrange(pages)) for _ in range(own))]
        targets += [chance.choice(others) + _name(chance.randrange(pages)) for _ in range(LINKS - len(targets))]
        chance.shuffle(targets)
        text = chance.sample(paragraphs, WORDS // PARAGRAPH_WORDS)
        links = [f'<a href="{target}#s{at}">{chance.choice(words)}</a>' for at, target in enumerate(targets)]
        body = "\n".join(f"<p>{paragraph} {' '.join(links[at :: len(text)])}</p>" for at, paragraph in enumerate(text))
        html = f"<!doctype html><html><head><meta charset=utf-8><title>{number}</title></head><body>\n{body}\n</body>"
        (root / _name(number)).write_text(html)


def _name(number: int) -> str:
    return f"page{number}.html" if number else "index.html"
