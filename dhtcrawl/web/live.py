"""What a node tells while somebody watches it: server-sent events (HTML Standard, 9.2).

One sampling serves all viewers. Whoever first wants one that is newer takes it, one in `EVERY_S` at most, and the
others wait for the same; so a node that no browser watches is asked nothing. Each event has one line of JSON:

    swarm      {"status", "peers", "peers_total", "crawls"}
    crawl      {"crawl", "hosts"}, or {"error"}; only of the crawl that the viewer named
    trouble    {"error"}: the node could not tell this time
    end        {"error"}: the node stops, and nothing follows

`peers`, the rows of nodes of a crawl and its seeds are cut: those that are gone or silent come first, as do crawls that
have not ended. A viewer that does not read gets the newest sample once it does, and none of those in between.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from dhtcrawl.web.api import ApiError, NodeApi
from dhtcrawl.web.guard import HEADERS, as_json, told_of

EVERY_S: Final = 1.0
VIEWERS_MAX: Final = 16
WRITE_TIMEOUT_S: Final = 30.0  # a viewer that takes nothing for so long is gone
ROWS_MAX: Final = 200
SEEDS_MAX: Final = 20
END: Final = {"error": "the node has stopped"}


@dataclass(frozen=True, slots=True)
class Sample:
    """What the node told at one moment, as events."""

    number: int
    swarm: bytes
    crawls: Mapping[bytes, bytes]  # of those that somebody watches


class LiveFigures:
    """The viewers of one node, and the sample that they share."""

    def __init__(self, api: NodeApi) -> None:
        self._api = api
        self._taking = asyncio.Lock()
        self._sample = Sample(0, b"", {})
        self._next_at = -math.inf
        self._viewers: dict[asyncio.Timeout, bytes | None] = {}
        self._closed = False

    @asynccontextmanager
    async def viewing(self, crawl: bytes | None) -> AsyncIterator[None]:
        """One viewer, who also wants to see `crawl`; the block is left early when the node stops.

        Raises:
            ApiError: 503, there are too many.
        """
        if self._closed or len(self._viewers) >= VIEWERS_MAX:
            raise ApiError(503, f"{VIEWERS_MAX} browsers watch this node already; close one, or ask another node")
        try:
            async with asyncio.timeout(None) as ending:
                self._viewers[ending] = crawl
                try:
                    yield
                finally:
                    del self._viewers[ending]
        except TimeoutError:
            if not self._closed:
                raise

    async def next(self, seen: int) -> Sample:
        """A sample later than the one with the number `seen`, not older than `EVERY_S`."""
        now = asyncio.get_running_loop().time
        while self._sample.number <= seen or now() >= self._next_at:
            async with self._taking:
                if self._sample.number <= seen or now() >= self._next_at:
                    await asyncio.sleep(max(0.0, self._next_at - now()))
                    self._next_at = now() + EVERY_S  # also where the viewer who takes it leaves meanwhile
                    self._sample = await self._take()
                    self._next_at = now() + EVERY_S  # however long it took, those who waited for it have it
                    return self._sample
        return self._sample

    def close(self) -> None:
        """Have all viewers leave, and let in no further one."""
        self._closed = True
        for ending in self._viewers:
            ending.reschedule(-math.inf)

    async def _take(self) -> Sample:
        number = self._sample.number + 1
        async with asyncio.TaskGroup() as group:
            swarm = group.create_task(self._swarm())
            watched = {crawl for crawl in self._viewers.values() if crawl is not None}
            crawls = {crawl: group.create_task(self._crawl(crawl)) for crawl in watched}
        return Sample(number, swarm.result(), {crawl: told.result() for crawl, told in crawls.items()})

    async def _swarm(self) -> bytes:
        try:
            status, peers = await self._api.status(), await self._api.peers()
            crawls = await self._api.crawls(ended_max=ROWS_MAX)
        except Exception as error:
            return event("trouble", {"error": told_of(error, "the dashboard's sampling")[1]})
        # The last that the node heard of are the ones that people look for.
        crawls.reverse()
        crawls = sorted(crawls, key=lambda row: bool(row.get("ended")))[:ROWS_MAX]
        peers_total, peers = len(peers), sorted(peers, key=_in_view)[:ROWS_MAX]
        return event("swarm", {"status": status, "peers": peers, "peers_total": peers_total, "crawls": crawls})

    async def _crawl(self, crawl_id: bytes) -> bytes:
        try:
            crawl, hosts = dict(await self._api.crawl(crawl_id)), await self._api.hosts(crawl_id)
        except Exception as error:
            crawl_hex = crawl_id.hex()
            said = told_of(error, "the dashboard's sampling of a crawl")[1]
            return event("crawl", {"crawl": {"crawl": crawl_hex}, "error": said})
        return event("crawl", {"crawl": _cut(crawl), "hosts": hosts})


def _in_view(peer: Mapping[str, Any]) -> tuple[bool, bool]:
    return not peer.get("self"), peer.get("state") == "active"


def _cut(crawl: Mapping[str, Any]) -> dict[str, Any]:
    """A crawl with a bounded number of seeds and rows."""
    spec = dict(crawl.get("spec") or {})
    seeds: Sequence[str] = spec.get("seeds") or ()
    rows = sorted(crawl.get("per_node") or (), key=lambda row: row.get("state") == "active")
    plan = crawl.get("plan")
    if plan:
        shares = plan.get("shares") or {}
        plan = {
            **plan,
            "shares": {row["node"]: shares[row["node"]] for row in rows[:ROWS_MAX] if row["node"] in shares},
        }
    return {
        **crawl,
        "plan": plan,
        "spec": {**spec, "seeds": list(seeds[:SEEDS_MAX] or crawl.get("seeds", ())), "searches": {}, "rules": ""},
        "seeds_total": crawl.get("seeds_total", len(seeds)),
        "per_node": rows[:ROWS_MAX],
        "nodes_total": len(rows),
    }


def event(name: str, value: Mapping[str, Any]) -> bytes:
    """One event; JSON without line breaks, and ASCII, so that nothing in it can end the line."""
    return f"event: {name}\ndata: {json.dumps(value, default=as_json)}\n\n".encode("ascii")


async def stream(request: web.Request, live: LiveFigures, crawl: bytes | None) -> web.StreamResponse:
    """Answer with events until the viewer goes or the node stops; to HEAD without any, and without a viewer's place.

    Raises:
        ApiError: 503, there are too many viewers.
    """
    # A proxy that gathers an answer before it sends it would show nothing.
    headers = {**HEADERS, "Content-Type": "text/event-stream; charset=utf-8", "X-Accel-Buffering": "no"}
    response = web.StreamResponse(headers=headers)
    response.force_close()
    if request.method == "HEAD":
        return response
    seen = 0
    try:
        async with live.viewing(crawl):
            await response.prepare(request)
            while True:
                sample = await live.next(seen)
                seen = sample.number
                told = b"" if crawl is None else sample.crawls.get(crawl, b"")
                await _write(request, response, sample.swarm + told)
        await _write(request, response, event("end", END))
    except ConnectionError:
        pass  # the viewer has gone
    return response


async def _write(request: web.Request, response: web.StreamResponse, data: bytes) -> None:
    try:
        async with asyncio.timeout(WRITE_TIMEOUT_S):
            await response.write(data)
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError("the viewer takes nothing") from None
