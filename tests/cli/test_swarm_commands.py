"""The commands that ask a running node, against a node that is none behind a real socket."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import threading
from pathlib import Path

import click
import pytest
from demo_site import DemoServer
from web.fake import CRAWL, NODE, OTHER, TWIN, FakeNode

from dhtcrawl.cli import look
from dhtcrawl.cli.client import ADMIN_FILE
from dhtcrawl.cli.main import cli
from dhtcrawl.cli.places import node_dir
from dhtcrawl.cli.runtime import locked
from dhtcrawl.identity import load_or_create
from dhtcrawl.web.api import ApiError

from .conftest import Ask, DemoCrawl, Ended, Here, free_port

ID = CRAWL.hex()


# -- what is asked, and what is shown --


@pytest.mark.parametrize(
    "args",
    [
        ["status"],
        ["peers"],
        ["crawls"],
        ["crawls", ID[:4]],
        ["crawls", "--manual"],
        ["crawls", ID[:4], "--release", "example.org"],
        ["locate", "example.org"],
        ["why", "example.org"],
        ["explain-host", "example.org"],
        ["pause", ID[:4]],
        ["leave"],
    ],
    ids=lambda args: args[0],
)
@pytest.mark.parametrize("columns", [80, 40])
def test_every_answer_fits_and_has_its_json(
    args: list[str], columns: int, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    ended = ask(*args)
    assert (ended.code, ended.stderr) == (0, "")
    widest = max(ended.stdout.splitlines(), key=len)
    # An id of 40 digits is not broken in two; sentences wrap by themselves.
    assert len(widest) <= columns or args[0] in ("why", "leave") or re.search(r"[0-9a-f]{32}", widest), widest
    plain = ask(*args, "--json")
    assert plain.stdout.count("\n") == 1
    assert json.loads(plain.stdout)


def test_status_says_what_a_person_wants_to_know(ask: Ask) -> None:
    shown = " ".join(ask("status").stdout.split())
    for part in (f"node {NODE.hex()}", "state active", "uptime 1:02:03", "members active 2", "storage sync yes"):
        assert part in shown


def test_peers_has_a_row_for_each_member(ask: Ask) -> None:
    head, own, other = ask("peers").stdout.splitlines()
    assert head.split() == ["node", "address", "state", "round", "trip"]
    assert own.split() == [NODE.hex()[:12], "*", "127.0.0.1:8468", "active"]
    assert other.split()[0] == OTHER.hex()[:12]
    assert other.endswith("suspected     12.3 ms")


def test_crawls_lists_all_and_shows_one(ask: Ask, node: FakeNode) -> None:
    node.known[TWIN] = node.one(TWIN, "ended", "page limit", 90)
    lines = ask("crawls").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["crawl", ID[:12], TWIN.hex()[:12]]
    assert lines[2].split()[1:4] == ["page", "limit", "90"]
    one = ask("crawls", ID)
    assert "waiting for  3 tasks in a queue" in one.stdout
    assert len(re.findall(r"^[0-9a-f]{12} ", one.stdout, re.MULTILINE)) == 2
    node.known.clear()
    assert ask("crawls").stdout == "no crawls; 'dhtcrawl submit URL' begins one\n"


def test_where_there_is_no_room_the_least_needed_columns_go(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    heads = {}
    for columns in (100, 60, 40):
        monkeypatch.setenv("COLUMNS", str(columns))
        heads[columns] = ask("crawls").stdout.split("\n")[0].split()
    assert heads == {
        100: ["crawl", "state", "pages", "queued", "errors", "bytes", "time", "seeds"],
        60: ["crawl", "state", "pages", "queued", "errors", "time", "seeds"],
        40: ["crawl", "state", "pages", "seeds"],
    }


def test_locate_names_the_owner_and_the_backups(ask: Ask, node: FakeNode) -> None:
    lines = ask("locate", "EXAMPLE.org/a#b", "--crawl", ID[:8]).stdout.splitlines()
    assert [line.split()[:2] for line in lines[-2:]] == [["owner", NODE.hex()[:12]], ["backup", OTHER.hex()[:12]]]
    assert ("locate", "http://example.org/a", CRAWL) in node.asked


@pytest.mark.parametrize(
    ("typed", "host"),
    [("Example.ORG", "example.org"), ("example.org:8080", "example.org:8080"), ("https://example.org/x", "example.org"),
     ("[::1]:8080", "[::1]:8080")],
)  # fmt: skip
def test_a_host_is_asked_for_as_the_swarm_names_it(typed: str, host: str, ask: Ask, node: FakeNode) -> None:
    assert ask("explain-host", typed).code == 0
    assert node.asked == [("explain_host", host)]


def test_what_another_machine_says_moves_no_cursor(ask: Ask, node: FakeNode) -> None:
    node.known[CRAWL]["seeds"] = ["http://a.example/\x1b[2J\r\n\x07"]
    node.known[CRAWL]["state"] = "\x9b31m"
    for args in (["crawls"], ["crawls", ID]):
        assert re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", ask(*args).stdout) is None
    node.found = [{"url": "http://a/\x1b[2J", "state": "\x1b[1m", "detail": "\x1b]0;x\x07"}]
    assert "\x1b" not in ask("why", "http://a/").stdout


def watched(ask: Ask, node: FakeNode, *args: str) -> Ended:
    """How `status --watch` ends with Ctrl-C, after it has asked three times."""
    # A shell starts what it puts in the background with the signal ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt(_: object) -> None:
        if len(node.asked) == 3:
            os.kill(os.getpid(), signal.SIGINT)

    node.on_call = interrupt
    try:
        return ask("status", "--watch", *args)
    finally:
        signal.signal(signal.SIGINT, before)


def test_watch_goes_on_until_it_is_interrupted(ask: Ask, node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "WATCH_EVERY_S", 0.001)
    ended = watched(ask, node, "--json")
    assert (ended.code, ended.stderr) == (0, "")
    assert len(ended.stdout.splitlines()) >= 2
    assert {json.loads(line)["node"] for line in ended.stdout.splitlines()} == {NODE.hex()}


@pytest.mark.parametrize(("name", "text", "clears"), [("NO_COLOR", "1", True), ("TERM", "dumb", False)])
def test_watch_clears_a_terminal_that_can_be_cleared(
    name: str, text: str, clears: bool, ask: Ask, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look, "WATCH_EVERY_S", 0.001)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv(name, text)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert ("\x1b[H\x1b[2J" in watched(ask, node).stdout) == clears


# -- control --


def test_what_was_given_up_is_listed_with_whole_urls_and_reasons(ask: Ask, node: FakeNode) -> None:
    lines = ask("crawls", ID, "--manual").stdout.splitlines()
    assert lines == [
        f"crawl {ID[:12]}: 2 given up",
        "  https://example.org/gone",
        "    3 tries: timeout: no answer in 30 s",
        "  https://example.org/zoo",
        "    1 try: no more is known",
    ]
    node.manual |= {"silent": [OTHER.hex()], "cut": True}
    lines = ask("crawls", "--manual").stdout.splitlines()
    assert lines[0].endswith("2 or more given up")
    assert lines[-1].split()[:5] == ["node", OTHER.hex()[:12], "does", "not", "answer:"]
    node.manual = {"tasks": [], "silent": [], "cut": False}
    assert "0 given up" in ask("crawls", "--manual").stdout
    node.known.clear()
    assert ask("crawls", "--manual").stdout == "nothing was given up\n"


def test_what_was_given_up_is_released_and_dropped(ask: Ask, node: FakeNode) -> None:
    ended = ask(
        "crawls",
        ID,
        "--release",
        "https://Example.org/a",
        "--release",
        "https://example.org/b",
        "--drop",
        "example.org/c",
    )
    assert (ended.code, ended.stdout) == (0, "2 to be tried again\n1 dropped\n")
    decided = [call[2:] for call in node.asked if call[0] == "decide"]
    assert decided == [
        ("release", ["https://example.org/a", "https://example.org/b"]),
        ("drop", ["http://example.org/c"]),
    ]
    node.asked.clear()
    assert ask("crawls", ID, "--release", "all").stdout == "2 to be tried again\n"
    assert node.asked[-1] == ("decide", CRAWL, "release", None)
    node.manual["silent"] = [OTHER.hex()]
    ended = ask("crawls", ID, "--drop", "all")
    assert (ended.code, OTHER.hex()[:12] in ended.stderr) == (1, True)


@pytest.mark.parametrize(
    "args", [["--release", "all"], [ID, "--release", "ftp://x/"], [ID, "--release", "all", "--drop", "example.org/"]]
)
def test_a_decision_that_cannot_be_meant_is_refused(args: list[str], ask: Ask, node: FakeNode) -> None:
    ended = ask("crawls", *args)
    assert ended.code == 2
    assert ended.message()
    assert not node.asked


@pytest.mark.parametrize(("action", "state"), [("pause", "paused"), ("resume", "running"), ("stop", "stopping")])
def test_a_crawl_is_controlled_by_the_start_of_its_id(action: str, state: str, ask: Ask, node: FakeNode) -> None:
    assert ask(action, ID[:6].upper()).stdout == f"crawl {ID[:12]}: {state}\n"
    assert node.asked[-1] == ("control", CRAWL, action)


def test_resume_sends_the_limits_that_were_given_and_no_other(
    ask: Ask, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DHTCRAWL_CRAWL_SIZE_LIMIT_BYTES", "1GiB")
    assert ask("resume", ID, "--max-pages", "0", "--delay", "2s").stdout == f"crawl {ID[:12]}: running\n"
    assert node.asked[-1] == ("control", CRAWL, "resume", {"delay_s": 2.0, "max_pages": 0})
    assert ask("resume", ID, "--time-limit", "soon").code == 2


def test_one_crawl_is_shown_with_its_errors_by_kind_in_one_line(ask: Ask, node: FakeNode) -> None:
    node.counters = {"errors": 6, "errors_404": 3, "errors_dns": 1, "errors_503": 2}
    node.known[CRAWL] = node.one(CRAWL)
    lines = ask("crawls", ID).stdout.splitlines()
    assert [line.split(None, 3) for line in lines if line.startswith("errors by")] == [
        ["errors", "by", "kind", "404 3, 503 2, dns 1"]
    ]
    assert not [line for line in lines if line.startswith(("errors 404", "errors dns"))]


@pytest.mark.parametrize(
    ("crawl", "says"),
    [("", "the crawl's id is empty"), ("ab1", "give 4 hex digits"), ("ffff", "no crawl ffff here"),
     ("ab12", "could be any of 2"), ("../status", "is no crawl"), ("a?b", "is no crawl"),
     ("ab12\udcff", "is no crawl")],
)  # fmt: skip
def test_a_crawl_that_is_not_there_is_wrong_usage(crawl: str, says: str, ask: Ask, node: FakeNode) -> None:
    node.known[TWIN] = node.one(TWIN)
    for command in ("pause", "crawls"):
        ended = ask(command, crawl)
        assert (ended.code, says in ended.message()) == (2, True), ended
    if crawl:
        ended = ask("why", "https://example.org/", "--crawl", crawl)
        assert (ended.code, says in ended.message()) == (2, True), ended


def test_what_cannot_be_done_now_says_so(ask: Ask, node: FakeNode) -> None:
    node.known[CRAWL]["state"] = "ended"
    assert "has ended" in ask("pause", ID).message()


def test_leave_tells_what_became_of_the_records(ask: Ask, node: FakeNode) -> None:
    assert "its records are with the others, to which it sent 12 that they lacked" in ask("leave").stdout
    node.left = {"handed_over": 0, "left": 0}  # the others had them all
    assert "0 records are with" not in ask("leave").stdout
    node.left = {"handed_over": 0, "left": 0, "alone": True}
    assert "it was the last one" in ask("leave").stdout
    node.left = {"handed_over": 3, "left": 9}
    ended = ask("leave")
    assert (ended.code, "9 records that no other node has" in ended.message()) == (31, True)
    assert ask("leave", "--json").code == 31


# -- who answers --


def test_without_a_node_there_is_one_line_with_the_remedy(here: Here) -> None:
    where = f"127.0.0.1:{free_port()}"
    for args in (["status"], ["peers"], ["stop", ID], ["submit", "example.org"], ["why", "example.org"]):
        ended = here(*args, "--admin", where)
        assert ended.code == 1
        assert ended.message() == (
            f"dhtcrawl: no node answers at {where}; start one with 'dhtcrawl join', or name it with --admin"
        )


def test_the_node_to_ask_comes_from_the_environment_too(
    here: Here, admin: str, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DHTCRAWL_NODE_ADMIN", admin.replace("127.0.0.1", "0.0.0.0"))
    assert here("status").code == 0
    monkeypatch.setenv("DHTCRAWL_NODE_ADMIN", "here")
    ended = here("status")
    assert (ended.code, "use HOST:PORT" in ended.message()) == (4, True)


def test_a_node_that_ends_in_the_middle_of_an_answer_is_gone_and_not_another_version(here: Here) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer_half() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{")

        answering = threading.Thread(target=answer_half)
        answering.start()
        where = f"127.0.0.1:{server.getsockname()[1]}"
        ended = here("status", "--admin", where)
        answering.join()
    assert (ended.code, ended.message()) == (
        1,
        f"dhtcrawl: the answer of the node at {where} breaks off; see its log, or name another with --admin",
    )


def test_something_else_that_answers_is_told_apart(here: Here, server: DemoServer) -> None:
    where = server.url.removeprefix("http://").rstrip("/")
    ended = here("status", "--admin", where)
    assert (ended.code, "is no node of this version" in ended.message()) == (1, True)


def test_a_node_that_fails_is_quoted(ask: Ask, node: FakeNode) -> None:
    node.error = ApiError(503, "the coordinator does not answer; ask again")
    ended = ask("status")
    assert (ended.code, "the coordinator does not answer; ask again" in ended.message()) == (1, True)


# -- why --


def test_why_asks_the_node_that_holds_the_store(
    copy: Path, demo: DemoCrawl, here: Here, node: FakeNode, admin: str
) -> None:
    data_dir = node_dir(copy)
    (data_dir / ADMIN_FILE).write_text(f"{admin}\n")
    with locked(data_dir):
        refused = here("why", demo.url, "--out", copy)
        assert (refused.code, "in use by process" in refused.message()) == (2, True), "that node holds another store"
        assert ("why", demo.url, None) not in node.asked
        node.id = load_or_create(data_dir)
        assert "is queued" in here("why", demo.url, "--out", copy).stdout
        assert here("why", demo.url, "--out", copy, "--crawl", "ffff").code == 2
    stored = json.loads(here("why", demo.url, "--out", copy, "--json").stdout)
    assert stored[0]["state"] == "done"
    assert [call for call in node.asked if call[0] == "why"] == [("why", demo.url, None)]


def test_why_asks_a_running_node_where_no_crawl_is(
    here: Here, admin: str, node: FakeNode, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DHTCRAWL_NODE_ADMIN", admin)
    assert "is queued" in here("why", "example.org").stdout
    monkeypatch.setenv("DHTCRAWL_NODE_ADMIN", f"127.0.0.1:{free_port()}")
    assert "no crawl here" in here("why", "example.org").message()
    assert here("why", "example.org", "--out", tmp_path, "--admin", admin).code == 2


def test_every_command_that_asks_a_node_takes_its_address() -> None:
    names = ("submit", "status", "peers", "crawls", "pause", "resume", "stop", "leave", "locate", "why", "explain-host")
    for name in names:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        options = {option for param in command.params for option in param.opts}
        assert {"--admin", "--json"} <= options
