"""What a node is not to keep goes to all who are, and is dropped only once each of them has it (I5)."""

from __future__ import annotations

from random import Random

import pytest
from harness.world import Said
from hypothesis import given, settings
from hypothesis import strategies as st
from storage.stores import CRAWL

from dhtcrawl.rpc.membership.view import MemberState, View
from dhtcrawl.rpc.tasks.messages import Call, StoreBackup
from dhtcrawl.rpc.tasks.schema import BadArguments
from dhtcrawl.sim.loop import run
from dhtcrawl.storage.store.records import Place, State
from dhtcrawl.storage.store.replicas import TaskReplica
from dhtcrawl.swarm.calls.records import Have, HaveAnswer
from dhtcrawl.swarm.records.sync import HandedOver
from dhtcrawl.swarm.replica_sets import replica_set
from swarm.sync_swarm import REPLICAS, SyncNode, SyncWorld, copy

THERE = Place("cd" * 20, "b.warc.gz", 0, 10)
X, Y = b"\x20" * 20, b"\xa0" * 20
ACTIVE, JOINING = MemberState.ACTIVE, MemberState.JOINING


def ring(count: int, seed: int = 1) -> tuple[SyncWorld, list[SyncNode]]:
    rng = Random(seed)
    swarm = SyncWorld({rng.randbytes(20): ACTIVE for _ in range(count)})
    return swarm, list(swarm.nodes.values())


def keepers(swarm: SyncWorld, key: bytes) -> list[SyncNode]:
    return [swarm.nodes[node] for node in replica_set(swarm.view, key, REPLICAS)]


@settings(max_examples=25)
@given(lost=st.lists(st.integers(1, 30), max_size=6), answers=st.booleans(), seed=st.integers(0, 20))
def test_a_record_is_dropped_only_where_all_who_keep_it_have_it(lost: list[int], answers: bool, seed: int) -> None:
    async def main() -> None:
        swarm, nodes = ring(7, seed)
        giver = nodes[0]
        giver.put(copy(n) for n in range(200))
        everything = giver.task_keys()

        def check() -> None:
            has = {node.node_id: node.task_keys() for node in nodes}
            for key in everything - has[giver.node_id]:
                assert all(key in has[keeper] for keeper in replica_set(swarm.view, key, REPLICAS))

        def loses(said: Said) -> bool:
            return said.number in lost

        swarm.after = check
        if answers:
            swarm.loses_answer = loses
        else:
            swarm.loses_request = loses
        while not (result := await giver.syncer.hand_over()):
            check()
        check()
        assert result.refused == 0
        assert giver.task_keys() == {k for k in everything if giver in keepers(swarm, k)}
        assert set(giver.queue) == giver.queued() <= giver.task_keys()
        swarm.said.clear()
        assert await giver.syncer.hand_over() == HandedOver()
        assert swarm.said == []

    run(main())


async def test_a_keeper_that_does_not_answer_keeps_its_records_with_us() -> None:
    swarm, nodes = ring(7)
    giver, dead = nodes[0], nodes[1]
    giver.put(copy(n) for n in range(400))
    everything = set(giver.found())
    swarm.loses_request = lambda said: said.asked == dead.node_id
    result = await giver.syncer.hand_over()
    assert not result
    kept = {key for key in everything if giver in keepers(swarm, key) or dead in keepers(swarm, key)}
    assert set(giver.found()) == kept
    # It is asked once, not for each page.
    assert sum(said.asked == dead.node_id for said in swarm.said) == 1


async def test_a_keeper_that_is_full_keeps_its_records_with_us() -> None:
    _, nodes = ring(6)
    giver = nodes[0]
    giver.put(copy(n) for n in range(50))
    for node in nodes[1:]:
        node.full = True
    before = giver.found()
    result = await giver.syncer.hand_over()
    assert giver.found() == before
    assert (bool(result), result.dropped) == (False, 0)


async def test_what_is_in_flight_or_sends_its_links_is_handed_over_and_stays() -> None:
    swarm, nodes = ring(6)
    giver = nodes[0]
    giver.put(copy(n) for n in range(60))
    in_flight, sending, *_ = (key for key in giver.found() if giver not in keepers(swarm, key))
    giver.busy.add(in_flight)
    giver.mark(sending)
    result = await giver.syncer.hand_over()
    assert result
    assert result.needed == 2
    assert {in_flight, sending} <= set(giver.found())
    assert all(sending in keeper.found() for keeper in keepers(swarm, sending))


