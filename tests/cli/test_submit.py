"""`dhtcrawl submit`: to a node that is none, and gathered from one that has a real crawl's store."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pytest
from e2e.crawler import environment
from e2e.fork_server import start
from web.fake import CRAWL, OTHER, FakeNode, running

from dhtcrawl.cli import wait
from dhtcrawl.cli.client import NodeClient
from dhtcrawl.cli.places import node_dir
from dhtcrawl.cli.screen import Screen
from dhtcrawl.cli.wait import Interrupted, exit_of, stop_of
from dhtcrawl.crawl.budget import Stop
from dhtcrawl.errors import Exit, NotNow
from dhtcrawl.identity import load_or_create
from dhtcrawl.spec import CrawlSpec
from dhtcrawl.storage.collect import export
from dhtcrawl.storage.store import catalog
from dhtcrawl.storage.store.crawl_record import to_wire
from dhtcrawl.storage.store.engine import LevelEngine
from dhtcrawl.storage.store.files import DiskDirectory
from dhtcrawl.storage.store.txn import Txn
from dhtcrawl.web.admin import serve
from dhtcrawl.web.api import ApiError, Row

from .conftest import TIMEOUT_S, Ask, DemoCrawl, Here, free_port, secrets_in

ID = CRAWL.hex()


def test_submit_prints_the_id_and_sends_every_option(ask: Ask, node: FakeNode, tmp_path: Path) -> None:
    seeds = tmp_path / "seeds.txt"
    seeds.write_text("# mine\nb.example\n")
    ended = ask("submit", "A.example", "--seed-file", str(seeds), "--depth", "2", "--delay", "50ms")
    assert (ended.code, ended.stdout) == (0, f"{ID}\n")
    ((_, spec),) = node.asked
    assert spec.seeds == ("http://a.example/", "http://b.example/")
    assert (spec.settings.depth, spec.settings.delay_s) == (2, 0.05)
    assert json.loads(ask("submit", "a.example", "--json").stdout) == {"crawl": ID}


@pytest.mark.parametrize("options", [(), ("--json",), ("--wait",), ("--wait", "--json")], ids=" ".join)
def test_who_cannot_be_told_the_id_is_told_not_to_submit_it_again(
    options: tuple[str, ...], admin: str, node: FakeNode, tmp_path: Path
) -> None:
    ends_after(node, 1, "complete")
    command = ["submit", "a.example", "--admin", admin, *options]
    with Path("/dev/full").open("wb") as full, TemporaryFile() as stderr:
        ran = start(command, stdout=full.fileno(), stderr=stderr.fileno(), cwd=tmp_path, env=environment(tmp_path))
        code = ran.wait(TIMEOUT_S)
        stderr.seek(0)
        told = stderr.read().decode().splitlines()
    assert code == 0, told
    assert told[-1] == (
        "dhtcrawl: cannot write to standard output: No space left on device; the swarm has this crawl, so do not "
        f"submit it again: see 'dhtcrawl crawls {ID[:12]}'"
    )
    # Who was to wait has waited.
    assert [call[0] for call in node.asked].count("submit") == 1
    assert ("crawl" in [call[0] for call in node.asked]) == ("--wait" in options)


@contextmanager
def answering(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """Where somebody listens who takes a request, and does something about it."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve_one() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65_536)
                answer(connection)

        serving = threading.Thread(target=serve_one)
        serving.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        serving.join()


UNSURE = "it may have taken the crawl: see 'dhtcrawl crawls' before you submit it again"


def test_who_has_no_answer_is_told_that_the_node_may_have_the_crawl(here: Here) -> None:
    half = b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
    with answering(lambda connection: connection.sendall(half)) as where:
        ended = here("submit", "a.example", "--admin", where)
    assert (
        ended.code,
        ended.message().endswith(f" breaks off; see its log, or name another with --admin; {UNSURE}"),
    ) == (
        1,
        True,
    )
    nobody = here("submit", "a.example", "--admin", f"127.0.0.1:{free_port()}")
    assert UNSURE not in nobody.message()


