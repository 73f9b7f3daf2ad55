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
from .nginx import Nginx
from .outputs import Outputs
from .sites import DocSite
from .stub import StubServer


class Serve(Protocol):
    """Starts nginx on a directory or a Debian package; `extra` goes into its `server` block."""

    def __call__(self, what: Path | DocSite, extra: str = "") -> Nginx: ...


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
                if not what.installed:
                    pytest.skip(f"{what.root} is missing: apt-get install {what.package}")
                what = what.root
            return servers.enter_context(Nginx(tmp_path / f"nginx{count}", what, extra))

        yield start


@pytest.fixture
def stub() -> Iterator[StubServer]:
    """A server whose answers the test scripts."""
    with StubServer() as server:
        yield server


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
