"""An owner lends its tasks by rank, takes back what is not brought, and gives up what nobody can bring."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest
from crawl import by_hand

from dhtcrawl.crawl.ports import TaskOutcome
from dhtcrawl.keyspace import distance, host_key, placement
from dhtcrawl.policy.choice import Choice
from dhtcrawl.policy.seam import AssignmentTerms, Candidate, Policy, PolicyTask, TaskResult
from dhtcrawl.rpc.membership.view import Member, View
from dhtcrawl.rpc.tasks.events import Failure, FailureKind
from dhtcrawl.rpc.tasks.messages import Refused, StoreBackup
from dhtcrawl.storage.store.records import SkipReason
from dhtcrawl.swarm.assignment import assigner, assigner_state, worker_calls
from dhtcrawl.swarm.assignment.assigned import SILENT_S
from dhtcrawl.swarm.calls.assignment import Lend, Recall
from swarm.fake_peers import node, view_of

from .assigning_world import OWN, TASKS, B, C, Favours, Only, a_world, failed


async def test_tasks_go_to_the_best_until_it_has_its_batch_and_then_to_the_next() -> None:
    async with a_world(Favours(B)) as world:
        world.add(*TASKS[:12])
        await asyncio.sleep(1)
        assert world.lent_to(1) == [task.key for task in TASKS[:5]]
        assert world.told, "or nobody would start them"
        assert len(world.started()) == 5, "the owner is a candidate like others"
        assert len(world.lent_to(2)) == 2
        assert [len(message.records) for message in world.peers.to(1) if isinstance(message, StoreBackup)] == [5]


async def test_few_tasks_wait_for_others_while_their_node_has_some_but_no_longer_than_two_seconds() -> None:
    async with a_world(Only(B, terms=AssignmentTerms(batch=100))) as world:
        world.add(TASKS[0])
        await asyncio.sleep(1)
        assert len(world.lent_to(1)) == 1, "a node that has nothing gets what there is"
        world.add(*TASKS[1:5])
        await asyncio.sleep(0.5)
        assert len(world.lent_to(1)) == 1
        world.add(*TASKS[5:9])
        await asyncio.sleep(1)
        assert len(world.lent_to(1)) == 9, "they are worth their price now"
        world.add(TASKS[9])
        await asyncio.sleep(assigner_state.LOT_S - 1.2)
        assert len(world.lent_to(1)) == 9
        await asyncio.sleep(1.5)
        assert len(world.lent_to(1)) == 10, "no task waits for longer"


async def test_half_of_what_a_node_may_have_waits_for_no_others() -> None:
    async with a_world(Only(B, terms=AssignmentTerms(batch=4))) as world:
        for task, there in zip(TASKS[:3], (1, 1, 3), strict=True):
            world.add(task)
            await asyncio.sleep(0.4)
            assert len(world.lent_to(1)) == there


async def test_tasks_of_a_host_that_has_a_delay_wait_for_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_world(Only(B, terms=AssignmentTerms(batch=100))) as world:
        monkeypatch.setattr(world.frontier, "delay_s", lambda host: 1.0)
        for count, task in enumerate(TASKS[:3], 1):
            world.add(task)
            await asyncio.sleep(0.4)
            assert len(world.lent_to(1)) == count


async def test_a_task_waits_for_the_first_where_the_policy_says_so() -> None:
    class Pinned(Favours):
        pinned = True

    async with a_world(Pinned(B)) as world:
        world.add(*TASKS[:12])
        await asyncio.sleep(1)
        assert (len(world.lent_to(1)), world.lent_to(2), world.started()) == (5, [], [])
        world.lender.state.over([task.key for task in TASKS[:5]])
        await asyncio.sleep(1)
        assert len(world.lent_to(1)) == 10


async def test_an_owner_chooses_again_as_soon_as_it_has_done_half_of_what_it_had() -> None:
    async with a_world(Only(OWN)) as world:
        world.add(*TASKS[:12])
        await asyncio.sleep(0.01)
        begun_at = world.clock.monotonic()
        jobs = [by_hand.begin(world.frontier, begun_at) for _ in range(5)]
        for number, job in enumerate(jobs[:3], 1):
            assert world.frontier.load("a") == 6 - number
            assert job.task is not None
            by_hand.over(world.frontier, job, begun_at)
            world.lender.brought_here(TaskOutcome(job.task.key, "a", TaskResult.PAGE, 0.1))
            await asyncio.sleep(0.01)
        assert world.frontier.load("a") == 5
        assert world.clock.monotonic() < begun_at + assigner.PAUSE_S


async def test_a_policy_that_finds_nobody_for_long_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    class Nobody(Favours):
        def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
            return []

    async with a_world(Nobody()) as world:
        world.add(TASKS[0])
        await asyncio.sleep(10)
        assert not caplog.messages
        await asyncio.sleep(120)
        assert 1 <= len(caplog.messages) <= 4
        assert f"policy favours has found no node for {TASKS[0].url}" in caplog.messages[0]


async def test_a_node_that_does_not_take_a_task_is_not_waited_for() -> None:
    async with a_world(Favours(B)) as world:
        world.peers.calls[Lend.terms.name] = lambda args: Refused("not-ready")
        world.add(TASKS[0])
        await asyncio.sleep(60.0)
        assert world.requeued[:1] == [TASKS[0].key]
        assert len(world.lent_to(1)) <= 1, "it is not asked again and again"
        assert world.started() or world.lent_to(2)


async def test_what_another_has_by_the_time_of_the_decision_is_not_lent() -> None:
    async with a_world(Favours(B)) as world:
        world.before_choice = lambda: world.ownership.asked.add([TASKS[0].key])
        world.add(*TASKS[:2])
        await asyncio.sleep(1.0)
        assert world.lent_to(1) == [TASKS[1].key]


async def test_a_long_list_is_recalled_piece_by_piece() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_calls, "KEYS_A_CALL", 7)
        async with a_world(Favours(B, terms=AssignmentTerms(batch=100, budget_s=30.0))) as world:
            world.add(*TASKS)
            await asyncio.sleep(40.0)
            sizes = [len(args["keys"]) for _, name, args in world.peers.called if name == Recall.terms.name]
            assert max(sizes) == 7
            assert len(world.requeued) >= len(TASKS)


async def test_a_node_that_may_have_taken_it_is() -> None:
    async with a_world(Favours(B)) as world:
        world.peers.calls[Lend.terms.name] = lambda args: Failure(FailureKind.TIMEOUT, "no answer")
        world.add(TASKS[0])
        await asyncio.sleep(10.0)
        assert world.requeued == []
        assert TASKS[0].key in world.lent


async def test_what_one_node_gives_back_the_next_gets_and_in_the_end_it_is_given_up_with_all_reasons() -> None:
    policy = Favours(B)
    async with a_world(policy) as world:
        task = TASKS[0]
        world.add(task)
        await asyncio.sleep(1)
        await world.report(1, failed(task, detail="it hangs"))
        await asyncio.sleep(1)
        (url,) = world.started()
        assert url == task.url
        assert world.lender.failed_here(task, failed(task, detail="no route"))
        await asyncio.sleep(1)
        assert world.lent_to(2) == [task.key]
        assert not world.killed
        await world.report(2, failed(task, detail="status 503"))
        (kill,) = world.killed
        assert all(words in kill.detail for words in ("it hangs", "no route", "status 503", B.hex()[:8]))
        assert len(world.lent) == 0
    assert policy.heard_of[:1] == [(B, TaskResult.FAILED)]


async def test_a_task_that_the_policy_gives_to_one_node_only_is_given_up_when_that_one_has_failed_twice() -> None:
    async with a_world(Only(B)) as world:
        world.add(TASKS[0])
        await asyncio.sleep(0.1)
        for _ in range(2):
            await world.report(1, failed(TASKS[0]))
            await asyncio.sleep(0.1)
        assert world.lent_to(1) == [TASKS[0].key] * 2
        assert [kill.key for kill in world.killed] == [TASKS[0].key]


async def test_a_host_that_the_only_node_for_it_cannot_reach_is_tried_by_it_with_patience() -> None:
    async with a_world(Only(B)) as world:
        world.add(TASKS[0])
        await asyncio.sleep(0.1)
        await world.report(1, failed(TASKS[0], TaskResult.UNREACHABLE))
        await asyncio.sleep(0.1)
        patient = [args["patient"] for _, name, args in world.peers.called if name == Lend.terms.name]
        assert patient == [(), (TASKS[0].key,)]


async def test_five_failures_are_enough_however_many_nodes_there_are() -> None:
    async with a_world(Favours(B)) as world:
        world.peers.view = view_of(range(10))
        world.incarnations.update({node(number): 1 for number in range(10)})
        task = TASKS[0]
        world.add(task)
        for _ in range(20):
            await asyncio.sleep(1)
            for number in range(1, 10):
                if world.lent.count(node(number)):
                    await world.report(number, failed(task))
            if world.started():
                world.lender.failed_here(task, failed(task))
        assert len(world.killed) == 1
        assert world.killed[0].attempt == Policy.failures_max - 1


async def test_a_host_that_nobody_reaches_is_left_to_its_owner_which_goes_on_trying() -> None:
    async with a_world(Favours(B)) as world:
        task = TASKS[0]
        world.add(task)
        await asyncio.sleep(1)
        await world.report(1, failed(task, TaskResult.UNREACHABLE))
        await asyncio.sleep(1)
        assert world.started()
        assert world.lender.failed_here(task, failed(task, TaskResult.UNREACHABLE)), "another has not tried yet"
        await asyncio.sleep(1)
        await world.report(2, failed(task, TaskResult.UNREACHABLE))
        await asyncio.sleep(1)
        assert not world.killed
        patient = [args["patient"] for _, name, args in world.peers.called if name == Lend.terms.name]
        assert patient == [(), ()]
        assert world.started(), "it is its owner's, which goes on trying"
        assert not world.lender.failed_here(task, failed(task, TaskResult.UNREACHABLE))
        assert world.lender.failed_here(task, failed(task))
        assert len(world.killed) == 1


async def test_a_host_that_many_nodes_cannot_reach_is_not_given_up_for_it() -> None:
    async with a_world(Favours(*map(node, range(1, 10)))) as world:
        world.peers.view = view_of(range(10))
        world.incarnations.update({node(number): 1 for number in range(10)})
        task = TASKS[0]
        world.add(task)
        tried: list[int] = []
        while not tried or tried[-1] != 0:
            await asyncio.sleep(1)
            tried += [number for number in range(1, 10) if world.lent.count(node(number))]
            if world.started():
                tried.append(0)
            else:
                await world.report(tried[-1], failed(task, TaskResult.UNREACHABLE))
        assert len(tried) > Policy.failures_max, "the one that reaches it is the last to be asked"
        assert not world.killed


async def test_an_owner_that_cannot_connect_again_goes_on_with_a_task_itself() -> None:
    async with a_world(Only(OWN)) as world:
        world.add(TASKS[0])
        await asyncio.sleep(1)
        assert world.started()
        assert world.lender.failed_here(TASKS[0], failed(TASKS[0], TaskResult.UNREACHABLE)), "others may reach it"
        await asyncio.sleep(1)
        assert world.started(), "the policy ranks nobody else"
        assert not world.lender.failed_here(TASKS[0], failed(TASKS[0], TaskResult.UNREACHABLE))
        assert world.lender.failed_here(TASKS[0], failed(TASKS[0])), "that was all it could try"
        assert [kill.key for kill in world.killed] == [TASKS[0].key]


async def test_only_who_has_a_task_can_give_it_back() -> None:
    async with a_world(Favours(B)) as world:
        world.add(TASKS[0])
        await asyncio.sleep(1)
        await world.report(2, failed(TASKS[0]))
        assert TASKS[0].key in world.lent


async def test_a_worker_that_is_slow_to_answer_is_not_told_of_what_another_has_by_then() -> None:
    async with a_world(Favours(B)) as world:
        world.add(TASKS[0])
        await asyncio.sleep(0.005)
        world.incarnations[B] = 2  # started again, while the record is on its way
        world.lent.let_go([TASKS[0].key])
        world.lent.lend(C, 1, "a", [TASKS[0].key], world.clock.monotonic(), 30.0)
        await asyncio.sleep(1.0)
        assert world.lent_to(1) == []
        assert world.lent.count(C) == 1


async def test_who_leaves_recalls_everything() -> None:
    async with a_world(Favours(B)) as world:
        world.peers.calls[Recall.terms.name] = lambda args: {"keys": tuple(args["keys"][:2])}
        world.add(*TASKS[:4])
        await asyncio.sleep(1.0)
        world.lends = False
        world.lender.stop()
        await asyncio.sleep(0.1)
        assert len(world.requeued) == 2
        await asyncio.sleep(5.0)
        assert len(world.lent) == 2, "nothing is lent again"


async def test_a_report_of_what_is_not_lent_teaches_the_policy_nothing() -> None:
    async with a_world(Favours(B)) as world:
        world.add(TASKS[0])
        await asyncio.sleep(1.0)
        page = TaskOutcome(TASKS[0].key, "somewhere else", TaskResult.PAGE, 1.0)
        await world.report(2, page)
        await world.report(1, page._replace(key=TASKS[9].key))
        world.lender.state.over([TASKS[0].key])
        await world.report(1, page)
        await world.report(1, page)
        assert [(outcome.node, outcome.host) for outcome, _ in world.heard()] == [(B, "a")], "once, of its host"


async def test_what_is_not_begun_within_its_budget_is_recalled_and_what_is_in_flight_stays() -> None:
    policy = Favours(B)
    async with a_world(policy) as world:
        world.peers.calls[Recall.terms.name] = lambda args: {"keys": (TASKS[0].key,)}
        world.add(*TASKS[:2])
        await asyncio.sleep(25.0)
        await world.report(1)
        assert Recall.terms.name not in [name for _, name, _ in world.peers.called]
        await asyncio.sleep(10.0)
        assert world.requeued == [TASKS[0].key]
        assert TASKS[1].key in world.lent


PATIENT = AssignmentTerms(batch=5, budget_s=600.0, idle_s=60.0)


class Recalls(Only):
    """Ranks one node, and leaves a task to a person after five recalls."""

    recalls_max = 5

    def __init__(self) -> None:
        super().__init__(B, terms=PATIENT)


async def test_what_one_takes_and_never_begins_is_recalled_after_a_minute_and_a_persons_after_five() -> None:
    async with a_world(Recalls()) as world:
        task = TASKS[0]
        world.add(task)
        for _ in range(30):
            await asyncio.sleep(10.0)
            await world.report(1)  # it runs on
        assert not world.killed
        assert 4 <= len(world.requeued) < 5
        for _ in range(4):
            await asyncio.sleep(10.0)
            await world.report(1)
        (kill,) = world.killed
        assert (kill.key, kill.host, kill.reason, kill.attempt) == (task.key, "a", SkipReason.RECALLED, 4)
        assert kill.detail == f"taken and not begun, recalled from: {B.hex()[:8]} (5)"
        assert (len(world.lent), len(world.requeued)) == (0, 4), "it is nobody's any more"


async def test_a_recall_after_less_than_a_minute_without_a_page_does_not_count() -> None:
    policy = Recalls()
    policy.given = AssignmentTerms(batch=5, budget_s=600.0, idle_s=20.0)
    async with a_world(policy) as world:
        world.add(TASKS[0])
        for _ in range(60):
            await asyncio.sleep(10.0)
            await world.report(1)
        assert (world.killed, len(world.requeued) > 20) == ([], True)


async def test_what_a_silent_node_has_is_a_persons_after_all_others_were_asked_five_times() -> None:
    async with a_world(Recalls()) as world:
        world.peers.calls[Recall.terms.name] = lambda args: Failure(FailureKind.TIMEOUT, "no answer")
        world.add(TASKS[0])
        await asyncio.sleep(4.5 * SILENT_S)
        assert not world.killed
        await asyncio.sleep(SILENT_S)
        assert [(kill.key, kill.reason) for kill in world.killed] == [(TASKS[0].key, SkipReason.RECALLED)]
        assert world.unheard == [TASKS[0].key] * 5


async def test_what_waits_on_purpose_at_a_worker_or_comes_back_by_itself_is_never_a_persons() -> None:
    policy = Recalls()
    async with a_world(policy) as world:
        polite, given_back = TASKS[:2]
        world.peers.calls[Recall.terms.name] = lambda args: {
            "keys": args["keys"],
            "kept_back": tuple(key for key in args["keys"] if key == polite.key),
        }
        world.add(polite, given_back)
        for _ in range(70):
            await asyncio.sleep(10.0)
            await world.report(1, failed(given_back, TaskResult.RECALLED))
        assert not world.killed
        assert world.requeued.count(polite.key) > 10
    assert policy.heard_of == [], "nor does the policy count it against its node"


async def test_a_node_that_brings_other_pages_of_the_host_is_not_idle() -> None:
    async with a_world(Recalls()) as world:
        world.add(*TASKS[:2])
        page = TaskOutcome(TASKS[0].key, "a", TaskResult.PAGE, 1.0)
        for _ in range(18):
            await asyncio.sleep(30.0)
            await world.report(1, page)
        assert world.requeued == []


async def test_where_the_policy_names_no_number_a_task_is_never_a_persons_for_recalls() -> None:
    async with a_world(Only(B, terms=PATIENT)) as world:
        world.add(TASKS[0])
        for _ in range(100):
            await asyncio.sleep(10.0)
            await world.report(1)
        assert (world.killed, len(world.requeued) > 10) == ([], True)


async def test_a_worker_that_is_gone_or_was_started_again_or_is_silent_loses_what_it_has() -> None:
    async with a_world(Favours(B)) as world:
        world.peers.calls[Recall.terms.name] = lambda args: Failure(FailureKind.TIMEOUT, "no answer")
        world.add(*TASKS[:5])
        await asyncio.sleep(5.0)
        world.incarnations[B] = 2
        await asyncio.sleep(2.0)
        assert sorted(world.unheard) == [task.key for task in TASKS[:5]]
        world.unheard.clear()
        await asyncio.sleep(SILENT_S / 2)
        await world.report(1)
        await asyncio.sleep(SILENT_S - 10)
        assert world.unheard == []
        await asyncio.sleep(20.0)
        assert len(world.unheard) == 5
        assert world.requeued == [], "what others know is asked first"


@pytest.mark.parametrize("pinned", [False, True])
async def test_in_a_large_swarm_those_near_the_key_are_candidates_or_those_near_the_host(pinned: bool) -> None:
    asked: list[tuple[bytes, list[bytes]]] = []

    class Listens(Favours):
        def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
            asked.append((task.key, [each.node for each in candidates]))
            return super().rank(task, candidates, now)

    policy = Listens()
    policy.pinned = pinned
    async with a_world(policy) as world:
        ids = [bytes([number]) * 20 for number in range(200)]
        world.peers.view = View(Member(each, ("10.0.0.1", 1)) for each in ids)
        world.add(*TASKS[:3])
        await asyncio.sleep(1.0)
        for key, nodes in asked:
            place = host_key("a") if pinned else placement(key)
            assert sorted(nodes) == sorted(sorted(ids, key=lambda each: distance(place, each))[: Policy.candidates_max])
    assert asked


async def test_a_policy_that_does_not_answer_is_replaced() -> None:
    async def never(work: Callable[[], Choice]) -> None:
        await asyncio.sleep(5.0)

    async with a_world(Favours(B), never) as world:
        world.add(*TASKS[:3])
        await asyncio.sleep(6.0)
        assert world.lender.state.policy.given_up
        assert len(world.started()) + len(world.lent_to(1)) + len(world.lent_to(2)) == 3


async def test_what_others_own_by_now_is_lent_no_longer() -> None:
    async with a_world(Favours(B)) as world:
        world.add(*TASKS[:2])
        await asyncio.sleep(1.0)
        world.owns([TASKS[0].key])
        assert list(world.lent) == [TASKS[0].key]
        assert world.requeued == []