def test_who_interrupts_a_submission_is_told_that_the_node_may_have_the_crawl(here: Here) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # as `main` does

    def interrupt(connection: socket.socket) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        connection.recv(1)  # until the command has let go of it

    with answering(interrupt) as where:
        ended = here("submit", "a.example", "--admin", where)
    signal.signal(signal.SIGINT, before)
    assert ended.code == 11
    assert f"dhtcrawl: the node at {where} has not answered; {UNSURE}" in ended.stderr.splitlines()


def test_a_concurrency_is_a_nodes_own(ask: Ask) -> None:
    ended = ask("submit", "a.example", "-c", "5")
    assert (ended.code, ended.stdout) == (0, f"{ID}\n")
    assert "--concurrency is each node's own" in ended.stderr


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ([], "no seed given"),
        (["mailto:x"], "is no web address"),
        (["a.example", "--out", "x"], "add --wait"),
        (["a.example", "--wait", "--out", "."], "it holds another crawl"),
    ],
)
def test_what_cannot_be_submitted_is_refused_before_anybody_is_asked(
    args: list[str], says: str, ask: Ask, node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "summary.json").touch()
    monkeypatch.chdir(tmp_path)
    ended = ask("submit", *args)
    assert (ended.code, says in ended.message()) == (2, True), ended
    assert node.asked == []


def test_a_policy_that_cannot_run_on_the_node_is_refused_in_one_line(
    ask: Ask, here: Here, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    for ended in (ask("submit", "a.example", "--policy", "bp-pso"), here("crawl", "a.example", "--policy", "bp-pso")):
        assert ended.code == Exit.CONFIG
        assert "bp-pso needs scipy, not installed here; run 'pip install scipy'" in ended.message()
    assert node.asked == []
    assert ask("submit", "a.example", "--policy", "gnp").code == 0


def ends_after(node: FakeNode, questions: int, ended: str, then: Callable[[], None] = lambda: None) -> None:
    """Let the crawl run for so many questions, and then end so ("": go on)."""

    def on_call(call: tuple[Any, ...]) -> None:
        if node.asked.count(("crawl", CRAWL)) < questions or call != ("crawl", CRAWL):
            return
        then()
        if ended:
            node.known[CRAWL] = node.one(CRAWL, "ended", ended, 42)

    node.on_call = on_call


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait, "POLL_S", 0.001)
    monkeypatch.setattr("dhtcrawl.cli.screen.PIPE_EVERY_S", 0.0)


@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize(
    ("ended", "code"),
    [("complete", 0), ("failed", 9), ("page limit", 21), ("time-limit", 15), ("stopped", 11), ("?", 1)],
)
def test_waiting_ends_as_the_crawl_does(ended: str, code: int, ask: Ask, node: FakeNode) -> None:
    ends_after(node, 3, ended)
    command = ask("submit", "a.example", "--wait")
    assert command.code == code
    first, *summary = command.stdout.splitlines()
    assert first == ID
    assert summary[0].startswith(f"crawl {ID[:12]}  ")
    assert summary[1].split()[:2] == ["pages", "42"]
    assert command.stderr.splitlines()[0] == f"crawl {ID[:12]}: http://a.example/"
    assert "7 pages" in command.stderr.splitlines()[1]
    assert json.loads(ask("submit", "a.example", "--wait", "--json").stdout)["ended"] == ended


@pytest.mark.usefixtures("_quick")
def test_waiting_for_a_crawl_that_failed_names_the_cause_of_each_seed(ask: Ask, node: FakeNode) -> None:
    ends_after(node, 3, "failed")
    node.answers = {
        "http://a.example/": {"state": "done", "status": 403},
        "http://b.example/": {"state": "dead", "reason": "failed", "detail": "dns: no such name"},
        "http://c.example/": {"state": "done", "status": 302, "final_url": "http://c.example/"},
    }
    for options in ((), ("--json",)):
        command = ask("submit", "a.example", "b.example", "c.example", "d.example", "--wait", *options)
        assert command.code == 9
        last = command.stderr.splitlines()[-1]
        assert last.startswith(
            "dhtcrawl: nothing but redirects and errors was fetched: http://a.example/: answers 403 (Forbidden); "
        )
        assert " | http://b.example/: dns: no such name; check the address, and whether the site is up | " in last
        assert " | http://c.example/: answers 302 (Found) and leads back to itself; " in last
        assert last.endswith(" (and 1 more seeds)")


