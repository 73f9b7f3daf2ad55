"""The nodes of `crawl --nodes` are heard at the terminal, in the format and from the level that was asked for."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import pytest
from e2e.stub import StubServer

from dhtcrawl.cli.node_logs import BURST, LINE_BYTES_MAX, READ_BYTES_MAX, NodeLogs, kept_log, last_message

from .conftest import spawn

NODE = "ab" * 20


def row(message: str, level: str = "warning", logger: str = "dhtcrawl.policy.guard", **fields: object) -> str:
    told = {"ts": "2026-03-04T05:06:07.089Z", "level": level, "logger": logger, "message": message, "node": NODE}
    return json.dumps(told | fields) + "\n"


def test_each_record_of_a_node_is_told_once_with_the_node_its_time_and_its_fields(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log, logs = tmp_path / "log", NodeLogs()
    logs.follow(log)
    assert logs.relay() is False, "it is not there yet"
    whole = row("a policy failed", url="http://a/", traceback="Traceback\nValueError")
    with caplog.at_level(logging.INFO):
        log.write_text(whole[:40])
        logs.relay()
        assert caplog.records == [], "a line is told once it is whole"
        log.write_text(
            whole + row("a member came", "info", "dhtcrawl.rpc.membership.gossip") + row("not asked", "debug")
        )
        logs.relay()
        logs.relay()
    first, second = caplog.records
    assert first.getMessage() == "node abababababab: a policy failed"
    assert (first.levelname, first.name) == ("WARNING", "dhtcrawl.policy.guard")
    assert (first.created, round(first.msecs)) == (1772600767.089, 89)
    fields = vars(first)
    assert (fields["node"], fields["url"], fields["traceback"]) == (NODE, "http://a/", "Traceback\nValueError")
    assert second.getMessage() == "node abababababab: a member came"


def test_what_a_node_says_to_its_user_is_left_to_the_process_that_started_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log, logs = tmp_path / "log", NodeLogs()
    log.write_text(row("the disk is full", "error", "dhtcrawl") + row("a policy failed"))
    logs.follow(log)
    logs.relay()
    assert [record.getMessage() for record in caplog.records] == ["node abababababab: a policy failed"]
    assert last_message(log) == "the disk is full"
    log.write_text("Fatal Python error: Aborted\n")
    assert last_message(log) == "Fatal Python error: Aborted"
    log.write_text("")
    assert last_message(log) is None


def test_what_is_no_json_is_told_and_a_file_of_nothing_but_one_line_takes_no_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log, logs = tmp_path / "log", NodeLogs()
    log.write_bytes(
        b'Fatal Python error: \xff\n[1]\n{"message": {"a": 1}, "level": 7, "ts": "x"}\n\n' + b"[" * 100_000 + b"\n"
    )
    logs.follow(log)
    assert logs.relay() is False
    said = [record.getMessage() for record in caplog.records]
    assert said[:3] == ["Fatal Python error: \ufffd", "[1]", "{'a': 1}"]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    caplog.clear()
    with log.open("ab") as file:
        file.write(b"x" * (2 * READ_BYTES_MAX) + b"\n" + row("the next").encode())
    while logs.relay():
        pass
    *_, last = caplog.records
    assert last.getMessage() == "node abababababab: the next"
    assert sum(len(record.getMessage()) for record in caplog.records) < READ_BYTES_MAX + LINE_BYTES_MAX


def test_of_a_node_that_logs_much_some_lines_are_told_and_the_rest_is_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    logs, paths = NodeLogs(lambda: now[0]), [tmp_path / "1.log", tmp_path / "2.log"]
    paths[0].write_text("".join(row(f"line {number}") for number in range(1_000)))
    paths[1].write_text(row("the other"))
    for path in paths:
        logs.follow(path)
    logs.relay()
    said = [record.getMessage().partition(": ")[2] for record in caplog.records]
    assert said == [*(f"line {number}" for number in range(BURST)), "the other"]
    caplog.clear()
    now[0] = 60.0
    with paths[0].open("a") as file:
        file.write(row("one more"))
    logs.relay()
    logs.relay(last=True)
    assert [record.getMessage() for record in caplog.records] == [
        f"{1_001 - BURST} more lines of a node are in {paths[0]}"
    ]


def test_a_log_is_added_to_and_only_what_this_run_said_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, logs = tmp_path / "logs" / "1.log", NodeLogs()
    with kept_log(path) as since:
        assert since == 0
    assert not path.parent.exists(), "an empty one goes"
    with kept_log(path):
        path.write_text(row("of the run before", "error", "dhtcrawl"))
    with kept_log(path) as since:
        logs.follow(path, since)
        with path.open("a") as file:
            file.write(row("of this run"))
    logs.relay()
    assert [record.getMessage() for record in caplog.records] == ["node abababababab: of this run"]
    assert (last_message(path), last_message(path, since)) == ("of the run before", "of this run")


def test_the_nodes_of_a_crawl_with_several_are_heard(tmp_path: Path) -> None:
    with StubServer() as stub:
        stub.page("/", "/a")
        stub.page("/a")
        ended = spawn(
            tmp_path, "crawl", f"{stub.url}/", "--allow-private", "--delay", "0", "--nodes", "2", "--out", "out",
            "-v", "--log-format", "json",
        )  # fmt: skip
    assert ended.code == 0, ended
    rows = [json.loads(line) for line in ended.stderr.splitlines()]
    nodes = {row["node"] for row in rows if row["message"].endswith(": this node is active")}
    assert len(nodes) == 2
    assert f"crawling {stub.url}/ with 2 nodes" in [row["message"] for row in rows if row["logger"] == "dhtcrawl"]
    assert not [row for row in rows if row["level"] in ("warning", "error")]


def test_a_log_that_somebody_removed_meanwhile_is_missed_by_nobody(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "1.log"
    with kept_log(path):
        shutil.rmtree(path.parent)
        assert last_message(path) is None
