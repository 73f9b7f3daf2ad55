"""An owner's side of who fetches: its tasks go to the nodes that the crawl's policy ranks first.

    desk of the frontier ──policy──▶ ours: the frontier starts it
                              └─────▶ another's: out of the queue, record and loan to it

What became of a loan comes by itself, as a record, since owners are told what
is fetched anyway; the worker's report says how long it took, and which tasks it
gives back: these go to the next of the ranking. A task that enough nodes gave up
that connected, or all that may be asked, is given up for good, and its record
says what each of them said.

Under a policy that has the owner try first, only tasks come to the desk whose
host the owner could not connect to.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from dhtcrawl.clock import Clock
from dhtcrawl.crawl.frontier import Frontier
from dhtcrawl.crawl.next_round import NextRound
from dhtcrawl.crawl.ports import TaskOutcome
from dhtcrawl.crawl.rounds import Kill
from dhtcrawl.loop_state import loop_state
from dhtcrawl.policy.choice import Choice, choose, learn_and_choose
from dhtcrawl.policy.guard import DECIDES_WITHIN_S, Guard
from dhtcrawl.policy.seam import Outcome, PolicyTask, TaskResult
from dhtcrawl.rpc.peers.port import Peers
from dhtcrawl.rpc.tasks.events import Failure, FailureKind
from dhtcrawl.rpc.tasks.messages import Ack, StoreBackup
from dhtcrawl.storage.store.records import SkipReason
from dhtcrawl.storage.store.replicas import Merged, TaskReplica
from dhtcrawl.storage.store.tasks import Queued
from dhtcrawl.swarm import calls
from dhtcrawl.swarm.assignment.assigned import Assigned, IncarnationOf, TaskAssignment
from dhtcrawl.swarm.assignment.candidates import Candidates
from dhtcrawl.swarm.assignment.failures import Failures
from dhtcrawl.swarm.records import wire
from dhtcrawl.url import host_of, origin_of

log = logging.getLogger(__name__)

TASKS_A_LOOK = 512
TASKS_A_HOST = 64
# Where nobody has room, or nobody may fetch what there is; room that comes meanwhile is given out at once.
PAUSE_S = 0.2
PAUSE_TIMES = 10.0
IN_VAIN_MAX = 300  # a minute, and nobody may fetch anything: to be told
KEYS_A_CALL = calls.KEYS_MAX
RECALL_WITHIN_S = 5.0
LOOK_EVERY_S = 1.0
BUDGET_TIMES = 3.0  # what a host's delay alone takes, and this many times that
HEARD_MAX = ENDED_MAX = 10_000

Decide = Callable[[Callable[[], Choice]], Awaitable["Choice | None"]]


class CrawlPolicy(NamedTuple):
    """A crawl's policy at one node, and what it goes by."""

    guard: Guard
    failures: Failures
    decide: Decide  # runs a choice where it blocks nobody; None where that takes too long


class AssignerQueues(Protocol):
    """What the lender is given of its crawl."""

    @property
    def crawl_id(self) -> bytes: ...

    @property
    def frontier(self) -> Frontier: ...

    @property
    def next_round(self) -> NextRound: ...

    @property
    def lends(self) -> bool:
        """Whether anything may be decided now: this node owns, and the crawl runs."""
        ...

    def owns(self, key: bytes) -> bool: ...

    def held(self, key: bytes) -> bool:
        """Whether another node has a task already."""
        ...

    def decided(self) -> None:
        """There may be something to start, or to read."""
        ...

    async def write_lent(self, keys: list[bytes]) -> list[TaskReplica]:
        """Take these out of their stored queues; their records."""
        ...

    async def requeue(self, keys: list[bytes]) -> None:
        """Put what is lent no longer back into its queue."""
        ...

    def unheard_of(self, keys: list[bytes]) -> None:
        """The same once others have said what they know of them: who had them does not any more."""
        ...

    def merged(self, records: Sequence[TaskReplica]) -> Awaitable[Merged]:
        """What a worker knew better."""
        ...


