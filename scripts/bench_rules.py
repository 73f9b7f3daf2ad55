"""What records by rules cost: crawls of two sites by one node with and without rules of five fields, in turns.

Each crawl is a process of its own on one core, nginx on another, what it writes on tmpfs and deleted after it, no
delay. A page's price is the CPU of the whole crawl over its pages; what is shown is how much more it is with rules,
start-up and importing what reads rules counted in. Three of the fields are lists. 0.4 ms is wanted.

Milliseconds are of a machine. Where wget is installed it crawls each site beside each pair, so that the price can also
be said in pages of wget, which does not depend on the machine as much: where 0.4 ms was set, wget -r took 0.335 ms a
page of cppreference (decision 0107).

    cppreference     cppreference-doc-en-html: 38 KB and 1,800 tags a page
    postgresql       postgresql-doc-15: small pages

    python scripts/bench_rules.py [--quick] [--rounds N] [--site NAME] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import benchmark
import ended
from bench_peers import REAL, TMPFS
from peer_bench import crawlers, measure, sites
from peer_bench.sites import SiteServer
from web_server import need_nginx

ROUNDS = 5
WANTED_MS = 0.4
# What wget takes a page where `WANTED_MS` was set; no figure of it is known for the other site.
WGET_MS = {"cppreference": 0.335}
CONCURRENCY = 8
RULES = {
    "cppreference": (
        ("title", "h1#firstHeading", ""),
        ("headings", "h3 > span.mw-headline", "list = true"),
        ("code", "div.t-example pre", "list = true"),
        ("heads", "table.t-dcl-begin > tbody > tr.t-dsc-header", ""),
        ("links", "table.t-dsc-begin a", 'take = "@href"\ntype = "url"\nlist = true'),
    ),
    "postgresql": (
        ("title", "h2.title", ""),
        ("headings", "h3.title", "list = true"),
        ("code", "pre", "list = true"),
        ("next", 'a[accesskey="n"]', 'take = "@href"\ntype = "url"'),
        ("links", "p a", 'take = "@href"\ntype = "url"\nlist = true'),
    ),
}


@dataclass(frozen=True, slots=True)
class Pair:
    """One crawl without rules and one with them, of the same pages."""

    site: str
    pages: int
    plain_ms: float  # CPU a page
    ruled_ms: float
    records: int
    values: int  # of all records
    wget_ms: float | None = None  # the same pages by wget -r, without WARC; None where it is not installed

    @property
    def more_ms(self) -> float:
        """What a page costs more with rules."""
        return self.ruled_ms - self.plain_ms


def rules_of(site: str) -> str:
    """The file of rules for a site: a record of five fields on each page."""
    fields = [
        f"[[rules.fields]]\nname = \"{name}\"\nselector = '{selector}'\n{more}" for name, selector, more in RULES[site]
    ]
    return "\n".join(['[[rules]]\nname = "page"\nsite = "127.0.0.1"', *fields])


def crawl(server: SiteServer, home: Path, core: int | None, rules: str | None) -> tuple[float, int, int, int]:
    """CPU-seconds, pages, records and values of one crawl in a directory of its own, which is gone afterwards.

    Raises:
        CommandFailed: the crawl did.
    """
    home = home / "crawl"
    home.mkdir()
    server.answers()
    try:
        task = crawlers.Task(server.seeds, home / "out", CONCURRENCY)
        argv = crawlers.ours(1).command(task)
        if rules is not None:
            (home / "rules.toml").write_text(rules)
            argv += ["--rules", str(home / "rules.toml")]
        spent = measure.run(argv, cwd=home, env=crawlers.environment(home), core=core)
        records = values = 0
        for file in task.out.glob("records/*.jsonl"):
            with file.open() as lines:
                for line in lines:
                    records += 1
                    values += _values(json.loads(line))
        return spent.cpu_s, len(server.answers().pages), records, values
    finally:
        shutil.rmtree(home)


def wget_ms(server: SiteServer, home: Path, core: int | None, pages: int) -> float:
    """CPU a page in ms of wget -r over the same site.

    Raises:
        CommandFailed: it failed.
        SystemExit: it took less than nine tenths of our pages.
    """
    home = home / "wget"
    home.mkdir()
    server.answers()
    try:
        task = crawlers.Task(server.seeds, home / "out", CONCURRENCY)
        peer = crawlers.wget("wget", "files")
        spent = measure.run(peer.command(task), cwd=home, env=crawlers.environment(home), core=core, codes=peer.codes)
        found = len(server.answers().pages)
        if found < pages * 0.9:
            raise SystemExit(f"bench: wget took {found} pages of {pages}")
        return spent.cpu_s / found * 1000
    finally:
        shutil.rmtree(home)


def _values(row: dict[str, object]) -> int:
    own = {name for fields in RULES.values() for name, _, _ in fields}
    return sum(
        len(value) if isinstance(value, list) else value is not None for name, value in row.items() if name in own
    )


def pair_of(server: SiteServer, home: Path, core: int | None, number: int) -> Pair:
    """Both crawls, the other one first each time, and wget's after them."""
    name = server.site.name
    found = {ruled: crawl(server, home, core, rules_of(name) if ruled else None) for ruled in _turns(number)}
    (plain_s, plain_pages, _, _), (ruled_s, pages, records, values) = found[False], found[True]
    if plain_pages != pages:
        raise SystemExit(f"bench: {plain_pages} pages without rules, {pages} with them")
    wget = wget_ms(server, home, core, pages) if shutil.which("wget") else None
    return Pair(name, pages, plain_s / pages * 1000, ruled_s / pages * 1000, records, values, wget)


