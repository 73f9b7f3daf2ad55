"""A seeded web with a memory, and the web port's client that fetches from it.

`SimClient` implements `HttpClient` on any event loop: latency is
`asyncio.sleep`, and its heads and failures are those that `AiohttpClient`
would report. `SimWeb` remembers every request, whichever client made it, so
that `violations` can say where the swarm as a whole was impolite.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

from dhtcrawl.clock import Clock
from dhtcrawl.fetch.guard import permits
from dhtcrawl.fetch.heads import header_pairs, request_head, response_head
from dhtcrawl.fetch.http import Body, Exchange, FetchFailure, FetchFailureKind, HttpRequest, Truncated
from dhtcrawl.sim.machines import SimMachine
from dhtcrawl.sim.pages import DOWN_HOST, Pages, Response, WebShape
from dhtcrawl.units import ip_of
from dhtcrawl.url import host_of, hostname_of, path_of

BYTES_PER_S = 2_000_000
# A name that leads nowhere costs its look-up, a host that is down one round trip.
_LOOKUP_S = 0.02


@dataclass(slots=True)
class Visit:
    """One request as the server saw it, on the clock of the simulation, to its last byte, read or not."""

    host: str
    url: str
    start: float
    end: float = float("inf")
    client: str = ""
    status: int = 0  # of a response that the client read to its last byte


@dataclass(frozen=True, slots=True)
class Violation:
    """A request that began `gap` seconds after the end of the one before on its host."""

    url: str
    gap: float


class SimWeb(Pages):
    """`Pages` that count attempts and remember visits; one for all nodes of a simulation."""

    def __init__(self, seed: int, shape: WebShape | None = None) -> None:
        super().__init__(seed, shape)
        # Grows with the simulation, whose length is the bound.
        self.visits: list[Visit] = []
        self._attempts: dict[str, int] = {}

    def address(self, host: str) -> str:
        """The made-up public address of a host."""
        number = self.hosts.index(host)
        return f"11.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"

    def begin(self, url: str, now: float, client: str = "") -> tuple[Visit, Response | None]:
        """A request arrives from `client`; the caller sets the visit's end. None: the connection breaks off."""
        attempt = self._attempts[url] = self._attempts.get(url, 0) + 1
        visit = Visit(host_of(url), url, now, client=client)
        self.visits.append(visit)
        return visit, None if self.breaks_off(url, attempt) else self.respond(url, attempt)

    def brings_content(self) -> bool:
        """Whether a crawl from the seeds finds anything but redirects and errors."""
        return bool(self.truth(depth=0))

    def refetched(self) -> int:
        """How often a page came whole that had come whole before.

        A request that a crash cut short brought nothing: to make it again is a retry.
        """
        pages = Counter(v.url for v in self.visits if v.status == 200 and not v.url.endswith("/robots.txt"))
        return sum(pages.values()) - len(pages)

    def violations(self, delay: float) -> list[Violation]:
        """Requests that began sooner than `delay` after the last byte of the one before."""
        ends: dict[str, float] = {}
        violations = []
        for visit in sorted(self.visits, key=lambda visit: visit.start):
            gap = visit.start - ends.get(visit.host, float("-inf"))
            # A microsecond is rounding, not haste: of a clock that began long ago, a nanosecond is lost.
            if gap < delay - 1e-6:
                violations.append(Violation(visit.url, gap))
            ends[visit.host] = max(visit.end, ends.get(visit.host, visit.end))
        return violations


