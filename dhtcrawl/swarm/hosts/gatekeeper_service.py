"""Answers as gatekeeper to other nodes and, without a call, to this one; takes hosts over and exports them.

The gatekeeper of a host is the owner of `host_key` in this node's view. Asked
for a host of another gatekeeper, it answers that the host has moved; the asker,
whose view may be older or newer, tries again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from dhtcrawl.clock import Clock
from dhtcrawl.keyspace import host_key
from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.membership.view import View
from dhtcrawl.rpc.peers.port import CallRegistry, Peers
from dhtcrawl.swarm.calls import hosts as calls
from dhtcrawl.swarm.hosts import wire
from dhtcrawl.swarm.hosts.gatekeeper import Gatekeeper
from dhtcrawl.swarm.hosts.leases import GiveBack, Granted, LeaseAsk, Wait

log = logging.getLogger(__name__)


@loop_state
class GatekeeperService:
    """Serves `host_ask` and `host_give_back`; it is the `LocalGatekeeper` of this node's `LeaseHolder`."""

    def __init__(
        self,
        peers: Peers,
        registry: CallRegistry,
        clock: Clock,
        keeper: Gatekeeper,
        *,
        fit: Callable[[], bool],
        wake: Callable[[], None],
    ) -> None:
        """`fit()`: whether this node may act as gatekeeper; `wake()` is called when an offer may be due."""
        self.keeper = keeper
        self._peers = peers
        self._clock = clock
        self._fit = fit
        self._wake = wake
        self._view = peers.view
        self._shortened = 0  # of those of the keeper, what was seen
        registry.serve(calls.AskHosts, self._on_ask)
        registry.serve(calls.GiveHostsBack, self._on_give_back)

    def of(self, host: str) -> bytes | None:
        """The host's gatekeeper; None where there is none yet, or it is this node and that is not fit."""
        node = gatekeeper_in(self._peers.view, host)
        return None if node == self._peers.node_id and not self._fit() else node

    def is_ours(self, host: str) -> bool:
        """Whether this node answers for the host."""
        return self.of(host) == self._peers.node_id

    def ask_here(self, ask: LeaseAsk) -> Granted | Wait | None:
        """Answer an ask of this node; None where it does not answer for the host."""
        if not self.is_ours(ask.host):
            return None
        answer = self._ask(ask, self._peers.node_id, self._clock.monotonic())
        if isinstance(answer, Wait):
            self._wake()
        return answer

    def give_back_here(self, back: GiveBack) -> bool:
        """Take back a lease of this node; False where it does not answer for the host."""
        if not self.is_ours(back.host):
            return False
        now = self._clock.monotonic()
        since_end_s, hold_s = back.since_end_s(now), back.hold_s(now)
        self.keeper.give_back(back.host, self._peers.node_id, back.lease_id, since_end_s, hold_s, now)
        self._wake()
        return True

    def offers(self, now: float) -> list[tuple[bytes, str]]:
        """The nodes to tell, each with the host that it is offered."""
        return self.keeper.offers(now) if self._fit() else []

    def next_due_at(self, now: float) -> float:
        """When `offers` is worth calling: at once, later, or while this node is not fit never."""
        due_at = self.keeper.next_due_at()
        return due_at if due_at > now or self._fit() else float("inf")

    def view_changed(self, view: View, taken_over: bool) -> Callable[[str], bool]:
        """Note that members came or went, and return a test for hosts whose gatekeeper has changed.

        `taken_over`: hosts that came to this node came without their state.
        """
        old, self._view = self._view, view
        me = self._peers.node_id
        for node in old.missing_in(view):
            self.keeper.member_gone(node)
        if taken_over and (old.owning - view.owning or me in view.owning - old.owning):
            self.keeper.took_over(self._clock.monotonic(), lambda host: gatekeeper_in(old, host) == me)
        return lambda host: gatekeeper_in(old, host) != gatekeeper_in(view, host)

    def handed_on(self, rested_by: float) -> list[tuple[str, float]]:
        """The hosts that want to be left alone for longer than until `rested_by`, and until when.

        Once this node owns nothing more, as it leaves: they are dropped here, and others are their gatekeepers now.
        """
        if self._peers.node_id in self._view.owning or not self._view.owning:
            return []
        now = self._clock.monotonic()
        rows = self.keeper.export(lambda host: True, now, len(self.keeper))
        return [(row.host, now + row.next_in_s) for row in rows if now + row.next_in_s > rested_by]

    def reunited(self) -> None:
        """Note that other nodes, which were taken for dead, have been gatekeepers as well."""
        if self._fit():
            self.keeper.took_over(self._clock.monotonic(), lambda host: False)

    def export(self, wanted: Callable[[str], bool]) -> tuple[calls.HostStateRow, ...]:
        """Rows of the hosts that `wanted` names, which are dropped here; call it until it returns none."""
        return wire.state_rows(self.keeper.export(wanted, self._clock.monotonic(), calls.HOST_ROWS_MAX))

    def adopt(self, rows: Sequence[calls.HostStateRow]) -> None:
        """Take rows that another gatekeeper exported."""
        self.keeper.adopt(wire.states_of(rows), self._clock.monotonic())
        self._wake()

    def _ask(self, ask: LeaseAsk, node: bytes, now: float) -> Granted | Wait | None:
        answer = self.keeper.ask(ask, node, now)
        self._note_shortened(ask.host, node)
        if log.isEnabledFor(logging.DEBUG):
            log_answer(log, ask, answer, f"node {node.hex()[:12]}")
        return answer

    def _note_shortened(self, host: str, node: bytes) -> None:
        if self.keeper.shortened and not self._shortened:
            text = (
                "node %s wants %s to rest for longer than politeness.crawl_delay_max_s, the delays of all crawls and"
                " politeness.retry_after_max_s allow; it does not, and from now on this is only counted"
            )
            log.warning(text, node.hex()[:12], host, extra={"peer": node.hex(), "host": host})
        self._shortened = self.keeper.shortened

    def _on_ask(self, node: bytes, args: calls.AskHosts) -> calls.HostAnswers:
        now = self._clock.monotonic()
        self._wake()
        answers = (self._ask(ask, node, now) if self.is_ours(ask.host) else None for ask in wire.asks_of(args.asks))
        return calls.HostAnswers(tuple(map(wire.answer_row, answers)))

    def _on_give_back(self, node: bytes, args: calls.GiveHostsBack) -> calls.HostsTaken:
        now, taken = self._clock.monotonic(), bytearray()
        for host, lease_id, since_end_ms, hold_ms in args.backs:
            taken.append(self.is_ours(host))
            if taken[-1]:
                since_end_s = None if since_end_ms is None else since_end_ms / 1000
                self.keeper.give_back(host, node, lease_id, since_end_s, hold_ms / 1000, now)
                self._note_shortened(host, node)
        self._wake()
        return calls.HostsTaken(bytes(taken))


def gatekeeper_in(view: View, host: str) -> bytes | None:
    """The node id of a host's gatekeeper; None while no member is active."""
    owner = view.owner(host_key(host))
    return None if owner is None else owner.id


def log_answer(logger: logging.Logger, ask: LeaseAsk, answer: Granted | Wait | None, holder: str) -> None:
    """Log what a gatekeeper answered to `holder`, at DEBUG."""
    fields = {"host": ask.host}
    if isinstance(answer, Granted):
        again = " again" if ask.lease_id else ""
        text = "%s is leased to %s%s for %.3g s and %d requests"
        logger.debug(text, ask.host, holder, again, answer.ttl_s, answer.requests, extra=fields)
    elif isinstance(answer, Wait):
        logger.debug("%s is not free for %s, which waits for %.3g s", ask.host, holder, answer.after_s, extra=fields)
    else:
        logger.debug("%s is not leased to %s: another node is its gatekeeper", ask.host, holder, extra=fields)
