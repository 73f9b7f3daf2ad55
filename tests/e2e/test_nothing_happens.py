"""Sixteen situations in which a crawl seems to do nothing: its cause is in one line of each place that people look at.

The places are `crawl` (one node), `submit --wait` (a swarm), `why URL`, and the dashboard, which shows what the API
tells here. Nodes and commands are real processes. A dash: it cannot occur there.

    situation             crawl  submit  why  dashboard   here, or besides
    robots disallows all    x      x      x      x
    DNS fails               x      x      x      x
    out of scope            x      x      x      x
    429 with Retry-After    x      x      x      x        test_why_nothing_moves: also 503 for robots.txt
    Crawl-delay 30          x      x      x      x        test_why_nothing_moves
    no contact (alone)      -      x      x      x        one node has no swarm
    disk full               x      x      x      x        a limit; of a real full disk test_disk_full
    paused                  -      x      x      x        a crawl of one node is stopped instead
    limit reached           x      x      x      x        test_why_nothing_moves, test_swarm_limits
    all duplicates          x      x      x      x
    gatekeeper gone         -      x      x      x        one node leases no hosts
    holder gone             -      x      x      x        test_why_nothing_moves: the row of the node that is gone
    seed 401 and 403        x      x      x      x
    cookie redirect         x      x      x      x
    page-level nofollow     x      x      x      x
    host asleep             x      x      x      x        a host that does not answer is tried again
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from dhtcrawl.cli.main import run

from .crawler import environment
from .deadline import until
from .fork_server import start
from .stub import Answer, StubServer
from .swarm import Node, Swarm

DEADLINE_S = 60.0
ASK_EVERY_S = 0.2
LINKS = tuple(f"/{number}" for number in range(6))
AT_ONCE = 3  # commands that run beside one another
HTML = {"Content-Type": "text/html"}
TEXT = {"Content-Type": "text/plain"}


class Terminal:
    """A command on a terminal of 80 columns: what it shows on stderr and prints, until the block is left."""

    def __init__(self, home: Path, *argv: str) -> None:
        main, terminal = os.openpty()
        home.mkdir(parents=True, exist_ok=True)
        env = environment(home) | {"COLUMNS": "80"}
        self._process = start(argv, stdout=terminal, stderr=terminal, cwd=home, env=env)
        os.close(terminal)
        self._main, self._shown = main, ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)
        self._reader.join(30)
        os.close(self._main)

    def _read(self) -> None:
        try:
            while more := os.read(self._main, 65_536):
                self._shown += more.decode(errors="replace")
        except OSError:
            pass  # EIO: the command has closed its end

    @property
    def lines(self) -> list[str]:
        return re.split(r"\r\x1b\[K|\r?\n", self._shown)

    def says(self, wanted: str) -> None:
        """Wait for a line in which `wanted` is found; one that a crawl's end wraps counts as one."""

        def said() -> bool:
            return any(re.search(wanted, line) for line in [*self.lines, " ".join(self._shown.split())])

        end = time.monotonic() + DEADLINE_S
        while not said():
            going_on = self._reader.is_alive() and time.monotonic() < end
            assert going_on or said(), f"{wanted!r} is not in {self.lines[-40:]}"
            time.sleep(ASK_EVERY_S)


@dataclass(frozen=True)
class Situation:
    """A site, and in which words the cause is told; `{host}` and `{url}` are filled in, None: it cannot occur there."""

    site: Callable[[StubServer], None]
    crawl: str | None
    submit: str
    why: tuple[str, str]  # a path, and what is said of it
    dashboard: str
    options: tuple[str, ...] = ()
    seeds: tuple[str, ...] = ("{url}/",)


def robots(stub: StubServer) -> None:
    stub.answers["/robots.txt"] = Answer(b"User-agent: *\nDisallow: /\n", headers=TEXT)


def elsewhere(stub: StubServer) -> None:
    stub.page("/", "http://one.example/", "http://two.example/")


def busy(stub: StubServer) -> None:
    stub.page("/", *LINKS)
    stub.answers |= dict.fromkeys(LINKS, Answer(status=429, headers={"Retry-After": "600"}))


def slow(stub: StubServer) -> None:
    stub.page("/", *LINKS)
    stub.answers["/robots.txt"] = Answer(b"User-agent: *\nCrawl-delay: 30\n", headers=TEXT)


def whole(stub: StubServer) -> None:
    stub.page("/", *LINKS)
    for link in LINKS:
        stub.page(link)


