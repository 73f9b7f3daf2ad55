"""What a node answers to links and copies: only an owner takes, whoever is asked again says the same (I1, I6, I7)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from harness.bench import Bench
from storage.stores import CRAWL

from dhtcrawl.config import CrawlSettings
from dhtcrawl.keyspace import TaskKeys, placement, url_key
from dhtcrawl.rpc.membership.view import Member, MemberState, View
from dhtcrawl.rpc.tasks.messages import Ack, Code, DeleteBackup, Refused, Reply, Request, StoreBackup, StoreTask, encode
from dhtcrawl.rpc.tasks.signals import Hello
from dhtcrawl.spec import make_spec
from dhtcrawl.storage.store import catalog, keys
from dhtcrawl.storage.store.crawl_record import CrawlRecord
from dhtcrawl.storage.store.ownership import EVERYTHING, OwnershipSnapshot
from dhtcrawl.storage.store.records import Place, State, pack, unpack_task
from dhtcrawl.storage.store.replicas import End, Merged, TaskReplica
from dhtcrawl.storage.store.tasks import Link
from dhtcrawl.swarm.records import wire
from dhtcrawl.swarm.records.doubts import AGAIN_S, CrawlKnowledge, Doubts
from dhtcrawl.swarm.records.end_trust import BURST, SETTLED_S
from dhtcrawl.swarm.records.inbox import Inbox
from dhtcrawl.swarm.records.merger import Merger
from dhtcrawl.swarm.records.patience import GAP_S, PATIENCE_S
from swarm.fake_peers import node, view_of
from swarm.sync_swarm import copy

HELLO = Hello(node(1), 1, "active", ())
DEAD: Any = {"state": State.DEAD, "reason": "failed"}
DONE: Any = {"state": State.DONE, "place": Place("ab" * 20, "a.warc.gz", 0, 9)}


class FakeRun:
    keys = TaskKeys()
    depth_matters = False
    lends = False
    joins = False  # a node does

    def __init__(self, state_of: Callable[[bytes], State | None]) -> None:
        self.own: set[bytes] = set()
        self.given: dict[bytes, bytes] = {}  # of these, by task key the node
        self.assignments: Any = SimpleNamespace(ownership=self)
        self.state_of = state_of
        self.intake: Any = self
        self.taken: list[Link] = []
        self.known: list[bytes] = []
        self.over: list[bytes] = []
        self.changes: list[Merged] = []
        self.states: list[State | None] = []  # what the store said when we heard of it

    async def accept(self, links: list[Link]) -> frozenset[bytes]:
        new = frozenset(link.key for link in links if link not in self.taken)
        self.taken += links
        return new

    def merged(self, merged: Merged) -> None:
        self.changes.append(merged)

    def snapshot(self, task_keys: Iterable[bytes] | None = None, /) -> OwnershipSnapshot:
        return EVERYTHING

    def owned(self, keys: Iterable[bytes]) -> list[bytes]:
        return [key for key in keys if key in self.own]

    def may_end(self, key: bytes, node: bytes) -> bool:
        return self.given.get(key) == node

    def heard(self, found: Sequence[TaskReplica]) -> None:
        self.states += [self.state_of(each.key) for each in found]

    def buried(self, ends: Sequence[End]) -> None:
        self.over += [end.key for end in ends]

    def told_on(self, keys: Iterable[bytes]) -> frozenset[bytes]:
        return frozenset(self.owned(keys)) if self.joins else frozenset()

    def known_to_owner(self, keys: Sequence[bytes]) -> None:
        self.known += keys


class InboxBench(Bench):
    def __init__(self, group: asyncio.TaskGroup, view: View) -> None:
        super().__init__(view)

        def state_of(key: bytes) -> State | None:
            value = self.engine.get(keys.TASK + CRAWL + key)
            return None if value is None else unpack_task(value).state

        self.run: FakeRun | None = FakeRun(state_of)
        self.unknown: set[str] = set()
        self.named_there: set[str] = set()  # by the sender's record
        self.beyond: set[bytes] = set()
        self.known_there: set[bytes] = set()  # what the sender's record reaches
        self.caught_up: list[tuple[bytes, bytes]] = []
        self.awake = True
        self.merger = Merger(
            self.committer, itertools.count(1), lambda crawl: self.run, self.peers, self.clock.monotonic
        )
        self.doubts = Doubts(
            CrawlKnowledge(lambda crawl, links: self.strays(links), self._took_part, self._catch_up),
            self.clock.monotonic,
            group,
        )
        self.inbox = Inbox(
            self.peers,
            self.registry,
            group,
            self.merger,
            refresh=lambda asker, message: _refuse(),
            doubts=self.doubts,
            awake=lambda: self.awake,
        )
        assert not self.inbox.owning, "it does not know yet what it owns"
        self.inbox.owning = True

    def strays(self, links: Sequence[Link | None]) -> list[Link]:
        return [link for link in links if link is not None and link.key in self.beyond]

    def _took_part(self, crawl: bytes, node: str) -> bool:
        return node not in self.unknown

    async def _catch_up(self, asker: bytes, crawl: bytes) -> bool:
        self.caught_up.append((asker, crawl))
        self.beyond -= self.known_there
        self.unknown -= self.named_there
        return True

    async def ask(self, message: Request, hello: Hello = HELLO) -> Reply:
        reply = self.inbox.handle(hello, message)
        return await reply if isinstance(reply, asyncio.Future) else reply

    async def codes(self, message: Request, hello: Hello = HELLO) -> list[int]:
        reply = await self.ask(message, hello)
        assert isinstance(reply, Ack)
        return list(reply.codes)


async def _refuse() -> Refused:
    return Refused("no")


@asynccontextmanager
async def a_world(view: View | None = None) -> AsyncIterator[InboxBench]:
    async with asyncio.TaskGroup() as group:
        yield InboxBench(group, view or view_of([0, 1, 2]))


def link_of(owner: int, view: View) -> Link:
    urls = (copy(number).task.url for number in range(1_000))
    keyed = ((url_key(url), url) for url in urls)
    return next(Link(k, u, 1, "") for k, u in keyed if view.owner(placement(k)).id == node(owner))  # type: ignore[union-attr]


def store(*links: Link, tried: tuple[bytes, ...] = ()) -> StoreTask:
    return StoreTask(CRAWL, tuple(map(wire.row_of_link, links)), tried)


async def test_our_own_are_taken_and_others_moved_to_their_owner() -> None:
    view = view_of([0, 1, 2])
    ours, theirs = link_of(0, view), link_of(1, view)

    async with a_world(view) as world:
        reply = await world.ask(store(ours, theirs))
        assert isinstance(reply, Ack)
        assert list(reply.codes) == [Code.ACCEPTED, Code.MOVED]
        assert {index: peer.node_id for index, peer in reply.moved_to().items()} == {1: node(1)}
        assert world.run is not None
        assert world.run.taken == [ours]
        again = await world.ask(store(ours))
        assert isinstance(again, Ack)
        assert list(again.codes) == [Code.KNOWN]


async def test_a_link_beyond_the_scope_is_refused_and_those_beside_it_are_taken() -> None:
    view = view_of([0, 1, 2])
    lie, ours = link_of(0, view), link_of(1, view)
    async with a_world(view_of([0])) as world:
        world.beyond = {lie.key}
        reply = await world.ask(store(lie, ours))
        assert isinstance(reply, Ack)
        assert list(reply.codes) == [Code.FAILED, Code.ACCEPTED]
        assert world.caught_up == [(HELLO.node_id, CRAWL)]
        await world.ask(store(lie))
        assert len(world.caught_up) == 1, "not again at once"
        await asyncio.sleep(AGAIN_S)
        await world.ask(store(lie))
        assert len(world.caught_up) == 2


async def test_a_sender_that_knows_a_newer_scope_is_asked_for_it_and_not_refused() -> None:
    link = link_of(0, view_of([0, 1, 2]))
    async with a_world(view_of([0])) as world:
        world.beyond = world.known_there = {link.key}
        world.known_there = {link.key}
        reply = await world.ask(store(link))
        assert isinstance(reply, Ack)
        assert list(reply.codes) == [Code.ACCEPTED]
        assert world.caught_up == [(HELLO.node_id, CRAWL)]


async def test_who_is_refused_with_a_link_for_a_minute_may_leave_it_here_so_that_a_crawl_ends() -> None:
    link = link_of(0, view_of([0, 1, 2]))
    async with a_world(view_of([0])) as world:
        world.beyond = {link.key}
        for _ in range(int(PATIENCE_S / 10)):
            assert await world.codes(store(link)) == [Code.FAILED]
            await asyncio.sleep(10)
        assert await world.codes(store(link)) == [Code.ACCEPTED]


NOBODY = "ef" * 20


async def test_a_page_that_is_said_to_lie_at_a_node_that_nobody_knows_is_not_taken_for_fetched() -> None:
    record = copy(1)
    lie = copy(1, state=State.DONE, place=Place(NOBODY, "a.warc.gz", 0, 9))
    async with a_world() as world:
        world.unknown = {NOBODY}
        await world.ask(StoreBackup(CRAWL, (wire.record_of(record),)))
        for message in (
            StoreBackup(CRAWL, (wire.record_of(lie), wire.record_of(copy(2)))),
            DeleteBackup(CRAWL, (wire.tombstone_of(lie),)),
        ):
            reply = await world.ask(message)
            assert isinstance(reply, Ack)
            assert list(reply.codes) == [Code.FAILED, Code.ACCEPTED][: len(reply.codes)]
        assert world.run is not None
        assert world.run.state_of(record.key) is State.PENDING


async def test_a_sender_that_fetched_the_page_itself_or_names_a_participant_is_believed() -> None:
    own = Place(HELLO.node_id.hex(), "a.warc.gz", 0, 9)
    there = Place(NOBODY, "a.warc.gz", 0, 9)
    async with a_world() as world:
        world.unknown = {HELLO.node_id.hex(), NOBODY}
        world.named_there = {NOBODY}
        mine, heirs = copy(1, state=State.DONE, place=own), copy(2, state=State.DONE, place=there)
        reply = await world.ask(StoreBackup(CRAWL, (wire.record_of(mine), wire.record_of(heirs))))
        assert isinstance(reply, Ack)
        assert list(reply.codes) == [Code.ACCEPTED, Code.FAILED]
        await asyncio.sleep(1)  # the sender's record of the crawl comes; the answer did not wait for it (I13)
        again = await world.ask(StoreBackup(CRAWL, (wire.record_of(heirs),)))
        assert isinstance(again, Ack)
        assert list(again.codes) == [Code.ACCEPTED]


async def test_what_is_said_for_a_minute_is_believed_so_that_nothing_that_is_true_is_kept_out_for_good() -> None:
    there = StoreBackup(CRAWL, (wire.record_of(copy(1, state=State.DONE, place=Place(NOBODY, "a.warc.gz", 0, 9))),))
    async with a_world() as world:
        world.unknown = {NOBODY}
        for _ in range(int(PATIENCE_S / 10)):
            assert await world.codes(there) == [Code.FAILED]
            await asyncio.sleep(10)
        assert await world.codes(there) == [Code.ACCEPTED]


async def test_who_forges_the_same_twice_or_has_another_repeat_it_is_not_believed() -> None:
    lie = copy(1, state=State.DONE, place=Place(NOBODY, "a.warc.gz", 0, 9))
    whole, ended = StoreBackup(CRAWL, (wire.record_of(lie),)), DeleteBackup(CRAWL, (wire.tombstone_of(lie),))
    other = replace(HELLO, node_id=node(2))
    async with a_world() as world:
        world.unknown = {NOBODY}
        for _ in range(3):
            assert await world.codes(whole) == [Code.FAILED]
            await asyncio.sleep(PATIENCE_S)
            assert await world.codes(ended, other) == [Code.FAILED]
            assert await world.codes(whole) == [Code.FAILED]
            await asyncio.sleep(GAP_S)


OWNER_S = SETTLED_S + 1.0


def over_at(number: int, fetcher: bytes) -> TaskReplica:
    return copy(number, state=State.DONE, place=Place(fetcher.hex(), "a.warc.gz", 0, 9))


def ends_of(records: list[TaskReplica]) -> list[Request]:
    """The same ends in all ways that they can be told."""
    dead = [each._replace(task=each.task._replace(state=State.DEAD, place=None, reason="failed")) for each in records]
    both = (records, dead)
    whole = [StoreBackup(CRAWL, tuple(map(wire.record_of, each))) for each in both]
    return [*whole, *(DeleteBackup(CRAWL, tuple(map(wire.tombstone_of, each))) for each in both)]


async def test_a_member_that_says_of_1200_queued_tasks_that_they_are_over_ends_none_of_the_owners() -> None:
    numbers, liar, other = range(1_200), HELLO.node_id, node(2)
    async with a_world() as world:
        assert world.run is not None
        for first in range(0, 1_200, 300):
            rows = tuple(wire.record_of(copy(number)) for number in numbers[first : first + 300])
            await world.ask(StoreBackup(CRAWL, rows))
        world.run.own = {copy(number).key for number in numbers}
        await asyncio.sleep(OWNER_S)
        for fetcher in (liar, other):  # itself, or somebody else
            for first in range(0, 1_200, 300):
                for message in ends_of([over_at(number, fetcher) for number in numbers[first : first + 300]]):
                    assert set(await world.codes(message)) == {Code.FAILED}
        assert {world.run.state_of(key) for key in world.run.own} == {State.PENDING}
        assert world.run.over == []
        assert world.run.states == [State.PENDING] * 1_200, "nothing is heard of what is left out"
        assert world.merger.refused == 2 * 4 * 1_200


async def test_once_a_node_has_come_or_gone_what_a_former_owner_says_is_believed_though_no_task_is_in_doubt() -> None:
    """Whether or not anything was asked while the other was away, or between its coming and this."""
    without, fourth = view_of([0, 2]), view_of([0, 1, 2, 3])
    for told, asked in (((without, view_of([0, 1, 2])), None), ((), fourth)):
        async with a_world() as world:
            assert world.run is not None
            await world.ask(StoreBackup(CRAWL, (wire.record_of(copy(1)),)))
            world.run.own = {copy(1).key}
            await asyncio.sleep(OWNER_S)
            end = DeleteBackup(CRAWL, (wire.tombstone_of(over_at(1, node(1))),))
            assert await world.codes(end) == [Code.FAILED]
            for view in told:
                world.peers.view = view
                world.merger.view_changed()
            world.peers.view = asked or world.peers.view
            assert await world.codes(end) == [Code.ACCEPTED]
            assert world.run.state_of(copy(1).key) is State.DONE


async def test_the_node_that_was_given_a_task_ends_it_whoever_tells() -> None:
    task = copy(1)
    for message in ends_of([over_at(1, node(1))])[::2]:
        async with a_world() as world:
            assert world.run is not None
            await world.ask(StoreBackup(CRAWL, (wire.record_of(task),)))
            world.run.own, world.run.given = {task.key}, {task.key: node(1)}
            await asyncio.sleep(OWNER_S)
            for teller in (node(2), node(1)):
                assert await world.codes(message, replace(HELLO, node_id=teller)) == [Code.ACCEPTED]
            assert world.run.state_of(task.key) is State.DONE


@pytest.mark.parametrize("joins", [True, False])
async def test_how_a_task_ended_elsewhere_is_told_to_whoever_is_joining(joins: bool) -> None:
    """A worker may not know of the newcomer, which has asked this owner before the tombstone came."""
    ours, theirs = copy(1), copy(2)
    async with a_world() as world:
        assert world.run is not None
        await world.ask(StoreBackup(CRAWL, (wire.record_of(ours), wire.record_of(theirs))))
        world.run.own, world.run.given, world.run.joins = {ours.key}, {ours.key: node(1)}, joins
        over = (over_at(1, node(1)), over_at(2, node(1)))
        await world.ask(DeleteBackup(CRAWL, tuple(map(wire.tombstone_of, over))))
        changed = world.run.changes[-1].changed
        assert [(each.key, each.task.state) for each in changed] == [(ours.key, State.DONE)] * joins


async def test_a_task_that_an_owner_has_not_heard_of_is_not_over_before_it_does() -> None:
    task = copy(1)
    async with a_world() as world:
        assert world.run is not None
        world.run.own = {task.key}
        await asyncio.sleep(OWNER_S)
        lie = over_at(1, node(1))
        assert await world.codes(StoreBackup(CRAWL, (wire.record_of(lie),))) == [Code.FAILED]
        assert world.run.state_of(task.key) is None


async def test_a_page_that_lies_here_is_not_said_to_lie_elsewhere() -> None:
    async with a_world() as world:
        assert world.run is not None
        ours = over_at(1, node(0))
        await world.ask(StoreBackup(CRAWL, (wire.record_of(ours),)))
        world.run.own = {ours.key}
        await asyncio.sleep(OWNER_S)
        moved = over_at(1, node(1))
        later = StoreBackup(CRAWL, (wire.record_of(moved._replace(task=moved.task._replace(gen=9))),))
        assert await world.codes(later) == [Code.FAILED]
        again = StoreBackup(CRAWL, (wire.record_of(ours),))
        assert await world.codes(again) == [Code.ACCEPTED], "what changes nothing is no lie"


async def test_where_others_fetch_tasks_a_late_one_is_believed_and_few_at_a_time() -> None:
    async with a_world() as world:
        assert world.run is not None
        world.run.lends = True
        await world.ask(StoreBackup(CRAWL, tuple(wire.record_of(copy(n)) for n in range(200))))
        world.run.own = {copy(n).key for n in range(200)}
        await asyncio.sleep(OWNER_S)
        late = StoreBackup(CRAWL, tuple(wire.record_of(over_at(n, node(1))) for n in range(200)))
        codes = await world.codes(late, replace(HELLO, node_id=node(1)))
        assert codes.count(Code.ACCEPTED) == BURST
        assert [each is State.DONE for each in map(world.run.state_of, (copy(n).key for n in range(200)))] == [
            code == Code.ACCEPTED for code in codes
        ]


async def test_what_its_owner_did_not_take_is_taken_into_custody() -> None:
    view = view_of([0, 1, 2])

    async with a_world(view) as world:
        reply = await world.ask(store(link_of(1, view), tried=(node(1),)))
        assert isinstance(reply, Ack)
        assert list(reply.codes) == [Code.ACCEPTED]


async def test_nobody_is_sent_to_a_node_that_is_suspected() -> None:
    view = View([Member(node(0), ("h", 1)), Member(node(1), ("h", 2), MemberState.SUSPECTED)])

    async with a_world(view) as world:
        reply = await world.ask(store(link_of(1, view)))
        assert isinstance(reply, Ack)
        assert list(reply.codes) == [Code.FAILED]


async def test_a_node_that_does_not_own_yet_takes_no_links_but_copies() -> None:
    async with a_world() as world:
        world.inbox.owning = False
        links, copies = store(link_of(0, world.peers.view)), StoreBackup(CRAWL, (wire.record_of(copy(1)),))
        first, second = await world.ask(links), await world.ask(copies)
        assert isinstance(first, Ack)
        assert isinstance(second, Ack)
        assert (list(first.codes), list(second.codes)) == ([Code.FAILED], [Code.ACCEPTED])


async def test_a_node_that_stood_still_takes_no_links_before_it_knows_again_what_it_owns() -> None:
    async with a_world() as world:
        assert world.run is not None
        world.awake = False
        link = link_of(0, world.peers.view)
        assert await world.codes(store(link)) == [Code.FAILED]
        assert (world.run.taken, world.inbox.links_taken) == ([], 0)
        world.awake = True
        assert await world.codes(store(link, link_of(1, world.peers.view))) == [Code.ACCEPTED, Code.MOVED]
        assert (world.run.taken, world.inbox.links_taken) == ([link], 1)


async def test_a_node_that_sees_no_owner_keeps_a_link_for_others() -> None:
    link = link_of(1, view_of([0, 1, 2]))
    async with a_world() as world:
        world.peers.view = view_of([], joining=[0])
        assert await world.codes(store(link)) == [Code.ACCEPTED]


async def test_records_that_are_taken_are_counted_and_those_that_are_refused_too() -> None:
    async with a_world() as world:
        world.unknown = {"ab" * 20}
        rows = (wire.record_of(copy(1)), wire.record_of(copy(2, **DONE)))
        assert await world.codes(StoreBackup(CRAWL, rows)) == [Code.ACCEPTED, Code.FAILED]
        assert (world.inbox.records_taken, world.doubts.refused) == (1, 1)
        ends = (wire.tombstone_of(copy(1, **DEAD)), wire.tombstone_of(copy(2, **DONE)))
        assert await world.codes(DeleteBackup(CRAWL, ends)) == [Code.ACCEPTED, Code.FAILED]
        assert (world.inbox.records_taken, world.doubts.refused) == (2, 2)


async def test_what_came_of_a_page_is_heard_of_when_it_is_written() -> None:
    """Random seed 786: a page was not held any more, and still pending, when somebody looked for one to fetch."""
    async with a_world() as world:
        await world.ask(StoreBackup(CRAWL, (wire.record_of(copy(1)),)))
        await world.ask(StoreBackup(CRAWL, (wire.record_of(copy(1, **DONE)),)))
        assert world.run is not None
        assert world.run.states == [State.PENDING, State.DONE]


async def test_links_of_a_crawl_that_is_not_known_are_refused_and_its_copies_kept() -> None:
    async with a_world() as world:
        world.run = None
        assert isinstance(await world.ask(store(link_of(0, world.peers.view))), Refused)
        reply = await world.ask(StoreBackup(CRAWL, (wire.record_of(copy(1)),)))
        assert isinstance(reply, Ack)
        assert list(reply.codes) == [Code.ACCEPTED]


async def test_a_link_under_a_key_that_is_not_its_own_is_not_taken() -> None:
    async with a_world() as world:
        good = link_of(0, world.peers.view)
        reply = await world.ask(store(good, good._replace(url="http://b.example/"), good._replace(key=b"x" * 20)))
        assert isinstance(reply, Ack)
        assert list(reply.codes) == [Code.ACCEPTED, Code.FAILED, Code.FAILED]


async def test_a_write_is_a_read() -> None:
    """Who sends a copy that is behind ours hears what we know (I6)."""
    async with a_world() as world:
        await world.ask(StoreBackup(CRAWL, (wire.record_of(copy(1, **DONE)),)))
        reply = await world.ask(StoreBackup(CRAWL, (wire.record_of(copy(1)), wire.record_of(copy(2)))))
        assert isinstance(reply, Ack)
        assert [(known.key, known.task.state) for known in wire.copies_of(reply.records, TaskKeys())] == [
            (copy(1).key, State.DONE)
        ]
        assert world.run is not None
        assert [fresh.key for fresh in world.run.changes[-1].fresh] == [copy(2).key]


@pytest.mark.parametrize("over", [False, True], ids=["records", "tombstones"])
async def test_what_no_frame_holds_of_what_is_known_better_is_told_when_the_rest_is_sent_again(over: bool) -> None:
    """Replicas that were found on a page with a long URL take more room than those that are sent."""
    referrer = "http://a.example/?" + "x" * 8_000
    ours = [copy(number, depth=0, referrer=referrer, **DONE) for number in range(300)]
    left = [copy(number) for number in range(300)]
    told = dict[bytes, State]()
    async with a_world() as world:
        await world.ask(StoreBackup(CRAWL, tuple(map(wire.record_of, ours))))
        for _ in range(10):
            records, ends = (
                map(wire.record_of, left),
                (wire.tombstone_of(copy(0, **DEAD)._replace(key=k)) for k, _ in left),
            )
            reply = await world.ask(DeleteBackup(CRAWL, tuple(ends)) if over else StoreBackup(CRAWL, tuple(records)))
            assert isinstance(reply, Ack)
            encode(1, reply)
            now = {known.key: known.task.state for known in wire.copies_of(reply.records, TaskKeys())}
            assert now
            told |= now
            taken = [code for code in reply.codes if code == Code.ACCEPTED]
            assert len(taken) == len(now), "nothing counts as taken of which we knew better and did not say so"
            left = [each for each, code in zip(left, reply.codes, strict=True) if code == Code.FAILED]
            if not left:
                break
        assert told == {each.key: State.DONE for each in ours}


async def test_a_tombstone_without_its_record_is_asked_for_whole() -> None:
    async with a_world() as world:
        await world.ask(StoreBackup(CRAWL, (wire.record_of(copy(1)),)))
        ends = tuple(wire.tombstone_of(copy(n, **DONE)) for n in (1, 2))
        reply = await world.ask(DeleteBackup(CRAWL, ends))
        assert isinstance(reply, Ack)
        assert list(reply.codes) == [Code.ACCEPTED, Code.FAILED]
        assert world.run is not None
        assert world.run.over == [copy(1).key]
        assert world.run.changes[-1].unqueued


async def test_an_owner_says_which_of_its_own_tasks_are_safe_and_nothing_of_those_of_others() -> None:
    view = view_of([0, 1, 2])
    theirs, ours, thirds = (link_of(number, view).key for number in (1, 0, 2))
    async with a_world(view) as world:
        assert world.run is not None
        rows = (wire.record_of(copy(1)),)
        await world.ask(StoreBackup(CRAWL, rows, safe=ours + theirs + thirds))
        assert world.run.known == [theirs]
        end = wire.tombstone_of(copy(1, **DONE))
        await world.ask(DeleteBackup(CRAWL, (end,), ours + theirs))
        assert world.run.known == [theirs, theirs]
        await world.ask(DeleteBackup(CRAWL, (end._replace(key=b"x" * 40),), theirs + theirs))
        assert world.run.known == [theirs, theirs], "keys of this crawl are not so long"
        world.run = None
        await world.ask(StoreBackup(CRAWL, rows, safe=theirs))


async def test_rows_that_make_no_sense_are_not_kept_and_end_nothing() -> None:
    async with a_world() as world:
        row = wire.record_of(copy(1))
        rows = (row._replace(state=9), row._replace(gen=1 << 30), row._replace(url="javascript:x"), row)
        reply = await world.ask(StoreBackup(CRAWL, rows))
        assert isinstance(reply, Ack)
        assert list(reply.codes) == [Code.FAILED, Code.FAILED, Code.FAILED, Code.ACCEPTED]
        end = wire.tombstone_of(copy(1, **DONE))
        answer = await world.ask(DeleteBackup(CRAWL, (end._replace(state=1), end._replace(key=b"x" * 40))))
        assert isinstance(answer, Ack)
        assert set(answer.codes) == {Code.FAILED}


async def test_a_shorter_way_that_comes_before_the_crawl_is_started_marks_the_page_for_the_start() -> None:
    spec, place = make_spec(["a.example"], CrawlSettings(depth=3)), Place(node(0).hex(), "a.warc.gz", 0, 9)
    far, near = (copy(1, state=State.DONE, place=place, depth=depth) for depth in (3, 1))

    for ended, marked in (("", True), ("complete", False)):
        async with a_world() as world:
            record = CrawlRecord(CRAWL, spec, b"", ended=ended)
            await world.committer.submit(partial(catalog.put_crawl, crawl=record))
            page = pack({"url": far.task.url, "depth": 3, "place": place})
            world.engine.write(
                {keys.TASK + CRAWL + far.key: far.task.pack(), keys.PAGE + CRAWL + far.key: page}, sync=False
            )
            world.run = None
            await world.ask(StoreBackup(CRAWL, (wire.record_of(near),)))
            assert (world.engine.get(keys.FETCHED + CRAWL + far.key) is not None) == marked