@loop_state
class Assigner:
    """Of one crawl on one node."""

    def __init__(
        self,
        desk: AssignerQueues,
        peers: Peers,
        clock: Clock,
        policy: CrawlPolicy,
        lent: Assigned,
        *,
        incarnation_of: IncarnationOf,
    ) -> None:
        self.lent = lent
        self.tasks_lent = 0
        self.recalls = 0
        self.policy = policy.guard
        self.epoch = 0  # of the plan that it has
        self._desk = desk
        self._peers = peers
        self._own = peers.node_id
        self._clock = clock
        self._incarnation_of = incarnation_of
        self._decide = policy.decide
        self._failures = policy.failures
        self._ended: dict[bytes, TaskAssignment] = {}  # of which the worker has not told yet
        self._heard: deque[tuple[Outcome, float]] = deque(maxlen=HEARD_MAX)
        self._table: Mapping[str, Any] | None = None  # a plan that the policy is to be given
        self.candidates = Candidates(peers, policy.guard)
        self._work = asyncio.Event()
        self._in_vain = 0

    def wanted(self) -> None:
        """There may be something to decide."""
        self._work.set()

    def adopt(self, epoch: int, table: Mapping[str, Any]) -> None:
        """There is a new plan."""
        self.epoch, self._table = epoch, table

    @property
    def busy(self) -> bool:
        """Whether another node has a task of ours."""
        return len(self.lent) > 0

    # What becomes of loans

    def over(self, keys: Sequence[bytes]) -> None:
        """What came of these is known, by their records."""
        self._ended |= self.lent.let_go(keys)
        while len(self._ended) > ENDED_MAX:
            del self._ended[next(iter(self._ended))]
        for key in keys:
            self._failures.forget(key)

    async def on_report(self, asker: bytes, told: Sequence[TaskOutcome]) -> None:
        """A worker says what came of tasks that it had, and that it is there."""
        now = self._clock.monotonic()
        self.lent.heard_from(asker, now)
        back: list[bytes] = []
        for each in told:
            loan = self.lent.get(each.key)
            if loan is None or loan.node != asker:
                loan = self._ended.pop(each.key, None)
                if each.result is TaskResult.PAGE and loan is not None and loan.node == asker:
                    self._hear(asker, each._replace(host=loan.host))  # its record was faster
                continue
            given = each._replace(host=loan.host)
            if given.result is not TaskResult.RECALLED:
                self._hear(asker, given)
            if given.result is TaskResult.PAGE:
                continue  # until its record is here
            if given.result is TaskResult.UNREACHABLE:
                self._failures.cannot(asker, loan.origin, now)
            self.lent.let_go([given.key])
            if self._another(given, asker, loan.origin):
                back.append(given.key)
        await self._desk.requeue(back)

    def failed_here(self, task: Queued, given: TaskOutcome) -> bool:
        """We had it ourselves, and bring nothing; False where it is for us to go on with it."""
        now, origin, failures = self._clock.monotonic(), origin_of(task.url), self._failures
        if given.result is TaskResult.UNREACHABLE:
            failures.cannot(self._own, origin, now)
            if failures.has_failed(task.key, self._own) or not self._is_left(task.key, given.host, origin):
                return False  # and the policy hears what it comes to
        self._hear(self._own, given)
        enough = given.result is TaskResult.FAILED and self.policy.failures_max == 1 and task.key not in failures
        if enough or not self._desk.owns(task.key):
            return False
        if self._another(given, self._own, origin):
            self._desk.frontier.put_back(given.host, task, now)
            self.wanted()
        return True

    def brought_here(self, given: TaskOutcome) -> None:
        """We had it ourselves, and bring a page."""
        self._failures.forget(given.key)
        self._hear(self._own, given)

    def disowned(self, mine: Callable[[bytes], bool]) -> None:
        """Others own what is not `mine`, and ask its workers themselves."""
        self.lent.let_go([key for key in self.lent if not mine(key)])
        self._failures.keep(mine)

    async def recall_all(self) -> None:
        """Nothing is lent from here on; what is not begun comes back, the rest ends as it does."""
        late: dict[bytes, list[bytes]] = {}
        for key in self.lent:
            loan = self.lent.get(key)
            if loan is not None and loan.begun:
                late.setdefault(loan.node, []).append(key)
        async with asyncio.TaskGroup() as group:
            for node, keys in late.items():
                group.create_task(self._recall(node, keys))

    async def run(self) -> None:
        """Decide who fetches, and see that they do; until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._look_after())
            while True:
                await self._work.wait()
                self._work.clear()
                while self._desk.lends and (tasks := self._desk.frontier.unassigned(TASKS_A_HOST, TASKS_A_LOOK)):
                    began_at = self._clock.monotonic()
                    if not await self._assign(tasks, group):
                        # Most of the time is for others, however long a decision takes.
                        took_s = self._clock.monotonic() - began_at
                        await asyncio.sleep(max(PAUSE_S, PAUSE_TIMES * took_s))

    async def _assign(self, tasks: list[Queued], group: asyncio.TaskGroup) -> bool:
        """Decide for these; whether each of them found a node."""
        choice, origins = await self._choice(tasks), {task.key: origin_of(task.url) for task in tasks}
        now, frontier, moved = self._clock.monotonic(), self._desk.frontier, 0
        for node, hosts in choice.keys.items():
            for host, keys in hosts.items():
                # It took a while: what another has, or owns by now, is not ours to decide.
                keys = [key for key in keys if self._desk.owns(key) and not self._desk.held(key)]
                moved += len(keys)
                if node == self._own:
                    frontier.assign(host, set(keys), now)
                    continue
                budget_s = choice.terms[node, host].budget_s
                self.lent.lend(node, self._incarnation_of(node), host, keys, now, budget_s, origins)
                frontier.lend(host, set(keys), now)
            if node != self._own:
                terms = {host: choice.terms[node, host] for host in hosts}
                group.create_task(self._lend(node, hosts, terms))
        self._desk.decided()
        self._in_vain = 0 if moved or self.busy else self._in_vain + 1
        if self._in_vain and self._in_vain % IN_VAIN_MAX == 0:
            log.warning("policy %s has found nobody for %s for a while", self.policy.inner.name, tasks[0].url)
        return moved == len(tasks)

    async def _choice(self, tasks: list[Queued]) -> Choice:
        own, frontier, now = self._own, self._desk.frontier, self._clock.monotonic()
        asked = [PolicyTask(task.key, host_of(task.url), *self._failures.of(task.key)) for task in tasks]
        nodes = self.candidates.willing(asked, now)
        # Where the owner tries first it is full of what nobody has tried: what comes back to it has no other place.
        hosts = set() if self.policy.owner_first else {task.host for task in asked}
        lent = {**self.lent.counts(), **{(own, host): frontier.load(host) for host in hosts}}
        heard, self._heard = self._heard, deque(maxlen=HEARD_MAX)
        table, self._table = self._table, None
        work = partial(learn_and_choose, self.policy, table, heard, asked, nodes, lent, now)
        choice = await self._decide(work)
        if choice is None:
            self.policy.hung(DECIDES_WITHIN_S)
            choice = choose(self.policy, asked, nodes, lent, now)
        return choice

    async def _lend(self, node: bytes, hosts: Mapping[str, list[bytes]], terms: Mapping[str, Any]) -> None:
        """Hand over records and loan; what a node does not take is decided again."""
        loans = {key: loan for each in hosts.values() for key in each if (loan := self.lent.get(key)) is not None}
        records = await self._desk.write_lent(list(loans))
        # What came to an end meanwhile is in no queue, and nobody's.
        self.lent.let_go(loans.keys() - {copy.key for copy in records})
        self.tasks_lent += len(records)
        for batch in wire.in_frames(records):
            given = {copy.key: loans[copy.key] for copy in batch}
            if not await self._give(node, batch, given, terms):
                await self._desk.requeue(list(self.lent.let_go(self._still(given))))

    def _still(self, loans: Mapping[bytes, TaskAssignment]) -> list[bytes]:
        """Those that are lent as they were: not taken back meanwhile, and perhaps lent to another."""
        return [key for key, loan in loans.items() if self.lent.get(key) == loan]

    async def _give(
        self, node: bytes, batch: Sequence[TaskReplica], loans: Mapping[bytes, TaskAssignment], terms: Mapping[str, Any]
    ) -> bool:
        crawl = self._desk.crawl_id
        reply = await self._peers.ask(node, StoreBackup(crawl, tuple(map(wire.record_of, batch))))
        if not isinstance(reply, Ack):
            self.candidates.refused(node, self._clock.monotonic())
            return False
        if reply.records:
            await self._desk.merged(wire.copies_of(reply.records, len(batch[0].key)))
        keys = self._still(loans)
        if not keys:
            return True
        connect = {
            host: each.connect_timeout_s
            for host, each in terms.items()
            if each.connect_timeout_s is not None
            and calls.CONNECT_S_MIN <= each.connect_timeout_s <= calls.CONNECT_S_MAX
        }
        # Nobody is left, or the policy ranks nobody else: it goes on trying.
        patient = tuple(key for key in keys if self._is_patient(key, loans[key], node))
        answer = await self._peers.call(node, calls.Lend(crawl, tuple(keys), patient, connect, self.epoch))
        if isinstance(answer, Failure) and (not answer.sent or answer.kind is FailureKind.REFUSED):
            self.candidates.refused(node, self._clock.monotonic())
            return False
        # A node that has not answered may have it all the same: its loan ends when it is silent.
        self.candidates.took(node)
        incarnation = loans[keys[0]].incarnation
        self.lent.begin(node, incarnation, self._still(loans), self._clock.monotonic())
        return True

    def _is_patient(self, key: bytes, loan: TaskAssignment, node: bytes) -> bool:
        return self._failures.has_failed(key, node) or not self._is_left(key, loan.host, loan.origin)

    def _is_left(self, key: bytes, host: str, origin: str) -> bool:
        """Whether anybody who may be asked might bring a task."""
        now = self._clock.monotonic()
        return self._failures.is_left(key, origin, self.candidates.of(key, host, now), now)

    def _another(self, given: TaskOutcome, node: bytes, origin: str) -> bool:
        """Note that a node brought nothing; whether somebody shall try again, or it is given up here."""
        failures, key = self._failures, given.key
        if given.result is TaskResult.RECALLED:
            failures.recalled(key, node)
            return True
        twice = failures.has_failed(key, node)
        failures.note(node, given)
        # Who failed it has it again only where the policy ranks nobody else.
        more = not twice and self._is_left(key, given.host, origin)
        if (more and failures.connected(key) < self.policy.failures_max) or given.result is TaskResult.UNREACHABLE:
            return True
        said = failures.words(key)
        failures.forget(key)
        text = "; ".join(f"{each.hex()[:8]}: {what}" for each, what in said.items()) if len(said) > 1 else given.detail
        self._desk.next_round.kill(Kill(given.host, key, SkipReason.FAILED, text, len(said) - 1))
        return False

    async def _look_after(self) -> None:
        """Take back what nobody brings."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self._work.set()
            if not len(self.lent):
                continue
            now = self._clock.monotonic()
            gone = self.lent.given_up(self._incarnation_of, now)
            for key, loan in gone.items():
                self._recalled(key, loan, now)
            self._desk.unheard_of(list(gone))
            async with asyncio.TaskGroup() as group:
                for node, keys in self.lent.overdue(self._waits_s, now).items():
                    group.create_task(self._recall(node, keys))

    def _waits_s(self, host: str) -> float:
        """How long a host's delay may keep all its tasks waiting that are out."""
        frontier = self._desk.frontier
        return BUDGET_TIMES * (self.lent.count_host(host) + frontier.load(host)) * frontier.delay_s(host)

    def _hear(self, node: bytes, given: TaskOutcome) -> None:
        """Something for the policy to learn from, when it is asked next."""
        if given.result is TaskResult.PAGE:
            self._failures.reaches(node, given.host)
        if self.policy.learns:
            outcome = Outcome(node, given.host, given.result, given.seconds, given.connect_s, given.bytes)
            self._heard.append((outcome, self._clock.monotonic()))

    async def _recall(self, node: bytes, late: list[bytes]) -> None:
        for first in range(0, len(late), KEYS_A_CALL):
            keys = late[first : first + KEYS_A_CALL]
            asked = calls.Recall(self._desk.crawl_id, tuple(keys))
            answer = await self._peers.call(node, asked, timeout_s=RECALL_WITHIN_S)
            now = self._clock.monotonic()
            if isinstance(answer, Failure):
                return  # it is silent, or will be gone before long
            returned = self.lent.let_go_from(node, answer.keys)
            for key, loan in returned.items():
                self._recalled(key, loan, now)
            self.lent.renew(keys, now)
            await self._desk.requeue(list(returned))

    def _recalled(self, key: bytes, loan: TaskAssignment, now: float) -> None:
        self.recalls += 1
        if self._incarnation_of(loan.node) == loan.incarnation:  # neither gone nor started anew: it is slow, or silent
            self._failures.recalled(key, loan.node)
        self._hear(loan.node, TaskOutcome(key, loan.host, TaskResult.RECALLED, now - loan.since))