def duplicates(stub: StubServer) -> None:
    stub.page("/", "/", "/#top", "//" + stub.url.removeprefix("http://"))


def refusing(stub: StubServer) -> None:
    stub.answers |= {"/": Answer(status=401), "/inside": Answer(status=403)}


def cookie(stub: StubServer) -> None:
    stub.answers["/"] = Answer(status=302, headers={"Location": "/", "Set-Cookie": "seen=1"})


def nofollow(stub: StubServer) -> None:
    body = b'<meta name=robots content=nofollow><a href="/one">1</a><a href="/two">2</a>'
    stub.answers["/"] = Answer(body, headers=HTML)


def nothing(stub: StubServer) -> None:
    pass


_FAILS = "it ended, and no page was fetched: "
_ROBOTS = r"http://{host}/: .*robots\.txt.*; ask the site's owner"
_DNS = r"http://nowhere\.invalid/: .*dns: the name does not resolve"
_LOGIN = r"http://{host}/: answers 401 \(Unauthorized\); the site wants a login.*/inside: answers 403"
_COOKIE = r"http://{host}/: answers 302 \(Found\) and leads back to itself; sites that want a cookie"
_ASLEEP = r"127\.0\.0\.1:1 does not answer \(connect: connection refused\)"

SITUATIONS = {  # the first is looked at before its 30 s are over
    "Crawl-delay 30": Situation(
        slow, "waiting: the Crawl-delay in the robots.txt of {host}",
        "waiting: the Crawl-delay in the robots.txt of {host}",
        ("/", "it waits: the Crawl-delay in the robots.txt of {host}"), "the Crawl-delay in the robots.txt of {host}",
    ),
    "robots disallows all": Situation(
        robots, _ROBOTS, _ROBOTS, ("/", "was given up.*robots: its site's robots.txt disallows it"), _FAILS + _ROBOTS
    ),
    "DNS fails": Situation(
        nothing, _DNS, _DNS, ("http://nowhere.invalid/", "was given up.*dns"), _FAILS + _DNS,
        seeds=("http://nowhere.invalid/",),
    ),
    "out of scope": Situation(
        elsewhere, "skipped +out-of-scope 2", "skipped +out-of-scope 2",
        ("http://one.example/", "was found, but not followed.*out-of-scope: the crawl's scope does not reach it"),
        "skipped out-of-scope 2",
    ),
    "429": Situation(
        busy, r"waiting: {host} asked for a pause \(429\), (9|10) min",
        r"waiting: {host} asked for a pause \(429\), (9|10) min",
        ("/3", r"it waits: {host} asked for a pause \(429\)"), r"{host} asked for a pause \(429\), (9|10) min",
    ),
    "limit reached": Situation(
        whole, "stopped: page limit", "stopped: page limit",
        ("/5", r"was queued when the crawl ended \(page limit\), and was not fetched"),
        "it ended at its page limit; what was left is not fetched", options=("--max-pages", "1"),
    ),
    "all duplicates": Situation(
        duplicates, r"urls seen +1 +\(1 links lead there", r"urls seen +1 +\(1 links lead there",
        ("/", "links +1 on it are followed, to URLs that were known or not"), "links to them 1",
    ),
    "seed 401 and 403": Situation(
        refusing, _LOGIN, _LOGIN, ("/inside", "status 403"), _FAILS + _LOGIN, seeds=("{url}/", "{url}/inside"),
    ),
    "cookie redirect": Situation(
        cookie, _COOKIE, _COOKIE, ("/", "status 302"), _FAILS + _COOKIE,
    ),
    "page-level nofollow": Situation(
        nofollow, "skipped +nofollow 2", "skipped +nofollow 2",
        ("/one", "was found, but not followed.*nofollow: the link, or the page it is on, says nofollow"),
        "skipped nofollow 2",
    ),
    "host asleep": Situation(
        nothing, "waiting: " + _ASLEEP, "waiting: " + _ASLEEP, ("http://127.0.0.1:1/", "connection refused"),
        r"127\.0\.0\.1:1.*connect: connection refused", seeds=("http://127.0.0.1:1/",),
    ),
}  # fmt: skip


def on_the_dashboard(node: Node, crawl: str) -> list[str]:
    """The lines of a crawl's page on the dashboard in which a cause can stand."""
    told = node.ask(f"crawls/{crawl}")
    counted = [
        f"skipped {name.removeprefix('skipped_').replace('_', '-')} {count}"
        for name, count in told["counters"].items()
        if name.startswith("skipped_")
    ]
    return [told["standing"]["text"], *counted, f"links to them {told['counters'].get('links')}"] + [
        row["text"] for row in told["per_node"]
    ]


