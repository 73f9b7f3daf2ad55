"""A command that runs several nodes begins where the nodes of a killed one have not ended yet."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dhtcrawl.cli import local_swarm
from dhtcrawl.cli.local_swarm import freed
from dhtcrawl.cli.runtime import locked


async def test_the_directories_of_nodes_that_still_end_are_waited_for(tmp_path: Path) -> None:
    data_dirs = [tmp_path / "1", tmp_path / "2"]
    with locked(data_dirs[0]), locked(data_dirs[1]):
        waiting = asyncio.create_task(freed(data_dirs))
        await asyncio.wait([waiting], timeout=2 * local_swarm.LOOK_S)
        assert not waiting.done()
    await waiting
    for data_dir in data_dirs:
        with locked(data_dir):
            pass


async def test_a_node_that_does_not_end_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_swarm, "ORPHANS_S", 0.0)
    with locked(tmp_path / "1"):
        await freed([tmp_path / "1"])
