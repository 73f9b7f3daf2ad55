"""A plain Scrapy spider over some hosts, run in an environment of its own by `bench_peers.py`.

Written as Scrapy's documentation teaches: a CrawlSpider with one LinkExtractor
rule, a feed of one row a page. It is given what makes it faster without
changing what it does (the pages "Broad crawls" and "asyncio" of its documentation).
robots.txt is obeyed; bodies are not kept.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from scrapy.crawler import CrawlerProcess
from scrapy.http import Response
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule


def spider_for(seeds: list[str]) -> type[CrawlSpider]:
    """A spider that follows every link to the hosts and ports of the seeds."""
    origins = "|".join(re.escape("{0.scheme}://{0.netloc}/".format(urlsplit(seed))) for seed in seeds)
    # Frames too, as all the others follow; `deny_extensions` is left at its default, which holds no page.
    links = LinkExtractor(
        allow=f"^(?:{origins})", tags=("a", "area", "frame", "iframe"), attrs=("href", "src"), unique=True
    )

    class SiteSpider(CrawlSpider):
        name = "site"
        start_urls = seeds
        rules = (Rule(links, callback="parse_page", follow=True),)

        def parse_start_url(self, response: Response, **kwargs: Any) -> Iterator[dict[str, Any]]:
            return self.parse_page(response)

        def parse_page(self, response: Response) -> Iterator[dict[str, Any]]:
            yield {"url": response.url, "status": response.status, "bytes": len(response.body)}

    return SiteSpider


def settings_for(out: Path, concurrency: int) -> dict[str, Any]:
    """Scrapy's defaults, but for these."""
    settings: dict[str, Any] = {
        # As many as ours, and all of them to one host if there is only one.
        "CONCURRENT_REQUESTS": concurrency,
        "CONCURRENT_REQUESTS_PER_DOMAIN": concurrency,
        "DOWNLOAD_DELAY": 0,
        # "Broad crawls": the queue for many hosts, no cookies, a log level that keeps it from logging each page.
        "SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.DownloaderAwarePriorityQueue",
        "COOKIES_ENABLED": False,
        "LOG_LEVEL": "ERROR",
        "FEEDS": {str(out): {"format": "jsonlines"}},
        "HTTPCACHE_ENABLED": False,
        "ROBOTSTXT_OBEY": True,
        # A server of its own that nobody asks here.
        "TELNETCONSOLE_ENABLED": False,
    }
    if importlib.util.find_spec("uvloop") is not None:
        settings["ASYNCIO_EVENT_LOOP"] = "uvloop.Loop"
    return settings


def main() -> None:
    """Crawl, and write a row for each page."""
    parser = argparse.ArgumentParser(description="Crawls the hosts of some pages with Scrapy.")
    parser.add_argument("seeds", nargs="+")
    parser.add_argument("--out", type=Path, required=True, help="a JSONL file, one row a page")
    parser.add_argument("--concurrency", type=int, default=32)
    args = parser.parse_args()
    process = CrawlerProcess(settings_for(args.out, args.concurrency))
    process.crawl(spider_for(args.seeds))
    process.start()


if __name__ == "__main__":
    main()
