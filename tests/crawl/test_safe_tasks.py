"""Which links need no look into the store: those to tasks that are safe, by the claim of now and at their depth."""

from __future__ import annotations

from dhtcrawl.crawl.safe_tasks import SafeTasks
from dhtcrawl.keyspace import url_key
from dhtcrawl.storage.store.known_depths import DepthTable
from dhtcrawl.storage.store.tasks import Link

URL = "http://a.example/page"
CRAWL, OTHER = b"c" * 16, b"d" * 16


def link(depth: int, url: str = URL) -> Link:
    return Link(url_key(url), url, depth, "")


def test_a_link_to_a_safe_task_is_known_unless_it_is_nearer_or_of_another_crawl() -> None:
    table = DepthTable()
    safe, others = SafeTasks(table, CRAWL), SafeTasks(table, OTHER)
    safe.add([link(2)])
    nearer, another = link(1), link(2, "http://a.example/another")
    assert safe.unknown([link(2), nearer, link(3), another]) == [nearer, another]
    assert others.unknown([link(2)]) == [link(2)]


def test_what_is_safe_is_forgotten_when_the_node_owns_other_keys_and_does_not_come_back_with_them() -> None:
    safe = SafeTasks(DepthTable(), CRAWL)
    safe.claimed("all")
    safe.add([link(2)])
    era = safe.era
    safe.claimed("all")
    assert (safe.era, safe.unknown([link(2)])) == (era, []), "the same keys"
    for claim in ("half", "all"):
        safe.claimed(claim)
        assert safe.unknown([link(2)]) == [link(2)]
        assert safe.era > era
        era = safe.era
