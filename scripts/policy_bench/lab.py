"""Machines of a laboratory: hosts whose processors, lines and disks are limited, and a crawl by nodes on them.

    host        a network namespace (`e2e.netns`)
    processor   a share of one core: CFS bandwidth of a cgroup, version 1 or 2
    line        what comes to it: a token bucket (tc tbf) at the other end of its cable

Needs root, iproute2 and nftables; `Unavailable` says what is missing. A cgroup
has the process that made it in its name, and those of runs that were killed
are removed by the next.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from e2e.chaos_nodes import ADMIN, Guests
from e2e.crawler import CHECKOUT
from e2e.deadline import until
from e2e.netns import SBIN, Hosts, Unavailable

from policy_bench.report import Options, Row
from policy_bench.slow_site import TOTALS_PATH, Totals

__all__ = ["Crawled", "Hosts", "Lab", "Machine", "Unavailable", "crawl", "importing", "run", "site", "where_possible"]

PREFIX = "dhtcrawl-bench"
CGROUPS = Path("/sys/fs/cgroup")
PERIOD_US = 20_000  # of the CFS bandwidth: short, so that a slow processor is slow and does not stutter
BURST_BYTES = 16 << 10  # of a token bucket; a frame has to fit in
QUEUE_S = 0.5  # what waits for longer is dropped, as a modem does
WEB, PORT, START = "web", 80, "/0"
LOOK_EVERY_S = 0.25
CRAWL_MAX_S = 1_800.0


@dataclass(frozen=True, slots=True)
class Machine:
    """What a host is limited to."""

    cpu: float = 0.0  # cores; 0: no limit
    line_bps: float = 0.0  # bits a second towards it; 0: no limit
    disk_bytes_per_s: float = 0.0  # of writes; 0: no limit
    memory_bytes: int = 0  # 0: no limit
    cores: Sequence[int] = ()  # numbers of the processors that it may use; none: all


class Lab(Hosts):
    """A web server's host and one for each machine, until the block is left."""

    def __init__(self, machines: Sequence[Machine], packages: Path | None = None) -> None:
        """What is in the directory `packages` can be imported by what runs there."""
        super().__init__([WEB, *(f"node{number}" for number in range(len(machines)))])
        self.machines = list(machines)
        self._packages = packages
        self._groups: dict[str, list[Path]] = {}

    def wrapper(self, name: str) -> list[str]:
        """A process begins in the groups of its host."""
        cores = self._machine(name).cores
        pinned = ["taskset", "-c", ",".join(map(str, cores))] if cores else []
        enter = ["sh", "-c", 'for group in $0; do echo $$ > "$group/cgroup.procs" || exit 1; done; exec "$@"']
        groups = [*enter, " ".join(map(str, self._groups[name]))] if self._groups.get(name) else []
        return [*groups, *pinned, *super().wrapper(name), *importing(self._packages)]

    def _machine(self, name: str) -> Machine:
        number = name.removeprefix("node")
        return self.machines[int(number)] if number.isdigit() else Machine()

    def _make(self) -> None:
        super()._make()
        for number, name in enumerate(self.names):
            machine = self._machine(name)
            if machine.line_bps:
                bucket = ["tbf", "rate", f"{machine.line_bps:.0f}bit", "burst", str(BURST_BYTES)]
                bucket += ["latency", f"{1000 * QUEUE_S:.0f}ms"]
                run([*super().wrapper("router"), "tc", "qdisc", "add", "dev", f"host{number}", "root", *bucket])
            self._groups[name] = []
            for group in _limited(f"{PREFIX}.{os.getpid()}.{name}", machine):
                self._groups[name].append(group)

    def _remove(self) -> None:
        super()._remove()
        for groups in self._groups.values():
            for group in groups:
                _remove(group)


def importing(packages: Path | None) -> list[str]:
    """What stands before a command that is to find what is in this directory, and us."""
    return [] if packages is None else ["env", f"PYTHONPATH={packages}{os.pathsep}{CHECKOUT}"]


