"""One site, two crawlers, one run: dhtcrawl beside Scrapy.

Two sites, since the ratio depends on the pages: one of pages as the web has
them (22 KB and 65 links, made up here), for which we have a target, and the
small pages of postgresql-doc-15 (14 KB), where it is installed, for which
starting up and asking weigh more. Both crawl the same files from the same server with the same concurrency, in
turns (A B A B …), each as a process of its own from start to end. Ours writes
WARC, index and page records and syncs them to disk; Scrapy writes page records
only. CPU is user and system time of the whole process, start included.

    python scripts/bench_crawl.py [--quick] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import benchmark
from web_server import serve_files

DOCS = Path("/usr/share/doc/postgresql-doc-15/html")
PEER = Path(__file__).with_name("scrapy_peer.py")
CPU_RATIO_MIN = 8.0
RUN_MAX_S = 300.0

GENERATED_PAGES = 1_000
GENERATED_LINKS = 65
GENERATED_WORDS = 2_500


@dataclass(frozen=True, slots=True)
class Sample:
    """What one crawl by one crawler took."""

    urls: frozenset[str]
    cpu_s: float
    wall_s: float
    rss_bytes_max: int
    archive_bytes: int = 0

    @property
    def cpu_per_1000(self) -> float:
        """CPU-seconds per 1,000 pages; 0 where there was no page."""
        return 1000 * self.cpu_s / len(self.urls) if self.urls else 0.0

    @property
    def pages_per_s(self) -> float:
        return len(self.urls) / self.wall_s


def run_ours(seed: str, concurrency: int, out: Path) -> Sample:
    """`dhtcrawl crawl` with its defaults, but for the delay."""
    options = ["--allow-private", "--delay", "0", "-c", str(concurrency), "--out", str(out), "--json"]
    sample = measure([sys.executable, "-m", "dhtcrawl", "crawl", seed, *options], out.with_suffix(".log"))
    summary = json.loads((out / "summary.json").read_text())
    if summary["storage_sync"] in (False, "off"):
        raise SystemExit("bench: storage.sync is off; unset it, we measure with fsync on")
    rows = (json.loads(line) for file in out.glob("pages/*.jsonl") for line in file.read_text().splitlines())
    urls = frozenset(row["url"] for row in rows if row["status"] == 200)
    archive_bytes = sum(file.stat().st_size for file in out.glob("archive/*.warc.gz"))
    return Sample(urls, *sample, archive_bytes)


def run_scrapy(seed: str, concurrency: int, out: Path) -> Sample:
    """The spider of `scrapy_peer.py`."""
    feed = out.with_suffix(".jsonl")
    argv = [sys.executable, str(PEER), seed, "--out", str(feed), "--concurrency", str(concurrency)]
    sample = measure(argv, out.with_suffix(".log"))
    rows = map(json.loads, feed.read_text().splitlines())
    # Scrapy asks for a start page again when a page links to it.
    return Sample(frozenset(row["url"] for row in rows if row["status"] == 200), *sample)


def measure(argv: list[str], log: Path) -> tuple[float, float, int]:
    """CPU-seconds, seconds and peak bytes of a process and those it waited for.

    Raises:
        SystemExit: it failed, or took longer than `RUN_MAX_S`.
    """
    with log.open("wb") as output:
        began = time.perf_counter()
        # The checkout this script belongs to, installed or not.
        env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=env)
        alarm = threading.Timer(RUN_MAX_S, process.kill)
        alarm.start()
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - began
        alarm.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"bench: {' '.join(argv)} ended with {process.returncode}:\n{log.read_text()[-2000:]}")
    return usage.ru_utime + usage.ru_stime, wall_s, usage.ru_maxrss * 1024


def rows_of(site: str, ours: list[Sample], scrapy: list[Sample], target: float | None) -> list[benchmark.Row]:
    """The rows of one site's report; without a target its ratio is information."""
    same_pages = len({sample.urls for sample in ours + scrapy}) == 1 and bool(ours[0].urls)
    ratio = median(s.cpu_per_1000 for s in scrapy) / (median(s.cpu_per_1000 for s in ours) or float("inf"))
    ratios = [their.cpu_per_1000 / own.cpu_per_1000 for own, their in zip(ours, scrapy, strict=True) if own.urls]
    claim = "times fewer CPU-seconds a page than Scrapy; ours with WARC, robots and fsync"
    rows = [
        row(f"{site}_cpu_ratio", claim, ratio, "times", ratios, target=target,
            ok=same_pages and (target is None or ratio >= target)),
        row(f"{site}_pages", "both fetched the same pages", len(ours[0].urls), "pages", [len(s.urls) for s in ours],
            target=len(scrapy[0].urls), ok=same_pages),
    ]  # fmt: skip
    measures: list[tuple[str, str, Callable[[Sample], float]]] = [
        ("cpu_per_1000_pages", "CPU-seconds", lambda sample: sample.cpu_per_1000),
        ("pages_per_second", "pages/s", lambda sample: sample.pages_per_s),
        ("peak_memory", "MiB", lambda sample: sample.rss_bytes_max / 2**20),
        ("archive", "MiB", lambda sample: sample.archive_bytes / 2**20),
    ]
    crawlers = [
        ("ours", "dhtcrawl: WARC, CDXJ, robots.txt, fsync on", ours),
        ("scrapy", "Scrapy: robots.txt, no WARC, no fsync", scrapy),
    ]
    for name, unit, value in measures:
        for crawler, what, samples in crawlers:
            values = [value(sample) for sample in samples]
            by = benchmark.OURS if crawler == "ours" else "Scrapy"
            rows.append(row(f"{site}_{name}_{crawler}", what, median(values), unit, values, by=by))
    return rows


