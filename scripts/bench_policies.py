"""Every experiment of the five papers behind the policies: our figure beside the paper's claim and our target.

    python scripts/bench_policies.py [--experiment NAME]… [--seeds N] [--jobs N] [--quick]
                                     [--latency-matrix FILE.npz] [--json FILE] [--markdown FILE] [--plots DIR]

Needs numpy and scipy. Where nothing else is
said the experiments are simulated: time is virtual, chance comes from seeds, and
what is compared is compared on the same seeds. Those with limited machines and
with long ways need root, as `scripts/chaos.py` does, cgroups and /dev/net/tun;
without they say so, and have no rows. `--quick` takes a few seconds an experiment
and judges nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
# Before numpy is there: `--jobs` says how many processors are used, and threads for small matrices only wait.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import benchmark
import ended
from policy_bench import (
    cluster,
    coordinates,
    hosts,
    mixed,
    prediction,
    real_far,
    real_uneven,
    restarts,
    shares,
    sites,
    split,
    throughput,
)
from policy_bench.report import Experiment, Options, Row, as_rows, markdown_table, text_table

EXPERIMENTS: tuple[Experiment, ...] = (
    *prediction.EXPERIMENTS,
    *split.EXPERIMENTS,
    *real_uneven.EXPERIMENTS,
    *sites.EXPERIMENTS,
    *coordinates.EXPERIMENTS,
    *throughput.EXPERIMENTS,
    *real_far.EXPERIMENTS,
    *shares.EXPERIMENTS,
    *cluster.EXPERIMENTS,
    *restarts.EXPERIMENTS,
    *hosts.EXPERIMENTS,
    *mixed.EXPERIMENTS,
)


def main(argv: list[str] | None = None) -> int:
    """Measure, print, write; 0 only when every row with a target is met."""
    names = [experiment.name for experiment in EXPERIMENTS]
    parser = argparse.ArgumentParser(description="The papers' experiments, beside their claims and our targets.")
    parser.add_argument("--experiment", action="append", choices=names, metavar="NAME", help=f"of {', '.join(names)}")
    parser.add_argument("--seeds", type=benchmark.count, metavar="N", help="instead of as many as the targets name")
    parser.add_argument(
        "--jobs", type=benchmark.count, metavar="N", default=os.cpu_count() or 1, help="processes at once"
    )
    parser.add_argument("--quick", action="store_true", help="everything small; nothing is judged")
    parser.add_argument("--latency-matrix", type=Path, metavar="FILE", help="round trips between nodes, as .npz")
    parser.add_argument(
        "--json", type=benchmark.output, metavar="FILE", help="write the rows there as they come; - for stdout"
    )
    parser.add_argument("--markdown", type=benchmark.output, metavar="FILE", help="write the tables there as they come")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="write pictures there, as SVG")
    args = parser.parse_args(argv)
    if args.plots is not None:
        try:
            args.plots.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            parser.error(f"argument --plots: {args.plots} cannot be made ({error.strerror}); name another directory")
    options = Options(args.seeds, args.quick, args.plots, args.latency_matrix, args.jobs)
    rows: list[Row] = []
    for experiment in EXPERIMENTS:
        if args.experiment is None or experiment.name in args.experiment:
            print(f"{experiment.paper} {experiment.name}: {experiment.text}", file=sys.stderr, flush=True)
            rows += experiment.run(options)
            # All of it takes more than an hour: what has been measured is there whatever comes.
            if args.json and args.json != "-":
                Path(args.json).write_text(json_text(rows), "utf-8")
            if args.markdown:
                Path(args.markdown).write_text(markdown_table(rows), "utf-8")
    print(text_table(rows), file=sys.stdout if args.json != "-" else sys.stderr)
    return benchmark.finish(as_rows(rows), args.json)


def json_text(rows: list[Row]) -> str:
    """The rows for programs."""
    return benchmark.json_text(as_rows(rows))


if __name__ == "__main__":
    sys.exit(ended.in_order(main))
