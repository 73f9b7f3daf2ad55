"""A crawl's shell in miniature: stored queues as dictionaries, and the order in which things reach the frontier.

As in `dhtcrawl.crawl.crawler`: transactions see one another in the order in
which they were submitted, and their results arrive in that order, later. One
round of the corridor is under way at a time, and one pass of the refiller.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from dhtcrawl.crawl.frontier import Frontier, FrontierLimits, Job
from dhtcrawl.fetch.politeness import HostBook
from dhtcrawl.storage.store.tasks import Queued
from dhtcrawl.url import host_of, origin_of


def task(url: str, order: int = 0, depth: int = 0) -> Queued:
    """A queued task whose key is its URL."""
    return Queued(depth, order, url.encode(), url, "", 0, False)


@dataclass(slots=True)
class Stored:
    """The store's side: every task accepted so far, and those still queued, by host."""

    accepted: dict[bytes, Queued] = field(default_factory=dict)
    queues: dict[str, dict[bytes, Queued]] = field(default_factory=dict)
    killed: set[bytes] = field(default_factory=set)

    def accept(self, found: Queued) -> list[Queued]:
        """Enqueue a task that is new, or move one that was found on a shorter way."""
        old = self.accepted.get(found.key)
        queue = self.queues.setdefault(host_of(found.url), {})
        if old is None:
            self.accepted[found.key] = queue[found.key] = found
            return [found]
        if found.depth >= old.depth:
            return []
        moved = self.accepted[found.key] = old._replace(depth=found.depth)
        if found.key not in queue:
            return []
        queue[found.key] = moved
        return [moved]

    def remove(self, host: str, key: bytes) -> None:
        self.queues.get(host, {}).pop(key, None)

    def read(self, host: str, limit: int) -> tuple[list[Queued], bool]:
        """The head of a queue, and whether it is the whole."""
        queue = sorted(self.queues.get(host, {}).values())
        return queue[:limit], len(queue) <= limit

    def hosts(self, cursor: str, limit: int) -> tuple[list[str], str | None]:
        """The next hosts with work, from `cursor` on, and where to go on."""
        names = sorted(name for name, queue in self.queues.items() if queue and name >= cursor)
        if len(names) < limit:
            return names, None
        return names[:limit], names[limit - 1] + "\0"


