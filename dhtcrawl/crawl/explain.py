"""Explains a URL's state in a crawl from the store: the answer of `dhtcrawl why` and of a running node.

Runs in a transaction and writes nothing. The answer is made of JSON's types:

    url, crawl (hex), key (hex), state    always; state: pending, fetched, dead, done, skipped, unknown
    depth, referrer                       of a task
    reason, detail                        of a dead task
    status, final_url, fetched_at, error, archive ("FILE:OFFSET")   of a task with a page
    reason                                of a link that was not followed
    in_scope, reason                      of a URL that was never found
"""

from __future__ import annotations

from typing import Any

from dhtcrawl.crawl.scope import Scope
from dhtcrawl.keyspace import url_key
from dhtcrawl.storage.store import keys, tasks
from dhtcrawl.storage.store.crawl_record import CrawlRecord
from dhtcrawl.storage.store.records import State, unpack
from dhtcrawl.storage.store.txn import Txn


def explain(txn: Txn, crawl: CrawlRecord, url: str) -> dict[str, Any]:
    """The state of a canonical URL in one crawl, as this store has it.

    Raises:
        StorageError: a record cannot be read.
    """
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
