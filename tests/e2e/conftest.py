"""What every test here may ask for: a web server, the command, a machine that allows it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest
from web_server import NGINX

from .crawler import Crawler
from .nginx import Nginx, Throttled
from .outputs import Outputs
from .sites import DocSite
from .stub import StubServer
from .swarm import AT_ONCE, Swarm


class Serve(Protocol):
    """Starts nginx on a directory or a Debian package; `extra` goes into its `server` block."""

    def __call__(self, what: Path | DocSite, extra: str = "") -> Nginx: ...


class ServeSlowly(Protocol):
    """Starts nginx on a Debian package, at `rate` requests a second until it is opened."""

    def __call__(self, site: DocSite, rate: int) -> Throttled: ...


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Servers that end with the test."""
    if NGINX is None:
        pytest.skip("nginx is missing: apt-get install nginx-light")
    with ExitStack() as servers:
        count = 0

        def start(what: Path | DocSite, extra: str = "") -> Nginx:
            nonlocal count
            count += 1
            if isinstance(what, DocSite):
                what = root_of(what)
            return servers.enter_context(Nginx(tmp_path / f"nginx{count}", what, extra))

        yield start


@pytest.fixture
def serve_slowly(tmp_path: Path) -> Iterator[ServeSlowly]:
    """Servers that end with the test, so slow that a crawl of them has a middle."""
    if NGINX is None:
        pytest.skip("nginx is missing: apt-get install nginx-light")
    with ExitStack() as servers:
        yield lambda site, rate: servers.enter_context(Throttled(tmp_path / "throttled", root_of(site), rate))


def root_of(site: DocSite) -> Path:
    """Its directory; skips the test where it is not installed."""
    if not site.installed:
        pytest.skip(f"{site.root} is missing: apt-get install {site.package}")
    return site.root


@pytest.fixture
def stub() -> Iterator[StubServer]:
    """A server whose answers the test scripts."""
    with StubServer() as server:
        yield server


@pytest.fixture
def swarm(tmp_path: Path) -> Iterator[Swarm]:
    """Nodes with a few requests in flight each; the test starts them."""
    with Swarm(tmp_path / "swarm", *AT_ONCE) as swarm:
        yield swarm
        swarm.check()


@pytest.fixture
def crawler(tmp_path: Path) -> Crawler:
    return Crawler(tmp_path / "home")


@pytest.fixture
def outputs(tmp_path: Path) -> Outputs:
    """The `--out` that a test gives to its crawl."""
    return Outputs(tmp_path / "out")


@pytest.fixture
def root() -> None:
    """Skips where mounting and dropping capabilities is not allowed."""
    if os.geteuid() != 0:
        pytest.skip("needs root: run it as root, or in a container")
