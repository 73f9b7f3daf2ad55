"""`dhtcrawl try-rules`: what rules find on one page, for the person who writes them."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict, deque
from collections.abc import Iterable
from itertools import chain
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import click

from dhtcrawl.cli.main import json_text
from dhtcrawl.cli.options import require_readable
from dhtcrawl.cli.rules_files import rules_in
from dhtcrawl.cli.table import printable
from dhtcrawl.cli.words import some
from dhtcrawl.clock import SystemClock
from dhtcrawl.config import Config
from dhtcrawl.crawl.analysis import CHOICES, REDIRECTS, page_html
from dhtcrawl.crawl.record_finder import kept
from dhtcrawl.crawl.robots_fetcher import PageRequests
from dhtcrawl.errors import DhtcrawlError, Exit, UsageError
from dhtcrawl.extract.records import Extracted, Finding, Reject, extract
from dhtcrawl.extract.rules_file import RuleFile
from dhtcrawl.fetch.aiohttp_client import AiohttpClient
from dhtcrawl.fetch.header_fields import locations
from dhtcrawl.fetch.http import FetchFailure, HttpRequest
from dhtcrawl.spec import make_spec, typed_url
from dhtcrawl.url import canonicalize, host_of

SHOWN_CHARS = 200
FILE_BYTES_MAX = 64 << 20
_SCHEMES = ("http://", "https://")


@click.command("try-rules")
@click.argument("page", metavar="URL|FILE")
@click.option("--rules", required=True, metavar="FILE", type=click.Path(path_type=Path), help="The rules (TOML).")
@click.option("--url", metavar="URL", help="Which page FILE is: rules are chosen by it, and links are relative to it.")
@click.option("--allow-private", is_flag=True, help="Allow URL's host on a private address.")
@click.option("--json", "as_json", is_flag=True, help="Print records, rejects and findings as JSON.")
def command(page: str, rules: Path, url: str | None, allow_private: bool, as_json: bool) -> int:
    """Show what each selector of the rules finds on one page, and why a record is rejected.

    A URL is asked for once, without a look at robots.txt, as a browser does.
    """
    if url is not None and typed_url(url) is None:
        raise UsageError(f"--url {url} is no http(s) URL")
    in_file = None if page.startswith(_SCHEMES) else _address_of_file(page, url)
    if in_file is None and url is not None:
        raise UsageError("--url is for a page in a file; leave it out")
    require_readable("--rules", str(rules))
    checked = rules_in(rules)
    if in_file is None:
        address, html, charset = asyncio.run(_fetched(page, allow_private))
    else:
        address, (html, charset) = in_file, _in_file(Path(page))
    if not checked.rules_of(address):
        raise UsageError(f"no rule is for {address}; {_why_none(checked, address)}")
    tried = extract(checked, address, html, charset, findings=True)
    extracted = kept(tried)
    if as_json:
        follow = None if extracted.follow is None else sorted(extracted.follow)
        parts = {name: [each._asdict() for each in rows] for name, rows in _parts(extracted)}
        fields = {"url": address, **parts, "follow": follow}
        lines: Iterable[str] = [json_text(fields)]
    else:
        lines = _lines(tried, extracted)
    for line in lines:
        click.echo(line.encode("utf-8", "replace").decode())  # JSON-LD may have half a surrogate pair
    return Exit.COMPLETE if extracted.records else Exit.FAILURE


def _parts(extracted: Extracted) -> Iterable[tuple[str, list[Any]]]:
    return (("records", extracted.records), ("rejects", extracted.rejects), ("findings", extracted.findings))


def _why_none(rules: RuleFile, url: str) -> str:
    """What is next to fitting: rules for the site, else the sites that there are."""
    here = [rule for rule in rules.rules if rule.is_of_site(url)]
    if here:
        return "of its site there is " + ", ".join(f"{rule.name} for {' '.join(rule.pages)}" for rule in here[:5])
    sites = list(dict.fromkeys(site for rule in rules.rules for site in rule.sites))
    return (
        f"there are rules for {', '.join(sites[:5])}{' and others' if len(sites) > 5 else ''}, not for {host_of(url)}"
    )


def _address_of_file(file: str, url: str | None) -> str:
    if url is None:
        raise UsageError(f"{file} is taken for a file: say with --url which page it is, or write http:// before a URL")
    return typed_url(url) or url


def _in_file(path: Path) -> tuple[bytes, str]:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}; check the path") from error
    html = page_html(200, [("content-type", "text/html")], data, html_bytes_max=Config().fetch.html_bytes_max)
    return html or (b"", "utf-8")


async def _fetched(text: str, allow_private: bool) -> tuple[str, bytes, str]:
    address = typed_url(text)
    if address is None:
        raise UsageError(f"{text} is no http(s) URL")
    config = Config()
    sent = PageRequests.of(config.fetch, make_spec([address], config.crawl))
    private = frozenset((host_of(address),)) if allow_private else frozenset()
    with TemporaryDirectory() as spool:
        client = AiohttpClient(SystemClock(), Path(spool), connections_max=1, tls_verify=config.fetch.tls_verify)
        try:
            exchange = await client.exchange(HttpRequest(address, sent.headers, sent.limits, private))
            if isinstance(exchange, FetchFailure):
                raise _NotFetched(f"{address} was not fetched: {exchange.kind}, {exchange.detail}")
            data = b"".join(exchange.body.chunks())
            exchange.body.close()
        finally:
            await client.close()
    if exchange.status in REDIRECTS:
        targets = [canonicalize(target, address) or target for target in locations(exchange.headers)]
        if targets or exchange.status != CHOICES:
            raise _NotFetched(f"{address} redirects to {' and '.join(targets) or 'nowhere'}; try that")
    html = page_html(exchange.status, exchange.headers, data, html_bytes_max=config.fetch.html_bytes_max)
    if html is None:
        raise _NotFetched(f"{address} has no HTML to look into: status {exchange.status}")
    return address, *html


class _NotFetched(DhtcrawlError):
    """There is no page to try the rules on."""


def _lines(tried: Extracted, extracted: Extracted) -> Iterable[str]:
    """What was found on the page, of which only `extracted` is stored."""
    tries: dict[tuple[str, int], _Try] = defaultdict(lambda: _Try([], []))
    for finding in tried.findings:
        tries[finding.rule, finding.number].findings.append(finding)
    for reject in tried.rejects:
        if reject.number:
            tries[reject.rule, reject.number].rejects.append(reject)
    verdicts = {(record.rule, record.number): click.style("left out", fg="yellow") for record in tried.records}
    verdicts |= {(record.rule, record.number): click.style("record", fg="green") for record in extracted.records}
    for reject in extracted.rejects:
        if reject.number == 0:
            yield click.style(f"{reject.rule}: {_rejected(reject)}", fg="red")
    for rule, number in sorted(tries, key=itemgetter(1)):
        verdict = verdicts.get((rule, number)) or click.style("rejected", fg="red")
        yield f"{click.style(f'{rule} {number}', bold=True)}  {verdict}"
        yield from _record_lines(tries[rule, number])
    if extracted.follow is not None:
        links = printable(some(sorted(extracted.follow))) if extracted.follow else "no link of this page"
        yield f"follows {links}"
    yield f"{len(extracted.records)} records, {len(extracted.rejects)} rejects"


class _Try(NamedTuple):
    """What was found for one record, and what is rejected of it."""

    findings: list[Finding]
    rejects: list[Reject]


def _record_lines(tried: _Try) -> Iterable[str]:
    """A line a finding, with its reject, then those of what has no finding: of the record itself, and in lists."""
    rejects: dict[tuple[str, str], deque[Reject]] = defaultdict(deque)
    for reject in tried.rejects:
        rejects[reject.field, reject.reason].append(reject)
    names = [*(finding.field for finding in tried.findings), *(reject.field for reject in tried.rejects)]
    width = max(map(len, names))
    for finding in tried.findings:
        if finding.reason is None:
            value = printable(json.dumps(finding.value, ensure_ascii=False))
            shown = value if len(value) <= SHOWN_CHARS else value[:SHOWN_CHARS] + "…"
            shown = click.style(shown, dim=finding.value in (None, []))
        else:
            # Of nested records there are several with a field, in the order of their rejects.
            queue = rejects[finding.field, finding.reason]
            shown = click.style(_rejected(queue.popleft()) if queue else str(finding.reason), fg="yellow")
        where = f"{finding.selector or 'the record'}: {finding.elements}"
        yield f"  {finding.field:{width}}  {shown}  {click.style(f'({where})', dim=True)}"
    for reject in chain.from_iterable(rejects.values()):
        yield f"  {reject.field:{width}}  {click.style(_rejected(reject), fg='yellow')}"


def _rejected(reject: Reject) -> str:
    found = f" {reject.found!r}" if reject.found else ""
    return f"{reject.reason}{found}"