@pytest.mark.usefixtures("_quick")
def test_waiting_for_a_crawl_names_the_seeds_that_failed_and_its_errors_by_kind(ask: Ask, node: FakeNode) -> None:
    ends_after(node, 3, "complete")
    node.counters = {"errors": 4, "errors_404": 3, "errors_dns": 1}
    node.answers = {"http://b.example/": {"state": "dead", "reason": "robots", "detail": "robots.txt disallows it"}}
    command = ask("submit", "a.example", "b.example", "--wait")
    assert command.code == 0
    lines = command.stdout.splitlines()
    assert "  errors     404 3, dns 1" in lines
    assert lines[-2].startswith("  seed       http://b.example/: robots.txt disallows it; ask the site's owner")
    assert [call for call in node.asked if call[0] == "why"] == [
        ("why", "http://a.example/", CRAWL),
        ("why", "http://b.example/", CRAWL),
    ]


@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_stops_waiting_is_told_how_to_come_back(number: signal.Signals, ask: Ask, node: FakeNode) -> None:
    before = signal.signal(number, signal.default_int_handler)  # as `main` does
    ends_after(node, 2, "", lambda: os.kill(os.getpid(), number))
    ended = ask("submit", "a.example", "--wait")
    assert ended.code == 11
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("dhtcrawl: the crawl goes on; ")
    assert f"dhtcrawl crawls {ID[:12]}" in last
    assert f"dhtcrawl stop {ID[:12]}" in last
    assert f"dhtcrawl gather {ID[:12]} --out DIR" in last
    after = signal.signal(number, before)
    assert after == signal.default_int_handler
    assert not [call for call in node.asked if call[0] == "control"]


@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize("options", [["-q"], ["-v"], ["-vv"], ["-q", "--log-format", "json"]], ids=" ".join)
def test_as_much_is_said_on_stderr_as_is_wanted_and_the_same_on_stdout(
    options: list[str], ask: Ask, node: FakeNode
) -> None:
    ends_after(node, 3, "complete")
    ended = ask("submit", "a.example", "--wait", *options)
    assert ended.code == 0
    assert ended.stdout.splitlines()[0] == ID
    shown, logged = "7 pages" in ended.stderr, "dhtcrawl.cli" in ended.stderr
    assert (shown, logged) == ("-q" not in options, "-q" not in options)
    assert (f"GET /crawls/{ID} brought" in ended.stderr) == ("-vv" in options)
    if "-q" in options:
        assert ended.stderr == ""
    else:
        assert f"has taken crawl {ID[:12]}" in ended.stderr


@pytest.mark.usefixtures("_quick")
def test_who_stops_waiting_quietly_is_told_how_to_come_back_all_the_same(ask: Ask, node: FakeNode) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    ends_after(node, 2, "", lambda: os.kill(os.getpid(), signal.SIGINT))
    ended = ask("submit", "a.example", "--wait", "-q", "--json")
    signal.signal(signal.SIGINT, before)
    assert ended.code == 11
    (line,) = ended.stderr.splitlines()
    assert line.startswith("dhtcrawl: the crawl goes on; ")


