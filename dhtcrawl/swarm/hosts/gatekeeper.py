"""Leases each host to one node at a time, for the hosts whose gatekeeper this node is; without I/O.

                 ask                 give_back, or ttl over
    FREE ───────────────▶ LEASED ───────────────────────────▶ RESTING
     ▲  offer ▶ ask ▶ grant                                       │
     └───────────────── delay and hold over ──────────────────────┘

A host has one holder, and a line of nodes that wait. A grant is only ever the
answer to an ask, because a lease's time counts from the asking. So the next node
in line gets an *offer*, asks, and is granted the host `early_s` before it may be
asked again; the hand-over happens while the host rests.

How long a host rests before the next lease's first request:

    given back      delay from the last byte, measured by the holder up to the
                    give-back and by us from there, and as long as the holder
                    says that the host is to be left alone
    not given back  delay from the end of the ttl: until then the holder was
                    allowed to have a request under way
    taken over      delay from ttl after the takeover: until then the
                    predecessor's last lease may be in use

A node may say anything about how long a host is to rest; it counts up to
`RestLimits`.

Only the node that is gatekeeper calls this, with its own clock; times are
seconds (design invariant I9).
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from dhtcrawl.chance import Chance
from dhtcrawl.loop_state import loop_state
from dhtcrawl.swarm.calls.hosts import LEASE_ID_BYTES
from dhtcrawl.swarm.hosts.agenda import Agenda
from dhtcrawl.swarm.hosts.host_line import HeldLease, HostLine
from dhtcrawl.swarm.hosts.leases import NO_LEASE, Granted, HostState, LeaseAsk, LeaseTerms, RestLimits, Wait

HOSTS_MAX = 200_000  # as many as a node has clocks for
REASK_MIN_S = 2.0
REASK_MAX_S = 30.0
OFFER_S = 1.0  # how long a node that was offered a host may take to ask
HELD_MAX_S = 3600.0  # while other nodes wait, a lease is renewed for a request under way no longer
DELAY_KEPT_S = 600.0  # a delay that a crawl asked for is forgotten so long after the host's last use
TAKEOVERS_MAX = 8
_SWEPT = 8  # hosts looked at for each new one, when there are too many


@dataclass(frozen=True, slots=True)
class _Takeover:
    until: float
    exempt: Callable[[str], bool]


@loop_state
class Gatekeeper:
    """The hosts of one gatekeeper. `next_due_at` says when `offers` is worth calling."""

    def __init__(
        self, terms: LeaseTerms, rng: Chance, *, hosts_max: int = HOSTS_MAX, rests: RestLimits | None = None
    ) -> None:
        self.shortened = 0  # rests that nodes named and that were too long
        self._rests = rests or RestLimits()
        self._terms = terms
        self._rng = rng
        self._hosts_max = hosts_max
        self._hosts: OrderedDict[str, HostLine] = OrderedDict()
        self._places: dict[bytes, dict[str, None]] = {}  # node → hosts it is in line for
        self._agenda = Agenda()
        self._takeovers: list[_Takeover] = []
        self._takeovers_gone = 0
        self._delay_factor = 1.0
        # Requests that ended within another node's lease, as far as we were told: the holder was
        # suspended, or there were two gatekeepers at once.
        self.exceptions = 0

    def __len__(self) -> int:
        return len(self._hosts)

    @property
    def delay_factor(self) -> float:
        """What delays are multiplied by; above 1 while members are taken for dead."""
        return self._delay_factor

    @delay_factor.setter
    def delay_factor(self, factor: float) -> None:
        assert factor >= 1.0, "a delay is never shortened"
        self._delay_factor = factor

    # -- what nodes say --

    def ask(self, ask: LeaseAsk, node: bytes, now: float) -> Granted | Wait:
        """Grant `node` a host or a place in its line, or renew the lease that it names."""
        host = self._host(ask.host, now)
        if host is None:
            return Wait(REASK_MAX_S)
        if ask.lease_id != NO_LEASE:
            return self._renew(host, ask, node, now)
        host.delay_s = max(host.delay_s, self._at_most(ask.delay_s, self._rests.delay_max_s))
        host.hold(now + self._at_most(ask.hold_s, self._rests.hold_s))
        # A holder that asks anew has not got its grant, or its give-back is still on the way. Which
        # of them is not known here, so it waits like any other node.
        if host.lease is None and host.may_have_it(node) and self._grant_at(host) <= now:
            return self._grant(host, node, now)
        if host.join(node):
            self._places.setdefault(node, {})[host.name] = None
        self._schedule(host)
        free_at = host.lease.ends_at if host.lease is not None else self._grant_at(host)
        return Wait(min(max(free_at - now, REASK_MIN_S), REASK_MAX_S))

    def give_back(
        self, name: str, node: bytes, lease_id: bytes, since_end_s: float | None, hold_s: float, now: float
    ) -> None:
        """Take a lease back: the last byte came `since_end_s` ago; None: nothing was requested.

        What the holder says of the host counts also where the lease has run out.
        """
        host = self._host(name, now)
        if host is None:
            return
        lease = host.lease
        current = lease is not None and lease.id == lease_id and lease.node == node
        if since_end_s is not None:
            host.ended(now - since_end_s)
            if lease is not None and not current and now - since_end_s > lease.granted_at:
                self.exceptions += 1
        host.hold(now + self._at_most(hold_s, self._rests.hold_s))
        if current:
            host.lease = None
        self._schedule(host)

    def withdraw(self, name: str, node: bytes) -> None:
        """Take `node`, which does not want the host any more, out of its line."""
        host = self._hosts.get(name)
        if host is not None:
            self._leave(host, node)
            self._schedule(host)

    def missed(self, name: str, node: bytes) -> None:
        """Note that an offer did not reach `node`: the next node in line is due at once."""
        host = self._hosts.get(name)
        if host is not None and host.offered_at is not None and host.head == node:
            self._pass_over(host)
            self._schedule(host)

    def member_gone(self, node: bytes) -> None:
        """Take a node out of all lines. A lease that it holds runs out: the node may still be using it."""
        for name in list(self._places.get(node, ())):
            self.withdraw(name, node)

    # -- what is due --

    def next_due_at(self) -> float:
        """When `offers` next has something to return, as things stand; infinity: never."""
        return self._agenda.next_due_at()

    def offers(self, now: float) -> list[tuple[bytes, str]]:
        """The nodes to tell, each with the host that it gets if it asks for it now."""
        found = []
        while (name := self._agenda.pop_due(now)) is not None:
            host = self._hosts[name]
            self._settle(host, now)
            if host.lease is not None or self._grant_at(host) > now:
                host.offered_at = None
            else:
                if host.offered_at is not None:
                    self._pass_over(host)
                if host.head is not None:
                    host.offered_at = now
                    found.append((host.head, name))
            self._schedule(host)
        return found

    # -- changes of gatekeeper --

    def took_over(self, now: float, exempt: Callable[[str], bool]) -> None:
        """Note that hosts came to us without their state: all but the `exempt`, which were ours before.

        Each host is checked when it is next asked for.
        """
        self._takeovers.append(_Takeover(now + self._terms.ttl_s, exempt))
        if len(self._takeovers) > TAKEOVERS_MAX:
            # The oldest two become one without exempt hosts; mostly it is long over.
            until = max(takeover.until for takeover in self._takeovers[:2])
            self._takeovers[:2] = [_Takeover(until, lambda host: False)]
            self._takeovers_gone += 1

    def export(self, wanted: Callable[[str], bool], now: float, rows_max: int = 256) -> list[HostState]:
        """Hand over the hosts that `wanted` names, and drop them here; call it until it returns no rows.

        Hosts that owe nothing are dropped without a row. The nodes in line ask
        the new gatekeeper once they see it.
        """
        rows: list[HostState] = []
        for name in [name for name in self._hosts if wanted(name)]:
            if len(rows) == rows_max:
                break
            host = self._hosts[name]
            self._settle(host, now)
            row = host.export(now, self._delay_factor)
            if row is not None:
                rows.append(row)
            self._forget(host)
        return rows

    def adopt(self, rows: list[HostState], now: float) -> None:
        """Take over hosts as another gatekeeper exported them."""
        for row in rows:
            host = self._host(row.host, now)
            if host is not None:
                delay_s = self._at_most(row.delay_s, self._rests.delay_max_s)
                rest_max_s = max(self._rests.hold_s, delay_s * self._delay_factor)
                rest_s = self._at_most(row.next_in_s, rest_max_s)
                host.adopt(replace(row, delay_s=delay_s, next_in_s=rest_s), now)
                self._schedule(host)

    def forget_all(self) -> None:
        """Forget all hosts, because other nodes were their gatekeepers meanwhile."""
        for host in list(self._hosts.values()):
            self._forget(host)

    # -- for people --

    def explain(self, name: str, now: float) -> dict[str, Any] | None:
        """The state of a host, ids in hex and times in seconds; None where it is not known."""
        host = self._hosts.get(name)
        if host is None:
            return None
        self._settle(host, now)
        self._schedule(host)
        lease = host.lease
        return {
            "holder": lease.node.hex() if lease is not None else None,
            "lease_left_s": round(lease.ends_at - now, 3) if lease is not None else 0.0,
            "waiting": [node.hex() for node in host.queue],
            "delay_s": round(host.delay_s * self._delay_factor, 3),
            "next_in_s": round(max(0.0, host.next_at(self._delay_factor) - now), 3),
        }

    # -- within --

    def _host(self, name: str, now: float) -> HostLine | None:
        """The host as it is now, new where it was not known; None when there is no room."""
        host = self._hosts.get(name)
        if host is None:
            if len(self._hosts) >= self._hosts_max and not self._sweep(now):
                return None
            host = self._hosts[name] = HostLine(name, now)
        else:
            self._hosts.move_to_end(name)
            if now - host.used_at > DELAY_KEPT_S and host.idle(now, self._delay_factor):
                host.delay_s = 0.0
            host.used_at = now
        self._settle(host, now)
        return host

    def _settle(self, host: HostLine, now: float) -> None:
        """Apply to a host what happened since it was last looked at.

        Its lease ran out, hosts were taken over, or the crawl that wanted so long a delay is over.
        """
        host.expire(now)
        if host.delay_s > self._rests.delay_s:
            host.delay_s = min(host.delay_s, self._rests.delay_max_s)
        for takeover in self._takeovers[max(0, host.takeovers - self._takeovers_gone) :]:
            if not takeover.exempt(host.name):
                host.ended(takeover.until)
        host.takeovers = self._takeovers_gone + len(self._takeovers)

    def _at_most(self, said_s: float, most_s: float) -> float:
        self.shortened += said_s > most_s
        return min(said_s, most_s)

    def _grant_at(self, host: HostLine) -> float:
        return host.next_at(self._delay_factor) - self._terms.early_s

    def _grant(self, host: HostLine, node: bytes, now: float) -> Granted:
        self._leave(host, node)
        host.offered_at = None  # the offer to another node has come to nothing, and it did not miss it
        lease_id = self._rng.getrandbits(8 * LEASE_ID_BYTES).to_bytes(LEASE_ID_BYTES, "big")
        host.lease = HeldLease(lease_id, node, now, now + self._terms.ttl_s)
        self._schedule(host)
        not_before_s = max(0.0, host.next_at(self._delay_factor) - now)
        return self._granted(host, lease_id, self._terms.requests, not_before_s)

    def _renew(self, host: HostLine, ask: LeaseAsk, node: bytes, now: float) -> Granted | Wait:
        lease = host.lease
        if lease is None or lease.id != ask.lease_id or lease.node != node:
            return Wait(REASK_MIN_S)
        requests = self._terms.requests
        if host.others_wait(node):
            if now - lease.granted_at > HELD_MAX_S:
                return Wait(REASK_MIN_S)
            requests = 0
        else:
            lease.granted_at = now
        lease.ends_at = now + self._terms.ttl_s
        self._schedule(host)
        return self._granted(host, lease.id, requests, 0.0)

    def _granted(self, host: HostLine, lease_id: bytes, requests: int, not_before_s: float) -> Granted:
        return Granted(lease_id, self._terms.ttl_s, requests, not_before_s, host.delay_s * self._delay_factor)

    def _pass_over(self, host: HostLine) -> None:
        hopeless = host.pass_over()
        if hopeless is not None:
            self._leave(host, hopeless)

    def _leave(self, host: HostLine, node: bytes) -> None:
        host.leave(node)
        places = self._places.get(node)
        if places is not None and places.pop(host.name, ...) is None and not places:
            del self._places[node]

    def _forget(self, host: HostLine) -> None:
        for node in list(host.queue):
            self._leave(host, node)
        self._agenda.put(host.name, math.inf)
        del self._hosts[host.name]

    def _sweep(self, now: float) -> bool:
        """Forget idle hosts among those used longest ago; whether there is room."""
        for name in [name for name, _ in zip(self._hosts, range(_SWEPT), strict=False)]:
            host = self._hosts[name]
            self._hosts.move_to_end(name)
            if host.idle(now, self._delay_factor):
                self._forget(host)
        return len(self._hosts) < self._hosts_max

    def _schedule(self, host: HostLine) -> None:
        if not host.queue:
            due_at = math.inf
        elif host.lease is not None:
            due_at = host.lease.ends_at
        elif host.offered_at is not None:
            due_at = host.offered_at + OFFER_S
        else:
            due_at = self._grant_at(host)
        self._agenda.put(host.name, due_at)
