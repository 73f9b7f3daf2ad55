"""The tasks that an owner has assigned to other nodes, and those that are assigned to a worker. No I/O.

    owner    queue ──lend──▶ assigned ──record says fetched, or dead──▶ over
                               ├──given back, or the worker is gone or silent──▶ queue, next rank
    worker   assigned here ──written──▶ over
                ├──failed here──▶ given back
                └──owner changed, or deaf for FENCE_S──▶ forgotten, unless in flight

Each side goes by its own clock, and they need not agree: a worker whose reports the owner has not answered for
`FENCE_S` starts none of that owner's tasks any more; an owner takes back the tasks of a worker that it has not heard
for `SILENT_S`, which is longer by more than any request takes. So no task is fetched by two nodes, but for what was in
flight (design invariants I3, I8). An assignment belongs to one incarnation of both: a restarted node has forgotten it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice
from math import inf
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from dhtcrawl.loop_state import loop_state

FENCE_S = 60.0
SILENT_S = 120.0
# A worker reports so often, with or without news.
REPORT_EVERY_S = 10.0
LENT_MAX = 100_000
# Of the pages that were fetched here for others, so many are remembered: far more than are under way at a time.
BROUGHT_MAX = 1_000

NONE_KNOWN: Mapping[bytes, str] = MappingProxyType({})

T = TypeVar("T")
IncarnationOf = Callable[[bytes], "int | None"]  # a member's; None: it is not there


class TaskAssignment(NamedTuple):
    """One assigned task, as its owner sees it."""

    node: bytes
    incarnation: int | None
    host: str
    since: float
    budget_s: float
    origin: str = ""
    begun: bool = False  # the worker has been told
    idle_s: float = inf  # it is recalled after so long without a page of the host


@loop_state
class Assigned:
    """The tasks of a crawl that their owner has assigned. Times are seconds on the caller's monotonic clock."""

    def __init__(self) -> None:
        self.version = 0  # grows whenever keys come or go
        self._loans: dict[bytes, TaskAssignment] = {}
        self._at: Counter[tuple[bytes, str]] = Counter()
        self._of: Counter[bytes] = Counter()
        self._hosts: Counter[str] = Counter()
        self._heard_at: dict[bytes, float] = {}
        self._lent_at: dict[bytes, float] = {}  # when a node was last given tasks, of those that have any
        self._page_at: dict[tuple[bytes, str], float] = {}  # when a page was last heard of, by node and host
        self._gone: dict[bytes, int | None] = {}  # nodes that went while they had tasks → their incarnation

    def __len__(self) -> int:
        return len(self._loans)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._loans)

    def __contains__(self, key: object) -> bool:
        return key in self._loans

    def among(self, keys: Iterable[bytes]) -> set[bytes]:
        """Those of these tasks that are assigned, for one call."""
        loans = self._loans
        return {key for key in keys if key in loans}

    def count(self, node: bytes, host: str | None = None) -> int:
        """How many tasks are assigned to a node, of one host or of all."""
        return self._of[node] if host is None else self._at[node, host]

    def count_host(self, host: str) -> int:
        """How many tasks of a host are assigned, to all nodes together."""
        return self._hosts[host]

    def counts(self) -> Mapping[tuple[bytes, str], int]:
        """How many tasks each node has of each host."""
        return self._at

    def lend(
        self,
        node: bytes,
        incarnation: int | None,
        host: str,
        keys: Collection[bytes],
        now: float,
        budget_s: float,
        origins: Mapping[bytes, str] = NONE_KNOWN,
        *,
        idle_s: float | None = None,
    ) -> dict[bytes, TaskAssignment]:
        """Assign tasks of a host to a node, on these terms; `origins` has the origins of their URLs."""
        if not keys:
            return {}
        self.version += 1
        if node not in self._of:
            self._heard_at[node] = now
        self._lent_at[node] = now
        idle = inf if idle_s is None else idle_s
        given = {
            key: TaskAssignment(node, incarnation, host, now, budget_s, origins.get(key, ""), idle_s=idle)
            for key in keys
        }
        assert self._loans.keys().isdisjoint(given), "a task is lent to one node"
        self._loans |= given
        self._at[node, host] += len(given)
        self._hosts[host] += len(given)
        self._of[node] += len(given)
        return given

    def let_go(self, keys: Iterable[bytes]) -> dict[bytes, TaskAssignment]:
        """End the assignments of these; return those that there were."""
        over = {key: loan for key in keys if (loan := self._loans.pop(key, None)) is not None}
        self.version += bool(over)
        for loan in over.values():
            _one_less(self._at, (loan.node, loan.host))
            _one_less(self._of, loan.node)
            _one_less(self._hosts, loan.host)
            if (loan.node, loan.host) not in self._at:
                self._page_at.pop((loan.node, loan.host), None)
            if loan.node not in self._of:
                del self._heard_at[loan.node], self._lent_at[loan.node]
        return over

    def lent_s(self, node: bytes, now: float) -> float:
        """How long ago a node was last given tasks; infinity for one that has none."""
        return now - self._lent_at.get(node, -inf)

    def let_go_from(self, node: bytes, keys: Iterable[bytes]) -> dict[bytes, TaskAssignment]:
        """End those of these assignments that `node` has; return them."""
        return self.let_go(key for key in list(keys) if (loan := self._loans.get(key)) and loan.node == node)

    def heard_from(self, node: bytes, now: float) -> None:
        """Note that a worker has reported."""
        if node in self._heard_at:
            self._heard_at[node] = now

    def brought(self, node: bytes, host: str, now: float) -> None:
        """Note that a worker has brought a page of a host."""
        if (node, host) in self._at:
            self._page_at[node, host] = now

    def idle_s(self, key: bytes, now: float) -> float:
        """How long a worker has had a task without bringing a page of the host; 0 for one that is not assigned."""
        loan = self._loans.get(key)
        return 0.0 if loan is None else self._idle_s(loan, now)

    def get(self, key: bytes) -> TaskAssignment | None:
        """The assignment of a task, if it has one."""
        return self._loans.get(key)

    def begin(self, keys: Iterable[bytes], now: float) -> None:
        """Start the budget of tasks that their worker has been told of, or may have been."""
        for key in keys:
            self._loans[key] = self._loans[key]._replace(since=now, begun=True)

    def begun(self, incarnation_of: IncarnationOf) -> int:
        """How many tasks have workers that know of them and run on: these count the tasks in their own reports."""
        there = {node: incarnation_of(node) for node in self._of}
        return sum(loan.begun and there[loan.node] == loan.incarnation is not None for loan in self._loans.values())

    def renew(self, keys: Iterable[bytes], now: float) -> None:
        """Start the budget of these anew: their worker is fetching them."""
        for key in keys:
            if key in self._loans:
                self._loans[key] = self._loans[key]._replace(since=now)

    def given_up(self, incarnation_of: IncarnationOf, now: float) -> dict[bytes, TaskAssignment]:
        """End the assignments whose worker is gone, restarted or silent for `SILENT_S`; return them."""
        silent = {node for node, at in self._heard_at.items() if now - at >= SILENT_S}
        void: list[bytes] = []
        for key, loan in self._loans.items():
            runs_in = incarnation_of(loan.node)
            if runs_in is None:
                self._gone[loan.node] = loan.incarnation
            if loan.node in silent or runs_in is None or runs_in != loan.incarnation:
                void.append(key)
        return self.let_go(void)

    def back(self, incarnation_of: IncarnationOf) -> list[bytes]:
        """The nodes that were gone and are back in the same incarnation: they still have tasks that were taken back."""
        there = [(node, self._gone.pop(node)) for node in list(self._gone) if incarnation_of(node) is not None]
        return [node for node, incarnation in there if incarnation_of(node) == incarnation]

    def overdue(self, waits_s: Callable[[str], float], now: float) -> dict[bytes, list[bytes]]:
        """Tasks, by worker, that are late, or idle, and were there for longer than their host keeps all waiting."""
        late: dict[bytes, list[bytes]] = {}
        waits = {host: waits_s(host) for host in self._hosts}
        for key, loan in self._loans.items():
            had_s = now - loan.since
            late_or_idle = had_s >= loan.budget_s or self._idle_s(loan, now) >= loan.idle_s
            if loan.begun and late_or_idle and had_s >= waits[loan.host]:
                late.setdefault(loan.node, []).append(key)
        return late

    def _idle_s(self, loan: TaskAssignment, now: float) -> float:
        return now - max(loan.since, self._page_at.get((loan.node, loan.host), loan.since))


