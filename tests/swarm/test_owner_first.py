"""Under a policy that has owners try first, others are asked only for hosts that an owner cannot connect to."""

from __future__ import annotations

import asyncio

from dhtcrawl.policy.seam import BATCH, BUDGET_S, Settings, TaskResult
from dhtcrawl.policy.xor import Xor
from dhtcrawl.rpc.membership.view import Member, View
from dhtcrawl.rpc.tasks.messages import Refused
from dhtcrawl.swarm.calls.assignment import Lend, Recall
from dhtcrawl.url import host_of
from swarm.fake_peers import node, view_of

from .assigning_world import OWN, TASKS, AssignerBench, Favours, a_world, failed

XOR = Xor(Settings(OWN))
NEITHER = failed(TASKS[0], TaskResult.UNREACHABLE)


def lent(world: AssignerBench) -> list[tuple[bytes, bytes]]:
    return [(peer, key) for peer, name, args in world.peers.called if name == Lend.terms.name for key in args["keys"]]


async def test_an_owner_asks_nobody() -> None:
    async with a_world(XOR) as world:
        world.add(*TASKS[:3])
        await asyncio.sleep(1)
        assert world.started() == [task.url for task in TASKS[:3]]
        assert not world.peers.called


async def test_what_an_owner_cannot_connect_to_goes_to_each_of_the_others_and_back_to_it() -> None:
    async with a_world(XOR) as world:
        world.add(TASKS[0])
        assert world.started()
        assert world.lender.failed_here(TASKS[0], NEITHER)
        await asyncio.sleep(1)
        (first,) = lent(world)
        await world.report(1 if first[0] == node(1) else 2, NEITHER)
        await asyncio.sleep(1)
        assert {peer for peer, _ in lent(world)} == {node(1), node(2)}
        assert not world.started()
        await world.report(2 if first[0] == node(1) else 1, NEITHER)
        await asyncio.sleep(1)
        assert world.started(), "it is the owner that goes on trying"
        assert not world.lender.failed_here(TASKS[0], NEITHER)
        assert not world.killed
        assert world.lender.failed_here(TASKS[0], failed(TASKS[0], detail="for good"))
        (kill,) = world.killed
        assert "for good" in kill.detail
        assert kill.detail.count("it hangs") == 2


async def test_of_a_dead_host_each_node_is_asked_once_and_not_once_for_each_page() -> None:
    async with a_world(XOR) as world:
        world.add(*TASKS)
        for task in TASKS:
            assert world.started() or task is not TASKS[0]
            if world.lender.failed_here(task, NEITHER._replace(key=task.key)):
                await asyncio.sleep(1)
                for number in (1, 2):
                    await world.report(number, NEITHER._replace(key=task.key))
                    await asyncio.sleep(1)
        assert len(lent(world)) == 2


async def test_an_owner_gives_the_pages_of_a_dead_host_up_itself_also_where_others_come_first() -> None:
    async with a_world(Favours(node(1))) as world:
        world.add(TASKS[0])
        await asyncio.sleep(1)
        await world.report(1, NEITHER)
        await asyncio.sleep(1)
        assert world.started()
        assert world.lender.failed_here(TASKS[0], NEITHER)
        await asyncio.sleep(1)
        await world.report(2, NEITHER)
        world.add(*TASKS[1:4])
        await asyncio.sleep(1)
        assert len(lent(world)) == 2, "each of the others was asked once, for the first page"
        for task in TASKS[:4]:
            assert world.lender.failed_here(task, failed(task))
        assert len(world.killed) == 4


async def test_that_nobody_takes_a_hosts_certificate_says_nothing_of_its_pages_without_one() -> None:
    async with a_world(XOR) as world:
        secure = [task._replace(url=task.url.replace("http:", "https:")) for task in TASKS[:2]]
        for task in secure:
            world.add(task)
            assert world.started()
        assert world.lender.failed_here(secure[0], NEITHER)
        await asyncio.sleep(1)
        for number in (1, 2, 1):
            if world.lent.count(node(number)):
                await world.report(number, NEITHER)
            await asyncio.sleep(1)
        assert not world.lender.failed_here(secure[1], failed(secure[1], TaskResult.UNREACHABLE)), "nobody is left"
        assert world.lender.failed_here(TASKS[2], failed(TASKS[2], TaskResult.UNREACHABLE)), "another may be let in"


async def test_a_policy_hears_once_what_came_of_a_task_that_was_tried_by_all() -> None:
    policy = Favours(OWN)
    async with a_world(policy) as world:
        world.peers.view = view_of([0])
        for result in (TaskResult.UNREACHABLE, TaskResult.FAILED):
            world.lender.failed_here(TASKS[0], failed(TASKS[0], result))
        world.add(TASKS[1])
        await asyncio.sleep(1)
    assert policy.heard_of == [(OWN, TaskResult.FAILED)]


