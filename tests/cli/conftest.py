"""A crawl of the demo site that all tests here look at, and ways to run commands."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

import pytest
from demo_site import DemoServer, Site, build, serve
from e2e.crawler import COMMAND, environment
from e2e.fork_server import start
from web.fake import FakeNode, running

from dhtcrawl.cli.main import run
from dhtcrawl.cli.places import node_dir
from dhtcrawl.cli.stderr import STDERR

TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str

    def message(self) -> str:
        """The one line of a command that failed."""
        assert self.stderr.startswith("dhtcrawl: "), self
        assert self.stderr.count("\n") == 1, self
        assert self.stdout == "", self
        return self.stderr.rstrip("\n")


Here = Callable[..., Ended]


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing of the user's settings reaches a command, nor does what another command in this process set up."""
    for name in list(os.environ):
        if name.startswith("DHTCRAWL_"):
            monkeypatch.delenv(name)
    yield
    STDERR.reset()


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str]) -> Here:
    """Runs a command in this process: quick, but nothing that crawls."""

    def start(*args: str | Path) -> Ended:
        code = run([str(arg) for arg in args])
        out, err = capsys.readouterr()
        return Ended(code, out, err)

    return start


def spawn(home: Path, *args: str | Path) -> Ended:
    """Run a command in a process of its own, forked from one that has imported everything; its output goes to files."""
    home.mkdir(exist_ok=True)
    with TemporaryFile() as stdout, TemporaryFile() as stderr:
        ran = start(
            list(map(str, args)), stdout=stdout.fileno(), stderr=stderr.fileno(), cwd=home, env=environment(home)
        )
        try:
            code = ran.wait(TIMEOUT_S)
        except BaseException:
            os.killpg(ran.pid, signal.SIGKILL)
            raise
        stdout.seek(0)
        stderr.seek(0)
        ended = Ended(code, stdout.read().decode(), stderr.read().decode())
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended


def spawn_anew(home: Path, *args: str | Path, stdin: bytes = b"", env: dict[str, str] | None = None) -> Ended:
    """Run a command by a new interpreter, as on a command line, its input and output piped."""
    home.mkdir(exist_ok=True)
    ran = subprocess.run(
        [*COMMAND, *map(str, args)],
        input=stdin,
        capture_output=True,
        cwd=home,
        env=environment(home) | (env or {}),
        timeout=TIMEOUT_S,
        check=False,
    )
    assert b"Traceback" not in ran.stderr, ran.stderr.decode()
    return Ended(ran.returncode, ran.stdout.decode(), ran.stderr.decode())


@dataclass(frozen=True, slots=True)
class DemoCrawl:
    """A finished crawl of the demo site; its server answers no more."""

    site: Site
    url: str
    out: Path
    ended: Ended


@pytest.fixture(scope="session")
def server() -> Iterator[DemoServer]:
    with serve(build()) as running:
        yield running


@pytest.fixture(scope="session")
def demo(server: DemoServer, tmp_path_factory: pytest.TempPathFactory) -> DemoCrawl:
    """Not to be changed: `copy` is."""
    home = tmp_path_factory.mktemp("demo")
    server.hits.clear()
    ended = spawn_anew(
        home, "crawl", server.url, "--allow-private", "--delay", "0", "--out", "out", "--json", env={"COLUMNS": "80"}
    )
    return DemoCrawl(server.site, server.url, home / "out", ended)


@pytest.fixture
def copy(demo: DemoCrawl, tmp_path: Path) -> Path:
    """The crawl's directory, for a test to spoil; what goes on with it lies beside it."""
    out = tmp_path / "out"
    shutil.copytree(demo.out, out)
    shutil.copytree(node_dir(demo.out), node_dir(out))
    return out


def secrets_in(out: Path) -> list[str]:
    """What in `out` looks like a key, a store or a node's data directory."""
    names = {"identity.pem", "lock", "admin", "store", "node", "nodes", "node.toml", "CURRENT", "LOCK"}
    suspicious = [path for path in out.rglob("*") if path.name in names or path.suffix in (".pem", ".ldb", ".node")]
    files = [path for path in out.rglob("*") if path.is_file()]
    return sorted(map(str, {*suspicious, *(path for path in files if b"PRIVATE KEY" in path.read_bytes())}))


@pytest.fixture
def node() -> FakeNode:
    return FakeNode()


@pytest.fixture
def admin(node: FakeNode) -> Iterator[str]:
    with running(node) as address:
        yield address


Ask = Callable[..., Ended]


@pytest.fixture
def ask(here: Here, admin: str, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Runs a command against the fake node."""
    monkeypatch.setenv("COLUMNS", "80")

    def start(*args: str | Path) -> Ended:
        return here(*args, "--admin", admin)

    return start


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
