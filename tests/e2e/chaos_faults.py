"""What befalls a swarm of processes, and when: drawn from a seed before it begins, without I/O.

    kill        SIGKILL, and started again in the same directory
    pause       SIGSTOP, and SIGCONT: some shorter than the others' patience, some longer
    partition   nothing gets from some nodes to others, both ways or one; some may see both sides

At no time are more than `down_max` nodes killed or paused, or on the way back
from that, and there is one partition at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random

KILLED_S = (1.0, 10.0)
PAUSED_S = (3.0, 30.0)
LONG_PAUSE_S = 60.0
LONG_FROM_S = 600.0  # a run of this length has long pauses
PARTED_S = (5.0, 25.0)
BACK_S = 8.0  # what a node takes to join again, on a busy machine
JITTER = 0.3


class Kind(Enum):
    """What can happen."""

    KILL = "kill"
    PAUSE = "pause"
    PARTITION = "partition"


WEIGHTS = {Kind.KILL: 45, Kind.PAUSE: 30, Kind.PARTITION: 25}


@dataclass(frozen=True, slots=True)
class Fault:
    """Seconds are from the crawl's begin; of a partition nothing gets from `nodes` to `others`."""

    kind: Kind
    at_s: float
    until_s: float
    nodes: tuple[int, ...]
    others: tuple[int, ...] = ()
    one_way: bool = False

    def __str__(self) -> str:
        what = ",".join(map(str, self.nodes))
        if self.kind is Kind.PARTITION:
            what = f"{what} {'->' if self.one_way else '<->'} {','.join(map(str, self.others))}"
        return f"{self.at_s:6.1f}-{self.until_s:6.1f} s {self.kind.value} {what}"


def schedule(rng: Random, nodes: int, length_s: float, every_s: float, down_max: int) -> list[Fault]:
    """A fault about every `every_s`, all of them over within `length_s`; in order of their begin."""
    faults: list[Fault] = []
    at_s = every_s
    while at_s < length_s - PAUSED_S[0]:
        fault = _draw(rng, faults, at_s, nodes, length_s, down_max)
        if fault is not None:
            faults.append(fault)
        at_s += every_s * rng.uniform(1 - JITTER, 1 + JITTER)
    return faults


def down(faults: Sequence[Fault], at_s: float) -> set[int]:
    """The nodes that are killed, paused, or on the way back then."""
    gone = [fault for fault in faults if fault.kind is not Kind.PARTITION]
    return {fault.nodes[0] for fault in gone if fault.at_s <= at_s < fault.until_s + BACK_S}


def _draw(
    rng: Random, before: Sequence[Fault], at_s: float, nodes: int, length_s: float, down_max: int
) -> Fault | None:
    kinds = dict(WEIGHTS)
    gone = down(before, at_s)
    if len(gone) >= down_max:
        del kinds[Kind.KILL], kinds[Kind.PAUSE]
    if any(fault.kind is Kind.PARTITION and at_s <= fault.until_s for fault in before):
        del kinds[Kind.PARTITION]
    if not kinds:
        return None
    (kind,) = rng.choices(list(kinds), list(kinds.values()))
    until_s = min(length_s, at_s + _lasts_s(rng, kind, length_s))
    if kind is Kind.PARTITION:
        return _partition(rng, at_s, until_s, nodes)
    victim = rng.choice([node for node in range(nodes) if node not in gone])
    return Fault(kind, at_s, until_s, (victim,))


def _lasts_s(rng: Random, kind: Kind, length_s: float) -> float:
    if kind is Kind.KILL:
        return rng.uniform(*KILLED_S)
    if kind is Kind.PARTITION:
        return rng.uniform(*PARTED_S)
    return LONG_PAUSE_S if length_s >= LONG_FROM_S and rng.random() < 0.2 else rng.uniform(*PAUSED_S)


def _partition(rng: Random, at_s: float, until_s: float, nodes: int) -> Fault:
    """One node to half of them, from the rest; a third of the time some of the rest see both sides."""
    order = rng.sample(range(nodes), nodes)
    count = rng.randint(1, nodes // 2)
    rest = order[count:]
    if rng.random() < 1 / 3:
        rest = rest[: rng.randint(1, len(rest))]
    one_way = rng.random() < 1 / 3
    sides = [tuple(sorted(order[:count])), tuple(sorted(rest))]
    if one_way and rng.random() < 0.5:
        sides.reverse()
    return Fault(Kind.PARTITION, at_s, until_s, sides[0], sides[1], one_way)
