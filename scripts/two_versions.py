"""Whether two versions share a swarm and go on with each other's stores: what a release promises of the one before it.

    python scripts/two_versions.py /opt/dhtcrawl-0.1.0/bin/dhtcrawl [--ours COMMAND]

Three nodes, two of ours and one of the other version between them, crawl a small site whose slow pages have no end,
until each waits for these. All are killed (`kill -9`), and started again on the same directories, each with the other
version. Now the site answers, and the crawl has to end complete: nothing lost, no page missing, none fetched twice.
Both in an open and in a closed swarm. The exit code is 0 when all of it was so.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import benchmark  # noqa: E402 - found on the path above
from e2e.old_stores import ASKED, AT_ONCE, NODES, SLOW, at_rest, running, site  # noqa: E402
from ended import in_order  # noqa: E402

HOST = "127.56.3.5"
END_MAX_S = 180.0


def nodes(stack: ExitStack, commands: Sequence[str], home: Path, secret: Sequence[str]) -> list[dict[str, Any]]:
    """One node of each command, on the directories of the earlier ones if there are any; what each says of itself."""
    said: list[dict[str, Any]] = []
    for number, command in enumerate(commands):
        argv = [command, "join", "--json", "--data-dir", f"node{number}", "-c", str(AT_ONCE), *secret]
        argv += ["--listen", f"{HOST}:0", "--admin", f"{HOST}:0"]
        argv += ["--bootstrap", said[0]["address"]] if said else []
        process = stack.enter_context(running(argv, home))
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise SystemExit(f"two_versions: node {number}, of {command}, did not start; what it said stands above")
        said.append(json.loads(line))
    return said


def ended(command: str, admin: str, home: Path) -> str:
    """The id of the one crawl, once it has ended."""
    until = time.monotonic() + END_MAX_S
    while time.monotonic() < until:
        told = subprocess.run(
            [command, "crawls", "--json", "--admin", admin], cwd=home, capture_output=True, check=True
        )
        (crawl,) = json.loads(told.stdout)
        if crawl["ended"]:
            return str(crawl["crawl"])
        time.sleep(1.0)
    raise SystemExit(f"two_versions: the crawl has not ended within {END_MAX_S:g} s")


def problems_of(ours: str, other: str, home: Path, *, closed: bool) -> list[str]:
    """What is wrong with a swarm of both; nothing where all is as promised."""
    secret: list[str] = []
    if closed:
        subprocess.run([ours, "secret", "new", "secret"], cwd=home, check=True, stdout=subprocess.DEVNULL)
        secret = ["--secret-file", "secret"]
    commands = [(ours, other)[number % 2] for number in range(NODES)]
    with site(slow=True) as server, ExitStack() as stack:
        admin = nodes(stack, commands, home, secret)[0]["admin"]
        crawl = [server.url + "/", "--allow-private", "--delay", "0", "--admin", admin]
        subprocess.run([ours, "submit", *crawl], cwd=home, check=True, stdout=subprocess.DEVNULL)
        at_rest(server, NODES * AT_ONCE)
        asked = Counter(server.paths())
    with site() as server, ExitStack() as stack:
        swapped = [other if command == ours else ours for command in commands]
        admin = nodes(stack, swapped, home, secret)[0]["admin"]
        gather = [ours, "gather", ended(ours, admin, home), "--out", "out", "--admin", admin]
        subprocess.run(gather, cwd=home, check=True, stdout=subprocess.DEVNULL)
        asked += Counter(server.paths())
    summary = json.loads((home / "out" / "summary.json").read_text())
    found = [f"{name} is {summary[name]}" for name in ("lost", "pages_missing", "refetches") if summary[name]]
    found += [] if summary["complete"] else ["the crawl is not complete"]
    found += [f"{path} was never asked for" for path in sorted(ASKED - set(asked))]
    # What was under way when its node was killed is asked for again.
    found += [f"{path} was asked for {asked[path]} times" for path in asked if asked[path] > 1 + (path in SLOW)]
    return found


def main() -> int:
    """The command line; its exit code."""
    parser = argparse.ArgumentParser(description="Whether two versions share a swarm and each other's stores.")
    parser.add_argument("other", type=benchmark.command, help="the dhtcrawl command of the other version")
    ours = str(Path(sys.executable).with_name("dhtcrawl"))
    parser.add_argument("--ours", type=benchmark.command, default=ours, help="the command of ours")
    args = parser.parse_args()
    code = 0
    for closed in (False, True):
        with tempfile.TemporaryDirectory(prefix="two-versions-") as home:
            problems = problems_of(args.ours, args.other, Path(home), closed=closed)
        print(f"{'a closed' if closed else 'an open'} swarm: {'; '.join(problems) or 'as promised'}")
        code = code or int(bool(problems))
    return code


if __name__ == "__main__":
    sys.exit(in_order(main))
