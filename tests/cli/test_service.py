"""What the service manager is told of a node."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from dhtcrawl.cli.service import EXTEND_US, TELL_EVERY_S, ServiceManager, message

MORE = f"EXTEND_TIMEOUT_USEC={EXTEND_US}"


@pytest.mark.parametrize(
    ("state", "before", "says"),
    [
        ("joining", None, ["STATUS=joining the swarm", "WATCHDOG=1", MORE]),
        ("active", "joining", ["STATUS=takes part in the swarm", "WATCHDOG=1", "READY=1"]),
        ("active", "active", ["STATUS=takes part in the swarm", "WATCHDOG=1"]),
        ("leaving", "active", ["STATUS=hands over what it holds", "WATCHDOG=1", MORE, "STOPPING=1"]),
        ("leaving", "leaving", ["STATUS=hands over what it holds", "WATCHDOG=1", MORE]),
    ],
)
def test_it_is_told_when_a_node_is_ready_that_it_lives_and_that_it_takes_its_time(
    state: str, before: str | None, says: list[str]
) -> None:
    assert message(state, before).splitlines() == says


@pytest.mark.parametrize("abstract", [False, True])
def test_it_is_told_at_the_address_that_it_names(abstract: bool, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        name = f"@dhtcrawl-test-{tmp_path.name}" if abstract else str(tmp_path / "notify")
        manager.bind(f"\0{name[1:]}" if abstract else name)
        told = ServiceManager({"NOTIFY_SOCKET": name})
        for state in ("joining", "active"):
            told.tell(state)
            assert manager.recv(4096).decode() == message(state, None if state == "joining" else "joining")


async def test_a_node_is_followed_as_long_as_it_runs(tmp_path: Path) -> None:
    states = ["joining", "joining", "active", "active", "leaving"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        following = asyncio.create_task(
            ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "notify")}).follow(lambda: states.pop(0))
        )
        await asyncio.sleep(2 + 2 * TELL_EVERY_S + 0.5)
        following.cancel()
        heard = [manager.recv(4096).decode().split("\n")[0].partition("=")[2].split()[0] for _ in range(5)]
    assert heard == ["joining", "joining", "takes", "takes", "hands"]


async def test_without_a_manager_nothing_is_told_and_one_that_is_gone_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await ServiceManager({}).follow(lambda: "joining")
    ServiceManager({}).tell("active")
    assert caplog.text == ""
    ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "gone")}).tell("active")
    assert "the service manager cannot be told" in caplog.text
