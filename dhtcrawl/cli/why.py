"""`dhtcrawl why URL`: where a URL stands, and why."""

from __future__ import annotations

import json
from typing import Any

import click

from dhtcrawl.cli.options import store_options
from dhtcrawl.cli.runtime import find_data_dir
from dhtcrawl.cli.store import chosen, opened
from dhtcrawl.crawl.scope import Scope
from dhtcrawl.errors import Exit, UsageError
from dhtcrawl.keyspace import url_key
from dhtcrawl.spec import typed_url
from dhtcrawl.storage import catalog, keys, tasks
from dhtcrawl.storage.catalog import CrawlRecord
from dhtcrawl.storage.committer import Txn
from dhtcrawl.storage.records import State, unpack


@click.command("why")
@click.argument("url")
@click.option("--crawl", "crawl_prefix", metavar="CRAWL", help="Only this crawl, by the start of its id.")
@store_options
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(url: str, crawl_prefix: str | None, out: str | None, data_dir: str | None, as_json: bool) -> int:
    """Say where URL stands in a crawl, and why: fetched, queued, skipped or never seen."""
    canonical = typed_url(url)
    if canonical is None:
        raise UsageError(f"{url!r} is no web address; use something like https://example.org/")
    with opened(find_data_dir(out, data_dir)) as (_, txn):
        answers = [_explain(txn, crawl, canonical) for crawl in chosen(catalog.crawls(txn), crawl_prefix)]
    if as_json:
        click.echo(json.dumps(answers, ensure_ascii=False))
    else:
        click.echo("\n\n".join(map(_in_words, answers)) or "no crawl in this store")
    return Exit.COMPLETE


def _explain(txn: Txn, crawl: CrawlRecord, url: str) -> dict[str, Any]:
    key = crawl.spec.key_of(url)
    answer: dict[str, Any] = {"url": url, "crawl": crawl.crawl_id.hex(), "key": key.hex()}
    task = tasks.get_task(txn, crawl.crawl_id, key)
    if task is not None:
        answer |= {"state": task.state.name.lower(), "depth": task.depth, "referrer": task.referrer or None}
        if task.state == State.DEAD:
            answer |= {"reason": task.reason, "detail": task.detail}
        page = tasks.get_page(txn, crawl.crawl_id, key)
        if page is not None:
            place = page.pop("place")
            answer |= {name: page[name] for name in ("status", "final_url", "fetched_at", "error")}
            answer["archive"] = f"{place.file}:{place.offset}"
        return answer
    skipped = txn.get(keys.SKIPPED + crawl.crawl_id + url_key(url))
    if skipped is not None:
        return answer | {"state": "skipped", "reason": unpack(skipped)[1]}
    refusal = Scope([*crawl.spec.seeds, *crawl.aliases], crawl.spec.settings).refuses(url)
    return answer | {"state": "unknown", "in_scope": refusal is None, "reason": refusal}


_WORDS = {
    "pending": "is queued, and will be fetched when its host's turn comes",
    "leased": "is being fetched",
    "fetched": "was fetched; some of its links are not acknowledged yet",
    "done": "was fetched, and all its links are known",
    "dead": "was given up",
    "skipped": "was found, but not followed",
    "unknown": "was never found: no page fetched so far links to it",
}


def _in_words(answer: dict[str, Any]) -> str:
    shown = {k: v for k, v in answer.items() if k not in ("url", "state", "crawl") and v is not None}
    if shown.get("in_scope") is True:
        shown["in_scope"] = "yes: it would be followed"
    elif shown.get("in_scope") is False:
        shown["in_scope"] = "no: it would be skipped"
    width = max(map(len, shown))
    lines = [f"  {name.replace('_', ' ').ljust(width)}  {value}" for name, value in shown.items()]
    return "\n".join(
        [f"{answer['url']} {_WORDS[answer['state']]}", f"  {'crawl'.ljust(width)}  {answer['crawl'][:12]}", *lines]
    )
