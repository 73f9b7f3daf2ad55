"""What a page record has of the records that rules found on its page. Pure."""

from __future__ import annotations

from typing import Any, Final

# In ASCII: page records travel between nodes in frames of 1 MiB, some in each.
STORED_CHARS_MAX: Final = 192 << 10


def stored_records(fields: dict[str, Any]) -> str | None:
    """What a page record has of its records; None: no rule was for the page."""
    found = fields.get("records")
    return found if isinstance(found, str) else None
