"""Machines of a network of their own, for one test: network namespaces on a bridge, and links that nft cuts.

    router      a bridge, and the nft rules on it
    HOST …      one interface, an address of 10.77.0.0/24, and a loopback

Nothing of the machine's own network is touched: interfaces are made inside
namespaces. A namespace has the process that made it in its name, so that those
of a run that was killed are found, and removed with whatever still runs there.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

PREFIX = "dhtcrawl-chaos"
NETNS = Path("/run/netns")
SUBNET = "10.77.0"
HOSTS_MAX = 250
SBIN = "/usr/sbin:/sbin:/usr/bin:/bin"  # Debian keeps both commands out of an ordinary user's PATH
_FILTER = ["bridge", "chaos", "forward"]
_CLONE_NEWNET = 0x40000000


class Unavailable(Exception):
    """This machine cannot do it; one line that says what is missing."""


class Hosts:
    """Named hosts that reach one another, until the block is left."""

    def __init__(self, names: Sequence[str]) -> None:
        """Nothing is made before the block is entered."""
        assert len(names) <= HOSTS_MAX
        self.names = list(names)
        self._mark = f"{PREFIX}.{os.getpid()}.{_started(os.getpid())}"
        self._router = f"{self._mark}.router"

    def __enter__(self) -> Self:
        """Make them.

        Raises:
            Unavailable: the machine does not allow it, or a command is missing.
        """
        if os.geteuid() != 0:
            raise Unavailable("network namespaces need root: run it as root, or in a container")
        for command, package in (("ip", "iproute2"), ("nft", "nftables"), ("nsenter", "util-linux")):
            if shutil.which(command, path=SBIN) is None:
                raise Unavailable(f"{command} is missing: apt-get install {package}")
        sweep()
        try:
            self._make()
        except subprocess.CalledProcessError as error:
            self._remove()
            raise Unavailable(f"{' '.join(error.cmd)}: {error.stderr.strip()}") from error
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def address(self, name: str) -> str:
        """A host's IPv4 address."""
        return f"{SUBNET}.{1 + self.names.index(name)}"

    def name(self, address: str) -> str:
        """The host with an address."""
        return self.names[int(address.rpartition(".")[2]) - 1]

    def wrapper(self, name: str) -> list[str]:
        """What stands before a command that is to run on a host; the process is the command's own.

        Not `ip netns exec`, which mounts another /sys, where the control groups are missing.
        """
        return ["nsenter", f"--net={self.file(name)}"]

    def file(self, name: str) -> Path:
        """That of a host's network namespace."""
        return NETNS / self._namespace(name)

    @contextmanager
    def on(self, name: str) -> Iterator[None]:
        """Sockets that this thread makes meanwhile are the host's."""
        with entered(self._namespace(name)):
            yield

    def cut(self, senders: Sequence[str], receivers: Sequence[str]) -> None:
        """From now on nothing of these senders reaches those receivers; the other way is open."""
        addresses = [", ".join(map(self.address, side)) for side in (senders, receivers)]
        rule = ["ip", "saddr", "{", addresses[0], "}", "ip", "daddr", "{", addresses[1], "}", "counter", "drop"]
        _run([*self.wrapper("router"), "nft", "add", "rule", *_FILTER, *rule])

    def heal(self) -> int:
        """Every way is open again; how many packets were dropped since the last time."""
        listed = _run([*self.wrapper("router"), "nft", "-j", "list", "chain", *_FILTER])
        rules = [row["rule"]["expr"] for row in json.loads(listed)["nftables"] if "rule" in row]
        _run([*self.wrapper("router"), "nft", "flush", "chain", *_FILTER])
        return sum(word["counter"]["packets"] for rule in rules for word in rule if "counter" in word)

    def _namespace(self, name: str) -> str:
        return f"{self._mark}.{name}"

    def _make(self) -> None:
        for name in ("router", *self.names):
            _run(["ip", "netns", "add", self._namespace(name)])
        router = self._namespace("router")
        lines = ["link add bridge type bridge mcast_snooping 0", "link set bridge up"]
        for number, name in enumerate(self.names):
            # Named by number: an interface's name has 15 characters at most.
            lines.append(f"link add host{number} type veth peer name eth0 netns {self._namespace(name)}")
            lines.append(f"link set host{number} master bridge up")
        _batch(router, lines)
        for name in self.names:
            address = f"address add {self.address(name)}/24 dev eth0"
            _batch(self._namespace(name), ["link set lo up", address, "link set eth0 up"])
        _run([*self.wrapper("router"), "nft", "add", "table", *_FILTER[:2]])
        hook = "{ type filter hook forward priority 0; }"
        _run([*self.wrapper("router"), "nft", "add", "chain", *_FILTER, hook])

    def _remove(self) -> None:
        for name in ("router", *self.names):
            remove(self._namespace(name))


@contextmanager
def entered(namespace: str) -> Iterator[None]:
    """This thread is in a namespace meanwhile."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/proc/thread-self/ns/net").open() as home, (NETNS / namespace).open() as there:
        _enter(libc, there.fileno())
        try:
            yield
        finally:
            _enter(libc, home.fileno())


def sweep() -> list[str]:
    """Remove what runs left behind whose process is gone; the names of those namespaces."""
    found = sorted(path.name for path in NETNS.glob(f"{PREFIX}.*")) if NETNS.is_dir() else []
    stale = [name for name in found if not _is_there(*name.split(".")[1:3])]
    for name in stale:
        remove(name)
    return stale


def remove(namespace: str) -> None:
    """Kill what runs in a namespace, then delete it; nothing where it is not there."""
    if not (NETNS / namespace).exists():
        return
    for word in _run(["ip", "netns", "pids", namespace], check=False).split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(word), signal.SIGKILL)
    _run(["ip", "netns", "delete", namespace], check=False)


def _is_there(pid: str, started: str) -> bool:
    """Whether the process that began then still runs: numbers are used again."""
    return pid.isdigit() and _started(int(pid)) == started


def _started(pid: int) -> str:
    """When a process began, in the kernel's ticks; empty where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]  # proc(5), field 22
    except OSError:
        return ""


def _enter(libc: ctypes.CDLL, namespace: int) -> None:
    if libc.setns(namespace, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "setns")


def _batch(namespace: str, lines: Sequence[str]) -> None:
    _run(["ip", "-netns", namespace, "-batch", "-"], "\n".join(lines) + "\n")


def _run(argv: Sequence[str], stdin: str = "", *, check: bool = True) -> str:
    env = os.environ | {"PATH": f"{os.environ.get('PATH', '')}:{SBIN}"}
    done = subprocess.run(list(argv), input=stdin, check=check, capture_output=True, text=True, timeout=60, env=env)
    return done.stdout
