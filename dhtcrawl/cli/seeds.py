"""Seeds from a file."""

from __future__ import annotations

import sys
from pathlib import Path

from dhtcrawl.errors import UsageError


def read_seeds(path: str | None) -> list[str]:
    """The lines of `path` (`-`: stdin; None: there are none) without comments and blank ones.

    Raises:
        UsageError: it cannot be read, or is not UTF-8.
    """
    if path is None:
        return []
    try:
        text = (sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"--seed-file {path}: cannot be read ({error}); check the path and that it is UTF-8"
        ) from error
    lines = (line.split(" #", 1)[0].strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]
