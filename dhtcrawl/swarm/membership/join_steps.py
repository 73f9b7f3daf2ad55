"""What the core of joining asks of its shell. Values, pure.

Effects are carried out at once, in order. What takes time comes last, one at a
time, and the core is asked again when it is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from dhtcrawl.rpc.membership.view import MemberState, View
from dhtcrawl.swarm.replica_sets import Span


@dataclass(frozen=True)
class JoinSettings:
    """What a node's part in the swarm is judged by."""

    own: bytes  # the node's id
    replicas: int
    repair_s: float  # how often everything is compared with all neighbours, whatever happened
    suspicion_s: float  # how long a node that does not answer is no less a member; who is silent for longer may be dead
    outbound: bool = False  # no other node can reach it: it never owns, and has nothing to compare


@dataclass(frozen=True)
class Become:
    """Tell all members what this node is."""

    state: MemberState


@dataclass(frozen=True)
class Own:
    """Take links of others from here on, or refuse them."""

    owning: bool


@dataclass(frozen=True)
class Hold:
    """Start nothing, or go on."""

    hold: bool


@dataclass(frozen=True)
class Settle:
    """Fetch what is this node's by `view` and by the views to come; None: fetch nothing."""

    view: View | None


@dataclass(frozen=True)
class EndLeases:
    """Others have been gatekeepers too, apart from this side: no lease of a host holds any more."""


Effect: TypeAlias = Become | Own | Hold | Settle | EndLeases
Effects: TypeAlias = tuple[Effect, ...]


@dataclass(frozen=True)
class Pause:
    """Ask again after a while."""

    seconds: float


@dataclass(frozen=True)
class Meet:
    """Meet these nodes, all at once: each is to know this node, and gives what it has within some ranges."""

    nodes: Sequence[bytes]
    within: Sequence[Span]


@dataclass(frozen=True)
class Tell:
    """Tell these nodes, all at once, that this one is active."""

    nodes: Sequence[bytes]


@dataclass(frozen=True)
class AwaitChange:
    """Wait until the core has changed something, at most `seconds`; then call `waited`."""

    seconds: float


@dataclass(frozen=True)
class HandOver:
    """Hand over what others are to keep, and stop when something changes; then call `handed_over`."""


Awaited: TypeAlias = Pause | Meet | Tell | AwaitChange | HandOver


class Step(NamedTuple):
    """What the shell does next."""

    effects: Effects = ()
    then: Awaited | None = None
