"""Whatever an owner hears, and in which order: a task is in one place, at one node, and never lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dhtcrawl.crawl.ports import TaskOutcome
from dhtcrawl.policy.guard import Guard
from dhtcrawl.policy.seam import AssignmentTerms, TaskResult
from dhtcrawl.storage.store.tasks import Queued
from dhtcrawl.swarm.assignment import assigner_state, heard
from dhtcrawl.swarm.assignment.assigned import SILENT_S
from dhtcrawl.swarm.assignment.assigner_state import AssignerState
from dhtcrawl.swarm.assignment.failures import Failures
from dhtcrawl.swarm.assignment.ownership import SwarmOwnership
from dhtcrawl.swarm.assignment.steps import (
    AskOthers,
    Effect,
    GiveUp,
    MakeForget,
    PutBack,
    Requeue,
    Send,
    StartHere,
    TakeBack,
    TakeOut,
)
from swarm.fake_peers import view_of

from .assigning_world import OWN, TASKS, B, C, Favours

BATCH = 3
SOME = {task.key: task for task in TASKS[:8]}
VIEW = view_of([0, 1, 2])
HOST = "a"


class Owned:
    """A core with what is around it: the queues of the crawl as sets, and nodes that come and go."""

    def __init__(self) -> None:
        self.now = 100.0
        self.ours = set(SOME)
        self.waiting = dict.fromkeys(SOME)  # in the frontier, for a choice
        self.started: dict[bytes, None] = {}  # in the frontier, for this node to fetch
        self.ended: set[bytes] = set()  # fetched, or given up
        self.incarnations: dict[bytes, int] = {OWN: 1, B: 1, C: 1}
        claim: Any = SimpleNamespace(owns=self.ours.__contains__, mine=self.ours.__contains__)
        self.ownership = SwarmOwnership(claim)
        frontier: Any = SimpleNamespace(load=lambda host: len(self.started), delay_s=lambda host: 1.0)
        self.policy = Favours(B, terms=AssignmentTerms(batch=BATCH, budget_s=30.0, idle_s=20.0))
        self.policy.recalls_max = 2
        self.state = AssignerState(
            OWN, Guard(self.policy), Failures(), self.ownership, frontier, self.incarnations.get
        )  # fmt: skip
        self.sends: list[Send] = []  # records on their way
        self.recalls: list[TakeBack] = []
        self.told: list[Send] = []  # tasks on their way, after their records
        self.has: dict[bytes, tuple[bytes, int]] = {}  # task → the node that may begin it, by all that it was told
        self.heard_at = dict.fromkeys((B, C), self.now)

    # What the shell does

    def apply(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case StartHere(_, keys):
                    self.waiting = {key: None for key in self.waiting if key not in keys}
                    self.started |= dict.fromkeys(keys)
                case TakeOut(_, keys):
                    self.waiting = {key: None for key in self.waiting if key not in keys}
                case PutBack(_, task):
                    self.started.pop(task.key)
                    self.requeue([task.key])
                case GiveUp(_, key):
                    self.started.pop(key, None)
                    self.ended.add(key)
                case Requeue(keys):
                    self.requeue(keys)
                case AskOthers(keys):
                    self.ownership.asked.add(keys)
                case Send():
                    self.sends.append(effect)
                case TakeBack():
                    self.recalls.append(effect)
                case MakeForget(node):
                    self.has = {key: at for key, at in self.has.items() if at[0] != node}
                    self.state.forgot(node, self.now)

    def requeue(self, keys: Sequence[bytes]) -> None:
        for key in keys:
            if key in self.ours and key not in self.ended:
                assert not self.ownership.held(key), "what is queued is at no node"
                self.waiting[key] = None

    # What happens

    def choose(self) -> None:
        tasks = [SOME[key] for key in self.waiting]
        choice = self.state.ask(tasks, VIEW, self.now).answer()
        self.apply(self.state.chosen(tasks, choice, self.now))

    def may_hold(self, key: bytes) -> bytes | None:
        """The node that may begin a task still, as nothing has told it otherwise."""
        node, incarnation = self.has.get(key, (None, None))
        if node is None or self.incarnations.get(node) != incarnation or self.now - self.heard_at[node] >= SILENT_S:
            return None
        return node

    def lost(self) -> list[bytes]:
        """Tasks of ours that are neither ended nor anywhere."""
        asked, lent = self.ownership.asked, self.state.lent
        places = (self.waiting, self.started, asked, lent)
        return [key for key in self.ours - self.ended if not any(key in place for place in places)]


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = Owned()

    @rule()
    def the_policy_chooses(self) -> None:
        self.world.choose()

    @precondition(lambda self: self.world.sends)
    @rule(data=st.data(), acked=st.booleans())
    def records_arrive_or_are_refused(self, data: st.DataObject, acked: bool) -> None:
        world = self.world
        send = world.sends.pop(data.draw(st.integers(0, len(world.sends) - 1)))
        world.state.written(send, send.tasks.keys() - world.ended)
        if acked:
            world.told.append(send)
        else:
            world.requeue(world.state.refused(send, world.now))

    @precondition(lambda self: self.world.told)
    @rule(data=st.data(), answer=st.sampled_from(["took", "refused", "no answer", "lost"]))
    def tasks_are_offered(self, data: st.DataObject, answer: str) -> None:
        world = self.world
        send = world.told.pop(data.draw(st.integers(0, len(world.told) - 1)))
        offer = world.state.offer(send, VIEW, world.now)
        assert set(offer.patient) <= set(offer.keys)
        for key in offer.keys:
            loan = world.state.lent.get(key)
            assert loan is not None
            assert loan.node == send.node, "nobody is told of what another has by then"
            assert world.may_hold(key) in (None, send.node), "a task is out at one node"
            if answer in ("took", "no answer") and loan.incarnation is not None:
                world.has[key] = (send.node, loan.incarnation)
        if answer == "refused":
            world.requeue(world.state.refused(send, world.now))
        elif offer.keys:
            world.state.took(send, world.now)

    @rule(node=st.sampled_from([B, C]), data=st.data())
    def a_worker_reports(self, node: bytes, data: st.DataObject) -> None:
        world = self.world
        if node not in world.incarnations:
            return
        holds = [key for key in world.has if world.has[key] == (node, world.incarnations[node])]
        told = []
        for key in data.draw(st.lists(st.sampled_from(holds), unique=True)) if holds else []:
            result = data.draw(st.sampled_from(TaskResult))
            told.append(TaskOutcome(key, HOST, result, 1.0, detail="it hangs"))
            del world.has[key]
            if result is TaskResult.PAGE:
                world.ended.add(key)
        world.heard_at[node] = world.now
        world.apply(world.state.reported(node, told, VIEW, world.now))

    @rule(key=st.sampled_from(list(SOME)))
    def a_record_says_that_a_task_is_over(self, key: bytes) -> None:
        world = self.world
        if key in world.ended:
            world.state.over([key])

    @rule(data=st.data())
    def this_node_ends_a_task(self, data: st.DataObject) -> None:
        world = self.world
        if not world.started:
            return
        key = data.draw(st.sampled_from(list(world.started)))
        result = data.draw(st.sampled_from([TaskResult.PAGE, TaskResult.FAILED, TaskResult.UNREACHABLE]))
        given = TaskOutcome(key, HOST, result, 1.0, detail="status 503")
        if result is TaskResult.PAGE:
            world.state.brought_here(given, world.now)
        else:
            effects = world.state.failed_here(SOME[key], given, VIEW, world.now)
            world.apply(effects)
            if effects or result is TaskResult.UNREACHABLE:
                return  # it has gone on, or is tried here again
        del world.started[key]
        world.ended.add(key)

    @rule()
    def the_owner_looks(self) -> None:
        self.world.apply(self.world.state.look(self.world.now))

    @precondition(lambda self: self.world.recalls)
    @rule(data=st.data())
    def a_recall_is_answered(self, data: st.DataObject) -> None:
        world = self.world
        asked = world.recalls.pop(data.draw(st.integers(0, len(world.recalls) - 1)))
        keys = data.draw(st.lists(st.sampled_from(list(asked.keys)), unique=True))
        for key in keys:
            if world.has.get(key, (None,))[0] == asked.node:
                del world.has[key]
        kept_back = keys[: len(keys) // 3]
        world.apply(world.state.let_go(asked, keys, kept_back, world.now))

    @rule()
    def all_have_answered(self) -> None:
        world = self.world
        keys = list(world.ownership.asked)
        world.ownership.asked.remove(keys)
        # Whoever fetched one has told the others, who tell us; the rest nobody knows of, and nobody will fetch.
        over = world.state.recalled_too_often(keys)
        world.apply(over)
        world.requeue([key for key in keys if key not in {each.key for each in over}])

    @rule(seconds=st.floats(0.1, SILENT_S))
    def time_passes(self, seconds: float) -> None:
        self.world.now += seconds

    @rule(answered=st.booleans())
    def all_workers_fall_silent(self, answered: bool) -> None:
        self.world.now += SILENT_S
        self.the_owner_looks()
        if answered:
            self.all_have_answered()

    @rule(node=st.sampled_from([B, C]), change=st.sampled_from(["goes", "comes back", "is started again"]))
    def a_worker_comes_and_goes(self, node: bytes, change: str) -> None:
        world = self.world
        if change == "goes":
            # Nobody is told of a task of a node that is gone before the owner has taken it back.
            world.incarnations.pop(node, None)
            world.apply(world.state.look(world.now))
        elif node not in world.incarnations or change == "is started again":
            world.incarnations[node] = max([1, *(at[1] for at in world.has.values())]) + (change != "comes back")
        world.apply(world.state.view_changed())

    @rule(key=st.sampled_from(list(SOME)))
    def a_task_changes_owners(self, key: bytes) -> None:
        world = self.world
        if key in world.ours:
            world.ours.remove(key)
            world.waiting.pop(key, None)
            world.started.pop(key, None)
            world.has.pop(key, None)  # its worker forgets it, by the same view
        else:
            world.ours.add(key)
            if not world.ownership.held(key) and key not in world.ended:
                world.waiting[key] = None
        world.apply(world.state.view_changed())

    @invariant()
    def no_task_is_lost(self) -> None:
        assert self.world.lost() == []

    @invariant()
    def a_task_is_in_one_place(self) -> None:
        world = self.world
        places = (world.waiting, world.started, world.ownership.asked, world.state.lent)
        for key in SOME:
            assert sum(key in place for place in places) <= 1

    @invariant()
    def nobody_has_more_than_its_batch(self) -> None:
        for node in (B, C):
            assert self.world.state.lent.count(node) <= BATCH
        held = Counter(loan.node for key in self.world.state.lent if (loan := self.world.state.lent.get(key)))
        assert all(self.world.state.lent.count(node, HOST) == count for node, count in held.items())


Machine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestAnyOrder = Machine.TestCase


def lent(world: Owned, node: bytes) -> list[bytes]:
    return [key for key in world.state.lent if (loan := world.state.lent.get(key)) and loan.node == node]


def test_the_best_gets_its_batch_and_the_next_the_rest() -> None:
    world = Owned()
    world.choose()
    assert (len(lent(world, B)), len(world.started), len(lent(world, C))) == (BATCH, BATCH, len(SOME) - 2 * BATCH)
    assert [send.node for send in world.sends] == [B, C]


def test_a_policy_is_shown_what_the_queue_says_of_a_task() -> None:
    tasks: list[Queued] = list(SOME.values())
    shown = Owned().state.ask(tasks, VIEW, 0.0).tasks
    assert [(each.key, each.url, each.depth) for each in shown] == [(task.key, task.url, task.depth) for task in tasks]


def test_what_another_has_by_the_time_of_a_choice_is_not_sent() -> None:
    world = Owned()
    tasks: list[Queued] = list(SOME.values())
    choice = world.state.ask(tasks, VIEW, world.now).answer()
    world.ownership.asked.add(SOME)
    world.waiting.clear()
    world.apply(world.state.chosen(tasks, choice, world.now))
    assert (world.sends, world.started, len(world.state.lent)) == ([], {}, 0)


def test_a_node_that_takes_long_over_records_is_not_told_of_what_another_has_by_then() -> None:
    world = Owned()
    world.choose()
    slow, _ = world.sends
    world.state.lent.let_go(slow.tasks)
    first, second, third = slow.tasks
    world.state.lent.lend(C, 1, HOST, [first], world.now, 30.0)
    world.state.lent.lend(B, 1, HOST, [second], world.now + 1, 30.0)
    assert world.state.offer(slow, VIEW, world.now).keys == ()
    assert world.state.refused(slow, world.now) == []
    assert third not in world.state.lent


def test_a_record_that_was_not_there_ends_no_later_assignment() -> None:
    world = Owned()
    world.choose()
    slow, _ = world.sends
    first, second, third = slow.tasks
    world.state.lent.let_go([first])
    world.state.lent.lend(C, 1, HOST, [first], world.now + 1, 30.0)
    world.state.written(slow, {third})
    assert world.state.lent.among(slow.tasks) == {first, third}
    assert second not in world.state.lent


def test_what_is_learned_is_told_once_and_is_bounded(monkeypatch: Any) -> None:
    monkeypatch.setattr(heard, "HEARD_MAX", 3)
    world = Owned()
    world.state.ask([], VIEW, world.now)
    for number in range(5):
        world.state.brought_here(TaskOutcome(bytes([number]) * 20, HOST, TaskResult.PAGE, float(number)), world.now)
    assert [outcome.seconds for outcome, _ in world.state.ask([], VIEW, world.now).heard] == [2.0, 3.0, 4.0]
    assert not world.state.ask([], VIEW, world.now).heard


def test_what_has_ended_is_remembered_for_its_report_up_to_a_limit(monkeypatch: Any) -> None:
    monkeypatch.setattr(assigner_state, "ENDED_MAX", 1)
    world = Owned()
    world.choose()
    one, other, _ = lent(world, B)
    world.state.over([one, other])
    page = TaskOutcome(one, "elsewhere", TaskResult.PAGE, 1.0)
    world.state.reported(B, [page, page._replace(key=other), page._replace(key=other)], VIEW, world.now)
    assert [outcome.host for outcome, _ in world.state.ask([], VIEW, world.now).heard] == [HOST]


def test_a_plan_is_given_to_the_policy_once() -> None:
    world = Owned()
    world.state.adopt(7, {"weights": {}})
    assert world.state.ask([], VIEW, world.now).table == {"weights": {}}
    assert (world.state.ask([], VIEW, world.now).table, world.state.epoch) == (None, 7)


def test_whoever_stops_asks_back_only_what_workers_know_of() -> None:
    world = Owned()
    world.choose()
    first, _ = world.sends
    world.state.took(first, world.now)
    assert world.state.stop() == [TakeBack(B, list(first.tasks))]


def take_all(world: Owned) -> Send:
    """Worker B is given its batch, and has been told of it."""
    world.choose()
    first, _ = world.sends
    world.state.took(first, world.now)
    return first


def given_up(world: Owned, keys: Iterable[bytes]) -> list[bytes]:
    return [each.key for each in world.state.recalled_too_often(keys)]


def test_a_node_that_was_cut_off_is_asked_again_once_it_has_forgotten_what_it_had() -> None:
    world = Owned()
    first = take_all(world)
    del world.incarnations[B]
    assert world.state.look(world.now)[0] == AskOthers(list(first.tasks))
    world.incarnations[B] = 1
    assert world.state.view_changed() == [MakeForget(B)]
    tasks: list[Queued] = [SOME[key] for key in first.tasks]
    for forgot in (False, True):
        if forgot:
            world.state.forgot(B, world.now)
        choice = world.state.ask(tasks, VIEW, world.now).answer()
        assert (B in choice.keys) is forgot, "it may fetch what was taken back from it still"


def test_a_task_that_silent_workers_have_had_too_often_is_a_persons() -> None:
    world = Owned()
    first = take_all(world)
    key = next(iter(first.tasks))
    world.now += SILENT_S
    world.state.look(world.now)
    assert given_up(world, [key]) == [], "once is not too often"
    world.state.lent.lend(B, 1, HOST, [key], world.now, 30.0)
    world.now += SILENT_S
    assert given_up(world, [key]) == [], "it is at a node"
    world.state.look(world.now)
    assert given_up(world, [key]) == [key]
    assert given_up(world, [key]) == [], "and forgotten with that"


def test_that_workers_went_or_were_started_again_is_no_fault_of_a_task() -> None:
    world = Owned()
    first = take_all(world)
    key = next(iter(first.tasks))
    for incarnation in (2, 3, 4):
        world.incarnations[B] = incarnation
        world.state.look(world.now)
        assert given_up(world, [key]) == []
        world.state.lent.lend(B, incarnation, HOST, [key], world.now, 30.0)


def test_a_task_that_a_worker_gave_back_by_itself_or_kept_for_its_hosts_sake_was_not_recalled() -> None:
    world = Owned()
    first = take_all(world)
    key, kept, recalled = first.tasks
    over = list[bytes]()
    for _ in range(2):
        world.now += 60.0
        world.state.reported(B, [TaskOutcome(key, HOST, TaskResult.RECALLED, 1.0)], VIEW, world.now)
        assert given_up(world, [key]) == []
        effects = world.state.let_go(TakeBack(B, [kept, recalled]), [kept, recalled], [kept], world.now)
        over += [each.key for each in effects if isinstance(each, GiveUp)]
        world.state.lent.lend(B, 1, HOST, first.tasks, world.now, 30.0)
    assert over == [recalled]


def test_a_worker_that_keeps_what_was_asked_for_has_its_time_anew() -> None:
    world = Owned()
    first = take_all(world)
    world.now += 30.0
    [_, back] = world.state.look(world.now)
    assert isinstance(back, TakeBack)
    assert (back.node, back.keys) == (B, list(first.tasks))
    world.state.let_go(back, [], [], world.now)
    assert len(world.state.look(world.now)) == 1, "nothing is late"


def test_a_page_that_a_worker_has_fetched_is_not_queued_again_before_its_record_comes() -> None:
    world = Owned()
    key = next(iter(take_all(world).tasks))
    assert world.state.reported(B, [TaskOutcome(key, HOST, TaskResult.PAGE, 1.0)], VIEW, world.now) == [Requeue([])]
    assert key in world.state.lent


def test_a_task_that_a_worker_failed_goes_to_others_until_all_have_failed_it() -> None:
    world = Owned()
    key = next(iter(take_all(world).tasks))
    failed = TaskOutcome(key, HOST, TaskResult.FAILED, 1.0, detail="status 503")
    for worker in (B, C):
        assert world.state.reported(worker, [failed], VIEW, world.now) == [Requeue([key])]
        assert key not in world.state.lent
        world.state.lent.lend(C, 1, HOST, [key] if worker == B else [], world.now, 30.0)
    [over] = world.state.failed_here(SOME[key], failed, VIEW, world.now)
    assert isinstance(over, GiveUp)
    assert over.key == key
    assert [said in over.detail for said in (B.hex()[:8], C.hex()[:8], OWN.hex()[:8])] == [True] * 3


def test_a_task_that_no_node_reaches_goes_round_all_that_may_be_asked() -> None:
    world = Owned()
    key = next(iter(take_all(world).tasks))
    unreachable = TaskOutcome(key, HOST, TaskResult.UNREACHABLE, 1.0, detail="connect: refused")
    for node in (B, C):
        assert world.state.reported(node, [unreachable], VIEW, world.now) == [Requeue([key])]
        world.state.lent.lend(C, 1, HOST, [key], world.now, 30.0)
    assert world.state.failed_here(SOME[key], unreachable, VIEW, world.now) == (), "the last one decides"


def test_what_is_another_nodes_by_now_is_lent_no_longer() -> None:
    world = Owned()
    first, *others = take_all(world).tasks
    world.ours.remove(first)
    world.state.view_changed()
    assert world.state.lent.among([first, *others]) == set(others)


def test_a_worker_that_reports_nothing_else_says_that_it_runs() -> None:
    world = Owned()
    first = take_all(world)
    world.now += SILENT_S - 1
    for worker in (B, C):
        world.state.reported(worker, [], VIEW, world.now)
    world.now += SILENT_S - 1
    assert world.state.look(world.now)[0] == AskOthers([])
    world.state.reported(C, [], VIEW, world.now)
    world.now += 1
    assert world.state.look(world.now)[0] == AskOthers(list(first.tasks))


def test_what_a_worker_says_of_a_task_that_another_has_by_then_ends_nothing() -> None:
    world = Owned()
    first = take_all(world)
    key = next(iter(first.tasks))
    assert world.state.reported(C, [TaskOutcome(key, HOST, TaskResult.FAILED, 1.0)], VIEW, world.now) == [Requeue([])]
    assert key in world.state.lent


def test_a_task_that_another_node_owns_by_now_is_not_passed_on_when_it_fails_here() -> None:
    world = Owned()
    key = next(iter(SOME))
    failed = TaskOutcome(key, HOST, TaskResult.FAILED, 1.0, detail="status 503")
    assert world.state.failed_here(SOME[key], failed, VIEW, world.now) == (PutBack(HOST, SOME[key]),)
    world.ours.remove(key)
    assert world.state.failed_here(SOME[key], failed, VIEW, world.now) == ()
