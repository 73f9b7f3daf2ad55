"""Where the hosts of a crawl stand at one node, and what keeps each of them back. Only looks; for people."""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from dhtcrawl.crawl.back_queue import BackQueue
from dhtcrawl.crawl.frontier import Frontier
from dhtcrawl.crawl.origins import Origins
from dhtcrawl.fetch.politeness import HostBook
from dhtcrawl.standing import PACE_S, Cause, HostCondition, Obstacle, first, host_state

HOSTS_LOOKED_AT_MAX = 1_000  # of the frontier's, those that came first
HOSTS_ASKED_MAX = 100  # for each report of a node


class HostStanding(NamedTuple):
    """One host with tasks of a crawl."""

    host: str
    queued: int  # tasks in memory
    in_flight: int
    obstacle: Obstacle | None  # None: a request is under way, or may begin

    @property
    def state(self) -> HostCondition:
        """The state in one word."""
        return host_state(self.obstacle)


def host_standings(
    frontier: Frontier, hosts: HostBook, origins: Origins, now: float, limit: int = HOSTS_LOOKED_AT_MAX
) -> list[HostStanding]:
    """The hosts of the frontier, in no order that means anything; at most `limit`."""
    return [_standing(queue, hosts, origins, now) for queue in islice(frontier.hosts(), limit)]


def frontier_obstacle(frontier: Frontier, hosts: HostBook, origins: Origins, now: float) -> Obstacle | None:
    """What keeps all hosts of the frontier back; None while a request to one of them may begin, or has begun.

    Whether one may begin is known of all hosts. What is named is the first by the order of `CAUSES` among the host
    that is free first and `HOSTS_ASKED_MAX` others: with more, any that is named is true, and tells enough.
    """
    at, free_first = frontier.soonest()
    if at <= now:
        return None
    queues = [*([] if free_first is None else [free_first]), *islice(frontier.hosts(), HOSTS_ASKED_MAX)]
    found = [_obstacle(queue, hosts, origins, now) for queue in queues]
    return None if None in found else first([obstacle for obstacle in found if obstacle is not None])


def host_standing(frontier: Frontier, hosts: HostBook, origins: Origins, host: str, now: float) -> HostStanding | None:
    """One host with tasks of the crawl in memory; None where it has none."""
    queue = frontier.host(host)
    return None if queue is None else _standing(queue, hosts, origins, now)


def _standing(queue: BackQueue, hosts: HostBook, origins: Origins, now: float) -> HostStanding:
    queued = queue.filled + len(queue.retries)
    return HostStanding(queue.name, queued, queue.in_flight, _obstacle(queue, hosts, origins, now))


def _obstacle(queue: BackQueue, hosts: HostBook, origins: Origins, now: float) -> Obstacle | None:
    if queue.in_flight and not queue.robots_busy:
        return None
    clock = hosts.known(queue.name)
    found = None if clock is None else clock.obstacle(queue.name, now, origins.delay_s(queue.name))
    if found is not None and found.cause == Cause.DELAY:
        if found.left_s is not None and found.left_s < PACE_S:
            return None
        return found._replace(cause=Cause.CRAWL_DELAY) if origins.asked_delay(queue.name) else found
    if found is not None:
        return found
    if queue.robots_busy:
        return Obstacle(Cause.ROBOTS, queue.name)
    if queue.head(now) is None and queue.retries:
        return Obstacle(Cause.RETRY, queue.name, number=len(queue.retries), left_s=max(0.0, queue.retries[0][0] - now))
    return None
