"""The admin HTTP of a node: what commands, Prometheus and a browser ask, over any `NodeApi`.

    GET   /                                          the dashboard
    GET   /healthz                                   "ok" while the node answers
    GET   /metrics                                   Prometheus
    GET   /api/v1/status, peers, crawls
    POST  /api/v1/crawls                             {"seeds", "settings", "searches", "rules"} → {"crawl"}
    GET   /api/v1/crawls/ID, crawls/ID/hosts
    POST  /api/v1/crawls/ID/pause, resume, stop
    GET   /api/v1/crawls/ID/given-up
    POST  /api/v1/crawls/ID/given-up                 {"decision": "release" or "drop", "urls": […] or null for all}
    GET   /api/v1/locate?url=[&crawl=], why?url=[&crawl=], hosts/HOST
    GET   /api/v1/events[?crawl=ID]                  the same figures, as they change (`dhtcrawl.web.live`)
    POST  /api/v1/leave, drain, shutdown
    GET   /api/v1/crawls/ID/export/record                                    bytes
    GET   /api/v1/crawls/ID/export/nodes
    GET   /api/v1/crawls/ID/export/rows?node=&kind=&cursor=                  msgpack: [[key, value]…], next cursor
    GET   /api/v1/crawls/ID/export/files?node=
    GET   /api/v1/crawls/ID/export/chunk?node=&name=&offset=&limit=          bytes

ID is a crawl's id or the start of it, four hex digits at least. All else is
JSON. Who may ask at all is `dhtcrawl.web.guard`'s business.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import re
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, TypeVar, cast

import msgpack
from aiohttp import web

from dhtcrawl.crawl.url_story import url_story
from dhtcrawl.errors import UsageError
from dhtcrawl.keyspace import CRAWL_ID_BYTES, KEY_BYTES
from dhtcrawl.spec import typed_url
from dhtcrawl.storage.collect.limits import CHUNK_BYTES_MAX
from dhtcrawl.storage.store import keys
from dhtcrawl.units import HOST_CHARS_MAX, Address, format_address
from dhtcrawl.url import canonicalize, host_of
from dhtcrawl.web import metrics
from dhtcrawl.web.api import Action, ApiError, NodeApi, changes_in, decision_in, submission
from dhtcrawl.web.bodies import BodyReader
from dhtcrawl.web.guard import (
    ServerLog,
    bearer,
    bytes_argument,
    count_argument,
    doorkeeper,
    from_another_site,
    json_response,
    one_line,
    stranger,
    text_argument,
)
from dhtcrawl.web.live import LiveFigures, stream

SUBMISSIONS_AT_ONCE = 2  # that are parsed; what they are made of was read before
EVERY_ADDRESS = "::"
SHUTDOWN_S = 3.0  # for answers under way when the node stops
# From the connection, or the last answer on it, until the whole head of a request is there; an idle client is closed
# after it, so longer than they keep a connection: aiohttp for 15 s, nginx for 60 s.
HEAD_S = 75.0
PREFIX_CHARS_MIN = 4
NAME_CHARS_MAX = 255
_PORT_CHARS = len(":65535")

T = TypeVar("T")

API = "/api/v1"
_ACTIONS = ("pause", "resume", "stop")


@dataclass(frozen=True, slots=True)
class Access:
    """Who may speak to the port, and how."""

    token: str = field(default="", repr=False)  # that a client has to send (`dhtcrawl.web.guard`); "": none
    tls: ssl.SSLContext | None = None


@asynccontextmanager
async def serve(
    api: NodeApi, host: str, port: int, *, access: Access | None = None, is_open: Callable[[], bool] = lambda: True
) -> AsyncIterator[Address]:
    """Answer on `host` and `port` (0: any free one) until left; yields the address.

    `api` is asked nothing before `is_open`; a client that asks before is told to come again.

    Raises:
        UsageError: the address is taken, or not this machine's.
    """
    access = access or Access()
    app = application(api, host, access.token, is_open)
    runner = web.AppRunner(
        app, access_log=None, logger=ServerLog(), keepalive_timeout=HEAD_S, shutdown_timeout=SHUTDOWN_S
    )
    await runner.setup()
    try:
        try:
            await _site(runner, host, port, access.tls).start()
        except OSError as error:
            # The loop's own text repeats the address.
            known = error.errno is not None and not isinstance(error, socket.gaierror)
            reason = os.strerror(error.errno).lower() if known and error.errno else str(error.strerror).lower()
            where = format_address((host, port))
            raise UsageError(f"--admin {where}: {reason}; name another with --admin") from error
        bound = runner.addresses[0]
        yield bound[0], bound[1]
    finally:
        await runner.cleanup()


def _site(runner: web.AppRunner, host: str, port: int, tls: ssl.SSLContext | None) -> web.BaseSite:
    """What listens; on every address over both families, as the loop's own way would take IPv6 alone.

    Raises:
        OSError: the address is taken, or not this machine's.
    """
    if host != EVERY_ADDRESS:
        return web.TCPSite(runner, host, port, ssl_context=tls)
    both = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return web.SockSite(runner, both, ssl_context=tls)


def application(api: NodeApi, host: str, token: str, is_open: Callable[[], bool]) -> web.Application:
    """The application; `host` is what it listens on, `token` what it asks for, if not empty."""
    middlewares = [one_line, stranger(host), *([bearer(token)] if token else []), doorkeeper(is_open)]
    app = web.Application(middlewares=middlewares)
    live = LiveFigures(api)
    asks = Handlers(api, live)

    async def close(_: web.Application) -> None:
        live.close()

    app.on_shutdown.append(close)
    app.add_routes(
        [
            web.get("/", asks.dashboard),
            web.get("/healthz", asks.healthz),
            web.get("/metrics", asks.metrics),
            web.get(f"{API}/status", asks.plain(api.status)),
            web.get(f"{API}/peers", asks.plain(api.peers)),
            web.get(f"{API}/crawls", asks.plain(api.crawls)),
            web.post(f"{API}/crawls", asks.submit),
            web.get(f"{API}/crawls/{{crawl}}", asks.crawl),
            web.get(f"{API}/crawls/{{crawl}}/hosts", asks.hosts),
            web.get(f"{API}/crawls/{{crawl}}/given-up", asks.given_up),
            web.post(f"{API}/crawls/{{crawl}}/given-up", asks.decide),
            web.post(f"{API}/crawls/{{crawl}}/{{action}}", asks.control),
            web.get(f"{API}/locate", asks.about_url(api.locate)),
            web.get(f"{API}/why", asks.about_url(asks.story)),
            web.get(f"{API}/hosts/{{host}}", asks.host),
            web.get(f"{API}/events", asks.events),
            web.post(f"{API}/leave", asks.plain(api.leave)),
            web.post(f"{API}/drain", asks.plain(api.drain)),
            web.post(f"{API}/shutdown", asks.plain(api.shutdown)),
            web.get(f"{API}/crawls/{{crawl}}/export/record", asks.export_record),
            web.get(f"{API}/crawls/{{crawl}}/export/nodes", asks.export_nodes),
            web.get(f"{API}/crawls/{{crawl}}/export/rows", asks.export_rows),
            web.get(f"{API}/crawls/{{crawl}}/export/files", asks.export_files),
            web.get(f"{API}/crawls/{{crawl}}/export/chunk", asks.export_chunk),
        ]
    )
    return app


class Handlers:
    """Reads a request, asks the node, writes the answer.

    Raises:
        ApiError: by every method; a middleware answers with its status.
    """

    def __init__(self, api: NodeApi, live: LiveFigures) -> None:
        self._api = api
        self._live = live
        self._bodies = BodyReader()
        self._submissions = asyncio.Semaphore(SUBMISSIONS_AT_ONCE)

    async def dashboard(self, _: web.Request) -> web.Response:
        page, policy = _dashboard()
        return web.Response(text=page, content_type="text/html", headers={"Content-Security-Policy": policy})

    async def healthz(self, _: web.Request) -> web.Response:
        await self._api.peers()  # which asks no other node: whether this one is well does not hang on a coordinator
        return web.Response(text="ok\n")

    async def metrics(self, _: web.Request) -> web.Response:
        text = metrics.render(self._api.metrics())
        return web.Response(body=text.encode(), headers={"Content-Type": metrics.CONTENT_TYPE})

    def plain(self, ask: Callable[[], Awaitable[Any]]) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(_: web.Request) -> web.Response:
            return json_response(await ask())

        return handle

    def about_url(
        self, ask: Callable[[str, bytes | None], Awaitable[Any]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        """A handler of a question about a URL, in all crawls or in one."""

        async def handle(request: web.Request) -> web.Response:
            url = typed_url(text_argument(request, "url"))
            if url is None:
                raise ApiError(400, "url is no web address; use something like https://example.org/")
            prefix = request.query.get("crawl")
            return json_response(await ask(url, None if prefix is None else await self._crawl_id(prefix)))

        return handle

    async def story(self, url: str, crawl: bytes | None) -> list[dict[str, Any]]:
        """What the node says of a URL, and besides `story`: lines for people."""
        return [{**answer, "story": url_story(answer)} for answer in await self._api.why(url, crawl)]

    async def events(self, request: web.Request) -> web.StreamResponse:
        # Another site cannot read them, but could take the places of those who look.
        if from_another_site(request):
            raise ApiError(403, "a web page of another site may not watch this node")
        prefix = request.query.get("crawl")
        return await stream(request, self._live, None if prefix is None else await self._crawl_id(prefix))

    async def submit(self, request: web.Request) -> web.Response:
        async with self._bodies.reading(request.content) as body, self._submissions:
            answer = await self._api.submit(await _parsed(body, submission))
        return json_response(answer, 201)

    async def crawl(self, request: web.Request) -> web.Response:
        return json_response(await self._api.crawl(await self._crawl_in(request)))

    async def hosts(self, request: web.Request) -> web.Response:
        return json_response(await self._api.hosts(await self._crawl_in(request)))

    async def control(self, request: web.Request) -> web.Response:
        action = request.match_info["action"]
        if action not in _ACTIONS:
            raise ApiError(404, f"{action} is nothing that can be done to a crawl; use one of {', '.join(_ACTIONS)}")
        async with self._bodies.reading(request.content) as body:
            if body and action != "resume":
                raise ApiError(400, f"{action} takes no body")
            settings = await _parsed(body, changes_in) if body else None
        crawl = await self._crawl_in(request)
        if settings is None:
            return json_response(await self._api.control(crawl, cast(Action, action)))
        return json_response(await self._api.control(crawl, "resume", settings))

    async def given_up(self, request: web.Request) -> web.Response:
        return json_response(await self._api.given_up(await self._crawl_in(request)))

    async def decide(self, request: web.Request) -> web.Response:
        async with self._bodies.reading(request.content) as body:
            decision, urls = await _parsed(body, decision_in)
        return json_response(await self._api.decide(await self._crawl_in(request), decision, urls))

    async def host(self, request: web.Request) -> web.Response:
        host = _host_in(request.match_info["host"])
        if host is None:
            raise ApiError(400, "that is no host; use a name such as example.org or example.org:8080")
        return json_response(await self._api.explain_host(host))

    async def export_record(self, request: web.Request) -> web.Response:
        return _octets(await self._api.export_record(await self._crawl_in(request)))

    async def export_nodes(self, request: web.Request) -> web.Response:
        return json_response(await self._api.export_nodes(await self._crawl_in(request)))

    async def export_rows(self, request: web.Request) -> web.Response:
        kind = text_argument(request, "kind").encode()
        if kind not in keys.KINDS:
            raise ApiError(400, "the argument kind is no kind of record")
        crawl = await self._crawl_in(request)
        cursor = bytes_argument(request, "cursor")
        rows, after = await self._api.export_rows(crawl, bytes_argument(request, "node", KEY_BYTES), kind, cursor)
        return web.Response(body=msgpack.packb((rows, after)), content_type="application/msgpack")

    async def export_files(self, request: web.Request) -> web.Response:
        crawl = await self._crawl_in(request)
        return json_response(await self._api.export_files(crawl, bytes_argument(request, "node", KEY_BYTES)))

    async def export_chunk(self, request: web.Request) -> web.Response:
        name = text_argument(request, "name")
        if len(name) > NAME_CHARS_MAX or "/" in name or "\0" in name or name in (".", ".."):
            raise ApiError(400, "the argument name is no name of a file")
        offset = count_argument(request, "offset", 2**63 - 1)
        limit = count_argument(request, "limit", CHUNK_BYTES_MAX)
        node = bytes_argument(request, "node", KEY_BYTES)
        chunk = await self._api.export_chunk(await self._crawl_in(request), node, name, offset, limit)
        return _octets(chunk)

    async def _crawl_in(self, request: web.Request) -> bytes:
        return await self._crawl_id(request.match_info["crawl"])

    async def _crawl_id(self, prefix: str) -> bytes:
        """The crawl whose id begins so.

        Raises:
            ApiError: 400, too short or not hex; 404, there is none; 409, there are several.
        """
        if not re.fullmatch(rf"[0-9a-fA-F]{{{PREFIX_CHARS_MIN},{2 * CRAWL_ID_BYTES}}}", prefix):
            raise ApiError(400, f"{prefix[:40]!r} is no crawl; give {PREFIX_CHARS_MIN} hex digits of its id, or more")
        if len(prefix) == 2 * CRAWL_ID_BYTES:
            return bytes.fromhex(prefix)
        known = [str(crawl["crawl"]) for crawl in await self._api.crawls()]
        found = [crawl for crawl in known if crawl.startswith(prefix.lower())]
        if not found:
            raise ApiError(404, f"no crawl {prefix} here; see 'dhtcrawl crawls'")
        if len(found) > 1:
            raise ApiError(409, f"{prefix} could be any of {len(found)} crawls; give more of the id")
        return bytes.fromhex(found[0])


def _host_in(text: str) -> str | None:
    """The host as URLs have it, a name in Punycode; None for what is no host."""
    url = canonicalize(f"http://{text}/") if re.fullmatch(r"[^\s/?#@\\]+", text) else None
    host = "" if url is None else host_of(url)
    # A URL may have a host of dots alone (URL Standard, 3.5), but nothing has such a name.
    return host if 0 < len(host) <= HOST_CHARS_MAX + _PORT_CHARS and host.strip(".") else None


def _octets(data: bytes) -> web.Response:
    return web.Response(body=data, content_type="application/octet-stream")


async def _parsed(body: bytearray, read: Callable[[object], T]) -> T:
    """What `read` makes of the JSON in a body. Ten thousand URLs take a second, and the node has peers to answer."""
    return await asyncio.get_running_loop().run_in_executor(None, lambda: read(_json_in(body)))


def _json_in(body: bytearray) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise ApiError(400, "the body is no JSON") from None


@cache
def _dashboard() -> tuple[str, str]:
    """The page, and the policy by which a browser runs nothing but what is in it; read when it is first asked for."""
    page = resources.files("dhtcrawl.web").joinpath("dashboard.html").read_text("utf-8")
    style, script = (_digest(page, tag) for tag in ("style", "script"))
    own = f"style-src '{style}'; script-src '{script}'; connect-src 'self'; img-src data:"
    return page, f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


def _digest(page: str, tag: str) -> str:
    found = re.search(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
    assert found is not None, f"the dashboard has a {tag}"
    return f"sha256-{base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode()}"
