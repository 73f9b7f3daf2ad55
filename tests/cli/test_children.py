"""Processes that wait to be told which node to run: forked from this one, or started anew."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from dhtcrawl.cli import children
from dhtcrawl.cli.addresses import JoinOptions
from dhtcrawl.cli.child import order_of
from dhtcrawl.cli.children import Child, started
from dhtcrawl.config import Config, NodeSettings, StorageSettings, changed, load
from dhtcrawl.errors import DhtcrawlError

pytestmark = pytest.mark.loops("asyncio")
JOIN = JoinOptions(
    (("127.0.0.1", 1),), ("::1", 2), ("192.0.2.7", 3), ("127.0.0.1", 4), open_swarm=True, as_json=True, gathered=True
)
ways = pytest.mark.parametrize("fork", [True, False], ids=["forked", "spawned"])


def order(data_dir: Path, log: Path) -> dict[str, object]:
    config = Config(node=NodeSettings(data_dir=str(data_dir)))
    return order_of(config, JOIN, log=log, label="node 2", signals=False)


@ways
async def test_a_child_runs_what_it_is_told_and_its_end_is_known(fork: bool, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with started(1, fork=fork) as (child,):
        child.run(order(tmp_path / "file" / "data", tmp_path / "log"))
        assert await child.next_line() == ""
        assert await child.wait() == 1
        child.leave()  # too late is no error
    said = (tmp_path / "log").read_text()
    assert said.startswith("dhtcrawl: node 2: cannot use the data directory ")
    assert said.count("\n") == 1


@ways
async def test_each_child_ends_with_its_parents_end_of_its_stdin_and_the_others_go_on(fork: bool) -> None:
    with started(3, fork=fork) as (first, second, third):
        second.dismiss()
        assert await second.wait() == 0, "no other child holds the pipe open"
        first.leave()
        assert await first.wait() == 0, "there was nothing to leave yet"
        os.kill(third.pid, signal.SIGTERM)  # waits until the child knows what it means
        os.kill(third.pid, signal.SIGKILL)
        assert await third.wait() == -signal.SIGKILL
    for child in (first, second, third):
        assert not alive(child)


def test_children_are_gone_when_the_command_fails() -> None:
    with pytest.raises(RuntimeError), started(2) as both:
        raise RuntimeError
    assert not any(alive(child) for child in both)


def test_a_process_that_cannot_be_started_is_told_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    before = os.listdir("/proc/self/fd")  # noqa: PTH208
    with pytest.raises(DhtcrawlError, match=r"process 1 of 2 cannot be started .*; use fewer with --nodes"):
        started(2, fork=True).__enter__()
    assert os.listdir("/proc/self/fd") == before  # noqa: PTH208
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


async def test_where_another_thread_runs_nothing_is_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    await asyncio.to_thread(os.getpid)  # the pool's thread stays
    assert not children.may_fork()
    monkeypatch.setattr("sys.platform", "darwin")
    assert not children.may_fork()


def test_settings_and_addresses_come_through_an_order_as_they_were() -> None:
    config = Config(storage=StorageSettings(sync=False, disk_limit="90%"), node=NodeSettings(labels=("a=b", "c=d")))
    assert changed(load(flags=changed(config))) == changed(config) != {}
    assert JoinOptions.from_json(JOIN.to_json()) == JOIN


def alive(child: Child) -> bool:
    try:
        os.kill(child.pid, 0)
    except ProcessLookupError:
        return False
    return True
