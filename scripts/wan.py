"""A crawl by nodes in three regions, on one machine: distances, loss, slow lines between them, and a region cut off.

    python scripts/wan.py --nodes 20 --pages 20000 --cut 120

Each node is a process in a network namespace of its own, and so is the web server; between them a process passes
packets on (`scripts/wan_lab`). Needs root, iproute2 and TUN devices; without them it says so, and ends with 0. The
last line is JSON; the exit code is 0 when the crawl is complete, and the nodes have every page once.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "scripts")]

from e2e.netns import Unavailable  # noqa: E402 - found on the path above
from policy_bench.lab import WEB, crawl, site  # noqa: E402
from wan_lab.regions import Regions  # noqa: E402
from wan_lab.ways import Distance  # noqa: E402

REGIONS = ("europe", "america", "asia")
LOSS = 0.01
# One way: half of round trips of 20 to 150 ms, which is what such places are apart; the slowest line has 2 Mbit/s.
DELAYS_S = {("europe", "america"): 0.045, ("america", "asia"): 0.06, ("europe", "asia"): 0.075}
RATES_BPS = {"europe": 100e6, "america": 20e6, "asia": 2e6}
WITHIN_S = 0.01
PAGE_BYTES = 4_000
CUT_AFTER_S = 20.0


def distances() -> dict[tuple[str, str], Distance]:
    """What lies between the regions and within each, both ways; a way has the rate of the region that it leads to."""
    found = {}
    for here in REGIONS:
        for there in REGIONS:
            delay_s = DELAYS_S.get((here, there)) or DELAYS_S.get((there, here)) or WITHIN_S
            found[here, there] = Distance(delay_s, delay_s / 10, LOSS if here != there else 0.0, RATES_BPS[there])
    return found


def main() -> int:
    """The command line; its exit code."""
    parser = argparse.ArgumentParser(description="A crawl by nodes in three regions, on one machine.")
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--pages", type=int, default=2_000)
    parser.add_argument("--policy", default="xor")
    parser.add_argument("--cut", type=float, default=0.0, metavar="S", help="cut the last region off for so long")
    parser.add_argument("--seed", type=int, default=1, help="of the loss and the jitter")
    args = parser.parse_args()
    places = {WEB: REGIONS[0]} | {f"node{number}": REGIONS[number % len(REGIONS)] for number in range(args.nodes)}
    try:
        with Regions(places, distances(), seed=args.seed) as lab, tempfile.TemporaryDirectory() as home:
            return _measure(lab, Path(home), args)
    except Unavailable as error:
        print(f"wan: not measured: {error}", file=sys.stderr)
        return 0


def _measure(lab: Regions, home: Path, args: argparse.Namespace) -> int:
    far = lab.of(REGIONS[-1])
    near = [name for name in lab.names if name not in far]

    def cut() -> None:
        print(f"wan: {REGIONS[-1]} is cut off for {args.cut:g} s", flush=True)
        lab.cut(far, near)
        lab.cut(near, far)

    def heal() -> None:
        lab.heal()
        print("wan: the network is whole", flush=True)

    timers = [threading.Timer(CUT_AFTER_S, cut), threading.Timer(CUT_AFTER_S + args.cut, heal)] if args.cut else []
    with site(lab, home / "site", args.pages, PAGE_BYTES) as web:
        for timer in timers:
            timer.start()
        try:
            done = crawl(lab, home / "swarm", [web.url], args.policy)
        finally:
            for timer in timers:
                timer.cancel()
        asked = web.totals()
    ended, brought = done.summary["ended"], sum(done.pages)
    good = ended == "complete" and brought == args.pages
    ways = {f"{here} to {there}": asdict(way) for (here, there), way in distances().items() if here != there}
    said = {"seconds": round(done.seconds, 1), "ended": ended, "pages": brought, "by_node": done.pages}
    # By the web server's own log: what was asked for twice counts there, whoever has it.
    said |= {"asked": asked.pages, "asked_again": asked.again}
    print(json.dumps({**said, "nodes": args.nodes, "ways": ways, "ok": good}))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
