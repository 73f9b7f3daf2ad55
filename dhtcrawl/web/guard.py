"""Who may speak to the admin HTTP, and how it says no.

On loopback, where it listens by default, any program of this machine may ask and command. With a
token, as it must have beyond loopback, only who sends it in every request: `Authorization: Bearer TOKEN`
(RFC 6750). The dashboard's page itself, which says nothing, and whether the node is well, are open.

Two kinds of stranger are left, both of them web pages in a browser on this machine:

- **DNS rebinding**: the page's own host name comes to point here, so that it
  may read what we answer. Its requests carry that name in `Host`; only
  loopback names, the address we were told to listen on, and, where we listen
  on every address or on that of a name, IP addresses are answered.
- **CSRF**: the page sends a form here without being able to read the answer.
  Such requests carry the page's `Origin` (Fetch, 3.1); anything but GET and
  HEAD is refused unless that is our own. Commands send no `Origin`.

Every refusal and error is one line of JSON, `{"error": "…"}`; what is no HTTP request at all, aiohttp
answers with 400 and a text.
"""

from __future__ import annotations

import hmac
import json
import logging
import re
from collections.abc import Callable
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.log import server_logger
from aiohttp.typedefs import Handler, Middleware

from dhtcrawl.errors import ConfigError, DhtcrawlError, StorageFull, UsageError
from dhtcrawl.units import ip_of, is_loopback, is_wildcard
from dhtcrawl.web.api import ApiError

log = logging.getLogger(__name__)

_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]{1,5})?")
_QUOTED_CHARS_MAX = 200
_OPEN_PATHS = ("/", "/healthz")
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def json_response(value: object, status: int = 200) -> web.Response:
    """JSON; bytes become hex.

    A surrogate, as Python reads bytes that are no UTF-8 and JSON's own escapes, stays an escape: no encoding has it.
    """
    text = json.dumps(value, ensure_ascii=False, default=as_json) + "\n"
    body = text.encode("utf-8", "backslashreplace")  # whose form of it, \udcff, is JSON's
    return web.Response(body=body, status=status, content_type="application/json", charset="utf-8")


def as_json(value: object) -> str:
    """What is none of JSON's types: bytes, in hex.

    Raises:
        TypeError: it is something else.
    """
    if isinstance(value, bytes):
        return value.hex()
    raise TypeError(f"{type(value).__name__} is no JSON")


def host_in(header: str) -> str:
    """The host of a Host header, without port, brackets and case; "" where it is none."""
    match = _HOST.fullmatch(header.strip().lower())
    return "" if match is None else match[1] or match[2]


def may_name(host: str, bound: str) -> bool:
    """Whether a request may call us `host`, when we listen on `bound`."""
    if is_loopback(host) or host == bound.lower():
        return True
    address = ip_of(host)
    # Which address a name stands for, its name server says; no page of another site has an address for its name.
    return address is not None and (is_wildcard(bound) or ip_of(bound) in (None, address))


def stranger(bound: str) -> Middleware:
    """Turns away what comes from a web page that is not ours."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        hosts = request.headers.getall("Host", [])
        if len(hosts) != 1 or not may_name(host_in(hosts[0]), bound):
            raise ApiError(
                403, f"this node is not {' '.join(hosts) or 'without a name'}; use the address it listens on"
            )
        if request.method not in ("GET", "HEAD") and from_another_site(request):
            raise ApiError(403, "a web page of another site may not command this node")
        return await handler(request)

    return check


def bearer(token: str) -> Middleware:
    """Turns away who does not send `token`."""
    expected = token.encode()

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path not in _OPEN_PATHS and not _sends(request, expected):
            raise ApiError(401, "this node asks for its token; name the file that holds it with --admin-token-file")
        return await handler(request)

    return check


def _sends(request: web.Request, expected: bytes) -> bool:
    given = request.headers.getall("Authorization", [])
    scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    # In the same time whatever is wrong, so that it cannot be guessed byte by byte.
    return scheme.lower() == "bearer" and hmac.compare_digest(token.strip().encode("utf-8", "replace"), expected)


def from_another_site(request: web.Request) -> bool:
    """Whether a web page that is not ours sent the request; its `Host` is known to be ours."""
    origins, host = request.headers.getall("Origin", []), request.headers.get("Host", "")
    own = all(origin.lower() == f"{request.scheme}://{host.strip().lower()}" for origin in origins)
    return not own or request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin")


def doorkeeper(is_open: Callable[[], bool]) -> Middleware:
    """Refuse requests, with 503, while a node is just being started; the dashboard itself asks nothing."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path != "/" and not is_open():
            raise ApiError(503, "the node has just been started and reads its store; ask again in a moment")
        return await handler(request)

    return check


@web.middleware
async def one_line(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every answer with our headers, every error as one line."""
    try:
        response = await handler(request)
    except web.HTTPException as error:
        response = _problem(error.status, f"{request.method} {request.path}: {error.reason}")
        if "Allow" in error.headers:  # which 405 must have (RFC 9110, 15.5.6)
            response.headers["Allow"] = error.headers["Allow"]
    except Exception as error:
        response = _problem(*told_of(error, f"{request.method} {request.path}"))
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    return response


class ServerLog(logging.LoggerAdapter[logging.Logger]):
    """The log of aiohttp's server, for which what is no HTTP is an error with its traceback: here it is a line."""

    def __init__(self) -> None:
        super().__init__(server_logger)

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        error = kwargs.get("exc_info")
        if not isinstance(error, HttpProcessingError | web.RequestPayloadError):
            super().log(level, msg, *args, **kwargs)
        elif log.isEnabledFor(logging.DEBUG):
            said = " ".join(str(getattr(error, "message", error)).split())[:_QUOTED_CHARS_MAX]
            log.debug("%s sent what is no HTTP request: %s", args[0] if args else "a client", said)


def told_of(error: Exception, asked: str) -> tuple[int, str]:
    """The HTTP status and the line for an error in what was `asked`; the log has what is the node's own fault."""
    if isinstance(error, ApiError):
        return error.status, error.message
    if isinstance(error, UsageError | ConfigError):
        return 400, str(error)
    if isinstance(error, DhtcrawlError):
        log.error("%s: %s", asked, error)
        return 507 if isinstance(error, StorageFull) else 500, str(error)
    log.error("%s failed", asked, exc_info=error)
    return 500, f"unexpected {type(error).__name__}; the node's log has more"


def _problem(status: int, message: str) -> web.Response:
    response = json_response({"error": " ".join(message.split())}, status)
    if status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def text_argument(request: web.Request, name: str) -> str:
    """A query argument that must be there.

    Raises:
        ApiError: 400, it is not.
    """
    value = request.query.get(name, "")
    if not value:
        raise ApiError(400, f"the argument {name} is missing; add ?{name}=…")
    return value


def bytes_argument(request: web.Request, name: str, length: int | None = None) -> bytes:
    """A query argument in hex, b"" where it is missing and `length` is None.

    Raises:
        ApiError: 400, it is not hex, or not so long.
    """
    try:
        value = bytes.fromhex(request.query.get(name, ""))
    except ValueError:
        raise ApiError(400, f"the argument {name} is not hex") from None
    if length is not None and len(value) != length:
        raise ApiError(400, f"the argument {name} is no id of {2 * length} hex digits")
    return value


def count_argument(request: web.Request, name: str, high: int) -> int:
    """A query argument from 0 to `high`.

    Raises:
        ApiError: 400, it is not.
    """
    text: Any = request.query.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= high):
        raise ApiError(400, f"the argument {name} is no number up to {high}")
    return int(text)