def new_crawl(node: Node, seed: str) -> str:
    """The id of the crawl of this seed, once the node knows it."""

    def known() -> list[str]:
        return [row["crawl"] for row in node.ask("crawls") if row["seeds"][0] == seed]

    until(lambda: bool(known()), "the crawl is known", DEADLINE_S, ASK_EVERY_S)
    return known()[0]


def why(capsys: pytest.CaptureFixture[str], node: Node, crawl: str, url: str) -> str:
    """What `why` prints, in one line."""
    capsys.readouterr()
    assert run(["why", url, "--crawl", crawl, "--admin", node.admin]) == 0
    return " ".join(capsys.readouterr().out.split())


class Stage:
    """A swarm of two nodes, a site for each situation, and commands that look at both, a few at a time."""

    def __init__(self, home: Path, swarm: Swarm, stack: ExitStack) -> None:
        self.nodes = swarm.start(2)
        swarm.meet()
        self.stubs = {name: stack.enter_context(StubServer()) for name in SITUATIONS}
        pool = stack.enter_context(ThreadPoolExecutor(AT_ONCE))
        self.told: dict[tuple[str, str], Future[None]] = {}
        for number, (name, situation) in enumerate(SITUATIONS.items()):
            situation.site(self.stubs[name])
            seeds = [seed.format(url=self.stubs[name].url) for seed in situation.seeds]
            argv = [*seeds, "--allow-private", "--delay", "0"]
            argv += situation.options
            submit = ["submit", *argv, "--wait", "--admin", self.nodes[0].admin]
            self.told[name, "submit"] = pool.submit(
                self._run, home / f"s{number}", submit, self.fill(name, situation.submit)
            )
            if situation.crawl is not None:
                crawl = ["crawl", *argv, "--out", "out"]
                self.told[name, "crawl"] = pool.submit(
                    self._run, home / f"c{number}", crawl, self.fill(name, situation.crawl)
                )

    def fill(self, name: str, words: str) -> str:
        return words.replace("{host}", re.escape(self.stubs[name].url.removeprefix("http://")))

    @staticmethod
    def _run(home: Path, argv: list[str], wanted: str) -> None:
        with Terminal(home, *argv) as terminal:
            terminal.says(wanted)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    home = tmp_path_factory.mktemp("situations")
    with Swarm(home / "nodes") as swarm, ExitStack() as stack:
        yield Stage(home, swarm, stack)
        swarm.check()


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_cause_is_in_one_line_of_each_place(name: str, stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    situation, stub, node = SITUATIONS[name], stage.stubs[name], stage.nodes[1]
    stage.told[name, "submit"].result()
    if situation.crawl is not None:
        stage.told[name, "crawl"].result()
    crawl = new_crawl(node, situation.seeds[0].format(url=stub.url))
    wanted = stage.fill(name, situation.dashboard)

    def shown() -> list[str]:
        return [line for line in on_the_dashboard(node, crawl) if re.search(wanted, line)]

    until(lambda: bool(shown()), f"{wanted!r} is told: {on_the_dashboard(node, crawl)}", DEADLINE_S, ASK_EVERY_S)
    path, said = situation.why
    url = path if path.startswith("http") else stub.url + path
    told = why(capsys, node, crawl, url)
    assert re.search(stage.fill(name, said), told), told


def test_a_paused_crawl_says_so_in_each_place(stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = stage.nodes
    with StubServer() as stub:
        slow(stub)
        argv = ["submit", f"{stub.url}/", "--allow-private", "--wait", "--admin", first.admin]
        with Terminal(tmp_path, *argv) as terminal:
            crawl = new_crawl(second, f"{stub.url}/")
            assert run(["pause", crawl, "--admin", second.admin]) == 0
            terminal.says("waiting: it is paused, until it is resumed")
            assert on_the_dashboard(second, crawl)[0].startswith("it is paused")
            told = why(capsys, second, crawl, f"{stub.url}/")
            assert re.search("is queued; the crawl is paused.*next +it is paused, until it is resumed", told), told


def test_a_full_disk_says_so_in_each_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    full, said = ("--disk-limit", "1B"), "stopped: disk limit"
    with StubServer() as stub, Swarm(tmp_path / "node", *full) as swarm:
        whole(stub)
        (node,) = swarm.start(1)
        argv = [f"{stub.url}/", "--allow-private", "--delay", "2s"]
        with (
            Terminal(tmp_path / "crawl", "crawl", *argv, *full, "--out", "out") as alone,
            Terminal(tmp_path / "submit", "submit", *argv, "--wait", "--admin", node.admin) as waiting,
        ):
            waiting.says(said)
            alone.says(said)
        crawl = new_crawl(node, f"{stub.url}/")
        assert on_the_dashboard(node, crawl)[0] == "it ended at its disk limit; what was left is not fetched"
        # It may have ended before the first page was written.
        told = [why(capsys, node, crawl, stub.url + path) for path in ("/", LINKS[-1])]
        assert any("was queued when the crawl ended (disk limit), and was not fetched" in each for each in told), told


def test_what_a_killed_node_was_is_named_in_each_place_until_the_last_one_is_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The gatekeeper of one site is killed, which also holds pages of another; then the only other node."""
    with Swarm(tmp_path / "nodes", "--set", "swarm.suspicion_s=1s") as swarm, ExitStack() as stack:
        asked, *others = swarm.start(3)
        swarm.meet()
        held = stack.enter_context(StubServer())
        held.page("/", *LINKS, "/held")
        for link in LINKS:
            held.page(link)
        held.answers["/held"] = Answer(holds=True)
        pages, victim, survivor = _crawled(asked, others, tmp_path, held, stack)
        gated = _site_gated_by(asked, victim, stack)
        gated.page("/")
        victim.kill()
        argv = ["submit", f"{gated.url}/", "--allow-private", "--delay", "9s", "--wait", "--admin", asked.admin]
        waiting = stack.enter_context(Terminal(tmp_path / "gated", *argv))
        crawl = new_crawl(asked, f"{gated.url}/")
        gone = f"the gatekeeper of {re.escape(gated.url.removeprefix('http://'))} is new, and lets the last lease"
        until(lambda: bool(re.match(gone, on_the_dashboard(asked, crawl)[0])), "it is told", DEADLINE_S, ASK_EVERY_S)
        story = why(capsys, asked, crawl, f"{gated.url}/")
        assert re.search(f"which waits: {gone}.*it waits: {gone}", story), story
        waiting.says(f"waiting: {gone[:50]}")

        held.release()
        lies = f"pages lie only at {victim.id}, which is gone; they are fetched again"
        pages.terminal.says(rf"waiting: \d+ pages lie only at {victim.id[:12]}")
        until(lambda: lies in on_the_dashboard(asked, pages.crawl)[0], "it is told", DEADLINE_S, ASK_EVERY_S)
        stories = [why(capsys, asked, pages.crawl, held.url + link) for link in LINKS]
        assert any(f"lies only at {victim.id[:12]}, which is gone" in story for story in stories), stories

        survivor.kill()
        alone = f"{asked.id} has no contact with its swarm"
        pages.terminal.says(f"waiting: {asked.id} has no con")
        until(lambda: alone in on_the_dashboard(asked, pages.crawl)[0], "it is told", DEADLINE_S, ASK_EVERY_S)
        assert re.match(r"none, for \d+ s; it knows 2 others", asked.ask("status")["contact"])
        swarm.check()


@dataclass(frozen=True)
class _Crawled:
    terminal: Terminal
    crawl: str


def _crawled(
    asked: Node, others: list[Node], home: Path, site: StubServer, stack: ExitStack
) -> tuple[_Crawled, Node, Node]:
    """A crawl all of whose pages but one are fetched, the other node that has most of them, and the third."""
    argv = ["submit", f"{site.url}/", "--allow-private", "--delay", "0", "--wait", "--admin", asked.admin]
    terminal = stack.enter_context(Terminal(home / "pages", *argv))
    crawl = new_crawl(asked, f"{site.url}/")

    def pages(node: Node) -> int:
        rows = asked.ask(f"crawls/{crawl}")["per_node"]
        return sum(int(row["counters"].get("pages", 0)) for row in rows if row["node"] == node.id)

    until(lambda: sum(map(pages, [asked, *others])) == len(LINKS) + 1, "all else is there", DEADLINE_S, ASK_EVERY_S)
    survivor, victim = sorted(others, key=pages)
    assert pages(victim), "ids are drawn anew until another node has a page"
    return _Crawled(terminal, crawl), victim, survivor


def _site_gated_by(asked: Node, gatekeeper: Node, stack: ExitStack) -> StubServer:
    """A site whose gatekeeper is this node."""
    while True:
        stub = stack.enter_context(StubServer())
        if asked.ask(f"hosts/{stub.url.removeprefix('http://')}")["gatekeeper"] == gatekeeper.id:
            return stub