async def test_what_a_page_does_wrong_is_no_reason_to_ask_another_node() -> None:
    async with a_world(XOR) as world:
        world.add(TASKS[0])
        assert world.started()
        assert not world.lender.failed_here(TASKS[0], failed(TASKS[0])), "its owner gives it up itself"
        await asyncio.sleep(1)
        assert not world.peers.called


async def test_a_worker_that_connected_and_brought_nothing_is_the_last_that_is_asked() -> None:
    async with a_world(XOR) as world:
        world.add(TASKS[0])
        assert world.started()
        assert world.lender.failed_here(TASKS[0], NEITHER)
        await asyncio.sleep(1)
        ((first, _),) = lent(world)
        await world.report(1 if first == node(1) else 2, failed(TASKS[0], detail="status 500"))
        (kill,) = world.killed
        assert "status 500" in kill.detail
        assert len(lent(world)) == 1


async def test_in_a_large_swarm_a_few_are_asked() -> None:
    async with a_world(XOR) as world:
        others = [bytes([number]) * 20 for number in range(1, 50)]
        world.peers.view = View(Member(each, ("10.0.0.1", 1)) for each in (OWN, *others))
        world.incarnations.update(dict.fromkeys(others, 1))
        near = [each.id for each in world.peers.view.closest(TASKS[0].key, Xor.candidates_max)]
        world.add(TASKS[0])
        assert world.started()
        assert world.lender.failed_here(TASKS[0], NEITHER)
        for _ in range(3 * Xor.candidates_max):
            await asyncio.sleep(1)
            for each in others:
                if world.lent.count(each):
                    await world.report(each, NEITHER)
        assert [peer for peer, _ in lent(world)][: len(near)] == [each for each in near if each != OWN]
        assert len(lent(world)) <= Xor.candidates_max + 1


async def test_alone_an_owner_goes_on_by_itself() -> None:
    async with a_world(XOR) as world:
        world.peers.view = view_of([0])
        world.add(TASKS[0])
        assert world.started()
        assert not world.lender.failed_here(TASKS[0], NEITHER)


async def test_a_page_is_not_given_up_while_somebody_who_refused_has_not_tried_it() -> None:
    """A node that is about to leave, or has just begun, refuses for some seconds; it may be the one that connects."""
    async with a_world(XOR) as world:
        world.peers.calls[Lend.terms.name] = lambda args: Refused("not-ready")
        world.add(TASKS[0])
        assert world.started()
        assert world.lender.failed_here(TASKS[0], NEITHER)
        await asyncio.sleep(4)
        assert not world.started(), "the owner has it again only when the others have tried"
        del world.peers.calls[Lend.terms.name]
        world.peers.calls[Lend.terms.name] = lambda args: {}
        await asyncio.sleep(6)
        assert [key for _, key in lent(world)][-1] == TASKS[0].key
        assert TASKS[0].key in world.lent
        assert not world.killed


async def test_nobody_who_refuses_for_ever_keeps_a_page_from_its_end() -> None:
    async with a_world(XOR) as world:
        world.peers.calls[Lend.terms.name] = lambda args: Refused("no-policy")
        world.add(TASKS[0])
        assert world.started()
        assert world.lender.failed_here(TASKS[0], NEITHER)
        await asyncio.sleep(120)
        assert world.started()
        assert not world.lender.failed_here(TASKS[0], NEITHER)
        assert world.lender.failed_here(TASKS[0], failed(TASKS[0]))
        assert world.killed


async def test_who_takes_a_task_and_has_no_time_for_it_is_not_asked_again_before_the_others() -> None:
    async with a_world(XOR) as world:
        world.peers.calls[Recall.terms.name] = lambda args: {"keys": tuple(args["keys"])}
        world.add(TASKS[0])
        assert world.started()
        assert world.lender.failed_here(TASKS[0], NEITHER)
        for _ in range(8):
            await asyncio.sleep(BUDGET_S / 2 + 5)
            for number in (1, 2):
                await world.report(number)
        asked = [peer for peer, _ in lent(world)]
        assert len(asked) >= 4
        assert set(asked[:2]) == {node(1), node(2)}
        assert asked[:-2] == asked[2:], "in turns"


async def test_what_nobody_brings_of_a_large_host_is_its_owners_again_however_much_that_has_to_do() -> None:
    async with a_world(XOR) as world:
        others = [TASKS[1]._replace(key=number.to_bytes(20, "big"), order=number) for number in range(1000, 2500)]
        world.add(TASKS[0])
        assert world.started()
        world.add(*others)
        assert world.frontier.load(host_of(TASKS[0].url)) > BATCH
        assert world.lender.failed_here(TASKS[0], NEITHER)
        for _ in range(2):
            await asyncio.sleep(1)
            peer, _ = lent(world)[-1]
            await world.report(1 if peer == node(1) else 2, NEITHER)
        await asyncio.sleep(5)
        assert [key for _, key in lent(world)] == [TASKS[0].key] * 2, "once each"
