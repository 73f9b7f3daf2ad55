"""What a transaction decides by a snapshot, and the loop checks once more, keeps queues and memory in line.

The committer here runs a transaction when the test lets it, and the loop hears
of it later still; meanwhile keys change hands.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from crawl.by_hand import make
from storage.stores import CRAWL, SPEC

from dhtcrawl.crawl.due_tasks import DueTasks
from dhtcrawl.crawl.frontier import Frontier
from dhtcrawl.crawl.intake import Intake
from dhtcrawl.crawl.refill import Refill
from dhtcrawl.crawl.rounds import CrawlCounters, CrawlStart
from dhtcrawl.sim.loop import VirtualClock
from dhtcrawl.storage.store import keys, replicas, tasks
from dhtcrawl.storage.store.committer import GroupRunner, Outcome, deliver
from dhtcrawl.storage.store.known_depths import DepthTable
from dhtcrawl.storage.store.memory import MemoryEngine
from dhtcrawl.storage.store.ownership import OwnershipSnapshot
from dhtcrawl.storage.store.records import State, unpack_task
from dhtcrawl.storage.store.txn import Txn
from dhtcrawl.swarm.assignment.ownership import KeySet, SwarmOwnership
from dhtcrawl.swarm.assignment.queues import AssignmentQueues
from swarm.fake_peers import node
from swarm.sync_swarm import copy

T = TypeVar("T")
OTHER = node(1)
TASKS = [copy(number) for number in range(20)]
KEYS = [task.key for task in TASKS]


class Claim:
    """Like `KeyClaim`, for any set of keys; never changes."""

    def __init__(self, ours: Iterable[bytes]) -> None:
        self.ours = frozenset(ours)

    def owns(self, key: bytes) -> bool:
        return key in self.ours

    def owned(self, keys: Iterable[bytes]) -> list[bytes]:
        return [key for key in keys if key in self.ours]

    def mine(self, key: bytes) -> bool:
        return key in self.ours


class SlowCommitter:
    """Transactions in order, each when a test says so."""

    failed = None

    def __init__(self, engine: MemoryEngine) -> None:
        self._runner = GroupRunner(engine, sync=False)
        self._jobs: list[Any] = []
        self._outcomes: list[Outcome] = []

    def submit(self, function: Callable[[Txn], T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.append((function, future))
        return future

    async def close(self) -> None:
        raise AssertionError

    def run_one(self) -> bool:
        jobs, self._jobs = self._jobs[:1], self._jobs[1:]
        self._outcomes += self._runner.run(jobs)
        return bool(jobs)

    def tell_one(self) -> bool:
        told, self._outcomes = self._outcomes[:1], self._outcomes[1:]
        deliver(told)
        return bool(told)


class OneSide:
    """One node's side of a crawl in a swarm; its backups answer when a test says so."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self.engine = MemoryEngine()
        self.committer = SlowCommitter(self.engine)
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.frontier: Frontier = make(parallel=100)
        claim: Any = Claim(())
        self.ownership = SwarmOwnership(claim)
        self.orders = itertools.count(1)
        self.waiting: list[Callable[[], None]] = []
        own = self.ownership
        together = SimpleNamespace(
            joins=False,
            mine=own.mine,
            owns=own.owns,
            owned=own.owned,
            held=own.held,
            snapshot=own.snapshot,
            keep=lambda copies, then: self.waiting.append(then),
            busy=True,
            when_kept=lambda key, then: False,
            unsafe=lambda key: False,
            took_part=lambda nodes: None,
            tell=lambda copies: None,
        )
        services: Any = SimpleNamespace(
            committer=self.committer,
            clock=self.clock,
            ports=SimpleNamespace(ownership=together, replication=together, record=together),
            safe_tasks=DepthTable(),
        )
        corridor: Any = SimpleNamespace(resend=lambda pages: None)
        spec: Any = SimpleNamespace(seeds=(), searches=SPEC.searches, settings=SPEC.settings, key_of=SPEC.key_of)
        self.due = DueTasks(self.frontier, own, self.clock)
        start = CrawlStart(spec, CRAWL, CrawlCounters(), [], {})
        self.intake = Intake(services, start, self.frontier, self.due, corridor, self.orders, changed=lambda: None)
        crawl: Any = SimpleNamespace(
            frontier=self.frontier, intake=self.intake, next_round=corridor, changed=lambda: None
        )
        run: Any = SimpleNamespace(parts=crawl, crawl_id=CRAWL, owning=True, may_start=True, leaving=False)
        self.queues = AssignmentQueues(
            run, self.clock, self.committer, ownership=own, merge=self._no_merge, lending=True
        )
        self._group = group
        self._refill = Refill(services, CRAWL, self.frontier, self.due, refilled=lambda: None)
        self._running = [group.create_task(self.intake.run()), group.create_task(self._refill.run())]
        self.started: set[bytes] = set()

    async def _no_merge(self, crawl: bytes, found: Any, worker: bytes) -> Any:
        raise AssertionError

    # What may happen on the loop; each is what the node does then

    def comes(self, key: bytes) -> None:
        """A record comes from another node."""
        self._group.create_task(self._merge(key))

    async def _merge(self, key: bytes) -> None:
        now, found = self.ownership.snapshot([key]), [TASKS[KEYS.index(key)]]
        self.intake.merged(
            await self.committer.submit(
                lambda txn: replicas.merge_in(
                    txn, CRAWL, found, self.orders, mine=now.mine, held=now.held, depth_matters=False
                )
            )
        )

    def changes_hands(self, key: bytes) -> None:
        """The view changes: a key is ours, or is not any more."""
        claim: Any = self.ownership.claim
        ours = claim.ours ^ {key}
        changed: Any = Claim(ours)
        self.ownership.reclaim(changed)
        self.intake.view_changed(ours)

    def borrowed(self, key: bytes) -> None:
        """Another node lets us fetch a task, or takes it back."""
        if key in self.ownership.borrowed:
            self.ownership.borrowed.give_back(key)
            self.queues.forget([key])
        else:
            self.ownership.borrowed.borrow(OTHER, 1, [key], 0.0)
        self._group.create_task(self.queues.requeue([key]))

    def lent(self, key: bytes) -> None:
        """We let another node fetch a task, or take it back."""
        lent = self.ownership.lent
        if key in lent:
            lent.let_go([key])
            self._group.create_task(self.queues.requeue([key]))
        elif self.ownership.owns(key) and not self.ownership.held(key):
            host = TASKS[KEYS.index(key)].task.url.split("/")[2]
            lent.lend(OTHER, 1, host, [key], 0.0, 60.0)
            self.frontier.lend(host, {key}, self.clock.monotonic())
            self._group.create_task(self.queues.write_lent([key]))

    def inherited(self, key: bytes) -> None:
        """The former owner has a task in flight, or says that nothing came of it."""
        held = self.ownership.inherited
        if key in held:
            held.let_go([key])
            self._group.create_task(self._let_go(key))
        else:
            held.hold(OTHER, 1, [key], 0.0)
            self.frontier.disown(lambda each: each not in held, self.clock.monotonic())

    async def _let_go(self, key: bytes) -> None:
        await self.queues.requeue_held([key])

    def starts(self, _: bytes) -> None:
        """The crawl starts what there is, and gives it up at once."""
        now = self.clock.monotonic()
        while (job := self.frontier.next(now)) is not None:
            assert job.task is not None
            key = job.task.key
            assert self.ownership.mine(key), "what is not ours is not started"
            assert not self.ownership.held(key), "nor what another node has"
            self.started.add(key)
            self.frontier.finish(job, now)
            self._group.create_task(self._kill(job.host, key))

    async def _kill(self, host: str, key: bytes) -> None:
        await self.committer.submit(lambda txn: tasks.kill(txn, CRAWL, key, "failed", "", 0))
        self.due.written(key)
        self.frontier.written(host, key, self.clock.monotonic())

    def commits(self, _: bytes) -> None:
        self.committer.run_one()

    def is_told(self, _: bytes) -> None:
        self.committer.tell_one()

    def backups_have_it(self, _: bytes = b"") -> bool:
        waiting, self.waiting = self.waiting, []
        for then in waiting:
            then()
        return bool(waiting)

    def goes_on(self) -> bool:
        """Fronts are filled from the store when they run low."""
        wanted = self.frontier.wants_refill or self.frontier.wants_hosts
        if wanted:
            self._refill.wanted()
        return wanted

    def memory_is_right(self) -> None:
        """Every task that may be started is this node's to start, at every moment."""
        before, owned = len(self.frontier), self.ownership
        self.frontier.disown(lambda key: owned.mine(key) and not owned.held(key), self.clock.monotonic())
        assert len(self.frontier) == before

    # The end

    async def comes_to_rest(self) -> None:
        for _ in range(200):
            await asyncio.sleep(0.01)  # fronts are filled again after a pause, if that brought nothing
            self.goes_on()
            more = [self.committer.run_one(), self.committer.tell_one(), self.backups_have_it()]
            if not any(more):
                await asyncio.sleep(0)
                idle = self.intake.idle and not (self._refill.busy or self.goes_on())
                if idle and not (self.committer.run_one() or self.committer.tell_one()):
                    break

    def ends(self) -> None:
        for task in self._running:
            task.cancel()

    def wanted(self) -> set[bytes]:
        """Open tasks that belong into a queue of this node."""
        values = {key: self.engine.get(keys.TASK + CRAWL + key) for key in KEYS}
        open_ = [key for key, value in values.items() if value and unpack_task(value).state == State.PENDING]
        return {key for key in open_ if self.ownership.mine(key) and not self.ownership.held(key)}

    def queued(self) -> set[bytes]:
        return {keys.queue_task(key) for key, _ in self.engine.scan(*keys.bounds(keys.QUEUE, CRAWL))}


