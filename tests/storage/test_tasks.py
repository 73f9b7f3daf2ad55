"""A task's life, one transaction at a time."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from storage.stores import CRAWL, NODE, PLACE, SPEC, Store, link, page

from dhtcrawl.keyspace import host_key, url_key
from dhtcrawl.storage.store import keys, replicas, tasks
from dhtcrawl.storage.store.records import Place, State, merge, unpack
from dhtcrawl.storage.store.replicas import TaskReplica
from dhtcrawl.storage.store.tasks import Queued

A, B, C = "http://a.example/a", "http://a.example/b", "http://a.example/c"


def queue(store: Store, host: str = "a.example", limit: int = 100) -> list[Queued]:
    return store.run(lambda txn: tasks.host_queue(txn, CRAWL, host_key(host), limit))[0]


def marked(store: Store) -> list[bytes]:
    return store.run(lambda txn: tasks.unsettled(txn, CRAWL, 100))


# accept


def test_a_task_sent_twice_is_queued_once(store: Store) -> None:
    first = store.accept(link(A), link(B), link(A))
    assert (first.new, [task.url for task in first.queued], first.resend) == (2, [A, B], [])
    assert store.accept(link(A), link(A, depth=2))[:3] == ([], [], 0)
    assert [task.url for task in queue(store)] == [A, B]
    assert store.fsck().problems == []


def test_the_backups_get_each_task_of_a_batch_once_as_it_is_at_its_end(store: Store) -> None:
    store.accept(link(B, 3))
    accepted = store.accept(link(A, 3), link(B, 2), link(A, 1), link(B, 1), link(A, 2))
    assert [(key, task.depth) for key, task in accepted.changed] == [(SPEC.key_of(A), 1), (SPEC.key_of(B), 1)]
    assert [(task.url, task.depth) for task in queue(store)] == [(B, 1), (A, 1)]
    assert (accepted.new, store.fsck().problems) == (1, [])


def test_what_is_queued_is_what_was_sent(store: Store) -> None:
    store.accept(link(A, 3, "http://x.example/", hops=2, seed=True))
    assert queue(store) == [Queued(3, 1, SPEC.key_of(A), A, "http://x.example/", 2, True)]


def test_a_task_found_on_a_shorter_way_moves_ahead_and_keeps_its_place_in_time(store: Store) -> None:
    store.accept(link(A, 3), link(B, 2), link(C, 2))
    again = store.accept(link(C, 2, hops=9), link(A, 2, "http://near.example/", seed=True))
    moved = Queued(2, 1, SPEC.key_of(A), A, "http://near.example/", 0, True)
    assert again[:3] == ([moved], [], 0)
    assert queue(store) == [moved, *(found for found in queue(store) if found.key != moved.key)]
    assert [(task.url, task.depth) for task in queue(store)] == [(A, 2), (B, 2), (C, 2)]
    assert store.fsck().problems == []


def test_a_seed_stays_one_when_a_page_links_to_it(store: Store) -> None:
    store.accept(link(A, 1, seed=True))
    store.accept(link(A, 0))
    assert (store.task(A).seed, store.task(A).depth) == (True, 0)


@pytest.mark.parametrize("settled", [False, True])
def test_a_fetched_page_found_on_a_shorter_way_sends_its_links_again_when_depth_matters(
    store: Store, settled: bool
) -> None:
    store.accept(link(A, 3))
    store.fetched(page(A, 3))
    if settled:
        store.settle(A)
    again = store.accept(link(A, 1))
    assert again[:3] == ([], [SPEC.key_of(A)], 0)
    assert marked(store) == [SPEC.key_of(A)]
    assert (store.task(A).depth, queue(store)) == (1, [])
    assert store.task(A).state == (State.DONE if settled else State.FETCHED)
    assert store.fsck().problems == []
    store.settle(A)
    assert (marked(store), store.task(A).state, store.fsck().problems) == ([], State.DONE, [])
    assert store.accept(link(A, 1)).resend == []


def test_where_depth_does_not_matter_a_shorter_way_is_only_noted(store: Store) -> None:
    store.accept(link(A, 3))
    store.fetched(page(A, 3))
    store.settle(A)
    assert store.accept(link(A, 1), depth_matters=False)[:3] == ([], [], 0)
    assert (store.task(A).depth, marked(store)) == (1, [])


def test_a_dead_task_stays_dead_on_a_shorter_way(store: Store) -> None:
    store.accept(link(A, 3))
    store.kill(A)
    assert store.accept(link(A, 1))[:3] == ([], [], 0)
    assert (store.task(A).state, store.task(A).depth, marked(store)) == (State.DEAD, 1, [])


def test_a_task_that_died_beyond_a_depth_limit_is_opened_again_on_a_shorter_way(store: Store) -> None:
    store.accept(link(A, 3))
    store.kill(A, "depth")
    assert store.accept(link(A, 3))[:3] == ([], [], 0)
    assert store.task(A).state == State.DEAD
    accepted = store.accept(link(A, 2))
    assert [(task.depth, task.url) for task in accepted.queued] == [(2, A)]
    assert accepted.reopened == {"released_dead": 1, "released_skipped_depth": 1}
    task = store.task(A)
    assert (task.state, task.depth, task.gen, task.attempt, task.reason) == (State.PENDING, 2, 1, 0, "")
    assert (queue(store), store.fsck().problems) == (accepted.queued, [])


# fetched, settle, kill


def test_a_fetched_page_leaves_the_queue_and_waits_for_its_links(store: Store) -> None:
    store.accept(link(A))
    assert store.fetched(page(A, links=[B], title="é"), PLACE, attempt=2) == (False, False)
    assert (queue(store), marked(store)) == ([], [SPEC.key_of(A)])
    task = store.task(A)
    assert (task.state, task.attempt, task.place) == (State.FETCHED, 2, PLACE)
    found = store.run(lambda txn: tasks.get_page(txn, CRAWL, SPEC.key_of(A)))
    assert found == {**page(A).fields, "title": "é", "place": PLACE}
    value = store.engine.get(keys.key(keys.LINKS, CRAWL, SPEC.key_of(A)))
    assert value is not None
    assert tasks.link_keys_of(value, 20) == [SPEC.key_of(B)]


def test_a_page_fetched_twice_keeps_its_first_copy(store: Store) -> None:
    store.accept(link(A))
    store.fetched(page(A, links=[B], title="first"))
    before = dict(store.engine.scan(b"", b"\xff"))
    second = page(A, links=[C], title="second", skipped=[(B, "robots")])
    assert store.fetched(second, Place(NODE, "z", 5, 5), attempt=9) == (True, False)
    assert store.task(A).others == (NODE,)
    record = keys.TASK + CRAWL + SPEC.key_of(A)
    store.put(record, store.task(A).with_others(()).pack())
    # Its links are sent and its skips noted, for a crawl takes both for done once it has met them on a page.
    after = dict(store.engine.scan(b"", b"\xff"))
    skips = [key for key in after if key.startswith(keys.SKIPPED)]
    assert len(skips) == 1
    assert {key: value for key, value in after.items() if key not in skips} == before
    store.accept(link(B))
    store.settle(A)
    assert store.fetched(second)[0]
    assert (store.task(A).state, marked(store)) == (State.DONE, [])


def test_a_shorter_way_found_while_a_page_was_fetched_sends_its_links_again(store: Store) -> None:
    store.accept(link(A, 3))
    store.accept(link(A, 1))
    assert store.fetched(page(A, 3)) == (False, True)
    assert (store.task(A).depth, queue(store), store.fsck().problems) == (1, [], [])


def test_only_an_open_task_is_killed_and_its_reason_stays(store: Store) -> None:
    store.accept(link(A), link(B))
    assert store.kill(A, "robots", "disallowed")
    assert not store.kill(A, "failed")
    task = store.task(A)
    assert (task.state, task.reason, task.detail, task.attempt) == (State.DEAD, "robots", "disallowed", 1)
    store.fetched(page(B))
    assert not store.kill(B)
    store.settle(B)
    assert not store.kill(B)
    assert (store.task(B).state, store.task(B).reason) == (State.DONE, "")
    assert (queue(store), store.fsck().problems) == ([], [])


def test_the_outcome_of_a_task_to_which_a_member_gave_a_number_of_attempts_is_not_behind_what_it_said(
    store: Store,
) -> None:
    """Else a backup, which has the open record, opens the page again: I2 in a simulation with a bad member."""
    for url, end in ((A, lambda: store.fetched(page(A))), (B, lambda: store.kill(B))):
        store.accept(link(url))
        lie = store.task(url)._replace(attempt=7)
        swarm_record = TaskReplica(SPEC.key_of(url), lie)
        merge_in = partial(replicas.merge_in, crawl=CRAWL, copies=[swarm_record], orders=iter([9]), depth_matters=False)
        store.run(lambda txn: merge_in(txn, mine=lambda _: True, held=lambda _: False))  # noqa: B023
        end()
        ended = store.task(url)
        assert merge(ended, lie) == ended == merge(lie, ended)


def test_a_result_that_comes_late_counts_and_the_reason_is_forgotten(store: Store) -> None:
    store.accept(link(A))
    store.kill(A, "failed", "timeout")
    assert store.fetched(page(A)) == (False, False)
    assert (store.task(A).state, store.task(A).reason, store.task(A).detail) == (State.FETCHED, "", "")
    store.settle(A)
    assert (store.task(A).state, store.fsck().problems) == (State.DONE, [])


def test_a_link_that_is_skipped_keeps_its_first_reason(store: Store) -> None:
    store.skip((A, "depth"), (A, "robots"), ("mailto:é", "not-a-url"))
    store.skip((A, "nofollow"))
    found = [keys.suffix(key) for key in store.stored_keys()]
    assert sorted(found) == sorted([url_key(A), url_key("mailto:é")])
    assert b"depth" in (store.engine.get(keys.SKIPPED + CRAWL + url_key(A)) or b"")


def test_a_link_that_is_skipped_when_its_page_is_read_again_has_that_page(store: Store) -> None:
    store.accept(link(A))
    store.fetched(page(A))
    store.run(lambda txn: tasks.relink(txn, CRAWL, SPEC.key_of(A), b"", 1, [(B, "out-of-scope")]))
    assert unpack(store.engine.get(keys.SKIPPED + CRAWL + url_key(B)) or b"") == [B, "out-of-scope", A]


def test_a_page_is_not_done_whose_links_went_out_for_a_greater_depth_than_it_was_found_at_meanwhile(
    store: Store,
) -> None:
    store.accept(link(A, 4))
    store.fetched(page(A, 4))
    store.accept(link(A, 3))
    depth = store.task(A).depth  # its links go out again for this one, and meanwhile
    store.accept(link(A, 2))
    settle = partial(tasks.settle, crawl=CRAWL, key=SPEC.key_of(A), depth_matters=True)
    store.run(lambda txn: tasks.relink(txn, CRAWL, SPEC.key_of(A), b"", depth))
    assert store.run(settle) is None
    assert marked(store) == [SPEC.key_of(A)], "a restart sends them"
    store.run(lambda txn: tasks.relink(txn, CRAWL, SPEC.key_of(A), b"", 2))
    assert store.run(settle) == store.task(A)
    assert (marked(store), store.fsck().problems) == ([], [])


# queues


def test_a_queue_is_by_depth_and_then_by_the_order_of_discovery(store: Store) -> None:
    urls = [f"http://a.example/{i}" for i in range(6)]
    for url, depth in zip(urls, (2, 1, 65_538, 1, 256, 255), strict=True):
        store.accept(link(url, depth))
    assert [task.url for task in queue(store)] == [urls[i] for i in (1, 3, 0, 5, 4, 2)]
    assert store.fsck().problems == []
    # Beyond what the key can hold, moving ahead must still find the old entry.
    store.accept(link(urls[2], 65_537))
    store.accept(link(urls[2], 3))
    assert [task.url for task in queue(store)] == [urls[i] for i in (1, 3, 0, 2, 5, 4)]
    assert store.fsck().problems == []


def test_a_queue_says_whether_that_was_all(store: Store) -> None:
    store.accept(link(A), link(B), link("http://b.example/"))
    read = partial(tasks.host_queue, crawl=CRAWL, host=host_key("a.example"))
    answers = [store.run(partial(read, limit=limit)) for limit in (1, 2, 3)]
    assert [(len(found), complete) for found, complete in answers] == [(1, False), (2, True), (2, True)]


@given(sizes=st.lists(st.integers(0, 3), max_size=8), limit=st.integers(1, 4))
def test_walking_the_hosts_with_work_meets_each_once(sizes: list[int], limit: int) -> None:
    store = Store()
    other = bytes(15) + b"\xff"
    for host, size in enumerate(sizes):
        store.accept(*(link(f"http://h{host}.example/{i}") for i in range(size)))
    store.run(lambda txn: tasks.accept(txn, other, [link(A)], store.orders, depth_matters=False))
    walked: list[tuple[bytes, str]] = []
    cursor: bytes | None = b""
    for _ in range(len(sizes) + 1):
        if cursor is None:
            break
        found, cursor = store.run(partial(tasks.hosts_with_work, crawl=CRAWL, cursor=cursor, limit=limit))
        assert len(found) <= limit
        walked += found
    assert cursor is None
    names = [f"h{host}.example" for host, size in enumerate(sizes) if size]
    assert walked == sorted((host_key(name), name) for name in names)


def test_a_host_key_of_ones_does_not_stop_the_walk(store: Store) -> None:
    for host in (b"\xfe" * 20, b"\xfe" * 19 + b"\xff", b"\xff" * 20):
        url = f"http://{host.hex()[-3:]}.example/"
        store.accept(link(url))
        (found,) = queue(store, f"{host.hex()[-3:]}.example")
        store.put(keys.queue_key(CRAWL, host_key(f"{host.hex()[-3:]}.example"), 1, found.order, found.key), None)
        store.put(keys.queue_key(CRAWL, host, 1, found.order, found.key), b"")
    hosts, cursor = store.run(lambda txn: tasks.hosts_with_work(txn, CRAWL, b"", 2))
    assert [host[-1:] for host, _ in hosts] == [b"\xfe", b"\xff"]
    assert cursor is not None
    more, end = store.run(lambda txn: tasks.hosts_with_work(txn, CRAWL, cursor, 2))
    assert ([host for host, _ in more], end) == ([b"\xff" * 20], None)


def test_what_is_unsettled_can_be_read_in_pages(store: Store) -> None:
    urls = [f"http://a.example/{i}" for i in range(5)]
    for url in urls:
        store.accept(link(url))
        store.fetched(page(url))
    pages, cursor = list[list[bytes]](), b""
    for _ in range(4):
        pages.append(store.run(partial(tasks.unsettled, crawl=CRAWL, limit=2, cursor=cursor)))
        cursor = (pages[-1] or [b""])[-1]
    assert [len(found) for found in pages] == [2, 2, 1, 0]
    assert [key for found in pages for key in found] == sorted(map(SPEC.key_of, urls))


def test_crawls_do_not_see_one_another(store: Store) -> None:
    other = bytes(16)
    store.accept(link(A))
    store.run(lambda txn: tasks.accept(txn, other, [link(A, 7)], store.orders, depth_matters=False))
    store.fetched(page(A))
    theirs, _ = store.run(lambda txn: tasks.host_queue(txn, other, host_key("a.example"), 9))
    assert [(task.url, task.depth) for task in theirs] == [(A, 7)]
    task = store.run(lambda txn: tasks.get_task(txn, other, SPEC.key_of(A)))
    assert task is not None
    assert task.state == State.PENDING
