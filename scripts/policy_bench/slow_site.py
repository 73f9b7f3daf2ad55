"""A made-up site that answers after a while, and counts: as a process of its own, on loopback.

    python scripts/policy_bench/slow_site.py --port N [--host ADDRESS] [--delay SECONDS] [--pages N] [--bytes N]

The pages are a tree with page 0 as its root. One leads to its `NEW` children,
and to those above it with their children: most links of a crawl lead to what
it knows. Without a number of pages the tree does not end. Pages have the number
of links, and where nothing else is said the size, that those of
`scripts/peer_bench/sites.py` have. `/totals` says, in JSON, what was asked for and
what went over the wire.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple, cast

sys.path.insert(0, str(Path(__file__).parents[1]))

from loopback import free_port
from web_server import WebServer

LINKS, NEW = 65, 8
PAGE_BYTES = 22_000
TOTALS_PATH = "/totals"
ENDLESS = 10**30
_WORDS = ["".join(Random(number).choices("abcdefghijklmnoprstuvw", k=2 + number % 9)) for number in range(4_000)]
_TEXT = " ".join(_WORDS)[:PAGE_BYTES]


class Totals(NamedTuple):
    """What a site was asked for so far; `/totals` itself and robots.txt are no pages."""

    pages: int  # requests for pages
    again: int  # of them, for pages that had been asked for before
    bytes_in: int
    bytes_out: int
    first_at: float  # when the first page was asked for, by the wall clock; 0: none was


def children_of(number: int, pages: int = ENDLESS) -> list[int]:
    """The pages below this one in the tree."""
    return [child for child in range(number * NEW + 1, number * NEW + NEW + 1) if child < pages]


def links_of(number: int, pages: int = ENDLESS) -> list[int]:
    """The pages that a page leads to, `LINKS` of them; one may be there twice."""
    links, above = children_of(number, pages), number
    while above and len(links) < LINKS:
        above = (above - 1) // NEW
        links += [above, *children_of(above, pages)]
    return (links + [0] * LINKS)[:LINKS]


def page(number: int, pages: int = ENDLESS, size: int = PAGE_BYTES) -> str:
    """Its HTML, of about so many bytes."""
    links = "".join(f'<li><a href="/{link}">{_WORDS[link % len(_WORDS)]}</a>' for link in links_of(number, pages))
    wanted = max(0, size - len(links))
    text = (_TEXT * (1 + wanted // len(_TEXT)))[:wanted]
    return f"<!doctype html><html><head><title>{number}</title></head><body><ul>{links}</ul><p>{text}</body></html>"


class Site:
    """What is counted, and the answers."""

    def __init__(self, delay_s: float, pages: int, page_bytes: int = PAGE_BYTES) -> None:
        self.delay_s = delay_s
        self._page_bytes = page_bytes
        self.asked: Counter[str] = Counter()
        self.bytes_in = self.bytes_out = 0
        self.first_at = 0.0
        self._pages = pages

    @property
    def totals(self) -> Totals:
        count = self.asked.total()
        return Totals(count, count - len(self.asked), self.bytes_in, self.bytes_out, self.first_at)

    def answer(self, path: str) -> tuple[bytes, float]:
        """A response, and after how many seconds it is sent."""
        number = path[1:]
        if path == TOTALS_PATH:
            return response("200 OK", "application/json", json.dumps(self.totals._asdict())), 0.0
        if not (number.isascii() and number.isdigit() and int(number) < self._pages):
            return response("404 Not Found", "text/plain", ""), 0.0
        self.first_at = self.first_at or time.time()
        self.asked[path] += 1
        return response(
            "200 OK", "text/html; charset=utf-8", page(int(number), self._pages, self._page_bytes)
        ), self.delay_s


def response(status: str, kind: str, body: str) -> bytes:
    """A response, head and body."""
    data = body.encode()
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


class HttpConnection(asyncio.Protocol):
    """HTTP/1.1 as far as a crawler needs it: GET without a body, one request at a time."""

    def __init__(self) -> None:
        self._head = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's is one by what it does, not by its class.
        self._transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        head, end, self._head = (self._head + data).partition(b"\r\n\r\n")
        if not end:
            self._head = head
            return
        self.asked(head.split(b" ", 2)[1].decode("latin-1"), len(head) + len(end))

    def asked(self, path: str, size: int) -> None:
        """A request of `size` bytes has come."""
        raise NotImplementedError

    def send(self, response: bytes) -> bool:
        """Send a response, unless the connection is closed; whether it was sent."""
        if self._transport.is_closing():
            return False
        self._transport.write(response)
        return True


class Connection(HttpConnection):
    """Answers for a slow site."""

    def __init__(self, site: Site) -> None:
        super().__init__()
        self._site = site

    def asked(self, path: str, size: int) -> None:
        response, delay_s = self._site.answer(path)
        if path != TOTALS_PATH:
            self._site.bytes_in += size
        asyncio.get_running_loop().call_later(delay_s, self._send, path, response)

    def _send(self, path: str, response: bytes) -> None:
        if self.send(response):
            self._site.bytes_out += len(response) * (path != TOTALS_PATH)


class SlowSite(WebServer):
    """The process; started and ended by `with`."""

    def totals(self) -> Totals:
        """So far."""
        with urllib.request.urlopen(self.url + TOTALS_PATH, timeout=60) as answer:
            return Totals(**json.load(answer))


@contextmanager
def slow_site(home: Path, delay_s: float, pages: int = ENDLESS) -> Iterator[SlowSite]:
    """A site whose pages take `delay_s`; its seed is `url` + "/0"."""
    port = free_port()
    argv = [sys.executable, __file__, "--port", str(port), "--delay", str(delay_s), "--pages", str(pages)]
    with SlowSite("the made-up site", argv, port, home / "site.log") as site:
        yield site


async def serve(site: Site, host: str, port: int) -> None:
    """Until the process is ended."""
    server = await asyncio.get_running_loop().create_server(lambda: Connection(site), host, port, backlog=512)
    await server.serve_forever()


def main() -> None:
    """The command line."""
    import uvloop

    parser = argparse.ArgumentParser(description="Serves a made-up site, slowly.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--host", default="127.0.0.1", metavar="ADDRESS")
    parser.add_argument("--delay", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--pages", type=int, default=ENDLESS)
    parser.add_argument("--bytes", type=int, default=PAGE_BYTES, metavar="N", help="of a page")
    args = parser.parse_args()
    uvloop.run(serve(Site(args.delay, args.pages, args.bytes), args.host, args.port))


if __name__ == "__main__":
    main()
