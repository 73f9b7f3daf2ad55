"""A site without end for `bench_growth.py`: pages made as they are asked for, of 25 KB with 65 links.

Of a page's links 45 lead to the thousand pages that are linked most, 19 to any of
the pages that the crawl knows already, and 1 to a page that nobody has linked.

    python scripts/growth_site.py PORT KNOWN COUNT-FILE

COUNT-FILE always has the number of pages that were asked for, as 8 bytes.
"""

from __future__ import annotations

import asyncio
import mmap
import random
import sys
from pathlib import Path

LINKS_POPULAR, LINKS_ANY, POPULAR = 45, 19, 1_000
TEXT_BYTES = 20_000
COUNT_BYTES = 8


def path_of(number: int) -> str:
    """The path of a page."""
    return f"/section-{number % 997}/a-page-of-the-site-{number}.html"


def body_of(path: str, known: int, new: int) -> bytes:
    """The page at `path` of a site with `known` pages; its new link is number `new`."""
    chance = random.Random(path)
    numbers = [chance.randrange(min(POPULAR, known)) for _ in range(LINKS_POPULAR)]
    numbers += [chance.randrange(known) for _ in range(LINKS_ANY)]
    numbers.append(new)
    links = "\n".join(f'<li><a href="{path_of(number)}">page {number}</a></li>' for number in numbers)
    words = " ".join(f"{chance.getrandbits(24):x}" for _ in range(300)) + ", and again: "
    text = (words * (TEXT_BYTES // len(words) + 1))[:TEXT_BYTES]
    return f"<!doctype html><title>{path}</title><p>{text}</p><ul>{links}</ul>".encode()


class Site(asyncio.Protocol):
    """One connection; requests have no bodies."""

    def __init__(self, known: int, count: mmap.mmap) -> None:
        self._known = known
        self._count = count
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while b"\r\n\r\n" in self._received:
            head, _, self._received = self._received.partition(b"\r\n\r\n")
            self._answer(head.split(b" ", 2)[1].decode())

    def _answer(self, path: str) -> None:
        assert self._transport is not None
        if path == "/robots.txt":
            self._transport.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            return
        asked = 1 + int.from_bytes(self._count[:COUNT_BYTES], "big")
        self._count[:COUNT_BYTES] = asked.to_bytes(COUNT_BYTES, "big")
        body = body_of(path, self._known, self._known + asked)
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n\r\n"
        self._transport.write(head.encode() + body)


async def serve(port: int, known: int, count: mmap.mmap) -> None:
    """Until the process is ended."""
    server = await asyncio.get_running_loop().create_server(lambda: Site(known, count), "127.0.0.1", port)
    await server.serve_forever()


def main() -> None:
    """Serve as the arguments say."""
    count_file = Path(sys.argv[3])
    count_file.write_bytes(bytes(COUNT_BYTES))
    with count_file.open("r+b") as file:
        asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2]), mmap.mmap(file.fileno(), COUNT_BYTES)))


if __name__ == "__main__":
    main()
