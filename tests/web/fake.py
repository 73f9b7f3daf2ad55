"""A node that remembers what it was asked: the fake behind the tests of the admin HTTP and of the commands."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from dhtcrawl.spec import CrawlSpec
from dhtcrawl.web.admin import Access, serve
from dhtcrawl.web.api import Action, ApiError, Decision, Row

NODE, OTHER = bytes(range(20)), bytes(range(20, 40))
CRAWL, TWIN = bytes.fromhex("ab12" * 8), bytes.fromhex("ab12" * 7 + "0000")
BODY = bytes(range(256)) * 8


class FakeNode:
    """A swarm of two with one crawl, which tests add to."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.counters: dict[str, float] = {}  # of crawls, besides those that all have
        self.known = {CRAWL: self.one(CRAWL)}
        self.error: Exception | None = None
        self.figures: dict[str, float] = {"pages_total": 7, 'members{state="active"}': 2, "uptime_seconds": 1.5}
        self.left: dict[str, Any] = {"handed_over": 12, "left": 0}
        self.found: list[dict[str, Any]] | None = None
        self.answers: dict[str, dict[str, Any]] = {}  # to why, by URL
        self.manual: dict[str, Any] = {
            "tasks": [
                {"url": "https://example.org/gone", "depth": 1, "attempts": 3, "detail": "timeout: no answer in 30 s"},
                {"url": "https://example.org/zoo", "depth": 2, "attempts": 1, "detail": ""},
            ],
            "silent": [],
            "cut": False,
        }
        self.hosts_told: list[dict[str, Any]] = [{"host": "example.org", "state": "ready", "queued": 3, "in_flight": 2}]
        self.id = NODE
        self.on_call: Callable[[tuple[Any, ...]], None] = lambda call: None

    def one(self, crawl_id: bytes, state: str = "running", ended: str = "", pages: int = 7) -> dict[str, Any]:
        counters = {"pages": pages, "queued": 3, "errors": 1, "body_bytes": 4096, "seconds": 61.0, "in_flight": 2}
        counters |= {"fetches": 8, "redirects": 1, "urls_seen": 11, "refetches": 0, **self.counters}
        return {
            "crawl": crawl_id.hex(),
            "state": state,
            "ended": ended,
            "seeds": ["https://example.org/"],
            "seeds_total": 3,
            "spec": {"seeds": ["https://example.org/", "https://example.com/", "https://example.net/"]},
            "counters": counters,
            "per_node": [{"node": NODE.hex(), "counters": counters}, {"node": OTHER.hex(), "counters": counters}],
            "coordinator": OTHER.hex(),
            "waiting_for": ["3 tasks in a queue"],
        }

    def _note(self, *call: Any) -> None:
        self.asked.append(call)
        self.on_call(call)
        if self.error is not None:
            raise self.error

    def _of(self, crawl_id: bytes) -> dict[str, Any]:
        if crawl_id not in self.known:
            raise ApiError(404, f"no crawl {crawl_id.hex()[:12]} here")
        return self.known[crawl_id]

    async def status(self) -> dict[str, Any]:
        self._note("status")
        members = {"active": 2, "suspected": 0, "joining": 1}
        return {
            "node": self.id.hex(), "state": "active", "version": "0.1.0", "address": "127.0.0.1:8468",
            "uptime_s": 3723.4, "members": members, "crawls": 1, "storage_sync": True,
        }  # fmt: skip

    async def peers(self) -> list[dict[str, Any]]:
        self._note("peers")
        return [
            {"node": NODE.hex(), "address": "127.0.0.1:8468", "state": "active", "self": True, "rtt_s": None},
            {"node": OTHER.hex(), "address": "[2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff]:8468", "state": "suspected",
             "self": False, "rtt_s": 0.0123},
        ]  # fmt: skip

    async def crawls(self, ended_max: int | None = None) -> list[dict[str, Any]]:
        self._note("crawls")
        return list(self.known.values())

    async def hosts(self, crawl_id: bytes) -> dict[str, Any]:
        self._note("hosts", crawl_id)
        self._of(crawl_id)
        return {
            "node": self.id.hex(),
            "running": True,
            "hosts": self.hosts_told,
            "states": {"ready": 1},
            "total": 1,
            "looked_at": 1,
        }

    async def submit(self, spec: CrawlSpec) -> dict[str, Any]:
        self._note("submit", spec)
        return {"crawl": CRAWL.hex()}

    async def crawl(self, crawl_id: bytes) -> dict[str, Any]:
        self._note("crawl", crawl_id)
        return self._of(crawl_id)

    async def control(self, crawl_id: bytes, action: Action, settings: dict[str, Any] | None = None) -> dict[str, Any]:
        self._note("control", crawl_id, action, *([settings] if settings else []))
        if self._of(crawl_id)["state"] == "ended":
            raise ApiError(409, f"crawl {crawl_id.hex()[:12]} has ended; nothing can be done to it")
        self.known[crawl_id]["state"] = {"pause": "paused", "resume": "running", "stop": "stopping"}[action]
        return {"crawl": crawl_id.hex(), "state": self.known[crawl_id]["state"]}

    async def given_up(self, crawl_id: bytes) -> dict[str, Any]:
        self._note("given_up", crawl_id)
        self._of(crawl_id)
        return self.manual

    async def decide(self, crawl_id: bytes, decision: Decision, urls: list[str] | None) -> dict[str, Any]:
        self._note("decide", crawl_id, decision, urls)
        self._of(crawl_id)
        return {"count": len(self.manual["tasks"]) if urls is None else len(urls), "silent": self.manual["silent"]}

    async def leave(self) -> dict[str, Any]:
        self._note("leave")
        return self.left

    async def drain(self) -> dict[str, Any]:
        self._note("drain")
        return {"drained": True}

    async def shutdown(self) -> dict[str, Any]:
        self._note("shutdown")
        return {"stopping": True}

    async def locate(self, url: str, crawl_id: bytes | None) -> list[dict[str, Any]]:
        self._note("locate", url, crawl_id)
        owner, backup = await self.peers()
        return [{"url": url, "crawl": CRAWL.hex(), "key": OTHER.hex(), "owner": owner, "backups": [backup]}]

    async def why(self, url: str, crawl_id: bytes | None) -> list[dict[str, Any]]:
        self._note("why", url, crawl_id)
        if self.found is not None:
            return self.found
        answer = {
            "url": url,
            "crawl": CRAWL.hex(),
            "key": OTHER.hex(),
            "state": "pending",
            "depth": 2,
            "referrer": None,
        }
        return [answer | self.answers.get(url, {})]

    async def explain_host(self, host: str) -> dict[str, Any]:
        self._note("explain_host", host)
        robots = {"verdict": "known", "crawl_delay_s": 2.5}
        return {"host": host, "gatekeeper": OTHER.hex(), "robots": robots, "queued": 5, "holder": None}

    async def export_record(self, crawl_id: bytes) -> bytes:
        self._note("export_record", crawl_id)
        return b"\x00record"

    async def export_nodes(self, crawl_id: bytes) -> list[dict[str, Any]]:
        self._note("export_nodes", crawl_id)
        return [{"node": node.hex(), "counters": {}, "reachable": True, "archive_dir": None} for node in (NODE, OTHER)]

    async def export_rows(
        self, crawl_id: bytes, node: bytes, kind: bytes, cursor: bytes
    ) -> tuple[list[Row], bytes | None]:
        self._note("export_rows", crawl_id, node, kind, cursor)
        return ([(b"\x00key", b"\xffvalue")], b"\x01") if not cursor else ([], None)

    async def export_files(self, crawl_id: bytes, node: bytes) -> list[tuple[str, int]]:
        self._note("export_files", crawl_id, node)
        return [("a b&c.warc.gz", len(BODY))]

    async def export_chunk(self, crawl_id: bytes, node: bytes, name: str, offset: int, limit: int) -> bytes:
        self._note("export_chunk", crawl_id, node, name, offset, limit)
        return BODY[offset : offset + limit]

    def metrics(self) -> dict[str, float]:
        return self.figures


@contextmanager
def running(node: FakeNode, access: Access | None = None) -> Iterator[str]:
    """Serve `node` from a thread; yields its admin address."""
    address: list[str] = []
    ready, loop = threading.Event(), asyncio.new_event_loop()
    done = asyncio.Event()

    async def main() -> None:
        async with serve(node, "127.0.0.1", 0, access=access) as (host, port):
            address.append(f"{host}:{port}")
            ready.set()
            await done.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(main(),))
    thread.start()
    try:
        assert ready.wait(10)
        yield address[0]
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join(10)
        loop.close()
