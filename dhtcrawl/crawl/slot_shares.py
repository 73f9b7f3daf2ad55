"""Keeps one site from taking all places for requests while others want one. Pure.

A *site* is a registrable domain, for names below one cost nothing, and it is an
address, for so do domains. Of the places of a crawl on this node each site may
have a quarter, and at least one. A site that has as many goes last, and as many
places stay free as hosts of other sites could use soon, each site up to its
quarter, half of all places at most. So a site that is alone has them all, sites
that could not use more than they have leave the rest to the others, and one that
holds its places for long, as it drips, leaves some.

Crawls of one node share its connections. What another crawl could use soon, up
to a quarter, counts as what sites of others could.

    wants    a host could use a place: a request may begin now or soon, or once the host is leased to this node
    begins   ... it has one
    ends     ... it has not
    put aside  it has to wait until others of its site end, or more places are free than others need

Only the frontier calls this, but for `located` and what a crawl says of itself.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from dhtcrawl.crawl.scope import registrable_domain
from dhtcrawl.loop_state import loop_state

SHARE: Final = 4  # the part of the places that each site has: one in so many
SOON_S: Final = 10.0  # a host that may be asked within this time wants a place
ADDRESSES_MAX: Final = 16_384  # four times the hosts that a frontier has in memory by default


class _Sites:
    """Sites of one kind, by name: requests under way and, once that matters, hosts that want one."""

    __slots__ = ("_quarter", "busy", "needed", "wanting")

    def __init__(self, quarter: int) -> None:
        self._quarter = quarter
        self.busy: dict[str, int] = {}
        self.wanting: dict[str, int] | None = None
        self.needed = 0  # places that all sites together could use, beyond those that they have

    def begin(self, site: str, requests: int) -> None:
        """Count so many more requests under way, or fewer."""
        before = self.busy.get(site, 0)
        if before + requests:
            self.busy[site] = before + requests
        else:
            del self.busy[site]
        if self.wanting is not None:
            wanting = self.wanting.get(site, 0)
            self.needed += self._need(before + requests, wanting) - self._need(before, wanting)

    def want(self, site: str, hosts: int) -> None:
        """Count so many more hosts that want a place, or fewer."""
        if self.wanting is None:
            return
        before, busy = self.wanting.get(site, 0), self.busy.get(site, 0)
        if before + hosts:
            self.wanting[site] = before + hosts
        else:
            del self.wanting[site]
        self.needed += self._need(busy, before + hosts) - self._need(busy, before)

    def _need(self, busy: int, wanting: int) -> int:
        return min(self._quarter - busy, wanting) if busy < self._quarter else 0


@loop_state
class NodeShares:
    """The crawls that run on a node: what they have of its places, and need."""

    def __init__(self) -> None:
        self._shares: dict[SlotShares, None] = {}

    def add(self, shares: SlotShares) -> None:
        """A crawl runs from here on."""
        self._shares[shares] = None

    def remove(self, shares: SlotShares) -> None:
        """It has ended."""
        self._shares.pop(shares, None)

    def beside(self, shares: SlotShares) -> tuple[int, int]:
        """Of the other crawls: requests under way, and places that they could use, each up to a quarter."""
        if len(self._shares) < 2:
            return 0, 0
        others = [each for each in self._shares if each is not shares]
        return sum(each.in_flight for each in others), sum(each.needed for each in others)


@loop_state
class SlotShares:
    """Says which hosts may have one of `slots` places; with 0 there is no end of them."""

    def __init__(
        self, slots: int, site_of: Callable[[str], str] = registrable_domain, crawls: NodeShares | None = None
    ) -> None:
        """`site_of(host)` is looked up only where it matters: the list of suffixes takes time to read."""
        self.in_flight = 0
        self.may_start = True  # the crawl begins requests: it is not paused, and has no limit reached
        self._crawls = crawls or NodeShares()
        self.quarter = max(1, slots // SHARE)
        self._slots = slots
        self._site_of = site_of
        self._busy: dict[str, int] = {}
        self._wanting: dict[str, None] = {}
        self._addresses: OrderedDict[str, str] = OrderedDict()
        self._sites: tuple[_Sites, _Sites] | None = None  # by domain and by address, once they matter
        self._aside: dict[tuple[int, str], dict[str, None]] = {}  # by what they wait for

    @property
    def needed(self) -> int:
        """Places that this crawl could use, up to a quarter."""
        return min(max(0, self.quarter - self.in_flight), len(self._wanting)) if self.may_start else 0

    def run(self) -> None:
        """The crawl runs: others leave it places."""
        self._crawls.add(self)

    def close(self) -> None:
        """The crawl has ended."""
        self._crawls.remove(self)

    # -- what the frontier says --

    def wants(self, host: str, wants: bool) -> None:
        """Note whether a host could use a place."""
        if wants == (host in self._wanting):
            return
        if wants:
            self._wanting[host] = None
        else:
            del self._wanting[host]
        if self._sites is not None:
            for sites, site in zip(self._sites, self._names(host), strict=True):
                sites.want(site, 1 if wants else -1)

    def begins(self, host: str) -> None:
        """Note that a request of a host has a place."""
        self.in_flight += 1
        self._busy[host] = self._busy.get(host, 0) + 1
        self._begin(host, 1)

    def ends(self, host: str) -> list[str]:
        """Note that a request of a host has none any more; the hosts of its sites that are put aside no more for it."""
        self.in_flight -= 1
        self._busy[host] -= 1
        if not self._busy[host]:
            del self._busy[host]
        self._begin(host, -1)
        if not self._aside or self._sites is None:
            return []
        found = []
        for kind, site in enumerate(self._names(host)):
            aside = self._aside.get((kind, site))
            if aside and self._sites[kind].busy.get(site, 0) < self.quarter:
                found.append(self._take((kind, site), next(iter(aside))))
        return found

    def located(self, host: str, address: str) -> None:
        """Note at which address a host answered."""
        if not address or self._addresses.get(host) == address:
            return
        self._move(host, address)
        if len(self._addresses) > ADDRESSES_MAX:
            self._move(next(iter(self._addresses)), "")

    # -- who may have a place --

    def puts_aside(self, host: str) -> bool:
        """Whether a host has to let others go first; `ends` and `again` name it when it may have a place."""
        blocked_by = self._blocked_by(host)
        if blocked_by is None:
            return False
        self._aside.setdefault(blocked_by, {})[host] = None
        return True

    def again(self) -> str | None:
        """A host that was put aside and may have a place now, as no other host takes it."""
        for place in list(self._aside):
            while place in self._aside:
                host = next(iter(self._aside[place]))
                blocked_by = self._blocked_by(host, last=True)
                if blocked_by == place:
                    break
                self._take(place, host)
                if blocked_by is None:
                    return host
                # It waits for something else by now, and those behind it do not.
                self._aside.setdefault(blocked_by, {})[host] = None
        return None

    def _blocked_by(self, host: str, *, last: bool = False) -> tuple[int, str] | None:
        """The site of a host that has its quarter and leaves a place to others; None: there is none.

        With `last` no other host takes the place now, and it only has to leave enough of them free.
        """
        if not self._slots or self.in_flight < self.quarter:
            return None
        begun, needed = self._crawls.beside(self)
        if not begun and not needed and self._alone():
            return None
        free = self._slots - self.in_flight - begun
        # Half of the places are kept free for others at most: they may not come, such as hosts that other nodes lease.
        spare = 0 if not last else math.inf if free > self._slots // 2 else max(0, free - 1)
        sites = self._sites or self._tell_apart()
        for kind, site in enumerate(self._names(host)):
            # A site that has its quarter needs nothing: all that is needed is for others.
            has_quarter = sites[kind].busy.get(site, 0) >= self.quarter
            if has_quarter and (free < 1 or self._needed(sites[kind], kind) + needed > spare):
                return kind, site
        return None

    def _alone(self) -> bool:
        return len(self._busy) <= 1 and len(self._wanting) <= 1 and len(self._busy.keys() | self._wanting.keys()) <= 1

    # -- within --

    def _take(self, place: tuple[int, str], host: str) -> str:
        aside = self._aside[place]
        del aside[host]
        if not aside:
            del self._aside[place]
        return host

    def _names(self, host: str) -> tuple[str, str]:
        """Of a host's sites, by domain and by address."""
        site = self._site_of(host)
        return site, self._addresses.get(host, site)

    def _tell_apart(self) -> tuple[_Sites, _Sites]:
        """Count requests by site from now on."""
        self._sites = sites = (_Sites(self.quarter), _Sites(self.quarter))
        for host, busy in self._busy.items():
            self._begin(host, busy)
        return sites

    def _needed(self, sites: _Sites, kind: int) -> int:
        """Places that sites of this kind need; the first time that one has its quarter they are counted, then kept."""
        if sites.wanting is None:
            sites.wanting = {}
            for host in self._wanting:
                sites.want(self._names(host)[kind], 1)
        return sites.needed

    def _begin(self, host: str, requests: int) -> None:
        if self._sites is not None:
            for sites, site in zip(self._sites, self._names(host), strict=True):
                sites.begin(site, requests)

    def _move(self, host: str, address: str) -> None:
        """Count a host at this address, or with "" at none that is known."""
        self._count_at_address(host, -1)
        self._addresses.pop(host, None)
        if address:
            self._addresses[host] = address
        self._count_at_address(host, 1)

    def _count_at_address(self, host: str, sign: int) -> None:
        if self._sites is None:
            return
        by_address, site = self._sites[1], self._names(host)[1]
        if host in self._busy:
            by_address.begin(site, sign * self._busy[host])
        if host in self._wanting:
            by_address.want(site, sign)
