"""A plain Scrapy spider over one site: what `bench_crawl.py` measures ours against.

Written as Scrapy's documentation teaches: a CrawlSpider with one LinkExtractor
rule, a feed of one row a page. It is given what makes it faster without
changing what it does: no delay, as many requests at once as ours, no cookies,
no telnet console, uvloop where installed. robots.txt is obeyed; no WARC is written.
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


def spider_for(seed: str) -> type[CrawlSpider]:
    """A spider that follows every link on the seed's host and port."""
    origin = "{0.scheme}://{0.netloc}/".format(urlsplit(seed))

    class SiteSpider(CrawlSpider):
        name = "site"
        rules = (Rule(LinkExtractor(allow="^" + re.escape(origin)), callback="parse_page", follow=True),)

        def parse_start_url(self, response: Response, **kwargs: Any) -> Iterator[dict[str, Any]]:
            return self.parse_page(response)

        def parse_page(self, response: Response) -> Iterator[dict[str, Any]]:
            yield {
                "url": response.url,
                "status": response.status,
                "title": response.css("title::text").get(),
                "bytes": len(response.body),
            }

    return SiteSpider


def settings_for(out: Path, concurrency: int) -> dict[str, Any]:
    """Scrapy's defaults, but for what the module's docstring names."""
    settings: dict[str, Any] = {
        "CONCURRENT_REQUESTS": concurrency,
        "CONCURRENT_REQUESTS_PER_DOMAIN": concurrency,
        "COOKIES_ENABLED": False,
        "DOWNLOAD_DELAY": 0,
        "FEEDS": {str(out): {"format": "jsonlines"}},
        "LOG_LEVEL": "WARNING",
        "ROBOTSTXT_OBEY": True,
        "TELNETCONSOLE_ENABLED": False,
    }
    if importlib.util.find_spec("uvloop") is not None:
        settings["ASYNCIO_EVENT_LOOP"] = "uvloop.Loop"
    return settings


def main() -> None:
    """Crawl one site and write its pages."""
    parser = argparse.ArgumentParser(description="Crawls one site with Scrapy.")
    parser.add_argument("seed")
    parser.add_argument("--out", type=Path, required=True, help="a JSONL file, one row a page")
    parser.add_argument("--concurrency", type=int, default=32)
    args = parser.parse_args()
    process = CrawlerProcess(settings_for(args.out, args.concurrency))
    process.crawl(spider_for(args.seed), start_urls=[args.seed])
    process.start()


if __name__ == "__main__":
    main()
