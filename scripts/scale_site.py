"""A made-up web of many hosts that answers after a while and counts what a crawler does to it: a process of its own.

    python scripts/scale_site.py --port N --hosts N --pages N [--latency SECONDS] [--delay SECONDS] [--address HOST]

Each host is a loopback address, 127.77.x.y, all with the same port; or, for nodes of other machines, a port of one
address, from `--port` on. The pages are one tree, as `slow_site.py` has it,
dealt out to the hosts in turn, so that most links lead to another host. `/totals` of any host says, in JSON, what all
of them were asked for.

A page asked for sooner than `--delay` after the last answer of its host, or while its host answers another one, came
*too soon*: it is this server that counts, and it knows nothing of the crawler's own clock.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
import urllib.request
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from loopback import free_port
from policy_bench.slow_site import PAGE_BYTES, TOTALS_PATH, HttpConnection, links_of, response
from web_server import WebServer

from dhtcrawl.units import Address, format_address

_TEXT = "what a page says that nobody reads " * 1_000


class Asked(NamedTuple):
    """What was asked for so far, of all hosts; robots.txt and `/totals` are no pages."""

    at: float  # seconds on the server's clock
    pages: int  # requests for pages
    again: int  # of them, for pages that had been asked for before
    too_soon: int  # of them, that came too soon
    elsewhere: int  # requests for anything else: what no page leads to


class Hosts(NamedTuple):
    """Where the hosts are; `address` is one for all of them, with a port each, or "": a loopback address each."""

    port: int
    address: str = ""

    def place(self, number: int) -> Address:
        """Of one host; a /16 of loopback has room for 60,000."""
        if self.address:
            return self.address, self.port + number
        return f"127.77.{number // 250}.{number % 250 + 1}", self.port

    def url(self, number: int, path: int) -> str:
        """Of a page there."""
        return f"http://{format_address(self.place(number))}/{path}"


class Web:
    """The hosts, and what is counted. No I/O."""

    def __init__(self, hosts: int, pages: int, places: Hosts, delay_s: float, page_bytes: int = PAGE_BYTES) -> None:
        self._page_bytes = page_bytes
        self._hosts, self._pages, self._places, self._delay_s = hosts, pages, places, delay_s
        self._asked: set[int] = set()
        self._answering = [0] * hosts
        self._answered_at = [float("-inf")] * hosts
        self._pages_asked = self._too_soon = self._elsewhere = 0

    def totals(self, now: float) -> Asked:
        """So far."""
        again = self._pages_asked - len(self._asked)
        return Asked(now, self._pages_asked, again, self._too_soon, self._elsewhere)

    def begin(self, path: str, now: float) -> int | None:
        """A request comes; the number of its page, None where there is none."""
        name = path[1:]
        if not (name.isascii() and name.isdigit() and int(name) < self._pages):
            self._elsewhere += path != "/robots.txt"
            return None
        number = int(name)
        host = number % self._hosts
        self._pages_asked += 1
        self._asked.add(number)
        self._too_soon += self._answering[host] > 0 or now < self._answered_at[host] + self._delay_s
        self._answering[host] += 1
        return number

    def end(self, number: int, now: float) -> None:
        """Its answer leaves."""
        self._answering[number % self._hosts] -= 1
        self._answered_at[number % self._hosts] = now

    def page(self, number: int) -> str:
        """Its HTML."""
        links = "".join(
            f'<li><a href="{self._places.url(link % self._hosts, link)}">{link}</a>'
            for link in links_of(number, self._pages)
        )
        text = _TEXT[: max(0, self._page_bytes - len(links))]
        return f"<!doctype html><html><head><title>{number}</title></head><body><ul>{links}</ul><p>{text}</body></html>"


def seeds_of(hosts: int, places: Hosts) -> list[str]:
    """The first page of each host: private addresses are crawled where a seed names them."""
    return [places.url(number, number) for number in range(hosts)]


class _Connection(HttpConnection):
    """Answers for all hosts of a web."""

    def __init__(self, web: Web, latency_s: float) -> None:
        super().__init__()
        self._web = web
        self._latency_s = latency_s

    def asked(self, path: str, size: int) -> None:
        now = time.monotonic()
        if path == TOTALS_PATH:
            self.send(response("200 OK", "application/json", json.dumps(self._web.totals(now)._asdict())))
        elif (number := self._web.begin(path, now)) is None:
            self.send(response("404 Not Found", "text/plain", ""))
        else:
            asyncio.get_running_loop().call_later(self._latency_s, self._answer, number)

    def _answer(self, number: int) -> None:
        self._web.end(number, time.monotonic())
        self.send(response("200 OK", "text/html; charset=utf-8", self._web.page(number)))


class ScaleSite(WebServer):
    """The process; started and ended by `with`. Its `url` is that of the first host."""

    def __init__(
        self, home: Path, hosts: int, pages: int, latency_s: float, delay_s: float, places: Hosts | None = None
    ) -> None:
        places = Hosts(free_port()) if places is None else places
        argv = [sys.executable, __file__, "--port", str(places.port), "--hosts", str(hosts), "--pages", str(pages)]
        argv += ["--latency", str(latency_s), "--delay", str(delay_s), "--address", places.address]
        super().__init__("the made-up web", argv, places.port, home / "web.log")
        self.url = f"http://{format_address(places.place(0))}"
        self.seeds = seeds_of(hosts, places)

    def _answers(self) -> bool:
        try:
            self.totals()
        except OSError:
            return False
        return True

    def totals(self) -> Asked:
        """So far."""
        with urllib.request.urlopen(self.url + TOTALS_PATH, timeout=60) as answer:
            return Asked(**json.load(answer))


async def serve(web: Web, hosts: int, places: Hosts, latency_s: float) -> None:
    """Until the process is ended."""
    loop = asyncio.get_running_loop()
    for number in range(hosts):
        await loop.create_server(lambda: _Connection(web, latency_s), *places.place(number), backlog=512)
    await asyncio.Event().wait()


def main() -> None:
    """The command line."""
    import uvloop

    parser = argparse.ArgumentParser(description="Serves a made-up web of many hosts, slowly.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--hosts", type=int, required=True)
    parser.add_argument("--pages", type=int, required=True, help="of all hosts together")
    parser.add_argument("--latency", type=float, default=0.0, metavar="SECONDS", help="until a page is answered")
    parser.add_argument(
        "--delay", type=float, default=0.0, metavar="SECONDS", help="wanted after each answer of a host"
    )
    parser.add_argument("--address", default="", help="one address for all hosts, with ports from --port on")
    parser.add_argument("--bytes", type=int, default=PAGE_BYTES, help="of a page, its links included")
    args = parser.parse_args()
    places = Hosts(args.port, args.address)
    web = Web(args.hosts, args.pages, places, args.delay, args.bytes)
    uvloop.run(serve(web, args.hosts, places, args.latency))


if __name__ == "__main__":
    main()
