"""What a backup learns reaches the owner, or is left to the next sync."""

from __future__ import annotations

import asyncio
from typing import Any

from storage.stores import CRAWL

from dhtcrawl.keyspace import placement
from dhtcrawl.rpc.membership.view import View
from dhtcrawl.rpc.tasks.messages import Ack, Answer, Code, Request, StoreBackup
from dhtcrawl.storage.store.records import Place, State
from dhtcrawl.storage.store.replicas import TaskReplica
from dhtcrawl.swarm.records import wire
from dhtcrawl.swarm.records.owner_news import OwnerNews

from .fake_peers import GONE, FakePeers, node, taken, view_of
from .sync_swarm import copy

THREE = view_of([0, 1, 2])
DONE: Any = {"state": State.DONE, "place": Place("ab" * 20, "a.warc.gz", 0, 9)}


class Desk:
    """A node's news for owners, and what it learned from the answers."""

    def __init__(self, peers: FakePeers, group: asyncio.TaskGroup) -> None:
        self.learned: list[TaskReplica] = []
        self.news = OwnerNews(peers, group, further=self._further)

    async def _further(self, crawl: bytes, copies: list[TaskReplica], told_by: bytes) -> None:
        assert crawl == CRAWL
        self.learned += copies


def owned_by(number: int, count: int, view: View = THREE) -> list[TaskReplica]:
    found = (copy(n, **DONE) for n in range(10_000))
    return [each for each in found if view.owner(placement(each.key)).id == node(number)][:count]  # type: ignore[union-attr]


def keys_to(peers: FakePeers, number: int) -> list[bytes]:
    messages = peers.to(number)
    assert all(isinstance(message, StoreBackup) and not message.hand_over for message in messages)
    return [row.key for message in messages for row in message.records]  # type: ignore[union-attr]


async def test_each_owner_is_told_of_its_own_in_one_message() -> None:
    async with asyncio.TaskGroup() as group:
        peers = FakePeers(THREE)
        desk = Desk(peers, group)
        ones, twos, ours = owned_by(1, 5), owned_by(2, 3), owned_by(0, 2)
        for each in [*ones, *twos, *ours]:
            desk.news.tell(CRAWL, [each])
        await asyncio.sleep(1.0)
        assert keys_to(peers, 1) == [each.key for each in ones]
        assert keys_to(peers, 2) == [each.key for each in twos]
        assert len(peers.said) == 2
        assert desk.news.records_sent == 8


async def test_what_an_owner_knows_better_is_learned() -> None:
    async with asyncio.TaskGroup() as group:
        peers = FakePeers(THREE)
        desk = Desk(peers, group)
        told = owned_by(1, 1)
        better = TaskReplica(told[0].key, told[0].task._replace(gen=3))
        peers.handlers[node(1)] = lambda message: Ack(bytes([Code.ACCEPTED]), records=(wire.record_of(better),))
        desk.news.tell(CRAWL, told)
        await asyncio.sleep(1.0)
        assert [(each.key, each.task.gen) for each in desk.learned] == [(better.key, 3)]


async def test_who_does_not_answer_is_not_asked_again() -> None:
    async with asyncio.TaskGroup() as group:
        peers = FakePeers(THREE)
        desk = Desk(peers, group)
        tried: list[Request] = []

        def fails(message: Request) -> Answer | Any:
            tried.append(message)
            return GONE if len(tried) == 1 else taken(message)

        peers.handlers[node(1)] = fails
        ones = owned_by(1, 2)
        desk.news.tell(CRAWL, ones[:1])
        await asyncio.sleep(5.0)
        assert len(tried) == 1, "a sync will tell it"
        desk.news.tell(CRAWL, ones[1:])
        await asyncio.sleep(1.0)
        assert len(tried) == 2


async def test_who_is_joining_tells_nobody() -> None:
    async with asyncio.TaskGroup() as group:
        peers = FakePeers(view_of([1, 2], [0]))
        Desk(peers, group).news.tell(CRAWL, owned_by(1, 1, peers.view))
        await asyncio.sleep(1.0)
        assert not peers.said