class Shell:
    """Drives a frontier; each method is one thing that may happen next."""

    def __init__(
        self, delays_s: dict[str, float], *, tasks_max: int, hosts_max: int, parallel: int = 3, desk: bool = False
    ) -> None:
        """`desk`: who is to fetch a task is decided before it starts, by `assign` and `lend`."""
        self.now = 100.0
        self.store = Stored()
        self.book = HostBook(started_at=0.0, fresh=True)
        self.robots: set[str] = set()
        self.delays_s = delays_s
        self.frontier = Frontier(
            clock_of=self.book.clock,
            delay_of=lambda host: self.delays_s[host],
            robots_known=lambda origin: origin in self.robots,
            limits=FrontierLimits(parallel, tasks_max, hosts_max),
            waits=lambda key: desk,
        )
        self.lent: dict[bytes, Queued] = {}
        self.started: Counter[bytes] = Counter()
        self.robots_started: Counter[str] = Counter()
        self.retried: Counter[bytes] = Counter()
        self.jobs: list[Job] = []  # in flight
        self._found: list[Queued] = []
        self._outcomes: list[tuple[str, bytes]] = []
        self._deliveries: deque[Callable[[], None]] = deque()
        self._round = False
        self._refilling = False
        self._cursor = ""

    # -- the corridor --

    def find(self, found: Queued) -> None:
        """A link for the next round."""
        self._found.append(found)

    def commit_round(self) -> None:
        """Write outcomes and links; the frontier hears of it when it is delivered."""
        if self._round or not (self._found or self._outcomes):
            return
        found, self._found = self._found, []
        outcomes, self._outcomes = self._outcomes, []
        for host, key in outcomes:
            self.store.remove(host, key)
        queued = [moved for link in found for moved in self.store.accept(link)]
        self._round = True

        def after() -> None:
            self._round = False
            for host, key in outcomes:
                self.frontier.written(host, key, self.now)
            self.frontier.add(queued, self.now)

        self._deliveries.append(after)

    def deliver(self) -> None:
        """The oldest result that is under way arrives."""
        if self._deliveries:
            self._deliveries.popleft()()

    # -- the refiller --

    def refill(self) -> None:
        """Wake it, if it sleeps and is wanted."""
        if self._refilling or not (self.frontier.wants_refill or self.frontier.wants_hosts):
            return
        self._refilling = True
        for name, limit in self.frontier.refills():
            found, complete = self.store.read(name, limit)
            self._deliveries.append(partial(self._refilled, name, found, complete))
        self._deliveries.append(self._walk)

    def _refilled(self, name: str, found: list[Queued], complete: bool) -> None:
        self.frontier.refilled(name, [task for task in found if task.key not in self.lent], complete, self.now)

    def _walk(self) -> None:
        if not self.frontier.wants_hosts:
            self._refilling = False
            return
        if not self._cursor:
            self.frontier.walk_begins()
        self._deliveries.append(partial(self._walked, *self.store.hosts(self._cursor, 2)))

    def _walked(self, names: list[str], after: str | None) -> None:
        self._refilling = False
        for name in names:
            if not self.frontier.activate(name):
                self._cursor = name
                return
        if after is None:
            self.frontier.walk_ended()
        self._cursor = after or ""

    # -- who fetches --

    def assign(self, count: int) -> None:
        """Some tasks are to be fetched here."""
        for task in self.frontier.unassigned(2, count):
            self.frontier.assign(host_of(task.url), {task.key}, self.now)

    def lend(self, count: int) -> None:
        """Some tasks are to be fetched elsewhere."""
        for task in self.frontier.unassigned(2, count):
            self.lent[task.key] = task
            self.frontier.lend(host_of(task.url), {task.key}, self.now)
            self.store.remove(host_of(task.url), task.key)

    def give_back(self) -> None:
        """The task that was lent first comes back."""
        if self.lent:
            key = next(iter(self.lent))
            del self.lent[key]
            back = self.store.accepted[key]
            self.store.queues[host_of(back.url)][key] = back
            self._deliveries.append(lambda: self.frontier.add([back], self.now))

    # -- fetchers --

    def start(self) -> Job | None:
        """Ask for a job, and check what must hold of it."""
        job = self.frontier.next(self.now)
        if job is None:
            return None
        others = [other for other in self.jobs if other.host == job.host]
        assert not any(other.task is None for other in others), "a robots.txt has its host for itself"
        if self.delays_s[job.host] > 0:
            assert not others, "a host with a delay gets one request at a time"
        if job.task is None:
            assert job.origin not in self.robots
            self.robots_started[job.origin] += 1
        else:
            assert job.origin == origin_of(job.task.url)
            assert job.origin in self.robots
            self.started[job.task.key] += 1
        self.jobs.append(job)
        return job

    def finish(self, job: Job, *, retry_in_s: float | None = None) -> None:
        """A job ends; a page's outcome goes into the next round, unless it is tried again."""
        self.jobs.remove(job)
        self.book.clock(job.host).end(self.now)
        if job.task is None:
            self.robots.add(job.origin)
            self.frontier.finish(job, self.now)
        elif retry_in_s is not None:
            self.retried[job.task.key] += 1
            self.frontier.finish(job, self.now, retry_at=self.now + retry_in_s)
        else:
            self.frontier.finish(job, self.now)
            self._outcomes.append((job.host, job.task.key))

    # -- the end --

    @property
    def quiet(self) -> bool:
        """Nothing is under way."""
        return not (self.jobs or self._found or self._outcomes or self._deliveries or self.lent)

    def run_to_the_end(self, steps_max: int = 5_000) -> None:
        """Do everything there is to do, time included, until the frontier is empty."""
        for _ in range(steps_max):
            while self._deliveries:
                self.deliver()
            self.commit_round()
            self.refill()
            self.give_back()
            self.assign(100)
            while self.start() is not None:
                pass
            for job in list(self.jobs):
                self.finish(job)
            if self.quiet:
                if self.frontier.empty:
                    return
                due_at = self.frontier.next_due_at()
                if self.now < due_at < float("inf"):
                    self.now = due_at
        raise AssertionError("the crawl does not end")
