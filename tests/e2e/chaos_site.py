"""A made-up site that lasts as long as it is told to, and a log of who asked it for what.

Page i links to three pages that come after it, so that every page is reached,
to five that a digest chooses, some of which are not there, and now and then to
a redirect. A site may be narrow: then all links of a page lead to the few that
come right after it, and a crawler never knows of more.

As a script it serves, and writes a line for each request once it is over. Of
requests to the first site so many a second are answered, in their turn, until
SIGUSR1 comes; of those to the others each takes a moment.

    python chaos_site.py --host 10.77.0.1 --site 8000,3600,0 --site 8001,150,0 --rate 20 --log FILE
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import signal
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

CHILDREN = 3
OTHERS = 5
MISSING_OF_256 = 4
REDIRECT_EVERY = 40  # pages
MOMENT_S = 0.02
HEAD_BYTES_MAX = 16 << 10
ROBOTS = "/robots.txt"
START = "/page/0"


@dataclass(frozen=True, slots=True)
class Site:
    """`pages` pages and what else they link to; `front` is how far ahead links lead, 0: as far as there are pages."""

    pages: int
    front: int = 0

    def links(self, page: int) -> list[str]:
        """The paths that a page links to; some twice."""
        digest = hashlib.sha256(b"%d" % page).digest()
        first = page + 1 if self.front else CHILDREN * page + 1
        links = [f"/page/{child}" for child in range(first, min(first + CHILDREN, self.pages))]
        for other in range(OTHERS):
            kind, place = digest[5 * other], digest[5 * other + 1 : 5 * other + 5]
            number = int.from_bytes(place, "big") % self.pages
            if self.front:
                number = min(page + 1 + number % self.front, self.pages - 1)
            links.append(f"/missing/{number}" if kind < MISSING_OF_256 else f"/page/{number}")
        if page % REDIRECT_EVERY == 0:
            links.append(f"/moved/{page}")
        return links

    def answer(self, path: str) -> tuple[int, str, str]:
        """Status, type (of a redirect: the target) and body."""
        _, kind, *rest = path.split("/")
        number = int(rest[0]) if rest and rest[0].isdigit() else -1
        if path == ROBOTS:
            return 200, "text/plain", "User-agent: *\nDisallow:\n"
        if kind == "page" and 0 <= number < self.pages:
            return 200, "text/html; charset=utf-8", self._html(number)
        if kind == "moved" and 0 <= number < self.pages:
            return 302, f"/page/{min(number + 3, self.pages - 1)}", "it is elsewhere\n"
        return 404, "text/plain", "there is no such page\n"

    def walk(self) -> dict[str, int]:
        """Every path that a crawl has to ask for, with its status: what the answers themselves lead to."""
        statuses: dict[str, int] = {}
        ahead = deque([START])
        while ahead:
            path = ahead.popleft()
            if path in statuses:
                continue
            status, where, body = self.answer(path)
            statuses[path] = status
            if status == 302:
                ahead.append(where)
            ahead.extend(line.split('"')[1] for line in body.splitlines() if line.startswith('<a href="'))
        return statuses

    def _html(self, page: int) -> str:
        anchors = "\n".join(f'<a href="{link}">{link}</a>' for link in self.links(page))
        words = hashlib.sha256(b"text %d" % page).hexdigest() * 8
        return f"<!doctype html>\n<title>Page {page}</title>\n<p>{words}</p>\n{anchors}\n"


class Turns:
    """`rate` turns a second, one after the other, until it is opened."""

    def __init__(self, rate: float) -> None:
        self._every_s = 1 / rate
        self._next_at = 0.0
        self._opened = asyncio.Event()

    def open(self) -> None:
        self._opened.set()

    async def wait(self) -> None:
        """Until it is the caller's turn."""
        now = time.monotonic()
        self._next_at = max(self._next_at + self._every_s, now)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._opened.wait(), max(0.0, self._next_at - now))


class Server:
    """One port; `turns` is whose turn it is there, None where each request takes a moment."""

    def __init__(self, site: Site, turns: Turns | None, log: TextIO) -> None:
        self._site = site
        self._turns = turns
        self._log = log

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until the client has had enough."""
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                path = head.split(b" ", 2)[1].decode("ascii")
                await self._answer(path, reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    async def _answer(self, path: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        began_at = time.monotonic()
        if self._turns is None or path == ROBOTS:
            await asyncio.sleep(MOMENT_S)
        else:
            await self._turns.wait()
        if reader.at_eof() or writer.is_closing():
            # nginx's word for a client that went away
            self._note(began_at, time.monotonic(), 499, path, writer)
            raise ConnectionResetError
        status, kind, body = self._site.answer(path)
        field = "Location" if status == 302 else "Content-Type"
        head = f"HTTP/1.1 {status} X\r\n{field}: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        # Before it is written: whoever asks may have it, and count the delay from then, before this goes on.
        ended_at = time.monotonic()
        writer.write((head + body).encode())
        await writer.drain()
        self._note(began_at, ended_at, status, path, writer)

    def _note(self, began_at: float, ended_at: float, status: int, path: str, writer: asyncio.StreamWriter) -> None:
        client, port = writer.get_extra_info("peername")[0], writer.get_extra_info("sockname")[1]
        self._log.write(f"{began_at:.4f} {ended_at:.4f} {status} {client} {port} {path}\n")
        self._log.flush()


async def run(host: str, sites: dict[int, Site], rate: float, log: TextIO) -> None:
    """Serve until cancelled; says "ready" on stdout."""
    turns = Turns(rate)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, turns.open)
    async with contextlib.AsyncExitStack() as stack:
        for number, (port, site) in enumerate(sites.items()):
            server = Server(site, turns if number == 0 else None, log)
            listening = await asyncio.start_server(server.serve, host, port, limit=HEAD_BYTES_MAX, backlog=512)
            await stack.enter_async_context(listening)
        print("ready", flush=True)
        await asyncio.Event().wait()


def _site(text: str) -> tuple[int, Site]:
    port, pages, front = map(int, text.split(","))
    return port, Site(pages, front)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Serves a made-up site, and notes every request.")
    parser.add_argument("--host", required=True)
    parser.add_argument("--site", action="append", required=True, type=_site, metavar="PORT,PAGES,FRONT")
    parser.add_argument("--rate", type=float, required=True, help="turns a second")
    parser.add_argument("--log", type=Path, required=True)
    args = parser.parse_args()
    with args.log.open("a") as log:
        asyncio.run(run(args.host, dict(args.site), args.rate, log))


if __name__ == "__main__":
    main()
