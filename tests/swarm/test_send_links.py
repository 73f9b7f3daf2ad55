"""Links reach their owners, or come back."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable

import pytest
from storage.stores import CRAWL

from dhtcrawl.keyspace import placement, url_key
from dhtcrawl.rpc.membership.view import View
from dhtcrawl.rpc.peers.port import UNKNOWN_CRAWL
from dhtcrawl.rpc.tasks.events import Failure, FailureKind
from dhtcrawl.rpc.tasks.messages import Ack, Answer, Code, Request, StoreTask
from dhtcrawl.rpc.tasks.rows import PeerRow
from dhtcrawl.storage.store.tasks import Link
from dhtcrawl.swarm.records import send_links
from dhtcrawl.swarm.records.send_links import LinkSender
from dhtcrawl.swarm.records.silent_nodes import PASSED_S, SILENT_S
from dhtcrawl.swarm.records.wire import link_bytes
from dhtcrawl.url import URL_CHARS_MAX

from .fake_peers import GONE, FakePeers, node, view_of

THREE = view_of([0, 1, 2])


def link(number: int, padding: int = 0) -> Link:
    url = f"http://a.example/{number}/" + "x" * padding
    return Link(url_key(url), url, 1, "http://a.example/")


def links_of(owner: int, count: int, view: View = THREE) -> list[Link]:
    found = (link(number) for number in range(10_000))
    theirs = [each for each in found if view.owner(placement(each.key)).id == node(owner)]  # type: ignore[union-attr]
    return theirs[:count]


class Desk:
    """A courier and whom it reports to; what comes back is sent again, as a corridor does."""

    def __init__(self, peers: FakePeers, group: asyncio.TaskGroup, *, again: bool = True) -> None:
        self.acked: list[Link] = []
        self.back: list[Link] = []
        self.moved: list[PeerRow] = []
        self.told: list[bytes] = []
        self.again = again
        self.courier = LinkSender(
            peers,
            CRAWL,
            group,
            acked=self.acked.extend,
            put_back=self._put_back,
            moved=self.moved.append,
            tell_crawl=self._tell,
        )

    def _put_back(self, links: list[Link]) -> None:
        self.back += links
        if self.again:
            self.courier.send(links)

    async def _tell(self, to: bytes) -> None:
        self.told.append(to)


async def send(
    links: list[Link], peers: FakePeers, *, again: bool = False, after: Callable[[Desk], None] = lambda desk: None
) -> Desk:
    async with asyncio.TaskGroup() as group:
        desk = Desk(peers, group, again=again)
        desk.courier.send(links)
        assert desk.courier.busy
        await asyncio.sleep(0.1)
        after(desk)
        await asyncio.sleep(5.0)
        assert not desk.courier.busy
        return desk


def codes(*each: Code) -> Callable[[Request], Answer]:
    return lambda message: Ack(bytes(each))


async def test_each_link_goes_to_its_owner_and_is_acked() -> None:
    peers = FakePeers(THREE)
    links = [*links_of(1, 5), *links_of(2, 5)]
    desk = await send(links, peers)
    assert sorted(desk.acked) == sorted(links)
    assert [len(message.links) for _, message in peers.said if isinstance(message, StoreTask)] == [5, 5]
    assert desk.back == []


async def test_what_its_owner_knew_is_as_good_as_accepted() -> None:
    peers, links = FakePeers(THREE), links_of(1, 2)
    peers.handlers[node(1)] = codes(Code.KNOWN, Code.ACCEPTED)
    assert (await send(links, peers)).acked == links


async def test_what_was_not_taken_comes_back_and_the_rest_is_acked() -> None:
    peers, links = FakePeers(THREE), links_of(1, 4)
    peers.handlers[node(1)] = lambda _: Ack(
        bytes([Code.ACCEPTED, Code.FULL, Code.FAILED, Code.MOVED]), b"\0", (PeerRow(node(9), "10.0.0.9", 9),)
    )
    desk = await send(links, peers)
    assert (desk.acked, desk.back) == (links[:1], links[1:])
    assert desk.moved == [PeerRow(node(9), "10.0.0.9", 9)]


async def test_links_for_somebody_who_is_gone_go_to_the_next_owner() -> None:
    peers, links = FakePeers(THREE), links_of(1, 3)
    peers.handlers[node(1)] = lambda _: GONE

    def view_changes(desk: Desk) -> None:
        peers.view = view_of([0, 2])

    desk = await send(links, peers, again=True, after=view_changes)
    assert sorted(desk.acked) == sorted(links)
    assert peers.to(2) or peers.to(0)


async def test_who_did_not_answer_is_named_to_the_next_so_that_it_does_not_send_us_back() -> None:
    peers, links = FakePeers(THREE), links_of(1, 1)
    peers.handlers[node(1)] = lambda _: GONE

    def view_changes(desk: Desk) -> None:
        peers.view = view_of([2])

    await send(links, peers, again=True, after=view_changes)
    tried = [message.tried for message in peers.to(2) if isinstance(message, StoreTask)]
    assert tried == [(node(1),)]


async def test_while_nobody_is_active_links_wait_for_somebody() -> None:
    peers, links = FakePeers(view_of([], joining=[0, 1])), links_of(1, 2)

    def somebody_is(desk: Desk) -> None:
        assert peers.said == []
        peers.view = THREE

    assert (await send(links, peers, again=True, after=somebody_is)).acked == links


async def test_a_node_that_does_not_know_the_crawl_is_told_of_it() -> None:
    peers, links = FakePeers(THREE), links_of(1, 1)
    peers.handlers[node(1)] = lambda _: Failure(FailureKind.REFUSED, f"{UNKNOWN_CRAWL}: {CRAWL.hex()}")
    desk = await send(links, peers)
    assert desk.told == [node(1)]
    assert desk.back == links


async def test_links_too_long_for_one_frame_go_in_several() -> None:
    view = view_of([1])
    peers = FakePeers(view)
    links = [link(number, URL_CHARS_MAX - 100) for number in range(300)]
    desk = await send(links, peers)
    assert sorted(desk.acked) == sorted(links)
    assert len(peers.said) > 2
    assert desk.back == []


async def test_links_that_find_no_room_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    links = links_of(1, 4)
    held_bytes_max = sum(map(link_bytes, links[:3]))
    monkeypatch.setattr(send_links, "LIMITS", dataclasses.replace(send_links.LIMITS, held_bytes_max=held_bytes_max))
    async with asyncio.TaskGroup() as group:
        desk = Desk(FakePeers(THREE), group)
        assert desk.courier.send(links) == links[3:]
        await asyncio.sleep(1.0)
        assert desk.acked == links[:3]
        assert desk.courier.send(links[3:]) == []


async def test_links_of_an_owner_that_this_node_alone_does_not_reach_go_to_the_next_node(
    caplog: pytest.LogCaptureFixture,
) -> None:
    peers, links = FakePeers(THREE), links_of(1, 4)
    peers.handlers[node(1)] = lambda _: GONE
    async with asyncio.TaskGroup() as group:
        desk = Desk(peers, group)
        desk.courier.send(links[:3])
        await asyncio.sleep(SILENT_S - 1.0)
        assert (desk.acked, peers.to(2), caplog.messages) == ([], [], [])
        await asyncio.sleep(2.0)
        assert sorted(desk.acked) == sorted(links[:3])
        assert [message.tried for message in peers.to(2) if isinstance(message, StoreTask)] == [(node(1),)]
        assert peers.to(0) == [], "what it took into custody itself, it could not give to the owner"
        (told,) = caplog.messages
        assert node(1).hex()[:12] in told
        # After a while the owner is asked again.
        peers.handlers.clear()
        await asyncio.sleep(PASSED_S)
        asked = len(peers.to(1))
        desk.courier.send(links[3:])
        await asyncio.sleep(1.0)
        assert desk.acked[3:] == links[3:]
        assert (len(peers.to(1)), len(peers.to(2))) == (asked + 1, 1)


async def test_links_of_other_owners_go_to_these_while_one_does_not_answer() -> None:
    peers, silent, others = FakePeers(THREE), links_of(1, 1), links_of(2, 2)
    peers.handlers[node(1)] = lambda _: GONE
    async with asyncio.TaskGroup() as group:
        desk = Desk(peers, group)
        desk.courier.send(silent)
        await asyncio.sleep(SILENT_S + 1.0)
        asked = len(peers.to(2))
        desk.courier.send(others)
        await asyncio.sleep(1.0)
        assert desk.acked == [*silent, *others]
        told = [message for message in peers.to(2)[asked:] if isinstance(message, StoreTask)]
        assert [(len(message.links), message.tried) for message in told] == [(2, ())]


@pytest.mark.parametrize("failure", [GONE, Failure(FailureKind.REFUSED, "storage: StorageFull")])
async def test_a_node_that_does_not_answer_or_refuses_for_another_reason_is_not_told_of_the_crawl(
    failure: Failure,
) -> None:
    peers, links = FakePeers(THREE), links_of(1, 1)
    peers.handlers[node(1)] = lambda _: failure
    desk = await send(links, peers)
    assert (desk.told, desk.back) == ([], links)


async def test_links_of_the_only_other_node_wait_for_it_however_long_it_does_not_answer() -> None:
    view = view_of([0, 1])
    peers, links = FakePeers(view), links_of(1, 2, view)
    peers.handlers[node(1)] = lambda _: GONE
    async with asyncio.TaskGroup() as group:
        desk = Desk(peers, group)
        desk.courier.send(links)
        await asyncio.sleep(SILENT_S + PASSED_S)
        assert (desk.acked, peers.to(0)) == ([], [])
        peers.handlers.clear()
        await asyncio.sleep(1.0)
        assert sorted(desk.acked) == sorted(links)


async def test_an_owner_that_refuses_has_answered() -> None:
    peers, links = FakePeers(THREE), links_of(1, 1)
    peers.handlers[node(1)] = lambda _: Failure(FailureKind.REFUSED, "storage: StorageFull")
    async with asyncio.TaskGroup() as group:
        desk = Desk(peers, group)
        desk.courier.send(links)
        await asyncio.sleep(2 * SILENT_S)
        assert peers.to(2) == []
        peers.handlers.clear()