class Holder(FakeNode):
    """A node that has what a crawl of the demo site left behind, and knows of one that is gone."""

    def __init__(self, crawled: Path) -> None:
        super().__init__()
        self.engine = LevelEngine(node_dir(crawled) / "store")
        self.txn = Txn(self.engine, {})
        (self.record,) = catalog.crawls(self.txn)
        self.id = load_or_create(node_dir(crawled))
        self.known = {self.record.crawl_id: self.one(self.record.crawl_id, "ended", "complete")}
        self.archive = DiskDirectory(crawled / "archive")
        self.gone: list[bytes] = []

    async def submit(self, spec: CrawlSpec) -> dict[str, Any]:
        return {"crawl": self.record.crawl_id.hex()}

    async def export_record(self, crawl_id: bytes) -> bytes:
        return to_wire(replace(self.record, participants=[node.hex() for node in (self.id, *self.gone)]))

    async def export_nodes(self, crawl_id: bytes) -> list[dict[str, Any]]:
        return [
            {"node": node.hex(), "reachable": True, "counters": {"pages": 3}, "seconds": 7.5}
            for node in (self.id, *self.gone)
        ]

    async def export_rows(
        self, crawl_id: bytes, node: bytes, kind: bytes, cursor: bytes
    ) -> tuple[list[Row], bytes | None]:
        if node in self.gone:
            raise ApiError(502, "it does not answer")
        return export.export_rows(self.txn, crawl_id, kind, cursor, bytes_max=4096)

    async def export_files(self, crawl_id: bytes, node: bytes) -> list[tuple[str, int]]:
        return export.export_files(self.txn, crawl_id)

    async def export_chunk(self, crawl_id: bytes, node: bytes, name: str, offset: int, limit: int) -> bytes:
        return export.export_chunk(self.txn, crawl_id, self.archive, name, offset, min(limit, 10_000))


@pytest.fixture
def holder(copy: Path) -> Iterator[Holder]:
    node = Holder(copy)
    yield node
    node.engine.close()


