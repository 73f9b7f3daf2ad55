"""The demo site on a loopback port: what `make crawl` crawls, and tests too.

`build` makes the site, `expected` says what a right crawl of it holds, `serve`
runs the server in a thread. As a script, it serves the site until Ctrl-C. Only
the standard library is needed.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from demo_pages import Page, Site, build, expected

__all__ = ["DemoServer", "Page", "Site", "build", "expected", "serve"]

IDLE_TIMEOUT_S = 30


class DemoServer(ThreadingHTTPServer):
    """Serves one site; `hits` counts the requests by path, as they were sent."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, site: Site, port: int) -> None:
        self.site = site
        self.hits: Counter[str] = Counter()
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def url(self) -> str:
        """The address of the first page."""
        return f"http://127.0.0.1:{self.server_port}/"

    def count(self, path: str) -> int:
        """Note a request; how often this path has been asked for, this one included."""
        with self._lock:
            self.hits[path] += 1
            return self.hits[path]

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away in the middle of an answer is no news."""
        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


@contextmanager
def serve(site: Site, port: int = 0) -> Iterator[DemoServer]:
    """The site's server, until the block is left.

    Raises:
        OSError: the port is taken.
    """
    with DemoServer(site, port) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: DemoServer
    protocol_version = "HTTP/1.1"
    server_version = "demo-site"
    timeout = IDLE_TIMEOUT_S
    # Head and body leave in one segment: written apart, Nagle's algorithm and
    # the client's delayed ACK cost 40 ms a request.
    wbufsize = 64 * 1024
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        times = self.server.count(path)
        page = self.server.site.page(path)
        if page.busy_once and times == 1:
            self._answer(503, (("Content-Type", "text/plain"), ("Retry-After", "1")), b"come back in a second\n")
        else:
            self._answer(page.status, (("Content-Type", page.content_type), *page.headers), page.body)

    do_HEAD = do_GET

    def _answer(self, status: int, headers: tuple[tuple[str, str], ...], body: bytes) -> None:
        self.send_response(status)
        for name, value in (*headers, ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: the crawl's progress is what one wants to see."""


def main() -> None:
    """Serve the site until Ctrl-C."""
    parser = argparse.ArgumentParser(description="Serves a small generated web site on 127.0.0.1 until Ctrl-C.")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one (default)")
    parser.add_argument("--seed", type=int, default=1, help="another seed, another site (default 1)")
    args = parser.parse_args()
    try:
        listening = DemoServer(build(args.seed), args.port)
    except (OSError, OverflowError) as error:
        parser.error(f"argument --port: {args.port} cannot be listened on ({error}); 0 takes a free one")
    with listening as server:
        print(server.url, flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("stopped")


if __name__ == "__main__":
    main()
