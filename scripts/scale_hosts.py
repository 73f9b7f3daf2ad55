"""Nodes on hosts of an inventory, over the system's ssh; the made-up web runs here, and the nodes come to it.

    [web]                              # this machine
    address = "203.0.113.5"            # where the nodes reach it; its hosts are ports of this address
    port = 18000                       # of the first (default)

    [[node]]                           # as many as there are; a swarm of N is the first N
    ssh = "crawler@192.0.2.11"         # what ssh is told: keys, jumps and names are its configuration's
    address = "192.0.2.11:8468"        # where the other nodes reach it, and listens
    listen = "0.0.0.0:8468"            # where it listens, if that is another address
    admin = "127.0.0.1:8469"           # its admin port, on that machine (default)
    command = "/opt/dhtcrawl/bin/dhtcrawl"   # (default: dhtcrawl)
    directory = "/var/tmp"             # its store lies in a new directory in there (default)

A node is one ssh process: it runs a small sh script, which starts the node, says each second what it has used, and ends
it, and removes its directory, when ssh's input closes, however this program ended. The node's admin port comes through
the same ssh. The swarm's secret is drawn for the run and goes over ssh's input, never on a command line; the script
itself is one quoted word.
"""

from __future__ import annotations

import ipaddress
import json
import secrets
import shlex
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from loopback import free_port
from scale_nodes import RealSample, Trial, bytes_between, measure
from scale_site import Hosts, ScaleSite

from dhtcrawl.closed.secret import SECRET_BYTES, secret_text
from dhtcrawl.errors import ConfigError
from dhtcrawl.toml_file import Table, TomlFile
from dhtcrawl.units import Address, format_address, ip_of, parse_address

WEB_PORT: Final = 18_000
ADMIN: Final[Address] = ("127.0.0.1", 8469)
START_MAX_S: Final = 60.0
SSH: Final = (
    "ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=15",
    "-o", "ExitOnForwardFailure=yes",
)  # fmt: skip
READING, ENDED = "reading", "ended"


@dataclass(frozen=True, slots=True)
class NodeHost:
    """Where one node runs."""

    ssh: str
    address: Address
    listen: Address
    admin: Address
    command: str
    directory: str


class Inventory(NamedTuple):
    """Where the web and the nodes are."""

    web: Hosts
    nodes: tuple[NodeHost, ...]


def parse_inventory(name: str, text: str) -> Inventory:
    """Read one; pure.

    Raises:
        ConfigError: it is none; the message names the line and what would be right.
    """
    root = TomlFile(name, text).root
    web = root.table("web")
    places = Hosts(web.read("port", _port, WEB_PORT), web.read("address", _ip))
    web.done()
    nodes = tuple(map(_node, root.tables("node")))
    if not nodes:
        raise root.wrong("has no nodes; write [[node]] for each of them")
    root.done()
    return Inventory(places, nodes)


def _node(table: Table) -> NodeHost:
    address: Address = table.read("address", _reachable)
    node = NodeHost(
        table.read("ssh", _target),
        address,
        table.read("listen", parse_address, address),
        table.read("admin", _reachable, ADMIN),
        table.read("command", _word, "dhtcrawl"),
        table.read("directory", _word, "/var/tmp"),
    )
    table.done()
    return node


def _word(value: object) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise ValueError("use a word without line breaks")
    return value


def _target(value: object) -> str:
    # Else it would be an option.
    if _word(value).startswith("-"):
        raise ValueError("name a host, such as user@192.0.2.11")
    return str(value)


def _ip(value: object) -> str:
    if not isinstance(value, str) or ip_of(value) is None:
        raise ValueError("use an IP address of this machine, such as 203.0.113.5")
    return value


def _port(value: object) -> int:
    if type(value) is not int or not 0 < value < 65_536:
        raise ValueError("use a port, 1 to 65535")
    return value


def _reachable(value: object) -> Address:
    address = parse_address(value)
    if not address[1]:
        raise ValueError("use a port of its own, 1 to 65535")
    return address


