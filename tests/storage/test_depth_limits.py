"""Which pages owe their links when a crawl's depth limit is another one."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from storage.stores import CRAWL, SPEC, Store, link, page

from dhtcrawl.storage.store import depth_limits, keys, tasks
from dhtcrawl.storage.store.depth_limits import owes_links
from dhtcrawl.storage.store.records import DEPTH_LIMIT, unpack

A, B, C, D = (f"http://a.example/{name}" for name in "abcd")
LIMITS, DEPTHS = st.integers(-1, 5), st.integers(0, 5)


@pytest.mark.parametrize(
    ("depth", "sent_depth", "sent_within", "limit", "owes"),
    [
        (2, 2, 1, 2, True),  # withheld, and within the limit now
        (2, 2, 1, -1, True),
        (2, 2, 1, 1, False),
        (2, 2, 2, 3, False),  # sent
        (1, 1, 0, 1, True),
        (3, 3, 1, 2, False),  # beyond both
        (3, 3, -1, 3, True),  # of a crawl without a limit
        (3, 3, -1, 2, False),
        (3, 3, -1, -1, False),
        (2, 3, 3, 3, True),  # nearer since
        (2, 3, 3, -1, False),
    ],
)
def test_a_page_owes_the_links_that_were_withheld_or_may_be_nearer(
    depth: int, sent_depth: int, sent_within: int, limit: int, owes: bool
) -> None:
    assert owes_links(depth, sent_depth, sent_within, limit) is owes


@given(depth=DEPTHS, sent_depth=DEPTHS, sent_within=LIMITS, limit=LIMITS)
def test_once_its_links_are_sent_a_page_owes_none(depth: int, sent_depth: int, sent_within: int, limit: int) -> None:
    assert not owes_links(depth, depth, limit, limit)
    if owes_links(depth, sent_depth, sent_within, limit):
        assert limit < 0 or depth <= limit, "its links lie within the limit"


def look(store: Store, limit: int, begun: int = 1, pages_max: int = 2) -> list[bytes]:
    """Mark the pages that owe links; those that are marked."""
    owe, owing = partial(depth_limits.owe_links, crawl=CRAWL, begun=begun, limit=limit, pages_max=pages_max), 0
    cursor: bytes | None = b""
    while cursor is not None:
        step = store.run(partial(owe, cursor=cursor))
        owing, cursor = owing + step.owing, step.cursor
    marked = [key[-20:] for key in store.stored_keys() if key.startswith(keys.FETCHED + CRAWL)]
    assert owing == len(marked)
    return sorted(marked)


def some_pages(store: Store) -> None:
    """A at the seed's depth; B at the limit it was sent within, C at the one that the crawl began with, D deeper."""
    kept: tuple[tuple[str, int, dict[str, Any]], ...] = (
        (A, 0, {DEPTH_LIMIT: 1}), (B, 2, {DEPTH_LIMIT: 2}), (C, 1, {}), (D, 3, {DEPTH_LIMIT: 2}),
    )  # fmt: skip
    for url, depth, fields in kept:
        store.accept(link(url, depth))
        store.fetched(page(url, depth, **fields))
        store.settle(url)


@pytest.mark.parametrize(("limit", "owing"), [(1, []), (2, [C]), (3, [B, C]), (4, [B, C, D]), (-1, [B, C, D]), (0, [])])
def test_the_pages_that_owe_links_are_marked_in_steps(store: Store, limit: int, owing: list[str]) -> None:
    some_pages(store)
    assert look(store, limit) == sorted(map(SPEC.key_of, owing))
    assert store.fsck().problems == []


def test_a_page_whose_links_went_out_within_the_new_limit_is_not_looked_for_again(store: Store) -> None:
    some_pages(store)
    look(store, -1)
    for url, depth in ((B, 2), (C, 1), (D, 3)):
        found = partial(tasks.relink, crawl=CRAWL, key=SPEC.key_of(url), link_keys=SPEC.key_of(A), depth=depth)
        assert store.run(partial(found, depth_limit=-1)) == (1, {})
        store.settle(url)
    assert look(store, -1) == []
    kept = unpack(store.engine.get(keys.PAGE + CRAWL + SPEC.key_of(B)) or b"")
    assert (kept["depth"], kept[DEPTH_LIMIT]) == (2, -1)
    assert look(store, 2, begun=1) == sorted(map(SPEC.key_of, [C])), "without a limit no shorter way was told"


@pytest.mark.parametrize(
    ("status", "limit", "owes"), [(200, 2, False), (301, 2, True), (301, 1, False), (200, 3, True)]
)
def test_a_redirect_leads_no_further_than_itself(status: int, limit: int, owes: bool, store: Store) -> None:
    store.accept(link(A, 2))
    store.fetched(page(A, 2, status=status))  # without a limit, so that a shorter way may not have been told
    store.settle(A)
    assert bool(look(store, limit, begun=-1)) is owes