def test_with_out_the_outputs_of_all_nodes_are_gathered(
    holder: Holder, demo: DemoCrawl, here: Here, tmp_path: Path
) -> None:
    out = tmp_path / "gathered"
    with running(holder) as admin:
        ended = here("submit", demo.url, "--wait", "--json", "--out", out, "--admin", admin)
        assert ended.code == 0, ended
        assert "it holds another crawl" in here("submit", demo.url, "--wait", "--out", out, "--admin", admin).message()
    summary, before = json.loads(ended.stdout), json.loads((demo.out / "summary.json").read_text())
    same = (
        "crawl",
        "complete",
        "pages",
        "bytes",
        "redirects",
        "errors",
        "skipped",
        "urls_seen",
        "lost",
        "pages_missing",
    )
    assert {name: summary[name] for name in same} == {name: before[name] for name in same}
    assert (summary["seconds"], summary["nodes"]) == (7.5, 1)
    assert here("verify", out).code == 0
    assert here("fsck", "--out", out).code == 0
    assert secrets_in(out) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_interrupts_the_gathering_is_told_how_it_goes_on(
    number: signal.Signals, holder: Holder, demo: DemoCrawl, here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def interrupting(node: Holder, crawl_id: bytes, of: bytes) -> list[tuple[str, int]]:
        os.kill(os.getpid(), number)
        return export.export_files(node.txn, crawl_id)

    out, crawl = tmp_path / "gathered", holder.record.crawl_id.hex()
    before = signal.signal(number, signal.default_int_handler)  # as `main` does
    with running(holder) as admin:
        with monkeypatch.context() as patched:
            patched.setattr(Holder, "export_files", interrupting)
            ended = here("submit", demo.url, "--wait", "--out", out, "--admin", admin)
        signal.signal(number, before)
        assert ended.code == 11
        again = f"dhtcrawl gather {crawl[:12]} --out {out}"
        assert ended.stderr.splitlines()[-1] == f"dhtcrawl: interrupted; the crawl has ended; '{again}' goes on"
        assert here("gather", crawl[:12], "--out", out, "--admin", admin).code == 0


def test_a_node_that_is_gone_leaves_a_gathering_incomplete(
    holder: Holder, demo: DemoCrawl, here: Here, tmp_path: Path
) -> None:
    holder.gone = [OTHER]
    with running(holder) as admin:
        ended = here("submit", demo.url, "--wait", "--out", tmp_path / "gathered", "--admin", admin)
    assert ended.code == 1
    assert f"dhtcrawl: node {OTHER.hex()[:12]} cannot be asked" in ended.stderr
    assert "  incomplete  in " in ended.stdout


@pytest.mark.parametrize("gone", [[], [OTHER]])
@pytest.mark.parametrize("command", ["submit", "gather"])
def test_a_limited_crawl_ends_a_gathering_with_1_where_a_node_is_gone(
    command: str, gone: list[bytes], holder: Holder, here: Here, tmp_path: Path
) -> None:
    crawl, words = holder.record.crawl_id, {"submit": ["a.example", "--wait"], "gather": [holder.record.crawl_id.hex()]}
    holder.record = replace(holder.record, ended="page-limit")
    holder.known = {crawl: holder.one(crawl, "ended", "page limit")}
    holder.gone = gone
    with running(holder) as admin:
        ended = here(command, *words[command], "--out", tmp_path / "gathered", "--admin", admin)
    assert (ended.code, "lacks what only it holds" in ended.stderr) == ((1, True) if gone else (21, False))


def test_a_crawl_is_gathered_later_and_again(holder: Holder, demo: DemoCrawl, here: Here, tmp_path: Path) -> None:
    out, crawl = tmp_path / "gathered", holder.record.crawl_id.hex()
    holder.gone = [OTHER]
    with running(holder) as admin:
        partly = here("gather", crawl[:8], "--out", out, "--admin", admin)
        assert partly.code == 1
        assert f"dhtcrawl: node {OTHER.hex()[:12]} cannot be asked" in partly.stderr
        assert "  incomplete  in " in partly.stdout
        holder.gone = []
        whole = here("gather", crawl[:8], "--out", out, "--json", "--admin", admin)
        assert whole.code == 0, whole
        before = {path: path.read_bytes() for path in out.rglob("*.*")}
        again = here("gather", crawl[:8], "--out", out, "--json", "--admin", admin)
        assert (again.code, json.loads(again.stdout)) == (0, json.loads(whole.stdout))
        assert "nothing was left to gather" in here("gather", crawl[:8], "--out", out, "--admin", admin).stdout
    assert {path: path.read_bytes() for path in out.rglob("*.*")} == before
    assert json.loads(whole.stdout)["pages"] == json.loads((demo.out / "summary.json").read_text())["pages"]
    assert here("verify", out).code == 0
    assert secrets_in(out) == []


def test_a_crawl_that_went_on_after_its_end_is_gathered_once_more(holder: Holder, here: Here, tmp_path: Path) -> None:
    out, crawl = tmp_path / "gathered", holder.record.crawl_id.hex()
    holder.record = replace(holder.record, version=2)
    with running(holder) as admin:
        assert here("gather", crawl[:8], "--out", out, "--admin", admin).code == 0
        before = (out / "summary.json").stat().st_ino
        assert "nothing was left to gather" in here("gather", crawl[:8], "--out", out, "--admin", admin).stdout
        assert (out / "summary.json").stat().st_ino == before
        holder.record = replace(holder.record, version=4)  # released, and ended again
        again = here("gather", crawl[:8], "--out", out, "--admin", admin)
        assert (again.code, "nothing was left" in again.stdout) == (0, False)
        assert "nothing was left to gather" in here("gather", crawl[:8], "--out", out, "--admin", admin).stdout
    assert here("verify", out).code == 0


def test_gather_says_what_each_node_has_sent_where_that_is_wanted(holder: Holder, here: Here, tmp_path: Path) -> None:
    crawl = holder.record.crawl_id.hex()
    with running(holder) as admin:
        quiet = here("gather", crawl[:8], "--out", tmp_path / "quiet", "--admin", admin, "-q")
        assert (quiet.code, quiet.stderr) == (0, "")
        told = here("gather", crawl[:8], "--out", tmp_path / "told", "--admin", admin, "-vv")
    assert told.code == 0
    assert "INFO dhtcrawl.cli.gather: the rows of 1 nodes are here; their archive files are next" in told.stderr
    assert f"INFO dhtcrawl.cli.gather: node {holder.id.hex()[:12]} has 1 archive files, " in told.stderr
    assert "DEBUG dhtcrawl.cli.client: GET " in told.stderr


def test_of_a_crawl_that_still_runs_gather_brings_what_there_is(holder: Holder, here: Here, tmp_path: Path) -> None:
    out, crawl = tmp_path / "gathered", holder.record.crawl_id
    holder.record = replace(holder.record, ended="")
    holder.known = {crawl: holder.one(crawl, "running", "")}
    with running(holder) as admin:
        so_far = here("gather", crawl.hex(), "--out", out, "--json", "--admin", admin)
        assert so_far.code == 0, so_far
        assert "goes on; the same command brings" in so_far.stderr
        assert json.loads(so_far.stdout)["complete"] is False
        holder.record = replace(holder.record, ended="complete")
        holder.known = {crawl: holder.one(crawl, "ended", "complete")}
        whole = here("gather", crawl.hex(), "--out", out, "--json", "--admin", admin)
    assert whole.code == 0, whole
    assert json.loads(whole.stdout)["complete"] is True
    assert here("verify", out).code == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [((ID,), "--out"), (("no-crawl", "--out", "x"), "no-crawl"), (("f" * 32, "--out", "x"), "f" * 8)],
)
def test_what_cannot_be_gathered_is_named(words: tuple[str, ...], told: str, ask: Ask, tmp_path: Path) -> None:
    ended = ask("gather", *words)
    assert ended.code == 2, ended
    assert told in ended.message()