class SimClient:
    """`HttpClient` on a `SimWeb`; `clock` is that of the node."""

    def __init__(
        self,
        web: SimWeb,
        clock: Clock,
        name: str = "",
        asks: Callable[[str], None] = lambda url: None,
        machine: SimMachine | None = None,
    ) -> None:
        """`name` is the client's, for the web's books; `asks` is called before each request.

        `machine` is what it runs on, where that is slower than the web.
        """
        self.gone = False  # its host has crashed: it asks for nothing any more
        self._web = web
        self._clock = clock
        self._name = name
        self._asks = asks
        self._machine = machine

    async def exchange(self, request: HttpRequest) -> Exchange | FetchFailure:
        started_at, fetched_at = self._clock.monotonic(), self._clock.wall()
        host = host_of(request.url)
        refusal = self._refusal(host, request)
        if refusal is not None:
            kind, detail, takes_s = refusal
            await asyncio.sleep(takes_s)
            return FetchFailure(kind, detail, started_at, self._clock.monotonic())
        loop = asyncio.get_running_loop()
        if self.gone:
            await loop.create_future()
        self._asks(request.url)
        visit, response = self._web.begin(request.url, loop.time(), self._name)
        limits = request.limits
        latency = self._web.latency(request.url)
        latency += 0.0 if self._machine is None else self._machine.away_s.get(host, 0.0)
        size = len(response.body) if response is not None and request.method == "GET" else 0
        answered_at = loop.time() + latency + size / BYTES_PER_S
        try:
            await asyncio.sleep(min(latency, limits.head_s))
            if latency > limits.head_s:
                detail = f"no complete response head within {limits.head_s:g} s"
                return FetchFailure(FetchFailureKind.TIMEOUT, detail, started_at, self._clock.monotonic())
            if response is None:
                detail = "the server closed the connection before the response head was complete"
                return FetchFailure(FetchFailureKind.DISCONNECTED, detail, started_at, self._clock.monotonic())
            body = b"" if request.method == "HEAD" else response.body
            content, truncated = body[: limits.body_bytes_max], None
            if len(content) < len(body):
                truncated = Truncated.LENGTH
            if len(content) > limits.body_s * BYTES_PER_S:
                content, truncated = content[: int(limits.body_s * BYTES_PER_S)], Truncated.TIME
            await asyncio.sleep(len(content) / BYTES_PER_S)
            if self._machine is not None:
                now = loop.time()
                await asyncio.sleep(self._machine.has_at(now, len(content)) - now)
            visit.status = response.status  # only now: what is cut short on the client's line has brought nothing
        finally:
            # A client that stands still reads late what was sent in time.
            visit.end = min(loop.time(), answered_at)
        raw = [(name.encode(), value.encode()) for name, value in response.headers]
        raw.append((b"Content-Length", str(len(response.body)).encode()))
        return Exchange(
            request_head=request_head(path_of(request.url), (("Host", host), *request.headers), request.method),
            response_head=response_head((1, 1), response.status, HTTPStatus(response.status).phrase, raw, len(content)),
            status=response.status,
            headers=header_pairs(raw),
            body=Body(content),
            remote_ip=self._web.address(host),
            started_at=started_at,
            ended_at=self._clock.monotonic(),
            fetched_at=fetched_at,
            truncated=truncated,
            first_byte_s=latency,
        )

    def _refusal(self, host: str, request: HttpRequest) -> tuple[FetchFailureKind, str, float] | None:
        """Why no connection to `host` comes about, and how many seconds that takes."""
        if self._machine is not None and host in self._machine.blocked:
            if self._machine.silent:
                connect_s = request.limits.connect_s
                return FetchFailureKind.CONNECT, f"no connection within {connect_s:g} s", connect_s
            return FetchFailureKind.CONNECT, "connection refused", _LOOKUP_S
        refusal = _refusal(host, request, self._web)
        return None if refusal is None else (*refusal, _LOOKUP_S)

    async def close(self) -> None:
        """Nothing is open."""


def _refusal(host: str, request: HttpRequest, web: SimWeb) -> tuple[FetchFailureKind, str] | None:
    """Why no connection to `host` comes about."""
    literal = hostname_of(host).strip("[]")
    if ip_of(literal) and not permits(host, literal, request.private_hosts):
        return FetchFailureKind.PRIVATE_ADDRESS, f"{host} is at {literal}, which is not a public address"
    if host == DOWN_HOST or ip_of(literal):
        return FetchFailureKind.CONNECT, "connection refused"
    if host not in web.hosts:
        return FetchFailureKind.DNS, "the name does not resolve"
    return None
