"""Whether a page has become much dearer: CPU a page of a small crawl, in multiples of a fixed piece of work.

The *reference* is what a page's work looks like, and none of ours: a loop in Python, gzip and SHA-1 over 25 KB. It is
measured in the same rounds on the same core, so that a slow or a busy machine changes both. CPU of a crawl of one page,
which is starting up, is taken off. The bound is twice what a page cost when it was set (`EXPECTED`): noise does not
reach it, and a page that costs three times as much does. After a change that makes pages cheaper, set it anew.

    python scripts/bench_smoke.py [--quick] [--json FILE]
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha1
from pathlib import Path
from statistics import median

import benchmark
import ended
from peer_bench import crawlers, measure, sites
from peer_bench.sites import Site, SiteServer
from web_server import NGINX

# Reference loops that a page costs: the median of runs with CPython 3.11 on the machine of docs/performance.md.
EXPECTED = 0.7
BOUND = 2.0
PAGES = 500
QUICK_PAGES = 100
ROUNDS = 5
LOOPS = 200
TMPFS = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class Round:
    """CPU-seconds of what was run in turn."""

    reference_s: float  # of one loop
    page_s: float  # of one page, start-up taken off

    @property
    def ratio(self) -> float:
        """Loops that a page costs."""
        return self.page_s / self.reference_s


def reference() -> None:
    """One loop: about as much Python, compression and digest as a page."""
    seen: dict[str, int] = {}
    for number in range(2_000):
        key = f"http://host{number % 97}.example/{number}"
        seen[key] = seen.get(key, 0) + len(key.split("/"))
    text = "".join(seen)[:25_000].encode()
    zlib.compress(text, 1)
    sha1(text).digest()


def rows_of(rounds: Sequence[Round]) -> list[benchmark.Row]:
    """The report: the ratio may be `BOUND` times what was expected."""
    ratio = median(each.ratio for each in rounds)
    most = round(EXPECTED * BOUND, 2)
    pages, loops = [1000 * each.page_s for each in rounds], [1000 * each.reference_s for each in rounds]
    return [
        benchmark.row("reference", median(loops), "ms CPU", loops, claim="a fixed piece of work"),
        benchmark.row("page", median(pages), "ms CPU", pages, claim="of a crawl, all on, start-up taken off"),
        benchmark.row(
            "page / reference", ratio, "times", [each.ratio for each in rounds], target=most, ok=ratio <= most,
            claim=f"at most {BOUND:g} times {EXPECTED:g}",
        ),
    ]  # fmt: skip


def measured(rounds: int, pages: int) -> list[Round]:
    """Reference, crawl and start-up in turns.

    Raises:
        CommandFailed: a crawl did not end well, or did not have all pages.
    """
    on_tmpfs = TMPFS if TMPFS.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="bench-smoke-", dir=on_tmpfs) as temporary, ExitStack() as stack:
        home = Path(temporary)
        cores = measure.two_cores()
        if cores:
            os.sched_setaffinity(0, {cores[0]})
        sites.write_pages(home / "web", pages)
        site, one = Site("generated", home / "web"), sites.one_page(home / "one")
        big = stack.enter_context(sites.serve(site, home / "nginx"))
        small = stack.enter_context(sites.serve(one, home / "nginx-one"))
        core = cores[1] if cores else None
        taken = []
        for number in range(rounds):
            loop_s = reference_cpu_s(core)
            crawl_s, startup_s = (
                cpu_s(big, pages, home / f"{number}", core),
                cpu_s(small, 1, home / f"{number}-one", core),
            )
            taken.append(Round(loop_s, (crawl_s - startup_s) / pages))
        return taken


def cpu_s(server: SiteServer, pages: int, home: Path, core: int | None) -> float:
    """CPU-seconds of a crawl of a site with so many pages.

    Raises:
        CommandFailed: it did not end well, or did not have all pages.
    """
    home.mkdir()
    task = crawlers.Task(server.seeds, home / "out", 32)
    spent = measure.run(crawlers.ours(1).command(task), cwd=home, env=crawlers.environment(home), core=core)
    if len(found := server.answers().pages) != pages:
        raise measure.CommandFailed(f"the crawl had {len(found)} pages of {pages}")
    return spent.cpu_s


def reference_cpu_s(core: int | None) -> float:
    """CPU-seconds of one loop, in a new process on the crawler's core."""
    argv = [sys.executable, __file__, "--reference"]
    pin = None if core is None else lambda: os.sched_setaffinity(0, {core})
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True, preexec_fn=pin)
    return float(done.stdout)


def main(argv: list[str] | None = None) -> int:
    """Measure, print, write; 0 only when the ratio is within its bound."""
    parser = argparse.ArgumentParser(description="Measures whether a page has become much dearer.")
    benchmark.add_options(parser, f"{QUICK_PAGES} pages and 2 rounds")
    parser.add_argument("--reference", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.reference:
        before = resource.getrusage(resource.RUSAGE_SELF)
        for _ in range(LOOPS):
            reference()
        after = resource.getrusage(resource.RUSAGE_SELF)
        print((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / LOOPS)
        return 0
    if NGINX is None:
        print("bench_smoke: nginx is missing: apt-get install nginx-light", file=sys.stderr)
        return 1
    rows = rows_of(measured(2, QUICK_PAGES) if args.quick else measured(ROUNDS, PAGES))
    benchmark.print_table(rows)
    return benchmark.finish(rows, args.json)


if __name__ == "__main__":
    sys.exit(ended.in_order(main))
