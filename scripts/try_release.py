"""Whether what `make dist` builds can be installed by others: the wheel and the source archive, each by itself.

    python scripts/try_release.py [--pipx COMMAND] [--python COMMAND]

Both are built, and installed with all that they depend on: by pipx where it is named, else by pip into an environment
of its own. From there `dhtcrawl --version` has to say this version, and a crawl of one page has to end complete. The
commands know nothing of this checkout. The exit code is 0 when all of it was so.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import benchmark  # noqa: E402 - found on the path above
from ended import in_order  # noqa: E402

from dhtcrawl import __version__  # noqa: E402

PAGE = b"<!doctype html><title>One page</title><p>It leads nowhere."


class _Site(BaseHTTPRequestHandler):
    """One page, and no robots.txt."""

    def do_GET(self) -> None:
        """Answer."""
        found = self.path == "/"
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(PAGE) if found else 0))
        self.end_headers()
        self.wfile.write(PAGE if found else b"")

    def log_message(self, format: str, *args: object) -> None:
        """What it was asked for is no news."""


@contextmanager
def site() -> Iterator[str]:
    """The URL of the page."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Site) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def run(argv: Sequence[object], home: Path, **env: Path) -> str:
    """What a command says; it knows nothing of this checkout.

    Raises:
        SystemExit: it failed.
    """
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    named = {name: str(value) for name, value in env.items()}
    done = subprocess.run(list(map(str, argv)), cwd=home, env=clean | named, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"try_release: {' '.join(map(str, argv))} ended with {done.returncode}")
    return done.stdout


def installed(package: Path, home: Path, python: str, pipx: str | None) -> Path:
    """The `dhtcrawl` command of a package that was installed below `home`."""
    home.mkdir()
    if pipx:
        argv = [pipx, "install", "--python", python, package]
        run(argv, home, PIPX_HOME=home / "pipx", PIPX_BIN_DIR=home / "bin", PIPX_MAN_DIR=home / "man")
        return home / "bin" / "dhtcrawl"
    run([python, "-m", "venv", home / "venv"], home)
    run([home / "venv" / "bin" / "python", "-m", "pip", "install", "--quiet", package], home)
    return home / "venv" / "bin" / "dhtcrawl"


def faults(command: Path, home: Path) -> list[str]:
    """What is wrong with an installed command."""
    said = run([command, "--version"], home).strip()
    found = [] if said.split()[-1:] == [__version__] else [f"--version says {said!r}"]
    with site() as url:
        argv = [command, "crawl", url, "--allow-private", "--delay", "0", "--out", "out", "--json", "--quiet"]
        summary = json.loads(run(argv, home).splitlines()[-1])
    wanted = {"complete": True, "pages": 1, "lost": 0, "pages_missing": 0}
    return found + [f"{name} is {summary[name]}" for name, value in wanted.items() if summary[name] != value]


def main() -> int:
    """The command line; its exit code."""
    parser = argparse.ArgumentParser(description="Whether what `make dist` builds can be installed by others.")
    parser.add_argument(
        "--pipx", type=benchmark.command, metavar="COMMAND", help="install by this pipx (default: by pip)"
    )
    parser.add_argument(
        "--python", type=benchmark.command, default=sys.executable, metavar="COMMAND", help="for what is installed"
    )
    args = parser.parse_args()
    bad = 0
    with tempfile.TemporaryDirectory(prefix="dhtcrawl-release-") as directory:
        home = Path(directory)
        subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", home / "dist"], cwd=ROOT, check=True)
        for package in sorted((home / "dist").iterdir()):
            kind = "wheel" if package.suffix == ".whl" else "source"
            command = installed(package, home / kind, args.python, args.pipx)
            found = faults(command, home / kind)
            bad += len(found)
            print(f"{package.name}: {'; '.join(found) or 'installed; it says its version and crawls'}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(in_order(main))