def limits(machine: Machine, device: str, *, unified: bool) -> dict[str, dict[str, str]]:
    """What is to be written into the files of cgroups, by their controller; '' where one hierarchy has them all."""
    quota, disk = max(1_000, round(machine.cpu * PERIOD_US)), f"{machine.disk_bytes_per_s:.0f}"
    found: dict[str, dict[str, str]] = {}
    if machine.cpu and unified:
        found.setdefault("", {})["cpu.max"] = f"{quota} {PERIOD_US}"
    elif machine.cpu:
        found["cpu"] = {"cpu.cfs_period_us": str(PERIOD_US), "cpu.cfs_quota_us": str(quota)}
    if machine.memory_bytes:
        where, file = ("", "memory.max") if unified else ("memory", "memory.limit_in_bytes")
        found.setdefault(where, {})[file] = str(machine.memory_bytes)
    if machine.disk_bytes_per_s and unified:
        found.setdefault("", {})["io.max"] = f"{device} wbps={disk}"
    elif machine.disk_bytes_per_s:
        found["blkio"] = {"blkio.throttle.write_bps_device": f"{device} {disk}"}
    return found


@contextmanager
def limited(name: str, machine: Machine, pid: int) -> Iterator[None]:
    """Have a process that runs already be on such a machine, until the block is left.

    Raises:
        Unavailable: there are no cgroups here that can be written.
    """
    groups = []
    try:
        for group in _limited(f"{PREFIX}.{os.getpid()}.{name}", machine):
            groups.append(group)
            (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        for group in groups:
            with contextlib.suppress(OSError):  # it has ended
                (group.parent / "cgroup.procs").write_text(str(pid))
            _remove(group)


def _limited(name: str, machine: Machine) -> Iterator[Path]:
    """The cgroups of a machine, as they are made.

    Raises:
        Unavailable: there are none here that can be written.
    """
    number = Path(tempfile.gettempdir()).stat().st_dev
    unified = (CGROUPS / "cgroup.controllers").exists()
    for kind, files in limits(machine, f"{os.major(number)}:{os.minor(number)}", unified=unified).items():
        group = CGROUPS / kind / name
        try:
            if unified:
                words = {f"+{file.partition('.')[0]}" for file in files}
                (CGROUPS / "cgroup.subtree_control").write_text(" ".join(sorted(words)))
            _sweep(group.parent)
            group.mkdir(exist_ok=True)
            for file, text in files.items():
                (group / file).write_text(text)
        except OSError as error:
            raise Unavailable(f"cgroups cannot be made here: {error}") from error
        yield group


def _sweep(parent: Path) -> None:
    """Remove the groups of runs that are gone."""
    for group in parent.glob(f"{PREFIX}.*"):
        if not Path(f"/proc/{group.name.split('.')[1]}").exists():
            _remove(group)


def _remove(group: Path) -> None:
    for _ in range(50):  # those that were killed leave it in a moment
        with contextlib.suppress(OSError):
            group.rmdir()
        if not group.exists():
            return
        time.sleep(0.02)


def where_possible(measure: Callable[[Options], list[Row]]) -> Callable[[Options], list[Row]]:
    """An experiment without rows where the machine does not allow it, which is said."""

    def run_it(options: Options) -> list[Row]:
        try:
            return measure(options)
        except Unavailable as error:
            print(f"  not measured: {error}", file=sys.stderr, flush=True)
            return []

    return run_it


class Site(NamedTuple):
    """A made-up site on the web server's host."""

    url: str  # where its crawl begins
    lab: Hosts
    host: str

    def answers(self) -> bool:
        """Whether it is up."""
        with self.lab.on(self.host), socket.socket() as probe:
            return probe.connect_ex((self.lab.address(self.host), PORT)) == 0

    def totals(self) -> Totals:
        """What it was asked for so far."""
        with (
            self.lab.on(self.host),
            urllib.request.urlopen(self.url.removesuffix(START) + TOTALS_PATH, timeout=60) as answer,
        ):
            return Totals(**json.load(answer))


@contextmanager
def site(lab: Hosts, home: Path, pages: int, page_bytes: int, host: str = WEB) -> Iterator[Site]:
    """One of so many pages, until the block is left."""
    script = Path(__file__).with_name("slow_site.py")
    argv = [*lab.wrapper(host), sys.executable, str(script), "--host", lab.address(host), "--port", str(PORT)]
    argv += ["--pages", str(pages), "--bytes", str(page_bytes)]
    home.mkdir(parents=True, exist_ok=True)
    with (home / f"{host}.log").open("ab") as log:
        server = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        found = Site(f"http://{lab.address(host)}{START}", lab, host)
        until(lambda: server.poll() is not None or found.answers(), "the site answers", 30.0, 0.05)
        assert server.poll() is None, (home / f"{host}.log").read_text()
        yield found
    finally:
        server.kill()
        server.wait()


class Crawled(NamedTuple):
    """What came of a crawl."""

    seconds: float  # from its submission to its end
    pages: list[int]  # that each node brought
    summary: dict[str, Any]
    plans: tuple[dict[str, Any], ...] = ()  # each as the API tells it, in order; those that say what made them
    said: tuple[str, ...] = ()  # what each node said on stderr
    # From the first page of any site until places of all are published, and until all nodes have these; None: never.
    placed_s: tuple[float, float] | None = None


def crawl(
    lab: Hosts,
    home: Path,
    urls: Sequence[str],
    policy: str,
    *node_options: str,
    options: Sequence[str] = (),
    delay_s: float = 0.0,
) -> Crawled:
    """New nodes on all machines crawl sites whole, under a policy with these options.

    Raises:
        AssertionError: it did not end, or a node did.
    """
    settings = {"delay_s": f"{delay_s:g}", "allow_private": True, "policy": policy, "policy_options": list(options)}
    with Guests(home, lab, *node_options) as swarm:
        swarm.start(sum(name.startswith("node") for name in lab.names))
        swarm.meet()
        first = swarm.guests[0]
        began_s = time.monotonic()
        known = _begin(lab, first.host, {"seeds": list(urls), "settings": settings})
        plans: dict[int, dict[str, Any]] = {}

        def over() -> bool:
            told = first.ask(f"crawls/{known}")
            if told["plan"]:
                plans.setdefault(told["plan"]["epoch"], told["plan"])
            return bool(told["state"] == "ended")

        until(over, "the crawl ends", CRAWL_MAX_S, LOOK_EVERY_S)
        took_s = time.monotonic() - began_s
        facts = {fact["node"]: fact["counters"] for fact in first.ask(f"crawls/{known}/export/nodes")}
        summary = first.ask(f"crawls/{known}")
        swarm.check()
    pages = [facts.get(guest.id, {}).get("pages", 0) for guest in swarm.guests]
    said = tuple(guest.said() for guest in swarm.guests)
    return Crawled(took_s, pages, summary, tuple(plans[epoch] for epoch in sorted(plans)), said)


def _begin(lab: Hosts, host: str, crawl: Mapping[str, object]) -> str:
    """Give a crawl to the node on a host; its id."""
    request = urllib.request.Request(f"http://{ADMIN}/api/v1/crawls", json.dumps(crawl).encode(), method="POST")
    request.add_header("Content-Type", "application/json")
    with lab.on(host), urllib.request.urlopen(request, timeout=60) as answer:
        return str(json.load(answer)["crawl"])


def run(argv: Sequence[str]) -> None:
    """A command of the system; it must succeed."""
    env = os.environ | {"PATH": f"{os.environ.get('PATH', '')}:{SBIN}"}
    subprocess.run(list(argv), check=True, capture_output=True, text=True, timeout=60, env=env)
