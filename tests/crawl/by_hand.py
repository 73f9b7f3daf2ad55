"""A frontier that a test drives by hand, step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dhtcrawl.crawl.frontier import Frontier, FrontierLimits, Job
from dhtcrawl.crawl.slot_shares import SlotShares
from dhtcrawl.fetch.politeness import HostBook
from dhtcrawl.storage.store.tasks import Queued

from .stored import task

NOW = 100.0


class ByHand(Frontier):
    """A frontier with the book of hosts that it asks when a host may be asked."""

    def __init__(self, book: HostBook, **given: Any) -> None:
        super().__init__(clock_of=book.clock, **given)
        self.book = book


def make(
    *,
    delay_s: float = 0.0,
    parallel: int = 1,
    robots: bool = False,
    known: set[str] | None = None,
    tasks_max: int = 10_000,
    hosts_max: int = 100,
    book: HostBook | None = None,
    waits: Callable[[bytes], bool] = lambda key: False,
    shares: SlotShares | None = None,
) -> ByHand:
    """A frontier whose stored queues have been looked through; `robots`: they are asked for."""
    made = ByHand(
        book or HostBook(started_at=0.0, fresh=True),
        delay_of=lambda _: delay_s,
        robots_known=lambda origin: not robots or origin in (known or ()),
        limits=FrontierLimits(parallel, tasks_max, hosts_max),
        waits=waits,
        shares=shares,
    )
    made.walk_begins()
    made.walk_ended()
    return made


def urls(frontier: ByHand, now: float = NOW) -> list[str]:
    """Everything that may start now, each finished at once."""
    started = []
    while (job := frontier.next(now)) is not None:
        started.append(job.task.url if job.task else f"{job.origin}/robots.txt")
        over(frontier, job, now)
    return started


def over(frontier: ByHand, job: Job, now: float = NOW) -> None:
    frontier.book.clock(job.host).end(now)
    frontier.finish(job, now)
    if job.task is not None:
        frontier.written(job.host, job.task.key, now)


def begin(frontier: Frontier, now: float = NOW) -> Job:
    job = frontier.next(now)
    assert job is not None
    return job


def url_of(job: Job | None) -> str | None:
    return job.task.url if job is not None and job.task is not None else None


def stored(count: int, host: str = "a") -> list[Queued]:
    return [task(f"http://{host}/{n}", n) for n in range(count)]