def test_a_gathering_that_fails_says_that_nothing_is_lost(ask: Ask, node: FakeNode, tmp_path: Path) -> None:
    node.known[CRAWL] = node.one(CRAWL, "ended", "complete")
    ended = ask("submit", "a.example", "--wait", "--out", str(tmp_path / "my crawl"))
    assert ended.code == 1
    again = f"dhtcrawl gather {ID[:12]} --out '{tmp_path / 'my crawl'}'"
    assert ended.stderr.endswith(f"the crawl has ended; '{again}' goes on\n")
    assert "sent no record of the crawl" in ended.stderr


def test_a_crawls_end_has_an_exit_code() -> None:
    assert {stop.word: exit_of(stop.word) for stop in Stop} == {stop.word: stop.exit_code for stop in Stop}
    assert [stop_of(word) for word in ("page-limit", "stopped", "complete")] == [
        Stop.PAGE_LIMIT,
        Stop.INTERRUPTED,
        None,
    ]


@pytest.mark.loops("asyncio")
async def test_a_node_that_is_silent_or_just_started_is_waited_for(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wait, "POLL_S", 0.001)
    asked = []

    def is_open() -> bool:
        asked.append(True)
        return len(asked) > 3

    port = free_port()
    async with asyncio.timeout(30), NodeClient(("127.0.0.1", port)) as client, asyncio.TaskGroup() as group:
        following = group.create_task(wait.follow(client, ID, Screen()))
        await asyncio.sleep(0)
        async with serve(node, "127.0.0.1", port, is_open=is_open):
            node.known[CRAWL] = node.one(CRAWL, "ended", "complete")
            assert (await following)["ended"] == "complete"
    assert len(asked) == 4, "three times it read its store"


@pytest.mark.loops("asyncio")
async def test_a_node_that_never_gets_ready_is_given_up(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait, "POLL_S", 0.001)
    monkeypatch.setattr(wait, "SILENCE_MAX_S", 0.0)
    async with (
        asyncio.timeout(30),
        serve(node, "127.0.0.1", 0, is_open=lambda: False) as (host, port),
        NodeClient((host, port)) as client,
    ):
        with pytest.raises(NotNow, match="reads its store; ask again in a moment"):
            await wait.follow(client, ID, Screen())


@pytest.mark.loops("asyncio")
async def test_who_waits_for_a_node_that_says_nothing_may_stop_waiting() -> None:
    class Silent(NodeClient):
        async def crawl(self, crawl: str) -> dict[str, Any]:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()
            raise AssertionError("it never answers")

    async with asyncio.timeout(5), Silent(("127.0.0.1", 1)) as client:
        with pytest.raises(Interrupted):
            await wait.follow(client, ID, Screen())