STEPS = 300
CHANGES: list[Callable[[OneSide, bytes], object]] = [
    OneSide.comes,
    OneSide.changes_hands,
    OneSide.borrowed,
    OneSide.lent,
    OneSide.inherited,
]
PASSES: list[Callable[[OneSide, bytes], object]] = [OneSide.commits, OneSide.is_told] * 5 + [
    OneSide.backups_have_it,
    OneSide.backups_have_it,
    OneSide.starts,
]


@pytest.mark.parametrize("seed", range(40))
async def test_queues_and_memory_are_right_however_late_a_transaction_runs_and_is_told(seed: int) -> None:
    rng = random.Random(seed)
    steps: list[tuple[Callable[[OneSide, bytes], object], bytes]] = [
        (rng.choice(rng.choice([CHANGES, PASSES, PASSES])), rng.choice(KEYS)) for _ in range(STEPS)
    ]

    async with asyncio.TaskGroup() as group:
        world = OneSide(group)
        for act, key in steps:
            act(world, key)
            world.goes_on()
            await asyncio.sleep(0)
            world.memory_is_right()
        await world.comes_to_rest()
        left_over = world.queued() - world.wanted()
        assert world.wanted() <= world.queued()
        # What was inherited after it was queued stays there, and is passed over until it is let go.
        assert all(key in world.ownership.inherited for key in left_over)
        wanted, world.started = world.wanted(), set()
        world.starts(KEYS[0])
        assert world.started == wanted, "nothing is forgotten"
        await world.comes_to_rest()
        world.ends()


