"""What a running node adds to what its store says of a URL or a host: attempts, turns and waits. For people."""

from __future__ import annotations

from typing import Any

from dhtcrawl.clock import Clock
from dhtcrawl.crawl.host_standing import host_standing
from dhtcrawl.crawl.parts import CrawlParts
from dhtcrawl.fetch.politeness import HostBook
from dhtcrawl.spec import CrawlSpec
from dhtcrawl.standing import Cause, HostCondition, Obstacle, host_state, sentence
from dhtcrawl.url import host_of, origin_of


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


def _of_clock(parts: CrawlParts, book: HostBook, clock: Clock, host: str) -> Obstacle | None:
    known = book.known(host)
    found = None if known is None else known.obstacle(host, clock.monotonic(), parts.origins.delay_s(host))
    return None if found is not None and found.cause == Cause.LEASE else found


def _shown(obstacle: Obstacle | None) -> dict[str, Any]:
    shown: dict[str, Any] = {"state": host_state(obstacle).value}
    if obstacle is None:
        return shown
    shown |= {"reason": obstacle.cause, "text": sentence(obstacle)}
    return shown if obstacle.left_s is None else shown | {"left_s": round(obstacle.left_s, 3)}