@loop_state
class AssignedHere:
    """The tasks of a crawl that other nodes, their owners, have assigned to this one."""

    def __init__(self) -> None:
        self.version = 0  # grows whenever keys come or go
        self._owners: dict[bytes, tuple[bytes, int | None]] = {}
        self._of: Counter[tuple[bytes, int | None]] = Counter()
        self._heard_at: dict[tuple[bytes, int | None], float] = {}  # when an owner last answered a report
        self._patient: dict[bytes, None] = {}
        self._brought: dict[bytes, tuple[bytes, int | None]] = {}  # fetched here for these, the latest last

    def __len__(self) -> int:
        return len(self._owners)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._owners)

    def __contains__(self, key: object) -> bool:
        return key in self._owners

    def among(self, keys: Iterable[bytes]) -> set[bytes]:
        """Those of these tasks that are assigned to this node, for one call."""
        owners = self._owners
        return {key for key in keys if key in owners}

    @property
    def full(self) -> bool:
        """Whether there is no room for further tasks."""
        return len(self._owners) >= LENT_MAX

    def some(self, first: int, count: int) -> list[bytes]:
        """`count` keys from the `first`-th on."""
        return list(islice(self._owners, first, first + count))

    def owners(self) -> list[bytes]:
        """The nodes that have assigned tasks to this one, sorted."""
        return sorted({node for node, _ in self._of})

    def of(self, owner: bytes) -> list[bytes]:
        """The tasks that a node has assigned to this one."""
        return [key for key, (node, _) in self._owners.items() if node == owner]

    def is_patient(self, key: bytes) -> bool:
        """Whether all other nodes have failed a task: if its host does not answer, it is retried like an own task."""
        return key in self._patient

    def borrow(
        self, owner: bytes, incarnation: int | None, keys: Iterable[bytes], now: float, patient: Collection[bytes] = ()
    ) -> None:
        """Add tasks that their owner assigns to this node; for those in `patient` no other node is left."""
        lender = (owner, incarnation)
        self.version += 1
        for key in keys:
            self.give_back(key)
            self._brought.pop(key, None)
            self._owners[key] = lender
            self._of[lender] += 1
            self._heard_at[lender] = now
            if key in patient:
                self._patient[key] = None

    def give_back(self, key: bytes) -> bytes | None:
        """Forget a task; return the owner that had assigned it, if any."""
        lender = self._owners.pop(key, None)
        if lender is None:
            return None
        self.version += 1
        self._patient.pop(key, None)
        _one_less(self._of, lender)
        if lender not in self._of:
            del self._heard_at[lender]
        return lender[0]

    def bring(self, key: bytes) -> bytes | None:
        """Forget a task whose page was fetched here, but for whom; return the owner that had assigned it, if any."""
        lender = self._owners.get(key)
        if lender is not None:
            self._brought[key] = lender
            if len(self._brought) > BROUGHT_MAX:
                del self._brought[next(iter(self._brought))]
        return self.give_back(key)

    def was_brought(self, key: bytes) -> bool:
        """Whether a page was fetched here for an owner that has not changed since."""
        return key in self._brought

    def heard_by(self, owner: bytes, incarnation: int | None, now: float) -> None:
        """Note that an owner has answered a report."""
        if (owner, incarnation) in self._heard_at:
            self._heard_at[owner, incarnation] = now

    def void(
        self, owner_of: Callable[[bytes], bytes | None] | None, incarnation_of: IncarnationOf, now: float
    ) -> list[bytes]:
        """Forget and return the tasks that may not be begun any more: their owner does not hear us, or is another now.

        Owners are looked up only where `owner_of` is given: they change with the view.
        """
        dead = {
            lender for lender, at in self._heard_at.items() if now - at >= FENCE_S or not _runs(lender, incarnation_of)
        }
        gone = {lender for lender in set(self._brought.values()) if not _runs(lender, incarnation_of)}
        if gone or owner_of is not None:
            self._brought = {
                key: lender
                for key, lender in self._brought.items()
                if lender not in gone and (owner_of is None or owner_of(key) == lender[0])
            }
        if not dead and owner_of is None:
            return []
        void = [
            key
            for key, lender in self._owners.items()
            if lender in dead or (owner_of is not None and owner_of(key) != lender[0])
        ]
        for key in void:
            self.give_back(key)
        return void


def _runs(lender: tuple[bytes, int | None], incarnation_of: IncarnationOf) -> bool:
    """Whether an owner is there, in the incarnation in which it assigned tasks."""
    return incarnation_of(lender[0]) is not None and incarnation_of(lender[0]) == lender[1]


def _one_less(counts: Counter[T], of: T) -> None:
    counts[of] -= 1
    if not counts[of]:
        del counts[of]
