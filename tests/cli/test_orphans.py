"""A command that runs several nodes begins where the nodes of a killed one have not ended yet."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dhtcrawl.cli import orphans
from dhtcrawl.cli.orphans import freed
from dhtcrawl.cli.runtime import locked
from dhtcrawl.cli.screen import Screen

WAITS = "waiting for the nodes of the run before to end"


async def test_the_directories_of_nodes_that_still_end_are_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data_dirs = [tmp_path / "1", tmp_path / "2"]
    async with asyncio.TaskGroup() as group:
        with locked(data_dirs[0]), locked(data_dirs[1]):
            waiting = group.create_task(freed(data_dirs, Screen()))
            await asyncio.wait([waiting], timeout=2 * orphans.LOOK_S)
            assert not waiting.done()
    for data_dir in data_dirs:
        with locked(data_dir):
            pass
    assert capsys.readouterr().err.count(WAITS) == 1


async def test_a_node_that_does_not_end_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(orphans, "ORPHANS_S", orphans.LOOK_S)
    with locked(tmp_path / "1"):
        await freed([tmp_path / "1"], Screen())
    assert WAITS in capsys.readouterr().err


async def test_nothing_is_said_where_nothing_is_held(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await freed([tmp_path / "1"], Screen())
    assert not capsys.readouterr().err
