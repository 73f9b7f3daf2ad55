"""Nodes whose command was killed: they notice it at once and end by themselves; until then their stores are held."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from dhtcrawl.cli.runtime import locked
from dhtcrawl.cli.screen import Screen
from dhtcrawl.errors import StoreInUse

# How long such nodes may take to end: they may be waiting for the disk.
ORPHANS_S, LOOK_S = 20.0, 0.05


async def freed(data_dirs: Sequence[Path], screen: Screen) -> None:
    """Return once no process holds one of these directories, or after `ORPHANS_S`; say so if that takes time.

    Nodes whose command was killed end by themselves, and the next one needs their stores.

    Raises:
        StorageError: a directory cannot be used.
    """
    loop = asyncio.get_running_loop()
    until, told = loop.time() + ORPHANS_S, False
    for data_dir in data_dirs:
        while loop.time() < until:
            try:
                with locked(data_dir):
                    break
            except StoreInUse:
                if not told:
                    screen.say("waiting for the nodes of the run before to end")
                    told = True
                await asyncio.sleep(LOOK_S)
