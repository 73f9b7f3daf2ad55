"""A scripted web server: for what a server of files cannot do.

Answers lie in a dictionary by path; an answer with `holds` sends its head and
a first byte, then nothing until the test ends or releases it. Times are this
process's monotonic clock.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from .deadline import until

_HOLD_MAX_S = 60.0
FREE_MAX_S = 120.0
FREE_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class Answer:
    """A response; with `holds` its body never comes to an end by itself."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    holds: bool = False


@dataclass(slots=True)
class Asked:
    """A request; `ended_at` is just before the last byte of the answer was written.

    Whoever notes it afterwards may be late: who asked has the answer by then, and may have waited for some time.
    """

    path: str
    began_at: float
    ended_at: float | None = None


NOT_FOUND = Answer(b"<p>no such page", 404)


class StubServer:
    """Serves `answers`; a list is used up one by one, its last answer stays.

    `address` is a host and a port, which is waited for while another process has it.
    """

    def __init__(self, address: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        self.answers: dict[str, Answer | list[Answer]] = {}
        self.asked: list[Asked] = []
        self._lock = threading.Lock()
        self._released = threading.Event()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Head and body in one segment: apart, Nagle's algorithm and the
            # client's delayed ACK cost 40 ms a request.
            wbufsize = 64 * 1024
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                stub.answer(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = _bound(address, Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self.url = f"http://{address[0]}:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def page(self, path: str, *links: str) -> None:
        """Serve a page with `links`."""
        anchors = "".join(f'<a href="{link}">{link}</a> ' for link in links)
        body = f"<!doctype html><meta charset=utf-8><title>{path}</title>{anchors}".encode()
        self.answers[path] = Answer(body, headers={"Content-Type": "text/html; charset=utf-8"})

    def paths(self) -> list[str]:
        """What was asked for, in order, robots.txt left out."""
        return [asked.path for asked in self.asked if asked.path != "/robots.txt"]

    def release(self) -> None:
        """End every answer that holds, now and later."""
        self._released.set()

    def _next(self, path: str) -> Answer:
        answer = self.answers.get(path, NOT_FOUND)
        if isinstance(answer, Answer):
            return answer
        return answer.pop(0) if len(answer) > 1 else answer[0]

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer one request, on its thread."""
        asked = Asked(handler.path, time.monotonic())
        with self._lock:
            self.asked.append(asked)
            answer = self._next(handler.path)
        length = len(answer.body) + (1 if answer.holds else 0)
        handler.send_response(answer.status)
        for name, value in answer.headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(length))
        handler.end_headers()
        asked.ended_at = None if answer.holds else time.monotonic()
        handler.wfile.write(answer.body)
        if answer.holds:
            handler.wfile.flush()
            self._released.wait(_HOLD_MAX_S)
            asked.ended_at = time.monotonic()
            handler.wfile.write(b".")
        try:
            handler.wfile.flush()
        except OSError:
            # The crawler gave up waiting: that is what some tests ask for.
            handler.close_connection = True


def _bound(address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> ThreadingHTTPServer:
    servers: list[ThreadingHTTPServer] = []

    def free() -> bool:
        try:
            servers.append(ThreadingHTTPServer(address, handler))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        return bool(servers)

    until(free, f"{address} is free", FREE_MAX_S, FREE_EVERY_S)
    return servers[0]
