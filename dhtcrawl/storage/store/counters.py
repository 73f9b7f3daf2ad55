"""The stored counters of a crawl on this node, where transactions other than a round's count, and what is told of them.

    a round       all that the event loop knew as the round began, and what the transaction found
    links         `urls_seen`, with the records of what other nodes found
    a release     `released_NAME` for each counter NAME that has the given-up task, and is not to have it any more;
                  `retried_released`, which is part of `retried`: its last request is followed by another try after all

A round must not undo what the others count meanwhile, so these counters go on from what is stored. Counters only
grow, as a monitor expects (`/metrics` has them as they are); `told` takes off what was released. The node that releases
a task may be another than the one that counted it: what cannot be taken off here is told, so that it is taken off the
sum.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from dhtcrawl.storage.store import keys, outcomes
from dhtcrawl.storage.store.records import SkipReason, Task, pack, unpack
from dhtcrawl.storage.store.txn import Txn

Figures: TypeAlias = Mapping[str, int | float]

NOTHING: Final[Mapping[str, int]] = MappingProxyType({})
_RELEASED: Final = "released_"
_RETRIED: Final = "retried_released"
_ALSO_COUNTED_APART: Final = frozenset({"urls_seen", outcomes.skip_counter_of(SkipReason.DROPPED)})


def of_dead(reason: str, detail: str) -> Counter[str]:
    """What a task counts as that is given up for a reason."""
    counted = Counter({"dead": 1, outcomes.skip_counter_of(reason): 1})
    if reason == SkipReason.FAILED:
        counted += Counter({"errors": 1, outcomes.counter_of(outcomes.kind_of_detail(detail)): 1})
    return counted


def of_change(before: Task, after: Task | None) -> Counter[str]:
    """What is counted where a dead task is released (None), or is dead for another reason from now on."""
    change = Counter[str]() if after is None else of_dead(after.reason, after.detail)
    change.subtract(of_dead(before.reason, before.detail))
    if after is None and before.reason == SkipReason.FAILED and outcomes.may_have_reached(before.detail):
        change[_RETRIED] += 1
    return Counter({name if count > 0 else _RELEASED + name: abs(count) for name, count in change.items() if count})


def is_of_release(name: str) -> bool:
    """Whether a counter with this name is what a release has counted."""
    return name.startswith(_RELEASED) or name == _RETRIED


def told(counters: Figures) -> dict[str, int | float]:
    """Counters without what was released, none below 0; what is left to take off elsewhere has its name still."""
    counters = dict(counters)
    if _RETRIED in counters:
        counters["retried"] = counters.get("retried", 0) + counters.pop(_RETRIED)
    found = {name: count for name, count in counters.items() if not is_of_release(name)}
    for name, count in counters.items():
        if is_of_release(name):
            counted = name.removeprefix(_RELEASED)
            left = found.get(counted, 0) - count
            if counted in found:
                found[counted] = max(0, left)
            if left <= 0 and outcomes.counts_a_kind(counted):
                found.pop(counted, None)  # so that no node has more names to tell than before
            if left < 0:
                found[name] = -left
    return found


def shown(counters: Figures) -> dict[str, int | float]:
    """As `told`, for people: nothing is left to take off."""
    return {name: count for name, count in told(counters).items() if not is_of_release(name)}


def _is_counted_apart(name: str) -> bool:
    return is_of_release(name) or name in _ALSO_COUNTED_APART


def put_counters(txn: Txn, crawl: bytes, known: Figures, counted: Mapping[str, int] = NOTHING) -> None:
    """Store what the event loop knew, and what a round has counted since.

    Raises:
        StorageError: the stored counters are damaged.
    """
    apart = {name: count for name, count in _stored(txn, crawl).items() if _is_counted_apart(name)}
    counters = Counter({**known, **apart})
    counters.update(counted)
    txn.put(keys.key(keys.COUNTERS, crawl), pack(dict(counters)))


def count(txn: Txn, crawl: bytes, counted: Mapping[str, int]) -> dict[str, int]:
    """Count what no round does, in the transaction that does it; return how these counters stand now.

    Raises:
        StorageError: the stored counters are damaged.
    """
    if not counted:
        return {}
    assert all(map(_is_counted_apart, counted)), counted
    counters = Counter(_stored(txn, crawl))
    counters.update(counted)
    txn.put(keys.key(keys.COUNTERS, crawl), pack(dict(counters)))
    return {name: counters[name] for name in counted}


def _stored(txn: Txn, crawl: bytes) -> dict[str, int]:
    value = txn.get(keys.key(keys.COUNTERS, crawl))
    return {} if value is None else unpack(value)
