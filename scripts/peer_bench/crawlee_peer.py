"""A plain crawlee crawler over some hosts, run in an environment of its own by `bench_peers.py`.

Written as crawlee's documentation teaches: a ParselCrawler (the fastest parser of
its guide to HTTP crawlers) whose handler enqueues the page's links and pushes a
row. robots.txt is obeyed; bodies are not kept.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import re
from pathlib import Path
from urllib.parse import urlsplit

from crawlee import ConcurrencySettings
from crawlee.crawlers import ParselCrawler, ParselCrawlingContext
from crawlee.storage_clients import MemoryStorageClient


async def crawl(seeds: list[str], out: Path, concurrency: int) -> None:
    """Follow every link to the hosts and ports of the seeds."""
    origins = "|".join(re.escape("{0.scheme}://{0.netloc}/".format(urlsplit(seed))) for seed in seeds)
    include = [re.compile(f"^(?:{origins})")]
    crawler = ParselCrawler(
        # "Scaling crawlers": as many at once as ours, from the beginning.
        concurrency_settings=ConcurrencySettings(
            min_concurrency=concurrency, desired_concurrency=concurrency, max_concurrency=concurrency
        ),
        # "Storage clients": the one without files, for speed.
        storage_client=MemoryStorageClient(),
        respect_robots_txt_file=True,
        # There are no proxies to change and nobody who blocks: both are work for each page.
        use_session_pool=False,
        retry_on_blocked=False,
        configure_logging=False,
    )

    @crawler.router.default_handler
    async def handle(context: ParselCrawlingContext) -> None:
        await context.enqueue_links(strategy="all", include=include)
        frames = context.selector.css("frame, iframe")
        if frames:
            await context.enqueue_links(selector="frame, iframe", attribute="src", strategy="all", include=include)
        await context.push_data({"url": context.request.url, "status": context.http_response.status_code})

    await crawler.run(seeds)
    await crawler.export_data(out.with_suffix(".json"))


def main() -> None:
    """Crawl, and write a row for each page."""
    parser = argparse.ArgumentParser(description="Crawls the hosts of some pages with crawlee.")
    parser.add_argument("seeds", nargs="+")
    parser.add_argument("--out", type=Path, required=True, help="where the rows go; .json is added")
    parser.add_argument("--concurrency", type=int, default=32)
    args = parser.parse_args()
    logging.basicConfig(level=logging.CRITICAL)
    asyncio.run(crawl(args.seeds, args.out, args.concurrency))


if __name__ == "__main__":
    main()
