"""The crawlers that are compared: how each is started, with which settings and why, and how it is installed.

All obey robots.txt, make as many requests at once as ours where they can say so, wait between none, keep no cookies,
cache nothing between runs, log nothing, and follow `<a>`, `<area>` and frames only, as ours does. What each keeps
differs, and is said: `writes`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

HERE = Path(__file__).parent
CHECKOUT = HERE.parents[1]

PIP_PEERS = {
    # uvloop: Scrapy's page about asyncio offers it, and it is the faster loop.
    "scrapy": ("scrapy==2.19.0", "uvloop==0.23.0"),
    # parsel: the fastest of the parsers that crawlee's guide to HTTP crawlers names.
    "crawlee": ("crawlee[parsel]==1.11.0",),
}
# The two have to be of one version, and later ones of the first lack the second.
NPM_PEER = ("@spider-rs/spider-rs@0.0.157", "@spider-rs/spider-rs-linux-x64-gnu@0.0.157")


@dataclass(frozen=True, slots=True)
class Task:
    """What a crawler is to do; `out` is a directory that does not exist, and may be written to."""

    seeds: tuple[str, ...]
    out: Path
    concurrency: int

    @property
    def hosts(self) -> tuple[str, ...]:
        """Those of the seeds, without ports."""
        return tuple(urlsplit(seed).hostname or "" for seed in self.seeds)


@dataclass(frozen=True, slots=True)
class Crawler:
    """One way to crawl."""

    name: str
    writes: str
    command: Callable[[Task], list[str]]
    missing: str = ""  # what is, where something is
    slow: bool = False  # so much that fewer rounds must do
    codes: frozenset[int] = frozenset({0})


def all_of(peers: Path) -> list[Crawler]:
    """Every crawler, installed or not; `peers` is where `install` has put some."""
    return [
        ours(1),
        ours(3, "balanced"),
        ours(5, "balanced"),
        ours(5, "xor"),
        wget("wget", "files"),
        # The options of "WARC" in wget's manual; gzip and digests are its defaults, as they are ours.
        wget("wget-warc", "files, WARC and CDX", "--warc-file=crawl", "--warc-cdx", "--warc-tempdir=."),
        wget2(),
        spider(peers / "spider"),
        python_peer(peers / "scrapy", "scrapy", "a JSON line a page"),
        python_peer(peers / "crawlee", "crawlee", "a JSON row a page"),
    ]


def ours(nodes: int, policy: str = "") -> Crawler:
    """`dhtcrawl crawl` as it is, but for the delay: WARC, indexes and page records, synced to the disk."""
    name = f"dhtcrawl-{nodes}-{policy}" if policy else "dhtcrawl"

    def command(task: Task) -> list[str]:
        argv = [sys.executable, "-m", "dhtcrawl", "crawl", *task.seeds, "--out", str(task.out), "--json", "-q"]
        argv += ["--allow-private", "--delay", "0", "--concurrency", str(task.concurrency)]
        return argv + (["--nodes", str(nodes), "--policy", policy] if policy else [])

    return Crawler(name, "WARC, CDXJ, page records, synced", command)


def wget(name: str, writes: str, *options: str) -> Crawler:
    """GNU Wget. It makes one request at a time, whatever is asked for, and knows which attributes of a tag are links.

    -q: no log (with a WARC it is also left out there). HSTS and cookies are files and look-ups that nothing here needs.
    """
    tags = "a,area,base,frame,iframe,meta"

    def command(task: Task) -> list[str]:
        argv = ["wget", "-r", "-l", "inf", "-q", "--no-hsts", "--no-cookies", f"--follow-tags={tags}"]
        argv += ["--span-hosts", f"--domains={','.join(task.hosts)}", "-P", str(task.out), *options]
        return [*argv, *task.seeds]

    # 8: a server answered with an error to something, such as 404 for robots.txt.
    return Crawler(name, writes, command, _without("wget"), codes=frozenset({0, 8}))


def wget2() -> Crawler:
    """GNU Wget2: a thread for each request at once. Progress bars and the log are off, and so is HSTS's file.

    A tag without an attribute would have it follow every attribute of that tag. It crawls the hosts that it is given
    pages of; told to span hosts, it would look up the names of all others.
    """
    tags = "a/href,area/href,base/href,frame/src,iframe/src"

    def command(task: Task) -> list[str]:
        argv = ["wget2", "-r", "-l", "inf", "-q", "--no-hsts", "--no-cookies", f"--follow-tags={tags}"]
        argv += ["--progress=none", f"--max-threads={task.concurrency}", "-P", str(task.out)]
        return [*argv, *task.seeds]

    return Crawler("wget2", "files", command, _without("wget2"), codes=frozenset({0, 8}))


def spider(home: Path) -> Crawler:
    """spider, written in Rust, by its package for Node; `spider_peer.mjs` has its settings."""
    missing = _without("node") or ("" if (home / "node_modules").is_dir() else "spider is not installed")

    def command(task: Task) -> list[str]:
        return ["node", str(home / "spider_peer.mjs"), str(task.out), *task.seeds]

    return Crawler("spider", "a list of URLs", command, missing)


def python_peer(home: Path, name: str, writes: str) -> Crawler:
    """One with an environment of its own; `scrapy_peer.py` and `crawlee_peer.py` have the settings."""
    python = home / "bin/python"

    def command(task: Task) -> list[str]:
        argv = [str(python), str(HERE / f"{name}_peer.py"), "--out", str(task.out)]
        return [*argv, "--concurrency", str(task.concurrency), *task.seeds]

    missing = "" if python.exists() else f"{name} is not installed"
    return Crawler(name, writes, command, missing, slow=True)


def _without(program: str) -> str:
    return "" if shutil.which(program) else f"{program} is not installed"


def environment(home: Path) -> dict[str, str]:
    """For all crawlers: no settings of whoever measures, nothing of a test's, and this checkout's package for ours."""
    kept = {name: value for name, value in os.environ.items() if re.fullmatch(r"PATH|LANG|LC_\w+", name)}
    return kept | {"HOME": str(home), "TMPDIR": str(home), "PYTHONPATH": str(CHECKOUT)}


def install(peers: Path) -> None:
    """Put the peers below `peers`, each by itself, and wget2 where Debian puts it. What cannot be had is said."""
    for name, requirements in PIP_PEERS.items():
        python = peers / name / "bin/python"
        if not python.exists():
            _try(name, [sys.executable, "-m", "venv", str(peers / name)])
        _try(name, [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *requirements])
    home = peers / "spider"
    home.mkdir(parents=True, exist_ok=True)
    # Node looks for packages beside the script.
    shutil.copy(HERE / "spider_peer.mjs", home)
    if not (home / "node_modules").is_dir():
        _try("spider", ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(home), *NPM_PEER])
    for program in ("wget", "wget2"):
        if _without(program):
            _try(program, ["apt-get", "install", "-y", "-q", "--no-install-recommends", program])


def _try(name: str, argv: list[str]) -> None:
    try:
        subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"{name} cannot be installed: {error}", file=sys.stderr)
