"""What the next round gathers: what keeps a crawl from being over, whom it wakes, and which pages wait for what."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

from dhtcrawl.crawl import next_round as gathering
from dhtcrawl.crawl.copy_barrier import CopyBarrier
from dhtcrawl.crawl.next_round import NextRound
from dhtcrawl.crawl.outbox import Outbox
from dhtcrawl.crawl.resend_queue import ResendQueue
from dhtcrawl.crawl.rounds import Fetched, Kill, Relinked, Round
from dhtcrawl.fetch.http import Body
from dhtcrawl.storage.store.ownership import EVERYTHING
from dhtcrawl.storage.store.tasks import FetchedPage, Link

PAGE, OTHER = b"page", b"other"
A, B = (Link(name, f"http://a/{name.decode()}", 1, "http://a/") for name in (b"a", b"b"))
KILL = Kill("a", PAGE, "failed", "", 0)
RELINKED = Relinked(b"", 0, [])


def made(*, further: int = 0, aliases: tuple[str, ...] = ()) -> NextRound:
    return NextRound(Outbox(depth_matters=False), CopyBarrier(further), aliases, ResendQueue())


def arrived(key: bytes | None, body: Body | None = None) -> Fetched:
    item: Any = None
    page = None if key is None else FetchedPage(key, 1, {}, b"", [])
    return Fetched("a", item, body or Body(b"0123456789"), page)


def taken(following: NextRound, *, alone: bool = False) -> Round:
    round_ = following.take([], {}, EVERYTHING, alone=alone)
    assert round_ is not None
    return round_


def nothing_to_write(following: NextRound) -> bool:
    return following.take([], {}, EVERYTHING) is None


@pytest.mark.parametrize(
    "hand_in",
    [
        lambda following: following.archive(arrived(None)),
        lambda following: following.kill(KILL),
        lambda following: following.done_with({PAGE: None}),
        lambda following: following.page(arrived(PAGE), [], "http://b/"),
    ],
    ids=["a response", "a kill", "a page that is done", "an alias"],
)
def test_a_crawl_is_not_over_while_anything_waits_for_a_round(hand_in: Callable[[NextRound], None]) -> None:
    following = made()
    assert following.empty
    hand_in(following)
    assert not following.empty
    taken(following)
    assert following.empty


def test_a_crawl_is_not_over_while_a_link_is_under_way() -> None:
    following = made()
    following.page(arrived(PAGE), [A], None)
    taken(following)
    assert not following.empty
    following.acked([A])
    taken(following)
    assert following.empty


@pytest.mark.parametrize(
    "hand_in",
    [
        lambda following: following.page(arrived(PAGE), [], None),
        lambda following: following.archive(arrived(None)),
        lambda following: following.kill(KILL),
        lambda following: following.owe("a", 3.0),
        lambda following: following.acked([A]),
        lambda following: following.put_back([A]),
        lambda following: following.send_again(PAGE, [], RELINKED),
        lambda following: following.forget_resend(PAGE),
    ],
    ids=["page", "archive", "kill", "owe", "acked", "put_back", "send_again", "forget_resend"],
)
def test_the_writer_hears_of_everything_that_is_handed_in(hand_in: Callable[[NextRound], None]) -> None:
    following, heard = made(), list[None]()
    following.handed_in.listen(lambda: heard.append(None))
    hand_in(following)
    assert heard


def test_the_writer_hears_that_a_page_was_copied() -> None:
    following, heard = made(further=1), list[None]()
    following.copying.hold([PAGE])
    following.handed_in.listen(lambda: heard.append(None))
    following.copied(PAGE, ())
    assert heard


def test_fetchers_wait_for_bodies_in_memory_and_not_for_those_in_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "BACKLOG_BYTES_MAX", 20)
    following = made()
    following.page(arrived(PAGE, Body(file=io.BytesIO(bytes(20)), size=20)), [], None)
    following.page(arrived(OTHER), [], None)
    assert not following.overfull
    following.archive(arrived(None))
    assert following.overfull
    taken(following)
    assert not following.overfull


def test_fetchers_wait_while_too_many_links_are_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "BACKLOG_LINKS_MAX", 2)
    following = made()
    following.page(arrived(PAGE), [A], None)
    assert not following.overfull
    following.page(arrived(OTHER), [B], None)
    assert following.overfull
    following.acked([A])
    assert not following.overfull


def test_all_aliases_are_written_with_the_first_round_after_a_new_one() -> None:
    following = made(aliases=("http://b/",))
    following.page(arrived(PAGE), [], None)
    assert taken(following).aliases is None
    following.page(arrived(OTHER), [], "http://c/")
    assert taken(following).aliases == ["http://b/", "http://c/"]
    following.kill(KILL)
    assert taken(following).aliases is None


def test_what_a_host_is_owed_is_written_though_nothing_else_came() -> None:
    following = made()
    following.owe("a", 3.0)
    following.owe("a", 0.0)
    assert taken(following).owed == {"a": 0.0}
    assert nothing_to_write(following)


def test_a_page_whose_links_are_to_go_out_again_is_not_done_by_acks_of_those_before() -> None:
    following = made()
    following.page(arrived(PAGE), [A], None)
    taken(following)
    following.resend([PAGE])
    assert (following.resends.take(), following.resends.pending) == (PAGE, 1)
    following.acked([A])
    assert nothing_to_write(following), "its mark in the store stays until its links went out again"
    following.send_again(PAGE, [B], RELINKED)
    assert nothing_to_write(following), "a link is under way"
    following.acked([B])
    round_ = taken(following)
    assert (round_.done, round_.relinked) == ([PAGE], {PAGE: RELINKED})


def test_a_page_that_is_about_to_be_done_waits_if_its_links_are_to_go_out_again() -> None:
    following = made()
    following.done_with({PAGE: None, OTHER: None})
    following.resend([PAGE])
    assert taken(following).done == [OTHER]


def test_a_resend_of_a_page_that_is_elsewhere_holds_up_nothing() -> None:
    following = made()
    following.resend([PAGE])
    following.forget_resend(PAGE)
    following.done_with({PAGE: None})
    assert taken(following).done == [PAGE]


def test_a_link_that_its_owner_lost_goes_out_again_with_its_page() -> None:
    following = made()
    following.page(arrived(PAGE), [A], None)
    taken(following)
    following.acked([A])
    following.lost(PAGE, [A.key])
    assert following.resends.take() == PAGE
    assert nothing_to_write(following), "it is not done"
    following.outbox.take(9)
    following.send_again(PAGE, [A], RELINKED)
    assert following.outbox.take(9) == [A], "it is not taken for known"


def test_a_page_that_is_sent_again_twice_before_a_round_is_copied_once_more() -> None:
    following = made(further=1)
    following.send_again(PAGE, [], RELINKED)
    following.send_again(PAGE, [], RELINKED)
    round_ = taken(following)
    assert (list(round_.relinked), round_.done) == ([PAGE], []), "it waits for its copy"
    following.copied(PAGE, (b"node",))
    round_ = taken(following)
    assert (round_.done, round_.copied) == ([PAGE], {PAGE: (b"node",)})


@pytest.mark.parametrize("alone", [True, False])
def test_only_a_node_by_itself_ends_a_page_in_the_round_that_writes_it(alone: bool) -> None:
    following = made()
    following.page(arrived(PAGE), [], None)
    assert taken(following, alone=alone).settled == ({PAGE} if alone else frozenset())


def test_a_page_with_a_link_under_way_or_links_to_send_again_is_not_ended_in_the_round_that_writes_it() -> None:
    following = made()
    following.page(arrived(PAGE), [A], None)
    following.page(arrived(OTHER), [], None)
    following.resend([OTHER])
    assert taken(following, alone=True).settled == frozenset()


def test_a_page_is_not_done_before_it_is_written_though_its_links_are_acked() -> None:
    following = made()
    following.page(arrived(PAGE), [A], None)
    following.acked([A])
    round_ = taken(following)
    assert round_.done == []
    following.written_without_links(round_.fetched, set())
    assert taken(following).done == [PAGE]


def test_a_page_that_is_done_elsewhere_is_open_no_longer_unless_its_links_go_out_again() -> None:
    following = made()
    for page in (PAGE, OTHER, b"ours"):
        following.page(arrived(page), [], None)
    following.resend([OTHER])
    following.over_elsewhere([PAGE, OTHER, b"ours"], {b"ours"})
    assert list(following.open_pages) == [OTHER, b"ours"]
