"""Calls of `node`: what a node knows of a URL or a host, for people. No I/O."""

from typing import Annotated

from dhtcrawl.rpc.tasks.schema import CallArgs, WireMap, text
from dhtcrawl.swarm.calls.words import Crawl, Url
from dhtcrawl.url import URL_CHARS_MAX


class Explanation(WireMap):
    """Answer to `why` and `explain_host`: any fields, named for people."""


class ExplainUrl(CallArgs[Explanation], name="why", reply_bytes_max=64 * 1024):
    """Commands ask the owner of a URL what it knows of it. Refused: `unknown-crawl`."""

    crawl: Crawl
    url: Url


class ExplainHost(CallArgs[Explanation], name="explain_host", reply_bytes_max=64 * 1024):
    """Commands ask the gatekeeper of a host what it knows of it."""

    host: Annotated[str, text(URL_CHARS_MAX)]
