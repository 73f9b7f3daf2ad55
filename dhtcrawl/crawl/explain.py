"""Explains a URL's state in a crawl from the store: the answer of `dhtcrawl why` and of a running node.

Runs in a transaction and writes nothing. The answer is made of JSON's types:

    url, crawl (hex), key (hex), state    always; state: pending, fetched, dead, done, skipped, unknown
    depth, referrer, seed, redirects      of a task: what led to it, and over how many redirects in a row
    found_at                              when the page was fetched that led to it, if this store has that page
    attempts_made                         of a dead task, how many requests were made for it, if any; 1 where its
                                          origin was given up before
    crawl_ended                           how the crawl ended, if it has
    limit_reached                         the limit of pages, if this crawl is at it
    node_type                             of a pending page of results, the type of nodes that may fetch it, if not all
    searches                              of a page of results: task, engine, site and page of the first few
    reason, detail                        of a dead task
    status, final_url, fetched_at, error, archive ("FILE:OFFSET")   of a task with a page
    links                                 of a task with a page, how many links on it are followed
    page_at                               of a page that another node has: that node's id in hex
    reason                                of a link that was not followed
    in_scope, reason                      of a URL that was never found
"""

from __future__ import annotations

from typing import Any, Final

from dhtcrawl.crawl.scope import Scope
from dhtcrawl.keyspace import url_key
from dhtcrawl.searches import named
from dhtcrawl.storage.store import keys, tasks
from dhtcrawl.storage.store.crawl_record import CrawlRecord
from dhtcrawl.storage.store.records import SkipReason, State, Task, unpack
from dhtcrawl.storage.store.txn import Txn
from dhtcrawl.url import has_host, host_of

SEARCHES_TOLD: Final = 5
# Why a task dies before it is asked for, at least this time.
_WITHOUT_A_REQUEST: Final = frozenset(
    (SkipReason.ROBOTS, SkipReason.OUT_OF_SCOPE, SkipReason.EXCLUDED, SkipReason.PRIVATE_ADDRESS)
)


def explain(txn: Txn, crawl: CrawlRecord, url: str) -> dict[str, Any]:
    """The state of a canonical URL in one crawl, as this store has it.

    Raises:
        StorageError: a record cannot be read.
    """
    key = crawl.spec.key_of(url)
    answer: dict[str, Any] = {"url": url, "crawl": crawl.crawl_id.hex(), "key": key.hex()}
    if crawl.ended:
        answer["crawl_ended"] = crawl.ended
    task = tasks.get_task(txn, crawl.crawl_id, key)
    if task is not None:
        answer |= {"state": task.state.name.lower(), "depth": task.depth, "referrer": task.referrer or None}
        answer |= {"seed": task.seed, "redirects": task.hops, **_found_at(txn, crawl, task), **_searches(crawl, url)}
        if task.state == State.DEAD:
            answer |= {"reason": task.reason, "detail": task.detail, **_attempts_made(task)}
        if task.state == State.PENDING and not crawl.ended:
            answer |= _limit_reached(txn, crawl) | _node_type(crawl, url)
        page = tasks.get_page(txn, crawl.crawl_id, key)
        if page is not None:
            place = page.pop("place")
            answer |= {name: page[name] for name in ("status", "final_url", "fetched_at", "error")}
            answer["archive"] = f"{place.file}:{place.offset}"
            answer["links"] = len(txn.get(keys.LINKS + crawl.crawl_id + key) or b"") // len(key)
        elif task.place is not None:
            answer["page_at"] = task.place.node
        return answer
    skipped = txn.get(keys.SKIPPED + crawl.crawl_id + url_key(url))
    if skipped is not None:
        return answer | {"state": "skipped", "reason": unpack(skipped)[1]}
    refusal = Scope([*crawl.spec.seeds, *crawl.aliases], crawl.spec.settings, searches=crawl.spec.searches).refuses(url)
    return answer | {"state": "unknown", "in_scope": refusal is None, "reason": refusal}


def _attempts_made(task: Task) -> dict[str, int]:
    made = task.attempt + (task.reason not in _WITHOUT_A_REQUEST)
    return {"attempts_made": made} if made else {}


def _found_at(txn: Txn, crawl: CrawlRecord, task: Task) -> dict[str, Any]:
    if not has_host(task.referrer):
        return {}
    page = tasks.get_page(txn, crawl.crawl_id, crawl.spec.key_of(task.referrer))
    return {} if page is None else {"found_at": page["fetched_at"]}


def _searches(crawl: CrawlRecord, url: str) -> dict[str, Any]:
    """What a page of results is for; the first few of them."""
    found = crawl.spec.searches.of(url)
    return {"searches": [named(search) for search in found[:SEARCHES_TOLD]]} if found else {}


def _node_type(crawl: CrawlRecord, url: str) -> dict[str, Any]:
    wanted = crawl.spec.types.get(host_of(url))
    return {} if wanted is None else {"node_type": wanted}


def _limit_reached(txn: Txn, crawl: CrawlRecord) -> dict[str, Any]:
    """The page limit of a crawl of one node that is at it; of a crawl of a swarm its standing says it."""
    pages_max = crawl.settings.max_pages
    if not pages_max or crawl.participants:
        return {}
    stored = txn.get(keys.key(keys.COUNTERS, crawl.crawl_id))
    pages = 0 if stored is None else unpack(stored).get("pages", 0)
    return {"limit_reached": pages_max} if pages >= pages_max else {}
