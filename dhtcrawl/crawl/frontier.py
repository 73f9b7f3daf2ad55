"""Decides which task is next: Mercator's frontier (Heydon & Najork 1999, section 3.1), without I/O.

Priority and politeness are separate. A host's queue (its *back queue*) is sorted
by depth, then by the order of discovery; among the hosts that may be asked now,
the one whose first task has the smallest depth goes first, and hosts of equal
depth take turns. So a crawl is breadth first, spread over hosts, and never
waits for one host while another is free. Where several sites have work, none
takes all places: see `dhtcrawl.crawl.slot_shares`.

    idle ──add──▶ ready ──next──▶ busy ──finish──▶ waiting ──(delay over)──▶ ready
      ▲                            │                   │
      └──────── queue empty ───────┴───────────────────┘

The store holds every queue whole; memory holds the front of some hosts' queues.
`refills` names the fronts that have run low, and the shell answers with
`refilled`. Memory is bounded whatever the size of the frontier: by `hosts_max`,
and by `tasks_max` or `2 * FRONT_MIN` tasks a host, whichever is more. Times are
seconds on the caller's monotonic clock.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from dhtcrawl.crawl.back_queue import BackQueue
from dhtcrawl.crawl.slot_shares import SOON_S, SlotShares
from dhtcrawl.fetch.politeness import HostClock
from dhtcrawl.loop_state import loop_state
from dhtcrawl.storage.store.tasks import Queued
from dhtcrawl.url import host_of, origin_of

# 4,096 hosts of 2 * FRONT_MIN tasks are just the default of 65,536 in memory.
FRONT_MIN = 8
FRONT_MAX = 2048


@dataclass(eq=False, slots=True)
class Job:
    """A request that may start now, for a page or for the robots.txt that a page waits for."""

    host: str
    task: Queued | None  # None: fetch `origin`'s robots.txt
    origin: str
    attempt: int = 0
    unreached: int = 0  # the attempts before this one that found no connection, and say nothing of the page

    @property
    def failures(self) -> int:
        """How many attempts before this one failed for the page."""
        return self.attempt - self.unreached


class FrontierLimits(NamedTuple):
    """`parallel` requests at once to a host whose delay is 0; how many tasks and hosts are kept in memory."""

    parallel: int = 1
    tasks_max: int = 65_536
    hosts_max: int = 4_096


class _Lines:
    """Two heaps of hosts: those that may be asked now, and those that may be asked later; and who may have a place."""

    __slots__ = ("give_way", "ready", "shares", "turn", "waiting")

    def __init__(self, shares: SlotShares) -> None:
        self.shares = shares
        self.ready: list[tuple[float, int, str]] = []  # (depth, turn, host)
        self.waiting: list[tuple[float, int, str]] = []  # (due_at, turn, host)
        self.turn = 0  # of the last entry
        self.give_way: set[str] = set()  # hosts that start nothing, as another request waits for its turn there


class _Walk:
    """Whether the shell has to walk through all stored queues, while there is room in memory.

    Hosts may have work on disk without being in memory at the start, and after a host did not fit.
    """

    __slots__ = ("again", "due")

    def __init__(self) -> None:
        self.due = True
        self.again = False  # another walk has to follow the one under way


@loop_state
class Frontier:
    """Says which task of a crawl this node starts next, and when."""

    def __init__(
        self,
        *,
        clock_of: Callable[[str], HostClock],
        delay_of: Callable[[str], float],
        robots_known: Callable[[str], bool],
        limits: FrontierLimits | None = None,
        on_quiet: Callable[[str], None] = lambda host: None,
        waits: Callable[[bytes], bool] = lambda key: False,
        shares: SlotShares | None = None,
    ) -> None:
        """`delay_of(host)` is in seconds; where it is 0, requests may run at once, as `limits` say.

        `on_quiet(host)` is called when a host has no task to start for now, in memory or on disk.
        `waits(key)` says whether a task is still to be assigned to a node; `assign` lets it start here.
        `shares` keeps sites from taking all places; without it there is room for all.
        """
        self._waits = waits
        self._on_quiet = on_quiet
        self._clock_of = clock_of
        self._delay_of = delay_of
        self._robots_known = robots_known
        self._limits = limits or FrontierLimits()
        self._hosts: dict[str, BackQueue] = {}
        self._lines = _Lines(shares or SlotShares(0))
        self._low: dict[str, None] = {}  # hosts whose front wants a refill, in order
        self._desks: dict[str, None] = {}  # hosts with tasks that wait to be assigned, in the order of their turns
        self.in_flight = 0
        self._walk = _Walk()

    def __len__(self) -> int:
        """How many tasks are in memory."""
        return sum(host.filled + len(host.retries) for host in self._hosts.values())

    @property
    def empty(self) -> bool:
        """Whether no task is queued, in flight or still on disk."""
        return not self._hosts and not self._walk.due

    @property
    def overflowed(self) -> bool:
        """Whether there may be work on disk for hosts that are not in memory."""
        return self._walk.due

    @property
    def wants_assigning(self) -> bool:
        """Whether `unassigned` may name a task."""
        return bool(self._desks)

    @property
    def wants_refill(self) -> bool:
        """Whether `refills` would name a host."""
        return bool(self._low)

    @property
    def wants_hosts(self) -> bool:
        """Whether hosts may have work on disk, and memory has room for enough of them to make a walk worth it."""
        return self._walk.due and self._limits.hosts_max - len(self._hosts) >= max(1, self._limits.hosts_max // 8)

    def add(self, tasks: Iterable[Queued], now: float) -> None:
        """Add tasks that were just written to the store."""
        touched: dict[str, BackQueue] = {}
        for task in tasks:
            name = host_of(task.url)
            host = self._hosts.get(name)
            if host is None:
                if len(self._hosts) >= self._limits.hosts_max:
                    self._walk.due = self._walk.again = True
                    continue
                host = self._hosts[name] = BackQueue(name, complete=not self._walk.due)
            host.insert(task, waits=self._waits(task.key))
            touched[name] = host
        for host in touched.values():
            self._schedule(host, now)

    def walk_begins(self) -> None:
        """The shell begins to look through all stored queues."""
        self._walk.again = False

    def walk_ended(self) -> None:
        """The shell has named every host with work to `activate`."""
        self._walk.due = self._walk.again

    def activate(self, name: str) -> bool:
        """Take a host with work on disk into memory; return False if there is no room."""
        if name not in self._hosts:
            if len(self._hosts) >= self._limits.hosts_max:
                return False
            self._hosts[name] = BackQueue(name, complete=False)
            self._low[name] = None
        return True

    def next(self, now: float) -> Job | None:
        """The job to start now, or None; the caller answers with `finish`."""
        while self._lines.waiting and self._lines.waiting[0][0] <= now:
            _, turn, name = heapq.heappop(self._lines.waiting)
            host = self._hosts.get(name)
            if host is not None and host.entry == turn:
                self._push_ready(host, host.head(now))
        while self._lines.ready:
            _, turn, name = heapq.heappop(self._lines.ready)
            host = self._hosts.get(name)
            if host is None or host.entry != turn:
                continue
            host.entry = 0
            if self._lines.shares.puts_aside(name):
                continue
            job = self._start(host, now)
            if job is not None:
                return job
        return self._start_aside(now)

    def soonest(self) -> tuple[float, BackQueue | None]:
        """The host whose next job may start first, and when (minus infinity: now); infinity and None for no such host.

        However many hosts there are, it looks at the ends of the heaps.
        """
        for heap in (self._lines.ready, self._lines.waiting):
            while heap:
                at, turn, name = heap[0]
                host = self._hosts.get(name)
                if host is not None and host.entry == turn:
                    return (-math.inf if heap is self._lines.ready else at), host
                heapq.heappop(heap)
        return math.inf, None

    def next_due_at(self) -> float:
        """When to call `next` again; infinity if only an event can bring a job."""
        return self._lines.waiting[0][0] if self._lines.waiting else math.inf

    def finish(
        self, job: Job, now: float, *, retry_at: float | None = None, counts: bool = True, unreached: bool = False
    ) -> None:
        """A job is over; the caller has ended the request on the host's clock.

        With `retry_at` its task is tried again then, as a further attempt if
        this one `counts`, unless it left the stored queue meanwhile. Otherwise
        `written` must follow once the outcome is in the store. `unreached`: it
        found no connection.
        """
        self.in_flight -= 1
        host = self._hosts[job.host]
        host.in_flight -= 1
        if job.task is None:
            host.robots_busy = False
        elif retry_at is not None:
            host.again(job.task, retry_at, job.attempt + counts, job.unreached + unreached)
        for name in self._lines.shares.ends(job.host):
            put_aside = self._hosts.get(name)
            if put_aside is not None and put_aside is not host:  # which may be idle now, and gone after its turn
                self._schedule(put_aside, now)
        self._schedule(host, now)

    def written(self, name: str, key: bytes, now: float) -> None:
        """The store has a task's outcome, and no longer has the task in its queue."""
        host = self._hosts.get(name)
        if host is not None:
            host.ends(key)
            self._schedule(host, now)

    def all_written(self, tasks: Iterable[tuple[str, bytes]], now: float) -> None:
        """As `written`, of many tasks, by host and key: each host is scheduled once."""
        touched: dict[str, BackQueue] = {}
        for name, key in tasks:
            host = self._hosts.get(name)
            if host is not None:
                host.ends(key)
                touched[name] = host
        for host in touched.values():
            self._schedule(host, now)

    def put_back(self, name: str, task: Queued, now: float) -> None:
        """A job ended without an outcome: queue its task again, unless it left the stored queue meanwhile."""
        host = self._hosts.get(name)
        if host is None or host.ends(task.key):
            self.add([task], now)
        else:
            self._schedule(host, now)

    def host_free(self, name: str, now: float) -> None:
        """A host became free: another crawl or a redirected robots.txt request is over."""
        host = self._hosts.get(name)
        if host is not None:
            self._schedule(host, now)

    def give_way(self, name: str, gives: bool, now: float) -> None:
        """Start nothing of a host while another request waits for its turn there."""
        (self._lines.give_way.add if gives else self._lines.give_way.discard)(name)
        self.host_free(name, now)

    def forget(self, name: str, key: bytes, now: float) -> None:
        """A task left its stored queue without a job of this node; if it is in flight, it is not tried again."""
        host = self._hosts.get(name)
        if host is not None and host.leaves(key):
            self._schedule(host, now)

    def unassigned(self, a_host: int, limit: int) -> list[Queued]:
        """Up to `limit` tasks that wait to be assigned, at most `a_host` of each host; the hosts take turns."""
        found: list[Queued] = []
        for name in list(self._desks):
            if len(found) >= limit:
                break
            del self._desks[name]
            host = self._hosts.get(name)
            if host is not None and host.desk:
                self._desks[name] = None
                found += host.desk[: min(a_host, limit - len(found))]
        return found

    def load(self, name: str) -> int:
        """How many tasks of a host are in memory to be fetched by this node."""
        host = self._hosts.get(name)
        return 0 if host is None else len(host.front) + len(host.retries) + host.in_flight

    def host(self, name: str) -> BackQueue | None:
        """One host, if it is in memory, to be looked at only."""
        return self._hosts.get(name)

    def hosts(self) -> Iterator[BackQueue]:
        """The hosts in memory, to be looked at only."""
        return iter(self._hosts.values())

    def kept_back(self, keys: Collection[bytes], now: float) -> frozenset[bytes]:
        """Those of these tasks whose host may not be asked now: its delay, a pause, its lease or its robots.txt.

        That all fetchers are busy, with this host or with others, is this node's own affair.
        """
        found: set[bytes] = set()
        for host in self._hosts.values():
            some = host.known.intersection(keys)
            if some and (host.robots_busy or self._ready_at(host) > now):
                found |= some
        return frozenset(found)

    def retrying(self) -> set[bytes]:
        """Keys of tasks that wait for another try."""
        return {task.key for host in self._hosts.values() for _, task, *_ in host.retries}

    def delay_s(self, name: str) -> float:
        """The delay between two requests to a host, in seconds."""
        return self._delay_of(name)

    def assign(self, name: str, keys: Collection[bytes], now: float) -> None:
        """Let these tasks, which waited to be assigned, start here."""
        host = self._hosts.get(name)
        if host is not None:
            host.assign(keys)
            self._schedule(host, now)

    def lend(self, name: str, keys: Collection[bytes], now: float) -> None:
        """Forget these tasks, which are assigned to another node; the caller takes them out of the stored queue."""
        host = self._hosts.get(name)
        if host is not None and host.drop_keys(frozenset(keys)):
            self._schedule(host, now)

    def disown(self, mine: Callable[[bytes], bool], now: float) -> None:
        """Forget every task in memory that is not `mine` any more; those in flight finish as usual."""
        for host in list(self._hosts.values()):
            if host.drop(lambda task: not mine(task.key)):
                self._schedule(host, now)

    def distrust(self, now: float) -> None:
        """Read all stored queues again, because they may hold tasks that were not added here."""
        self._walk.due = self._walk.again = True
        for host in list(self._hosts.values()):
            host.complete = False
            host.refilling.doubted = host.refilling.busy
            self._schedule(host, now)

    def refills(self) -> list[tuple[str, int]]:
        """Hosts whose fronts are to be filled from the store, with how many tasks to read; each is named once."""
        wanted = []
        for name in self._low:
            host = self._hosts[name]
            host.refilling.busy = True
            # Tasks in flight or waiting for a retry are still in the stored queue's head.
            wanted.append((name, self._front_max() + len(host.known)))
        self._low.clear()
        return wanted

    def refilled(self, name: str, tasks: Iterable[Queued], complete: bool, now: float) -> bool:
        """Take in the head of a host's stored queue; `complete` if that is the whole queue.

        Returns:
            Whether any of it was new here.
        """
        host = self._hosts[name]
        filled = host.filled
        host.refilling.busy = False
        # The tasks that were read follow the front without a gap, so `insert` must keep all of them.
        host.complete = True
        for task in tasks:
            host.insert(task, waits=self._waits(task.key))
        host.complete = complete and not host.refilling.doubted
        host.refilling.doubted = False
        brought = host.filled > filled
        self._schedule(host, now)
        return brought

    def _start(self, host: BackQueue, now: float) -> Job | None:
        """The host's next job, begun; None if it has none now."""
        delay_s = self._delay_of(host.name)
        # Looked up each time: the host book forgets clocks without a pending wait.
        clock = self._clock_of(host.name)
        if host.name in self._lines.give_way or clock.ready_at(delay_s, self._parallel_at(delay_s)) > now:
            self._schedule(host, now)
            return None
        job = self._take(host, now)
        if job is not None:
            clock.begin(now, delay_s)
            host.in_flight += 1
            self.in_flight += 1
            self._lines.shares.begins(host.name)
        self._schedule(host, now)
        return job

    def _start_aside(self, now: float) -> Job | None:
        """A job of a host that was put aside, as no other host takes the place."""
        while (name := self._lines.shares.again()) is not None:
            host = self._hosts.get(name)
            # It may have nothing to do any more, or be in a line again.
            job = None if host is None or host.entry else self._start(host, now)
            if job is not None:
                return job
        return None

    def _take(self, host: BackQueue, now: float) -> Job | None:
        """The host's next job, or None if it has to wait for its robots.txt or a refill."""
        head = host.head(now)
        if head is None:
            return None
        origin = origin_of(head.url)
        if not self._robots_known(origin):
            if host.robots_busy:
                return None
            host.robots_busy = True
            return Job(host.name, None, origin)
        if host.retries and head is host.retries[0][1]:
            _, task, attempt, unreached = heapq.heappop(host.retries)
            return Job(host.name, task, origin, attempt, unreached)
        return Job(host.name, host.front.pop(0), origin)

    def _schedule(self, host: BackQueue, now: float) -> None:
        """Put the host into the heap it belongs to now; an entry that is still right keeps its turn."""
        front_max, filled = self._front_max(), host.filled
        if filled > 2 * front_max:
            host.spill(front_max)
        elif filled <= front_max // 2 and not host.complete and not host.refilling.busy:
            self._low[host.name] = None
        if host.desk:
            self._desks[host.name] = None
        head, gives_way = host.head(now), host.name in self._lines.give_way
        if head is None and host.complete and not host.refilling.busy and not gives_way:
            self._on_quiet(host.name)
        shares = self._lines.shares
        if host.idle:
            del self._hosts[host.name]
            shares.wants(host.name, False)
            return
        due_at = self._due_at(host, head)
        shares.wants(host.name, head is not None and _wants_place(host, due_at - now))
        if due_at == math.inf:
            host.entry = 0  # `finish`, `refilled`, `add` or `host_free` schedules it again
        elif due_at <= now:
            self._push_ready(host, head)
        elif not host.entry or host.place != (True, due_at):
            self._lines.turn += 1
            host.entry, host.place = self._lines.turn, (True, due_at)
            heapq.heappush(self._lines.waiting, (due_at, self._lines.turn, host.name))

    def _due_at(self, host: BackQueue, head: Queued | None) -> float:
        """When the host's next job may start, if `head` is its head now; infinity if time alone does not allow it."""
        if host.robots_busy or host.name in self._lines.give_way:
            return math.inf
        if head is None:
            # Do not ask the clock: where hosts are leased, asking it counts as a wish for the host.
            return host.retries[0][0] if host.retries else math.inf
        delay_s = self._delay_of(host.name)
        return self._clock_of(host.name).ready_at(delay_s, self._parallel_at(delay_s))

    def _ready_at(self, host: BackQueue) -> float:
        """When the host itself allows its next request; infinity while it is not known, or one is under way."""
        delay_s, clock = self._delay_of(host.name), self._clock_of(host.name)
        return clock.ready_at(delay_s, 1 if delay_s > 0 else clock.in_flight + 1)

    def _push_ready(self, host: BackQueue, head: Queued | None) -> None:
        depth = head.depth if head is not None else 0
        if host.entry and host.place == (False, depth):
            return
        self._lines.turn += 1
        host.entry, host.place = self._lines.turn, (False, depth)
        heapq.heappush(self._lines.ready, (depth, self._lines.turn, host.name))

    def _parallel_at(self, delay_s: float) -> int:
        # With a delay there is one request at a time.
        return 1 if delay_s > 0 else self._limits.parallel

    def _front_max(self) -> int:
        return max(FRONT_MIN, min(FRONT_MAX, self._limits.tasks_max // (2 * max(1, len(self._hosts)))))


def _wants_place(host: BackQueue, wait_s: float) -> bool:
    """Whether a host with work could use a place; `wait_s` is infinite also where it has no lease yet."""
    return wait_s <= SOON_S or (wait_s == math.inf and not host.in_flight and not host.robots_busy)
