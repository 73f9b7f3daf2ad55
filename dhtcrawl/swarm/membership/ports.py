"""What joining needs of the rest of a node: its crawls, its gossip, and what else is told when it owns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from dhtcrawl.rpc.membership.view import MemberState, View
from dhtcrawl.swarm.calls.hosts import HostStateRow
from dhtcrawl.swarm.calls.membership import HeldRow


class OwnedCrawls(Protocol):
    """The crawls of this node, as they are told of who owns what."""

    def hold(self, hold: bool) -> None:
        """Start nothing, or go on."""
        ...

    def settled(self, view: View | None) -> None:
        """Everything that is ours by `view` may be fetched; None: nothing yet."""
        ...

    def hold_for(self, node: bytes, rows: Sequence[HeldRow]) -> None:
        """`node` has these tasks of ours in flight: rows (crawl, keys), from a peer."""
        ...

    async def pull(self, node: bytes) -> bool:
        """Learn the crawls that `node` knows; whether it answered."""
        ...


class Membership(Protocol):
    """What joining and leaving need of the gossip."""

    @property
    def view(self) -> View: ...

    @property
    def incarnation(self) -> int: ...

    def become(self, state: MemberState) -> None:
        """Tell all members what we are."""
        ...

    async def exchange(self, node: bytes) -> bool:
        """Exchange all member records, both ways, with one node; whether it answered."""
        ...


@dataclass(frozen=True)
class OwnerPorts:
    """What else a node does as it comes to own."""

    adopt: Callable[[Sequence[HostStateRow]], None]  # takes what an answer to `activate` says of hosts
    owning: Callable[[bool], None]  # True: links are taken from here on
