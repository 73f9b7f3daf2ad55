"""Files on a loopback port, for benches and tests: nginx where it is installed.

Each server has a directory of its own for its configuration and its log, and
is gone when its block is left. Only the standard library is needed.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from loopback import free_port

# Debian keeps it out of an ordinary user's PATH.
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
_MISSING = "nginx is missing: apt-get install nginx-light"

START_MAX_S = 30.0
STOP_MAX_S = 10.0
POLL_S = 0.005

_CONFIG = """
daemon off;
worker_processes 1;
pid {home}/pid;
error_log {home}/error.log;
{user}
events {{ worker_connections 512; }}
http {{
    include /etc/nginx/mime.types;
    default_type application/octet-stream;
    charset off;
    gzip off;
    client_body_temp_path {home}/body;
    proxy_temp_path {home}/proxy;
    fastcgi_temp_path {home}/fastcgi;
    uwsgi_temp_path {home}/uwsgi;
    scgi_temp_path {home}/scgi;
    log_format requests '$msec $request_time $status $body_bytes_sent $request_uri "$http_user_agent"';
    access_log {home}/access.log requests;
    {http}
    server {{
        listen 127.0.0.1:{port};
        root {root};
        index index.html;
        absolute_redirect off;
        {extra}
    }}
}}
"""


class WebServer:
    """A server process; `url` has no slash at its end."""

    def __init__(self, name: str, argv: list[str], port: int, errors: Path) -> None:
        self.name = name
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self._errors = errors
        with errors.open("ab") as log:
            self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log)

    def __enter__(self) -> Self:
        """Wait until it answers.

        Raises:
            RuntimeError: it ended instead; its last words are the message.
        """
        end = time.monotonic() + START_MAX_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{self.name} does not start: {self._errors.read_text()[-2000:]}")
            time.sleep(POLL_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()  # nginx's master takes its worker along
        try:
            self._process.wait(STOP_MAX_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_MAX_S)

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


def need_nginx() -> None:
    """Say at once that a benchmark cannot be run, before it has made anything.

    Raises:
        SystemExit: nginx is missing.
    """
    if NGINX is None:
        raise SystemExit(f"bench: {_MISSING}")


class Nginx(WebServer):
    """nginx on `root`; `extra` goes into its `server` block, `http` around it, `log` is its access log.

    It listens on `port` of 127.0.0.1, or on a free one.
    """

    def __init__(self, home: Path, root: Path, extra: str = "", http: str = "", port: int | None = None) -> None:
        if NGINX is None:
            raise RuntimeError(_MISSING)
        home.mkdir(parents=True)
        self.log = home / "access.log"
        self.log.touch()
        port, config, errors = port or free_port(), home / "nginx.conf", home / "error.log"
        # Only root may say whom the worker runs as, and then has to: the files
        # of a test's directory are for their owner only.
        user = "user root;" if os.geteuid() == 0 else ""
        root = root.absolute()  # or it would be below `home`
        config.write_text(_CONFIG.format(home=home, port=port, root=root, extra=extra, http=http, user=user))
        super().__init__("nginx", [NGINX, "-p", str(home), "-e", str(errors), "-c", str(config)], port, errors)


@contextmanager
def serve_files(root: Path, home: Path) -> Iterator[WebServer]:
    """`root` on nginx, or where that is missing on Python's own file server."""
    if NGINX is not None:
        with Nginx(home, root) as server:
            yield server
        return
    home.mkdir(parents=True)
    port = free_port()
    argv = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1", "--directory", str(root)]
    with WebServer("http.server", argv, port, home / "error.log") as server:
        yield server
