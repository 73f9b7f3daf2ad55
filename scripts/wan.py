"""A crawl by nodes in three regions, on one machine: distances, loss, slow lines between them, and what befalls them.

    python scripts/wan.py --nodes 20 --pages 20000
    python scripts/wan.py --cut 120                 the last region is cut off for so long
    python scripts/wan.py --rolling                 each node leaves and is started again, one after the other
    python scripts/wan.py --behind-nat 5            so many are behind NATs, and take part with --outbound-only
    python scripts/wan.py --family ipv6             no node has an IPv4 address; `dual`: all have both

Each node is a process in a network namespace of its own, and so is the web server; between them a process passes
packets on (`scripts/wan_lab`). Needs root, iproute2 and TUN devices; without them it says so, and ends with 0. The
last line is JSON; the exit code is 0 when the crawl is complete, every page of the web was asked for, and none too
soon. What was asked for twice, or too soon, is what the web server counts (`scale_site.py`), which knows nothing of
the crawler's clocks.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "scripts")]

import benchmark  # noqa: E402 - found on the path above
import ended  # noqa: E402
from e2e.netns import Unavailable  # noqa: E402
from wan_lab.regions import FAMILIES, Regions  # noqa: E402
from wan_lab.trial import WEB, Trial, run  # noqa: E402
from wan_lab.ways import Distance  # noqa: E402

REGIONS = ("europe", "america", "asia")
LOSS = 0.01
# One way: half of round trips of 20 to 150 ms, which is what such places are apart; the slowest line has 2 Mbit/s.
DELAYS_S = {("europe", "america"): 0.045, ("america", "asia"): 0.06, ("europe", "asia"): 0.075}
RATES_BPS = {"europe": 100e6, "america": 20e6, "asia": 2e6}
WITHIN_S = 0.01


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
    parser.add_argument("--nodes", type=benchmark.count, default=20)
    parser.add_argument("--pages", type=benchmark.count, default=2_000)
    parser.add_argument("--hosts", type=benchmark.count, default=200, help="of the web, dealt the pages in turn")
    parser.add_argument("--page-bytes", type=int, default=4_000)
    parser.add_argument("--delay", type=float, default=0.25, metavar="S", help="between two requests to a host")
    parser.add_argument("--policy", default="balanced")
    parser.add_argument("--cut", type=float, default=0.0, metavar="S", help="cut the last region off for so long")
    parser.add_argument("--rolling", action="store_true", help="restart all nodes, one after the other")
    parser.add_argument("--behind-nat", type=int, default=0, metavar="N", help="so many take no connections")
    parser.add_argument("--family", choices=sorted(FAMILIES), default="ipv4")
    parser.add_argument("--within", type=float, default=1_800.0, metavar="S", help="give up after so long")
    parser.add_argument("--seed", type=int, default=1, help="of the loss and the jitter")
    args = parser.parse_args()
    if not 0 <= args.behind_nat < args.nodes:
        parser.error("--behind-nat: at least one node has to be reached")
    places = {WEB: REGIONS[0]} | {f"node{number}": REGIONS[number % len(REGIONS)] for number in range(args.nodes)}
    trial = Trial(
        nodes=args.nodes,
        pages=args.pages,
        hosts=args.hosts,
        page_bytes=args.page_bytes,
        delay_s=args.delay,
        policy=args.policy,
        hidden=args.behind_nat,
        far=tuple(name for name, region in places.items() if region == REGIONS[-1]) if args.cut else (),
        cut_s=args.cut,
        rolling=args.rolling,
        within_s=args.within,
    )
    try:
        with Regions(places, distances(), seed=args.seed, family=args.family) as lab, _home() as home:
            done = run(lab, Path(home), trial)
    except Unavailable as error:
        print(f"wan: not measured: {error}", file=sys.stderr)
        return 0
    ways = {f"{here} to {there}": asdict(way) for (here, there), way in distances().items() if here != there}
    print(json.dumps({**asdict(done), "trial": asdict(trial), "family": args.family, "ways": ways, "ok": done.good}))
    return 0 if done.good else 1


def _home() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="dhtcrawl-wan-")


if __name__ == "__main__":
    sys.exit(ended.in_order(main))
