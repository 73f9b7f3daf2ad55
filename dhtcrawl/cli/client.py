"""Asking a running node: the other end of `dhtcrawl.web.admin`."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any, Self, TypeVar, cast
from urllib.parse import quote

import aiohttp
import msgpack
from yarl import URL

from dhtcrawl.cli.admin_tls import fingerprint_of
from dhtcrawl.cli.admin_token import token_of
from dhtcrawl.cli.options import load_config
from dhtcrawl.config import Config
from dhtcrawl.errors import AdminRefused, ConfigError, DhtcrawlError, NodeUnreachable, NotNow, UsageError
from dhtcrawl.spec import CrawlSpec
from dhtcrawl.units import Address, format_address, is_wildcard, parse_address
from dhtcrawl.web.api import Action, Decision, Row

log = logging.getLogger(__name__)
T = TypeVar("T")

# In a node's data directory while it runs: its admin address, one line.
ADMIN_FILE = "admin"

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 60.0
ANSWER_BYTES_MAX = 64 << 20
_API = "/api/v1"
_USAGE = (400, 403, 404, 408, 409, 413)
_CONFIG = 422
_TOKEN = 401
_NOT_NOW = 503


@dataclass(frozen=True, slots=True)
class NodeAccess:
    """Where a node is asked, the token it is shown ("" for none), and by what it is known."""

    address: Address
    token: str = field(default="", repr=False)
    certificate: bytes | None = None  # SHA-256 of the one that it shows; None: it speaks plain HTTP

    def client(self) -> NodeClient:
        """What asks it."""
        return NodeClient(self.address, self.token, self.certificate)


class NodeClient:
    """One node by its admin address. Every method raises the same:

    Raises:
        NodeUnreachable: no node answers there.
        NotNow: the node says that it cannot tell yet.
        UsageError: the node says that this cannot be asked.
        AdminRefused: the node asks for another token, or shows another certificate.
        ConfigError: the node lacks what the crawl's policy needs.
        DhtcrawlError: it failed, or what answers is no node.
    """

    def __init__(self, address: Address, token: str = "", certificate: bytes | None = None) -> None:
        host, port = address
        self.name = format_address(address)
        if is_wildcard(host):  # a node listens there, but is not reached there
            host = "::1" if ":" in host else "127.0.0.1"
        self._base = f"{'http' if certificate is None else 'https'}://{format_address((host, port))}"
        self._tls: bool | aiohttp.Fingerprint = True if certificate is None else aiohttp.Fingerprint(certificate)
        timeout = aiohttp.ClientTimeout(total=ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._session = aiohttp.ClientSession(timeout=timeout, auto_decompress=False, headers=headers)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def status(self) -> dict[str, Any]:
        return await self._map("GET", "/status")

    async def peers(self) -> list[dict[str, Any]]:
        return await self._list("/peers")

    async def crawls(self) -> list[dict[str, Any]]:
        return await self._list("/crawls")

    async def submit(self, spec: CrawlSpec) -> dict[str, Any]:
        body = {"seeds": list(spec.seeds), "settings": asdict(spec.settings), "searches": spec.searches.plain()}
        body |= {"rules": spec.rules} if spec.rules else {}
        return await self._map("POST", "/crawls", body=body)

    async def crawl(self, crawl: str) -> dict[str, Any]:
        return await self._map("GET", _crawl(crawl))

    async def control(self, crawl: str, action: Action, settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
        body = {"settings": dict(settings)} if settings else None
        return await self._map("POST", f"{_crawl(crawl)}/{action}", body=body)

    async def given_up(self, crawl: str) -> dict[str, Any]:
        return await self._map("GET", f"{_crawl(crawl)}/given-up")

    async def decide(self, crawl: str, decision: Decision, urls: list[str] | None) -> dict[str, Any]:
        """None: all that came to nothing."""
        body = {"decision": decision, "urls": urls}
        return await self._map("POST", f"{_crawl(crawl)}/given-up", body=body, timeout_s=None)

    async def leave(self) -> dict[str, Any]:
        """Takes as long as the handing over does."""
        return await self._map("POST", "/leave", timeout_s=None)

    async def drain(self, drain_s: float) -> dict[str, Any]:
        """`drain_s` is the node's `node.drain_timeout_s`."""
        return await self._map("POST", "/drain", timeout_s=drain_s + ANSWER_TIMEOUT_S)

    async def shutdown(self) -> dict[str, Any]:
        return await self._map("POST", "/shutdown")

    async def locate(self, url: str, crawl: str | None) -> list[dict[str, Any]]:
        return await self._list("/locate", _about(url, crawl))

    async def why(self, url: str, crawl: str | None) -> list[dict[str, Any]]:
        return await self._list("/why", _about(url, crawl))

    async def explain_host(self, host: str) -> dict[str, Any]:
        return await self._map("GET", f"/hosts/{quote(host, safe='')}")

    async def export_record(self, crawl: str) -> bytes:
        return await self._ask("GET", f"{_crawl(crawl)}/export/record")

    async def export_nodes(self, crawl: str) -> list[dict[str, Any]]:
        return await self._list(f"{_crawl(crawl)}/export/nodes")

    async def export_rows(self, crawl: str, node: str, kind: bytes, cursor: bytes) -> tuple[list[Row], bytes | None]:
        query = {"node": node, "kind": kind.decode("ascii"), "cursor": cursor.hex()}
        body = await self._ask("GET", f"{_crawl(crawl)}/export/rows", query)
        try:
            rows, after = msgpack.unpackb(body)
            return [(bytes(key), bytes(value)) for key, value in rows], after
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise self._no_node() from error

    async def export_files(self, crawl: str, node: str) -> list[tuple[str, int]]:
        files = await self._json("GET", f"{_crawl(crawl)}/export/files", {"node": node})
        try:
            return [(str(name), int(length)) for name, length in files]
        except (ValueError, TypeError) as error:
            raise self._no_node() from error

    async def export_chunk(self, crawl: str, node: str, name: str, offset: int, limit: int) -> bytes:
        query = {"node": node, "name": name, "offset": str(offset), "limit": str(limit)}
        return await self._ask("GET", f"{_crawl(crawl)}/export/chunk", query)

    async def _map(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        value = await self._json(method, path, **options)
        if not isinstance(value, dict):
            raise self._no_node()
        return value

    async def _list(self, path: str, query: dict[str, str] | None = None) -> list[dict[str, Any]]:
        value = await self._json("GET", path, query)
        if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
            raise self._no_node()
        return cast(list[dict[str, Any]], value)

    async def _json(self, method: str, path: str, query: dict[str, str] | None = None, **options: Any) -> Any:
        try:
            return json.loads(await self._ask(method, path, query, **options))
        except ValueError as error:
            raise self._no_node() from error

    async def _ask(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        body: object = None,
        timeout_s: float | None = ANSWER_TIMEOUT_S,
    ) -> bytes:
        began_at = time.monotonic()
        try:
            answer = await self._exchange(method, path, query, body, timeout_s)
        except DhtcrawlError as error:
            # One that does not answer may be asked again for a while, and a person waits meanwhile.
            level = logging.INFO if isinstance(error, NodeUnreachable | NotNow) else logging.DEBUG
            log.log(level, "%s %s failed after %.3f s: %s", method, path, time.monotonic() - began_at, error)
            raise
        took_s = time.monotonic() - began_at
        log.debug("%s %s brought %d bytes from %s after %.3f s", method, path, len(answer), self.name, took_s)
        return answer

    async def _exchange(
        self, method: str, path: str, query: dict[str, str] | None, body: object, timeout_s: float | None
    ) -> bytes:
        url = URL(f"{self._base}{_API}{path}", encoded=True).with_query(query or {})
        data = None if body is None else json.dumps(body).encode()
        timeout = aiohttp.ClientTimeout(total=timeout_s, connect=CONNECT_TIMEOUT_S)
        try:
            async with self._session.request(
                method, url, data=data, timeout=timeout, allow_redirects=False, ssl=self._tls
            ) as response:
                answer = await _read(response)
                status = response.status
        except TimeoutError as error:
            raise NodeUnreachable(
                f"the node at {self.name} does not answer; see its log, or name another with --admin"
            ) from error
        except aiohttp.ServerFingerprintMismatch as error:
            raise AdminRefused(
                f"what answers at {self.name} shows another certificate than --admin-cert; copy the node's own again"
            ) from error
        except aiohttp.ServerDisconnectedError as error:
            raise NodeUnreachable(
                f"what answers at {self.name} hangs up; if the node speaks TLS, name its certificate with --admin-cert"
            ) from error
        except (aiohttp.ClientConnectionError, OSError) as error:
            raise NodeUnreachable(
                f"no node answers at {self.name}; start one with 'dhtcrawl join', or name it with --admin"
            ) from error
        except aiohttp.ClientPayloadError as error:
            raise NodeUnreachable(
                f"the answer of the node at {self.name} breaks off; see its log, or name another with --admin"
            ) from error
        except aiohttp.ClientError as error:
            raise self._no_node() from error
        if status >= 300:
            raise self._refusal(status, answer)
        return answer

    def _refusal(self, status: int, answer: bytes) -> DhtcrawlError:
        try:
            message = str(json.loads(answer)["error"])
        except (ValueError, TypeError, LookupError):
            return self._no_node()
        if status == _TOKEN:
            return AdminRefused(f"the node at {self.name}: {message}")
        if status in _USAGE:
            return UsageError(message)
        if status == _CONFIG:
            return ConfigError(f"the node at {self.name}: {message}")
        return (NotNow if status == _NOT_NOW else DhtcrawlError)(f"the node at {self.name}: {message}")

    def _no_node(self) -> DhtcrawlError:
        return DhtcrawlError(f"what answers at {self.name} is no node of this version; name one with --admin")


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """The body, as far as we take it."""
    parts, total = [], 0
    async for part in response.content.iter_any():
        total += len(part)
        if total > ANSWER_BYTES_MAX:
            raise aiohttp.ClientError("the answer is too long")
        parts.append(part)
    return b"".join(parts)


def _crawl(crawl: str) -> str:
    if not crawl:
        # An unset variable of a script: it does not mean the only crawl there is.
        raise UsageError("the crawl's id is empty; give the start of it")
    return f"/crawls/{quote(_sent(crawl), safe='')}"


def _about(url: str, crawl: str | None) -> dict[str, str]:
    return {"url": url} | ({} if crawl is None else {"crawl": _sent(crawl)})


def _sent(crawl: str) -> str:
    """An id as the node is asked for it, which refuses what is none: an argument may be no UTF-8, and no id then."""
    return crawl.encode("utf-8", "replace").decode()


def admin_access(options: dict[str, Any]) -> NodeAccess:
    """The node that a command asks: `--admin`, else the setting.

    Raises:
        ConfigError: it is no address, or another setting is not good.
        UsageError: the same, and the option gave it.
        AdminRefused: the file with its token can be read by others.
    """
    return admin_of(load_config(options))


def admin_of(config: Config) -> NodeAccess:
    """The node to ask.

    Raises:
        ConfigError: the setting is empty, or the file with the token holds none.
        UsageError: the same, of an option.
        AdminRefused: the file with the token can be read by others.
    """
    if not config.node.admin:
        raise config.refusal("node.admin", " is empty; name a running node with --admin HOST:PORT")
    return NodeAccess(parse_address(config.node.admin), token_of(config), fingerprint_of(config))


def asked(options: dict[str, Any], question: Callable[[NodeClient], Awaitable[T]]) -> T:
    """What the node answers to a question.

    Raises:
        ConfigError, UsageError, AdminRefused: what `admin_access` raises.
        DhtcrawlError: what `NodeClient` raises.
    """
    return asked_at(admin_access(options), question)


def asked_at(access: NodeAccess, question: Callable[[NodeClient], Awaitable[T]]) -> T:
    """What a node answers to a question.

    Raises:
        DhtcrawlError: what `NodeClient` raises.
    """

    async def main() -> T:
        async with access.client() as client:
            return await question(client)

    return asyncio.run(main())
