"""What joining needs of the rest of a node: its crawls, its gossip, and what else is told when it owns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
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

    pull: Callable[[bytes], Awaitable[bool]]  # learns the crawls that a node knows; whether it answered
    hold_for: Callable[[bytes, Sequence[HeldRow]], None]  # takes what a node has in flight of ours
    adopt: Callable[[Sequence[HostStateRow]], None]  # takes what an answer to `activate` says of hosts
    owning: Callable[[bool], None]  # True: links are taken from here on
    reunited: Callable[[], None]  # ends all leases of hosts, as others have given some too
