"""`join --nodes N`: several nodes of a swarm, one command."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

from loopback import free_address

from .crawler import Crawler, Running
from .deadline import until
from .swarm import DEADLINE_S


def joined(running: Running, nodes: int) -> list[dict[str, Any]]:
    """What each node said, once all of them take part."""
    until(lambda: running.ended or running.outcome().stdout.count("\n") == nodes, "all take part", DEADLINE_S)
    assert not running.ended, running.outcome()
    return [json.loads(line) for line in running.outcome().stdout.splitlines()]


def test_several_nodes_are_one_swarm_and_leave_together_and_are_the_same_again(
    crawler: Crawler, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    host = free_address().rpartition(":")[0]
    places = ("--data-dir", data, "--listen", f"{host}:8468", "--admin", f"{host}:8469")
    argv = ("join", "--nodes", "3", "--json", *places)
    with crawler.start(*argv) as running:
        first = joined(running, 3)
        assert [node["data_dir"] for node in first] == [str(data), f"{data}-2", f"{data}-3"]
        assert [node["address"] for node in first] == [f"{host}:8468", f"{host}:8470", f"{host}:8472"]
        assert {os.sched_getscheduler(node["pid"]) for node in first} == {os.SCHED_BATCH}
        peers = json.loads(crawler.run("peers", "--json", "--admin", first[2]["admin"]).ended_with(0).stdout)
        assert {peer["node"] for peer in peers} == {node["node"] for node in first}
        # Ctrl-C in a terminal reaches the nodes, too: that is still once.
        running.send(signal.SIGINT, to_all=True)
        ended = running.wait().ended_with(0)
    assert "dhtcrawl: leaving; 3 nodes hand over what they hold" in ended.stderr
    with crawler.start(*argv) as running:
        again = joined(running, 3)
        assert [node["node"] for node in again] == [node["node"] for node in first]
        # One of them is killed, and the command that starts it again is told; the others go on.
        os.kill(again[1]["pid"], signal.SIGKILL)
        until(lambda: "was killed by SIGKILL; the others go on" in running.stderr, "it is told", DEADLINE_S)
        crawler.run("status", "--admin", again[0]["admin"]).ended_with(0)
        running.send(signal.SIGTERM)
        ended = running.wait().ended_with(1)
    assert f"this starts it again: dhtcrawl join --data-dir {data}-2 --listen {host}:8470" in ended.stderr
    for node in (*first, *again):
        assert not Path(f"/proc/{node['pid']}").exists()


def test_an_admin_port_that_is_not_encrypted_is_told_of_each_node_also_with_json(
    crawler: Crawler, tmp_path: Path
) -> None:
    places = ("--data-dir", tmp_path / "data", "--listen", f"{free_address().rpartition(':')[0]}:0")
    token = ("--admin", "0.0.0.0:0", "--admin-token-file", tmp_path / "token")
    with crawler.start("join", "--nodes", "2", "--json", *places, *token) as running:
        admins = [node["admin"] for node in joined(running, 2)]
        running.send(signal.SIGTERM)
        ended = running.wait().ended_with(0)
    for number, admin in enumerate(admins, 1):
        assert f"dhtcrawl: node {number}: the admin port {admin} is not encrypted: name a certificate" in ended.stderr


def test_a_port_that_is_taken_is_named_and_nothing_goes_on(crawler: Crawler, tmp_path: Path) -> None:
    host = free_address().rpartition(":")[0]
    with socket.create_server((host, 0)) as taken:
        port = taken.getsockname()[1]
        argv = ("--data-dir", tmp_path / "data", "--listen", f"{host}:{port - 1}", "--admin", f"{host}:{port - 100}")
        ended = crawler.run("join", "--nodes", "2", *argv).ended_with(2)
    assert (
        f"dhtcrawl: node 2: --listen {host}:{port}: address already in use; name another with --listen" in ended.stderr
    )
    assert "dhtcrawl: node 2 ended with exit code 2 and does not take part: the others are stopped, too" in ended.stderr


def test_a_key_that_cannot_be_used_ends_the_command_as_it_ends_one_node(crawler: Crawler, tmp_path: Path) -> None:
    key = tmp_path / "data-2" / "identity.pem"
    key.parent.mkdir()
    key.touch(0o600)
    ended = crawler.run("join", "--nodes", "2", "--data-dir", tmp_path / "data").ended_with(32)
    alone = crawler.run("join", "--data-dir", key.parent).ended_with(32)
    assert ended.one_line() == alone.one_line()


def test_an_address_of_another_machine_is_told_from_one_that_is_taken(crawler: Crawler, tmp_path: Path) -> None:
    ended = crawler.run("join", "--open-swarm", "--data-dir", tmp_path / "data", "--listen", "203.0.113.9:8468")
    said = ended.ended_with(2).stderr
    assert "--listen 203.0.113.9:8468: cannot assign requested address; name another with --listen" in said
