"""How much of its store a node hands out at a time, to whoever gathers a crawl."""

from __future__ import annotations

from typing import Final

# A list of the task plane holds 512 items, and a frame 1 MiB.
ROWS_MAX: Final = 500
CHUNK_BYTES_MAX: Final = 512 << 10
