"""Records are safe once enough backups have them, and every copy goes on until then (I1, I6)."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from storage.stores import CRAWL

from dhtcrawl.keyspace import placement
from dhtcrawl.rpc.membership.view import View
from dhtcrawl.rpc.tasks.messages import Ack, Answer, Code, DeleteBackup, Request, StoreBackup
from dhtcrawl.storage.store.records import Place, State
from dhtcrawl.storage.store.replicas import TaskReplica
from dhtcrawl.swarm.records import replicate, wire
from dhtcrawl.swarm.records.replicate import Replicator
from dhtcrawl.swarm.records.silent_nodes import SAID_AGAIN_S, SILENT_S
from dhtcrawl.swarm.records.wire import record_bytes

from .fake_peers import GONE, FakePeers, node, taken, view_of
from .sync_swarm import copy

ANOTHER = bytes(16)
FOUR = view_of([0, 1, 2, 3])


class Office:
    """A replicator and what it said."""

    def __init__(self, peers: FakePeers, group: asyncio.TaskGroup, acks: int = 2) -> None:
        self.peers = peers
        self.safe: list[str] = []
        self.merged: list[TaskReplica] = []
        self.compared: list[bytes] = []
        self.answers = True
        self.replicator = Replicator(peers, group, replicas=3, acks=acks, further=self._further, compare=self._compare)

    async def _compare(self, node: bytes) -> bool:
        await asyncio.sleep(0.1)
        self.compared.append(node)
        return self.answers

    async def _further(self, crawl: bytes, copies: list[TaskReplica], told_by: bytes) -> None:
        await asyncio.sleep(0.01)
        self.safe.append("merged")
        self.merged += copies

    def keep(self, *copies: TaskReplica, crawl: bytes = CRAWL, over: bool = False, name: str = "safe") -> None:
        self.replicator.keep(crawl, list(copies), lambda: self.safe.append(name), over=over)

    def become(self, view: View) -> None:
        self.peers.view = view
        self.replicator.view_changed()


@asynccontextmanager
async def an_office(view: View = FOUR, **handlers: Callable[[Request], Any]) -> AsyncIterator[Office]:
    async with asyncio.TaskGroup() as group:
        peers = FakePeers(view)
        peers.handlers = {node(int(name[1:])): handler for name, handler in handlers.items()}
        yield Office(peers, group)


def gone(_: Request) -> Any:
    return GONE


async def test_a_record_is_safe_when_two_of_three_backups_have_it() -> None:
    async with an_office(n3=gone) as office:
        office.keep(copy(1))
        assert office.replicator.unsafe(CRAWL, copy(1).key)
        await asyncio.sleep(0.5)
        assert office.safe == ["safe"]
        assert not office.replicator.unsafe(CRAWL, copy(1).key)
        assert office.replicator.busy  # the third is to have it, too
        office.become(view_of([0, 1, 2]))


async def test_a_backup_that_this_node_alone_does_not_reach_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    async with an_office(n3=gone) as office:
        office.keep(copy(1))
        await asyncio.sleep(SILENT_S - 1.0)
        assert caplog.messages == []
        await asyncio.sleep(3 * SILENT_S)
        (told,) = caplog.messages
        assert node(3).hex()[:12] in told
        # One that is no member any more is not missed.
        caplog.clear()
        office.become(view_of([0, 1, 2]))
        await asyncio.sleep(0.5)
        office.keep(copy(2))
        await asyncio.sleep(2 * SAID_AGAIN_S)
        assert caplog.messages == []


async def test_a_record_that_only_one_backup_has_is_not_safe() -> None:
    async with an_office(n2=gone, n3=gone) as office:
        office.keep(copy(1))
        await asyncio.sleep(5.0)
        assert office.safe == []
        office.become(view_of([0, 1]))  # "fewer, because the swarm is smaller"
        await asyncio.sleep(0.5)
        assert office.safe == ["safe"]


async def test_a_node_by_itself_is_safe_at_once() -> None:
    async with an_office(view_of([0])) as office:
        office.keep(copy(1))
        assert office.safe == ["safe"]
        assert not office.replicator.busy


async def test_nothing_to_keep_is_safe_at_once() -> None:
    async with an_office() as office:
        office.keep()
        assert office.safe == ["safe"]


async def test_a_batch_is_safe_when_its_last_record_is() -> None:
    asked: list[int] = []

    def late(message: Request) -> Answer:
        assert isinstance(message, StoreBackup)
        asked.append(len(message.records))
        first = Code.ACCEPTED if len(asked) > 3 else Code.FAILED
        return Ack(bytes([first] + [Code.ACCEPTED] * (message.items - 1)))

    async with an_office(view_of([0, 1]), n1=late) as office:
        office.keep(*(copy(n) for n in range(5)))
        await asyncio.sleep(0.3)
        assert office.safe == []
        await asyncio.sleep(5.0)
        assert office.safe == ["safe"]
    assert asked[0] == 5
    assert asked[1:] == [1, 1, 1], "only what was not taken goes again"


async def test_a_node_that_is_joining_has_to_have_it_too() -> None:
    async with an_office(view_of([0, 1, 2], joining=[4]), n4=gone) as office:
        office.keep(copy(1))
        await asyncio.sleep(2.0)
        assert office.safe == []
        office.become(view_of([0, 1, 2]))
        await asyncio.sleep(1.0)
        assert office.safe == ["safe"]


async def test_a_node_that_has_joined_meanwhile_has_to_have_it_all_the_same() -> None:
    answers: list[Any] = [GONE] * 10

    def slow(message: Request) -> Any:
        return answers.pop() if answers else taken(message)

    async with an_office(view_of([0, 1, 2], joining=[4]), n4=slow) as office:
        office.keep(copy(1), over=True)
        await asyncio.sleep(1.0)
        office.become(view_of([0, 1, 2, 4]))
        await asyncio.sleep(0.5)
        assert office.safe == []  # two of three backups have it, but the key may be the fourth's by now
        await asyncio.sleep(2.0)
        assert office.safe == ["safe"]


async def test_a_node_that_has_joined_and_gone_again_is_not_waited_for() -> None:
    async with an_office(view_of([0, 1, 2], joining=[4]), n4=gone) as office:
        office.keep(copy(1))
        await asyncio.sleep(1.0)
        office.become(view_of([0, 1, 2, 4]))
        await asyncio.sleep(1.0)
        assert office.safe == []
        office.become(view_of([0, 1, 2]))
        assert office.safe == ["safe"]
        await asyncio.sleep(1.0)
        assert not office.replicator.busy


async def test_records_turn_to_the_new_backups_when_the_view_changes() -> None:
    async with an_office(n1=gone, n2=gone, n3=gone) as office:
        office.keep(copy(1))
        await asyncio.sleep(1.0)
        office.become(view_of([0, 4, 5, 6]))
        await asyncio.sleep(1.0)
        assert office.safe == ["safe"]
        assert not office.replicator.busy


async def test_who_waits_for_a_record_that_is_under_way_hears_when_it_is_safe() -> None:
    async with an_office() as office:
        assert not office.replicator.when_kept(CRAWL, copy(1).key, lambda: None)
        office.keep(copy(1))
        assert office.replicator.when_kept(CRAWL, copy(1).key, lambda: office.safe.append("heard"))
        await asyncio.sleep(1.0)
        assert office.safe == ["heard", "safe"]


async def test_what_a_backup_knows_better_is_merged_before_the_record_counts_as_safe() -> None:
    done = copy(1, state=State.DONE, place=Place("ab" * 20, "a.warc.gz", 0, 9))

    def knows(message: Request) -> Answer:
        assert isinstance(message, StoreBackup)
        return Ack(bytes(message.items), records=(wire.record_of(done),))

    async with an_office(view_of([0, 1]), n1=knows) as office:
        office.keep(copy(1))
    assert office.safe == ["merged", "safe"]
    assert office.merged == [done]


async def test_a_tombstone_whose_record_is_not_there_is_sent_whole() -> None:
    done = copy(1, state=State.DONE, place=Place(node(0).hex(), "a.warc.gz", 0, 9))

    def lacks(message: Request) -> Answer:
        if isinstance(message, DeleteBackup):
            return Ack.all(Code.FAILED, message.items)
        return taken(message)

    async with an_office(view_of([0, 1]), n1=lacks) as office:
        office.keep(done, over=True)
    assert [type(message) for message in office.peers.to(1)] == [DeleteBackup, StoreBackup]
    assert office.safe == ["safe"]


async def test_the_node_that_has_the_page_is_told_what_becomes_of_it() -> None:
    far = view_of(range(16))
    backups = {member.id for member in far.closest(copy(1).key, 4)}
    holder = next(n for n in range(1, 16) if node(n) not in backups)
    done = copy(1, state=State.DONE, place=Place(node(holder).hex(), "a.warc.gz", 0, 9))

    async with an_office(far) as office:
        office.keep(done)
    assert office.peers.to(holder)


async def test_a_node_that_is_back_is_sent_the_records_of_its_pages_unless_it_keeps_them_anyway() -> None:
    far = view_of(range(16))
    backups = [member.id for member in far.closest(copy(1).key, 4)]
    holder = next(n for n in range(1, 16) if node(n) not in backups)
    backup = next(n for n in range(1, 16) if node(n) in backups)
    afar, near = (copy(1, state=State.DONE, place=Place(node(n).hex(), "a.warc.gz", 0, 9)) for n in (holder, backup))

    async with an_office(far) as office:
        assert await office.replicator.remind(CRAWL, [near, copy(2)]) == set()
        assert not office.peers.said
        assert await office.replicator.remind(CRAWL, [afar]) == set()
        assert not office.replicator.busy_with(CRAWL)
        assert [peer for peer, _ in office.peers.said] == [node(holder)], "backups are not sent it again"
        office.peers.handlers = {node(holder): gone}
        assert await office.replicator.remind(CRAWL, [afar]) == {node(holder).hex()}
        office.peers.handlers = {node(holder): lambda _: Ack(bytes([Code.FAILED]))}
        assert await office.replicator.remind(CRAWL, [afar]) == {node(holder).hex()}
        office.become(view_of(n for n in range(16) if n != holder))
        assert await office.replicator.remind(CRAWL, [afar]) == set(), "it is told when it is back"


async def test_a_node_that_is_back_has_been_told_once_it_has_all_records_and_what_it_knows_better_is_merged() -> None:
    far = view_of(range(16))
    numbers = [number for number in range(200) if node(15) not in [m.id for m in far.closest(copy(number).key, 4)]][:2]
    place = Place(node(15).hex(), "a.warc.gz", 0, 9)
    afar = [copy(number, state=State.DONE, place=place) for number in numbers]
    better = afar[0]._replace(task=afar[0].task._replace(depth=0))
    async with an_office(far) as office:
        for codes, untold in (
            ([Code.ACCEPTED, Code.FAILED], {node(15).hex()}),
            ([Code.FULL, Code.KNOWN], {node(15).hex()}),
            ([Code.ACCEPTED, Code.KNOWN], set()),
        ):
            reply = Ack(bytes(codes), records=(wire.record_of(better),))
            office.peers.handlers = {node(15): lambda _, reply=reply: reply}  # type: ignore[misc]
            office.merged.clear()
            assert await office.replicator.remind(CRAWL, afar) == untold
            assert office.merged == [better]
        assert office.replicator.records_sent == 3 * len(afar)


async def test_of_tombstones_those_are_sent_whole_whose_record_is_not_there() -> None:
    done = [copy(n, state=State.DONE, place=Place(node(0).hex(), "a.warc.gz", 0, 9)) for n in range(3)]

    def lacks(message: Request) -> Answer:
        if isinstance(message, DeleteBackup):
            return Ack(bytes([Code.KNOWN, Code.FAILED, Code.ACCEPTED]))
        return taken(message)

    async with an_office(view_of([0, 1]), n1=lacks) as office:
        office.keep(*done, over=True)
    [ends, whole] = office.peers.to(1)
    assert isinstance(ends, DeleteBackup)
    assert isinstance(whole, StoreBackup)
    assert [row.key for row in whole.records] == [done[1].key]
    assert (office.safe, office.replicator.busy) == (["safe"], False)


async def test_a_backup_that_has_only_a_part_of_the_records_is_sent_the_rest_again() -> None:
    full = [True]

    def has_room_for_one(message: Request) -> Answer:
        assert isinstance(message, StoreBackup)
        return Ack(bytes([Code.KNOWN, Code.FULL])) if full and full.pop() else taken(message)

    async with an_office(view_of([0, 1]), n1=has_room_for_one) as office:
        office.keep(copy(1), copy(2))
    first, again = (message for message in office.peers.to(1) if isinstance(message, StoreBackup))
    assert [row.key for row in first.records] == [copy(1).key, copy(2).key]
    assert [row.key for row in again.records] == [copy(2).key]
    assert (office.safe, office.replicator.busy) == (["safe"], False)


async def test_one_crawl_does_not_keep_another_from_its_end() -> None:
    async with an_office(view_of([0, 1]), n1=gone) as office:
        office.keep(copy(1), crawl=ANOTHER, name="another")
        await asyncio.sleep(0.5)
        office.keep(copy(2))
        assert office.replicator.busy_with(CRAWL)
        office.peers.handlers.clear()
        office.peers.handlers[node(1)] = lambda m: GONE if getattr(m, "crawl", b"") == ANOTHER else taken(m)
        await asyncio.sleep(5.0)
        assert not office.replicator.busy_with(CRAWL)
        assert office.replicator.busy_with(ANOTHER)
        office.become(view_of([0]))
        await asyncio.sleep(5.0)
        assert not office.replicator.busy_with(ANOTHER)
    assert sorted(office.safe) == ["another", "safe"]


async def test_records_of_two_crawls_never_share_a_frame() -> None:
    async with an_office() as office:
        for number in range(10):
            office.keep(copy(number), crawl=CRAWL if number % 2 else ANOTHER)
    assert len(office.safe) == 10
    assert len(office.peers.to(1)) == 2


async def test_long_records_go_in_several_frames() -> None:
    async with an_office() as office:
        office.keep(*(copy(n, referrer="http://a.example/" + "x" * 8_000) for n in range(100)))
    assert office.safe == ["safe"]
    assert len(office.peers.to(1)) > 2


async def test_more_records_than_a_queue_holds_become_safe_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    long = [copy(n, referrer="http://a.example/" + "x" * 900) for n in range(100)]
    held_bytes_max = 10 * record_bytes(long[0])
    monkeypatch.setattr(replicate, "LIMITS", dataclasses.replace(replicate.LIMITS, held_bytes_max=held_bytes_max))
    async with an_office(n2=gone, n3=gone) as office:
        for number, each in enumerate(long):
            office.keep(each, name=str(number))
        await asyncio.sleep(1.0)
        assert max(len(message.records) for message in office.peers.to(1) if isinstance(message, StoreBackup)) <= 10
        assert office.safe == [], "only one of three backups answers"
        office.become(view_of([0, 1]))
        await asyncio.sleep(10.0)
        assert sorted(map(int, office.safe)) == list(range(100))
        assert not office.replicator.busy


async def test_a_slow_backup_holds_up_nobody_for_long_and_is_compared_with_once_it_has_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    long = [
        each for n in range(400) if placement((each := copy(n, referrer="http://a.example/" + "x" * 900)).key)[0] < 16
    ]
    assert len(long) > 12
    monkeypatch.setattr(
        replicate, "LIMITS", dataclasses.replace(replicate.LIMITS, held_bytes_max=4 * record_bytes(long[0]))
    )
    slow = True

    def answer(message: Request) -> Any:
        return GONE if slow else taken(message)

    async with an_office(view_of(range(6)), n3=answer) as office:
        for number, each in enumerate(long):
            office.keep(each, name=str(number))
            await asyncio.sleep(0.1)
        await asyncio.sleep(3.0)
        assert len(office.safe) == len(long)
        assert office.peers.to(4), "the next nearest has what the slow one has no room for"
        assert office.compared == []
        assert office.replicator.busy_with(CRAWL)
        slow, office.answers = False, False
        await asyncio.sleep(120.0)
        assert set(office.compared) == {node(3)}
        assert 10 <= len(office.compared) <= 20, "it is asked ever more seldom"
        assert office.replicator.busy_with(CRAWL), "it does not answer yet"
        office.answers = True
        await asyncio.sleep(replicate.COMPARE_PAUSE_S_MAX + 1.0)
        assert not office.replicator.busy_with(CRAWL)
        assert not office.replicator.busy


async def test_backups_are_told_with_the_next_records_what_has_become_safe() -> None:
    """The news goes to those that have acknowledged the record, once, and not before two of them have."""
    async with an_office() as office:
        office.keep(copy(1))
        await asyncio.sleep(0.5)
        office.keep(copy(2))
        office.keep(copy(3), over=True)
        await asyncio.sleep(0.5)
        office.keep(copy(4), crawl=ANOTHER)
        await asyncio.sleep(0.5)
        for number in (1, 2, 3):
            said = [message for message in office.peers.to(number) if isinstance(message, StoreBackup | DeleteBackup)]
            assert [message.safe for message in said if message.crawl == CRAWL][:3] == [b"", copy(1).key, copy(2).key]
            assert said[-1].safe == b"", "it is of another crawl"


async def test_what_only_one_backup_has_is_told_to_none() -> None:
    async with an_office(n2=gone, n3=gone) as office:
        office.keep(copy(1))
        await asyncio.sleep(0.5)
        office.keep(copy(2))
        await asyncio.sleep(5.0)
        assert not any(message.safe for message in office.peers.to(1) if isinstance(message, StoreBackup))
        office.become(view_of([0]))
