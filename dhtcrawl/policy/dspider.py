"""`dspider`: a host belongs to one node, until that node cannot connect to it (Wu et al. 2011).

The paper's control unit offers a host that one node gave up to the others. Here
the owner does, host by host: the ranking is the same for all tasks of a host
(rendezvous by its key), a node that failed to connect goes behind the others
for this host, and the set of those who failed travels with the tasks
(`Task.failed`). The time that a node may take to connect follows its load: a
node with little to do can wait longer for a slow host than one with a queue.
"""

from __future__ import annotations

from collections.abc import Sequence

from dhtcrawl.keyspace import host_key
from dhtcrawl.policy.rendezvous import rendezvous
from dhtcrawl.policy.seam import (
    AssignmentTerms,
    Candidate,
    Outcome,
    Policy,
    PolicyTask,
    Settings,
    TaskResult,
    failed_last,
)

TIMEOUT_S = 10.0  # the fetcher's own default: `fetch.connect_timeout_s`
TIMEOUT_MIN_S, TIMEOUT_MAX_S = 3.0, 20.0
LOW, HIGH = 0.5, 2.0  # of the mean load: below it the time grows, above it shrinks
GROWS, SHRINKS = 1.25, 0.8
ADAPTS_EVERY_S = 10.0
FORGIVEN_S = 600.0  # a node that failed may try the host again
HOSTS_MAX = 100_000


class DSpider(Policy):
    """Learns from the outcomes of its owner's loans which node cannot reach which host."""

    name = "dspider"
    about = "one node fetches all of a host, until it cannot connect to it"
    pinned = True

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._failed: dict[str, dict[bytes, float]] = {}  # host → node → when; the least recently changed first
        self._timeout_s: dict[bytes, float] = {}  # of those who were candidates last
        self._adapted_at = float("-inf")

    def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
        nodes = rendezvous(host_key(task.host), [candidate.node for candidate in candidates], {})
        failed = [node for node, at in self._failed.get(task.host, {}).items() if now - at < FORGIVEN_S]
        if now - self._adapted_at >= ADAPTS_EVERY_S:
            self._adapted_at = now
            self._adapt(candidates)
        return failed_last(failed_last(nodes, failed), task.failed)

    def terms(self, node: bytes, host: str) -> AssignmentTerms:
        return AssignmentTerms(connect_timeout_s=self._timeout_s.get(node, TIMEOUT_S))

    def heard(self, outcome: Outcome, now: float) -> None:
        failed = self._failed.get(outcome.host, {})
        if outcome.result is TaskResult.UNREACHABLE:
            self._failed.pop(outcome.host, None)
            self._failed[outcome.host] = {**failed, outcome.node: now}
            if len(self._failed) > HOSTS_MAX:
                del self._failed[next(iter(self._failed))]
        elif outcome.result is TaskResult.PAGE and failed.pop(outcome.node, None) is not None and not failed:
            del self._failed[outcome.host]

    def _adapt(self, candidates: Sequence[Candidate]) -> None:
        mean = sum(candidate.lent for candidate in candidates) / max(len(candidates), 1)
        before, self._timeout_s = self._timeout_s, {}
        for candidate in candidates:
            timeout_s = before.get(candidate.node, TIMEOUT_S)
            if candidate.lent > HIGH * mean:
                timeout_s = max(timeout_s * SHRINKS, TIMEOUT_MIN_S)
            elif candidate.lent < LOW * mean:
                timeout_s = min(timeout_s * GROWS, TIMEOUT_MAX_S)
            self._timeout_s[candidate.node] = timeout_s