def _turns(number: int) -> tuple[bool, bool]:
    return (False, True) if number % 2 == 0 else (True, False)


def rows_of(name: str, pairs: Sequence[Pair]) -> list[benchmark.Row]:
    """Rows of the report on a site."""
    more, last = [pair.more_ms for pair in pairs], pairs[-1]
    ok = median(more) <= WANTED_MS
    row = benchmark.row
    plain, ruled = ([pair.plain_ms for pair in pairs], [pair.ruled_ms for pair in pairs])
    rows = [
        row(f"{name}: pages", last.pages, "pages", len(pairs), digits=0),
        row(f"{name}: values a page", last.values / last.pages, "values", len(pairs), digits=1),
        row(f"{name}: without rules", median(plain), "ms/page", plain),
        row(f"{name}: with rules", median(ruled), "ms/page", ruled),
        row(f"{name}: more", median(more), "ms/page", more, target=WANTED_MS, ok=ok),
    ]
    wget = [pair.wget_ms for pair in pairs if pair.wget_ms is not None]
    if len(wget) == len(pairs):
        ratios = [price / page for price, page in zip(more, wget, strict=True)]
        target = round(WANTED_MS / WGET_MS[name], 2) if name in WGET_MS else None
        ok = target is None or median(ratios) <= target
        rows += [
            row(f"{name}: wget -r", median(wget), "ms/page", wget, by="wget"),
            row(f"{name}: more, over wget -r", median(ratios), "ratio", ratios, target=target, ok=ok),
        ]
    return rows


def main() -> int:
    """Measure, print, write; 0 only when all targets are met."""
    parser = argparse.ArgumentParser(description="CPU a page of a crawl with rules beside one without.")
    parser.add_argument(
        "--rounds", type=benchmark.count, metavar="N", help=f"pairs of crawls of each site, {ROUNDS} by default"
    )
    parser.add_argument("--site", choices=sorted(RULES), action="append", help="this one only")
    benchmark.add_options(parser, "one pair of the smaller site")
    args = parser.parse_args()
    need_nginx()
    wanted = args.site or (["postgresql"] if args.quick else RULES)
    names = [name for name in wanted if REAL[name].root.is_dir()]
    if not names:
        raise SystemExit("bench: install the Debian packages cppreference-doc-en-html and postgresql-doc-15")
    cores = measure.two_cores()
    pairs: dict[str, list[Pair]] = {name: [] for name in names}
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=TMPFS if TMPFS.is_dir() else None)))
        if cores is not None:
            os.sched_setaffinity(0, {cores[0]})
        servers = [stack.enter_context(sites.serve(REAL[name], home / name)) for name in names]
        for number in range(args.rounds or (1 if args.quick else ROUNDS)):
            for server in servers:
                pair = pair_of(server, home, None if cores is None else cores[1], number)
                pairs[server.site.name].append(pair)
                print(f"{number + 1} {pair.site}: {pair.more_ms:.2f} ms a page more", file=sys.stderr)
    rows = [row for name in names for row in rows_of(name, pairs[name])]
    benchmark.print_table(rows)
    return benchmark.finish(rows, args.json)


if __name__ == "__main__":
    sys.exit(ended.in_order(main))
