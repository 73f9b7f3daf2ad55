"""`dspider`: a host belongs to one node, until that node cannot connect to it (Wu et al. 2011).

The paper's control unit knows whose a host is, and offers one that its node gave
up to the others. Here the key of the host says it, so that nobody is asked: its
owner, but for the hosts that are more than the owner's share by how fast nodes
have been (`dhtcrawl.policy.shares`), which go to nodes that own too little. With
`crawl.key` "host" its owner has its records, too, and assigns nothing.

A node is passed over for a host, for a while, once it could not connect to it, or
took tasks of it and began none in their time. A host that has been begun stays
with its node, whatever later plans say. The time that a node may take to connect
follows its load: a node with little to do can wait longer for a slow host than one
with a queue.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from dhtcrawl.keyspace import host_key
from dhtcrawl.policy.balanced import Rates
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
    number_in,
)
from dhtcrawl.policy.shares import ShareBook

TIMEOUT_S = 10.0  # the fetcher's own default: `fetch.connect_timeout_s`
TIMEOUT_MIN_S, TIMEOUT_MAX_S = 3.0, 20.0
LOW, HIGH = 0.5, 2.0  # of the mean load: below it the time grows, above it shrinks
GROWS, SHRINKS = 1.25, 0.8
ADAPTS_EVERY_S = 10.0
FORGIVEN_S = 600.0  # a node that failed may try the host again
HOSTS_MAX = 100_000
_END = 8  # octets at the end of a host's key that draw whether its owner keeps it
_ALL = float(1 << 8 * _END)


class DSpider(Policy):
    """Learns from the results of its owner's tasks which node has begun which host, and which is passed over for it."""

    name = "dspider"
    about = "one node fetches all of a host, until it cannot connect to it, or does not begin"
    planner = Rates
    pinned = True

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._table: Mapping[str, Any] = {}
        self._shares = ShareBook()
        self._begun: OrderedDict[str, bytes] = OrderedDict()  # host → the node that brings its pages
        self._passed: dict[str, dict[bytes, float]] = {}  # host → node → when; the least recently changed first
        self._timeout_s: dict[bytes, float] = {}  # of those who were candidates last
        self._adapted_at = float("-inf")

    def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
        if not candidates:
            return []
        if now - self._adapted_at >= ADAPTS_EVERY_S:
            self._adapted_at = now
            self._adapt(candidates)
        nodes = [candidate.node for candidate in candidates]
        passed = [node for node, at in self._passed.get(task.host, {}).items() if now - at < FORGIVEN_S]
        return failed_last(failed_last(self._by_shares(task.host, nodes), passed), task.failed)

    def terms(self, node: bytes, host: str) -> AssignmentTerms:
        return AssignmentTerms(connect_timeout_s=self._timeout_s.get(node, TIMEOUT_S))

    def heard(self, outcome: Outcome, now: float) -> None:
        host, node = outcome.host, outcome.node
        if outcome.result is TaskResult.PAGE:
            self._begun[host] = node
            self._begun.move_to_end(host)
            if len(self._begun) > HOSTS_MAX:
                self._begun.popitem(last=False)
            passed = self._passed.get(host, {})
            if passed.pop(node, None) is not None and not passed:
                del self._passed[host]
        elif outcome.result is TaskResult.UNREACHABLE or (
            outcome.result is TaskResult.RECALLED and self._begun.get(host) != node
        ):
            if self._begun.get(host) == node:
                del self._begun[host]
            self._passed[host] = {**self._passed.pop(host, {}), node: now}
            if len(self._passed) > HOSTS_MAX:
                del self._passed[next(iter(self._passed))]

    def adopt(self, table: Mapping[str, Any]) -> None:
        self._table = table
        self._shares.adopt(table)

    def _by_shares(self, host: str, nodes: list[bytes]) -> list[bytes]:
        """These nodes for a host: who has begun it, whose it is by shares, then the others by weighted rendezvous."""
        key = host_key(host)
        place = int.from_bytes(key, "big")
        shares = self._shares.near(place, nodes)
        owner = shares.closest(place)
        weights = {node: number_in(self._table, "weights", node, 1.0) for node in nodes}
        first = [owner]
        if int.from_bytes(key[-_END:], "big") / _ALL >= shares.keeps[owner]:
            first = rendezvous(key, list(shares.lacks), shares.lacks)[:1]
        begun = self._begun.get(host)
        return list(dict.fromkeys(([begun] if begun in weights else []) + first + rendezvous(key, nodes, weights)))

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
