"""What a page costs ours and others: dhtcrawl beside Scrapy, crawlee, spider, wget and wget2, in one run.

Each crawls the same sites from the same nginx on one core, nginx on another, in rounds in which each has its turn, each
as a process of its own from start to end, what it writes on tmpfs (/dev/shm) and deleted after each crawl. The server's
log says whether all had the same pages. CPU is user and system time of all processes of a crawl; a crawl of one page
says what of it is starting up. `peer_bench/crawlers.py` has every setting of every crawler, and why.

    generated        20 hosts of 1,000 pages, 25 KB and 65 links each, made up for the run
    cppreference     cppreference-doc-en-html: 38 KB and 98 links a page
    postgresql       postgresql-doc-15: small pages

    python scripts/bench_peers.py --install
    python scripts/bench_peers.py [--quick] [--json FILE] [--plot FILE.svg]

Whoever is not installed is left out. All of it takes hours, most of them Scrapy's and crawlee's: `--slow-rounds` says
how many rounds have these. Rounds may also be run one by one, as `--rounds 1 --json a.json`, and be put together:
`--rounds 0 --add a.json --add b.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import benchmark
import ended
from loopback import free_port
from peer_bench import crawlers, measure, sites
from peer_bench.crawlers import Crawler
from peer_bench.report import STARTUP, TARGETS, US, Run, Runs, markdown, plot, rows_of
from peer_bench.sites import Answers, Site, SiteServer
from web_server import need_nginx

SITES = ("generated", "cppreference", "postgresql")
REAL = {
    "cppreference": Site("cppreference", Path("/usr/share/cppreference/doc/html"), "/en/index.html"),
    "postgresql": Site("postgresql", Path("/usr/share/doc/postgresql-doc-15/html")),
}
HOSTS = 20
PAGES = 1_000  # of each host
QUICK_PAGES = 10
TMPFS = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class Lab:
    """Where crawls are run, and on which core."""

    home: Path
    concurrency: int
    core: int | None

    def crawl(self, crawler: Crawler, server: SiteServer) -> tuple[measure.Spent, Answers]:
        """One crawl in a directory of its own, which is gone afterwards.

        Raises:
            CommandFailed: the crawler did.
        """
        home = self.home / "crawl"
        home.mkdir()
        server.answers()
        try:
            task = crawlers.Task(server.seeds, home / "out", self.concurrency)
            env = crawlers.environment(home)
            spent = measure.run(crawler.command(task), cwd=home, env=env, core=self.core, codes=crawler.codes)
            return spent, server.answers()
        finally:
            shutil.rmtree(home)


Taken = tuple[float, str, str, measure.Spent, Answers]  # its round's beginning, site, crawler


def compare(
    lab: Lab, who: Sequence[Crawler], servers: Sequence[SiteServer], rounds: int, slow_rounds: int
) -> list[Run]:
    """Have each crawler crawl each site in each round; after an interruption, what has been measured.

    Whoever fails is said, and left out from then on.

    Raises:
        SystemExit: our own crawl failed.
    """
    taken: list[Taken] = []
    try:
        for each in crawls(lab, who, servers, rounds, slow_rounds):
            taken.append(each)
    except KeyboardInterrupt:
        print("interrupted: this is about what has been measured", file=sys.stderr)
    return [_run(*each, _expected(taken, each[1])) for each in taken]


def crawls(
    lab: Lab, who: Sequence[Crawler], servers: Sequence[SiteServer], rounds: int, slow_rounds: int
) -> Iterator[Taken]:
    """One crawl after the other, in turns.

    Raises:
        SystemExit: our own crawl failed.
    """
    failed: set[str] = set()
    for number in range(rounds):
        turn = time.time()
        # Another one begins each time.
        order = (*who[number % len(who) :], *who[: number % len(who)])
        for server in servers:
            for crawler in order:
                if crawler.name in failed or (crawler.slow and number >= slow_rounds):
                    continue
                try:
                    spent, answers = lab.crawl(crawler, server)
                except measure.CommandFailed as error:
                    if crawler.name.startswith(US):
                        raise SystemExit(f"bench: {error}") from error
                    failed.add(crawler.name)
                    print(f"{crawler.name} is left out: {error}", file=sys.stderr)
                    continue
                print(
                    f"{number + 1}/{rounds} {server.site.name} {crawler.name}: {spent.cpu_s:.2f} s of CPU, "
                    f"{spent.wall_s:.1f} s, {len(answers.pages):,} pages",
                    file=sys.stderr,
                )
                yield turn, server.site.name, crawler.name, spent, answers


def _expected(taken: Sequence[Taken], site: str) -> frozenset[str]:
    """The pages of our first crawl of a site, or where we took no part, of the first."""
    at = [each for each in taken if each[1] == site]
    return next((each[4].pages for each in at if each[2] == US), at[0][4].pages)


def _run(turn: float, site: str, crawler: str, spent: measure.Spent, answers: Answers, expected: frozenset[str]) -> Run:
    return Run(
        site, crawler, turn, spent.cpu_s, spent.wall_s, spent.peak_bytes, len(answers.pages), answers.pages_again,
        answers.others, len(expected - answers.pages), len(answers.pages - expected),
    )  # fmt: skip


def chosen(names: str | None, known: Sequence[str], what: str) -> list[str]:
    """The names of a list with commas, or all.

    Raises:
        SystemExit: one of them is unknown.
    """
    some = [name.strip() for name in names.split(",")] if names else list(known)
    if unknown := set(some) - set(known):
        raise SystemExit(f"bench: {', '.join(sorted(unknown))}: there is no such {what}; there are {', '.join(known)}")
    return some


def runs_in(file: str) -> list[Run]:
    """What an earlier --json has.

    Raises:
        SystemExit: it cannot be read, or is none of this benchmark.
    """
    try:
        return [Run(**run) for run in json.loads(Path(file).read_text("utf-8"))["runs"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"bench: --add {file}: holds no runs of this benchmark ({error})") from None


def run_all(args: argparse.Namespace, who: Sequence[Crawler]) -> list[Run]:
    """The rounds that were asked for.

    Raises:
        SystemExit: nginx is missing.
    """
    need_nginx()
    on_tmpfs = TMPFS if TMPFS.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="bench-peers-", dir=on_tmpfs) as temporary, ExitStack() as stack:
        home = Path(temporary)
        cores = measure.two_cores()
        if cores:
            os.sched_setaffinity(0, {cores[0]})  # nginx is started by us
        wanted = chosen(args.sites, SITES, "site")
        port = free_port()
        some: list[tuple[Site, int | None]] = [(sites.one_page(home / "one"), None)]
        for name in wanted:
            if name not in REAL:
                pages = args.pages or (QUICK_PAGES if args.quick else PAGES)
                some.append((sites.generated(home / "generated", HOSTS, pages, port), port))
            elif not (REAL[name].root / REAL[name].start[1:]).is_file():
                print(f"{name} is left out: {REAL[name].root} is not there", file=sys.stderr)
            else:
                some.append((REAL[name], None))
        # To be ended is to be interrupted: servers, crawls and files are cleared away.
        for each in ended.heeded():
            signal.signal(each, signal.default_int_handler)
        servers = [stack.enter_context(sites.serve(site, home / f"nginx-{site.name}", at)) for site, at in some]
        lab = Lab(home, args.concurrency, cores[1] if cores else None)
        slow_rounds = args.rounds if args.slow_rounds is None else args.slow_rounds
        return compare(lab, who, servers, args.rounds, slow_rounds)


def main(argv: list[str] | None = None) -> int:
    """Measure, print, write; 0 only when every row with a target is ok."""
    parser = argparse.ArgumentParser(description="Measures what a page costs ours and other crawlers.")
    benchmark.add_options(
        parser, "2 rounds of a small made-up site; a minute, no target but that the pages are the same"
    )
    parser.add_argument("--plot", type=benchmark.output, metavar="FILE", help="write a plot there, as SVG")
    parser.add_argument("--install", action="store_true", help="install the others below --peers, and end")
    parser.add_argument("--peers", type=Path, default=crawlers.CHECKOUT / "build/peers", metavar="DIR",
                        help="where the others are (default build/peers)")  # fmt: skip
    parser.add_argument("--rounds", type=int, help="crawls of each site by each crawler (default 3)")
    parser.add_argument("--slow-rounds", type=int, metavar="N", help="no more of Scrapy's and crawlee's")
    parser.add_argument("--sites", metavar="NAME,…", help=f"only these: {', '.join(SITES)}")
    parser.add_argument("--crawlers", metavar="NAME,…", help="only these")
    parser.add_argument("--pages", type=benchmark.count, help=f"of each of the {HOSTS} made-up hosts (default {PAGES})")
    parser.add_argument("--concurrency", type=benchmark.count, default=32, help="requests at once (default 32)")
    parser.add_argument("--add", action="append", default=[], metavar="FILE", help="also count the runs of this --json")
    args = parser.parse_args(argv)
    if args.install:
        crawlers.install(args.peers)
        return 0
    args.sites = args.sites or ("generated" if args.quick else None)
    args.rounds = args.rounds if args.rounds is not None else (2 if args.quick else 3)
    everyone = {crawler.name: crawler for crawler in crawlers.all_of(args.peers)}
    who = [everyone[name] for name in chosen(args.crawlers, list(everyone), "crawler")]
    for crawler in who:
        if crawler.missing and args.rounds:
            print(f"{crawler.name} is left out: {crawler.missing}; see --install", file=sys.stderr)
    earlier = [run for file in args.add for run in runs_in(file)]
    new = run_all(args, [crawler for crawler in who if not crawler.missing]) if args.rounds else []
    return report([*earlier, *new], args, {name: crawler.writes for name, crawler in everyone.items()})


def report(taken: Sequence[Run], args: argparse.Namespace, writes: dict[str, str]) -> int:
    """The table, the JSON and the plot; the exit code."""
    runs = Runs(taken)
    rows = rows_of(runs, () if args.quick else TARGETS)
    judged = [row for row in rows if row["target"] is not None or row["unit"] == "times"]
    print(markdown(runs, writes), file=sys.stderr)
    startup = [f"{crawler} {runs.startup_s(crawler):.2f}" for crawler in runs.crawlers(STARTUP)]
    print(f"\nStart-up, CPU-seconds of a crawl of one page: {', '.join(startup)}", file=sys.stderr)
    benchmark.print_table(judged, " ")
    if args.plot and runs.sites:
        Path(args.plot).write_text(plot(runs))
    return benchmark.finish(rows, args.json, runs=[asdict(run) for run in taken])


if __name__ == "__main__":
    sys.exit(ended.in_order(main))
