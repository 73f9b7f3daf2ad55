"""A small crawl on the virtual loop; as a script it prints its trace's hash."""

from __future__ import annotations

import asyncio
import re

from dhtcrawl.fetch.http import Exchange, FetchFailure, HttpRequest
from dhtcrawl.sim.loop import VirtualClock, run
from dhtcrawl.sim.pages import WebShape
from dhtcrawl.sim.trace import Trace
from dhtcrawl.sim.web import SimClient, SimWeb
from dhtcrawl.url import canonicalize, host_of

_HREF = re.compile(r'href="([^"]*)"')


class Crawl:
    """One worker a host, as polite as `delay`, with nothing kept on disk."""

    def __init__(self, web: SimWeb, delay: float) -> None:
        self.web = web
        self.delay = delay
        self.found: set[str] = set()
        self.trace = Trace(asyncio.get_running_loop().time, tail=5)
        self._client = SimClient(web, VirtualClock(asyncio.get_running_loop()))
        self._queues = {host_of(url): [url] for url in web.seeds()}
        self._seen = set(web.seeds())

    async def run(self) -> None:
        while any(self._queues.values()):
            async with asyncio.TaskGroup() as group:
                for host in self._queues:
                    group.create_task(self._drain(host))

    async def _drain(self, host: str) -> None:
        queue = self._queues[host]
        while queue:
            url = queue.pop(0)
            if not self.web.disallows(url):
                await self._fetch(url)

    async def _fetch(self, url: str) -> None:
        for _ in range(3):
            result = await self._client.exchange(HttpRequest(url))
            self.trace.event("fetched", url=url, status=result.status if isinstance(result, Exchange) else None)
            await asyncio.sleep(self.delay)
            if isinstance(result, FetchFailure) or result.status != 503:
                break
        if isinstance(result, Exchange):
            self._take(url, result)

    def _take(self, url: str, exchange: Exchange) -> None:
        hrefs = [exchange.header("location") or ""]
        if exchange.status == 200:
            self.found.add(url)
            if (exchange.header("content-type") or "").startswith("text/html"):
                hrefs += _HREF.findall(exchange.body.data.decode("latin-1"))
        for href in filter(None, hrefs):
            link = canonicalize(href, url)
            if link is not None and link not in self._seen and host_of(link) in self._queues:
                self._seen.add(link)
                self._queues[host_of(link)].append(link)


async def crawl(seed: int = 3, delay: float = 1.0) -> Crawl:
    """A finished crawl of a web of 150 pages."""
    finished = Crawl(SimWeb(seed, WebShape(hosts=4, pages=150)), delay)
    await finished.run()
    return finished


if __name__ == "__main__":
    print(run(crawl()).trace.hash)
