"""Real nodes, killed, paused and parted for as long as one likes, while they crawl: nothing may be lost.

    python scripts/chaos.py --nodes 20 --minutes 30 --seed 1

Each node is a process in a network namespace of its own, the web server too;
needs root, iproute2 and nftables. The last line is JSON; the exit code is 0
when nothing was lost, every page is there, and no node did what it must not.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "scripts")]

import benchmark  # noqa: E402 - found on the path above
import ended  # noqa: E402
from e2e.chaos import Plan, Report, run  # noqa: E402 - found on the path above
from e2e.chaos_judge import by_fault  # noqa: E402
from e2e.netns import Unavailable  # noqa: E402


def main() -> int:
    """The command line; its exit code."""
    parser = argparse.ArgumentParser(description="Kills, pauses and parts the nodes of a real swarm that crawls.")
    parser.add_argument("--nodes", type=benchmark.count, default=20)
    parser.add_argument("--minutes", type=float, default=3.0, help="how long there are faults")
    parser.add_argument("--seed", type=int, default=1, help="of the faults")
    parser.add_argument("--every", type=float, default=10.0, metavar="S", help="a fault about every S seconds")
    parser.add_argument("--rate", type=float, default=20.0, help="pages a second that the web server answers")
    parser.add_argument("--front", type=int, default=0, help="how far ahead the pages' links lead; 0: anywhere")
    parser.add_argument("--concurrency", type=benchmark.count, default=4, help="requests a node has in flight")
    parser.add_argument("--home", type=Path, help="keep the nodes' directories here; else they go when all was well")
    args = parser.parse_args()
    plan = Plan(
        nodes=args.nodes,
        length_s=60 * args.minutes,
        seed=args.seed,
        every_s=args.every,
        rate=args.rate,
        concurrency=args.concurrency,
        front=args.front,
    )
    if args.home is not None and args.home.exists() and any(args.home.iterdir()):
        parser.error(f"--home {args.home}: it is not empty; name another directory")
    home = args.home or Path(tempfile.mkdtemp(prefix="dhtcrawl-chaos-"))
    try:
        report = run(plan, home, lambda line: print(line, flush=True))
    except Unavailable as error:
        print(f"chaos: {error}", file=sys.stderr)
        if args.home is None:
            shutil.rmtree(home)  # nothing is in it
        return 2
    except SystemExit:  # a signal
        print(f"chaos: interrupted; what the nodes said is in {home}", file=sys.stderr)
        return 11
    except BaseException:
        print(f"chaos: it broke off; what the nodes said is in {home}", file=sys.stderr)
        raise
    show(report)
    if report.problems:
        print(f"what the nodes said is in {home}", file=sys.stderr)
    elif args.home is None:
        shutil.rmtree(home)
    print(json.dumps(report.figures()))
    return 1 if report.problems else 0


def show(report: Report) -> None:
    """A table of what was done and what came of it."""
    costs = by_fault(report.again)
    print("\nfaults, and how many pages were fetched again because of each")
    for fault in report.faults:
        print(f"  {costs[fault]:5}  {fault}")
    print()
    for name, value in report.figures().items():
        if name != "problems":
            print(f"  {name:28} {value}")
    for problem in report.problems:
        print(f"PROBLEM {problem}")


if __name__ == "__main__":
    sys.exit(ended.in_order(main))