async def test_a_task_that_changes_hands_while_its_backups_are_asked_is_not_started() -> None:
    async with asyncio.TaskGroup() as group:
        world, key = OneSide(group), KEYS[0]
        world.changes_hands(key)
        await world.comes_to_rest()
        world.comes(key)
        while not world.waiting:
            await asyncio.sleep(0)
            world.committer.run_one()
            world.committer.tell_one()
        assert world.queued() == {key}
        world.changes_hands(key)
        world.backups_have_it()
        world.memory_is_right()
        await world.comes_to_rest()
        assert world.queued() == set()
        world.ends()


# Snapshots


def test_a_snapshot_stays_what_it_was() -> None:
    a, b, c, d = KEYS[:4]
    first: Any = Claim([a, b])
    owned = SwarmOwnership(first)
    owned.borrowed.borrow(OTHER, 1, [c], 0.0)
    owned.inherited.hold(OTHER, 1, [a], 0.0)
    some, whole = owned.snapshot([a, c]), owned.snapshot()
    owned.reclaim(SwarmOwnership(first).claim)
    owned.borrowed.give_back(c)
    owned.inherited.let_go([a])
    owned.asked.add([b])
    for snapshot in (some, whole):
        assert [snapshot.mine(key) for key in KEYS[:4]] == [True, True, True, False]
        assert [snapshot.held(key) for key in KEYS[:4]] == [True, False, False, False]
    assert [owned.snapshot().held(key) for key in KEYS[:4]] == [False, True, False, False]
    assert not owned.snapshot().mine(d)


