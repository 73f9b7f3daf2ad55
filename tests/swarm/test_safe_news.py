"""Backups hear what has become safe beside other records, and what waits for that is bounded."""

from __future__ import annotations

from dhtcrawl.rpc.tasks.rows import ITEMS_MAX
from dhtcrawl.swarm.records.safe_news import KEYS_MAX, PAIRS_MAX, SafeNews

from .fake_peers import node

CRAWL, ANOTHER = bytes(16), b"b" * 16


def key(number: int) -> bytes:
    return number.to_bytes(20, "big")


def test_a_key_is_told_once_to_each_node_and_by_crawl() -> None:
    news = SafeNews()
    news.add(node(1), CRAWL, [key(1)])
    news.add(node(2), CRAWL, [key(1)])
    news.add(node(1), ANOTHER, [key(2)])
    assert news.take(node(1), CRAWL) == key(1)
    assert news.take(node(1), CRAWL) == b""
    assert news.take(node(1), ANOTHER) == key(2)
    assert news.take(node(2), CRAWL) == key(1)
    assert news.take(node(3), CRAWL) == b""


def test_a_message_has_so_many_the_rest_waits_for_the_next_and_beyond_a_bound_nothing_waits() -> None:
    news = SafeNews()
    for number in range(KEYS_MAX + 1):
        news.add(node(1), CRAWL, [key(number)])
    told = b""
    while part := news.take(node(1), CRAWL):
        assert len(part) <= ITEMS_MAX * 20
        told += part
    assert told == b"".join(map(key, range(KEYS_MAX)))


def test_nodes_and_crawls_that_hear_nothing_any_more_are_forgotten() -> None:
    news = SafeNews()
    for number in range(PAIRS_MAX + 1):
        news.add(node(1), number.to_bytes(16, "big"), [key(1)])
    assert news.take(node(1), bytes(16)) == b""
    assert news.take(node(1), PAIRS_MAX.to_bytes(16, "big")) == key(1)
