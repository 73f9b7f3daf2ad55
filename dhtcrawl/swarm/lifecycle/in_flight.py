"""What nodes tell each other of tasks in flight when one of them begins to own their keys (design invariant I8).

    newcomer ──activate──▶ every member: those of its tasks that are in flight here, or assigned from here

The newcomer holds them until the nodes that have them report.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dhtcrawl.keyspace import placement
from dhtcrawl.rpc.membership.view import View
from dhtcrawl.swarm.assignment.wire import first_rows
from dhtcrawl.swarm.calls.membership import HeldRow
from dhtcrawl.swarm.calls.words import KEYS_MAX
from dhtcrawl.swarm.lifecycle.crawl_runs import CrawlRuns
from dhtcrawl.swarm.replica_sets import in_parts

Lent = Mapping[bytes, Mapping[bytes, bytes]]  # crawl → task key → the node that has it


def hold_for(runs: CrawlRuns, node: bytes, rows: Sequence[HeldRow]) -> None:
    """Hold what `node` has in flight of ours, by its answer to `activate`."""
    for row in rows:
        run = runs.of(row.crawl)
        if run is None:
            continue
        if row.node is not None:
            run.assignments.changes.hold_lent(row.node, row.keys)
        else:
            run.assignments.changes.hold_for(node, row.keys)


def lent(runs: CrawlRuns) -> Lent:
    """Which node has which task that is ours, or was a moment ago."""
    return {crawl: run.assignments.changes.holders() for crawl, run in runs}


def in_flight_of(runs: CrawlRuns, view: View, node: bytes, assigned: Lent) -> tuple[HeldRow, ...]:
    """Our answer to `activate`: the tasks that `node` owns now and we have in flight, or had assigned."""
    rows: list[HeldRow] = []
    for crawl, run in runs:
        rows += _held_rows(crawl, run.assignments.changes.in_hand(node), None)
    for crawl, tasks in assigned.items():
        by_worker: dict[bytes, list[bytes]] = {}
        for key, worker in tasks.items():
            owner = view.owner(placement(key))
            if owner is not None and owner.id == node != worker:
                by_worker.setdefault(worker, []).append(key)
        for worker, keys in by_worker.items():
            rows += _held_rows(crawl, keys, worker)
    return first_rows(rows)


def _held_rows(crawl: bytes, keys: Sequence[bytes], node: bytes | None) -> Iterator[HeldRow]:
    # The node that gets a row may ask about all of its keys in one call.
    for part in in_parts(keys, KEYS_MAX):
        yield HeldRow(crawl, part, node)