def sizes_of(nodes: int) -> list[int]:
    """1, 2, 4 … nodes, and all of them; pure."""
    return sorted({2**power for power in range(nodes.bit_length()) if 2**power <= nodes} | {nodes})


def script_of(host: NodeHost, options: Sequence[str]) -> str:
    """What runs on a node's machine, for sh; the secret is the first line of its input. Pure."""
    join = [
        host.command, "join", "--json", "--listen", format_address(host.listen), "--advertise",
        format_address(host.address), "--admin", format_address(host.admin), *options,
    ]  # fmt: skip
    return f"""umask 077
dir=$(mktemp -d {shlex.quote(host.directory)}/dhtcrawl-bench-XXXXXX) || exit 1
trap 'rm -rf "$dir"' EXIT
IFS= read -r secret || exit 1
printf '%s\\n' "$secret" > "$dir/secret"
unset secret
{shlex.join(join)} --data-dir "$dir/node" --secret-file "$dir/secret" &
node=$!
{{ while kill -0 $node 2>/dev/null; do
  printf '{READING} %s | %s | %s\\n' "$(getconf CLK_TCK) $(getconf _NPROCESSORS_ONLN)" \\
    "$(head -n 1 /proc/stat)" "$(cat /proc/$node/stat /proc/$node/status | grep -e '^[0-9]' -e '^VmHWM' | tr '\\n' ' ')"
  sleep 1
done; echo {ENDED}; }} &
cat > /dev/null
kill -KILL $node
wait
"""


def command_of(host: NodeHost, script: str, local_port: int = 0) -> list[str]:
    """How ssh is called: with `local_port`, that of this machine leads to the node's admin port. Pure."""
    forward = ["-L", f"127.0.0.1:{local_port}:{format_address(host.admin)}"] if local_port else []
    # The login shell may be any; it passes one quoted word on.
    return [*SSH, *forward, "--", host.ssh, f"exec sh -c {shlex.quote(script)}"]


class HostReading(NamedTuple):
    """What a node and its machine had used at a moment."""

    cpu_s: float
    busy_s: float  # of the machine, over its processors
    peak_bytes: int


def parse_reading(line: str) -> HostReading | None:
    """What a line of the script says; None where it is no such line, or the node was just gone. Pure."""
    word, _, rest = line.partition(" ")
    parts = rest.split(" | ")
    if word != READING or len(parts) != 3:
        return None
    hertz, processors = map(int, parts[0].split())
    machine = [int(field) for field in parts[1].split()[1:9]]
    # proc(5): the name of the command, in parentheses, may have blanks.
    fields = parts[2].rpartition(")")[2].split()
    if len(machine) < 5 or "VmHWM:" not in fields:
        return None
    busy = sum(machine) - machine[3] - machine[4]
    peak_kib = int(fields[fields.index("VmHWM:") + 1])
    return HostReading((int(fields[11]) + int(fields[12])) / hertz, busy / hertz / processors, 1024 * peak_kib)


