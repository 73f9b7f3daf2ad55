"""What a page costs one node, in CPU and memory, as the number of known URLs grows to a million or more.

For each size a store is made that has so many URLs of one site in its queue. Then
the crawl goes on for some thousand pages of 25 KB and 65 links (`growth_site.py`):
most links lead to the pages that all pages link, 19 to any of the known URLs, 1 to
a new one. Measured are

    cpu       of the whole node, a page, between two counts of pages, once it is warm
    peak      the most memory that the node had, as Linux counts it (VmHWM)
    private   of that, without what is mapped from files: LevelDB maps its tables,
              and the system takes such memory back when it wants it
    end       the CPU from the last page to the end, for each known URL: the
              outputs are made from the whole store

The sizes are not alike in one more way: with few URLs known, the node has nearly all links
in memory as acknowledged once it is warm; with many, 19 of a page are looked up.

    python scripts/bench_growth.py [--quick] [--known 10000,100000,1000000] [--json FILE] [--plot FILE.svg]
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

import benchmark
import ended
from growth_site import COUNT_BYTES, path_of
from loopback import free_port
from web_server import WebServer

from dhtcrawl.errors import Exit
from dhtcrawl.storage.store import catalog, keys, tasks
from dhtcrawl.storage.store.engine import LevelEngine
from dhtcrawl.storage.store.records import Task
from dhtcrawl.storage.store.txn import Txn

KNOWN = (10_000, 100_000, 1_000_000)  # more by --known: to fill a store of 10 million takes minutes
QUICK_KNOWN = (2_000, 20_000)
WARM_PAGES, PAGES = 1_000, 4_000
QUICK_WARM_PAGES, QUICK_PAGES = 100, 400
CPU_RATIO_MAX = 1.3
MEMORY_RATIO_MAX = 1.2  # from a million on
MEMORY_FROM = 1_000_000
AT_ONCE = 5_000
ORDERS_FROM = 1 << 40  # the orders of a node that was started once
TICK_S = 0.02
RUN_MAX_S = 1_800.0
_HERTZ = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Sample:
    """What one run took."""

    cpu_ms: float  # a page
    peak_mib: float
    private_mib: float
    end_us: float  # a known URL


def fill(data_dir: Path, site: str, known: int) -> None:
    """Queue `known` URLs of the site in the store of the only crawl in `data_dir`, as records and not as links."""
    engine = LevelEngine(data_dir / "store")
    try:
        store = Txn(engine, {})
        (record,) = catalog.crawls(store)
        # The links of the first page.
        there = {key for key, _ in store.rows(keys.TASK, record.crawl_id)}
        for first in range(0, known, AT_ONCE):
            rows: dict[bytes, bytes | None] = {}
            for number in range(first, min(first + AT_ONCE, known)):
                url = site + path_of(number)
                key = record.spec.key_of(url)
                if key not in there:
                    task = Task(url, 1, ORDERS_FROM + number, site + "/")
                    rows[keys.TASK + record.crawl_id + key] = task.pack()
                    rows[tasks.queue_key(record.crawl_id, key, task)] = b""
            engine.write(rows, sync=False)
    finally:
        engine.close()


def crawl(site: str, out: Path, pages: int) -> subprocess.Popen[bytes]:
    """Begin, or go on, until there are so many pages."""
    argv = [sys.executable, "-m", "dhtcrawl", "crawl", f"{site}/", "--out", str(out), "--allow-private"]
    argv += ["--delay", "0", "--max-pages", str(pages), "--quiet"]
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    return subprocess.Popen(argv, stdout=subprocess.DEVNULL, env=env)


def cpu_s(pid: int) -> float:
    """User and system time so far (proc(5), fields 14 and 15)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _HERTZ


def memory_mib(pid: int) -> tuple[float, float]:
    """The peak of resident memory, and what of it is private now."""
    rows = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(rows["VmHWM"].split()[0]) / 1024, int(rows["RssAnon"].split()[0]) / 1024


def measure(home: Path, known: int, warm: int, pages: int) -> Sample:
    """One run, with a store of its own."""
    home.mkdir()
    port, count_file = free_port(), home / "count"
    argv = [sys.executable, str(Path(__file__).with_name("growth_site.py")), str(port), str(known), str(count_file)]
    with WebServer("growth_site", argv, port, home / "errors.log") as server:
        out = home / "out"
        if crawl(server.url, out, 1).wait() not in (Exit.COMPLETE, Exit.PAGE_LIMIT):
            raise SystemExit("bench: the first page failed")
        fill(home / "out.node", server.url, known)
        before = int.from_bytes(count_file.read_bytes(), "big")
        process = crawl(server.url, out, before + pages)
        marks: list[tuple[int, float]] = []
        private = peak = 0.0
        until = time.monotonic() + RUN_MAX_S
        last_s = 0.0
        while process.poll() is None and time.monotonic() < until:
            asked = int.from_bytes(count_file.read_bytes()[:COUNT_BYTES], "big") - before
            try:
                last_s = cpu_s(process.pid)
                now_peak, now_private = memory_mib(process.pid)
            except (OSError, KeyError):
                break  # it has just ended
            peak, private = max(peak, now_peak), max(private, now_private)
            if warm <= asked and (len(marks) < 2 or asked < pages):
                marks[1:] = [(asked, last_s)]
            time.sleep(TICK_S)
        _, _, usage = os.wait4(process.pid, 0) if process.returncode is None else (0, 0, None)
        ended_s = usage.ru_utime + usage.ru_stime if usage is not None else last_s
        (first, first_s), (last, then_s) = marks
        print(f"{known:,} known: {first} to {last} pages, peak {peak:.0f} MiB", file=sys.stderr)
        return Sample(
            1000 * (then_s - first_s) / (last - first), peak, private, 1e6 * max(0.0, ended_s - then_s) / known
        )