async def test_what_a_keeper_knows_better_comes_back_before_anything_is_dropped() -> None:
    swarm, nodes = ring(6)
    giver = nodes[0]
    key = next(k for k, _ in map(copy, range(99)) if giver not in keepers(swarm, k))
    number = next(n for n in range(99) if copy(n).key == key)
    giver.put([copy(number)])
    owner = keepers(swarm, key)[0]
    owner.put([copy(number, state=State.DONE, place=THERE)])
    assert (await giver.syncer.hand_over()).needed == 1
    assert giver.found()[key].state == State.DONE
    assert (await giver.syncer.hand_over()).dropped == 1
    assert {keeper.found()[key].state for keeper in keepers(swarm, key)} == {State.DONE}


async def test_a_node_that_leaves_hands_over_everything_by_a_view_without_itself() -> None:
    swarm, nodes = ring(5)
    leaver = nodes[0]
    leaver.put(copy(n) for n in range(500))
    everything = leaver.found()
    without = View(member for member in swarm.view.members if member.id != leaver.node_id)
    # As long as it is an active member itself, it drops nothing that it keeps.
    assert await leaver.syncer.hand_over(without)
    assert set(leaver.found()) == {k for k in everything if leaver in keepers(swarm, k)}
    swarm.become(leaver.node_id, JOINING)
    assert await leaver.syncer.hand_over(swarm.view)
    assert leaver.found() == {}
    has = {node.node_id: node.found() for node in nodes}
    for key, task in everything.items():
        assert all(has[keeper][key] == task for keeper in replica_set(swarm.view, key, REPLICAS))


async def test_the_last_node_that_leaves_keeps_what_nobody_else_is_to_keep() -> None:
    swarm = SyncWorld({X: ACTIVE})
    leaver = swarm.nodes[X]
    leaver.put(copy(n) for n in range(20))
    everything = leaver.found()
    without = View(())
    swarm.become(X, JOINING)
    result = await leaver.syncer.hand_over(without)
    assert leaver.found() == everything
    assert result.dropped == 0


async def test_a_joining_node_gives_nothing_away() -> None:
    swarm = SyncWorld({X: JOINING, Y: ACTIVE})
    a = swarm.nodes[X]
    a.put([copy(1)])
    assert await a.syncer.hand_over() == HandedOver()
    assert len(a.found()) == 1
    assert swarm.said == []


async def test_what_is_there_already_is_asked_for_and_not_sent() -> None:
    swarm, nodes = ring(6)
    some = [copy(n) for n in range(60)]
    for node in nodes:
        node.put(some)
    # One of them knows something else of one record.
    strays = [each for each in some if nodes[0] not in keepers(swarm, each.key)]
    keepers(swarm, strays[0].key)[0].put([TaskReplica(strays[0].key, strays[0].task._replace(attempt=1))])
    result = await nodes[0].syncer.hand_over()
    assert (result.dropped, result.needed) == (len(strays) - 1, 1), "one is not here any more as it was handed over"
    assert result.pushed == 1
    assert swarm.records_moved == 2, "the one that differs, and what its keeper knows better"
    assert (await nodes[0].syncer.hand_over()).dropped == 1
    assert nodes[0].task_keys() == {each.key for each in some} - {each.key for each in strays}


async def test_keys_that_are_not_as_long_as_the_crawls_are_refused() -> None:
    _, nodes = ring(2)
    syncer, asker = nodes[0].syncer, nodes[1].node_id
    assert await syncer.on_have(asker, Have(CRAWL, bytes(20), bytes(8))) == HaveAnswer(b"\0")
    with pytest.raises(BadArguments, match="keys"):
        await syncer.on_have(asker, Have(CRAWL, bytes(40), bytes(8)))


async def test_hand_over_says_that_it_lets_go() -> None:
    swarm, nodes = ring(6)
    nodes[0].put(copy(n) for n in range(60))
    await nodes[0].syncer.hand_over()
    sent = [said.message for said in swarm.said if not isinstance(said.message, Call)]
    assert sent
    assert all(isinstance(message, StoreBackup) and message.hand_over for message in sent)
