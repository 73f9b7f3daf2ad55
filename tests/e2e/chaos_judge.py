"""What a run of faults came to, from the web server's log alone: nothing here asks the nodes.

A page answered with 200 once more was *fetched again*. A fault explains that
when it could have caused it: the node that was killed or paused had this very
request under way, or its outcome not yet with the others; or the second request
was made while some nodes could not hear others, or had not yet found them
again. What each fault may explain is bounded, see `too_many`.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .chaos_faults import Fault, Kind

# From an answer to its tombstone at the backups: a group commit here and one there, on a busy machine; and where one of
# them has just died, the 5 s until others take its place.
UNTOLD_S = 9.0
# After a partition: of the dead one is asked every 30 s, and then there is the sync.
HEALED_S = 40.0
# From SIGCONT to the request that was about to be sent when SIGSTOP came.
RESUMED_S = 1.0
# asyncio and the kernel round; and the two ends of a request are not seen at one place.
GRAIN_S = 0.01


@dataclass(frozen=True, slots=True)
class Hit:
    """One request; seconds from the crawl's begin."""

    began_s: float
    ended_s: float
    status: int
    node: int
    port: int
    path: str


@dataclass(frozen=True, slots=True)
class Again:
    """A page that was fetched once more, and the fault that explains it."""

    first: Hit
    second: Hit
    fault: Fault | None


def read_log(log: Path, begun_at: float, nodes: Mapping[str, int]) -> list[Hit]:
    """The requests, in the order in which they ended; `nodes` are numbers by address."""
    hits = []
    for line in log.read_text().splitlines():
        began, ended, status, client, port, path = line.split(" ", 5)
        node = nodes[client]
        hits.append(Hit(float(began) - begun_at, float(ended) - begun_at, int(status), node, int(port), path))
    return hits


def fetched_again(hits: Iterable[Hit], faults: Sequence[Fault], in_flight: int) -> list[Again]:
    """Every 200 after a page's first, robots.txt left out.

    A fault of one node explains at most `in_flight` of them; what is beyond
    that is a partition's, where one explains it, too.
    """
    by_page: defaultdict[tuple[int, str], list[Hit]] = defaultdict(list)
    for hit in hits:
        if hit.status == 200 and hit.path != "/robots.txt":
            by_page[hit.port, hit.path].append(hit)
    pairs = [pair for found in by_page.values() for pair in itertools.pairwise(found)]
    spent: Counter[Fault] = Counter()
    again = []
    for first, second in pairs:
        reasons = [fault for fault in faults if _explains(fault, first, second)]
        # One of a node that has some left, then a partition, then one of a node that explains too much.
        fault = min(reasons, key=lambda one: (one.kind is Kind.PARTITION) + 2 * (spent[one] >= in_flight), default=None)
        if fault is not None:
            spent[fault] += fault.kind is not Kind.PARTITION
        again.append(Again(first, second, fault))
    return again


def _explains(fault: Fault, first: Hit, second: Hit) -> bool:
    if fault.kind is Kind.PARTITION:
        # Whenever the first was: a side may have none of a record's copies.
        return _parted(fault, second)
    # A paused node goes on with what it had begun, also where the request had not left it yet.
    begun_s = fault.at_s if fault.kind is Kind.KILL else fault.until_s + RESUMED_S
    theirs = [hit for hit in (first, second) if hit.node == fault.nodes[0]]
    return any(hit.began_s <= begun_s and fault.at_s <= hit.ended_s + UNTOLD_S for hit in theirs)


def _parted(fault: Fault, hit: Hit) -> bool:
    """Whether a request was made while some could not hear others, or had not found them again."""
    return fault.at_s <= hit.ended_s and hit.began_s <= fault.until_s + HEALED_S


def too_many(again: Sequence[Again], hits: Sequence[Hit], in_flight: int) -> list[str]:
    """What a fault costs at most, and does not keep to; a line each.

    One of a node: what it had in flight. A partition: one of two requests made
    meanwhile, for each side fetches what the other does. Without a fault: nothing.
    """
    found = []
    for fault, count in by_fault(again).items():
        bound = in_flight
        if fault.kind is Kind.PARTITION:
            bound = sum(hit.status == 200 and _parted(fault, hit) for hit in hits) // 2
        if count > bound:
            found.append(f"{count} pages were fetched again because of one fault, {bound} at most: {fault}")
    unexplained = [row for row in again if row.fault is None]
    for row in unexplained[:3]:
        found.append(f"{len(unexplained)} pages were fetched again without a reason, such as {row.first}, {row.second}")
    return found


def by_kind(again: Iterable[Again]) -> Counter[str]:
    """How many of them each kind of fault explains; `unexplained` is the rest."""
    return Counter("unexplained" if row.fault is None else row.fault.kind.value for row in again)


def by_fault(again: Iterable[Again]) -> Counter[Fault]:
    """How many of them each fault explains."""
    return Counter(row.fault for row in again if row.fault is not None)


def too_soon(hits: Iterable[Hit], delay_s: float, faults: Sequence[Fault]) -> tuple[int, int]:
    """Requests that began sooner than the delay after an answer of the same port: outside of partitions, and in one."""
    outside = within = 0
    by_port: defaultdict[int, list[Hit]] = defaultdict(list)
    for hit in hits:
        by_port[hit.port].append(hit)
    parted = [fault for fault in faults if fault.kind is Kind.PARTITION]
    for found in by_port.values():
        last_s = float("-inf")
        for hit in sorted(found, key=lambda hit: hit.began_s):
            if hit.began_s - last_s < delay_s - GRAIN_S:
                if any(fault.at_s <= hit.began_s <= fault.until_s + HEALED_S for fault in parted):
                    within += 1
                else:
                    outside += 1
            last_s = max(last_s, hit.ended_s)
    return outside, within
