"""An owner's side of who fetches: it assigns its tasks to the nodes that the crawl's policy ranks first.

    frontier ──policy──▶ this node: the frontier starts it
                └──────▶ another: out of the queue; record and assignment are sent to it

The outcome of a task reaches the owner as a record, like everything that is fetched. The worker's report adds how long
it took, and which tasks it gives back: these go to the next node of the ranking. A task that enough nodes have failed
that connected, or all that may be asked, is given up for good, and its record says what each of them said.

Under a policy that has the owner try first, only tasks are decided here whose host the owner could not connect to.
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
from dhtcrawl.swarm.assignment.assigned import Assigned, IncarnationOf, TaskAssignment
from dhtcrawl.swarm.assignment.candidates import Candidates
from dhtcrawl.swarm.assignment.failures import Failures
from dhtcrawl.swarm.calls import assignment as calls
from dhtcrawl.swarm.calls.words import KEYS_MAX
from dhtcrawl.swarm.records import wire
from dhtcrawl.url import host_of, origin_of

log = logging.getLogger(__name__)

TASKS_A_LOOK = 512
TASKS_A_HOST = 64
# The pause after a choice that left tasks without a node: at least so long, and so many times what the choice took.
PAUSE_S = 0.2
PAUSE_TIMES = 10.0
IN_VAIN_MAX = 300  # choices in a row that moved nothing, a minute at least: then it is logged
KEYS_A_CALL = KEYS_MAX
RECALL_WITHIN_S = 5.0
LOOK_EVERY_S = 1.0
BUDGET_TIMES = 3.0  # a host's tasks are late after so many times what its delay alone takes
HEARD_MAX = ENDED_MAX = 10_000

Decide = Callable[[Callable[[], Choice]], Awaitable["Choice | None"]]


class CrawlPolicy(NamedTuple):
    """A crawl's policy at one node, and what it goes by."""

    guard: Guard
    failures: Failures
    decide: Decide  # runs a choice off the event loop; None where that takes too long


class AssignerQueues(Protocol):
    """What an assigner needs of its crawl."""

    @property
    def crawl_id(self) -> bytes: ...

    @property
    def frontier(self) -> Frontier: ...

    @property
    def next_round(self) -> NextRound: ...

    @property
    def lends(self) -> bool:
        """Whether tasks may be assigned now: this node owns, and the crawl runs."""
        ...

    def owns(self, key: bytes) -> bool: ...

    def held(self, key: bytes) -> bool:
        """Whether another node has a task already."""
        ...

    def decided(self) -> None:
        """Note that there may be tasks to start, or to read from the store."""
        ...

    async def write_lent(self, keys: list[bytes]) -> list[TaskReplica]:
        """Take assigned tasks out of their stored queues; return their records."""
        ...

    async def requeue(self, keys: list[bytes]) -> None:
        """Put tasks that are no longer assigned back into their queues."""
        ...

    def unheard_of(self, keys: list[bytes]) -> None:
        """Requeue tasks whose worker will not report, once the other nodes have said what they know of them."""
        ...

    def merged(self, records: Sequence[TaskReplica]) -> Awaitable[Merged]:
        """Merge the records that a worker knew better."""
        ...


