"""What a command imports: half of what a short one costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from demo_site import DemoServer
from e2e.crawler import environment

from dhtcrawl.errors import Exit

# Runs a command line, then prints the modules that it needed as its last line.
SCRIPT = """
import sys
from dhtcrawl.cli.main import run
code = run(sys.argv[1:])
print(*sorted(sys.modules))
raise SystemExit(code)
"""


def modules_of(directory: Path, *argv: str) -> set[str]:
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, *argv],
        cwd=directory,
        env=environment(directory),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode in (0, Exit.PAGE_LIMIT), ran.stderr
    return set(ran.stdout.splitlines()[-1].split())


def test_a_crawl_by_one_node_imports_no_swarm_and_no_server(server: DemoServer, tmp_path: Path) -> None:
    found = modules_of(tmp_path, "crawl", server.url, "--allow-private", "--delay", "0", "--max-pages", "1")
    assert "dhtcrawl.crawl.crawler" in found
    unneeded = {
        "aiohttp.web", "cryptography.hazmat.primitives.serialization", "importlib.metadata", "kademlia",
        "multiprocessing", "numpy", "psutil", "statistics", "tomllib",
        "dhtcrawl.cli.children", "dhtcrawl.cli.local_swarm", "dhtcrawl.cli.swarmnode", "dhtcrawl.export",
        "dhtcrawl.extract", "dhtcrawl.node.swarm_node", "dhtcrawl.rpc", "dhtcrawl.sim", "dhtcrawl.templates",
        "dhtcrawl.web.admin",
    }  # fmt: skip
    assert found & unneeded == set()


def test_the_version_is_told_without_network_and_store(tmp_path: Path) -> None:
    assert (
        modules_of(tmp_path, "--version") & {"aiohttp", "asyncio", "cryptography", "plyvel", "ssl", "uvloop"} == set()
    )
