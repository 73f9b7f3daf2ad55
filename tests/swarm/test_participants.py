"""Nodes that only the records of their pages tell of are written down, each once."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from dhtcrawl.config import load
from dhtcrawl.sim.keys import SimKey
from dhtcrawl.spec import make_spec
from dhtcrawl.storage.store import bequests
from dhtcrawl.storage.store.crawl_record import CrawlRecord, merge_crawls
from dhtcrawl.swarm.lifecycle.participants import Participants
from swarm.fake_peers import node, view_of

A, B, C = ("aa" * 20, "bb" * 20, "cc" * 20)


class Learning:
    """A crawl's record, and who wrote what into it."""

    def __init__(self) -> None:
        spec = make_spec(["http://a.example/"], load().crawl)
        self.record = CrawlRecord(bytes(16), spec, b"nonce", participants=[A])
        self.learned: list[list[str]] = []

    async def learn(self, record: CrawlRecord) -> CrawlRecord:
        self.learned.append(record.participants)
        await asyncio.sleep(0.1)
        self.record = merge_crawls(self.record, record)
        self.participants.changed(self.record)
        return self.record

    def begin(self, group: asyncio.TaskGroup) -> None:
        self.participants = Participants(self.record, self.learn, group)


async def test_whom_a_record_names_takes_part_from_then_on() -> None:
    world = Learning()

    async with asyncio.TaskGroup() as group:
        world.begin(group)
        world.participants.met([A, B])
        world.participants.met([B])
        assert world.participants.busy == 1, "the crawl cannot end meanwhile"
        await asyncio.sleep(1.0)
        assert world.participants.busy == 0
        world.participants.met([A, B])
        await asyncio.sleep(1.0)
    assert world.learned == [[A, B]]
    assert world.record.participants == [A, B]


async def test_two_that_are_met_at_a_time_are_both_written_down() -> None:
    world = Learning()

    async with asyncio.TaskGroup() as group:
        world.begin(group)
        world.participants.met([B])
        world.participants.met([C])
        await asyncio.sleep(1.0)
    assert world.record.participants == [A, B, C]


async def test_whom_another_node_has_written_down_is_not_written_down_here() -> None:
    world = Learning()

    async with asyncio.TaskGroup() as group:
        world.begin(group)
        world.participants.changed(replace(world.record, participants=[A, B]))
        world.participants.met([B])
        await asyncio.sleep(1.0)
    assert world.learned == []


async def test_a_record_that_is_full_is_not_written_again_and_again() -> None:
    world = Learning()

    async with asyncio.TaskGroup() as group:
        world.begin(group)
        world.participants.met([B])
        world.participants.changed(world.record)  # and it found no room
        world.participants.met([B])
        await asyncio.sleep(1.0)
    assert len(world.learned) == 1


async def test_who_is_absent_is_looked_for_again_when_the_view_or_the_record_has_changed() -> None:
    world = Learning()
    world.record = CrawlRecord(bytes(16), world.record.spec, b"nonce", participants=[A, B])
    there, asked = {A, B}, list[str]()

    def is_member(node: str) -> bool:
        asked.append(node)
        return node in there

    async with asyncio.TaskGroup() as group:
        world.begin(group)
        participants, before, after = world.participants, view_of([0]), view_of([1])
        assert participants.absent(before, is_member) == []
        assert participants.absent(before, is_member) == []
        assert asked == [A, B], "once"
        there.discard(A)
        assert participants.absent(after, is_member) == [A]
        bequest = bequests.made(SimKey(bytes.fromhex(A)), bytes(16), bytes.fromhex(B), 1)
        told = {bequest.name: bequest.packed()}
        participants.changed(CrawlRecord(bytes(16), world.record.spec, b"nonce", participants=[A, B], bequests=told))
        assert participants.absent(after, is_member) == [], "B has what A had"


async def test_a_node_that_starts_anew_is_named_once_also_where_it_was_not_missed() -> None:
    world, starts = Learning(), {node(1).hex(): 1, node(2).hex(): 1}
    world.record = replace(world.record, participants=[*starts, node(3).hex()])
    async with asyncio.TaskGroup() as group:
        world.begin(group)
        assert world.participants.started_anew(view_of([1, 2]), starts.get) == []
        # An older disk: the same number as before.
        assert world.participants.started_anew(view_of([1], [2]), starts.get) == [node(2).hex()]
        assert world.participants.started_anew(view_of([1, 2]), starts.get) == []
        starts[node(1).hex()] = 2
        assert world.participants.started_anew(view_of([1, 2]), starts.get) == [node(1).hex()]
        assert world.participants.started_anew(view_of([1, 2]), starts.get) == []
