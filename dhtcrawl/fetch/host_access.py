"""The port through which fetchers reach hosts: whose turn it is, and what robots.txt is known.

A node by itself keeps to its own host clocks (`UnleasedHosts`). In a swarm
`dhtcrawl.swarm.hosts` leases each host to one node at a time, and shares what
its robots.txt came to.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from dhtcrawl.fetch.robots import RobotsVerdict

T = TypeVar("T")


class LeaseLost(NamedTuple):
    """A request was given up, or not begun, because its lease ended; `ended_at` is on the node's clock."""

    ended_at: float
    begun: bool = False  # the host may have got it


class RobotsKnown(NamedTuple):
    """What a robots.txt came to `age_s` ago: its rules are those of `body` where the verdict is to parse it."""

    verdict: RobotsVerdict
    body: bytes
    age_s: float


@dataclass(frozen=True, slots=True)
class RobotsFetch:
    """The asker fetches it, and tells the verdict."""


class RobotsWait(NamedTuple):
    """Another node fetches it: ask again after `after_s`."""

    after_s: float


RobotsAnswer = RobotsKnown | RobotsFetch | RobotsWait


class HostAccess(Protocol):
    """What a fetcher asks before and after it turns to a host."""

    @property
    def exceptions(self) -> int:
        """Requests that ended while their host was leased to another node, as this node learned as gatekeeper."""
        ...

    async def within_lease(self, host: str, start: Callable[[], Awaitable[T]]) -> T | LeaseLost:
        """What `start()` comes to, a request to `host`; `LeaseLost` where its lease ended before or meanwhile."""

    async def robots(self, origin: str, agent: str) -> RobotsAnswer:
        """What to do about the robots.txt of `scheme://host[:port]`, for a product token."""

    async def robots_tell(self, origin: str, agent: str, verdict: RobotsVerdict | None, body: bytes = b"") -> None:
        """Tell the verdict of a fetch that `robots` asked for; None: there is none, others may try."""


class UnleasedHosts:
    """What a node without a swarm has instead: hosts need no lease, and robots.txt is its own affair."""

    exceptions = 0

    async def within_lease(self, host: str, start: Callable[[], Awaitable[T]]) -> T | LeaseLost:
        return await start()

    async def robots(self, origin: str, agent: str) -> RobotsAnswer:
        return RobotsFetch()

    async def robots_tell(self, origin: str, agent: str, verdict: RobotsVerdict | None, body: bytes = b"") -> None:
        """As `HostAccess`."""
