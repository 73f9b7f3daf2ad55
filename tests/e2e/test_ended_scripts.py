"""A script that runs nodes and is told to end leaves no process, no network namespace and no file behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from .crawler import CHECKOUT
from .deadline import until
from .netns import NETNS, PREFIX

TASKS = ["bench_tasks.py", "--quick", "--links"]
SCALE = ["bench_scale.py", "--real", "2", "--pages", "1000", "--policies", "xor"]
WAN = ["wan.py", "--nodes", "2", "--pages", "1000", "--hosts", "2"]


def started_by(script: int, home: Path) -> dict[int, list[bytes]]:
    """The commands that run and are of the script's session, or have a file of its own among their words."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            session = int((process / "stat").read_text().rpartition(")")[2].split()[3])  # proc(5), field 6
        except OSError:
            continue  # it has ended
        if words != [b""] and (session == script or any(os.fsencode(home) in word for word in words)):
            found[int(process.name)] = words
    return found


def namespaces_of(pid: int) -> list[str]:
    return [path.name for path in NETNS.glob(f"{PREFIX}.{pid}.*")]


def end(script: Sequence[str], number: signal.Signals, home: Path) -> tuple[int, int]:
    """Start a script, and send it a signal once it has a node; its exit code, and how many namespaces it had.

    Its nodes are those whose directories are below `home`, as all that it writes.
    """
    home.mkdir()
    argv = [sys.executable, str(CHECKOUT / "scripts" / script[0]), *script[1:]]
    with (home.parent / "said").open("wb") as said:
        env = os.environ | {"TMPDIR": str(home)}
        process = subprocess.Popen(argv, stdout=said, stderr=said, env=env, start_new_session=True)

    def has_node() -> bool:
        return any(b"join" in words for words in started_by(process.pid, home).values())

    try:
        until(lambda: process.poll() is not None or has_node(), "a node is started")
        assert process.poll() is None, (home.parent / "said").read_text()
        had = len(namespaces_of(process.pid))
        process.send_signal(number)
        process.send_signal(signal.SIGTERM)  # whoever is impatient changes nothing
        code = process.wait(60.0)
    finally:
        process.kill()
        process.wait()
    assert not started_by(process.pid, home)
    assert not namespaces_of(process.pid)
    assert not list(home.iterdir())
    return code, had


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_script_with_nodes_on_loopback_takes_them_along(number: signal.Signals, tmp_path: Path) -> None:
    code, _ = end(SCALE, number, tmp_path / "home")
    assert code in (128 + number, 128 + signal.SIGTERM), "whichever signal it saw first"


def test_a_benchmark_takes_its_nodes_along(tmp_path: Path) -> None:
    end(TASKS, signal.SIGTERM, tmp_path / "home")


@pytest.mark.needs_root
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_script_with_nodes_in_namespaces_takes_both_along(number: signal.Signals, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    for command in ("ip", "nft"):
        if shutil.which(command, path="/usr/sbin:/sbin:/usr/bin:/bin") is None:
            pytest.skip(f"{command} is missing: apt-get install iproute2 nftables")
    if not Path("/dev/net/tun").exists():
        pytest.skip("/dev/net/tun is missing: the kernel has no TUN devices")
    code, had = end(WAN, number, tmp_path / "home")
    assert code in (128 + number, 128 + signal.SIGTERM)
    assert had == 3, "two nodes and the web"
