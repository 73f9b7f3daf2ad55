"""What a running node adds to what its store says of a URL or a host: attempts, turns and waits. For people."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from dhtcrawl.clock import Clock
from dhtcrawl.crawl.host_standing import HOSTS_LOOKED_AT_MAX, HostStanding, host_standing, host_standings
from dhtcrawl.crawl.parts import CrawlParts
from dhtcrawl.fetch.politeness import HostBook
from dhtcrawl.spec import CrawlSpec
from dhtcrawl.standing import Cause, HostCondition, Obstacle, host_state, sentence, without_time
from dhtcrawl.url import host_of, origin_of

HOSTS_TOLD_MAX: Final = 200
GIVEN_UP_TOLD_MAX: Final = 50
_KEPT_BACK: Final = (HostCondition.SNOOZED, HostCondition.ASLEEP, HostCondition.WAITING)


def live_facts(parts: CrawlParts, spec: CrawlSpec, book: HostBook, clock: Clock, url: str) -> dict[str, Any]:
    """Of a URL of a crawl that runs here: attempts so far, whether it is in flight, and how its host stands.

    attempts (lines), in_flight (bool), host (state, text, left_s) of a URL that waits.
    """
    key = spec.key_of(url)
    told: dict[str, Any] = {"in_flight": parts.has_open(key)}
    attempts = parts.attempts.of(key)
    if attempts:
        told["attempts"] = attempts
    hopeless = parts.origins.without_hope(origin_of(url))
    if hopeless is not None:
        return told | {"host": {"state": HostCondition.DEAD.value, "text": f"it was given up: {hopeless.detail}"}}
    host = host_of(url)
    standing = host_standing(parts.frontier, book, parts.origins, host, clock.monotonic())
    obstacle = _of_clock(parts, book, clock, host) if standing is None else standing.obstacle
    return told | {"host": _shown(obstacle)}


def host_here(parts: CrawlParts, book: HostBook, clock: Clock, host: str) -> dict[str, Any] | None:
    """How a host stands in a crawl that runs here: state, text, left_s, queued, in_flight; None: it has no part."""
    for origin in (f"https://{host}", f"http://{host}"):
        hopeless = parts.origins.without_hope(origin)
        if hopeless is not None:
            return {"state": HostCondition.DEAD.value, "text": f"{origin} was given up: {hopeless.detail}"}
    standing = host_standing(parts.frontier, book, parts.origins, host, clock.monotonic())
    if standing is None:
        return None
    shown = _shown(standing.obstacle)
    return shown | {"queued": standing.queued, "in_flight": standing.in_flight}


def hosts_here(parts: CrawlParts, book: HostBook, clock: Clock) -> dict[str, Any]:
    """The hosts of a crawl that runs here: those that are kept back first, then those given up, then the rest.

    hosts (rows: host, state, reason, text, says, left_s, queued, in_flight), states (a map: state → how many of those
    that were looked at), total (hosts with tasks in memory), looked_at (how many of them).
    """
    found = host_standings(parts.frontier, book, parts.origins, clock.monotonic(), HOSTS_LOOKED_AT_MAX)
    dead = [
        {"host": origin, "state": HostCondition.DEAD.value, "reason": why.reason, "text": why.detail}
        for origin, why in parts.origins.given_up(GIVEN_UP_TOLD_MAX)
    ]
    # Where there are too many, those with most to fetch are told; in the order of their names, which lasts.
    found.sort(key=lambda host: (host.state not in _KEPT_BACK, -host.queued))
    told = sorted(found[: HOSTS_TOLD_MAX - len(dead)], key=lambda host: (_turn(host), host.host))
    kept = sum(host.state in _KEPT_BACK for host in told)
    rows = [_host_row(host) for host in told]
    return {
        "hosts": rows[:kept] + dead + rows[kept:],
        "states": dict(Counter(host.state.value for host in found)),
        "total": sum(1 for _ in parts.frontier.hosts()),
        "looked_at": len(found),
    }


def _turn(host: HostStanding) -> int:
    return _KEPT_BACK.index(host.state) if host.state in _KEPT_BACK else len(_KEPT_BACK)


def _host_row(host: HostStanding) -> dict[str, Any]:
    says = {} if host.obstacle is None else {"says": without_time(host.obstacle)}
    return {"host": host.host, **_shown(host.obstacle), **says, "queued": host.queued, "in_flight": host.in_flight}


def _of_clock(parts: CrawlParts, book: HostBook, clock: Clock, host: str) -> Obstacle | None:
    known = book.known(host)
    found = None if known is None else known.obstacle(host, clock.monotonic(), parts.origins.delay_s(host))
    return None if found is not None and found.cause in (Cause.LEASE, Cause.GATEKEEPER) else found


def _shown(obstacle: Obstacle | None) -> dict[str, Any]:
    shown: dict[str, Any] = {"state": host_state(obstacle).value}
    if obstacle is None:
        return shown
    shown |= {"reason": obstacle.cause, "text": sentence(obstacle)}
    return shown if obstacle.left_s is None else shown | {"left_s": round(obstacle.left_s, 3)}