@loop_state
class Assigner:
    """Assigns the tasks that one node owns of one crawl."""

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
        self._ended: dict[bytes, TaskAssignment] = {}  # their records came before their worker's report
        self._heard: deque[tuple[Outcome, float]] = deque(maxlen=HEARD_MAX)
        self._table: Mapping[str, Any] | None = None  # a plan that the policy has not been given yet
        self.candidates = Candidates(peers, policy.guard)
        self._work = asyncio.Event()
        self._in_vain = 0

    def wanted(self) -> None:
        """Note that there may be tasks to assign."""
        self._work.set()

    def adopt(self, epoch: int, table: Mapping[str, Any]) -> None:
        """Take a new plan, for the next choice."""
        self.epoch, self._table = epoch, table

    @property
    def busy(self) -> bool:
        """Whether another node has a task of ours."""
        return len(self.lent) > 0

    # How assignments end

    def over(self, keys: Sequence[bytes]) -> None:
        """End the assignments of tasks whose outcome is in their records."""
        self._ended |= self.lent.let_go(keys)
        while len(self._ended) > ENDED_MAX:
            del self._ended[next(iter(self._ended))]
        for key in keys:
            self._failures.forget(key)

    async def on_report(self, asker: bytes, told: Sequence[TaskOutcome]) -> None:
        """Take a worker's report of its outcomes, which may be none: then it says that the worker runs."""
        now = self._clock.monotonic()
        self.lent.heard_from(asker, now)
        back: list[bytes] = []
        for each in told:
            loan = self.lent.get(each.key)
            if loan is None or loan.node != asker:
                loan = self._ended.pop(each.key, None)
                if each.result is TaskResult.PAGE and loan is not None and loan.node == asker:
                    self._hear(asker, each._replace(host=loan.host))  # its record came first
                continue
            given = each._replace(host=loan.host)
            if given.result is not TaskResult.RECALLED:
                self._hear(asker, given)
            if given.result is TaskResult.PAGE:
                continue  # its assignment ends with its record
            if given.result is TaskResult.UNREACHABLE:
                self._failures.cannot(asker, loan.origin, now)
            self.lent.let_go([given.key])
            if self._another(given, asker, loan.origin):
                back.append(given.key)
        await self._desk.requeue(back)

    def failed_here(self, task: Queued, given: TaskOutcome) -> bool:
        """Note that this node failed a task of its own; False where the crawl has to go on with it here."""
        now, origin, failures = self._clock.monotonic(), origin_of(task.url), self._failures
        if given.result is TaskResult.UNREACHABLE:
            failures.cannot(self._own, origin, now)
            if failures.has_failed(task.key, self._own) or not self._is_left(task.key, given.host, origin):
                return False  # the policy hears of the final outcome
        self._hear(self._own, given)
        enough = given.result is TaskResult.FAILED and self.policy.failures_max == 1 and task.key not in failures
        if enough or not self._desk.owns(task.key):
            return False
        if self._another(given, self._own, origin):
            self._desk.frontier.put_back(given.host, task, now)
            self.wanted()
        return True

    def brought_here(self, given: TaskOutcome) -> None:
        """Note that this node fetched a task of its own."""
        self._failures.forget(given.key)
        self._hear(self._own, given)

    def disowned(self, mine: Callable[[bytes], bool]) -> None:
        """Forget tasks that are not `mine`: their new owners ask the workers themselves."""
        self.lent.let_go([key for key in self.lent if not mine(key)])
        self._failures.keep(mine)

    async def recall_all(self) -> None:
        """Take back all tasks that are not begun, when no more are assigned; the others end as they do."""
        late: dict[bytes, list[bytes]] = {}
        for key in self.lent:
            loan = self.lent.get(key)
            if loan is not None and loan.begun:
                late.setdefault(loan.node, []).append(key)
        async with asyncio.TaskGroup() as group:
            for node, keys in late.items():
                group.create_task(self._recall(node, keys))

    async def run(self) -> None:
        """Assign tasks and take back those that are late, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._look_after())
            while True:
                await self._work.wait()
                self._work.clear()
                while self._desk.lends and (tasks := self._desk.frontier.unassigned(TASKS_A_HOST, TASKS_A_LOOK)):
                    began_at = self._clock.monotonic()
                    if not await self._assign(tasks, group):
                        # Most of the time is left to other work, however long a choice takes.
                        took_s = self._clock.monotonic() - began_at
                        await asyncio.sleep(max(PAUSE_S, PAUSE_TIMES * took_s))

    async def _assign(self, tasks: list[Queued], group: asyncio.TaskGroup) -> bool:
        """Choose nodes for these tasks; whether each task has got one."""
        choice, origins = await self._choice(tasks), {task.key: origin_of(task.url) for task in tasks}
        now, frontier, moved = self._clock.monotonic(), self._desk.frontier, 0
        for node, hosts in choice.keys.items():
            for host, keys in hosts.items():
                # The choice took a while: another node may have or own a task now.
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
        # Where the owner tries first, its load is all untried tasks: it must not keep out a task that comes back to it.
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
        """Send records and assignments to a node; what it does not take is decided again."""
        loans = {key: loan for each in hosts.values() for key in each if (loan := self.lent.get(key)) is not None}
        records = await self._desk.write_lent(list(loans))
        # A task that ended meanwhile has no record to send; it is in no queue, and no node's.
        self.lent.let_go(loans.keys() - {copy.key for copy in records})
        self.tasks_lent += len(records)
        for batch in wire.in_frames(records):
            given = {copy.key: loans[copy.key] for copy in batch}
            if not await self._give(node, batch, given, terms):
                await self._desk.requeue(list(self.lent.let_go(self._still(given))))

    def _still(self, loans: Mapping[bytes, TaskAssignment]) -> list[bytes]:
        """Those whose assignment is unchanged: it was not taken back, and perhaps given to another node, meanwhile."""
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
        # Where no other node is left, or the policy ranks no other, this one goes on trying.
        patient = tuple(key for key in keys if self._is_patient(key, loans[key], node))
        answer = await self._peers.call(node, calls.Lend(crawl, tuple(keys), patient, connect, self.epoch))
        if isinstance(answer, Failure) and (not answer.sent or answer.kind is FailureKind.REFUSED):
            self.candidates.refused(node, self._clock.monotonic())
            return False
        # A node that has not answered may have the tasks all the same: they are taken back when it is silent.
        self.candidates.took(node)
        incarnation = loans[keys[0]].incarnation
        self.lent.begin(node, incarnation, self._still(loans), self._clock.monotonic())
        return True

    def _is_patient(self, key: bytes, loan: TaskAssignment, node: bytes) -> bool:
        return self._failures.has_failed(key, node) or not self._is_left(key, loan.host, loan.origin)

    def _is_left(self, key: bytes, host: str, origin: str) -> bool:
        """Whether a node that may be asked might fetch a task."""
        now = self._clock.monotonic()
        return self._failures.is_left(key, origin, self.candidates.of(key, host, now), now)

    def _another(self, given: TaskOutcome, node: bytes, origin: str) -> bool:
        """Note that a node failed a task; True: it is tried again, False: it is given up here."""
        failures, key = self._failures, given.key
        if given.result is TaskResult.RECALLED:
            failures.recalled(key, node)
            return True
        twice = failures.has_failed(key, node)
        failures.note(node, given)
        # A node that failed a task gets it again only where the policy ranks no other.
        more = not twice and self._is_left(key, given.host, origin)
        if (more and failures.connected(key) < self.policy.failures_max) or given.result is TaskResult.UNREACHABLE:
            return True
        said = failures.words(key)
        failures.forget(key)
        text = "; ".join(f"{each.hex()[:8]}: {what}" for each, what in said.items()) if len(said) > 1 else given.detail
        self._desk.next_round.kill(Kill(given.host, key, SkipReason.FAILED, text, len(said) - 1))
        return False

    async def _look_after(self) -> None:
        """Take back the tasks of workers that are gone, silent or late; until cancelled."""
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
        """How long a host's delay may keep its assigned and queued tasks waiting."""
        frontier = self._desk.frontier
        return BUDGET_TIMES * (self.lent.count_host(host) + frontier.load(host)) * frontier.delay_s(host)

    def _hear(self, node: bytes, given: TaskOutcome) -> None:
        """Keep an outcome for the policy to learn from at its next choice."""
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
                return  # `given_up` takes its tasks back when it is silent or gone
            returned = self.lent.let_go_from(node, answer.keys)
            for key, loan in returned.items():
                self._recalled(key, loan, now)
            self.lent.renew(keys, now)
            await self._desk.requeue(list(returned))

    def _recalled(self, key: bytes, loan: TaskAssignment, now: float) -> None:
        self.recalls += 1
        if self._incarnation_of(loan.node) == loan.incarnation:  # neither gone nor restarted: it is slow, or silent
            self._failures.recalled(key, loan.node)
        self._hear(loan.node, TaskOutcome(key, loan.host, TaskResult.RECALLED, now - loan.since))