def test_a_snapshot_of_all_is_taken_once_until_something_changes() -> None:
    claim: Any = Claim(KEYS)
    owned = SwarmOwnership(claim)
    assert owned.snapshot() is owned.snapshot([KEYS[0]]), "while nothing is with others"
    changes: list[Callable[[], object]] = [
        lambda: owned.asked.add([KEYS[0]]),
        lambda: owned.inherited.hold(OTHER, 1, [KEYS[1]], 0.0),
        lambda: owned.lent.lend(OTHER, 1, "h", [KEYS[2]], 0.0, 1.0),
        lambda: owned.borrowed.borrow(OTHER, 1, [KEYS[3]], 0.0),
        lambda: owned.asked.remove([KEYS[0]]),
        lambda: owned.inherited.let_go([KEYS[1]]),
        lambda: owned.lent.let_go([KEYS[2]]),
    ]
    taken: list[OwnershipSnapshot] = []
    for change in changes:
        change()
        taken.append(owned.snapshot())
        assert owned.snapshot() is taken[-1]
        assert {key for key in KEYS if taken[-1].held(key)} == {key for key in KEYS if owned.held(key)}
    assert len({id(each) for each in taken}) == len(changes)
    owned.reclaim(claim)
    assert owned.snapshot() is not taken[-1]


def test_who_holds_what_is_known_for_whoever_owns_it_next() -> None:
    claim: Any = Claim(KEYS)
    owned = SwarmOwnership(claim)
    one, other, third = KEYS[:3]
    owned.inherited.hold(OTHER, 1, [one, other], 0.0)
    owned.inherited.hold(node(2), 1, [other, third], 0.0)
    owned.lent.lend(node(3), 1, "h", [third], 0.0, 1.0)
    assert owned.holders() == {one: OTHER, other: node(2), third: node(3)}, "our own word goes first"


def test_who_may_say_that_a_task_is_over_is_who_has_it_and_anybody_while_others_are_asked() -> None:
    claim: Any = Claim(KEYS)
    owned, (lent, asked, inherited, free) = SwarmOwnership(claim), KEYS[:4]
    owned.lent.lend(OTHER, 1, "h", [lent], 0.0, 1.0)
    owned.asked.add([asked])
    owned.inherited.hold(OTHER, 1, [inherited], 0.0)
    for key, by_holder, by_another in (
        (lent, True, False),
        (asked, True, True),
        (inherited, False, False),  # a node may say of any task that it has it in flight
        (free, False, False),
    ):
        assert (owned.may_end(key, OTHER), owned.may_end(key, node(2))) == (by_holder, by_another)
    assert [owned.holder(key) for key in (lent, asked, inherited, free)] == [OTHER, None, OTHER, None]


def test_a_node_tries_again_what_it_owns_alone_and_what_it_was_lent() -> None:
    own, held, lent, foreign = KEYS[:4]
    claim: Any = Claim([own, held])
    owned = SwarmOwnership(claim)
    owned.inherited.hold(OTHER, 1, [held], 0.0)
    owned.borrowed.borrow(OTHER, 1, [lent], 0.0)
    assert [owned.stays(key) for key in (own, held, lent, foreign)] == [True, False, True, False]


def test_a_policy_chooses_for_what_it_has_not_decided_about_and_not_for_what_was_lent_here() -> None:
    claim: Any = Claim(KEYS)
    owned = SwarmOwnership(claim, undecided=KEYS[:2])
    owned.borrowed.borrow(OTHER, 1, [KEYS[1]], 0.0)
    assert [owned.waits(key) for key in KEYS[:3]] == [True, False, False]


@pytest.mark.parametrize("what", ["inherited", "asked", "lent", "borrowed"])
def test_a_snapshot_knows_of_a_task_that_is_with_others_or_here_for_another(what: str) -> None:
    claim: Any = Claim(KEYS[:1])
    owned, key = SwarmOwnership(claim), KEYS[3 if what == "borrowed" else 0]
    match what:
        case "inherited":
            owned.inherited.hold(OTHER, 1, [key], 0.0)
        case "asked":
            owned.asked.add([key])
        case "lent":
            owned.lent.lend(OTHER, 1, "h", [key], 0.0, 1.0)
        case _:
            owned.borrowed.borrow(OTHER, 1, [key], 0.0)
    for snapshot in (owned.snapshot(), owned.snapshot([key])):
        assert (snapshot.mine(key), snapshot.held(key)) == (True, what != "borrowed")
        assert not snapshot.mine(KEYS[5])


def test_a_set_of_keys_says_when_it_changes() -> None:
    found = KeySet()
    found.add(KEYS[:2])
    version = found.version
    found.remove(KEYS[:1])
    assert (list(found), len(found), KEYS[0] in found, found.version > version) == (KEYS[1:2], 1, False, True)