def rows_of(samples: dict[int, list[Sample]]) -> list[benchmark.Row]:
    """A row for each measure and size; the ratios that are to be flat last."""
    measures = (
        ("cpu", "ms/page", "CPU of the node a page"),
        ("peak", "MiB", "the most memory, mapped files included"),
        ("private", "MiB", "the most private memory"),
        ("end", "us", "CPU at the end of the run for each known URL"),
    )
    fields = {"cpu": "cpu_ms", "peak": "peak_mib", "private": "private_mib", "end": "end_us"}
    medians: dict[str, dict[int, float]] = {name: {} for name in fields}
    rows = []
    for name, unit, claim in measures:
        for known, some in samples.items():
            values = [getattr(sample, fields[name]) for sample in some]
            medians[name][known] = median(values)
            rows.append(benchmark.row(f"{name}_{known}", median(values), unit, values, claim=claim))
    for name, least, target in (("cpu", 0, CPU_RATIO_MAX), ("peak", MEMORY_FROM, MEMORY_RATIO_MAX),
                                ("private", MEMORY_FROM, MEMORY_RATIO_MAX)):  # fmt: skip
        sizes = [known for known in samples if known >= least]
        if len(sizes) > 1:
            ratio = medians[name][max(sizes)] / medians[name][min(sizes)]
            claim = f"{max(sizes):,} known over {min(sizes):,}"
            rows.append(
                benchmark.row(f"{name}_ratio", ratio, "times", 1, claim=claim, target=target, ok=ratio <= target)
            )
    return rows


def plot(rows: Sequence[benchmark.Row], sizes: Sequence[int]) -> str:
    """CPU and memory over the number of known URLs, each as a multiple of what it is with the fewest, as SVG."""
    width, height, left, bottom = 480, 300, 50, 40
    by_name: dict[str, float] = {row["name"]: row["measured"] for row in rows}
    lines = {"cpu": "CPU a page", "peak": "peak memory", "private": "private memory"}
    most = math.ceil(max(by_name[f"{name}_{n}"] / by_name[f"{name}_{sizes[0]}"] for name in lines for n in sizes))

    def x(known: int) -> float:
        return left + (width - left - 40) * math.log(known / min(sizes)) / (math.log(max(sizes) / min(sizes)) or 1.0)

    def y(times: float) -> float:
        return (height - bottom) * (1 - times / most) + 10

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">']
    parts.append(f'<rect width="{width}" height="{height}" fill="white"/>')
    parts += [f'<text x="{x(n):.1f}" y="{height - 12}" font-size="11" text-anchor="middle">{n:,}</text>' for n in sizes]
    parts.append(f'<text x="{width - 5}" y="{height - 1}" font-size="11" text-anchor="end">known URLs</text>')
    for times in range(most + 1):
        parts.append(f'<path d="M{left} {y(times):.1f}H{width - 20}" stroke="#ccc"/>')
        parts.append(f'<text x="{left - 8}" y="{y(times) + 4:.1f}" font-size="11" text-anchor="end">×{times}</text>')
    for number, (name, colour) in enumerate(zip(lines, ("#0b6", "#06b", "#b60"), strict=True)):
        points = [(x(n), y(by_name[f"{name}_{n}"] / by_name[f"{name}_{sizes[0]}"])) for n in sizes]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(
            f'<text x="{left + 10}" y="{26 + 16 * number}" font-size="12" fill="{colour}">{lines[name]}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def main(argv: list[str] | None = None) -> int:
    """Measure, print, write; 0 only when every row with a target is ok."""
    parser = argparse.ArgumentParser(description="Measures what a page costs as the number of known URLs grows.")
    benchmark.add_options(parser, "few URLs and pages; under a minute, says nothing about the targets")
    parser.add_argument("--known", type=benchmark.counts, help="numbers of known URLs, such as 10000,1000000")
    parser.add_argument("--pages", type=benchmark.count, help=f"of each run (default {PAGES})")
    parser.add_argument("--rounds", type=benchmark.count, default=1, help="runs of each size, in turns (default 1)")
    parser.add_argument("--plot", type=benchmark.output, metavar="FILE", help="write a plot there, as SVG")
    args = parser.parse_args(argv)
    sizes = args.known or list(QUICK_KNOWN if args.quick else KNOWN)
    warm = QUICK_WARM_PAGES if args.quick else WARM_PAGES
    pages = args.pages or (QUICK_PAGES if args.quick else PAGES)
    samples: dict[int, list[Sample]] = {known: [] for known in sizes}
    for number in range(args.rounds):
        for known in sizes:
            with tempfile.TemporaryDirectory(prefix="bench-growth-") as home:
                samples[known].append(measure(Path(home) / str(number), known, min(warm, pages // 2), pages))
    rows = rows_of(samples)
    benchmark.print_table(rows, f"medians of {args.rounds}; {pages} pages a run")
    if args.plot:
        Path(args.plot).write_text(plot(rows, sizes))
    return benchmark.finish(rows, args.json)


if __name__ == "__main__":
    sys.exit(ended.in_order(main))
