"""The outbox: done means that every link was acknowledged."""

from __future__ import annotations

import itertools

from harness.memory import entries
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.crawl.outbox import AckedFilter, Outbox
from dhtcrawl.storage.store.tasks import Link


def link(name: str, depth: int = 1) -> Link:
    return Link(name.encode(), f"http://a/{name}", depth, "http://a/")


def test_a_page_without_links_is_done_at_once() -> None:
    outbox = Outbox(depth_matters=False)
    assert outbox.add(b"page", [])
    assert not outbox.waits(b"page")


def test_a_page_is_done_when_its_last_link_is_acked() -> None:
    outbox = Outbox(depth_matters=False)
    links = [link("a"), link("b")]
    assert not outbox.add(b"page", links)
    assert outbox.take(10) == links
    assert outbox.acked(links[:1]) == []
    assert outbox.waits(b"page")
    assert outbox.acked(links[1:]) == [b"page"]
    assert not outbox.waits(b"page")


def test_a_link_under_way_is_waited_for_and_not_sent_twice() -> None:
    outbox = Outbox(depth_matters=False)
    outbox.add(b"first", [link("a")])
    outbox.add(b"second", [link("a")])
    assert outbox.take(10) == [link("a")]
    assert (outbox.take(9), len(outbox)) == ([], 1)
    assert outbox.acked([link("a")]) == [b"first", b"second"]


def test_of_a_link_that_is_under_way_the_key_is_enough() -> None:
    outbox = Outbox(depth_matters=False)
    outbox.add(b"first", [link("a")])
    under_way, sends = outbox.not_acked([link("a").key, link("b").key], 1)
    assert (under_way, sends) == ([link("a").key], [link("b").key])
    assert not outbox.add(b"second", [link("b")], under_way)
    assert outbox.take(10) == [link("a"), link("b")], "it is sent once"
    assert outbox.acked([link("a")]) == [b"first"]
    assert outbox.add(b"third", [], under_way), "its owner has it by now"
    assert outbox.acked([link("b")]) == [b"second"]


def test_an_acked_link_is_not_sent_again() -> None:
    outbox = Outbox(depth_matters=False)
    outbox.add(b"first", [link("a", 3)])
    outbox.acked(outbox.take(1))
    assert outbox.add(b"second", [link("a", 1)])
    assert outbox.take(9) == []


def test_what_all_its_keepers_lost_is_sent_again() -> None:
    outbox = Outbox(depth_matters=False, acked_max=4)  # two generations: one key in each
    for name in ("a", "b", "c"):
        outbox.add(b"first", [link(name)])
        outbox.acked(outbox.take(1))
    assert outbox.add(b"second", [link("a"), link("c")])
    outbox.forget(link("a").key)
    outbox.forget(link("c").key)
    outbox.forget(link("never sent").key)
    assert not outbox.add(b"second", [link("a"), link("b"), link("c")])
    assert outbox.take(9) == [link("a"), link("c")]


def test_where_depth_matters_a_shorter_way_is_sent_again() -> None:
    outbox = Outbox(depth_matters=True)
    outbox.add(b"first", [link("a", 3)])
    outbox.acked(outbox.take(1))
    assert not outbox.add(b"shorter", [link("a", 2)])
    assert outbox.take(1) == [link("a", 2)]
    assert outbox.acked([link("a", 2)]) == [b"shorter"]
    assert outbox.add(b"longer", [link("a", 2)])


def test_the_ack_of_a_longer_way_does_not_stand_for_a_shorter_one_under_way() -> None:
    outbox = Outbox(depth_matters=True)
    outbox.add(b"first", [link("a", 3)])
    outbox.add(b"second", [link("a", 2)])
    assert outbox.take(10) == [link("a", 3), link("a", 2)]
    assert outbox.acked([link("a", 3)]) == []
    assert outbox.acked([link("a", 2)]) == [b"first", b"second"]


def test_a_longer_way_that_is_acked_later_does_not_undo_a_shorter_one() -> None:
    known = AckedFilter(10)
    known.add(b"a", 1)
    known.add(b"a", 3)
    assert known.covers(b"a", 1)
    known.add(b"a", 0)
    assert known.covers(b"a", 0)


def test_take_gives_links_in_order_and_no_more_than_asked_for() -> None:
    outbox = Outbox(depth_matters=False)
    links = [link(name) for name in "abc"]
    outbox.add(b"page", links)
    assert [outbox.take(2), outbox.take(2), outbox.take(2)] == [links[:2], links[2:], []]


def test_a_page_sent_again_waits_for_both_of_its_sendings() -> None:
    outbox = Outbox(depth_matters=True)
    outbox.add(b"page", [link("a", 2)])
    outbox.take(1)
    outbox.add(b"page", [link("a", 1), link("b", 1)])
    assert outbox.acked([link("a", 2)]) == []
    assert outbox.acked([link("a", 1)]) == []
    assert outbox.acked([link("b", 1)]) == [b"page"]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)), max_size=300), st.integers(2, 20))
def test_the_filter_is_bounded_and_never_says_more_than_was_acked(adds: list[tuple[int, int]], size_max: int) -> None:
    known = AckedFilter(size_max)
    least: dict[bytes, int] = {}
    for number, depth in adds:
        key = b"%d" % number
        known.add(key, depth)
        least[key] = min(depth, least.get(key, depth))
        assert entries(known) <= size_max
        assert known.covers(key, None), "what was added last is remembered"
    for key, depth in itertools.product(least, range(6)):
        assert not known.covers(key, depth) or least[key] <= depth


PAGES = st.lists(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 3)), max_size=6), max_size=25)


@given(
    pages=PAGES,
    depth_matters=st.booleans(),
    acked_max=st.sampled_from([2, 6, 1000]),
    steps=st.lists(st.tuples(st.booleans(), st.integers(1, 5)), max_size=60),
)
def test_every_page_is_done_once_and_only_after_all_of_its_links_were_acked(
    pages: list[list[tuple[int, int]]], depth_matters: bool, acked_max: int, steps: list[tuple[bool, int]]
) -> None:
    outbox = Outbox(depth_matters=depth_matters, acked_max=acked_max)
    coming = {
        b"page%d" % number: [link(str(n), d) for n, d in dict(links).items()] for number, links in enumerate(pages)
    }
    todo = list(coming)
    under_way: list[list[Link]] = []
    owner: dict[bytes, int] = {}  # what the owner knows: the least depth it was told
    done: list[bytes] = []

    def step(add: bool, count: int) -> None:
        if add:
            for page in todo[:count]:
                if outbox.add(page, coming[page]):
                    done.append(page)
            del todo[:count]
        elif under_way and count % 2:
            acked = under_way.pop(0)
            for one in acked:
                owner[one.key] = min(one.depth, owner.get(one.key, one.depth))
            done.extend(outbox.acked(acked))
        elif sent := outbox.take(count):
            under_way.append(sent)
        for page in done:
            for wanted in coming[page]:
                assert wanted.key in owner
                assert not depth_matters or owner[wanted.key] <= wanted.depth
        assert len(done) == len(set(done))
        assert all(not outbox.waits(page) for page in done)

    for add, count in steps:
        step(add, count)
    while todo or under_way or len(outbox):
        step(True, 5)
        step(False, 4)
        step(False, 1)
    assert sorted(done) == sorted(coming)
