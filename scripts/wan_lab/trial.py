"""One crawl over regions: a web of many hosts, nodes, what befalls them meanwhile, and what came of it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from e2e.chaos_nodes import ADMIN, PORT, Guest, Guests
from e2e.crawler import Crawler
from e2e.deadline import until
from e2e.swarm import DEADLINE_S, Node
from scale_site import Asked, Hosts

from dhtcrawl.units import format_address
from wan_lab.regions import NETWORK6, Regions

WEB: Final = "web"
SITES_PORT: Final = 10_000
CUT_AFTER_S: Final = 20.0
ROLL_AFTER_S: Final = 10.0
LOOK_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Trial:
    """What is crawled, by how many, and what happens. Times are seconds."""

    nodes: int
    pages: int
    hosts: int
    page_bytes: int
    delay_s: float
    policy: str
    hidden: int  # so many of the nodes, the last ones, are behind NATs
    far: tuple[str, ...]  # hosts that are cut off
    cut_s: float  # for so long; 0: not
    rolling: bool  # each node leaves and is started again
    within_s: float


@dataclass(frozen=True, slots=True)
class Came:
    """What came of it."""

    started_s: float  # until all nodes knew each other
    seconds: float  # of the crawl
    ended: str
    pages: int  # by the nodes' count; what one that left had brought counts at its heir, too
    by_node: list[int]
    refetches: int  # by the summary that gathering makes of the nodes' records, as a person sees it
    retried: int  # requests that brought no page, by the same
    missing: int  # pages of the web that were never asked for
    asked: int  # by the web's count
    again: int
    too_soon: int
    restarted: int  # nodes, while the crawl went on
    good: bool


def run(lab: Regions, home: Path, trial: Trial) -> Came:
    """A new swarm crawls a new web.

    Raises:
        AssertionError: a node does not start, or ends by itself, or prints a traceback.
    """
    with _web(lab, home, trial) as web, Guests(home / "swarm", lab, "--allow-network", NETWORK6) as swarm:
        began_s = time.monotonic()
        _start(lab, swarm, trial)
        started_s = time.monotonic() - began_s
        print(f"wan: {trial.nodes} nodes know each other after {started_s:.1f} s", flush=True)
        began_s = time.monotonic()
        crawl = _submit(lab, swarm, web, trial)
        with _cut(lab, trial):
            restarted = _roll(swarm, crawl) if trial.rolling else 0
            ended = _wait(swarm, crawl, web, trial)
        took_s = time.monotonic() - began_s
        facts = {fact["node"]: fact["counters"] for fact in swarm.guests[0].ask(f"crawls/{crawl}/export/nodes")}
        summary = _gathered(lab, home, swarm, crawl, trial)
        swarm.check()
        asked = web.totals()
    by_node = [facts.get(guest.id, {}).get("pages", 0) for guest in swarm.guests]
    pages = sum(counters.get("pages", 0) for counters in facts.values())
    missing = trial.pages - (asked.pages - asked.again)
    good = ended == "complete" and missing == 0 and asked.too_soon == 0
    return Came(
        round(started_s, 1),
        round(took_s, 1),
        ended,
        pages,
        by_node,
        summary["refetches"],
        summary["retried"],
        missing,
        asked.pages,
        asked.again,
        asked.too_soon,
        restarted,
        good,
    )


def _gathered(lab: Regions, home: Path, swarm: Guests, crawl: str, trial: Trial) -> dict[str, Any]:
    """The crawl's summary, as whoever gathers it gets it: which pages two nodes fetched is known from then on."""
    argv = ["gather", crawl, "--out", str(home / "out"), "--admin", ADMIN, "--json", "--quiet"]
    wrapper = lab.wrapper(swarm.guests[0].host)
    return Crawler(home).run(*argv, wrapper=wrapper, timeout_s=trial.within_s).summary


@dataclass(frozen=True, slots=True)
class _Web:
    """The web server, and what it counts."""

    lab: Regions
    places: Hosts
    hosts: int

    @property
    def seeds(self) -> list[str]:
        """The first page of each host."""
        return [self.places.url(number, number) for number in range(self.hosts)]

    def totals(self) -> Asked:
        with (
            self.lab.on(WEB),
            urllib.request.urlopen(self.places.url(0, 0).rpartition("/")[0] + "/totals", timeout=60) as answer,
        ):
            return Asked(**json.load(answer))

    def answers(self) -> bool:
        try:
            self.totals()
        except OSError:
            return False
        return True


