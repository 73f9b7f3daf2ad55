"""What `make crawl` does without a URL: serve the demo site, crawl it, say where the outputs are.

The server lives in this process, so it ends whatever happens. The crawl runs
as `dhtcrawl crawl` in a process of its own; its exit code becomes ours.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from demo_site import build, serve

from dhtcrawl.errors import Exit

OUT = Path("crawl-demo")
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> int:
    """Run the demo; the crawl's exit code."""
    parser = argparse.ArgumentParser(description="Crawls the bundled demo site.")
    parser.add_argument("--nodes", default="3", help="node processes (default 3)")
    parser.add_argument("--out", type=Path, default=OUT, help=f"where the outputs go (default ./{OUT})")
    args = parser.parse_args()

    command = Path(sys.executable).with_name("dhtcrawl")
    if not command.exists():
        print(f"demo: {command} is missing; run: make setup", file=sys.stderr)
        return 1
    if args.out == OUT:
        # Each run serves on another port, so an earlier demo cannot be resumed.
        for place in (OUT, OUT.with_name(f"{OUT}.node")):
            shutil.rmtree(place, ignore_errors=True)
    with serve(build()) as server:
        print(f"Crawling the demo site at {server.url}", flush=True)
        arguments = [server.url, "--allow-private", "--delay", "0", "--out", str(args.out), "--nodes", args.nodes]
        code = _run([str(command), "crawl", *arguments])
    if code != Exit.USAGE and args.out.is_dir():
        print(f"The outputs are in {args.out}/: archive, indexes, pages, reports and summary.json")
    return code


def _run(command: list[str]) -> int:
    """The command's exit code; signals that reach us reach it once.

    In a process group of its own: a terminal sends Ctrl-C to the whole
    foreground group, and a second signal would mean "force".
    """
    child: subprocess.Popen[bytes] | None = None
    early: list[int] = []

    def forward(number: int, _frame: object) -> None:
        if child is None:
            early.append(number)
        else:
            child.send_signal(number)

    for number in FORWARDED:
        signal.signal(number, forward)
    child = subprocess.Popen(command, process_group=0)
    for missed in early:
        child.send_signal(missed)
    code = child.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
