"""One host at its gatekeeper: its holder, the nodes in line, when it may be asked again; without I/O.

Only `dhtcrawl.swarm.hosts.gatekeeper` calls this; times are seconds on its clock.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field

from dhtcrawl.swarm.hosts.leases import HostState

OFFERS_MISSED_MAX = 3  # then a node loses its place in line
QUEUE_MAX = 1024  # nodes in line for a host; more are told to ask again


@dataclass(eq=False, slots=True)
class HeldLease:
    """A lease as its gatekeeper knows it."""

    id: bytes
    node: bytes
    granted_at: float  # or when it was renewed in full
    ends_at: float


@dataclass(eq=False, slots=True)
class HostLine:
    """The state of one host: LEASED with a lease, RESTING until delay and hold are over, otherwise FREE."""

    name: str
    used_at: float
    last_end_at: float = field(default=-math.inf, init=False)  # when the last request ended, or may have
    hold_until: float = field(default=-math.inf, init=False)
    delay_s: float = field(default=0.0, init=False)  # the longest that a node asked for
    lease: HeldLease | None = field(default=None, init=False)
    queue: OrderedDict[bytes, int] = field(default_factory=OrderedDict, init=False)  # node → offers it missed
    offered_at: float | None = field(default=None, init=False)  # when the head of the line was told
    takeovers: int = field(default=0, init=False)  # how many of them `last_end_at` takes into account

    @property
    def head(self) -> bytes | None:
        """The node that is first in line."""
        return next(iter(self.queue), None)

    def next_at(self, delay_factor: float) -> float:
        """When the next request may begin."""
        return max(self.hold_until, self.last_end_at + self.delay_s * delay_factor)

    def idle(self, now: float, delay_factor: float) -> bool:
        """Whether the host can be forgotten without loss."""
        return self.lease is None and not self.queue and self.next_at(delay_factor) <= now

    def ended(self, at: float) -> None:
        """Note that a request ended then, or may have."""
        self.last_end_at = max(self.last_end_at, at)

    def hold(self, until: float) -> None:
        """Note that the host is to be left alone until then."""
        self.hold_until = max(self.hold_until, until)

    def expire(self, now: float) -> None:
        """End a lease whose time is over, as if a request had ended at the last moment."""
        if self.lease is not None and self.lease.ends_at <= now:
            self.ended(self.lease.ends_at)
            self.lease = None

    def others_wait(self, node: bytes) -> bool:
        """Whether a node other than `node` is in line."""
        return len(self.queue) > (node in self.queue)

    def may_have_it(self, node: bytes) -> bool:
        """Whether it is the turn of `node`, or was: an ask after a missed offer may only be late, as from far away."""
        return self.head in (None, node) or self.queue.get(node, 0) > 0

    def join(self, node: bytes) -> bool:
        """Put a node at the end of the line unless it is in it; False where the line is too long."""
        if node not in self.queue and len(self.queue) >= QUEUE_MAX:
            return False
        self.queue.setdefault(node, 0)
        return True

    def leave(self, node: bytes) -> None:
        """Take a node out of the line."""
        if self.head == node:
            self.offered_at = None
        self.queue.pop(node, None)

    def pass_over(self) -> bytes | None:
        """Move the head to the back after a missed offer; after the third, return it for removal."""
        head = self.head
        assert head is not None, "no node was offered the host"
        self.offered_at = None
        self.queue[head] += 1
        if self.queue[head] < OFFERS_MISSED_MAX:
            self.queue.move_to_end(head)
            return None
        return head

    def export(self, now: float, delay_factor: float) -> HostState | None:
        """What the next gatekeeper has to know; None: the host owes nothing."""
        next_in_s = max(0.0, self.next_at(delay_factor) - now)
        if self.lease is not None:
            left_s = self.lease.ends_at - now
            return HostState(self.name, self.lease.node, self.lease.id, left_s, self.delay_s, next_in_s)
        return HostState(self.name, b"", b"", 0.0, self.delay_s, next_in_s) if next_in_s else None

    def adopt(self, row: HostState, now: float) -> None:
        """Take over what the last gatekeeper exported; the time the row took only makes waits longer."""
        self.delay_s = max(self.delay_s, row.delay_s)
        self.hold(now + row.next_in_s)
        if row.node and self.lease is None:
            self.lease = HeldLease(row.lease_id, row.node, now, now + row.left_s)
        elif row.node:
            # Two gatekeepers leased it at once: one of the leases is kept, both are waited for.
            self.ended(now + row.left_s)