@contextmanager
def _web(lab: Regions, home: Path, trial: Trial) -> Iterator[_Web]:
    web = _Web(lab, Hosts(SITES_PORT, lab.address(WEB)), trial.hosts)
    script = Path(__file__).parents[1] / "scale_site.py"
    argv = [*lab.wrapper(WEB), sys.executable, str(script), "--port", str(SITES_PORT), "--hosts", str(trial.hosts)]
    argv += ["--pages", str(trial.pages), "--delay", str(trial.delay_s), "--address", lab.address(WEB)]
    argv += ["--bytes", str(trial.page_bytes)]
    with (home / "web.log").open("ab") as log:
        server = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        until(lambda: server.poll() is not None or web.answers(), "the web answers", DEADLINE_S, LOOK_S)
        assert server.poll() is None, (home / "web.log").read_text()
        yield web
    finally:
        server.kill()
        server.wait()


def _start(lab: Regions, swarm: Guests, trial: Trial) -> None:
    """Start all; each knows all the others then."""
    first, *others = [_added(lab, swarm, trial, number) for number in range(trial.nodes)]
    first.start(listen=_listens(lab, first)).ready()
    for number, guest in enumerate(others, 1):
        if number >= trial.nodes - trial.hidden:
            lab.hide(guest.host)
        through = lab.addresses(first.host)
        guest.start(format_address((through[number % len(through)], PORT)), listen=_listens(lab, guest))
    for guest in others:
        guest.ready()
    ids = {guest.id for guest in swarm.guests}
    for guest in swarm.guests:
        until(partial(_knows, guest, ids), f"{guest.host} knows all", DEADLINE_S, LOOK_S)


def _added(lab: Regions, swarm: Guests, trial: Trial, number: int) -> Guest:
    options = ["--outbound-only"] if number >= trial.nodes - trial.hidden else []
    if not number and len(lab.addresses("node0")) > 1:
        options += ["--advertise", format_address((lab.address("node0"), PORT))]  # nobody leads it to an address
    swarm.add(*options)
    return swarm.guests[-1]


def _listens(lab: Regions, guest: Guest) -> str:
    """Where: with one address there, with two at all, and then the first node alone has to be told its own."""
    addresses = lab.addresses(guest.host)
    return format_address((addresses[0] if len(addresses) == 1 else "::", PORT))


def _knows(guest: Node, ids: set[str]) -> bool:
    return ids == {peer["node"] for peer in guest.ask("peers") if peer["state"] in ("active", "outbound")}


def _submit(lab: Regions, swarm: Guests, web: _Web, trial: Trial) -> str:
    settings = {"delay_s": f"{trial.delay_s:g}", "allow_private": True, "policy": trial.policy}
    body = json.dumps({"seeds": web.seeds, "settings": settings}).encode()
    request = urllib.request.Request(f"http://{ADMIN}/api/v1/crawls", body, {"Content-Type": "application/json"})
    with lab.on(swarm.guests[0].host), urllib.request.urlopen(request, timeout=60) as answer:
        return str(json.load(answer)["crawl"])


@contextmanager
def _cut(lab: Regions, trial: Trial) -> Iterator[None]:
    """Some hosts are cut off from the rest after a while, and then no longer."""
    near = [name for name in lab.names if name not in trial.far]

    def cut() -> None:
        print(f"wan: {len(trial.far)} hosts are cut off for {trial.cut_s:g} s", flush=True)
        lab.cut(trial.far, near)
        lab.cut(near, trial.far)

    def heal() -> None:
        lab.heal()
        print("wan: the network is whole", flush=True)

    steps = ((CUT_AFTER_S, cut), (CUT_AFTER_S + trial.cut_s, heal)) if trial.cut_s else ()
    timers = [threading.Timer(after_s, step) for after_s, step in steps]
    for timer in timers:
        timer.start()
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()


def _roll(swarm: Guests, crawl: str) -> int:
    """Have each node leave in order, and start it again, one after the other; how many before the crawl was over."""
    time.sleep(ROLL_AFTER_S)
    for number, guest in enumerate(swarm.guests):
        if swarm.guests[number - 1].ask(f"crawls/{crawl}")["state"] == "ended":
            return number
        guest.terminate().ended_with(0)
        swarm.again(number)
        guest.ready()
        print(f"wan: {guest.host} was started again", flush=True)
    return len(swarm.guests)


def _wait(swarm: Guests, crawl: str, web: _Web, trial: Trial) -> str:
    """How the crawl ended; "" where it did not in time."""
    until_s, told_at = time.monotonic() + trial.within_s, 0.0
    while time.monotonic() < until_s:
        told: dict[str, Any] = swarm.guests[0].ask(f"crawls/{crawl}")
        assert len(swarm.alive) == trial.nodes, swarm.logs()
        if told["state"] == "ended":
            return str(told["ended"])
        if time.monotonic() - told_at >= 20.0:
            told_at = time.monotonic()
            print(f"wan: {web.totals().pages} pages were asked for", flush=True)
        time.sleep(LOOK_S)
    return ""
