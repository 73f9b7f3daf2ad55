"""The disk limit: how much of it is used, asked off the event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from dhtcrawl.units import parse_size

CHECK_EVERY_S = 1.0


def disk_watch(limit: str, paths: list[Path]) -> Callable[[], Awaitable[bool]]:
    """Says whether `limit` (a size of the data, or a share of the disk) is reached.

    Looks at the disk at most every `CHECK_EVERY_S` seconds.
    """
    loop = asyncio.get_running_loop()
    checked_at = float("-inf")
    reached = False

    async def used() -> bool:
        nonlocal checked_at, reached
        if limit and loop.time() - checked_at >= CHECK_EVERY_S:
            reached = await loop.run_in_executor(None, is_reached, limit, paths)
            checked_at = loop.time()
        return reached

    return used


def is_reached(limit: str, paths: list[Path]) -> bool:
    """Whether the files below `paths` take as much as `limit` together, or one of their disks is that full."""
    if limit.endswith("%"):
        return any(_percent_used(path) >= float(limit[:-1]) for path in paths)
    return sum(map(_bytes_below, paths)) >= parse_size(limit)


def _percent_used(path: Path) -> float:
    disk = os.statvfs(path)
    return 100 * (1 - disk.f_bavail / max(1, disk.f_blocks))


def _bytes_below(path: Path) -> int:
    total = 0
    for directory, _, names in os.walk(path):
        for name in names:
            try:
                total += os.lstat(Path(directory) / name).st_blocks * 512
            except FileNotFoundError:
                continue  # compacted away since it was listed
    return total