class RemoteNode:
    """A node on another machine, and the ssh that it lives by."""

    def __init__(self, host: NodeHost, secret: str, options: Sequence[str], log: Path) -> None:
        """Start it, and wait until it takes part.

        Raises:
            SystemExit: it does not.
        """
        self.host = host
        self._log = log
        self._port = free_port()
        self._told: HostReading | None = None
        self._ended = False
        argv = command_of(host, script_of(host, options), self._port)
        with log.open("ab") as errors:
            self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
        assert self.process.stdin is not None
        self.process.stdin.write(f"{secret}\n".encode())
        self.process.stdin.flush()
        self._there = threading.Event()
        self._hearing = threading.Thread(target=self._hear, daemon=True)
        self._hearing.start()
        until = time.monotonic() + START_MAX_S
        while not (self._there.is_set() and self._told):
            if self._ended or self.process.poll() is not None or time.monotonic() > until:
                self.end()
                raise SystemExit(f"bench: the node at {host.ssh} does not start: {log.read_text()[-500:].strip()}")
            time.sleep(0.05)

    def _hear(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            text = line.decode("utf-8", "replace").strip()
            if text.startswith("{"):
                self._there.set()
            elif text == ENDED:
                self._ended = True
            else:
                self._told = parse_reading(text) or self._told

    @property
    def address(self) -> str:
        return format_address(self.host.address)

    @property
    def cpu_s(self) -> float:
        return self._reading.cpu_s

    @property
    def busy_s(self) -> float:
        return self._reading.busy_s

    @property
    def peak_bytes(self) -> int:
        return self._reading.peak_bytes

    @property
    def _reading(self) -> HostReading:
        assert self._told is not None, "it has started"
        return self._told

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """What its admin answers below /api/v1.

        Raises:
            SystemExit: it does not, and ssh has ended.
        """
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self._port}/api/v1/{path}", data=data, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except OSError:
            if self.process.poll() is None:
                raise
            raise SystemExit(f"bench: the ssh to {self.host.ssh} has ended: {self._log.read_text()[-500:]}") from None

    def end(self) -> None:
        """Close the script's input, upon which it ends the node and cleans up."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._hearing.join()
        self.process.stdout.close()


@contextmanager
def remote_swarm(inventory: Inventory, count: int, flight: int, logs: Path) -> Iterator[list[RemoteNode]]:
    """The first so many nodes, which know each other; ended in the end."""
    secret = secret_text(secrets.token_bytes(SECRET_BYTES))
    options = ["--concurrency", str(flight)]
    address = ipaddress.ip_address(inventory.web.address)
    if not address.is_global:
        options += ["--allow-network", f"{address}/{address.max_prefixlen}"]
    with ExitStack() as stack:
        nodes: list[RemoteNode] = []
        for number, host in enumerate(inventory.nodes[:count]):
            through = ["--bootstrap", nodes[0].address] if nodes else []
            nodes.append(RemoteNode(host, secret, [*options, *through], logs / f"node-{number}.log"))
            stack.callback(nodes[-1].end)
        until = time.monotonic() + START_MAX_S
        while not all(_active(node) == len(nodes) for node in nodes):
            if time.monotonic() > until:
                raise SystemExit(f"bench: the {count} nodes do not all see each other; their logs lie in {logs}")
            time.sleep(0.2)
        yield nodes


def _active(node: RemoteNode) -> int:
    return sum(peer["state"] == "active" for peer in node.ask("GET", "peers"))


def run(inventory: Inventory, trial: Trial, home: Path) -> RealSample:
    """One crawl by a new swarm on these hosts; `home` is an empty directory.

    Raises:
        SystemExit: a node does not start, or the crawl does not end.
    """
    with (
        ScaleSite(home, trial.hosts, trial.pages, trial.latency_s, trial.delay_s, inventory.web) as site,
        remote_swarm(inventory, trial.nodes, trial.flight, home) as nodes,
    ):
        return measure(trial, site, nodes, lambda: _sent_bytes(nodes))


def _sent_bytes(nodes: Sequence[RemoteNode]) -> int | None:
    """Of each machine what its own end of the connections has sent; None where one has no `ss`."""
    addresses = {node.address for node in nodes}
    found = 0
    for host in {node.host.ssh: node.host for node in nodes}.values():
        done = subprocess.run(command_of(host, "exec ss -tinOH"), capture_output=True, text=True, check=False)
        if done.returncode:
            return None
        found += bytes_between(done.stdout, addresses)
    return found


def read_inventory(path: str) -> Inventory:
    """The one in a file.

    Raises:
        SystemExit: it cannot be read, or is none.
    """
    try:
        return parse_inventory(path, Path(path).read_text())
    except (OSError, UnicodeDecodeError, ConfigError) as error:
        raise SystemExit(f"bench: {error}") from None
