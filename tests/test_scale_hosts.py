"""Nodes on other machines over ssh: the inventory, what ssh is told, what a script says, and one small swarm.

The ssh of the swarm is a program of ours on PATH that runs the command here, by a shell as sshd does, and passes the
port on that `-L` names.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import bench_scale
import pytest
import scale_hosts
from loopback import free_address
from scale_hosts import HostReading, Inventory, NodeHost, command_of, parse_inventory, parse_reading, script_of
from scale_site import Hosts

from dhtcrawl.errors import ConfigError

WHOLE = """
[web]
address = "203.0.113.5"

[[node]]
ssh = "crawler@one.example"
address = "192.0.2.11:8468"

[[node]]
ssh = "two"
address = "[2001:db8::12]:9000"
listen = "[::]:9000"
admin = "127.0.0.1:9001"
command = "/opt/d h/dhtcrawl"
directory = "/data"
"""
ADMIN = ("127.0.0.1", 8469)
ONE = NodeHost("crawler@one.example", ("192.0.2.11", 8468), ("192.0.2.11", 8468), ADMIN, "dhtcrawl", "/var/tmp")
TWO = NodeHost(
    "two", ("2001:db8::12", 9000), ("::", 9000), ("127.0.0.1", 9001), "/opt/d h/dhtcrawl", "/data"
)  # fmt: skip


def test_an_inventory_says_where_the_web_and_the_nodes_are() -> None:
    assert parse_inventory("hosts.toml", WHOLE) == Inventory(Hosts(18_000, "203.0.113.5"), (ONE, TWO))
    assert [scale_hosts.sizes_of(count) for count in (1, 2, 5, 16)] == [[1], [1, 2], [1, 2, 4, 5], [1, 2, 4, 8, 16]]


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ('address = "203.0.113.5"', 'address = "web.example"', "hosts.toml:3: web.address is 'web.example'; use an IP"),
        ('ssh = "two"', 'ssh = "-oProxyCommand=x"', "node.2.ssh is '-oProxyCommand=x'; name a host, such as user@"),
        ('ssh = "two"', "ssh = 2", "node.2.ssh is 2; use a word"),
        ('ssh = "two"', 'shh = "two"', "node.2 lacks 'ssh'; it is required"),
        ("192.0.2.11:8468", "192.0.2.11", "node.1.address is '192.0.2.11'; use HOST:PORT"),
        ("192.0.2.11:8468", "192.0.2.11:0", "use a port of its own"),
        ('directory = "/data"', 'folder = "/data"', "node.2.folder is no key here; there are address"),
        ('[web]', '[web]\nport = 70000', "web.port is 70000; use a port, 1 to 65535"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_an_inventory_is_told_with_its_line(before: str, after: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_inventory("hosts.toml", WHOLE.replace(before, after, 1))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_inventory_without_nodes_and_one_that_is_not_there_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no nodes; write \[\[node\]\]"):
        parse_inventory("hosts.toml", '[web]\naddress = "203.0.113.5"\n')
    with pytest.raises(SystemExit, match="bench: "):
        bench_scale.main(["--inventory", str(tmp_path / "hosts.toml")])
    few = tmp_path / "few.toml"
    few.write_text(WHOLE)
    with pytest.raises(SystemExit, match=r"has 2 nodes, and --real asks for 4"):
        bench_scale.main(["--inventory", str(few), "--real", "1,4"])


def test_the_remote_shell_gets_one_quoted_word() -> None:
    argv = command_of(TWO, "echo 'a b'\n$HOME", 4_000)
    assert argv[0] == "ssh"
    assert argv[-5:-1] == ["-L", "127.0.0.1:4000:127.0.0.1:9001", "--", "two"]
    assert shlex.split(argv[-1]) == ["exec", "sh", "-c", "echo 'a b'\n$HOME"]
    assert "-L" not in command_of(TWO, "true")


def test_what_a_person_wrote_is_quoted_in_the_script_and_no_secret_is_in_it() -> None:
    script = script_of(TWO, ["--bootstrap", "x; rm -rf /"])
    assert "'/opt/d h/dhtcrawl' join --json --listen '[::]:9000' --advertise '[2001:db8::12]:9000'" in script
    assert "--bootstrap 'x; rm -rf /' --data-dir" in script
    assert "mktemp -d /data/dhtcrawl-bench-XXXXXX" in script
    assert "dhs1-" not in script
    assert subprocess.run(["sh", "-n"], input=script, text=True, check=False).returncode == 0


def test_a_reading_says_what_the_node_and_its_machine_have_used() -> None:
    stat = "cpu  100 0 50 1000 50 0 0 0 0 0"
    process = "77 (dht crawl) S 1 77 77 0 -1 4194304 1 1 1 1 250 50 0 0 20 VmHWM:     2048 kB "
    assert parse_reading(f"reading 100 2 | {stat} | {process}") == HostReading(3.0, 0.75, 2 << 20)
    for line in ("", "reading", "reading 100 2 |  | ", f"reading 100 2 | {stat} | ", "{}", "ended"):
        assert parse_reading(line) is None, line


SSH = """#!{python}
import socket, subprocess, sys, threading
argv = sys.argv[1:]
print(argv, file=open({log!r}, "a"))
command, target = argv[-1], argv[-2]
assert argv[-3] == "--"
def copy(source, sink):
    while data := source.recv(65536):
        sink.sendall(data)
    sink.shutdown(socket.SHUT_WR)
def forward(server, there):
    while True:
        near, far = server.accept()[0], socket.create_connection(there)
        for pair in ((near, far), (far, near)):
            threading.Thread(target=copy, args=pair, daemon=True).start()
if "-L" in argv:
    host, port, *there = argv[argv.index("-L") + 1].split(":")
    server = socket.create_server((host, int(port)))
    threading.Thread(target=forward, args=(server, (there[0], int(there[1]))), daemon=True).start()
sys.exit(subprocess.run(["sh", "-c", command]).returncode)
"""


def test_a_swarm_on_other_machines_is_measured_and_leaves_nothing_there(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    there, log = tmp_path / "there", tmp_path / "ssh.log"
    (tmp_path / "bin").mkdir()
    there.mkdir()
    ssh = tmp_path / "bin" / "ssh"
    ssh.write_text(SSH.format(python=sys.executable, log=str(log)))
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ssh.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    command = tmp_path / "bin" / "a dhtcrawl"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m dhtcrawl "$@"\n')
    command.chmod(0o755)
    web, *free_hosts = (free_address().rpartition(":")[0] for _ in range(3))
    nodes = "".join(
        f'[[node]]\nssh = "host{number}"\naddress = "{host}:8468"\nadmin = "{host}:8469"\n'
        f"command = {json.dumps(str(command))}\ndirectory = {json.dumps(str(there))}\n"
        for number, host in enumerate(free_hosts, 1)
    )
    inventory = tmp_path / "hosts.toml"
    inventory.write_text(f'[web]\naddress = "{web}"\nport = 18100\n{nodes}')
    argv = ["--quick", "--inventory", str(inventory), "--real", "2", "--policies", "xor", "--json", "-"]
    assert bench_scale.main(argv) == 0
    rows = {row["name"]: row for row in json.loads(capfd.readouterr().out)["rows"]}
    assert rows["xor, by url, 2 nodes: lost"]["measured"] == 0
    assert rows["xor, by url, 2 nodes: too soon"]["measured"] == 0
    assert rows["xor, by url, 2 nodes: memory"]["measured"] > 10
    assert list(there.iterdir()) == []
    said = log.read_text()
    assert "'host1'" in said
    assert "dhs1-" not in said, "a secret's text begins so"