def row(
    name: str,
    claim: str,
    measured: float,
    unit: str,
    samples: list[float] | list[int],
    *,
    target: float | None = None,
    ok: bool = True,
    by: str = f"{benchmark.OURS}; Scrapy",
) -> benchmark.Row:
    """One row of the report; without a target it is information."""
    return benchmark.row(name, measured, unit, samples, by=by, claim=claim, target=target, ok=ok)


def generate(root: Path) -> None:
    """A site of static pages, the same each time: a ring with chords."""
    chance = random.Random(1)
    words = ["".join(chance.choices("abcdefghijklmnoprstuvw", k=chance.randint(2, 11))) for _ in range(4_000)]
    root.mkdir(parents=True)
    for number in range(GENERATED_PAGES):
        targets = [(number + 1) % GENERATED_PAGES, *chance.sample(range(GENERATED_PAGES), GENERATED_LINKS - 1)]
        text = [f'<a href="{_name(target)}#{chance.choice(words)}">{chance.choice(words)}</a>' for target in targets]
        text += chance.choices(words, k=GENERATED_WORDS)
        chance.shuffle(text)
        paragraphs = "".join(f"<p>{' '.join(text[at : at + 80])}</p>\n" for at in range(0, len(text), 80))
        html = f"<!doctype html><html><head><meta charset=utf-8><title>{number}</title></head><body>{paragraphs}</body>"
        (root / _name(number)).write_text(html)


def _name(number: int) -> str:
    return f"page{number}.html" if number else "index.html"


def compare(
    site: str, root: Path, home: Path, count: int, concurrency: int, target: float | None
) -> list[benchmark.Row]:
    """Crawl the files below `root` `count` times with each crawler, in turns, and report."""
    ours: list[Sample] = []
    scrapy: list[Sample] = []
    home.mkdir()
    with serve_files(root, home / "server") as server:
        seed = f"{server.url}/index.html"
        for number in range(count):
            for samples, run in ((ours, partial(run_ours, seed)), (scrapy, partial(run_scrapy, seed))):
                samples.append(run(concurrency, home / f"{len(samples)}-{run.func.__name__}"))
            print(f"{site}: {number + 1} of {count} rounds", end="\r", file=sys.stderr)
        heading = f"{site} by {server.name}, {count} crawls each in turns, {concurrency} requests at once"
    rows = rows_of(site, ours, scrapy, target)
    benchmark.print_table(rows, heading)
    return rows


def main() -> int:
    """Measure, print, write; 0 only when every row with a target is ok."""
    parser = argparse.ArgumentParser(description="Crawls one site with dhtcrawl and with Scrapy, in turns.")
    benchmark.add_options(parser, "3 samples instead of 7; under a minute")
    parser.add_argument("--samples", type=int, help="crawls by each crawler")
    parser.add_argument("--concurrency", type=int, default=32, help="requests at once, for both (default 32)")
    args = parser.parse_args()
    count = args.samples or (3 if args.quick else 7)
    rows: list[benchmark.Row] = []
    with tempfile.TemporaryDirectory(prefix="bench-crawl-") as temporary:
        home = Path(temporary)
        generate(home / "web")
        sites: list[tuple[str, Path, float | None]] = [("web", home / "web", CPU_RATIO_MIN)]
        if (DOCS / "index.html").is_file() and not args.quick:
            sites.append(("docs", DOCS, None))
        for site, root, target in sites:
            rows += compare(site, root, home / f"{site}-runs", count, args.concurrency, target)
    return benchmark.finish(rows, args.json)


if __name__ == "__main__":
    sys.exit(main())
