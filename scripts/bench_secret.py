"""What a secret costs: two swarms of three nodes on loopback, one closed and one open, crawl the same site in turns.

CPU of the three nodes for a page. The swarms run side by side and stand still while the other crawls; the one that
begins changes with each pair. The difference is that within each pair, in the median.

    python scripts/bench_secret.py [--quick] [--json FILE] [--pairs N] [--pages N] [--site DIR --start PATH]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

import benchmark
import ended
from bench_attack import closed_swarm, crawl
from peer_bench.sites import write_pages
from policy_bench.nodes import Cluster
from web_server import serve_files

RATIO_MAX, MORE_US_MAX = 1.05, 50.0
SETTLE_S = 1.0


def pairs(home: Path, url: str, count: int) -> list[tuple[float, float]]:
    """µs of CPU a page, open and closed; the first pair is left out."""
    found: list[tuple[float, float]] = []
    with closed_swarm(home / "closed", 3) as (closed, _), Cluster(home / "open", "--open-swarm") as opened:
        for _ in range(3):
            opened.add()
        for number in range(count + 1):
            page_us: dict[bool, float] = {}
            for is_closed in (False, True) if number % 2 else (True, False):
                ran = crawl((closed if is_closed else opened).nodes, url)
                page_us[is_closed] = 1e6 * ran.cpu_s / ran.pages
                time.sleep(SETTLE_S)
            if number:
                found.append((page_us[False], page_us[True]))
    return found


def rows_of(found: list[tuple[float, float]]) -> list[benchmark.Row]:
    """Rows of the report."""
    more = [closed - opened for opened, closed in found]
    ratios = [closed / opened for opened, closed in found]
    ok = median(ratios) <= RATIO_MAX or median(more) <= MORE_US_MAX
    row = benchmark.row
    return [
        row("open", median(opened for opened, _ in found), "µs/page", [opened for opened, _ in found], digits=0),
        row("closed", median(closed for _, closed in found), "µs/page", [closed for _, closed in found], digits=0),
        row("a secret: more", median(more), "µs/page", more, target=MORE_US_MAX, ok=ok, digits=0),
        row("a secret: times", median(ratios), "times", ratios, target=RATIO_MAX, ok=ok),
    ]


def main() -> int:
    """Measure, print, write; 0 only when one of both targets is met."""
    parser = argparse.ArgumentParser(description="CPU a page of a closed swarm beside an open one.")
    parser.add_argument("--pairs", type=benchmark.count, metavar="N", help="8 by default")
    parser.add_argument("--pages", type=benchmark.count, default=1500, metavar="N", help="of the generated site")
    parser.add_argument("--site", metavar="DIR", help="files to crawl instead of generated ones")
    parser.add_argument("--start", default="/index.html", metavar="PATH", help="the first page of the site")
    benchmark.add_options(parser, "two pairs on a small site")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        home = Path(name)
        root = Path(args.site) if args.site else home / "site"
        if not args.site:
            write_pages(root, 300 if args.quick else args.pages)
        (home / "closed").mkdir()
        with serve_files(root, home / "server") as server:
            rows = rows_of(pairs(home, server.url + args.start, args.pairs or (2 if args.quick else 8)))
    benchmark.print_table(rows)
    return benchmark.finish(rows, args.json)


if __name__ == "__main__":
    sys.exit(ended.in_order(main))
