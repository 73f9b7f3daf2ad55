"""What a swarm costs: CPU a page of `crawl --nodes N` over that of one node, start-up taken off, in turns.

Two shapes. *site*: pages whose links stand on many pages; with `--site` it is a directory
of files, by default a generated one. *new*: every page links to 64 URLs that no other page
has, so each page costs 64 records at their owner and its backups; it has a page limit.

CPU is user and system time of the command and its nodes. A crawl of one page, by as
many nodes, is what starting costs. The server's time is not in it. `even` is the largest
number of pages of a node over the mean.

    python scripts/bench_swarm.py [--quick] [--json FILE] [--nodes N,N] [--policy NAME] [--site DIR --start PATH]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

import benchmark
import ended
from peer_bench.sites import write_pages
from web_server import serve_files

from dhtcrawl.errors import Exit

TREE = Path(__file__).parents[1]
NEW_LINKS = 64
SITE_RATIO_MAX = 1.35
SITE_MORE_MS_MAX = 0.25
NEW_RATIO_MAX = 4.0
RUN_MAX_S = 600.0


@dataclass(frozen=True, slots=True)
class Ran:
    """One crawl: CPU in seconds, pages, and pages of the busiest node over the mean."""

    cpu_s: float
    pages: int
    even: float


def crawl(home: Path, url: str, nodes: int, policy: str, *options: str) -> Ran:
    """Crawl with everything on but politeness; `home` is emptied for it.

    Raises:
        SystemExit: the crawl failed.
    """
    with tempfile.TemporaryDirectory(dir=home) as name:
        out = Path(name) / "out"
        argv = [sys.executable, "-m", "dhtcrawl", "crawl", url, "--allow-private", "--delay", "0", "--json"]
        argv += ["--out", str(out), *options]
        argv += ["--nodes", str(nodes), "--policy", policy] if nodes > 1 else []
        env = os.environ | {"PYTHONPATH": str(TREE), "HOME": name, "XDG_DATA_HOME": name}
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        ran = subprocess.run(argv, capture_output=True, env=env, cwd=name, timeout=RUN_MAX_S, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if ran.returncode not in (0, Exit.PAGE_LIMIT):
            raise SystemExit(f"bench: a crawl by {nodes} nodes ended with {ran.returncode}: {ran.stderr.decode()}")
        fetched = _pages(out)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Ran(used, sum(fetched), max(fetched) / mean(fetched))


def _pages(out: Path) -> list[int]:
    """How many pages each node fetched, by the outputs."""
    counts: dict[str, int] = {}
    with (out / "pages" / "pages.jsonl").open() as lines:
        for line in lines:
            node = json.loads(line).get("node", "")
            counts[node] = counts.get(node, 0) + 1
    return list(counts.values())


def new_links(root: Path, pages: int) -> None:
    """Write pages that are a tree: each links to `NEW_LINKS` URLs that no other page has."""
    root.mkdir(parents=True)
    for page in range(pages):
        first = page * NEW_LINKS + 1
        links = "".join(
            f'<p><a href="/p{number}.html">page {number}</a></p>' for number in range(first, first + NEW_LINKS)
        )
        (root / f"p{page}.html").write_text(f"<!doctype html><title>{page}</title>{links}")


def costs(home: Path, url: str, counts: Sequence[int], policy: str, rounds: int, *options: str) -> list[list[Ran]]:
    """For each number of nodes, in turns, `rounds` crawls."""
    found: list[list[Ran]] = [[] for _ in counts]
    for number in range(rounds):
        order = list(enumerate(counts))
        for place, nodes in order if number % 2 == 0 else reversed(order):
            found[place].append(crawl(home, url, nodes, policy, *options))
    return found


def measure(
    home: Path, shape: str, url: str, counts: Sequence[int], policy: str, rounds: int, *options: str
) -> list[benchmark.Row]:
    """The rows of one shape; the first of `counts` is 1."""
    starts = costs(home, url, counts, policy, rounds, "--depth", "0")
    whole = costs(home, url, counts, policy, rounds, *options)
    rows: list[benchmark.Row] = []
    one: list[float] = []
    for nodes, started, ran in zip(counts, starts, whole, strict=True):
        start_s = median(each.cpu_s for each in started)
        page_ms = [1000 * (each.cpu_s - start_s) / each.pages for each in ran]
        one = one or page_ms
        name = f"{shape}, {nodes} node" + ("s" if nodes > 1 else "")
        rows.append(benchmark.row(f"{name}: start", start_s, "s", [each.cpu_s for each in started]))
        rows.append(benchmark.row(f"{name}: CPU", median(page_ms), "ms/page", page_ms))
        if nodes > 1:
            ratio = median(page_ms) / median(one)
            most = NEW_RATIO_MAX if shape == "new" else SITE_RATIO_MAX
            ok = ratio <= most or (shape != "new" and median(page_ms) - median(one) <= SITE_MORE_MS_MAX)
            rows.append(benchmark.row(f"{name}: over one", ratio, "times", rounds, target=most, ok=ok))
            rows.append(benchmark.row(f"{name}: even", median(each.even for each in ran), "max/mean", rounds))
    return rows


def main() -> int:
    """Measure, print the table; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    benchmark.add_options(parser, "one round on a small site")
    parser.add_argument(
        "--nodes", type=benchmark.counts, help="numbers of nodes, by commas; by default 5 for a site, 4 for new links"
    )
    parser.add_argument("--policy", default="xor")
    parser.add_argument("--site", metavar="DIR", help="files to crawl instead of generated ones")
    parser.add_argument("--start", default="/index.html", help="the path of the first page of the site")
    parser.add_argument("--shape", choices=("site", "new", "both"), default="both")
    parser.add_argument("--pages", type=benchmark.count, default=600, help="pages of new links")
    options = parser.parse_args()
    rounds = 1 if options.quick else 3
    asked = options.nodes or []
    rows: list[benchmark.Row] = []
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        home = Path(name)
        if options.shape != "new":
            root = Path(options.site) if options.site else home / "site"
            if not options.site:
                write_pages(root, 200 if options.quick else 2000)
            with serve_files(root, home / "server-site") as server:
                rows += measure(home, "site", server.url + options.start, [1, *(asked or [5])], options.policy, rounds)
        if options.shape != "site":
            pages = 50 if options.quick else options.pages
            new_links(home / "new", 1 + NEW_LINKS + NEW_LINKS**2)
            with serve_files(home / "new", home / "server-new") as server:
                url, limit = server.url + "/p0.html", ("--max-pages", str(pages))
                rows += measure(home, "new", url, [1, *(asked or [4])], options.policy, rounds, *limit)
    benchmark.print_table(rows)
    return benchmark.finish(rows, options.json)


if __name__ == "__main__":
    sys.exit(ended.in_order(main))
