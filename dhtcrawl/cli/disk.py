"""The disk limit: how much of it is used, asked off the event loop."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import NamedTuple

from dhtcrawl.crawl.budget import DiskLimit
from dhtcrawl.units import parse_size

CHECK_EVERY_S = 1.0


class DiskUse(NamedTuple):
    """What counts for the limit, of one disk or of all data; both in bytes."""

    used: float
    limit: float


def disk_watch(limit: str, paths: list[Path]) -> DiskLimit:
    """Says whether `limit` (a size of the data, or a share of the disk) is reached, or would be with more.

    Looks at the disk at most every `CHECK_EVERY_S` seconds.
    """
    loop = asyncio.get_running_loop()
    checked_at = float("-inf")
    found: list[DiskUse] = []

    async def used(more_bytes: int = 0, /) -> bool:
        nonlocal checked_at, found
        if limit and loop.time() - checked_at >= CHECK_EVERY_S:
            found = await loop.run_in_executor(None, look, limit, paths)
            checked_at = loop.time()
        return is_reached(found, more_bytes)

    return used


def is_reached(found: list[DiskUse], more_bytes: int = 0) -> bool:
    """Whether so many bytes more reach a limit."""
    return any(each.used + more_bytes >= each.limit for each in found)


def look(limit: str, paths: list[Path]) -> list[DiskUse]:
    """What the files below `paths` take together, or how full each of their disks is, beside `limit`."""
    if limit.endswith("%"):
        return [_of_disk(path, float(limit[:-1]) / 100) for path in paths]
    return [DiskUse(sum(map(_bytes_below, paths)), parse_size(limit))]


def _of_disk(path: Path, share: float) -> DiskUse:
    disk = os.statvfs(path)
    return DiskUse((disk.f_blocks - disk.f_bavail) * disk.f_frsize, share * disk.f_blocks * disk.f_frsize)


def _bytes_below(path: Path) -> int:
    total = 0
    for directory, _, names in os.walk(path):
        for name in names:
            try:
                total += os.lstat(Path(directory) / name).st_blocks * 512
            except FileNotFoundError:
                continue  # compacted away since it was listed
    return total
