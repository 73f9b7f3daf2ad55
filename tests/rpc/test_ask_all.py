"""Many nodes are asked at once, though not too many, and answers keep the order of the questions."""

from __future__ import annotations

import asyncio

from swarm.fake_peers import FakePeers, node, view_of

from dhtcrawl.rpc.peers.ask_all import answers_of, ask_all, call_all
from dhtcrawl.rpc.tasks.events import Failure, FailureKind
from dhtcrawl.swarm.calls.lifecycle import KnownCrawls, ListCrawls


async def test_answers_keep_their_order_and_few_questions_are_under_way() -> None:
    under_way = most = 0

    async def ask(number: int) -> int:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.001 * (10 - number))
        under_way -= 1
        return number * number

    assert await ask_all(range(10), ask, 3) == [number * number for number in range(10)]
    assert most == 3
    assert await ask_all([], ask) == []


async def test_nodes_that_do_not_answer_are_left_out() -> None:
    peers = FakePeers(view_of([0, 1]))
    silent = Failure(FailureKind.TIMEOUT, "")
    peers.calls["crawl_list"] = lambda args: {"crawls": ()} if args["after"] else silent
    heard, lost = ListCrawls(bytes(16)), ListCrawls(b"")
    answers = await call_all(peers, [(node(1), lost), (node(0), heard), (node(1), heard)])
    assert answers == [None, KnownCrawls(()), KnownCrawls(())]
    assert await answers_of(peers, [node(1), node(0)], heard) == {node(1): KnownCrawls(()), node(0): KnownCrawls(())}
    assert await answers_of(peers, [node(1), node(0)], lost) == {}
