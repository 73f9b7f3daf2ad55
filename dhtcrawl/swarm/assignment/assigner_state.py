"""What an owner decides about its tasks under the crawl's policy: whom it asks, and what comes back. Pure.

A task, as its owner sees it (design invariants I3, I8):

    WAITING ──this node is chosen──▶ STARTED ──cannot connect, another may──▶ WAITING
       │ ▲ ▲
       │ │ └── refused, not begun in time, or failed and another node is left ──────┐
       ▼ └─────── all who keep its record have been asked ◀── ORPHANED              │
    ASSIGNED ──the worker took it, or may have──▶ BEGUN            ▲                │
       ├─────────────────────────────────────────────┼─────────────┼────────────────┘
       └── the worker is gone, restarted or silent ──┴─────────────┘

    WAITING   in the frontier, until the policy chooses a node for it
    STARTED   the frontier's, like every task without a policy
    ASSIGNED  its record, then the task are on their way to a worker
    BEGUN     the worker knows of it, so its time runs: what is late is recalled
    ORPHANED  no node will report on it: `dhtcrawl.swarm.assignment.orphan_check`

    from everywhere ── its record says fetched or dead ──▶ over
                    ── enough nodes have failed it, or all that may be asked ──▶ given up
                    ── recalled as often as the policy allows ──▶ given up, for a person
                    ── another node owns it ──▶ forgotten here: the new owner asks the workers itself

A task is at one node at a time (`Assigned`), and `SwarmOwnership` says so to all others. Its outcome reaches the owner
as a record, like everything that is fetched. The worker's report adds how long it took, and which tasks it gives back.
Under a policy that has the owner try first, only tasks wait here whose host the owner could not connect to.

The shell brings each event with the view and `now`, in seconds on the caller's monotonic clock, and carries out what is
returned, in its order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from math import inf
from typing import Any

from dhtcrawl.crawl.frontier import Frontier
from dhtcrawl.crawl.ports import TaskOutcome
from dhtcrawl.loop_state import loop_state
from dhtcrawl.policy.choice import Choice
from dhtcrawl.policy.guard import Guard
from dhtcrawl.policy.node_types import types_in
from dhtcrawl.policy.seam import PolicyTask, TaskResult
from dhtcrawl.rpc.membership.view import View
from dhtcrawl.storage.store.records import SkipReason
from dhtcrawl.storage.store.tasks import Queued
from dhtcrawl.swarm.assignment import steps
from dhtcrawl.swarm.assignment.assigned import Assigned, IncarnationOf, TaskAssignment
from dhtcrawl.swarm.assignment.candidates import Candidates
from dhtcrawl.swarm.assignment.failures import Failures
from dhtcrawl.swarm.assignment.heard import HeardOutcomes
from dhtcrawl.swarm.assignment.ownership import SwarmOwnership
from dhtcrawl.swarm.assignment.site_probes import PlaceWishes
from dhtcrawl.swarm.calls.assignment import CONNECT_S_MAX, CONNECT_S_MIN
from dhtcrawl.url import host_of, origin_of

BUDGET_TIMES = 3.0  # a host's tasks are late after so many times what its delay alone takes
ENDED_MAX = 10_000
# What an assignment costs, frames and writes, is nearly the same for one task as for many. So one of fewer than `LOT`
# tasks waits for others, for `LOT_S` at most, while its node has tasks of this owner (cf. RFC 896, for segments).
LOT, LOT_S = 8, 2.0


@loop_state
class AssignerState:
    """Decides which node is to fetch each task of a crawl that this node owns."""

    def __init__(
        self,
        own: bytes,
        policy: Guard,
        failures: Failures,
        ownership: SwarmOwnership,
        frontier: Frontier,
        incarnation_of: IncarnationOf,
        wishes: PlaceWishes | None = None,
    ) -> None:
        """The frontier is only read: how many tasks of a host it has, and how long they wait for one another.

        `wishes` hears of the tasks, where the policy goes by the places of their hosts.
        """
        self.policy = policy
        self.epoch = 0  # of the plan that it has
        self._own = own
        self._failures = failures
        self._ownership = ownership
        self._frontier = frontier
        self._incarnation_of = incarnation_of
        self._wishes = wishes
        self._candidates = Candidates(policy, policy.settings.types)
        self._ended: dict[bytes, TaskAssignment] = {}  # their records came before their worker's report
        self._heard = HeardOutcomes(frontier.delay_s)
        self._table: Mapping[str, Any] | None = None  # a plan that the policy has not been given yet

    @property
    def lent(self) -> Assigned:
        """The tasks that other nodes have."""
        return self._ownership.lent

    # Whom it asks

    def adopt(self, epoch: int, table: Mapping[str, Any]) -> None:
        """Take a new plan, for the next choice."""
        self.epoch, self._table = epoch, table
        self._candidates.know(types_in(table))

    def ask(self, tasks: Sequence[Queued], view: View, now: float) -> steps.ChoiceAsk:
        """What the policy is asked about these tasks; what it is told of the past, it is told once."""
        of = self._failures.of
        asked = [PolicyTask(task.key, host_of(task.url), *of(task.key), task.url, task.depth) for task in tasks]
        nodes = self._held_back(tasks, self._candidates.willing(asked, view, now), view, now)
        # Where the owner tries first, its load is all untried tasks: it must not keep out a task that comes back to it.
        hosts = set() if self.policy.owner_first else {task.host for task in asked}
        lent = {**self.lent.counts(), **{(self._own, host): self._frontier.load(host) for host in hosts}}
        heard = self._heard.take()
        table, self._table = self._table, None
        polite = {host for _, host in lent if self._frontier.delay_s(host) > 0}
        return steps.ChoiceAsk(self.policy, asked, nodes, lent, now, table, heard, polite)

    def chosen(self, tasks: Sequence[Queued], choice: Choice, now: float) -> steps.Effects:
        """The policy has chosen nodes for these tasks."""
        origins, effects = {task.key: origin_of(task.url) for task in tasks}, list[steps.Effect]()
        for node, hosts in choice.keys.items():
            if node != self._own and self._is_too_few(node, hosts, choice, now):
                continue
            given: dict[bytes, TaskAssignment] = {}
            for host, chosen in hosts.items():
                # The choice took a while: another node may have or own a task now.
                keys = [key for key in chosen if self._is_free(key)]
                if node == self._own:
                    if self.policy.learns:
                        self._heard.started(keys, now)
                    effects.append(steps.StartHere(host, frozenset(keys)))
                    continue
                terms, incarnation = choice.terms[node, host], self._incarnation_of(node)
                given |= self.lent.lend(
                    node, incarnation, host, keys, now, terms.budget_s, origins, idle_s=terms.idle_s
                )
                effects.append(steps.TakeOut(host, frozenset(keys)))
            if given:
                effects.append(steps.Send(node, given, _connect_s(choice, node, hosts)))
        return effects

    # What comes of an offer

    def written(self, send: steps.Send, keys: Container[bytes]) -> None:
        """Only these have a record to send: a task that ended meanwhile is in no queue, and no node's."""
        self.lent.let_go([key for key in self._still(send) if key not in keys])

    def offer(self, send: steps.Send, view: View, now: float) -> steps.Offer:
        """What a node that has the records is told."""
        keys = self._still(send)
        # Where no other node is left, or the policy ranks no other, this one goes on trying.
        patient = [key for key in keys if self._is_patient(key, send, view, now)]
        return steps.Offer(tuple(keys), tuple(patient))

    def took(self, send: steps.Send, now: float) -> None:
        """A node took the tasks; or has not answered: if it lacks them, they are taken back when it is silent."""
        self._candidates.took(send.node)
        self.lent.begin(self._still(send), now)

    def refused(self, send: steps.Send, now: float) -> list[bytes]:
        """A node did not take records or tasks; return those to requeue."""
        self._candidates.refused(send.node, now)
        return list(self.lent.let_go(self._still(send)))

    # How a task ends, or comes back

    def reported(self, worker: bytes, told: Sequence[TaskOutcome], view: View, now: float) -> steps.Effects:
        """A worker reports its outcomes, which may be none: then it says that it runs."""
        self.lent.heard_from(worker, now)
        back: list[bytes] = []
        effects: list[steps.Effect] = []
        for each in told:
            loan = self.lent.get(each.key)
            if loan is None or loan.node != worker:
                self._reported_late(worker, each, now)
                continue
            given = each._replace(host=loan.host)
            if given.result is not TaskResult.RECALLED:
                self._hear(worker, given, now, loan.since)
            if given.result is TaskResult.PAGE:
                self.lent.brought(worker, loan.host, now)
                continue  # its assignment ends with its record
            if given.result is TaskResult.UNREACHABLE:
                self._failures.cannot(worker, loan.origin, now)
            self.lent.let_go([given.key])
            over = self._failed(given, worker, loan.origin, view, now)
            back += [] if over else [given.key]
            effects += [over] if over else []
        return [*effects, steps.Requeue(back)]

    def failed_here(self, task: Queued, given: TaskOutcome, view: View, now: float) -> steps.Effects:
        """The owner failed a task of its own; no effects: the crawl has to go on with it here."""
        origin, failures = origin_of(task.url), self._failures
        if given.result is TaskResult.UNREACHABLE:
            failures.cannot(self._own, origin, now)
            if failures.has_failed(task.key, self._own) or not self._is_left(task.key, given.host, origin, view, now):
                return ()  # the policy hears of the final outcome
        self._hear(self._own, given, now)
        enough = given.result is TaskResult.FAILED and self.policy.failures_max == 1 and task.key not in failures
        if enough or not self._ownership.claim.mine(task.key):
            return ()
        return (self._failed(given, self._own, origin, view, now) or steps.PutBack(given.host, task),)

    def brought_here(self, given: TaskOutcome, now: float) -> None:
        """The owner fetched a task of its own."""
        self._failures.forget(given.key)
        self._hear(self._own, given, now)

    def over(self, keys: Sequence[bytes]) -> None:
        """The outcome of these is in their records."""
        self._ended |= self.lent.let_go(keys)
        while len(self._ended) > ENDED_MAX:
            del self._ended[next(iter(self._ended))]
        for key in keys:
            self._failures.forget(key)

    def view_changed(self) -> steps.Effects:
        """Other keys may be this node's, and nodes that were cut off may be back."""
        mine = self._ownership.owns
        self.lent.let_go([key for key in self.lent if not mine(key)])
        self._failures.keep(mine)
        back = self.lent.back(self._incarnation_of)
        for node in back:
            self._candidates.avoid(node, inf)
        return [steps.MakeForget(node) for node in back]

    def forgot(self, node: bytes, now: float) -> None:
        """A node that was cut off has forgotten what it had, or does not answer: it may be asked again."""
        self._candidates.avoid(node, now)

    # When tasks are taken back

    def look(self, now: float) -> steps.Effects:
        """From time to time: which workers are gone or silent, and which tasks are late."""
        gone = self.lent.given_up(self._incarnation_of, now)
        for key, loan in gone.items():
            # Neither gone nor restarted: it says nothing of what it has.
            self._recalled(key, loan, now, counts=self._incarnation_of(loan.node) == loan.incarnation)
        late = self.lent.overdue(self._waits_s, now)
        return [steps.AskOthers(list(gone)), *(steps.TakeBack(node, keys) for node, keys in late.items())]

    def stop(self) -> steps.Effects:
        """Nothing is assigned any more: what is not begun is to come back, the rest ends as it does."""
        known: dict[bytes, list[bytes]] = {}
        for key in self.lent:
            loan = self.lent.get(key)
            if loan is not None and loan.begun:
                known.setdefault(loan.node, []).append(key)
        return [steps.TakeBack(node, keys) for node, keys in known.items()]

    def let_go(
        self, asked: steps.TakeBack, keys: Sequence[bytes], kept_back: Collection[bytes], now: float
    ) -> steps.Effects:
        """A worker gave back `keys` of those asked for, and fetches the others.

        Those in `kept_back` it kept waiting for their host's sake, or the crawl's: that is no failure.
        """
        counted = {key for key in keys if self.lent.idle_s(key, now) >= self.policy.recall_idle_s}.difference(kept_back)
        back = self.lent.let_go_from(asked.node, keys)
        for key, loan in back.items():
            self._recalled(key, loan, now, counts=key in counted, heard=key not in kept_back)
        self.lent.renew(asked.keys, now)
        over = self.recalled_too_often(back)
        return [*over, steps.Requeue([key for key in back if key not in {each.key for each in over}])]

    def recalled_too_often(self, keys: Iterable[bytes]) -> list[steps.GiveUp]:
        """Give up those of these tasks, which no node has, that are a person's by now."""
        most, failures = self.policy.recalls_max, self._failures
        over: list[steps.GiveUp] = []
        if most is None:
            return over
        for key in keys:
            count = failures.recalls(key)
            if count < most or not self._is_free(key):
                continue
            said = [f"{node.hex()[:8]}: {words}" for node, words in failures.words(key).items()]
            host, recalled = failures.recalled_words(key)
            attempt = count + len(said) - 1
            over.append(steps.GiveUp(host, key, "; ".join([*said, recalled]), attempt, SkipReason.RECALLED))
            failures.forget(key)
        return over

    # Within

    def _held_back(
        self, tasks: Sequence[Queued], nodes: Callable[[PolicyTask], Sequence[bytes]], view: View, now: float
    ) -> Callable[[PolicyTask], Sequence[bytes]]:
        """The same nodes, but for tasks that wait for the place of their host, and those of dead origins.

        Where none of the nodes reaches an origin, this one alone gives its pages up: they cost no messages.
        """
        dead, held = set[bytes](), frozenset[bytes]()
        if self._wishes is not None:
            self._wishes.seen(tasks)
            held = self._wishes.held(tasks, len(view.owner_ids), self._out, now)
        for task in tasks:
            origin = origin_of(task.url)
            if self._failures.knows(origin):
                may_be_asked = self._candidates.of(task.key, host_of(task.url), view, now)
                if self._own in may_be_asked and self._failures.is_dead(origin, may_be_asked, now):
                    dead.add(task.key)
        if not dead and not held:
            return nodes
        kept = dict.fromkeys(held, ()) | dict.fromkeys(dead, (self._own,))
        return lambda task: kept[task.key] if task.key in kept else nodes(task)

    def _out(self, host: str) -> int:
        """How many tasks of a host have a node."""
        return self.lent.count_host(host) + self._frontier.load(host)

    def _is_too_few(self, node: bytes, hosts: Mapping[str, Sequence[bytes]], choice: Choice, now: float) -> bool:
        """Whether a node is to have these tasks later, together with others.

        A window that is small is never waited for to be full, nor is anything of a host that has a delay.
        """
        if self.lent.lent_s(node, now) >= LOT_S or sum(map(len, hosts.values())) >= LOT:
            return False
        rooms = [min(choice.terms[node, host].batch, choice.terms[node, host].at_work_max) for host in hosts]
        return sum(map(len, hosts.values())) < min(rooms) // 2 and not any(map(self._frontier.delay_s, hosts))

    def _is_free(self, key: bytes) -> bool:
        return self._ownership.claim.mine(key) and not self._ownership.held(key)

    def _still(self, send: steps.Send) -> list[bytes]:
        """Those whose assignment is unchanged: it was not taken back, and perhaps given to another node, meanwhile."""
        return [key for key, loan in send.tasks.items() if self.lent.get(key) == loan]

    def _is_patient(self, key: bytes, send: steps.Send, view: View, now: float) -> bool:
        loan = send.tasks[key]
        return self._failures.has_failed(key, send.node) or not self._is_left(key, loan.host, loan.origin, view, now)

    def _is_left(self, key: bytes, host: str, origin: str, view: View, now: float) -> bool:
        """Whether a node that may be asked might fetch a task."""
        return self._failures.is_left(key, origin, self._candidates.of(key, host, view, now), now)

    def _failed(self, given: TaskOutcome, node: bytes, origin: str, view: View, now: float) -> steps.GiveUp | None:
        """Note that a node failed a task; None: it is tried again."""
        failures, key = self._failures, given.key
        if given.result is TaskResult.RECALLED:
            failures.recalled(key, node, given.host, counts=False)  # it gave it back by itself
            return None
        twice = failures.has_failed(key, node)
        failures.note(node, given)
        # A node that failed a task gets it again only where the policy ranks no other.
        more = not twice and self._is_left(key, given.host, origin, view, now)
        if (more and failures.connected(key) < self.policy.failures_max) or given.result is TaskResult.UNREACHABLE:
            return None
        said = failures.words(key)
        failures.forget(key)
        text = "; ".join(f"{each.hex()[:8]}: {what}" for each, what in said.items()) if len(said) > 1 else given.detail
        return steps.GiveUp(given.host, key, text, len(said) - 1)

    def _reported_late(self, worker: bytes, given: TaskOutcome, now: float) -> None:
        """A report on what this worker does not have: of a page whose record came first, the policy learns."""
        loan = self._ended.pop(given.key, None)
        if given.result is TaskResult.PAGE and loan is not None and loan.node == worker:
            self._hear(worker, given._replace(host=loan.host), now, loan.since)

    def _hear(self, node: bytes, given: TaskOutcome, now: float, since: float | None = None) -> None:
        """Keep an outcome for the policy to learn from at its next choice; the node has had the task `since` then."""
        if given.result is TaskResult.PAGE:
            self._failures.reaches(node, given.host)
        if self.policy.learns:
            self._heard.hear(node, given, now, since)

    def _recalled(self, key: bytes, loan: TaskAssignment, now: float, *, counts: bool, heard: bool = True) -> None:
        if self._incarnation_of(loan.node) == loan.incarnation:  # neither gone nor restarted: it is slow, or silent
            self._failures.recalled(key, loan.node, loan.host, counts=counts)
        if heard:
            self._hear(loan.node, TaskOutcome(key, loan.host, TaskResult.RECALLED, now - loan.since), now)

    def _waits_s(self, host: str) -> float:
        """How long a host's delay may keep its assigned and queued tasks waiting."""
        frontier = self._frontier
        return BUDGET_TIMES * (self.lent.count_host(host) + frontier.load(host)) * frontier.delay_s(host)


def _connect_s(choice: Choice, node: bytes, hosts: Mapping[str, Any]) -> dict[str, float]:
    limits = {host: choice.terms[node, host].connect_timeout_s for host in hosts}
    return {host: s for host, s in limits.items() if s is not None and CONNECT_S_MIN <= s <= CONNECT_S_MAX}
