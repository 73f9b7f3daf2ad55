"""A small site that is always at one address, and a script that leaves crawls of it half done.

    python -m tests.e2e.old_stores DHTCRAWL DIR

runs the command DHTCRAWL, of the version whose stores are wanted, and packs what `kill -9` left into DIR:
`one_node.tar.gz`, the output directory of `crawl`, and `three_nodes.tar.gz`, the data directories of a swarm.

The crawl comes to rest by itself: of some pages the server sends no end, until
every request that the crawler may have under way is for one of these.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from .deadline import until
from .stub import Answer, StubServer

# A store names the pages' addresses. No test has this one by chance, and no system takes the port for a client.
ADDRESS = ("127.56.3.3", 8356)
NODES = 3
AT_ONCE = 2
REST_S = 2.0  # what was fetched is on disk by then, and with the backups
ROBOTS = Answer(b"User-agent: *\nDisallow: /private/\n", headers={"Content-Type": "text/plain"})
FIRST = [f"/first/{number}" for number in range(6)]
SLOW = [f"/slow/{number}" for number in range(NODES * AT_ONCE)]
LAST = [f"/last/{number}" for number in range(6)]
BEHIND = [f"/behind/{number}" for number in range(12)]  # two links from the start
ODD = ["/private/diary", "/loop", "/old", "/endless-head"]
PAGES = {"/", "/new", *FIRST, *SLOW, *LAST, *BEHIND}
ASKED = {*PAGES, "/loop", "/old", "/endless-head"}


@contextmanager
def site(*, slow: bool = False) -> Iterator[StubServer]:
    """The site at its address, for one at a time; with `slow`, the pages of that name come to no end."""
    with StubServer(ADDRESS) as server:
        server.answers["/robots.txt"] = ROBOTS
        server.page("/", *ODD, *FIRST, *SLOW, *LAST)
        server.answers["/loop"] = _moved("/loop")
        server.answers["/old"] = _moved("/new")
        server.answers["/endless-head"] = Answer(headers={"X": "x" * 200_000})
        for path in ["/new", *FIRST, *SLOW, *LAST, *BEHIND]:
            server.page(path)
        for place, path in enumerate([*FIRST, *LAST]):
            server.page(path, BEHIND[place], "/")
        for path in SLOW if slow else []:
            answer = server.answers[path]
            assert isinstance(answer, Answer)
            server.answers[path] = replace(answer, holds=True)
        yield server


def _moved(to: str) -> Answer:
    return Answer(b"moved", 301, {"Location": to})


def _one_node(command: str, home: Path) -> None:
    with site(slow=True) as server, running([command, *_crawl(server), "--out", "out", "-c", str(AT_ONCE)], home):
        at_rest(server, AT_ONCE)


def _crawl(server: StubServer) -> list[str]:
    return ["crawl", server.url + "/", "--allow-private", "--delay", "0"]


def _three_nodes(command: str, home: Path) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(site(slow=True))
        through: list[str] = []
        for number in range(NODES):
            argv = [command, "join", "--json", "--data-dir", f"node{number}", "-c", str(AT_ONCE)]
            argv += ["--listen", "127.56.3.4:0", "--admin", "127.56.3.4:0", *through]
            node = stack.enter_context(running(argv, home))
            assert node.stdout is not None
            where = json.loads(node.stdout.readline())
            through = ["--bootstrap", where["address"]]
        argv = [command, "submit", *_crawl(server)[1:], "--admin", where["admin"]]
        subprocess.run(argv, cwd=home, check=True)
        at_rest(server, NODES * AT_ONCE)


def at_rest(server: StubServer, slow: int) -> None:
    """Wait until so many pages without an end are asked for, and the rest is on disk."""
    until(lambda: len(set(server.paths()) & set(SLOW)) == slow, f"{slow} slow pages are asked for")
    time.sleep(REST_S)
    print("asked for:", *server.paths())


@contextmanager
def running(argv: Sequence[str], home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process in `home`; killed in the end."""
    process = subprocess.Popen(argv, cwd=home, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def main() -> None:
    """Make both archives."""
    command, target = sys.argv[1], Path(sys.argv[2])
    for name, make in (("one_node", _one_node), ("three_nodes", _three_nodes)):
        with tempfile.TemporaryDirectory() as home:
            make(command, Path(home))
            with tarfile.open(target / f"{name}.tar.gz", "w:gz") as archive:
                for path in sorted(Path(home).iterdir()):
                    archive.add(path, path.name)


if __name__ == "__main__":
    main()
